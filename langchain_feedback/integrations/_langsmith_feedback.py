"""What a signal is as LangSmith feedback, and what LangSmith feedback is as a rating."""

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from langchain_feedback.signals import SIGNALS
from langchain_feedback.store.records import SignalRecord
from langchain_feedback.store.schema import ANSWER

if TYPE_CHECKING:
    from langsmith.schemas import Feedback

__all__ = ["OURS", "PULLED", "Sent", "Taken", "feedback_id_of", "feedback_of", "in_utc", "taken"]

OURS = "langchain-feedback"
"""The `source` in the source metadata of feedback that the bridge sent."""

PULLED = "langsmith:"
"""How the event ids of imported feedback begin."""

_IDS = uuid5(NAMESPACE_URL, OURS)
_JUDGEMENT = SIGNALS["rating"].family
_CLICK = SIGNALS["source_click"].family

Scale = tuple[float, float]
"""The scores that mean the worst and the best."""


class Sent(NamedTuple):
    """A signal as LangSmith feedback."""

    feedback_id: UUID
    key: str
    score: float | None
    value: str | int | None
    comment: str | None
    correction: dict[str, str] | None
    source: dict[str, Any]


class Taken(NamedTuple):
    """LangSmith feedback as the store keeps it."""

    event_id: str
    rating: int | None
    """None: a correction alone."""
    actor: str | None
    comment: str | None
    correction: str | None
    given_at: datetime


def feedback_id_of(record: SignalRecord, namespace: str) -> UUID:
    """Return the id of the feedback that says what a person says of one thing.

    It is the same for whatever he says of it later, so that this replaces it.
    """
    key = [namespace, record.trace_id, record.actor, record.family, record.target]
    return uuid5(_IDS, json.dumps(key))


def feedback_of(record: SignalRecord, namespace: str, *, with_actor: bool) -> Sent:
    """Make LangSmith feedback of a signal."""
    source: dict[str, Any] = {
        "source": OURS,
        "namespace": namespace,
        "feedback_trace_id": record.trace_id,
        "event_id": record.event_id,
        "signal": record.signal,
        "reviewer": record.reviewer,
        "given_at": record.received_at.isoformat(),
    }
    if record.target != ANSWER:
        source["chunk_id"] = record.target
    if with_actor and record.actor is not None:
        source["actor"] = record.actor
    correction = None if record.correction is None else {"text": record.correction}
    value = record.signal if record.rating is None else record.rating
    key, score = _key_of(record), _score_of(record)
    return Sent(
        feedback_id_of(record, namespace), key, score, value, record.comment, correction, source
    )


def taken(feedback: "Feedback", scale: Scale) -> Taken | None:
    """Read a person's feedback; None where the score is none of the scale.

    Example:
        >>> from langsmith.schemas import Feedback
        >>> given = {"id": UUID(int=1), "run_id": UUID(int=2), "trace_id": None, "key": "liked",
        ...          "created_at": "2026-01-01T00:00Z", "modified_at": "2026-01-01T00:00Z"}
        >>> [taken(Feedback(**given, score=score), (0, 1)).rating for score in (0, .5, True)]
        [1, 3, 5]
        >>> taken(Feedback(**given, score=4), (0, 1)) is None
        True
        >>> taken(Feedback(**given, score=2), (10, 0)).rating
        4
    """
    rating = None if feedback.score is None else _rating_of(float(feedback.score), scale)
    correction = _text_of(feedback.correction)
    if rating is None and (feedback.score is not None or not correction):
        return None
    changed, source = in_utc(feedback.modified_at), feedback.feedback_source
    user = None if source is None else source.user_id
    return Taken(
        event_id=f"{PULLED}{feedback.id}:{changed.isoformat()}",
        rating=rating,
        actor=None if user is None else f"{PULLED}{user}",
        comment=feedback.comment or None,
        correction=correction or None,
        given_at=in_utc(feedback.created_at),
    )


def in_utc(time: datetime) -> datetime:
    """Read a time of LangSmith's, which is UTC where it has no zone."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _key_of(record: SignalRecord) -> str:
    """Return the feedback key: one a family, so that what replaces it has the same."""
    if record.family != _JUDGEMENT:
        return record.family
    return "rating" if record.target == ANSWER else "source_rating"


def _score_of(record: SignalRecord) -> float | None:
    if record.rating is not None:
        return (record.rating - 1) / 4
    if record.family == "correction":
        return None
    # Of other families the key says what happened, and 1 that it did.
    against = record.polarity < 0 and record.family in (_JUDGEMENT, _CLICK)
    return 0.0 if against else 1.0


def _rating_of(score: float, scale: Scale) -> int | None:
    worst, best = scale
    share = (score - worst) / (best - worst)
    return 1 + math.floor(4 * share + 0.5) if 0 <= share <= 1 else None


def _text_of(correction: Any) -> str:
    if isinstance(correction, dict) and set(correction) == {"text"}:
        correction = correction["text"]
    if not correction:
        return ""
    return correction if isinstance(correction, str) else json.dumps(correction, default=str)
