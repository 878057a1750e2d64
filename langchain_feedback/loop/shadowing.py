"""Where the ranker that is only watched would have put what people credited."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from langchain_feedback.loop._triage.resting import asks_between
from langchain_feedback.store.asking import Ask
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import ANSWER, trace_chunks, traces
from langchain_feedback.store.transactions import clock, reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["BIAS", "ShadowReport", "shadow_report"]

BIAS = (
    "This favors the active order: people can only credit what it showed them. A shadow that is "
    "level here may be better; the evaluation or an experiment decides."
)


@dataclass(frozen=True)
class ShadowReport:
    """Two orders of the same pools, by where each had what people credited."""

    shadow_id: str | None
    """The ranker that was watched; None: there was none in these days."""
    questions: int
    """With a credited chunk that both ranked."""
    active: float
    """Mean reciprocal rank of the first credited chunk, in [0, 1], as the pool was ordered."""
    shadow: float
    """The same as the watched ranker would have ordered it."""
    better: int
    """Questions in which the shadow had it further up."""
    worse: int
    """Questions in which it had it further down."""
    low: float
    """The least difference of `shadow` less `active` that the data allow, at 95 %."""
    high: float
    why: str
    """In a sentence, with the bias that it has."""


def shadow_report(
    store: "FeedbackStore",
    *,
    shadow_id: str | None = None,
    days: float = 28,
    now: datetime | None = None,
) -> ShadowReport:
    """Compare the order that people got with that of the ranker in the shadow.

    A chunk is credited where somebody opened it, copied from it or rated it good, or where the
    answer was found good and provably quotes it. Its place is the one in the whole pool, as the
    learned ranker had it, else the base retriever, before feedback moved it. The interval is the
    usual one of paired differences.

    Args:
        store: Where, and whose namespace.
        shadow_id: Which; None: the one that was watched last in these days.
        days: How far back, by when a question was asked; above 0.
        now: The end; None: by the database's clock.

    Raises:
        ValueError: If `days` is not above 0.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> shadow_report(FeedbackStore("sqlite://")).questions
        0
    """
    if not days > 0:
        msg = f"days must be above 0, got {days!r}"
        raise ValueError(msg)
    pairs: list[tuple[float, float]] = []
    with reading(store) as connection:
        end = now or clock(store, connection)
        since = end - timedelta(days=days)
        shadow_id = shadow_id or _watched_last(connection, store.namespace, since, end)
        if shadow_id is not None:
            asks = [
                (ask.trace_id, named)
                for ask in asks_between(connection, store.namespace, since, end)
                if (named := _credited(ask))
            ]
            pairs = list(_pairs(connection, shadow_id, dict(asks)))
    return _report(shadow_id, pairs)


def _watched_last(
    connection: Connection, namespace: str, since: datetime, until: datetime
) -> str | None:
    asked = (traces.c.created_at >= since) & (traces.c.created_at < until)
    mine = (traces.c.namespace == namespace) & traces.c.shadow_id.is_not(None)
    newest = traces.c.created_at.desc()
    rows = select(traces.c.shadow_id).where(mine, asked).order_by(newest).limit(1)
    return connection.execute(rows).scalar()


def _credited(ask: Ask) -> set[str]:
    named = {said.target for said in ask.said if said.polarity > 0 and said.target != ANSWER}
    if any(said.is_for for said in ask.said) and not ask.against:
        named |= {chunk.chunk_id for chunk in ask.prompt if chunk.cited}
    return named


def _pairs(
    connection: Connection, shadow_id: str, credited: Mapping[str, set[str]]
) -> Iterable[tuple[float, float]]:
    """Yield the reciprocal ranks of the first credited chunk: as it was, and in the shadow."""
    for page in batched(list(credited)):
        best: dict[str, tuple[int, int]] = {}
        rows = connection.execute(
            select(trace_chunks)
            .join(traces, traces.c.trace_id == trace_chunks.c.trace_id)
            .where(traces.c.trace_id.in_(page), traces.c.shadow_id == shadow_id)
            .where(trace_chunks.c.shadow_rank.is_not(None))
        )
        for row in rows:
            place = row.base_rank if row.ranker_rank is None else row.ranker_rank
            if place is None or row.chunk_id not in credited[row.trace_id]:
                continue
            known = best.get(row.trace_id, (place, row.shadow_rank))
            best[row.trace_id] = min(known[0], place), min(known[1], row.shadow_rank)
        yield from ((1 / (place + 1), 1 / (other + 1)) for place, other in best.values())


def _report(shadow_id: str | None, pairs: list[tuple[float, float]]) -> ShadowReport:
    number = len(pairs)
    if not number:
        nothing = "No question with a credited chunk was ranked by a shadow in these days."
        return ShadowReport(shadow_id, 0, 0.0, 0.0, 0, 0, 0.0, 0.0, nothing)
    gains = [shadow - active for active, shadow in pairs]
    mean = math.fsum(gains) / number
    squares = math.fsum((gain - mean) ** 2 for gain in gains)
    # Of a single question nothing is known about the others.
    width = 1.96 * math.sqrt(squares / (number - 1) / number) if number > 1 else 1.0
    active, shadow = (math.fsum(column) / number for column in zip(*pairs, strict=True))
    why = (
        f"Reciprocal rank of what {number:,} questions credited: {shadow:.3f} in the shadow, "
        f"{active:.3f} as ordered ({mean:+.3f}, from {mean - width:.3f} to {mean + width:.3f}). "
        f"{BIAS}"
    )
    return ShadowReport(
        shadow_id=shadow_id,
        questions=number,
        active=active,
        shadow=shadow,
        better=sum(gain > 0 for gain in gains),
        worse=sum(gain < 0 for gain in gains),
        low=mean - width,
        high=mean + width,
        why=why,
    )
