"""Does the index answer as it did: best scores, and how often there is no answer."""

from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, case, func, select

from langchain_feedback.index._health.base import Look, clean, days_of, found, skipped
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.index._health.statistics import ks, rise
from langchain_feedback.store.schema import trace_chunks, traces
from langchain_feedback.store.transactions import reading

__all__ = ["check_abstentions", "check_top_scores"]

LEAST_SCORES = 500
LEAST_DISTANCE = 0.1
MOST_P = 0.001
LEAST_ANSWERS = 100
_MOST_READ = 10_000

_TODO_SCORES = (
    "See whether other questions are asked, or the index, its embedder or its scores changed: "
    "`embedder`, `ledger` and `IndexRegistry.history`."
)
_TODO_ABSTENTIONS = (
    "Read the questions that got no answer: `langchain-feedback loop worst` lists what they lack."
)


def check_top_scores(look: Look) -> HealthCheck:
    """Compare the backend's best scores of late first searches with those before.

    Two-sample Kolmogorov-Smirnov: an alarm needs 500 searches on each side, p < 0.001 and a
    distance of 0.1. Searches of one index version are compared, that of the last one: another
    version has other scores by right. At most the newest 10,000 a side are read.
    """
    name, since = "top_score", look.now - look.asked
    with reading(look.store) as connection:
        if (last := _last_version(connection, look)) is None:
            return skipped(name, f"nobody asked anything in the last {days_of(look.asked)}")
        version = last[0]
        of = traces.c.index_version.is_not_distinct_from(version)
        new = _scores(connection, look, of, (since, None))
        old = _scores(connection, look, of, (since - look.base, since))
    figures: dict[str, Any] = {"index_version": version, "n": new.size, "base_n": old.size}
    if not new.size + old.size:
        why = "searches keep no score of the backend: rank by `KernelBelief(score_key=...)`"
        return skipped(name, why, figures)
    if min(new.size, old.size) < LEAST_SCORES:
        told = f"{new.size:,} searches with a score in {days_of(look.asked)}, {old.size:,} before"
        return skipped(name, f"{told}: it takes {LEAST_SCORES} on each side", figures)
    distance, p = ks(old, new)
    before, now = (float(np.median(values)) for values in (old, new))
    figures |= {"distance": round(distance, 4), "p": float(f"{p:.2g}")}
    figures |= {"median": round(now, 4), "median_before": round(before, 4)}
    said = f"the best score of a search has a median of {now:.3g}, and had one of {before:.3g}"
    said += f" in the {days_of(look.base)} before (distance {distance:.2f})"
    if p < MOST_P and distance >= LEAST_DISTANCE:
        return found(name, "alarm", said, _TODO_SCORES, figures)
    return clean(name, said, figures)


def check_abstentions(look: Look) -> HealthCheck:
    """Compare how often there was no answer with the time before, by the test of `rise`."""
    name, since = "abstentions", look.now - look.asked
    row = traces.c
    away = func.coalesce(func.sum(case((row.status == "abstained", 1), else_=0)), 0)
    known = select(func.count(), away).where(row.status.in_(("answered", "abstained")))
    with reading(look.store) as connection:
        new = connection.execute(known.where(*_asked(look, since, None))).one()
        old = connection.execute(known.where(*_asked(look, since - look.base, since))).one()
    (n, hits), (m, before) = map(tuple, (new, old))
    figures: dict[str, Any] = {"n": n, "abstained": hits, "base_n": m, "base_abstained": before}
    if not n or m < LEAST_ANSWERS:
        told = f"{n:,} answers of known outcome in {days_of(look.asked)}, {m:,} before"
        return skipped(name, f"{told}: it takes 1, and {LEAST_ANSWERS} before", figures)
    compared = rise(hits, n, before, m)
    figures |= compared.as_figures()
    said = f"{compared.share:.1%} of {n:,} questions got no answer, and {compared.before:.1%}"
    said += f" in the {days_of(look.base)} before"
    if compared.is_real:
        return found(name, "alarm", said, _TODO_ABSTENTIONS, figures)
    return clean(name, said, figures)


def _asked(look: Look, since: datetime, until: datetime | None) -> tuple[ColumnElement[bool], ...]:
    """Select people's questions of a time."""
    row = traces.c
    mine = (row.namespace == look.namespace, row.traffic.is_(None), row.created_at >= since)
    return mine if until is None else (*mine, row.created_at < until)


def _last_version(connection: Connection, look: Look) -> tuple[str | None] | None:
    newest = select(traces.c.index_version).where(*_asked(look, look.now - look.asked, None))
    row = connection.execute(newest.order_by(traces.c.created_at.desc()).limit(1)).first()
    return None if row is None else (row[0],)


def _scores(
    connection: Connection,
    look: Look,
    of_version: ColumnElement[bool],
    time: tuple[datetime, datetime | None],
) -> NDArray[np.float64]:
    row = trace_chunks.c
    best = (row.attempt == 1) & (row.base_rank == 0) & row.base_score.is_not(None)
    asked = (
        select(row.base_score)
        .join(traces, traces.c.trace_id == row.trace_id)
        .where(*_asked(look, *time), of_version, best)
        .order_by(traces.c.created_at.desc())
        .limit(_MOST_READ)
    )
    return np.fromiter(connection.scalars(asked), dtype=np.float64)
