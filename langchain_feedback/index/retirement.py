"""Take chunks out of an index that are junk or that people find wrong, so that they can come back.

A chunk is hidden first, at once and at query time only, and removed from the index two weeks
later. Each step is planned before it runs, what was reviewed is what runs, and all that it
takes to bring a chunk back is written down before it is touched.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_feedback.index._gating.overrides import named
from langchain_feedback.index._retirement.audit import (
    Action,
    Restored,
    Retired,
    actions_of,
    begin_run,
)
from langchain_feedback.index._retirement.index import NotRestoredError
from langchain_feedback.index._retirement.job import Job
from langchain_feedback.index._retirement.plan import Held, RetirementPlan
from langchain_feedback.index._retirement.rules import RetirementRules
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.index.writer import IndexWriter
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "Action",
    "Held",
    "NotRestoredError",
    "Restored",
    "Retired",
    "Retirement",
    "RetirementPlan",
    "RetirementRules",
]


class Retirement:
    """Hides chunks, removes them later, and brings them back.

    A live chunk is a candidate if the gate finds its text wanting, or if at least 20 votes of
    5 people on 5 questions put the upper end of its share of good votes at .3 or below
    (Wilson, z = 2.58); and if nobody found it good for 90 days, nobody ever pinned or lately
    restored it, and it is no answer that was folded back. Of each person the newest vote
    under each question counts, and 4 against it at most. Who has no name is known by the session;
    all that have neither are one.

    Over the whole plan, each source keeps a chunk, one that the gate lets through if it has
    one, and half of its text, with what earlier runs took counted in; the rest is `held` for
    people to look at. One run hides 1 % of the chunks, or 100, and removes as many.

    What somebody allowed (`QualityGate.allow`) is no candidate for what the gate finds, and
    `restore` allows the texts that it brings back.

    Hidden is what a `QualityGate` finds `demoted` or `retired`: search through a
    `FeedbackRetriever(gate=...)` or a `QualityFilter`. Before documents are loaded into the
    index again, drop those that `QualityGate.hidden` names, or they come back.

    Args:
        store: Whose votes and chunks, in its namespace.
        writer: Of the index that the chunks are in.
        rules: The numbers.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_feedback import FeedbackStore
        >>> from langchain_feedback.index.catalog import ChunkCatalog
        >>> from langchain_feedback.index.gate import QualityGate
        >>> from langchain_feedback.index.ledger import TableLedger
        >>> from langchain_feedback.index.writer import IndexWriter
        >>> texts = ("Contents", "Refunds take 14 days.")
        >>> chunks = [Document(one, id=one[0], metadata={"source": "a.md"}) for one in texts]
        >>> store = FeedbackStore("sqlite://")
        >>> index = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        >>> writer = IndexWriter(index, TableLedger(store, "handbook"))
        >>> _ = writer.apply(writer.plan(chunks)), ChunkCatalog(store).sync(chunks)
        >>> _ = QualityGate(store).score(chunks)
        >>> retirement = Retirement(store, writer)
        >>> plan = retirement.plan()
        >>> print(plan)
        handbook: 1 demote, 0 remove, 0 waiting; digest ...
        >>> plan.demote[0].reason
        'gated: no_statement'
        >>> done = retirement.apply(plan.digest, actor="rita")
        >>> retirement.restore(done.run_id, actor="rita").chunks
        ('C',)
    """

    def __init__(
        self,
        store: "FeedbackStore",
        writer: "IndexWriter",
        *,
        rules: RetirementRules | None = None,
    ) -> None:
        self.store, self.writer = store, writer
        self.rules = rules or RetirementRules()
        self._job = Job(store, writer, self.rules)

    def plan(self) -> RetirementPlan:
        """Return what a run would do; nothing changes but that this dry run is on record.

        Raises:
            StoreError: If the store cannot be read or written.
        """
        plan, _ = self._job.plan()
        with writing(self.store, lock="traces") as (connection, _):
            run_id = begin_run(
                connection, self.store.namespace, clock(self.store, connection),
                digest=plan.digest, counts=plan.counts, dry=True,
            )  # fmt: skip
        return replace(plan, run_id=run_id)

    def apply(self, plan: RetirementPlan | str, *, actor: str) -> Retired:
        """Carry out what was planned, and nothing else; an empty plan writes nothing.

        Args:
            plan: A plan, or its digest.
            actor: Who answers for it.

        Raises:
            PlanChangedError: If the plan would be another one now.
            IndexBusyError: If another run, or another writer, works on the index.
            StoreError: If the store cannot be read or written. What was hidden stays hidden; a
                further run does the rest.
            ValueError: If there is no actor.
        """
        digest = plan if isinstance(plan, str) else plan.digest
        return self._job.apply(digest, named(actor))

    def restore(self, name: str, *, actor: str) -> Restored:
        """Bring back a chunk, or all chunks of a run, under the ids that they had.

        Args:
            name: The id of an action or of a run.
            actor: Who answers for it.

        Returns:
            What is shown again: each was looked up in the index, with the text and the metadata
            that it had. For 90 days it is no candidate again. Where the gate was a reason, or
            finds the text wanting now, the actor allows it, as with `QualityGate.allow` and in
            the transaction that brings it back: no gate hides it, no sync drops it as junk, and
            it is no candidate for the gate until `QualityGate.disallow`. Doing it twice is
            harmless.

        Raises:
            NotRestoredError: If there is nothing of that name, a chunk has another text by now,
                or the index does not return what was put into it.
            IndexBusyError: If another writer works on the index.
            StoreError: If the store cannot be read or written.
            ValueError: If there is no actor.
        """
        return self._job.restore(name, named(actor))

    def actions(self, name: str | None = None) -> list[Action]:
        """Return what was done, oldest first: all of it, or an action's or a run's.

        Raises:
            StoreError: If the store cannot be read.
        """
        with reading(self.store) as connection:
            return actions_of(connection, self.store.namespace, named=name)

    aplan = twin(plan)
    aapply = twin(apply)
    arestore = twin(restore)
    aactions = twin(actions)
