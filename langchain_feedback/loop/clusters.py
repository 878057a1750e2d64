"""Questions that rest on the same passages, put together: where does it fail?"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from langchain_feedback.store.asking import Ask, AskedChunk, read_asks
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import clock, reading
from langchain_feedback.words import content_words

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Cluster", "cluster_asks", "failure_clusters"]

_TOP = 10
_NAMED_BY = 3


@dataclass(frozen=True)
class Cluster:
    """Questions for which much the same chunks were found."""

    name: str
    """The commonest source and heading among the first chunks; a question where they have none."""
    question_ids: tuple[int, ...]
    """The one asked most first."""
    questions: tuple[str, ...]
    """Their texts, in the same order."""
    asks: int
    failures: int
    """How many of the asks failed: see `Ask.is_failure`."""
    sources: tuple[str, ...]
    """Where the chunks come from, the commonest first."""
    chunk_ids: tuple[str, ...]
    """The chunks found most often, at most ten."""
    trace_ids: tuple[str, ...]
    """All asks, newest first."""


def cluster_asks(
    asks: Iterable[Ask], *, overlap: float = 0.3, headings: Mapping[str, str] | None = None
) -> list[Cluster]:
    """Put questions together whose searches found the same chunks, largest cluster first.

    Leader clustering: the questions come in turn, the one asked most first, and each joins the
    cluster whose first question found most of the same chunks, if they overlap enough, or
    begins a cluster. The overlap is the Jaccard index of the ten first chunks of the newest
    search: what both found, over what either found. Questions that found nothing at all are
    compared by the stems of their words instead, and only with each other.

    On FeedbackQA (400 questions of 84 pages, 20 draws) 58 % of the questions in the ten
    largest clusters were of their cluster's commonest page, with .3; with the share of the
    smaller set in place of Jaccard it were 47 %. The work grows with the questions times the
    clusters that they share a chunk with. Where an index has little more than ten chunks, all
    questions find the same ones, and are one cluster.

    Args:
        asks: What was asked.
        overlap: How much is enough, above 0 and at most 1.
        headings: The headings of chunks by id, for the names.

    Raises:
        ValueError: If `overlap` lies elsewhere.
    """
    if not 0 < overlap <= 1:
        msg = f"overlap lies above 0 and is at most 1, got {overlap!r}"
        raise ValueError(msg)
    by_question: dict[int, list[Ask]] = defaultdict(list)
    for ask in sorted(asks, key=lambda ask: (ask.created_at, ask.trace_id)):
        by_question[ask.question_id].append(ask)
    ordered = sorted(by_question.items(), key=lambda item: (-len(item[1]), item[0]))
    groups = _led([found for _, found in ordered], overlap)
    groups.sort(key=lambda group: (-sum(map(len, group)), -len(group), group[0][0].question_id))
    return _told_apart([_cluster(group, headings or {}) for group in groups])


def failure_clusters(
    store: "FeedbackStore",
    *,
    days: float = 28,
    overlap: float = 0.3,
    now: datetime | None = None,
) -> list[Cluster]:
    """Put the questions together that failed at least once; the most failures first.

    `Cluster.asks` counts all asks of these questions, also those that did not fail.

    Args:
        store: Whose questions. Traffic of evaluations and playgrounds does not count.
        days: How far back it looks, by when a question was asked; above 0.
        overlap: See `cluster_asks`.
        now: The end of these days; None: the database's clock.

    Raises:
        ValueError: If `days` is not above 0, or `overlap` not what it may be.
        StoreError: If the database cannot be read.
    """
    if not days > 0:
        msg = f"days must be above 0, got {days!r}"
        raise ValueError(msg)
    with reading(store) as connection:
        now = now or clock(store, connection)
        asks = read_asks(connection, store.namespace, since=now - timedelta(days=days))
        asks = [ask for ask in asks if ask.created_at <= now]
        failed = {ask.question_id for ask in asks if ask.is_failure}
        asks = [ask for ask in asks if ask.question_id in failed]
        first = {chunk.chunk_id for ask in asks for chunk in _found(ask)[:_NAMED_BY]}
        headings = _headings(connection, store.namespace, sorted(first))
    found = cluster_asks(asks, overlap=overlap, headings=headings)
    return sorted(found, key=lambda cluster: -cluster.failures)


def _found(ask: Ask) -> tuple[AskedChunk, ...]:
    return ask.last_search[:_TOP]


def _marks(asks: Sequence[Ask]) -> frozenset[str]:
    """Return what a question is compared by: chunks, else words. They never meet."""
    for ask in reversed(asks):
        if found := _found(ask):
            return frozenset(f"chunk:{chunk.chunk_id}" for chunk in found)
    return frozenset(f"word:{word}" for word in content_words(asks[-1].question))


def _led(questions: Iterable[list[Ask]], overlap: float) -> list[list[list[Ask]]]:
    groups: list[list[list[Ask]]] = []
    leaders: list[frozenset[str]] = []
    having: dict[str, list[int]] = defaultdict(list)
    for asks in questions:
        marks = _marks(asks)
        shared = Counter(leader for mark in marks for leader in having[mark])
        # The largest overlap; of equals, the older cluster.
        best = max(
            ((_jaccard(n, marks, leaders[at]), -at) for at, n in shared.items()), default=(0.0, 0)
        )
        if best[0] >= overlap:
            groups[-best[1]].append(asks)
            continue
        for mark in marks:
            having[mark].append(len(leaders))
        leaders.append(marks)
        groups.append([asks])
    return groups


def _jaccard(shared: int, one: frozenset[str], other: frozenset[str]) -> float:
    return shared / (len(one) + len(other) - shared)


def _cluster(group: Sequence[Sequence[Ask]], headings: Mapping[str, str]) -> Cluster:
    asks = [ask for found in group for ask in found]
    searched = [_found(found[-1]) for found in group]
    sources = Counter(chunk.source for chunks in searched for chunk in chunks if chunk.source)
    ids = Counter(chunk.chunk_id for chunks in searched for chunk in chunks)
    newest = sorted(asks, key=lambda ask: (ask.created_at, ask.trace_id), reverse=True)
    return Cluster(
        name=_name(searched, headings) or group[0][-1].question,
        question_ids=tuple(found[0].question_id for found in group),
        questions=tuple(found[-1].question for found in group),
        asks=len(asks),
        failures=sum(ask.is_failure for ask in asks),
        sources=_commonest(sources),
        chunk_ids=_commonest(ids)[:_TOP],
        trace_ids=tuple(ask.trace_id for ask in newest),
    )


def _name(searched: Iterable[Sequence[AskedChunk]], headings: Mapping[str, str]) -> str:
    """Return `source > heading`, as `documents.source_of` writes it."""
    first = [chunk for found in searched for chunk in found[:_NAMED_BY]]
    places = [(chunk.source, headings.get(chunk.chunk_id, "")) for chunk in first]
    names = [" > ".join(filter(None, place)) for place in places]
    return next(iter(_commonest(Counter(filter(None, names)))), "")


def _commonest(counts: Mapping[str, int]) -> tuple[str, ...]:
    # Of equals the first that was counted stays first: what searches ranked higher.
    return tuple(sorted(counts, key=lambda name: -counts[name]))


def _told_apart(clusters: Iterable[Cluster]) -> list[Cluster]:
    """Number those that would have the same name."""
    seen: Counter[str] = Counter()
    told = []
    for cluster in clusters:
        seen[cluster.name] += 1
        times = seen[cluster.name]
        name = cluster.name if times == 1 else f"{cluster.name} ({times})"
        told.append(Cluster(**(vars(cluster) | {"name": name})))
    return told


def _headings(connection: Connection, namespace: str, chunk_ids: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for page in batched(chunk_ids):
        rows = connection.execute(
            select(chunks.c.chunk_id, chunks.c.metadata)
            .where(chunks.c.namespace == namespace)
            .where(chunks.c.chunk_id.in_(page))
        )
        found |= {row.chunk_id: _heading(json.loads(row.metadata)) for row in rows}
    return found


def _heading(metadata: Mapping[str, Any]) -> str:
    return " ".join(str(metadata.get("heading") or metadata.get("title") or "").split())
