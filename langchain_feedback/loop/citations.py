"""How each chunk fares: how often it is opened, quoted, and found to be of use."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from langchain_feedback.loop._triage.resting import asks_between
from langchain_feedback.signals import click_weight
from langchain_feedback.store.asking import Ask
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["ChunkReport", "chunk_reports", "click_through", "never_cited"]

_CLICKS, _PASSES = 1.0, 9.0


@dataclass(frozen=True)
class ChunkReport:
    """How a chunk fared."""

    chunk_id: str
    source: str
    text: str
    """As last seen, as the source."""
    retrieved: int
    """Questions for which it was returned, each once."""
    cited: int
    """Answers with a proved quote of it."""
    clicks: int
    """Times that somebody opened it; of one person and answer once."""
    click_through: float
    """Clicks for each time that somebody looked at it, in [0, 1]; see `click_through`."""
    cited_rate: float
    """Answers that quote it, of those that had it at hand and whose citations are known, in
    [0, 1]; 0 where there are none."""
    graded_yes_rate: float
    """Times that it was graded yes, of those that it was graded yes or no, in [0, 1]; 0 where
    there are none."""
    known: int
    """Questions for which it was returned, and of whose answers the citations are known."""


@dataclass
class _Count:
    source: str = ""
    retrieved: int = 0
    known: int = 0
    at_hand: int = 0
    cited: int = 0
    clicks: int = 0
    looked_at: float = 0.0
    yes: int = 0
    no: int = 0


def click_through(clicks: float, looked_at: float) -> float:
    """Return how often what is looked at is opened, drawn toward .1 while little is known.

    It is the mean of a Beta(1, 9) prior after what was seen, `(clicks + 1) / (looked_at + 10)`,
    at most 1 (Gelman et al., "Bayesian Data Analysis", 3rd ed., section 2.1).

    Args:
        clicks: How many clicks, at least 0.
        looked_at: How many times it was looked at, at least 0: a place counts as one over its
            `click_weight`, 1 for the first and 1/5 from the fifth on.

    Example:
        >>> click_through(0, 0), click_through(5, 10)
        (0.1, 0.3)
    """
    return min(1.0, (clicks + _CLICKS) / (looked_at + _CLICKS + _PASSES))


def chunk_reports(
    store: "FeedbackStore", *, days: float = 28, now: datetime | None = None
) -> list[ChunkReport]:
    """Return how each chunk fared that was found in the last days, the most retrieved first.

    Args:
        store: Where, and whose namespace.
        days: How far back.
        now: When; None: at this moment.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> store.record_trace("t1", "How long?", [Document("5 days.", id="a")])
        >>> store.update_trace("t1", cited=["a"])
        >>> [(one.chunk_id, one.retrieved, one.cited_rate) for one in chunk_reports(store)]
        [('a', 1, 1.0)]
    """
    now = now or datetime.now(UTC)
    counts: dict[str, _Count] = defaultdict(_Count)
    with reading(store) as connection:
        for ask in asks_between(connection, store.namespace, now - timedelta(days=days), now):
            _count(ask, counts)
        texts = _texts(connection, store.namespace, counts)
    reports = [_report(key, count, texts.get(key, "")) for key, count in counts.items()]
    return sorted(reports, key=lambda one: (-one.retrieved, one.chunk_id))


def never_cited(
    store: "FeedbackStore", *, least: int = 20, days: float = 28, now: datetime | None = None
) -> list[ChunkReport]:
    """Return the chunks that are retrieved often and never quoted, the most often first.

    Only answers count whose citations are known: one that nobody verified quotes nothing.

    Args:
        store: Where, and whose namespace.
        least: In how many such answers, at least.
        days: How far back.
        now: When; None: at this moment.
    """
    reports = chunk_reports(store, days=days, now=now)
    return [one for one in reports if one.known >= least and not one.cited]


def _count(ask: Ask, counts: dict[str, _Count]) -> None:
    clicks: dict[str, set[str]] = defaultdict(set)
    for said in ask.said:
        if said.signal == "source_click":
            clicks[said.target].add(said.actor)
    is_known = any(chunk.cited is not None for chunk in ask.prompt)
    for chunk in {one.chunk_id: one for one in ask.chunks if one.returned}.values():
        counts[chunk.chunk_id].retrieved += 1
        counts[chunk.chunk_id].known += is_known
    for chunk in ask.last_search:
        count = counts[chunk.chunk_id]
        count.source = chunk.source
        count.yes += chunk.grade == "yes"
        count.no += chunk.grade == "no"
        if chunk.in_prompt or chunk.chunk_id in clicks:
            count.clicks += len(clicks[chunk.chunk_id])
            count.looked_at += 1 / click_weight(chunk.final_rank)
        if chunk.in_prompt and is_known:
            count.at_hand += 1
            count.cited += bool(chunk.cited)


def _texts(connection: Connection, namespace: str, chunk_ids: Iterable[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for page in batched(sorted(chunk_ids)):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        for row in connection.execute(select(chunks.c.chunk_id, chunks.c.text).where(mine)):
            texts[row.chunk_id] = row.text
    return texts


def _report(chunk_id: str, count: _Count, text: str) -> ChunkReport:
    graded = count.yes + count.no
    return ChunkReport(
        chunk_id=chunk_id,
        source=count.source,
        text=text,
        retrieved=count.retrieved,
        cited=count.cited,
        clicks=count.clicks,
        click_through=click_through(count.clicks, count.looked_at),
        cited_rate=count.cited / count.at_hand if count.at_hand else 0.0,
        graded_yes_rate=count.yes / graded if graded else 0.0,
        known=count.known,
    )
