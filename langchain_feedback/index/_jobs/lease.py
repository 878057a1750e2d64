"""Who does a job, and which share of it: leases in the store, and shards by source."""

import hashlib
import logging
import threading
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from sqlalchemy import delete, update

from langchain_feedback.errors import LangChainFeedbackError
from langchain_feedback.store.care_schema import job_leases
from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.transactions import clock, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["JobBusyError", "JobLease", "Shard"]

logger = logging.getLogger(__name__)


class JobBusyError(LangChainFeedbackError):
    """Another process does the job, or took it over."""


@dataclass(frozen=True)
class Shard:
    """One of n shares of a corpus: all chunks of a source are in the same one.

    The share of a source depends on its name alone (SHA-256), so that any scheduler may run the
    n shares anywhere, in any order, again and again.

    Raises:
        ValueError: If the number is not from 1 to `of`.

    Example:
        >>> shards = [Shard(number, 3) for number in (1, 2, 3)]
        >>> [shard.holds("faq.md") for shard in shards].count(True)
        1
    """

    number: int = 1
    """From 1."""
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            msg = f"A shard is i/n with i from 1 to n, got {self.number}/{self.of}"
            raise ValueError(msg)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shard that a command line names.

        Raises:
            ValueError: If it is not i/n.

        Example:
            >>> print(Shard.parse("2/8"))
            2/8
        """
        number, slash, of = text.partition("/")
        if not (slash and number.strip().isdecimal() and of.strip().isdecimal()):
            msg = f"A shard is i/n, such as 2/8, got {text!r}"
            raise ValueError(msg)
        return cls(int(number), int(of))

    def holds(self, source: str) -> bool:
        """Return whether a source is in this share."""
        digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1


class JobLease:
    """Lets one process at a time do a job of a namespace, as a context manager.

    A thread prolongs it as long as the block runs, three times in its life. The one of a
    process that died ends by itself. Times are those of the clock that all processes share.

    Args:
        store: Whose database, and whose namespace.
        job: Its name. Shards are jobs of their own: `f"score {shard}"`.
        seconds: How long it lasts unless it is prolonged.

    Raises:
        ValueError: If the name is blank, or the time not above 0.
        JobBusyError: On entering, if another process has it.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> with JobLease(store, "nightly") as lease:
        ...     lease.check()
        ...     JobLease(store, "nightly").claim()
        False
    """

    def __init__(self, store: "FeedbackStore", job: str, *, seconds: float = 300) -> None:
        if not job.strip() or not seconds > 0:
            msg = f"A lease needs the name of a job and a time above 0, got {job!r}, {seconds!r}"
            raise ValueError(msg)
        self.store, self.job, self.seconds = store, job, seconds
        self.holder = uuid4().hex
        self._over = threading.Event()
        self._lost = False
        self._keeper: threading.Thread | None = None

    def claim(self) -> bool:
        """Take the lease, or prolong one's own; return whether it is ours now.

        Raises:
            StoreError: If the database cannot be written.
        """
        row = job_leases.c
        with writing(self.store, lock="traces") as (connection, _):
            now = clock(self.store, connection)
            lease = {"holder": self.holder, "expires_at": now + timedelta(seconds=self.seconds)}
            free = (row.name == self._name) & (
                (row.holder == self.holder) | (row.expires_at <= now)
            )
            if connection.execute(update(job_leases).where(free).values(**lease)).rowcount:
                return True
            return bool(insert_or_ignore(connection, job_leases, [{"name": self._name, **lease}]))

    def check(self) -> None:
        """Make sure that the job is still ours, before a step that must not be done twice.

        Raises:
            JobBusyError: If another process took it over.
            StoreError: If the database cannot be written.
        """
        if self._lost or not self.claim():
            self._lost = True
            raise JobBusyError(self._said())

    def release(self) -> None:
        """Give the lease back; one that somebody else has stays.

        Raises:
            StoreError: If the database cannot be written.
        """
        row = job_leases.c
        mine = (row.name == self._name) & (row.holder == self.holder)
        with writing(self.store, lock="traces", durable=False) as (connection, _):
            connection.execute(delete(job_leases).where(mine))

    def __enter__(self) -> Self:
        self.check()
        self._over.clear()
        self._keeper = threading.Thread(target=self._keep, name="lcf-job-lease", daemon=True)
        self._keeper.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._keeper is not None:
            self._keeper.join()
        self.release()

    def _keep(self) -> None:
        while not self._over.wait(self.seconds / 3):
            try:
                self._lost = not self.claim()
            except Exception as error:  # noqa: BLE001  the store may be back at the next turn
                logger.warning("The lease of %r was not prolonged: %s", self.job, error)
                continue
            if self._lost:
                return

    def _said(self) -> str:
        return (
            f"Another process does the job {self.job!r} of namespace {self.store.namespace!r}. "
            f"If it died, its lease ends after {self.seconds:g} s; try again then."
        )

    @property
    def _name(self) -> str:
        # Length first: no choice of namespace and job can imitate another pair.
        return f"job:{len(self.store.namespace)}:{self.store.namespace}{self.job}"
