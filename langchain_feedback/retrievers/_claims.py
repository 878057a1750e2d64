"""Which retrieval a trace id stands for: one question asked, and its repeated searches."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from langchain_feedback.store.chunks import storable
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.records import TraceRecord
from langchain_feedback.traces import ATTEMPT_KEY, TRACE_ID_KEY, new_trace_id

__all__ = ["Asked", "Claim", "Claims", "claims_of"]

logger = logging.getLogger(__name__)

_MOST = 10_000
"""Ids that a process remembers; older ones are in the store."""

_LONGEST_ID = 200
_LAST_ATTEMPT = 1_000_000


@dataclass(frozen=True)
class Asked:
    """What a run's metadata say of who asks, and under which trace id."""

    query: str
    trace_id: str | None = None
    attempt: int = 1
    actor: str | None = None
    session_id: str | None = None

    @classmethod
    def from_run(cls, query: str, metadata: Mapping[str, Any]) -> "Asked":
        """Read them.

        Example:
            >>> Asked.from_run("How long?", {"user_id": 7, "thread_id": "chat-1"}).session_id
            'chat-1'
        """
        return cls(
            query=query,
            trace_id=_given_id(metadata.get(TRACE_ID_KEY)),
            attempt=_attempt(metadata.get(ATTEMPT_KEY)),
            actor=_text(metadata.get("user_id")),
            session_id=_text(metadata.get("session_id")) or _text(metadata.get("thread_id")),
        )


@dataclass(eq=False)
class Claim:
    """A trace id in the hands of one retrieval."""

    trace_id: str
    attempt: int
    question: str
    """The trace's own question; the search may be for another text."""
    actor: str | None = None
    before: "Claim | None" = None
    """The attempt that it follows, where this process knows it."""


class Claims:
    """Hands each trace id to one retrieval, and to those that search again for it.

    A given id is joined by a later attempt of the same actor as long as no answer is
    recorded. Any other use of a known id gets a fresh one, and a line in the log.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._held: OrderedDict[str, Claim] = OrderedDict()
        self._lock = threading.Lock()

    def claim(self, asked: Asked, read_trace: Callable[[str], TraceRecord | None]) -> Claim:
        """Return the id that a retrieval goes by.

        Args:
            asked: Who asks, and the id that came with it.
            read_trace: Returns what the store knows of an id; None also where it cannot tell.
        """
        if asked.trace_id is None:
            return Claim(new_trace_id(), 1, asked.query, asked.actor)
        if len(asked.trace_id) > _LONGEST_ID or not asked.trace_id.isprintable():
            return _fresh(asked, "is none that can be stored")
        held = self._take(asked.trace_id, asked)
        if held is None:
            return _fresh(asked, "was used before")
        if (record := read_trace(held.trace_id)) is None:
            return held
        if _is_closed(record, asked):
            self.release(held)
            return _fresh(asked, "was used before")
        held.question = record.question
        return held

    def release(self, claim: Claim) -> None:
        """Give an id back: its retrieval failed, and may be tried again."""
        with self._lock:
            if self._held.get(claim.trace_id) is not claim:
                return
            if claim.before is None:
                del self._held[claim.trace_id]
            else:
                self._held[claim.trace_id] = claim.before

    def _take(self, trace_id: str, asked: Asked) -> Claim | None:
        with self._lock:
            before = self._held.get(trace_id)
            if before and (asked.attempt <= before.attempt or asked.actor != before.actor):
                return None
            question = before.question if before else asked.query
            claim = Claim(trace_id, asked.attempt, question, asked.actor, before)
            self._held[trace_id] = claim
            self._held.move_to_end(trace_id)
            if len(self._held) > self._most:
                self._held.popitem(last=False)
            return claim


_all: "WeakKeyDictionary[FeedbackStore, Claims]" = WeakKeyDictionary()
_all_lock = threading.Lock()


def claims_of(store: FeedbackStore) -> Claims:
    """Return the claims of a store: retrievers that share the store share them."""
    with _all_lock:
        return _all.setdefault(store, Claims())


def _is_closed(record: TraceRecord, asked: Asked) -> bool:
    answered = record.answer is not None or record.status is not None
    last = max(record.searches, default=0)
    return answered or asked.attempt <= last or asked.actor != record.actor


def _fresh(asked: Asked, reason: str) -> Claim:
    claim = Claim(new_trace_id(), 1, asked.query, asked.actor)
    logger.warning(
        "The trace id %.200r %s: this retrieval goes by %s. Make one id for each question, with "
        "`new_trace_id()`, or pass none.",
        asked.trace_id,
        reason,
        claim.trace_id,
    )
    return claim


def _given_id(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _text(value: Any) -> str | None:
    # A client may have sent it: nothing that a database refuses.
    return None if value is None or value == "" else storable(str(value))


def _attempt(value: Any) -> int:
    try:
        return min(max(1, int(value)), _LAST_ATTEMPT)
    except (TypeError, ValueError, OverflowError):
        return 1
