"""The answer never waits for the store: a deadline for reads, a queue for writes."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, Self, TypeVar

from langchain_feedback.errors import StoreError, StoreRejectedError

__all__ = ["Deadline", "Outbox", "StoreTimeoutError", "Write"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

_AT_ONCE = 8
_KEPT = 1_000
_FOR_GOOD = (LookupError, StoreRejectedError)
_IDLE_S = 30


class StoreTimeoutError(StoreError):
    """The store did not answer in time."""


class Deadline:
    """Runs work beside the caller and stops waiting for it in time.

    Work that hangs goes on in a daemon thread, and at most `_AT_ONCE` such threads exist:
    while all of them hang, further work is given up when its own time is over.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._start_afresh()

    def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns, and raise what it raises.

        Raises:
            StoreTimeoutError: If it takes too long.
        """
        job = _Job(work)
        with self._lock:
            if os.getpid() != self._pid:
                # A forked process has none of its parent's threads.
                self._start_afresh()
            self._jobs.put(job)
            self._idle -= 1
            if self._idle < 0 and self._threads < _AT_ONCE:
                self._threads += 1
                threading.Thread(target=self._work_off, args=(self._jobs,), daemon=True).start()
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

    def _start_afresh(self) -> None:
        self._pid, self._threads = os.getpid(), 0
        self._running: set[_Job[Any]] = set()
        self._idle = 0
        """Threads that wait for a job, less the jobs that wait for a thread."""
        self._jobs: SimpleQueue[_Job[Any]] = SimpleQueue()

    def _work_off(self, jobs: "SimpleQueue[_Job[Any]]") -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                job = jobs.get(timeout=_IDLE_S)
            except Empty:
                with self._lock:
                    if jobs.empty():
                        self._idle, self._threads = self._idle - 1, self._threads - 1
                        return
                    self._idle -= 1
                continue
            self._running.add(job)
            job.run()
            self._running.discard(job)


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
    """What did not go through at once: tried again, in order, with the next call.

    Args:
        write: Writes one thing in a transaction, or raises.
        deadline: Bounds one attempt.
    """

    def __init__(self, write: Callable[[Any], None], deadline: Deadline) -> None:
        self._write, self._deadline = write, deadline
        self._waiting: deque[Write] = deque()
        self._lock = threading.Lock()

    def send(self, new: Write) -> Exception | None:
        """Write something, and whatever waits; on a failure keep it and return the error."""
        writes, done = [*self._take(), new], [0]
        try:
            self._deadline.run(lambda: self._write_all(writes, done))
        except Exception as error:  # noqa: BLE001  the answer goes out all the same
            self._keep([*writes[done[0] : -1], new.own()])
            return error
        return None

    def flush(self, trace_id: str | None = None) -> None:
        """Write what waits, however long it takes; with an id only if that trace is among it.

        Raises:
            StoreError: If it cannot be written. It goes on waiting.
        """
        with self._lock:
            if trace_id and all(write.trace_id != trace_id for write in self._waiting):
                return
        writes, done = self._take(), [0]
        try:
            self._write_all(writes, done)
        except BaseException:
            self._keep(writes[done[0] :])
            raise

    def __len__(self) -> int:
        return len(self._waiting)

    def _write_all(self, writes: Sequence[Write], done: list[int]) -> None:
        for write in writes:
            try:
                self._write(write)
            except Exception as error:
                if isinstance(error, StoreError) and not isinstance(error, _FOR_GOOD):
                    raise
                # It would wait for ever, and everything behind it.
                logger.warning("Trace %s was not kept: %s", write.trace_id, error)
            done[0] += 1

    def _take(self) -> list[Write]:
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        return waiting

    def _keep(self, writes: Sequence[Write]) -> None:
        with self._lock:
            self._waiting.extend(writes)
            lost = max(0, len(self._waiting) - _KEPT)
            for _ in range(lost):
                self._waiting.popleft()
        if lost:
            logger.error("%d writes were lost: the feedback store is away for too long.", lost)
