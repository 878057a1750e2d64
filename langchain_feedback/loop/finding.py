"""Finding a question again by what somebody remembers of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, and_, exists, or_, select

from langchain_feedback.store.asking import Said, read_asks
from langchain_feedback.store.schema import questions, signals, traces
from langchain_feedback.store.transactions import reading
from langchain_feedback.traces import storable

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["FoundTrace", "find_traces"]

_MOST = 200
_MOST_WORDS = 12
_LEAST_OF_ID = 4


@dataclass(frozen=True)
class FoundTrace:
    """A question asked, and what was said about its answer."""

    trace_id: str
    question: str
    answer: str | None
    created_at: datetime
    """UTC."""
    said: tuple[str, ...]
    """Each signal in force, with its comment or correction: `thumbs_down: too old`."""


def find_traces(store: "FeedbackStore", text: str, *, limit: int = 20) -> list[FoundTrace]:
    """Return traces in which every word of a text occurs, the newest first.

    The words may stand anywhere in the question, the answer, or what was said about it; case
    does not count (beyond ASCII: on PostgreSQL only). Or the text is a trace id, or the
    beginning of one, at least 4 characters. Every trace is looked at: a search takes longer the
    more there are.

    Args:
        store: Whose traces.
        text: Words, of which the first 12 count, or a trace id.
        limit: At most how many, 1 to 200.

    Raises:
        ValueError: If there are no words, or `limit` is out of range.
        StoreError: If the store cannot be read.

    Example:
        >>> from langchain_feedback.store.feedback_store import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> store.record_trace("t1", "How long does a refund take?", [])
        >>> _ = store.signal("t1", "thumbs_down", comment="It took 30 days.")
        >>> [found.said for found in find_traces(store, "refund 30 DAYS")]
        [('thumbs_down: It took 30 days.',)]
    """
    words = storable(text).split()[:_MOST_WORDS]
    if not words:
        msg = "There is nothing to look for. Name a few words, or a trace id."
        raise ValueError(msg)
    if not 1 <= limit <= _MOST:
        msg = f"limit must be from 1 to {_MOST}, got {limit!r}"
        raise ValueError(msg)
    ids = _matching(store, words, limit)
    with reading(store) as connection:
        asks = read_asks(connection, store.namespace, trace_ids=ids, with_tests=True)
    found = [
        FoundTrace(ask.trace_id, ask.question, ask.answer, ask.created_at, _lines(ask.said))
        for ask in asks
    ]
    return found[::-1]


def _matching(store: "FeedbackStore", words: Sequence[str], limit: int) -> list[str]:
    found = and_(*map(_has, words))
    if len(words) == 1 and len(words[0]) >= _LEAST_OF_ID:
        found = found | traces.c.trace_id.istartswith(words[0], autoescape=True)
    statement = (
        select(traces.c.trace_id)
        .join(questions, questions.c.question_id == traces.c.question_id)
        .where(traces.c.namespace == store.namespace, found)
        .order_by(traces.c.created_at.desc(), traces.c.trace_id.desc())
        .limit(limit)
    )
    with reading(store) as connection:
        return list(connection.execute(statement).scalars())


def _has(word: str) -> ColumnElement[bool]:
    said = exists().where(
        signals.c.trace_id == traces.c.trace_id,
        signals.c.namespace == traces.c.namespace,
        signals.c.retracted_at.is_(None),
        signals.c.state.is_(None),
        or_(*(_holds(column, word) for column in (signals.c.comment, signals.c.correction))),
    )
    return or_(_holds(questions.c.text, word), _holds(traces.c.answer, word), said)


def _holds(column: ColumnElement[str | None], word: str) -> ColumnElement[bool]:
    return column.icontains(word, autoescape=True)


def _lines(said: Sequence[Said]) -> tuple[str, ...]:
    return tuple(
        ": ".join(part for part in (one.signal, one.comment or one.correction) if part)
        for one in said
    )
