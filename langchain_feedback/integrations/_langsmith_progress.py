"""How far the mirror has come: kept in the store, by one process at a time."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self
from uuid import uuid4

from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Bookmark", "LostError", "Progress"]

_LEASE_S = 600
"""Longer than the client's longest call, with its own repeats."""
_RENEW_S = 20
_OVERLAP = timedelta(minutes=1)
"""How far the clocks of machines that retract may be apart."""


class LostError(Exception):
    """Another process took over."""


@dataclass
class Progress:
    """Which signals are done with."""

    seq: int = 0
    """All up to here have been tried."""
    waiting: dict[int, float] = field(default_factory=dict)
    """Those that are to be tried again, and when (POSIX time)."""
    retracted: str = ""
    """Retractions up to here were seen (ISO 8601)."""
    seen: dict[int, str] = field(default_factory=dict)
    """Those of them that are read again, since clocks differ."""
    holder: str = ""
    until: float = 0
    """Until when its holder alone goes on from here (POSIX time)."""

    @classmethod
    def read(cls, noted: str | None) -> Self:
        """Read what was noted; at first, what was retracted before was never sent."""
        if noted is None:
            return cls(retracted=datetime.now(UTC).isoformat())
        found = json.loads(noted)
        for name in ("waiting", "seen"):
            found[name] = {int(seq): of for seq, of in found[name].items()}
        return cls(**found)

    @property
    def retracted_since(self) -> datetime:
        """From when on retractions are read."""
        return datetime.fromisoformat(self.retracted) - _OVERLAP

    def pass_over(self, seq: int, retracted_at: datetime) -> None:
        """Note a retraction that is done with before it is come to."""
        if retracted_at >= self.retracted_since:
            self.seen[seq] = retracted_at.isoformat()

    def see(self, seq: int, retracted_at: datetime) -> None:
        """Note a retraction, and forget those that are not read again."""
        self.seen[seq] = retracted_at.isoformat()
        self.retracted = max(self.retracted, retracted_at.isoformat(), key=datetime.fromisoformat)
        since = self.retracted_since
        self.seen = {
            of: when for of, when in self.seen.items() if datetime.fromisoformat(when) >= since
        }


class Bookmark:
    """The progress of one mirror in the store."""

    def __init__(self, store: FeedbackStore, name: str) -> None:
        self._store, self._name = store, name
        self._me, self._saved_at = str(uuid4()), 0.0
        self._noted: str | None = None

    @contextmanager
    def held(self) -> Iterator[Progress | None]:
        """Go on from where anybody stopped; None: somebody else is at it.

        Raises:
            LostError: If another process took over, since this one seemed to be gone.
        """
        self._noted = self._store.bookmark(self._name)
        progress = Progress.read(self._noted)
        if progress.holder not in ("", self._me) and progress.until > time.time():
            yield None
            return
        try:
            self.save(progress)
        except LostError:
            yield None
            return
        try:
            yield progress
        finally:
            self._save(progress, "", 0)

    def save(self, progress: Progress) -> None:
        """Keep it."""
        self._save(progress, self._me, time.time() + _LEASE_S)

    def renew(self, progress: Progress) -> None:
        """Keep it, unless that was just done."""
        if time.monotonic() - self._saved_at > _RENEW_S:
            self.save(progress)

    def _save(self, progress: Progress, holder: str, until: float) -> None:
        progress.holder, progress.until = holder, until
        value = json.dumps(asdict(progress))
        if not self._store.move_bookmark(self._name, value, expected=self._noted):
            msg = f"Another process goes on with {self._name!r}"
            raise LostError(msg)
        self._noted, self._saved_at = value, time.monotonic()
