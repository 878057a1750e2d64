"""The fold-back run: what people said since, what became of the sources, what is to change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langchain_core.documents import Document
from sqlalchemy import Connection

from langchain_feedback.index._foldback.changes import after, changes_of
from langchain_feedback.index._foldback.lookup import question_document
from langchain_feedback.index._foldback.mining import proposals
from langchain_feedback.index._foldback.plan import Facts, Plan, Rules, digest_of
from langchain_feedback.index._foldback.resolving import Said, ask_index, doubted_in, judged
from langchain_feedback.index._foldback.writing import carry_out
from langchain_feedback.index.errors import PlanChangedError
from langchain_feedback.index.writer import IndexWriter, SavedFolder
from langchain_feedback.retrievers._reach import Resolve
from langchain_feedback.store.derived_rows import (
    Derived,
    Source,
    Standing,
    read_derived,
    standing_of,
)
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Applied", "Job"]

_CHANGED = "Votes or sources changed since it was planned. Plan again, and review that."


@dataclass(frozen=True)
class Applied:
    """What a run did."""

    run_id: str
    """Empty where there was nothing to do."""
    digest: str
    """Of the plan that it carried out."""
    counts: dict[str, int]
    """How many entries of each kind of change."""
    written: int
    """Questions that were put into the index."""
    removed: int


@dataclass(frozen=True)
class Job:
    """Plans and applies; see `FoldBack`."""

    store: "FeedbackStore"
    writer: IndexWriter
    """Of the index of accepted questions."""
    rules: Rules
    resolve: Resolve | None
    id_field: str | None

    def plan(self) -> Plan:
        """Return what a run would change; nothing is written."""
        with reading(self.store) as connection:
            facts = self._facts(connection)
        # Outside of the transaction: the index may take its time.
        said = ask_index(self.resolve, facts.standing, facts.doubted, self.id_field)
        changes = tuple(changes_of(_with(facts, said), self.rules))
        entries = {entry.derived_id: entry for entry in facts.entries}
        entries |= {change.entry.derived_id: change.entry for change in changes}
        index = self.writer.plan(_documents(entries.values()))
        return Plan(changes, index, digest_of(changes, index), said)

    def apply(self, plan: Plan | str) -> Applied:
        """Carry out a plan, and nothing else; an empty one writes nothing."""
        if isinstance(plan, str):
            wanted, plan = plan, self.plan()
            if plan.digest != wanted:
                msg = f"The plan would now be another one ({plan}). Look again, and review that."
                raise PlanChangedError(msg)
        run_id = self._changed(plan) if plan.changes else ""
        # Every removal is an entry that went, and no loader can lose one.
        done = self.writer.apply(plan.index, force=True)
        run_id = run_id or done.run_id
        return Applied(run_id, plan.digest, plan.counts, done.written, done.removed)

    def check(self) -> None:
        """Look whether the index of questions could be saved: before anything is changed.

        Raises:
            IndexBusyError: If another process saved it since it was loaded here.
        """
        folder = getattr(self.writer.persist, "__self__", None)
        if isinstance(folder, SavedFolder):
            folder.check()

    def seen(self, derived_id: str) -> list[Document]:
        """Return the sources of an entry that the index has and the catalog has otherwise."""
        with reading(self.store) as connection:
            entries = read_derived(connection, self.store.namespace, ids=[derived_id])
            sources = {source for entry in entries for source in entry.sources}
            standing = standing_of(connection, self.store.namespace, sources)
            doubted = self._doubted(connection, standing)
        asked = {source: standing[source] for source in sorted(doubted)}
        return list(ask_index(self.resolve, asked, doubted, self.id_field).held.values())

    def write(self) -> list[Derived]:
        """Bring the index to what the entries say, and return them."""
        with reading(self.store) as connection:
            entries = read_derived(connection, self.store.namespace)
        self.writer.apply(self.writer.plan(_documents(entries)), force=True)
        return entries

    def _changed(self, plan: Plan) -> str:
        # Others vote and ask while what people said is read again.
        with reading(self.store) as connection:
            facts = self._facts(connection, plan)
        if not facts.doubted <= plan.said.doubted:
            # Of these the index has not been asked.
            raise PlanChangedError(_CHANGED)
        looked = _with(facts, plan.said)
        named = {change.entry.derived_id for change in plan.changes}
        # What else has come up since is for the next run.
        changes = [one for one in changes_of(looked, self.rules) if one.entry.derived_id in named]
        if digest_of(changes, plan.index) != plan.digest:
            raise PlanChangedError(_CHANGED)
        with writing(self.store) as (connection, _):
            namespace, now = self.store.namespace, clock(self.store, connection)
            entries = read_derived(connection, namespace, ids=sorted(named))
            standing = standing_of(connection, namespace, facts.standing)
            states = _states(standing), self._doubted(connection, standing)
            if entries != facts.entries or states != (_states(facts.standing), facts.doubted):
                raise PlanChangedError(_CHANGED)
            return carry_out(
                connection, namespace, changes,
                entries=[after(one, now, self.rules) for one in changes],
                before={one.derived_id: one for one in entries},
                standing=looked.standing, now=now, digest=plan.digest,
            )  # fmt: skip

    def _facts(self, connection: Connection, plan: Plan | None = None) -> Facts:
        """Return what is known; with a plan, of what it names."""
        namespace, ids, asked = self.store.namespace, None, None
        if plan is not None:
            ids = [change.entry.derived_id for change in plan.changes]
            of = (change.entry.question_id for change in plan.changes)
            asked = {question_id for question_id in of if question_id is not None}
        entries = read_derived(connection, namespace, ids=ids)
        offered = proposals(connection, namespace, question_ids=asked)
        sources = {source for entry in entries for source in entry.sources}
        sources |= {source for one in offered for source in one.sources}
        standing = standing_of(connection, namespace, sources)
        doubted = self._doubted(connection, standing)
        return Facts(clock(self.store, connection), entries, offered, standing, doubted)

    def _doubted(
        self, connection: Connection, standing: Mapping[Source, Standing]
    ) -> frozenset[Source]:
        # Where the index cannot be asked, the catalog is all that there is.
        if self.resolve is None:
            return frozenset()
        return doubted_in(connection, self.store.namespace, standing)


def _with(facts: Facts, said: Said) -> Facts:
    return replace(facts, standing=judged(facts.standing, facts.doubted, said, facts.now))


def _states(standing: Mapping[Source, Standing]) -> dict[Source, str]:
    return {source: one.state for source, one in standing.items()}


def _documents(entries: Iterable[Derived]) -> list[Document]:
    served = (one for one in entries if one.status == "active" and one.question)
    return [question_document(one) for one in served]
