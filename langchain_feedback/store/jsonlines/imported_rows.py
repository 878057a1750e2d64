"""Writing what an export told of: snapshots, pins, signals and their traces."""

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, insert, select

from langchain_feedback.errors import UnknownChunkError, UnknownTraceError
from langchain_feedback.store.database import insert_or_ignore, upsert
from langchain_feedback.store.jsonlines.lines import ChunkLine, PinLine, SignalLine, TraceLine
from langchain_feedback.store.questions import Question, question_id_of, remember
from langchain_feedback.store.schema import (
    ANSWER,
    chunks,
    pins,
    signals,
    trace_chunks,
    trace_searches,
    traces,
)
from langchain_feedback.store.voting import Event

__all__ = ["awaited_among", "known_events", "write_chunk", "write_pin", "write_signal"]


def write_chunk(connection: Connection, namespace: str, line: ChunkLine) -> bool:
    """Keep a snapshot unless a later one is known; return whether it was kept."""
    mine = (chunks.c.namespace == namespace) & (chunks.c.chunk_id == line.chunk_id)
    seen = connection.execute(select(chunks.c.last_seen).where(mine)).scalar()
    if seen is not None and seen >= line.last_seen:
        return False
    row = line.model_dump(exclude={"type"}) | {
        "namespace": namespace,
        "metadata": json.dumps(line.metadata),
        "dropped": json.dumps(line.dropped),
    }
    upsert(connection, chunks, [row], key=["namespace", "chunk_id"])
    return True


def write_pin(connection: Connection, namespace: str, line: PinLine) -> bool:
    """Keep a pin unless it is known; return whether it is new.

    Raises:
        ValueError: If another namespace holds a pin of this id.
    """
    known = select(pins.c.namespace).where(pins.c.pin_id == line.pin_id)
    owner = connection.execute(known).scalar()
    if owner not in (None, namespace):
        msg = f"pin {line.pin_id!r} is another namespace's"
        raise ValueError(msg)
    question_id = question_id_of(connection, namespace, Question(line.question))
    same = (pins.c.question_id == question_id) & (pins.c.chunk_id == line.chunk_id)
    same &= (pins.c.content_hash == line.content_hash) & pins.c.retracted_at.is_(None)
    held = connection.execute(select(pins.c.pin_id).where(same)).first()
    if owner or (held and line.retracted_at is None):
        return False
    row = line.model_dump(exclude={"type", "question"})
    ours = {"namespace": namespace, "question_id": question_id}
    connection.execute(insert(pins), row | ours)
    remember(connection, namespace, [question_id])
    return True


def write_signal(connection: Connection, namespace: str, line: SignalLine) -> None:
    """Keep a new signal, and its trace unless that is known; the caller has it credited.

    Raises:
        ValueError: If there is no such signal, its rating is none, or it is held by no burst.
        UnknownTraceError: If another namespace holds a trace of this id.
        UnknownChunkError: If the target is none of the trace's candidates.
    """
    if line.state is not None and line.burst_id is None:
        msg = f"burst_id: a signal that is {line.state} needs one"
        raise ValueError(msg)
    kept = line.model_dump(include={"value", "retracted_at", "state", "burst_id"})
    given = line.model_dump(exclude={"type", "trace", "retracted_at", "state", "burst_id"})
    if line.signal == "dwell" and line.value is None:
        given["value"] = 0.0  # exports of releases that kept no time
    row = Event(**given).as_row(namespace) | kept
    of_trace = traces.c.trace_id == line.trace_id
    owner = connection.execute(select(traces.c.namespace).where(of_trace)).scalar()
    if owner not in (None, namespace):
        msg = f"trace {line.trace_id!r} is another namespace's"
        raise UnknownTraceError(msg)
    is_there = owner is not None
    if line.trace and not is_there:
        _write_trace(connection, namespace, line.trace_id, line.trace)
        is_there = True
    if is_there and line.target != ANSWER:
        candidate = trace_chunks.c.trace_id == line.trace_id
        candidate &= trace_chunks.c.chunk_id == line.target
        if not connection.execute(select(trace_chunks.c.chunk_id).where(candidate)).first():
            msg = f"target: trace {line.trace_id!r} has no chunk {line.target!r}"
            raise UnknownChunkError(msg)
    connection.execute(insert(signals), row | {"attached": is_there})


def known_events(connection: Connection, namespace: str, event_ids: Sequence[str]) -> set[str]:
    """Return those of some events that the store holds."""
    mine = (signals.c.namespace == namespace) & signals.c.event_id.in_(event_ids)
    return set(connection.execute(select(signals.c.event_id).where(mine)).scalars())


def awaited_among(connection: Connection, namespace: str, trace_ids: Iterable[str]) -> list[str]:
    """Return those of some traces that signals wait for although they are there."""
    among = traces.c.trace_id.in_(list(trace_ids)) & (traces.c.namespace == namespace)
    waiting = signals.c.attached.is_(False) & (signals.c.namespace == namespace)
    found = select(traces.c.trace_id).join(signals, signals.c.trace_id == traces.c.trace_id)
    return list(connection.execute(found.where(among, waiting).distinct()).scalars())


def _write_trace(connection: Connection, namespace: str, trace_id: str, line: TraceLine) -> None:
    question_id = question_id_of(connection, namespace, Question(line.question))
    ours = {"trace_id": trace_id, "namespace": namespace, "question_id": question_id}
    row = line.model_dump(exclude={"question", "searches", "chunks"}) | ours
    connection.execute(insert(traces), row)
    searched = [
        {"trace_id": trace_id, "attempt": attempt, "query": query}
        for attempt, query in line.searches.items()
    ]
    insert_or_ignore(connection, trace_searches, searched)
    found = [chunk.model_dump() | {"trace_id": trace_id} for chunk in line.chunks]
    insert_or_ignore(connection, trace_chunks, found)
