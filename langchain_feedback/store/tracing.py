"""Traces: which question was asked, what was retrieved for it, and what became of it."""

from sqlalchemy import Connection, case, select, update

from langchain_feedback.documents import chunk_key
from langchain_feedback.errors import TraceReusedError, UnknownChunkError, UnknownTraceError
from langchain_feedback.store.chunks import take_snapshots
from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.incoming import GRADES, NewTrace, TraceUpdate
from langchain_feedback.store.questions import known_question, question_id_of
from langchain_feedback.store.records import TraceChunk, TraceRecord
from langchain_feedback.store.schema import (
    questions,
    signals,
    trace_chunks,
    trace_searches,
    traces,
)
from langchain_feedback.traces import storable

__all__ = ["attach", "is_voted", "read_trace", "require_trace", "write_trace", "write_update"]


def write_trace(connection: Connection, namespace: str, new: NewTrace) -> None:
    """Keep a search. What is known of its trace stays; writing it twice changes nothing.

    Raises:
        UnknownTraceError: If another namespace holds a trace of this id.
        TraceReusedError: If the trace is of another question.
    """
    question_id = question_id_of(connection, namespace, new.question)
    row = {
        "trace_id": new.trace_id,
        "namespace": namespace,
        "question_id": question_id,
        "created_at": new.created_at,
    }
    insert_or_ignore(connection, traces, [row | dict(new.facts)])
    if require_trace(connection, namespace, new.trace_id) != question_id:
        raise TraceReusedError(_reused(new.trace_id))
    search = {"trace_id": new.trace_id, "attempt": new.attempt, "query": storable(new.query)}
    insert_or_ignore(connection, trace_searches, [search])
    documents = [chunk.document for chunk in new.chunks]
    unseen = {
        at
        for at, chunk in enumerate(new.chunks)
        if chunk.origin == "foldback" and chunk.base_rank is None
    }
    cells = take_snapshots(
        connection, namespace, documents, new.created_at, new.id_field, unseen=unseen
    )
    insert_or_ignore(
        connection,
        trace_chunks,
        [
            {
                "trace_id": new.trace_id,
                "attempt": new.attempt,
                "chunk_id": chunk_key(chunk.document, new.id_field),
                "cell_id": cell[0],
                "content_hash": cell[1],
                "base_rank": chunk.base_rank,
                "final_rank": chunk.final_rank,
                "base_score": chunk.base_score,
                "belief": chunk.belief,
                "multiplier": chunk.multiplier,
                "final_score": chunk.final_score,
                "origin": chunk.origin,
                "returned": chunk.returned,
                "in_prompt": chunk.returned,
                "ranker_rank": chunk.ranker_rank,
                "shadow_rank": chunk.shadow_rank,
                "team": chunk.team,
            }
            for chunk, cell in zip(new.chunks, cells, strict=True)
        ],
    )


def write_update(connection: Connection, namespace: str, new: TraceUpdate) -> None:
    """Keep what became known of a trace.

    Raises:
        UnknownTraceError: If there is no such trace.
        UnknownChunkError: If a named chunk is none of its candidates.
        TraceReusedError: If it is the trace of another question.
    """
    trace_id = new.trace_id
    question_id = require_trace(connection, namespace, trace_id)
    if new.asked and question_id not in {
        known_question(connection, namespace, question) for question in new.asked
    }:
        raise TraceReusedError(_reused(trace_id))
    if new.facts:
        changed = update(traces).where(traces.c.trace_id == trace_id)
        connection.execute(changed.values(dict(new.facts)))
    mine = trace_chunks.c.trace_id == trace_id
    known = set(connection.execute(select(trace_chunks.c.chunk_id).where(mine)).scalars())
    for column, ids in (("in_prompt", new.in_prompt), ("cited", new.cited)):
        if ids is not None:
            named = _checked(trace_id, set(ids), known)
            value = case((trace_chunks.c.chunk_id.in_(named), True), else_=False)
            connection.execute(update(trace_chunks).where(mine).values({column: value}))
    grades = new.grades or {}
    _checked(trace_id, set(grades), known)
    for grade in GRADES:
        if named := {chunk_id for chunk_id, given in grades.items() if given == grade}:
            among = trace_chunks.c.chunk_id.in_(named)
            connection.execute(update(trace_chunks).where(mine, among).values(grade=grade))


def require_trace(connection: Connection, namespace: str, trace_id: str) -> int:
    """Return the question of a trace.

    Raises:
        UnknownTraceError: If it is not there, or another namespace's.
    """
    mine = (traces.c.trace_id == trace_id) & (traces.c.namespace == namespace)
    question_id = connection.execute(select(traces.c.question_id).where(mine)).scalar()
    if question_id is None:
        msg = (
            f"No trace {trace_id!r} in namespace {namespace!r}. Rate what a FeedbackRetriever "
            "returned (`trace_id_of(documents)`), give your graph this store (`store=`), or pass "
            "pending=True if the retrieval is still to come."
        )
        raise UnknownTraceError(msg)
    return int(question_id)


def is_voted(connection: Connection, namespace: str, trace_id: str) -> bool:
    """Whether there are signals for this trace, also such as wait for it."""
    mine = (signals.c.namespace == namespace) & (signals.c.trace_id == trace_id)
    return connection.execute(select(signals.c.seq).where(mine).limit(1)).first() is not None


def attach(connection: Connection, namespace: str, trace_id: str) -> None:
    """Bind the signals that wait for this trace to it."""
    mine = (signals.c.namespace == namespace) & (signals.c.trace_id == trace_id)
    waiting = mine & signals.c.attached.is_(False)
    connection.execute(update(signals).where(waiting).values(attached=True))


def read_trace(connection: Connection, namespace: str, trace_id: str) -> TraceRecord | None:
    """Return a trace with all its candidates, or None."""
    row = connection.execute(
        select(traces, questions.c.text)
        .join(questions, questions.c.question_id == traces.c.question_id)
        .where(traces.c.namespace == namespace, traces.c.trace_id == trace_id)
    ).one_or_none()
    if row is None:
        return None
    searched = select(trace_searches).where(trace_searches.c.trace_id == trace_id)
    found = (
        select(trace_chunks)
        .where(trace_chunks.c.trace_id == trace_id)
        .order_by(trace_chunks.c.attempt, trace_chunks.c.final_rank)
    )
    fields = set(TraceRecord.__dataclass_fields__) - {"question", "searches", "chunks"}
    return TraceRecord(
        question=row.text,
        searches={search.attempt: search.query for search in connection.execute(searched)},
        chunks=tuple(
            TraceChunk(**{name: chunk[name] for name in TraceChunk.__dataclass_fields__})
            for chunk in connection.execute(found).mappings()
        ),
        **{name: getattr(row, name) for name in fields},
    )


def _reused(trace_id: str) -> str:
    return (
        f"Trace {trace_id!r} is of another question. Make one id for each question, with "
        "`new_trace_id()`."
    )


def _checked(trace_id: str, named: set[str], known: set[str]) -> set[str]:
    if missing := sorted(named - known):
        msg = f"Trace {trace_id!r} did not retrieve {', '.join(map(repr, missing))}"
        raise UnknownChunkError(msg)
    return named
