"""From votes to evidence: what each trace credits, and what each cell adds up to.

The evidence of a cell is a pure function of its credit rows, and the credit rows of a
trace of its votes in force. Every change runs these two functions over what it touched,
and `rebuild` runs them over everything: the outcome is the same, bit for bit.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import numpy as np
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    delete,
    insert,
    select,
    tuple_,
    update,
)

from langchain_feedback.ranking.attribution import PromptChunk, attribute
from langchain_feedback.ranking.belief import decay
from langchain_feedback.signals import SIGNALS, click_weight
from langchain_feedback.store.database import upsert
from langchain_feedback.store.questions import remember
from langchain_feedback.store.schema import (
    ANSWER,
    credits_,
    evidence,
    questions,
    signals,
    trace_chunks,
    traces,
)

__all__ = ["Cell", "add_up", "aged", "batched", "credits_of", "rebuild", "recompute"]
__all__ += ["recredit"]

T = TypeVar("T")

Cell = tuple[int, str, str]
"""Question id, chunk id, content hash; the last two empty for how the answers fared."""

_PAGE = 500
_CELL = ("question_id", "chunk_id", "content_hash")
_VOTES = [
    credits_.c[name]
    for name in (*_CELL, "seq", "actor", "family", "polarity", "weight", "voted_at")
]


@dataclass(frozen=True)
class Sums:
    """What a cell adds up to, decayed to `as_of`."""

    positive: float
    negative: float
    as_of: datetime


def aged(times: Sequence[datetime], now: datetime, half_life: float | None) -> list[float]:
    """Return what is left now of votes from these times, each in (0, 1].

    A vote from the future, of a clock that is ahead, counts as one of now.
    """
    days = [max(0.0, (now - time).total_seconds() / 86_400) for time in times]
    kept: list[float] = decay(np.array(days, dtype=np.float64), half_life).tolist()
    return kept


class Vote(NamedTuple):
    """What a credit row says."""

    seq: int
    actor: str
    family: str
    polarity: int
    weight: float
    voted_at: datetime


def add_up(votes: Iterable[Vote], half_life: float | None) -> Sums | None:
    """Add up the credit rows of one cell; None where nothing counts.

    One person, one vote: of each actor and family the newest counts.
    """
    newest: dict[tuple[str, str], Vote] = {}
    for vote in votes:
        key = (vote.actor, vote.family)
        if key not in newest or vote.seq > newest[key].seq:
            newest[key] = vote
    counted = [vote for vote in newest.values() if vote.polarity and vote.weight]
    counted.sort(key=lambda vote: vote.seq)
    if not counted:
        return None
    as_of = max(vote.voted_at for vote in counted)
    kept = aged([vote.voted_at for vote in counted], as_of, half_life)
    weights: dict[int, list[float]] = {1: [], -1: []}
    for vote, share in zip(counted, kept, strict=True):
        weights[vote.polarity].append(vote.weight * share)
    # `fsum` is exact before it rounds, so the order of the rows does not matter.
    return Sums(math.fsum(weights[1]), math.fsum(weights[-1]), as_of)


def recredit(
    connection: Connection, namespace: str, trace_ids: Sequence[str], half_life: float | None
) -> None:
    """Work out anew what the votes on some traces credit, and the cells that this changes."""
    before, after = _stored_credits(connection, trace_ids), credits_of(connection, trace_ids)
    stale = [row for key, row in before.items() if after.get(key) != row]
    fresh = [row for key, row in after.items() if before.get(key) != row]
    for page in batched([tuple(row[name] for name in (*_CELL, "seq")) for row in stale]):
        connection.execute(delete(credits_).where(_among((*_CELL, "seq"), credits_, page)))
    if fresh:
        connection.execute(insert(credits_), fresh)
        remember(connection, namespace, {row["question_id"] for row in fresh})
    recompute(connection, {_cell_of(row) for row in (*stale, *fresh)}, half_life)


def recompute(connection: Connection, cells: Iterable[Cell], half_life: float | None) -> None:
    """Add up some cells anew."""
    for page in batched(sorted(cells)):
        votes: dict[Cell, list[Any]] = defaultdict(list)
        for *cell, seq, actor, family, polarity, weight, voted_at in connection.execute(
            select(*_VOTES).where(_among(_CELL, credits_, page))
        ):
            vote = Vote(seq, actor, family, polarity, weight, voted_at)
            votes[cell[0], cell[1], cell[2]].append(vote)
        _write(connection, {cell: add_up(votes[cell], half_life) for cell in page})


def rebuild(connection: Connection, namespace: str, half_life: float | None) -> None:
    """Work out every credit and every cell of a namespace anew, from the votes alone."""
    mine = select(questions.c.question_id).where(questions.c.namespace == namespace)
    for table in (credits_, evidence):
        connection.execute(delete(table).where(table.c.question_id.in_(mine)))
    # A process that died may have left signals that wait for a trace which is there.
    there = select(traces.c.trace_id).where(traces.c.namespace == namespace)
    of_namespace = (signals.c.namespace == namespace) & signals.c.trace_id.in_(there)
    connection.execute(
        update(signals).where(of_namespace, signals.c.attached.is_(False)).values(attached=True)
    )
    voted = connection.execute(select(signals.c.trace_id).where(of_namespace).distinct())
    for page in batched(sorted(voted.scalars())):
        recredit(connection, namespace, page, half_life)


def credits_of(connection: Connection, trace_ids: Sequence[str]) -> dict[Any, dict[str, Any]]:
    """Return the credit rows that the votes in force on some traces are worth."""
    asked = connection.execute(select(traces).where(traces.c.trace_id.in_(trace_ids)))
    by_id = {trace.trace_id: trace for trace in asked}
    votes = _votes_in_force(connection, by_id)
    if not votes:
        return {}
    found: dict[str, list[Row[Any]]] = defaultdict(list)
    for chunk in connection.execute(
        select(trace_chunks)
        .where(trace_chunks.c.trace_id.in_(trace_ids))
        .order_by(trace_chunks.c.attempt, trace_chunks.c.final_rank)
    ):
        found[chunk.trace_id].append(chunk)
    rows = [
        row
        for vote in votes
        for row in _credits_of(vote, by_id[vote.trace_id], found[vote.trace_id])
    ]
    return {(_cell_of(row), row["seq"]): row for row in rows}


def batched(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut a list into pages that fit into one statement."""
    for start in range(0, len(items), _PAGE):
        yield items[start : start + _PAGE]


def _write(connection: Connection, sums: dict[Cell, Sums | None]) -> None:
    if gone := [cell for cell, total in sums.items() if total is None]:
        connection.execute(delete(evidence).where(_among(_CELL, evidence, gone)))
    there = [
        dict(zip(_CELL, cell, strict=True)) | vars(total) for cell, total in sums.items() if total
    ]
    upsert(connection, evidence, there, key=_CELL)


def _stored_credits(connection: Connection, trace_ids: Sequence[str]) -> dict[Any, dict[str, Any]]:
    seqs = select(signals.c.seq).where(signals.c.trace_id.in_(trace_ids))
    rows = connection.execute(select(credits_).where(credits_.c.seq.in_(seqs))).mappings()
    return {(_cell_of(row), row["seq"]): dict(row) for row in rows}


def _votes_in_force(connection: Connection, asked: Mapping[str, Row[Any]]) -> list[Row[Any]]:
    """Return the newest event of each key, unless that event is retracted."""
    of_traces = signals.c.trace_id.in_(list(asked)) & signals.c.attached
    # What came in a burst is as if it had not come, until somebody accepts it.
    of_traces &= signals.c.state.is_(None)
    rows = connection.execute(select(signals).where(of_traces).order_by(signals.c.seq))
    newest = {
        (row.trace_id, _voter(row, asked[row.trace_id]), row.family, row.target): row
        for row in rows
    }
    return [
        row
        for row in newest.values()
        if row.retracted_at is None and SIGNALS[row.signal].moves_ranking
    ]


def _credits_of(
    vote: Row[Any], trace: Row[Any], found: Sequence[Row[Any]]
) -> Iterable[dict[str, Any]]:
    base = {
        "question_id": trace.question_id,
        "seq": vote.seq,
        "actor": _voter(vote, trace),
        "family": vote.family,
        "voted_at": vote.received_at,
    }
    for (chunk_id, text_hash), share in _shares(vote, trace, found).items():
        sign = (share > 0) - (share < 0)
        credited = {"chunk_id": chunk_id, "content_hash": text_hash}
        yield base | credited | {"polarity": sign, "weight": abs(share)}
    if vote.target == ANSWER and vote.family == SIGNALS["rating"].family:
        outcome = {"chunk_id": ANSWER, "content_hash": "", "polarity": vote.polarity}
        yield base | outcome | {"weight": float(abs(vote.polarity))}


def _shares(vote: Row[Any], trace: Row[Any], found: Sequence[Row[Any]]) -> dict[Any, float]:
    """Return what a vote credits to each chunk that it speaks of."""
    target, weight = None, float(vote.weight)
    if vote.target != ANSWER:
        named = [row for row in found if row.chunk_id == vote.target]
        if not named:
            return {}
        target = named[-1].cell_id, named[-1].content_hash
        if vote.signal == "source_click":
            weight *= click_weight(named[-1].final_rank)
    return attribute(vote.polarity, weight, _prompt(found), target=target, grounded=trace.grounded)


def _prompt(found: Sequence[Row[Any]]) -> list[PromptChunk]:
    last = max((row.attempt for row in found if row.in_prompt), default=0)
    return [
        PromptChunk(
            key=(row.cell_id, row.content_hash),
            cited=row.cited,
            relevant={"yes": True, "no": False}.get(row.grade or ""),
        )
        for row in found
        if row.in_prompt and row.attempt == last
    ]


def _voter(vote: Row[Any], trace: Row[Any]) -> str:
    """Return whose vote it is: the one named, else who asked, else the session or the trace."""
    if named := vote.actor or trace.actor:
        return str(named)
    return f"session:{trace.session_id}" if trace.session_id else f"trace:{trace.trace_id}"


def _among(
    names: Sequence[str], table: Table, keys: Sequence[tuple[Any, ...]]
) -> ColumnElement[bool]:
    # With the plain list beside it SQLite finds the rows by index; it scans for the tuples alone.
    some = table.c.question_id.in_({key[0] for key in keys})
    return some & tuple_(*(table.c[name] for name in names)).in_(keys)


def _cell_of(row: Any) -> Cell:
    return row["question_id"], row["chunk_id"], row["content_hash"]
