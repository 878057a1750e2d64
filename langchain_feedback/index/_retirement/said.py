"""What people say of chunks: votes for and against, pins, and what they restored."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from langchain_core.documents import Document
from sqlalchemy import Connection, Row, select

from langchain_feedback.documents import is_derived
from langchain_feedback.index._retirement.rules import RetirementRules, Tally, Vote, tally
from langchain_feedback.store.care_schema import care_actions, care_runs, derived
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.records import CellKey
from langchain_feedback.store.schema import (
    ANSWER,
    credits_,
    pins,
    signals,
    trace_chunks,
    traces,
)

__all__ = ["JOB", "Said", "said_of"]

JOB = "retire"
"""The name of retirements among the runs of index care."""

_NAMELESS = "trace:"
"""How the store names who is not known: by what was asked."""


@dataclass(frozen=True)
class Said:
    """What is known of some cells, and of some chunks."""

    said: Mapping[CellKey, Tally]
    pinned: frozenset[CellKey]
    derived: frozenset[str]
    restored: frozenset[tuple[str, str]]
    quiet_since: datetime

    def kept_by(self, row: Row[Any]) -> str:
        """Say what speaks for a chunk; empty: nothing."""
        last = self.said[_cell(row)].last_positive
        metadata = json.loads(row.metadata)
        reasons = {
            "praised": last is not None and last >= self.quiet_since,
            "pinned": _cell(row) in self.pinned,
            "derived": row.chunk_id in self.derived or is_derived(Document("", metadata=metadata)),
            "restored": (row.chunk_id, row.content_hash) in self.restored,
        }
        return next((name for name, holds in reasons.items() if holds), "")


def said_of(
    connection: Connection,
    namespace: str,
    rules: RetirementRules,
    now: datetime,
    rows: Sequence[Row[Any]],
) -> Said:
    cells = {_cell(row) for row in rows}
    ids = sorted({row.chunk_id for row in rows})
    since = now - timedelta(days=rules.quiet_days)
    votes = _votes(connection, namespace, cells)
    return Said(
        {cell: tally(votes[cell], rules.most_against_by_one) for cell in cells},
        _pinned(connection, namespace, cells),
        _derived(connection, ids),
        _restored(connection, namespace, ids, since),
        since,
    )


def _votes(
    connection: Connection, namespace: str, cells: set[CellKey]
) -> Mapping[CellKey, list[Vote]]:
    """Return the votes on some cells; those against a chunk that only stood by do not count.

    Of an answer whose quotes are known, a good vote credits what it quotes and a bad one
    blames all that stood by as well: counted, that would retire what is found often. Nor does
    what is said against an answer that was not grounded: that is the writer's failure.
    """
    found: dict[CellKey, list[Vote]] = defaultdict(list)
    row = credits_.c
    for page in batched(sorted({cell_id for cell_id, _ in cells})):
        statement = (
            select(credits_, signals.c.target, signals.c.trace_id, traces.c.grounded)
            .join(signals, signals.c.seq == row.seq)
            .join(traces, traces.c.trace_id == signals.c.trace_id)
            .where(row.chunk_id.in_(page), signals.c.namespace == namespace)
        )
        credited = [
            one
            for one in connection.execute(statement)
            if (one.chunk_id, one.content_hash) in cells
        ]
        cited = _cited(connection, {one.trace_id for one in credited if one.polarity < 0})
        for one in credited:
            of_answer = one.polarity < 0 and one.target == ANSWER
            stood_by = one.chunk_id not in cited.get(one.trace_id, {one.chunk_id})
            if of_answer and (stood_by or one.grounded is False):
                continue
            actor = "" if one.actor.startswith(_NAMELESS) else one.actor
            vote = Vote(actor, one.question_id, one.polarity, one.weight, one.voted_at)
            found[one.chunk_id, one.content_hash].append(vote)
    return found


def _cited(connection: Connection, trace_ids: set[str]) -> dict[str, set[str]]:
    """Return which cells each answer quotes; of one whose quotes are not known nothing."""
    found: dict[str, set[str]] = {}
    row = trace_chunks.c
    for page in batched(sorted(trace_ids)):
        statement = select(row.trace_id, row.cell_id, row.cited).where(
            row.trace_id.in_(page), row.in_prompt, row.cited.is_not(None)
        )
        for one in connection.execute(statement):
            found.setdefault(one.trace_id, set()).update([one.cell_id] if one.cited else [])
    return found


def _pinned(connection: Connection, namespace: str, cells: set[CellKey]) -> frozenset[CellKey]:
    """Return the cells that were ever pinned, also for a time only."""
    found: set[CellKey] = set()
    for page in batched(sorted({cell_id for cell_id, _ in cells})):
        mine = (pins.c.namespace == namespace) & pins.c.chunk_id.in_(page)
        for row in connection.execute(select(pins.c.chunk_id, pins.c.content_hash).where(mine)):
            found.add((row.chunk_id, row.content_hash))
    return frozenset(found)


def _derived(connection: Connection, ids: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for page in batched(ids):
        statement = select(derived.c.derived_id).where(derived.c.derived_id.in_(page))
        found.update(connection.scalars(statement))
    return frozenset(found)


def _restored(
    connection: Connection, namespace: str, ids: Sequence[str], since: datetime
) -> frozenset[tuple[str, str]]:
    """Return the chunks that somebody brought back lately: that is a word for them."""
    found: set[tuple[str, str]] = set()
    done = care_actions.c
    for page in batched(ids):
        statement = (
            select(done.target, done.before)
            .join(care_runs, care_runs.c.run_id == done.run_id)
            .where(care_runs.c.namespace == namespace, care_runs.c.job == JOB)
            .where(done.action == "restore", done.at >= since, done.target.in_(page))
        )
        for row in connection.execute(statement):
            found.add((row.target, json.loads(row.before)["content_hash"]))
    return frozenset(found)


def _cell(row: Row[Any]) -> CellKey:
    return row.cell_id, row.content_hash
