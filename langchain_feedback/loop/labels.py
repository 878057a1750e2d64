"""What reviewers said, question by question: for exports and for training."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.reviewing.items import (
    ReviewEvent,
    ReviewItem,
    as_item,
    read_events,
)
from langchain_feedback.store.reviewing.verdicts import BLAMELESS, agreed, in_force
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["PoolChunk", "ReviewedQuestion", "reviewed_questions"]


@dataclass(frozen=True)
class PoolChunk:
    """One candidate of the pool that was reviewed, as it was."""

    chunk_id: str
    cell_id: str
    content_hash: str
    text: str
    source: str
    heading: str
    base_rank: int | None
    """From 0 in the base retriever's order; None where that did not find it."""
    final_rank: int


@dataclass(frozen=True)
class ReviewedQuestion:
    """A question with its whole pool and what reviewers said of it."""

    item_id: str
    question_id: int | None
    question: str
    pool: tuple[PoolChunk, ...]
    """In final order."""
    right: tuple[str, ...]
    """Ids of chunks that answer it; some may be outside the pool."""
    wrong: tuple[str, ...]
    """Ids of chunks that are confirmed not to."""
    none_exists: bool
    """Whether no document answers it."""
    verdict: str | None
    failure_class: str | None
    reviewers: tuple[str, ...]
    decided_at: datetime | None
    needs_review: bool
    """Whether nobody has decided it yet: then nothing here is a label."""
    trace_id: str | None
    answer: str | None
    correction: str | None


def reviewed_questions(
    store: "FeedbackStore", *, include_unreviewed: bool = False
) -> list[ReviewedQuestion]:
    """Return what is decided and was not taken back, oldest first.

    Args:
        store: Where, and whose namespace.
        include_unreviewed: Whether open items come too, with `needs_review`.
    """
    states = ["decided", "open"] if include_unreviewed else ["decided"]
    with reading(store) as connection:
        rows = connection.execute(
            select(review_items)
            .where(review_items.c.namespace == store.namespace)
            .where(review_items.c.kind == "answer", review_items.c.state.in_(states))
            .order_by(review_items.c.created_at, review_items.c.item_id)
        ).mappings()
        items = [as_item(row) for row in rows]
        events: dict[str, list[ReviewEvent]] = defaultdict(list)
        for event in read_events(connection, store.namespace, None):
            events[event.item_id].append(event)
    return [_reviewed(item, events[item.item_id]) for item in items]


def _reviewed(item: ReviewItem, events: list[ReviewEvent]) -> ReviewedQuestion:
    verdicts = in_force(events) if item.state == "decided" else []
    final = agreed(verdicts, item.reviews_required)
    confirmed = final is not None and final.verdict == "confirm" and item.guess is not None
    # Where the answer was at fault, or what the document says, the chunk is no wrong one.
    confirmed = confirmed and final is not None and final.failure_class not in BLAMELESS
    return ReviewedQuestion(
        item_id=item.item_id,
        question_id=item.question_id,
        question=item.question,
        pool=tuple(_pool_chunk(one, at) for at, one in enumerate(item.snapshot.get("chunks", ()))),
        right=final.right_chunks if final else (),
        wrong=(str(item.guess),) if confirmed else (),
        none_exists=bool(final and final.none_exists),
        verdict=final.verdict if final else None,
        failure_class=(final.failure_class if final else None) or item.failure_class,
        reviewers=tuple(dict.fromkeys(one.reviewer for one in verdicts)),
        decided_at=item.decided_at if final else None,
        needs_review=final is None,
        trace_id=item.trace_id,
        answer=item.snapshot.get("answer"),
        correction=final.correction if final else None,
    )


def _pool_chunk(one: Mapping[str, Any], at: int) -> PoolChunk:
    return PoolChunk(
        chunk_id=str(one["chunk_id"]),
        cell_id=str(one.get("cell_id") or ""),
        content_hash=str(one.get("content_hash") or ""),
        text=str(one.get("text") or ""),
        source=str(one.get("source") or ""),
        heading=str(one.get("heading") or ""),
        base_rank=one.get("base_rank"),
        final_rank=int(one.get("rank", at)),
    )
