"""Write to a vector store so that a second run changes nothing and a crash harms nothing.

`langchain_core.indexing.index` trusts its own records: an emptied store stays empty, a changed
metadata value is never stored, and a crash between store and record corrupts a FAISS index.
Here a ledger says before each step what is about to happen, every plan first looks which
documents are really there, and only what is there is deleted before it is added anew.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from langchain_core.documents import Document
from langchain_core.runnables.config import run_in_executor

from langchain_feedback.index._writer.folders import SavedFolder
from langchain_feedback.index._writer.plan import Plan, Request, planned
from langchain_feedback.index._writer.putting import way_of
from langchain_feedback.index._writer.steps import Steps
from langchain_feedback.index._writer.stores import checked_store, fingerprints_in, identified
from langchain_feedback.index.errors import (
    IndexBusyError,
    IndexWriteError,
    PlanChangedError,
    TooManyRemovalsError,
    UnsupportedIndexError,
)
from langchain_feedback.index.ledger import Ledger

if TYPE_CHECKING:
    from langchain_core.vectorstores import VectorStore

__all__ = [
    "Applied",
    "IndexBusyError",
    "IndexWriteError",
    "IndexWriter",
    "Plan",
    "PlanChangedError",
    "SavedFolder",
    "TooManyRemovalsError",
    "UnsupportedIndexError",
]

_LEAST_DIGITS = 12
"""Of a digest, as plans print it."""


@dataclass(frozen=True)
class Applied:
    """What a run did."""

    run_id: str
    digest: str
    """Of the plan that it carried out."""
    written: int
    removed: int


class IndexWriter:
    """Brings an index to what it should hold, in steps that can be interrupted anywhere.

    For each batch: the ledger says `writing`, the documents are written in the place of what
    has their ids, the ledger says `present`. Removals come last, by `removing` and `removed`.
    Qdrant, PGVectorStore and InMemoryVectorStore replace a document in one step. From others it
    is deleted first, as late as they allow (FAISS: when the new one is embedded), and is not
    found for that moment; blue and green versions avoid that.

    Args:
        vector_store: Any vector store with `get_by_ids` and `delete`, except for `PGVector`,
            whose collections share their ids.
        ledger: Where it keeps what it did, such as a `TableLedger`; one for each index.
        id_field: A metadata field that holds a stable id. Otherwise the document's own id
            counts, or else a UUID made of its text and source: then an edit counts as a
            removal and an addition.
        max_remove_share: How much of the index an `apply` may remove unless it is forced, in
            [0, 1].
        batch_size: How many documents are embedded and written at a time.
        persist: What puts the index on the disk where it lives in memory, such as
            `SavedFolder(folder).save`, given the vector store. It is called before the ledger
            calls anything present or removed.
        lease_s: After how many seconds another process may take over from one that died. A
            batch must not take longer: otherwise two may write, and the next run repairs that.

    Raises:
        UnsupportedIndexError: If the vector store cannot be written to safely.
        ValueError: If a setting is out of range.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_feedback import FeedbackStore
        >>> from langchain_feedback.index.ledger import TableLedger
        >>> index = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        >>> writer = IndexWriter(index, TableLedger(FeedbackStore("sqlite://"), "handbook"))
        >>> documents = [Document("Refunds take 14 days."), Document("Keys rotate.")]
        >>> plan = writer.plan(documents)
        >>> print(plan)
        handbook: 2 to add, 0 to replace, 0 to remove, 0 to repair; 0 stay; digest ...
        >>> writer.apply(plan.digest).written
        2
        >>> bool(writer.plan(documents))
        False
    """

    def __init__(
        self,
        vector_store: "VectorStore",
        ledger: Ledger,
        *,
        id_field: str | None = None,
        max_remove_share: float = 0.2,
        batch_size: int = 100,
        persist: "Callable[[VectorStore], object] | None" = None,
        lease_s: float = 300,
    ) -> None:
        if not 0 <= max_remove_share <= 1:
            msg = f"max_remove_share must be in [0, 1], got {max_remove_share!r}"
            raise ValueError(msg)
        if batch_size < 1 or not lease_s > 0:
            msg = f"batch_size and lease_s must be above 0, got {batch_size!r} and {lease_s!r}"
            raise ValueError(msg)
        self.vector_store, self.ledger = checked_store(vector_store), ledger
        self._way = way_of(vector_store)
        self.id_field, self.max_remove_share = id_field, max_remove_share
        self.batch_size, self.persist, self.lease_s = batch_size, persist, lease_s
        self._newest: Plan | None = None

    # -- planning

    def plan(self, documents: Iterable[Document], *, complete: bool = True) -> Plan:
        """Return what is missing for the index to hold these documents; nothing is changed.

        What is given here is what it shall hold: a chunk that was retired, or that a
        `QualityGate` dropped, is written again if the loader still brings it and nobody leaves
        it out. `ManagedIndex.wanted` does, and so does the command `index sync`.

        Args:
            documents: What it should hold. Two with one id of their own must be the same; of
                copies of a text in one source, without ids, one is kept.
            complete: Whether that is all: what else the ledger knows, or removed once and is
                back, would be removed. What the ledger never knew stays in any case.

        Raises:
            UnsupportedIndexError: If two documents differ and have one id of their own, or the
                vector store does not take an id.
            StoreError: If the ledger cannot be read.
        """
        wanted = identified(documents, self.vector_store, self.id_field)
        return self._remember(Request(wanted, complete=complete))

    def plan_removal(self, ids: Iterable[str]) -> Plan:
        """Return what removing some documents would do, also ones the ledger never knew.

        Raises:
            StoreError: If the ledger cannot be read.
        """
        return self._remember(Request({}, frozenset(ids), complete=False))

    async def aplan(self, documents: Iterable[Document], *, complete: bool = True) -> Plan:
        """Do as `plan`, without blocking the event loop."""
        return await run_in_executor(None, self.plan, documents, complete=complete)

    async def aplan_removal(self, ids: Iterable[str]) -> Plan:
        """Do as `plan_removal`, without blocking the event loop."""
        return await run_in_executor(None, self.plan_removal, ids)

    def _remember(self, request: Request) -> Plan:
        self._newest = self._planned(request)
        return self._newest

    def _planned(self, request: Request) -> Plan:
        entries = self.ledger.entries()
        # Also what was removed: a vector store that was restored may hold it again.
        asked = set(entries) if request.complete else set()
        asked = asked.union(request.documents, request.removed)
        there = fingerprints_in(self.vector_store, sorted(asked))
        return planned(self.ledger.name, request, entries, there)

    # -- applying

    def apply(self, plan: Plan | str, *, force: bool = False) -> Applied:
        """Carry out what was planned, and nothing else.

        Args:
            plan: A plan, or the digest of the newest one that this writer made; its first 12
                digits are enough.
            force: Whether it may remove more than `max_remove_share` of the index, or all.

        Returns:
            What was done; of an empty plan, nothing, and nothing is written anywhere.

        Raises:
            PlanChangedError: If the index or the ledger changed since, or the digest is
                another plan's.
            TooManyRemovalsError: If it would remove too much.
            IndexBusyError: If another writer works on the index, or took it over meanwhile.
            IndexWriteError: If the vector store says that it did not delete.
            StoreError: If the ledger cannot be written.
        """
        plan = self._checked(plan)
        if not force:
            self._check_removals(plan)
        if not plan:
            return Applied("", plan.digest, 0, 0)
        with self._alone() as steps:
            folder = getattr(self.persist, "__self__", None)
            if isinstance(folder, SavedFolder):
                folder.check()
            current = self._planned(plan.request)
            if current.digest != plan.digest:
                msg = (
                    f"The index changed since it was planned: now {current}; then {plan}. Plan"
                    " again, and review that."
                )
                raise PlanChangedError(msg)
            steps.write([current.request.documents[key] for key in current.written])
            steps.remove([current.entries[key] for key in current.remove])
        return Applied(steps.run_id, plan.digest, len(plan.written), len(plan.remove))

    async def aapply(self, plan: Plan | str, *, force: bool = False) -> Applied:
        """Do as `apply`, without blocking the event loop."""
        return await run_in_executor(None, self.apply, plan, force=force)

    def _checked(self, plan: Plan | str) -> Plan:
        if isinstance(plan, Plan):
            if plan.index == self.ledger.name:
                return plan
            msg = f"The plan is for {plan.index!r}, and this writer writes {self.ledger.name!r}."
            raise PlanChangedError(msg)
        newest = self._newest
        is_named = newest is not None and (
            len(plan) >= _LEAST_DIGITS and newest.digest.startswith(plan)
        )
        if newest is None or not is_named:
            made = "has made none" if newest is None else f"made {newest.digest!r} last"
            msg = f"There is no plan with the digest {plan!r}: this writer {made}. Plan again."
            raise PlanChangedError(msg)
        return newest

    def _check_removals(self, plan: Plan) -> None:
        share = plan.removed_share
        if not plan.lost or (share <= self.max_remove_share and share < 1):
            return
        if share < 1:
            why = f"At most {self.max_remove_share:.0%} go without being forced."
        elif plan.request.documents:
            why = "None of them would stay: do the documents have other ids than before?"
        else:
            why = "Nothing at all would stay; did the loader return nothing?"
        msg = (
            f"The plan removes {plan.lost:,} of {plan.known:,} documents from {plan.index!r}."
            f" {why} If it is meant, apply it with force=True."
        )
        raise TooManyRemovalsError(msg)

    @contextmanager
    def _alone(self) -> Iterator[Steps]:
        run_id = uuid4().hex
        holder = f"{socket.gethostname()}:{os.getpid()}:{run_id}"
        self._claim(holder)
        try:
            yield Steps(
                self.vector_store,
                self._way,
                self.ledger,
                run_id,
                self.batch_size,
                self.persist,
                keep_lease=lambda: self._keep(holder),
            )
        finally:
            self.ledger.release(holder)

    def _claim(self, holder: str) -> None:
        if not self.ledger.claim(holder, self.lease_s):
            msg = (
                f"Another writer works on the index {self.ledger.name!r}. If it died, its lease"
                f" ends {self.lease_s:g} s after its last batch; try again then."
            )
            raise IndexBusyError(msg)

    def _keep(self, holder: str) -> None:
        if not self.ledger.renew(holder, self.lease_s):
            msg = (
                f"A batch took longer than the lease of {self.lease_s:g} s, and another writer"
                f" took over the index {self.ledger.name!r}. Plan again; make lease_s longer or"
                " batch_size smaller."
            )
            raise IndexBusyError(msg)
