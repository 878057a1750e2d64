"""Forgetting a person, or some chunks: they go, and the evidence is right after it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, null, select, update

from langchain_feedback.store.evidence import batched, recredit
from langchain_feedback.store.questions import forget_memory
from langchain_feedback.store.schema import chunks, pins, signals, trace_chunks, traces
from langchain_feedback.store.upkeep.forgetting_care import forget_kept_texts, forget_who_acted
from langchain_feedback.store.upkeep.forgetting_loop import (
    forget_asked,
    forget_chunk_texts,
    forget_lost_words,
    forget_reviewer,
)
from langchain_feedback.store.upkeep.removing import (
    Access,
    drop_questions,
    drop_signals,
    drop_traces,
    pages_of,
)

__all__ = ["Forgotten", "forget", "forget_chunks"]

_SIGNALS, _TRACES = 100, 200


@dataclass(frozen=True)
class Forgotten:
    """How much was removed of a person."""

    signals: int
    """The person's own."""
    of_others: int
    """Other people's signals on the person's traces."""
    traces: int
    questions: int
    """Texts that nobody else asked."""
    pins: int
    """Ones that are kept without a name; those taken back are removed."""


# -- a person


def forget(access: Access, actor: str) -> Forgotten:
    """Remove what is known of a person; see `Upkeep.forget`."""
    own = access.read(select(traces.c.trace_id).where(_is_asked_by(access.namespace, actor)))
    total = [0, 0, 0]
    for page in pages_of(own, _TRACES):
        with access.page() as (connection, half_life), _overwritten(connection):
            forget_asked(connection, access.namespace, page, set(own))
            counted = _forget_traces(connection, access.namespace, actor, page, half_life)
            total = [sum(pair) for pair in zip(total, counted, strict=True)]
    elsewhere = (
        select(signals.c.seq, traces.c.question_id)
        .outerjoin(traces, traces.c.trace_id == signals.c.trace_id)
        .where(_is_said_by(access.namespace, actor))
        # By question, so that each of its cells is added up anew in one page or two.
        .order_by(traces.c.question_id, signals.c.seq)
    )
    said = 0
    for page in pages_of(access.read(elsewhere), _SIGNALS):
        with access.page() as (connection, half_life), _overwritten(connection):
            said += _forget_signals(connection, access.namespace, page, half_life)
    with access.page() as (connection, _), _overwritten(connection):
        kept, gone = _forget_pins(connection, access.namespace, actor)
        forget_reviewer(connection, access.namespace, actor)
        forget_who_acted(connection, access.namespace, actor)
        forget_lost_words(connection, access.namespace)
    own_signals, of_others, questions = total
    return Forgotten(own_signals + said, of_others, len(own), questions + gone, kept)


def _forget_traces(
    connection: Connection,
    namespace: str,
    actor: str,
    trace_ids: Sequence[str],
    half_life: float | None,
) -> tuple[int, int, int]:
    on_them = signals.c.trace_id.in_(trace_ids) & (signals.c.namespace == namespace)
    found = connection.execute(select(signals.c.seq, signals.c.actor).where(on_them)).all()
    # Without a name the trace's own person speaks.
    others = sum(bool(row.actor) and row.actor != actor for row in found)
    for page in batched(found):
        drop_signals(connection, [row.seq for row in page], half_life)
    asked = select(traces.c.question_id).where(traces.c.trace_id.in_(trace_ids)).distinct()
    question_ids = list(connection.execute(asked).scalars())
    drop_traces(connection, trace_ids)
    gone = _drop_questions(connection, namespace, question_ids)
    return len(found) - others, others, gone


def _forget_signals(
    connection: Connection, namespace: str, seqs: Sequence[int], half_life: float | None
) -> int:
    asked = (
        select(traces.c.question_id)
        .join(signals, signals.c.trace_id == traces.c.trace_id)
        .where(signals.c.seq.in_(seqs))
        .distinct()
    )
    question_ids = list(connection.execute(asked).scalars())
    removed = drop_signals(connection, seqs, half_life)
    _drop_questions(connection, namespace, question_ids)
    return removed


def _forget_pins(connection: Connection, namespace: str, actor: str) -> tuple[int, int]:
    his = (pins.c.namespace == namespace) & (pins.c.actor == actor)
    back = delete(pins).where(his, pins.c.retracted_at.is_not(None)).returning(pins.c.question_id)
    question_ids = list(connection.execute(back).scalars())
    gone = _drop_questions(connection, namespace, question_ids)
    kept = connection.execute(update(pins).where(his).values(actor=None)).rowcount
    return int(kept), gone


def _drop_questions(connection: Connection, namespace: str, question_ids: Sequence[int]) -> int:
    gone, were_found = drop_questions(connection, question_ids)
    if were_found:
        forget_memory(connection, namespace)
    return gone


def _is_said_by(namespace: str, actor: str) -> ColumnElement[bool]:
    """Say that a signal is a person's; see `evidence.credits_of`."""
    his: ColumnElement[bool] = signals.c.actor == actor
    kind, _, name = actor.partition(":")
    if kind == "trace" and name:
        his |= (
            _is_empty(signals.c.actor)
            & signals.c.attached.is_(False)
            & (signals.c.trace_id == name)
        )
    return (signals.c.namespace == namespace) & his


def _is_asked_by(namespace: str, actor: str) -> ColumnElement[bool]:
    """Say that a trace's anonymous votes are a person's; see `evidence.credits_of`."""
    his: ColumnElement[bool] = traces.c.actor == actor
    nameless = _is_empty(traces.c.actor)
    kind, _, name = actor.partition(":")
    if kind == "session" and name:
        his |= nameless & (traces.c.session_id == name)
    if kind == "trace" and name:
        his |= nameless & _is_empty(traces.c.session_id) & (traces.c.trace_id == name)
    return (traces.c.namespace == namespace) & his


def _is_empty(column: Any) -> ColumnElement[bool]:
    return func.coalesce(column, "") == ""


@contextmanager
def _overwritten(connection: Connection) -> Iterator[None]:
    """Have SQLite overwrite what is deleted, instead of leaving it in free pages of the file."""
    if connection.dialect.name != "sqlite":
        yield
        return
    before = int(connection.exec_driver_sql("PRAGMA secure_delete").scalar() or 0)
    connection.exec_driver_sql("PRAGMA secure_delete=ON").close()
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA secure_delete={before}").close()


# -- chunks


def forget_chunks(access: Access, ids: Sequence[str]) -> int:
    """Remove what is known of some chunks; see `Upkeep.forget_chunks`."""
    doomed, cells, hashes, trace_ids = _doomed(access, ids)
    for page in pages_of(sorted(trace_ids), _TRACES):
        with access.page() as (connection, half_life), _overwritten(connection):
            _forget_candidates(connection, access.namespace, doomed, page, half_life)
    with access.page() as (connection, _), _overwritten(connection):
        forget_chunk_texts(connection, access.namespace, {*doomed, *ids})
        for part in batched(sorted(doomed)):
            mine = chunks.c.namespace == access.namespace
            connection.execute(delete(chunks).where(mine, chunks.c.chunk_id.in_(part)))
        forget_kept_texts(connection, access.namespace, {*doomed, *ids}, hashes)
        question_ids: set[int] = set()
        for part in batched(sorted(cells)):
            mine = (pins.c.namespace == access.namespace) & pins.c.chunk_id.in_(part)
            gone = delete(pins).where(mine).returning(pins.c.question_id)
            question_ids |= set(connection.execute(gone).scalars())
        for some in batched(sorted(question_ids)):
            _drop_questions(connection, access.namespace, some)
    return len(doomed)


def _doomed(access: Access, ids: Sequence[str]) -> tuple[set[str], set[str], set[str], set[str]]:
    """Return which of the ids are known, the cells that only they have, texts' hashes, traces."""
    known: set[str] = set()
    cells: set[str] = set()
    hashes: set[str] = set()
    trace_ids: set[str] = set()
    others: set[str] = set()
    with access.reading() as connection:
        for part in batched(sorted(set(ids))):
            for row in _uses(connection, access.namespace, "chunk_id", part):
                known.add(row.chunk_id)
                cells.add(row.cell_id)
                hashes.add(row.content_hash)
                trace_ids |= {row.trace_id} - {None}
        for part in batched(sorted(cells)):
            for row in _uses(connection, access.namespace, "cell_id", part):
                if row.chunk_id not in known:
                    others.add(row.cell_id)
    return known, cells - others, hashes, trace_ids


def _uses(
    connection: Connection, namespace: str, column: str, values: Sequence[str]
) -> Iterator[Any]:
    """Return all mentions of chunks: ids of chunk, cell and trace (None: a snapshot), hash."""
    seen = select(
        chunks.c.chunk_id, chunks.c.cell_id, chunks.c.content_hash, null().label("trace_id")
    )
    yield from connection.execute(
        seen.where(chunks.c.namespace == namespace, chunks.c[column].in_(values))
    )
    row = trace_chunks.c
    found = (
        select(row.chunk_id, row.cell_id, row.content_hash, row.trace_id)
        .join(traces, traces.c.trace_id == row.trace_id)
        .where(traces.c.namespace == namespace, row[column].in_(values))
    )
    yield from connection.execute(found)


def _forget_candidates(
    connection: Connection,
    namespace: str,
    chunk_ids: set[str],
    trace_ids: Sequence[str],
    half_life: float | None,
) -> None:
    for part in batched(sorted(chunk_ids)):
        candidate = trace_chunks.c.trace_id.in_(trace_ids) & trace_chunks.c.chunk_id.in_(part)
        connection.execute(delete(trace_chunks).where(candidate))
        mine = signals.c.trace_id.in_(trace_ids) & (signals.c.namespace == namespace)
        rated = select(signals.c.seq).where(mine, signals.c.target.in_(part))
        drop_signals(connection, list(connection.execute(rated).scalars()), half_life)
    # What the votes on whole answers credit depends on the chunks that are left.
    recredit(connection, namespace, trace_ids, half_life)
    asked = select(traces.c.question_id).where(traces.c.trace_id.in_(trace_ids)).distinct()
    _drop_questions(connection, namespace, list(connection.execute(asked).scalars()))
