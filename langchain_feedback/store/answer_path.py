"""The answer never waits for the store: a deadline for reads, a queue for writes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, Self, TypeVar

from langchain_feedback.errors import StoreError, StoreRejectedError, TraceReusedError
from langchain_feedback.store.forks import renew_after_fork

__all__ = ["Deadline", "Outbox", "StoreTimeoutError", "Write"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

_AT_ONCE = 8
_KEPT = 1_000
_FOR_GOOD = (LookupError, StoreRejectedError, TraceReusedError)
_IDLE_S = 30
_TURN_S = 30


class StoreTimeoutError(StoreError):
    """The store did not answer in time."""


class Deadline:
    """Runs work beside the caller and stops waiting for it in time.

    Work that hangs goes on in a daemon thread, and at most `_AT_ONCE` such threads exist:
    while all of them hang, further work is given up when its own time is over.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.after_fork()
        renew_after_fork(self)

    def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns, and raise what it raises.

        Raises:
            StoreTimeoutError: If it takes too long.
        """
        job = _Job(work)
        with self._lock:
            self._jobs.put(job)
            self._idle -= 1
            if self._idle < 0 and self._threads < _AT_ONCE:
                threading.Thread(target=self._work_off, args=(self._jobs,), daemon=True).start()
                self._threads += 1
        if job.done.wait(self.seconds):
            return job.result()
        job.given_up = True
        msg = f"The feedback store did not answer within {self.seconds} s"
        raise StoreTimeoutError(msg)

    def settle(self, seconds: float) -> None:
        """Wait for work that goes on although nobody waits for it any more."""
        until = time.monotonic() + seconds
        for job in list(self._running):
            job.done.wait(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Let the threads end. Later work gets new ones."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
            self._renew()

    def after_fork(self) -> None:
        """Start without threads, and with a lock that nobody holds."""
        self._lock = threading.Lock()
        self._renew()

    def _renew(self) -> None:
        self._threads = 0
        self._idle = 0
        """Threads that wait for a job, less the jobs that wait for a thread."""
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._running: set[_Job[Any]] = set()

    def _work_off(self, jobs: "SimpleQueue[_Job[Any] | None]") -> None:
        while True:
            with self._lock:
                if jobs is self._jobs:
                    self._idle += 1
            try:
                job = jobs.get(timeout=_IDLE_S)
            except Empty:
                if self._may_end(jobs):
                    return
                continue
            if job is None:
                return
            self._running.add(job)
            job.run()
            self._running.discard(job)
            # A thread that waits for its next job keeps nothing of the last one alive.
            del job

    def _may_end(self, jobs: "SimpleQueue[_Job[Any] | None]") -> bool:
        with self._lock:
            if jobs is not self._jobs:
                return True
            self._idle -= 1
            if jobs.empty():
                self._threads -= 1
                return True
            return False


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self.done = threading.Event()
        self.given_up = False
        self._work = work
        self._value: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        if self.given_up:
            return
        try:
            self._value.append(self._work())
        except BaseException as error:  # noqa: BLE001  the caller raises it
            self._error = error
        finally:
            self.done.set()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value[0]


class Write(Protocol):
    """Something about a trace that is to be written. Writing it twice changes nothing."""

    @property
    def trace_id(self) -> str:
        """Which trace it is about."""

    def own(self) -> Self:
        """Return a copy that nobody else can change while it waits."""


class Outbox:
    """Writes in order, one at a time; what did not go through is tried with the next call.

    Args:
        write: Writes one thing in a transaction, or raises.
        deadline: Bounds one attempt.
    """

    def __init__(self, write: Callable[[Any], None], deadline: Deadline) -> None:
        self._write, self._deadline = write, deadline
        self._waiting: deque[_Entry] = deque()
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Use locks that nobody holds; what waits is the parent's to write, too: it may."""
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def send(self, new: Write) -> Exception | None:
        """Write something, and whatever waits; on a failure keep it and return the error."""
        entry = _Entry(new)
        with self._lock:
            self._waiting.append(entry)
            lost = len(self._waiting) - _KEPT
            for _ in range(lost):
                self._waiting.popleft()
        if lost > 0:
            logger.error("%d writes were lost: the feedback store is away for too long.", lost)
        try:
            self._deadline.run(self.flush)
        except Exception as error:  # noqa: BLE001  the answer goes out all the same
            entry.write = new.own()
            return error
        return None

    def flush(self, trace_id: str | None = None) -> None:
        """Write what waits, however long it takes; with an id only if that trace is among it.

        Raises:
            StoreError: If it cannot be written. It goes on waiting.
        """
        with self._lock:
            if trace_id and all(entry.write.trace_id != trace_id for entry in self._waiting):
                return
        if not self._turn.acquire(timeout=_TURN_S):
            msg = f"The feedback store did not take earlier writes within {_TURN_S} s"
            raise StoreTimeoutError(msg)
        try:
            while self._waiting:
                entry = self._waiting[0]
                self._write_one(entry.write)
                with self._lock:
                    if self._waiting and self._waiting[0] is entry:
                        self._waiting.popleft()
        finally:
            self._turn.release()

    def __len__(self) -> int:
        return len(self._waiting)

    def _write_one(self, write: Write) -> None:
        try:
            self._write(write)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, _FOR_GOOD):
                raise
            # It would wait for ever, and everything behind it.
            logger.warning("Trace %s was not kept: %s", write.trace_id, error)


class _Entry:
    def __init__(self, write: Write) -> None:
        self.write = write
