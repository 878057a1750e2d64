"""From signals to items: what is worth a reviewer's look."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from langchain_feedback.loop._cases.ordinary import DRAWN, draw_ordinary, first_items
from langchain_feedback.loop._triage.alike import alike_questions
from langchain_feedback.loop.failures import Failure, classify_failures
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.loop.worst import WorstQuestion, rank_questions
from langchain_feedback.quotes.locate import locate_quote
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.inbox.bursts import HeldBurst, read_bursts
from langchain_feedback.store.reviewing.finding import chunk_entry
from langchain_feedback.store.reviewing.items import (
    Candidate,
    count_items,
    is_seen,
    seen_until,
)
from langchain_feedback.store.schema import chunks, signals, trace_searches
from langchain_feedback.store.transactions import reading
from langchain_feedback.words import sentence_spans

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Mined", "mine"]

_BURSTS_FIRST = 1e6
_LOST = 0.25
_LAST = 0.0
_WORDS = 5


@dataclass(frozen=True)
class Mined:
    """What a run of mining did."""

    added: int
    known: int
    """Found again, and not added again: whatever became of it in the queue."""
    waiting: int
    """Items that wait now."""


def mine(
    store: "FeedbackStore",
    *,
    days: float = 7,
    limit: int = 40,
    ordinary: int = 0,
    now: datetime | None = None,
    fallback: "Runnable[str, Any] | None" = None,
    queue: ReviewQueue | None = None,
) -> Mined:
    """Add what is worth a look to the review queue; doing it twice adds nothing.

    Bursts that were held come first, then the worst questions (see `worst_questions`), each
    with its newest bad answer, then questions for which nothing was found, the most asked
    first, one of those that want the same document (see `missing_documents`). Last come some
    drawn by chance from what went well (see `draw_ordinary`): a ranker must be tried on those,
    too. An item holds all that a reviewer sees, and outlives the trace.

    Args:
        store: Where, and whose namespace.
        days: How far back.
        limit: The most items that may wait: where the queue is full, nothing is added but
            bursts. 40 take a reviewer half an hour.
        ordinary: How many of them are for what went well. Places are kept for them, but half of
            them at most: complaints come first.
        now: When; None: at this moment.
        fallback: See `classify_failures`.
        queue: Where to; None: a `ReviewQueue` with its defaults.
    """
    queue = queue or ReviewQueue(store)
    queue.expire(now)
    since = (now or datetime.now(UTC)) - timedelta(days=days)
    with reading(store) as connection:
        asks = read_asks(connection, store.namespace, since=since, until=now)
        waiting = count_items(connection, store.namespace, "open")
        seen = seen_until(connection, store.namespace)
        made = first_items(connection, store.namespace)
        held = read_bursts(connection, store.namespace)
        bursts = [_of_burst(connection, store.namespace, one) for one in held]
        chosen, reasons, alike = _chosen(connection, asks)
    drawn = draw_ordinary(asks, chosen, made, ordinary, now or datetime.now(UTC))

    def is_known(ask: Ask) -> bool:
        same = alike.get(ask.trace_id, [ask])
        return any(is_seen(seen, one.question_id, one.created_at) for one in same)

    worst, fine = ([ask for ask in some if not is_known(ask)] for some in (chosen, drawn))
    failures = classify_failures(store, worst, fallback=fallback)
    added = queue.add(bursts, now=now)
    found = 0
    # What went well has its places kept: complaints alone would fill them all.
    for_worst = limit - min(len(fine), limit // 2)
    for at, ask in enumerate([*worst, *fine]):
        if waiting + added >= (for_worst if at < len(worst) else limit):
            continue
        failure = failures[at] if at < len(worst) else None
        priority, why = reasons.get(ask.trace_id, (_LAST, (DRAWN,)))
        with reading(store) as connection:
            snapshot = _snapshot(connection, store.namespace, ask, failure, why)
        added += queue.add([_candidate(ask, failure, priority, snapshot)], now=now)
        found += 1
    known = len(chosen) + len(drawn) - len(worst) - len(fine)
    return Mined(added, len(bursts) + found + known - added, waiting + added)


Reason = tuple[float, tuple[str, ...]]


def _chosen(
    connection: Connection, asks: Sequence[Ask]
) -> tuple[list[Ask], dict[str, Reason], dict[str, list[Ask]]]:
    """Return the answers to look at, most urgent first, why, and which others each stands for.

    Of questions that found nothing and want the same document one is looked at: twenty
    wordings of it would fill a reviewer's hour.
    """
    by_id = {ask.trace_id: ask for ask in asks}
    reasons: dict[str, Reason] = {}
    for worst in rank_questions(asks):
        reasons[worst.trace_ids[0]] = (worst.score, (_of_worst(worst),))
    taken = {by_id[trace_id].question_id for trace_id in reasons}
    lost = [ask for ask in asks if ask.found_nothing and ask.question_id not in taken]
    alike: dict[str, list[Ask]] = {}
    for same in alike_questions(connection, asks, lost):
        times = Counter(ask.question_id for ask in same)
        shown = max(same, key=lambda ask: (times[ask.question_id], ask.created_at))
        reasons[shown.trace_id] = (_LOST * len(same), (_of_lost(len(same), len(times)),))
        alike[shown.trace_id] = same
    ordered = sorted(reasons, key=lambda trace_id: -reasons[trace_id][0])
    return [by_id[trace_id] for trace_id in ordered], reasons, alike


def _of_lost(asks: int, wordings: int) -> str:
    times = "once" if asks == 1 else f"{asks} times"
    in_words = f", in {wordings} wordings" if wordings > 1 else ""
    return f"Asked {times}{in_words}, and nothing was there to answer from."


def _of_worst(worst: WorstQuestion) -> str:
    people = "one person says" if worst.actors == 1 else f"{worst.actors} people say"
    times = "once" if worst.asks == 1 else f"{worst.asks} times"
    kinds = ", ".join(worst.families)
    return f"Asked {times}; {people} that it went wrong ({kinds})."


def _candidate(
    ask: Ask, failure: Failure | None, priority: float, snapshot: dict[str, Any]
) -> Candidate:
    return Candidate(
        kind="answer",
        question=ask.question,
        priority=priority,
        snapshot=snapshot,
        question_id=ask.question_id,
        trace_id=ask.trace_id,
        failure_class=failure.failure_class if failure else None,
        guess=failure.chunk_id if failure else None,
    )


def _of_burst(connection: Connection, namespace: str, burst: HeldBurst) -> Candidate:
    sign = "good" if burst.sign > 0 else "bad"
    kinds = ", ".join(f"{count} x {name}" for name, count in burst.signals.items())
    people = "one person" if burst.actors == 1 else f"{burst.actors} people"
    why = [
        f"{burst.events} {sign} signals of {people} came within a short time ({kinds}).",
        "They do not count until somebody keeps them.",
    ]
    mine = (signals.c.namespace == namespace) & (signals.c.burst_id == burst.burst_id)
    worded = mine & (signals.c.comment.is_not(None) | signals.c.correction.is_not(None))
    names = ("event_id", "signal", "target", "rating", "comment", "correction")
    fields = [*(signals.c[name] for name in names), signals.c.received_at]
    rows = connection.execute(select(*fields).where(worded).order_by(signals.c.seq).limit(_WORDS))
    said = [dict(row) | {"received_at": row["received_at"].isoformat()} for row in rows.mappings()]
    return Candidate(
        kind="burst",
        question=burst.question or "Signals on several questions",
        priority=_BURSTS_FIRST,
        snapshot={"why": why, "said": said, "chunks": []},
        question_id=burst.question_id,
        trace_id=burst.trace_ids[0] if burst.trace_ids else None,
        guess=burst.burst_id,
    )


def _snapshot(
    connection: Connection, namespace: str, ask: Ask, failure: Failure | None, why: Sequence[str]
) -> dict[str, Any]:
    searched = select(trace_searches.c.query).where(trace_searches.c.trace_id == ask.trace_id)
    pool = _pool(connection, namespace, ask)
    return {
        "asked_at": ask.created_at.isoformat(),
        "answer": ask.answer,
        "status": ask.status,
        "reason": ask.reason,
        "grounded": ask.grounded,
        "searches": list(
            connection.execute(searched.order_by(trace_searches.c.attempt)).scalars()
        ),
        "chunks": pool,
        "said": [
            {
                "event_id": said.event_id,  # so that `forget` finds a person's words
                "signal": said.signal,
                "target": said.target,
                "rating": said.rating,
                "comment": said.comment,
                "correction": said.correction,
                "received_at": said.received_at.isoformat(),
            }
            for said in ask.said
        ],
        "citations": _citations(ask.answer or "", pool),
        "why": [*why, *(failure.evidence if failure else ())],
        **({} if failure else {"sampled": True}),
    }


def _pool(connection: Connection, namespace: str, ask: Ask) -> list[dict[str, Any]]:
    """Return the whole pool of the last search; a text that changed since is not shown."""
    ids = [chunk.chunk_id for chunk in ask.last_search]
    rows: dict[str, Any] = {}
    for page in batched(ids):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        for found in connection.execute(select(chunks).where(mine)).mappings():
            rows[found["chunk_id"]] = found
    pool = []
    for chunk in ask.last_search:
        row = rows.get(chunk.chunk_id)
        known = row is not None and row["content_hash"] == chunk.content_hash
        entry = chunk_entry(row) if row is not None else {"text": "", "source": chunk.source}
        pool.append(
            {"heading": "", "url": ""}
            | entry
            | ({} if known else {"text": ""})
            | {
                "chunk_id": chunk.chunk_id,
                "cell_id": chunk.cell_id,
                "content_hash": chunk.content_hash,
                "rank": chunk.final_rank,
                "base_rank": chunk.base_rank,
                "grade": chunk.grade,
                "in_prompt": chunk.in_prompt,
                "cited": bool(chunk.cited),
                "origin": chunk.origin,
            }
        )
    return pool


def _citations(answer: str, pool: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sentences of an answer that stand in a chunk of the prompt word for word."""
    found = []
    for start, end in sentence_spans(answer):
        quote = answer[start:end]
        for chunk in pool:
            if chunk["in_prompt"] and (match := locate_quote(chunk["text"], quote)):
                found.append(
                    {
                        "chunk_id": chunk["chunk_id"],
                        "quote": match.text,
                        "start": start,
                        "end": end,
                    }
                )
                break
    return found
