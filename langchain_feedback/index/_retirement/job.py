"""The retirement run: what is hidden and removed, in which order, by one process at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_feedback.index._jobs.lease import JobBusyError, JobLease
from langchain_feedback.index._retirement.audit import (
    Restored,
    Retired,
    allow_restored,
    begin_run,
    finish_run,
    note_actions,
    note_restored,
    set_status,
)
from langchain_feedback.index._retirement.facts import Found, known_chunks
from langchain_feedback.index._retirement.index import (
    Present,
    as_candidate,
    as_sibling,
    present,
    put_back,
    to_undo,
)
from langchain_feedback.index._retirement.plan import Candidate, Facts, RetirementPlan, planned
from langchain_feedback.index._retirement.rules import RetirementRules
from langchain_feedback.index.errors import IndexBusyError, PlanChangedError
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from langchain_feedback.index.writer import IndexWriter
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """Plans, applies and takes back; see `Retirement`."""

    store: "FeedbackStore"
    writer: "IndexWriter"
    rules: RetirementRules

    def plan(self) -> tuple[RetirementPlan, Present]:
        """Return what a run would do, and what the index holds of it; nothing is written."""
        with reading(self.store) as connection:
            now, found = self._found(connection)
        # Outside of any transaction: the index may take its time.
        there = present(self.writer, [*found.candidates, *found.siblings])
        return self._planned(now, found, there), there

    def apply(self, digest: str, actor: str) -> Retired:
        """Carry out the plan of a digest, if it is still the plan."""
        current, there = self.plan()
        _check(current, digest)
        if not current:
            return Retired("", digest)
        with self._alone() as lease:
            run_id = self._demote(current, there, actor)
            try:
                lease.check()
                self._remove(current.remove)
            except Exception:
                self._finish(run_id, "failed")
                raise
            self._finish(run_id, "done", current.remove)
        return Retired(
            run_id,
            digest,
            tuple(one.chunk_id for one in current.demote),
            tuple(one.chunk_id for one in current.remove),
        )

    def restore(self, name: str, actor: str) -> Restored:
        """Bring back what an action or a run took away."""
        with reading(self.store) as connection:
            undone = to_undo(connection, self.store.namespace, name)
        documents = {one.before["id"]: one.document for one in undone}
        if not documents:
            return Restored("", ())
        put_back(self.writer, documents)
        with writing(self.store) as (connection, _):
            now, namespace = clock(self.store, connection), self.store.namespace
            back = {one.target: one.before["content_hash"] for one in undone}
            run_id = begin_run(
                connection, namespace, now, digest=None, counts={"restore": len(back)}
            )
            note_restored(connection, run_id, undone, actor, now)
            set_status(connection, namespace, back, "live")
            allow_restored(connection, namespace, undone, actor, now)
            finish_run(connection, run_id, "done", now)
        return Restored(run_id, tuple(sorted(back)))

    def _planned(self, now: "datetime", found: Found, there: Present) -> RetirementPlan:
        facts = Facts(
            now,
            found.chunks,
            [as_candidate(one, there, self.rules) for one in found.candidates],
            [as_sibling(one, there) for one in found.siblings],
        )
        return planned(self.writer.ledger.name, self.store.namespace, facts, self.rules)

    def _found(
        self, connection: "Connection", only: Sequence[str] | None = None
    ) -> tuple["datetime", Found]:
        now = clock(self.store, connection)
        return now, known_chunks(connection, self.store.namespace, self.rules, now, only)

    @contextmanager
    def _alone(self) -> Iterator[JobLease]:
        """Keep others from doing the same: the record would say that both of them did it."""
        try:
            with JobLease(self.store, f"retire {self.writer.ledger.name}") as lease:
                yield lease
        except JobBusyError as error:
            raise IndexBusyError(str(error)) from error

    def _demote(self, plan: RetirementPlan, there: Present, actor: str) -> str:
        """Write down all that the plan takes away, and hide what it hides; return the run."""
        with writing(self.store) as (connection, _):
            # Votes and pins that came in between count. Others than these chunks need no look:
            # what is held or waits takes nothing from a source.
            named = [one.chunk_id for one in (*plan.demote, *plan.remove)]
            now, found = self._found(connection, named)
            _check(self._planned(now, found, there), plan.digest)
            namespace = self.store.namespace
            run_id = begin_run(connection, namespace, now, digest=plan.digest, counts=plan.counts)
            note_actions(connection, run_id, plan, actor, now)
            hidden = {one.chunk_id: one.content_hash for one in plan.demote}
            set_status(connection, namespace, hidden, "demoted")
        return run_id

    def _remove(self, chunks: Sequence[Candidate]) -> None:
        if chunks:
            removal = self.writer.plan_removal(one.index_id for one in chunks)
            # How much may go at once was limited when it was hidden, and is again by the plan.
            self.writer.apply(removal, force=True)

    def _finish(self, run_id: str, status: str, removed: Sequence[Candidate] = ()) -> None:
        with writing(self.store) as (connection, _):
            gone = {one.chunk_id: one.content_hash for one in removed}
            set_status(connection, self.store.namespace, gone, "retired")
            finish_run(connection, run_id, status, clock(self.store, connection))


def _check(plan: RetirementPlan, digest: str) -> None:
    if plan.digest != digest:
        msg = (
            f"What would be done now is not the plan {digest[:12]!r}: {plan}. Plan again, and"
            " review that."
        )
        raise PlanChangedError(msg)
