"""Removing what is old: signals first, then everything that only they kept."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, exists, select, update

from langchain_feedback.store.care_schema import derived, derived_sources
from langchain_feedback.store.eval_cases import prune_cases
from langchain_feedback.store.experiments import is_awaited
from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.questions import forget_memory
from langchain_feedback.store.schema import (
    chunks,
    credits_,
    pins,
    questions,
    signals,
    trace_chunks,
    traces,
)
from langchain_feedback.store.upkeep.forgetting_care import forget_waiting
from langchain_feedback.store.upkeep.forgetting_loop import drop_items
from langchain_feedback.store.upkeep.removing import (
    Access,
    drop_questions,
    drop_signals,
    drop_traces,
    is_silent,
    is_unused,
    pages_of,
)

__all__ = ["Pruned", "instant_of", "prune"]

_SIGNALS, _TRACES, _OTHERS = 250, 200, 1_000
"""How many rows one transaction removes: some tens of milliseconds each."""

_HIDDEN = ("demoted", "retired")


@dataclass(frozen=True)
class Pruned:
    """How much was removed."""

    signals: int
    traces: int
    snapshots: int
    """Chunks as they were last seen."""
    pins: int
    """Ones that had been taken back."""
    questions: int
    reviews: int = 0
    """Review items that nobody decided in time."""
    cases: int = 0
    """Cases to try rankers on that were retired, or whose question has no trace any more."""


def instant_of(older_than: datetime | timedelta, now: datetime) -> datetime:
    """Return the instant that an age or a time stands for.

    Raises:
        ValueError: If a time has no zone, or an age is negative.

    Example:
        >>> from datetime import UTC
        >>> instant_of(timedelta(days=1), datetime(2026, 1, 2, tzinfo=UTC)).isoformat()
        '2026-01-01T00:00:00+00:00'
    """
    if isinstance(older_than, timedelta):
        if older_than < timedelta(0):
            msg = f"older_than must not be negative, got {older_than!r}"
            raise ValueError(msg)
        return now - older_than
    if older_than.tzinfo is None:
        msg = f"older_than needs a zone, got the naive {older_than!r}"
        raise ValueError(msg)
    return older_than


def prune(access: Access, before: datetime) -> Pruned:
    """Remove what is older than an instant; after each page the evidence is right.

    Questions of an experiment stay, with what was said of them, until it is read or stopped:
    without the first ones it would never reach its end.
    """
    return Pruned(
        signals=_prune_signals(access, before),
        traces=_prune_traces(access, before),
        pins=_prune_pins(access, before),
        snapshots=_prune_snapshots(access, before),
        questions=_prune_questions(access),
        reviews=_prune_reviews(access, before),
        cases=_prune_cases(access, before),
    )


def _prune_signals(access: Access, before: datetime) -> int:
    # By question, so that each of its cells is added up anew in one page or two.
    old = (
        select(signals.c.seq)
        .outerjoin(traces, traces.c.trace_id == signals.c.trace_id)
        .where(signals.c.namespace == access.namespace, signals.c.received_at < before)
        .where(traces.c.trace_id.is_(None) | ~is_awaited(access.namespace))
        .order_by(traces.c.question_id, signals.c.seq)
    )
    removed = 0
    for page in pages_of(access.read(old), _SIGNALS):
        with access.page() as (connection, half_life):
            seqs = [*page, *_superseded(connection, page)]
            removed += drop_signals(connection, seqs, half_life)
    return removed


def _superseded(connection: Connection, seqs: Sequence[int]) -> list[int]:
    """Return older events of the same keys: a clock that was put back dates some of them later."""
    older = signals.alias("older")
    same_key = [
        older.c[name].is_not_distinct_from(signals.c[name])
        for name in ("namespace", "trace_id", "actor", "family", "target")
    ]
    found = (
        select(older.c.seq)
        .join(signals, older.c.trace_id == signals.c.trace_id)
        .where(signals.c.seq.in_(seqs), older.c.seq < signals.c.seq, *same_key)
        .where(older.c.seq.not_in(seqs))
        .distinct()
    )
    return list(connection.execute(found).scalars())


def _prune_traces(access: Access, before: datetime) -> int:
    has_signal = exists(select(1).where(signals.c.trace_id == traces.c.trace_id))
    mine = traces.c.namespace == access.namespace
    old = mine & (traces.c.created_at < before) & ~has_signal & ~is_awaited(access.namespace)
    statement = select(traces.c.trace_id).where(old).order_by(traces.c.created_at)
    removed = 0
    for page in pages_of(access.read(statement), _TRACES):
        with access.page() as (connection, _):
            # Some may have been rated since they were read.
            still = select(traces.c.trace_id).where(old, traces.c.trace_id.in_(page))
            removed += drop_traces(connection, list(connection.execute(still).scalars()))
    return removed


def _prune_pins(access: Access, before: datetime) -> int:
    mine = pins.c.namespace == access.namespace
    with access.page() as (connection, _):
        retracted = delete(pins).where(mine, pins.c.retracted_at < before)
        return int(connection.execute(retracted).rowcount)


def _prune_snapshots(access: Access, before: datetime) -> int:
    # What is hidden must stay so while the index may hold it, or a loader brings it back.
    mine = (chunks.c.namespace == access.namespace) & chunks.c.status.not_in(_HIDDEN)
    old = mine & (chunks.c.last_seen < before) & ~_is_referred_to(access.namespace)
    removed = 0
    for page in pages_of(access.read(select(chunks.c.chunk_id).where(old)), _OTHERS):
        with access.page() as (connection, _):
            gone = delete(chunks).where(old, chunks.c.chunk_id.in_(page))
            removed += int(connection.execute(gone).rowcount)
    return removed


def _is_referred_to(namespace: str) -> ColumnElement[bool]:
    """Say that a trace, a credit or a pin speaks of a snapshot's cell, or that it is served."""
    found = (
        select(1)
        .join(traces, traces.c.trace_id == trace_chunks.c.trace_id)
        .where(trace_chunks.c.cell_id == chunks.c.cell_id, traces.c.namespace == namespace)
    )
    credited = (
        select(1)
        .join(questions, questions.c.question_id == credits_.c.question_id)
        .where(credits_.c.chunk_id == chunks.c.cell_id, questions.c.namespace == namespace)
    )
    pinned: Any = select(pins.c.chunk_id).where(pins.c.namespace == namespace)
    served = (
        select(1)
        .join(derived, derived.c.derived_id == derived_sources.c.derived_id)
        .where(derived_sources.c.chunk_id == chunks.c.chunk_id)
        .where(derived.c.namespace == namespace, derived.c.status == "active")
    )
    referred = exists(found) | exists(credited) | exists(served)
    return referred | chunks.c.cell_id.in_(pinned)


def _prune_reviews(access: Access, before: datetime) -> int:
    """Remove what expired, and people's words from what was decided; the labels stay."""
    mine = review_items.c.namespace == access.namespace
    expired = mine & (review_items.c.state == "expired") & (review_items.c.expires_at < before)
    gone = 0
    for page in pages_of(access.read(select(review_items.c.item_id).where(expired)), _TRACES):
        with access.page() as (connection, _):
            gone += drop_items(connection, page)
    decided = mine & (review_items.c.state == "decided") & (review_items.c.decided_at < before)
    quoting = decided & review_items.c.snapshot.contains('"event_id"', autoescape=True)
    for page in pages_of(access.read(select(review_items.c.item_id).where(quoting)), _TRACES):
        with access.page() as (connection, _):
            still = select(review_items).where(quoting, review_items.c.item_id.in_(page))
            for row in connection.execute(still).all():
                snapshot = json.dumps(json.loads(row.snapshot) | {"said": []})
                this = update(review_items).where(review_items.c.item_id == row.item_id)
                connection.execute(this.values(snapshot=snapshot))
    return gone


def _prune_cases(access: Access, before: datetime) -> int:
    with access.page() as (connection, _):
        return prune_cases(connection, access.namespace, before)


def _prune_questions(access: Access) -> int:
    mine = questions.c.namespace == access.namespace
    # In their order: SQLite may give the highest id again once it is free, and the last page
    # tells the question memories.
    idle = select(questions.c.question_id).where(mine, is_unused() | is_silent())
    found = access.read(idle.order_by(questions.c.question_id))
    removed, were_found = 0, False
    for page in pages_of(found, _OTHERS):
        with access.page() as (connection, _):
            gone, was_found = drop_questions(connection, page)
            removed, were_found = removed + gone, were_found or was_found
            if were_found and page[-1] == found[-1]:
                forget_memory(connection, access.namespace)
    with access.page() as (connection, _):
        forget_waiting(connection, access.namespace)
    return removed
