"""Which retrieval a trace id stands for: one question asked, and its repeated searches."""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from langchain_feedback.traces import ATTEMPT_KEY, TRACE_ID_KEY, asker_of, new_trace_id

__all__ = ["RESERVED", "Asked", "Claim", "Claims", "KnownTrace", "claims_of"]

logger = logging.getLogger(__name__)

RESERVED = 0
"""The attempt of a question that begins: its id is taken, and nothing was searched yet."""

_MOST = 10_000
"""Ids that a process remembers; older ones are in the store."""

_LONGEST_ID = 200
_LAST_ATTEMPT = 1_000_000


class KnownTrace(Protocol):
    """What claims read of a trace that a store holds."""

    @property
    def question(self) -> str:
        """The question asked."""

    @property
    def actor(self) -> str | None:
        """Who asked."""

    @property
    def answer(self) -> str | None:
        """What was answered; None where nothing was yet."""

    @property
    def status(self) -> str | None:
        """How it was answered; None where it was not yet."""

    @property
    def searches(self) -> Mapping[int, str]:
        """The text that was searched for, by attempt."""


@dataclass(frozen=True)
class Asked:
    """What a run's metadata say of who asks, and under which trace id."""

    query: str
    trace_id: str | None = None
    attempt: int = 1
    actor: str | None = None
    session_id: str | None = None

    @classmethod
    def from_run(
        cls, query: str, metadata: Mapping[str, Any], *, attempt: int | None = None
    ) -> "Asked":
        """Read them.

        Args:
            query: The text that is searched for.
            metadata: The run's.
            attempt: Counts instead of the metadata's.

        Example:
            >>> Asked.from_run("How long?", {"user_id": 7, "thread_id": "chat-1"}).session_id
            'chat-1'
        """
        given = metadata.get(TRACE_ID_KEY)
        actor, session_id = asker_of(metadata)
        return cls(
            query=query,
            trace_id=None if given is None or given == "" else str(given),
            attempt=_attempt(metadata.get(ATTEMPT_KEY)) if attempt is None else attempt,
            actor=actor,
            session_id=session_id,
        )


@dataclass(eq=False)
class Claim:
    """A trace id in the hands of one retrieval."""

    trace_id: str
    attempt: int
    question: str
    """The trace's own question; the search may be for another text."""
    actor: str | None = None
    query: str = ""
    """The text that is searched for."""
    before: "Claim | None" = None
    """The attempt that it follows, where this process knows it."""


class Claims:
    """Hands each trace id to one retrieval, and to those that search again for it.

    A given id is joined by a later attempt of the same actor as long as no answer is
    recorded. Any other use of a known id gets a fresh one, and a line in the log.

    Example:
        >>> claims, nothing_known = Claims(), lambda trace_id: None
        >>> claims.claim(Asked("How long?", "t1"), nothing_known).trace_id
        't1'
        >>> claims.claim(Asked("And where?", "t1"), nothing_known).trace_id == "t1"
        False
        >>> claims.claim(Asked("Duration?", "t1", attempt=2), nothing_known).question
        'How long?'
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._held: OrderedDict[str, Claim] = OrderedDict()
        self._lock = threading.Lock()

    def claim(self, asked: Asked, read_trace: Callable[[str], KnownTrace | None]) -> Claim:
        """Return the id that a retrieval goes by.

        Args:
            asked: Who asks, and the id that came with it.
            read_trace: Returns what the store knows of an id; None also where it cannot tell.
        """
        if asked.trace_id is None:
            return _new(asked)
        if len(asked.trace_id) > _LONGEST_ID or not asked.trace_id.isprintable():
            return self._fresh(asked, "is none that can be stored")
        held = self._take(asked.trace_id, asked)
        if held is None:
            return self._fresh(asked, "was used before")
        if (record := read_trace(held.trace_id)) is None:
            return held
        if _is_closed(record, asked):
            self.release(held)
            return self._fresh(asked, "was used before")
        held.question = record.question
        return held

    def question_of(self, trace_id: str, query: str) -> str | None:
        """Return a trace's own question, if the last search under its id was for this text.

        None also where no search of this process was.
        """
        held = self.holder(trace_id)
        searched = held is not None and held.attempt != RESERVED and held.query == query
        return held.question if held and searched else None

    def holder(self, trace_id: str) -> Claim | None:
        """Return the retrieval that has an id, where this process knows it."""
        with self._lock:
            return self._held.get(trace_id)

    def release(self, claim: Claim) -> None:
        """Give an id back: its retrieval failed, and may be tried again."""
        with self._lock:
            if self._held.get(claim.trace_id) is not claim:
                return
            if claim.before is None:
                del self._held[claim.trace_id]
            else:
                self._held[claim.trace_id] = claim.before

    def after_fork(self) -> None:
        """Make the lock anew, which another thread of the parent may have held."""
        self._lock = threading.Lock()

    def _take(self, trace_id: str, asked: Asked) -> Claim | None:
        with self._lock:
            before = self._held.get(trace_id)
            if before and (asked.attempt <= before.attempt or asked.actor != before.actor):
                return None
            # A chat's follow-up is searched for by the question that it stands for.
            joins = before is not None and before.attempt != RESERVED
            question = before.question if before and joins else asked.query
            claim = Claim(trace_id, asked.attempt, question, asked.actor, asked.query, before)
            self._keep(claim)
            return claim

    def _fresh(self, asked: Asked, reason: str) -> Claim:
        claim = _new(asked)
        logger.warning(
            "The trace id %.200r %s: this retrieval goes by %s. Make one id for each question, "
            "with `new_trace_id()`, or pass none.",
            asked.trace_id,
            reason,
            claim.trace_id,
        )
        with self._lock:
            self._keep(claim)
        return claim

    def _keep(self, claim: Claim) -> None:
        self._held[claim.trace_id] = claim
        self._held.move_to_end(claim.trace_id)
        if len(self._held) > self._most:
            self._held.popitem(last=False)


_all: "WeakKeyDictionary[Any, Claims]" = WeakKeyDictionary()
_all_lock = threading.Lock()


def claims_of(store: object) -> Claims:
    """Return the claims of a store: all that share the store object share them."""
    with _all_lock:
        return _all.setdefault(store, Claims())


def _after_fork() -> None:
    global _all_lock  # noqa: PLW0603  only the forking thread lives on in the child
    _all_lock = threading.Lock()
    for claims in list(_all.values()):
        claims.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _is_closed(record: KnownTrace, asked: Asked) -> bool:
    answered = record.answer is not None or record.status is not None
    last = max(record.searches, default=0)
    return answered or asked.attempt <= last or asked.actor != record.actor


def _new(asked: Asked) -> Claim:
    # Whatever the attempt was to be: of a new trace it is the first.
    attempt = min(asked.attempt, 1)
    return Claim(new_trace_id(), attempt, asked.query, asked.actor, asked.query)


def _attempt(value: Any) -> int:
    try:
        return min(max(1, int(value)), _LAST_ATTEMPT)
    except (TypeError, ValueError, OverflowError):
        return 1
