"""Follow the registry: which version a request is answered from, opened once."""

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from langchain_feedback.index._versions.base import OpenVersion
from langchain_feedback.index._versions.checks import EmbeddingsOf, check_embedder
from langchain_feedback.index._versions.rows import IndexVersion
from langchain_feedback.index.errors import NoActiveVersionError
from langchain_feedback.index.versions import IndexRegistry
from langchain_feedback.store.forks import renew_after_fork

__all__ = ["Follower", "Opened"]

logger = logging.getLogger(__name__)

_AGAIN_S = 30.0
"""How long a version that could not be opened is left alone."""
_REQUEST_S = 300.0
"""How long a request may go on searching in the version that it began with."""
_REQUESTS = 1_000
_FAILED = object()


@dataclass(frozen=True)
class Opened:
    """A version that can be searched."""

    version: IndexVersion
    retriever: Any


class Follower:
    """Keeps the active version open.

    One thread at a time looks at the registry and opens what is new; meanwhile the others go on
    with what is open. What is open no longer is closed by the garbage collector, when the last
    request that uses it has ended.

    Args:
        registry: Which version is active.
        open_version: Opens one.
        check_every: After how many seconds the registry is looked at again; at least 0.
        embedder_of: Returns the embedder of what was opened; None: that of its vector store.
    """

    def __init__(
        self,
        registry: IndexRegistry,
        open_version: OpenVersion,
        check_every: float,
        embedder_of: EmbeddingsOf | None,
    ) -> None:
        self._registry, self._open_version = registry, open_version
        self._check_every, self._embedder_of = check_every, embedder_of
        self._opened: Opened | None = None
        self._looked_at = float("-inf")
        self._failed: tuple[Any, float] | None = None
        self._said: set[Any] = set()
        self._requests: OrderedDict[str, tuple[Opened, float]] = OrderedDict()
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Use locks that nobody holds."""
        self._turn, self._lock = threading.Lock(), threading.Lock()

    @property
    def is_fresh(self) -> bool:
        """Whether `current` answers at once, without looking at the registry."""
        held = self._opened is not None
        return held and time.monotonic() - self._looked_at < self._check_every

    def current(self) -> Opened:
        """Return the version to search; opens it where it is new.

        Raises:
            NoActiveVersionError: If none is active, and none was.
            VersionError: If the first one cannot be opened: see `check_embedder`; or what
                `open_version` raises.
            StoreError: If the registry cannot be read, and nothing is open yet.
        """
        if self.is_fresh and self._opened is not None:
            return self._opened
        # Where nothing is open yet, all wait for the one who opens it.
        if not self._turn.acquire(blocking=self._opened is None) and self._opened is not None:
            return self._opened
        try:
            if not self.is_fresh:
                self._look()
            return self._opened  # type: ignore[return-value]  # `_look` opened it or raised
        finally:
            self._turn.release()

    def held(self) -> Opened | None:
        """Return what is open, or open it, but never on an event loop."""
        if self._opened is None and not _on_event_loop():
            return self.current()
        return self._opened

    def of_request(self, request: str | None) -> Opened:
        """Return the version that a request began with: of another search, the same one.

        Args:
            request: Its trace id; None: it has one search.

        Raises:
            NoActiveVersionError: As `current`, and what else that raises.
        """
        return self.at_once(request) or self.began(request, self.current())

    def at_once(self, request: str | None) -> Opened | None:
        """Do as `of_request`, but look at nothing and open nothing: None where that is needed."""
        with self._lock:
            self._forget(time.monotonic())
            known = self._requests.get(request or "")
        if known is not None:
            return known[0]
        opened = self._opened if self.is_fresh else None
        return None if opened is None else self.began(request, opened)

    def began(self, request: str | None, opened: Opened) -> Opened:
        """Note in which version a request searches first; return it, or who was faster.

        Args:
            request: Its trace id; None: it has one search.
            opened: The version.
        """
        if request is None:
            return opened
        with self._lock:
            # Of two searches of one request that begin at once, both take the first one's.
            mine = opened, time.monotonic() + _REQUEST_S
            return self._requests.setdefault(request, mine)[0]

    def _forget(self, now: float) -> None:
        while self._requests:
            oldest = next(iter(self._requests))
            if len(self._requests) < _REQUESTS and self._requests[oldest][1] > now:
                break
            del self._requests[oldest]

    def _look(self) -> None:
        now = time.monotonic()
        active = self._active()
        if active is not None and not self._is_open(active) and not self._was_tried(active, now):
            self._open(active, now)
        # Noted last: what takes long to open is not looked for at once again.
        self._looked_at = time.monotonic()

    def _active(self) -> IndexVersion | None:
        if self._opened is not None:
            # The answer does not wait for the store, nor fail with it.
            found: Any = self._registry.store.try_read(self._registry.active, _FAILED)
            if found is None:
                self._say("none", "No version is active any more: the one that was open goes on.")
            return self._opened.version if found is _FAILED else found
        active = self._registry.active()
        if active is None:
            msg = (
                f"No version of the index is active in namespace "
                f"{self._registry.store.namespace!r}. Activate one: `registry.activate`."
            )
            raise NoActiveVersionError(msg)
        return active

    def _is_open(self, active: IndexVersion) -> bool:
        return self._opened is not None and self._opened.version.key == active.key

    def _was_tried(self, active: IndexVersion, now: float) -> bool:
        if self._failed is None or self._opened is None:
            return False
        tried, at = self._failed
        # An activation after the failure is a reason to try at once.
        return bool(tried == (active.key, active.activated_at)) and now - at < _AGAIN_S

    def _open(self, active: IndexVersion, now: float) -> None:
        try:
            retriever = self._open_version(active)
            check_embedder(active.embedder, retriever, self._embedder_of)
        except Exception as error:
            if self._opened is None:
                raise
            self._failed = (active.key, active.activated_at), now
            self._say(
                active.key,
                "Version %r cannot be opened, so %r goes on: %r",
                active.version,
                self._opened.version.version,
                error,
            )
        else:
            self._opened, self._failed = Opened(active, retriever), None

    def _say(self, topic: Any, message: str, *arguments: Any) -> None:
        if topic not in self._said:
            self._said.add(topic)
            logger.warning(message, *arguments)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
