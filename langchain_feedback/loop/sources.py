"""Which documents do the damage: how many answers rest on each, how they fare, how old it is."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from langchain_feedback.loop._triage.resting import asks_between, blamed_sources, rests_on
from langchain_feedback.loop.citations import click_through
from langchain_feedback.signals import click_weight
from langchain_feedback.store.alarms import SourceAlarm, read_alarms
from langchain_feedback.store.asking import Ask
from langchain_feedback.store.loop_schema import owner_items
from langchain_feedback.store.owner_items import CLOSED
from langchain_feedback.store.schema import chunks, trace_chunks, traces
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["SourceReport", "source_reports"]

_DAY_S = 86_400


@dataclass(frozen=True)
class SourceReport:
    """How a document fares."""

    source: str
    answers: int
    """Answers that rest on it."""
    failures: int
    """Those of them that people found wrong."""
    age_days: float | None
    """Days since its text last changed, as far as searches saw: else since it was first found.
    None where no search that is still kept found it."""
    damage: float
    """Answers that rest on it, times its age: what goes out if it is outdated."""
    alarms: tuple[SourceAlarm, ...]
    """Those that are open."""
    open_items: int
    """What its owner has been asked, and is not verified yet."""
    cited_rate: float
    """Answers that quote it, of those that had it at hand and whose citations are known, in
    [0, 1]; 0 where there are none."""
    click_through: float
    """How often it is opened where it is looked at, in [0, 1]; see `citations.click_through`."""


@dataclass
class _Count:
    answers: int = 0
    failures: int = 0
    at_hand: int = 0
    cited: int = 0
    clicks: int = 0
    looked_at: float = 0.0


def source_reports(
    store: "FeedbackStore", *, days: float = 28, now: datetime | None = None
) -> list[SourceReport]:
    """Return the documents that were found in the last days, or have alarms, most damage first.

    Chunks without a source are not among them.

    Args:
        store: Where, and whose namespace.
        days: How far back.
        now: When; None: at this moment.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> store.record_trace(
        ...     "t1", "How long?", [Document("5 days.", metadata={"source": "faq.md"})]
        ... )
        >>> [(one.source, one.answers, one.failures) for one in source_reports(store)]
        [('faq.md', 1, 0)]
    """
    now = now or datetime.now(UTC)
    counts: dict[str, _Count] = defaultdict(_Count)
    alarms: dict[str, list[SourceAlarm]] = defaultdict(list)
    with reading(store) as connection:
        for ask in asks_between(connection, store.namespace, now - timedelta(days=days), now):
            _count(ask, counts)
        changed = _changed_at(connection, store.namespace)
        asked = _open_items(connection, store.namespace)
        for alarm in read_alarms(connection, store.namespace):
            alarms[alarm.source].append(alarm)
    reports = []
    for source in counts.keys() | alarms.keys():
        at = changed.get(source)
        age = None if at is None else max(0.0, (now - at).total_seconds() / _DAY_S)
        reports.append(_report(source, counts[source], age, alarms[source], asked[source]))
    return sorted(
        reports, key=lambda one: (-one.damage, -len(one.alarms), -one.answers, one.source)
    )


def _count(ask: Ask, counts: dict[str, _Count]) -> None:
    """Take in one answer: a source counts once, however many of its chunks are there."""
    resting = {chunk.source for chunk in rests_on(ask)}
    blamed = blamed_sources(ask) if ask.is_failure else set()
    clicked = [said.target for said in ask.said if said.signal == "source_click"]
    is_known = any(chunk.cited is not None for chunk in ask.prompt)
    for source in {chunk.source for chunk in ask.prompt if chunk.source}:
        mine = [chunk for chunk in ask.prompt if chunk.source == source]
        count = counts[source]
        count.answers += source in resting or source in blamed
        count.failures += source in blamed
        count.at_hand += is_known
        count.cited += any(chunk.cited for chunk in mine)
        count.clicks += sum(clicked.count(chunk.chunk_id) for chunk in mine)
        count.looked_at += sum(1 / click_weight(chunk.final_rank) for chunk in mine)


def _report(
    source: str, count: _Count, age: float | None, alarms: list[SourceAlarm], open_items: int
) -> SourceReport:
    return SourceReport(
        source=source,
        answers=count.answers,
        failures=count.failures,
        age_days=age,
        damage=count.answers * (age or 0.0),
        alarms=tuple(alarms),
        open_items=open_items,
        cited_rate=count.cited / count.at_hand if count.at_hand else 0.0,
        click_through=click_through(count.clicks, count.looked_at),
    )


def _changed_at(connection: Connection, namespace: str) -> dict[str, datetime]:
    """Return when the text of each source last changed, else when it was first found."""
    columns = (trace_chunks.c.chunk_id, trace_chunks.c.content_hash)
    is_mine = (chunks.c.namespace == namespace) & (chunks.c.chunk_id == trace_chunks.c.chunk_id)
    first = (
        select(*columns, chunks.c.source, func.min(traces.c.created_at).label("at"))
        .join(traces, traces.c.trace_id == trace_chunks.c.trace_id)
        .join(chunks, is_mine)
        .where(traces.c.namespace == namespace, chunks.c.source != "")
        .group_by(*columns, chunks.c.source)
    )
    texts: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for row in connection.execute(first):
        texts[row.source, row.chunk_id].append(row.at)
    found: dict[str, list[datetime]] = defaultdict(list)
    changed: dict[str, list[datetime]] = defaultdict(list)
    for (source, _), times in texts.items():
        found[source].append(min(times))
        changed[source] += [max(times)] if len(times) > 1 else []
    return {source: max(changed[source], default=min(times)) for source, times in found.items()}


def _open_items(connection: Connection, namespace: str) -> Counter[str]:
    mine = (owner_items.c.namespace == namespace) & owner_items.c.state.not_in(CLOSED)
    return Counter(connection.execute(select(owner_items.c.source).where(mine)).scalars())
