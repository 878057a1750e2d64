"""Whether the loop closes: its numbers in one record, with a verdict in words."""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from langchain_feedback.loop._health.mending import correction_health
from langchain_feedback.loop._health.queue import QueueWeek, queue_health, queue_weeks, run_health
from langchain_feedback.loop._health.rankers import rankers_health
from langchain_feedback.loop._health.records import (
    CorrectionHealth,
    LoopHealth,
    QueueHealth,
    RankerHealth,
    RankersHealth,
    Rates,
    RunHealth,
    ScorePoint,
    SignalHealth,
    WeekHealth,
)
from langchain_feedback.loop._health.signals import signal_health
from langchain_feedback.loop._health.traffic import count_asks, count_weeks, rates_of
from langchain_feedback.loop._health.verdict import Facts, verdict_of
from langchain_feedback.loop.judging import judged_items
from langchain_feedback.store.reviewing.items import read_events
from langchain_feedback.store.transactions import clock, reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "CorrectionHealth",
    "LoopHealth",
    "QueueHealth",
    "RankerHealth",
    "RankersHealth",
    "Rates",
    "RunHealth",
    "ScorePoint",
    "SignalHealth",
    "WeekHealth",
    "loop_health",
]

_WEEK = timedelta(weeks=1)
_LEAST_WEEKS, _MOST_WEEKS = 4, 53
_INSTANT = timedelta(microseconds=1)


def loop_health(
    store: "FeedbackStore", *, days: float = 28, now: datetime | None = None
) -> LoopHealth:
    """Return the numbers of the loop, and whether it closes.

    `verdict` is one of:

    - `closing`: the active ranker was promoted by an evaluation that said so: not by force;
    - `collecting`: it waits for labels, cases or somebody's decision; `why` says which;
    - `stuck: ...`: `the last run failed` (or `was interrupted`), `no run for 2 weeks`, `most
      signals are held back`, `most signals are of unknown answers`, `queue grows for 3 weeks`,
      `nothing reviewed for 2 weeks`, `no gain in 3 rankers`.

    The numbers are counted by the database and read in one transaction. A SQLite file with
    100,000 questions in 28 days, a third of them rated, took 1.5 s of processor time.

    Args:
        store: Where, and whose namespace.
        days: How far back; above 0. Weeks are shown for at least four.
        now: The end of these days; None: the database's clock. What waits and what is active is
            told as it stands.

    Raises:
        ValueError: If `days` is not above 0.
        StoreError: If the database cannot be read.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> health = loop_health(FeedbackStore("sqlite://"))
        >>> health.verdict, health.why
        ('collecting', '0 of 30 reviewed questions that a ranker needs name a right chunk.')
    """
    if not days > 0:
        msg = f"days must be above 0, got {days!r}"
        raise ValueError(msg)
    with reading(store) as connection:
        return _health(connection, store.namespace, days, now or clock(store, connection))


def _health(connection: Connection, name: str, days: float, now: datetime) -> LoopHealth:
    since = now - timedelta(days=days)
    events = read_events(connection, name, None)
    shown = min(max(_LEAST_WEEKS, math.ceil(days / _WEEK.days)), _MOST_WEEKS)
    # One week more than the least is counted: the newest is compared with the four before it.
    edges = _edges(max(shown, _LEAST_WEEKS + 1), now)
    counts = count_weeks(connection, name, edges)
    weeks = _weeks(edges, counts, queue_weeks(connection, name, edges))[-shown:]
    asks = count_asks(connection, name, since, now + _INSTANT)
    facts = Facts(
        queue=queue_health(connection, name, events, since=since, now=now),
        weeks=weeks,
        signals=signal_health(connection, name, since, now, asks),
        rankers=rankers_health(connection, name, since=since, now=now),
        run=run_health(connection, name, since=since, now=now),
        reviewed_at=max((one.at for one in events if one.action == "decide"), default=None),
        at=now,
    )
    verdict, why = verdict_of(facts)
    return LoopHealth(
        verdict=verdict,
        why=why,
        at=now,
        days=float(days),
        week=weeks[-1].rates,
        before=rates_of(counts[-_LEAST_WEEKS - 1 : -1]),
        weeks=weeks,
        queue=facts.queue,
        signals=facts.signals,
        corrections=correction_health(connection, name, since, now),
        rankers=facts.rankers,
        judges=judged_items(connection, name, events, since, now),
        run=facts.run,
    )


def _edges(count: int, now: datetime) -> list[datetime]:
    """Return where weeks begin and end, oldest first: what came at this very moment counts."""
    edges = [now - _WEEK * back for back in range(count, -1, -1)]
    return [*edges[:-1], edges[-1] + _INSTANT]


def _weeks(
    edges: Sequence[datetime], counts: Sequence[Counter[str]], queue: Sequence[QueueWeek]
) -> tuple[WeekHealth, ...]:
    return tuple(
        WeekHealth(
            since=edges[at],
            until=edges[at + 1],
            rates=rates_of([counts[at]]),
            waiting=queue[at].waiting,
            added=queue[at].added,
            cleared=queue[at].cleared,
        )
        for at in range(len(counts))
    )
