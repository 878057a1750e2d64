"""How the queue stands, and how reviewers agree."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from sqlalchemy import Connection, func, select

from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.reviewing.items import ReviewEvent, count_items, read_events
from langchain_feedback.store.reviewing.verdicts import in_force, kappa

__all__ = ["Progress", "ReviewerProgress", "progress_of"]

_TWO = 2


@dataclass(frozen=True)
class ReviewerProgress:
    """What one reviewer did."""

    name: str
    decided: int
    """Verdicts in force."""
    skipped: int
    undone: int
    median_seconds: float | None
    """From claim to verdict."""


@dataclass(frozen=True)
class Progress:
    """How the queue stands."""

    open: int
    """What waits, and nobody looks at."""
    claimed: int
    decided: int
    expired: int
    oldest: datetime | None
    """Since when the oldest item waits."""
    median_seconds: float | None
    reviewers: tuple[ReviewerProgress, ...]
    """Who did most first."""
    double_reviewed: int
    """Items that two people looked at without seeing each other's verdict."""
    agreement: float | None
    """Cohen's kappa of those; None without any."""


def progress_of(
    connection: Connection, namespace: str, *, since: datetime | None, now: datetime
) -> Progress:
    """Count items, and what each reviewer did since then."""
    mine = review_items.c.namespace == namespace
    waits = mine & (review_items.c.state == "open")
    waiting, oldest = connection.execute(
        select(func.count(), func.min(review_items.c.created_at)).where(waits)
    ).one()
    taken = select(func.count()).where(waits, review_items.c.claimed_until > now)
    claimed = int(connection.execute(taken).scalar_one())
    events = read_events(connection, namespace, None)
    recent = [event for event in events if since is None or event.at >= since]
    pairs = _pairs(events)
    return Progress(
        open=int(waiting) - claimed,
        claimed=claimed,
        decided=_decided(connection, namespace, since),
        expired=count_items(connection, namespace, "expired"),
        oldest=oldest,
        median_seconds=_median(recent),
        reviewers=_reviewers(recent, {event.undoes for event in events}),
        double_reviewed=len(pairs),
        agreement=kappa(pairs),
    )


def _decided(connection: Connection, namespace: str, since: datetime | None) -> int:
    done = (review_items.c.namespace == namespace) & (review_items.c.state == "decided")
    if since is not None:
        done &= review_items.c.decided_at >= since
    return int(connection.execute(select(func.count()).where(done)).scalar_one())


def _reviewers(
    events: Sequence[ReviewEvent], undone: set[int | None]
) -> tuple[ReviewerProgress, ...]:
    by_name: dict[str, list[ReviewEvent]] = defaultdict(list)
    for event in events:
        if event.reviewer:
            by_name[event.reviewer].append(event)
    rows = []
    for name, done in by_name.items():
        decided = [one for one in done if one.action == "decide" and one.seq not in undone]
        counts = [sum(one.action == action for one in done) for action in ("skip", "undo")]
        rows.append(ReviewerProgress(name, len(decided), counts[0], counts[1], _median(decided)))
    return tuple(sorted(rows, key=lambda row: (-row.decided, row.name)))


def _median(events: Iterable[ReviewEvent]) -> float | None:
    times = [one.seconds for one in events if one.action == "decide" and one.seconds is not None]
    return median(times) if times else None


def _pairs(events: Iterable[ReviewEvent]) -> list[tuple[str, str]]:
    by_item: dict[str, list[ReviewEvent]] = defaultdict(list)
    for event in events:
        by_item[event.item_id].append(event)
    verdicts = [in_force(history)[:_TWO] for history in by_item.values()]
    return [(str(two[0].verdict), str(two[1].verdict)) for two in verdicts if len(two) == _TWO]
