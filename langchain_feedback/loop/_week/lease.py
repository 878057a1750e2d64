"""The lease of a run, renewed by a thread of its own while the steps work."""

import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_feedback.errors import LoopBusyError, StoreError
from langchain_feedback.store.loop_runs import (
    LoopRun,
    claim_run,
    finish_run,
    note_step,
    read_runs,
    release_run,
    renew_run,
)
from langchain_feedback.store.transactions import clock, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Lease", "leased"]

_BEATS = 3
"""How often a lease is renewed within its time."""


@dataclass
class Lease:
    """A run that is this process's until it ends, or until somebody else takes it."""

    store: "FeedbackStore"
    run: LoopRun
    length: timedelta
    _ended: threading.Event = field(default_factory=threading.Event)

    def renew(self) -> None:
        """Keep the lease for its length from now.

        Raises:
            LoopBusyError: If another process has it: this one was away for too long.
        """
        with writing(self.store, lock="traces", durable=False) as (connection, _):
            until = clock(self.store, connection) + self.length
            kept = renew_run(connection, self.run, until=until)
        self._check(kept=kept)

    def note(self, step: str, report: Mapping[str, Any]) -> None:
        """Keep what a step did: it is not done again.

        Raises:
            LoopBusyError: As for `renew`.
        """
        with writing(self.store, lock="traces") as (connection, _):
            until = clock(self.store, connection) + self.length
            kept = note_step(connection, self.run, step, report, until=until)
        self._check(kept=kept)

    def finish(self, state: str) -> LoopRun:
        """End the run, and return it.

        Raises:
            LoopBusyError: As for `renew`.
        """
        with writing(self.store, lock="traces") as (connection, _):
            now = clock(self.store, connection)
            kept = finish_run(connection, self.run, state, now=now)
            [run] = read_runs(connection, self.run.namespace, run_id=self.run.run_id)
        self._check(kept=kept)
        return run

    def beat(self) -> None:
        """Renew the lease until the end of the run, or until it is lost."""
        while not self._ended.wait(self.length.total_seconds() / _BEATS):
            try:
                self.renew()
            except StoreError:
                continue  # it may be back before the lease runs out
            except LoopBusyError:
                return  # the next step finds out, too

    def stop(self) -> None:
        """Renew it no more."""
        self._ended.set()

    def release(self) -> None:
        """Leave what is not finished to the next run, at once."""
        # Where the store is away, the lease runs out by itself.
        with suppress(StoreError), writing(self.store, lock="traces") as (connection, _):
            release_run(connection, self.run, now=clock(self.store, connection))

    def _check(self, *, kept: bool) -> None:
        if not kept:
            msg = (
                f"The run {self.run.run_id} was taken over by another process, since this one "
                "did not renew its lease in time."
            )
            raise LoopBusyError(msg)


@contextmanager
def leased(
    store: "FeedbackStore",
    *,
    asked: Sequence[str],
    options: str,
    promotes: bool,
    length: timedelta,
) -> Iterator[Lease]:
    """Hold the lease of the store's namespace; at the end it is free for the next one.

    Raises:
        LoopBusyError: If another process has it.
        StoreError: If the database cannot be written.
    """
    with writing(store) as (connection, _):
        now = clock(store, connection)
        run = claim_run(
            connection, store.namespace, holder=_name(), asked=asked, options=options,
            promotes=promotes, now=now, until=now + length,
        )  # fmt: skip
        if run is None:
            raise LoopBusyError(_busy(read_runs(connection, store.namespace), store.namespace))
    lease = Lease(store, run, length)
    heart = threading.Thread(target=lease.beat, name="langchain-feedback-lease", daemon=True)
    heart.start()
    try:
        yield lease
    finally:
        lease.stop()
        heart.join()  # it could renew what is given back
        lease.release()


def _name() -> str:
    # Unlike any other claim's, so that a late process cannot mistake it for its own.
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


def _busy(runs: Sequence[LoopRun], namespace: str) -> str:
    holder, _, _ = next(run.holder for run in runs if run.state == "running").rpartition(":")
    return (
        f"The loop of namespace {namespace!r} is running in another process ({holder}). Its "
        "lease ends soon after it does."
    )
