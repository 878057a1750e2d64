"""How the review queue fares: what waits, what is cleared, week by week, and the last runs."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, or_, select

from langchain_feedback.loop._health.records import QueueHealth, RunHealth
from langchain_feedback.loop._reviewing.progress import progress_of
from langchain_feedback.store.learning_schema import loop_runs
from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.reviewing.items import ReviewEvent
from langchain_feedback.store.reviewing.verdicts import agreed, in_force

__all__ = ["QueueWeek", "queue_health", "queue_weeks", "run_health"]

_DAY_S = 86_400


class QueueWeek(NamedTuple):
    """What came into the queue in a week, what left it, and what waited at its end."""

    waiting: int
    added: int
    cleared: int


def queue_weeks(
    connection: Connection, namespace: str, edges: Sequence[datetime]
) -> list[QueueWeek]:
    """Return the weeks between each two of these instants, oldest first."""
    row = review_items.c
    left = or_(row.state == "open", row.decided_at >= edges[0], row.expires_at >= edges[0])
    items = connection.execute(
        select(row.created_at, row.state, row.decided_at, row.expires_at)
        .where(row.namespace == namespace, row.created_at < edges[-1])
        .where(left)
    ).all()
    return [
        QueueWeek(
            waiting=sum(one.created_at < until and not _left_by(one, until) for one in items),
            added=sum(since <= one.created_at < until for one in items),
            cleared=sum(
                one.decided_at is not None and since <= one.decided_at < until for one in items
            ),
        )
        for since, until in pairwise(edges)
    ]


def queue_health(
    connection: Connection,
    namespace: str,
    events: Sequence[ReviewEvent],
    *,
    since: datetime,
    now: datetime,
) -> QueueHealth:
    """Return how the queue stands; `events` are all that reviewers ever did."""
    progress = progress_of(connection, namespace, since=since, now=now)
    history: dict[str, list[ReviewEvent]] = defaultdict(list)
    for event in events:
        history[event.item_id].append(event)
    weeks = (now - since).total_seconds() / (7 * _DAY_S)
    oldest = progress.oldest
    return QueueHealth(
        waiting=progress.open,
        claimed=progress.claimed,
        oldest_days=None if oldest is None else max(0.0, (now - oldest).total_seconds() / _DAY_S),
        decided=progress.decided,
        cleared_a_week=progress.decided / weeks,
        median_seconds=progress.median_seconds,
        verdicts=_verdicts(history, since),
        double_reviewed=progress.double_reviewed,
        agreement=progress.agreement,
        named=_named(connection, namespace, history),
    )


def run_health(
    connection: Connection, namespace: str, *, since: datetime, now: datetime
) -> RunHealth | None:
    """Return the last run of the loop, and how many there were since then."""
    row = loop_runs.c
    mine = (row.namespace == namespace) & (row.started_at <= now)
    newest = select(loop_runs).where(mine).order_by(row.started_at.desc(), row.run_id)
    last = connection.execute(newest.limit(1)).first()
    if last is None:
        return None
    lately = connection.execute(newest.where(row.started_at >= since)).all()
    states = Counter(one.state for one in lately)
    reports = [json.loads(one.report) for one in lately]
    is_lost = last.state == "running" and last.lease_until < now
    return RunHealth(
        state="interrupted" if is_lost else last.state,
        step=last.step,
        started_at=last.started_at,
        finished_at=last.finished_at,
        runs=states.total(),
        failed=states["failed"],
        trainings=sum("train" in report.get("asked", ()) for report in reports),
        refused=_refused(reports or [json.loads(last.report)]),
        broken=_broken(json.loads(last.report)) if last.state == "failed" else None,
    )


def _refused(reports: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why the newest try of a ranker was refused; the newest report comes first."""
    steps = (step for report in reports for step in report.get("steps", ()))
    tried = next((step for step in steps if step["name"] == "evaluate"), None)
    return str(tried["words"]) if tried and "refused" in tried["facts"] else None


def _broken(report: Mapping[str, Any]) -> str | None:
    steps = (step for step in report.get("steps", ()) if step["state"] == "failed")
    return next((f"{step['name']}: {step['words']}" for step in steps), None)


def _left_by(item: Any, moment: datetime) -> bool:
    if item.state == "expired":
        return bool(item.expires_at < moment)
    return item.decided_at is not None and bool(item.decided_at < moment)


def _verdicts(history: Mapping[str, Sequence[ReviewEvent]], since: datetime) -> dict[str, float]:
    counts = Counter(
        str(event.verdict)
        for events in history.values()
        for event in in_force(events)
        if event.at >= since
    )
    total = counts.total()
    return {name: counts[name] / total for name in ("confirm", "reject", "unclear") if total}


def _named(
    connection: Connection, namespace: str, history: Mapping[str, Sequence[ReviewEvent]]
) -> int:
    row = review_items.c
    decided = (row.namespace == namespace) & (row.kind == "answer") & (row.state == "decided")
    found = connection.execute(select(row.item_id, row.reviews_required).where(decided))
    finals = (
        agreed(in_force(history.get(item.item_id, ())), item.reviews_required) for item in found
    )
    return sum(bool(final and final.right_chunks) for final in finals)
