"""The steps of one run of a writer: each leaves a state that the next plan understands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langchain_feedback.index._writer.putting import Way, delete_there, put
from langchain_feedback.index._writer.stores import fingerprint
from langchain_feedback.index.errors import IndexBusyError
from langchain_feedback.index.ledger import Entry, Ledger, State, in_batches

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.vectorstores import VectorStore

__all__ = ["Steps"]


@dataclass(frozen=True)
class Steps:
    """Carries out a plan, batch by batch."""

    vector_store: "VectorStore"
    way: Way
    ledger: Ledger
    run_id: str
    batch_size: int
    persist: "Callable[[VectorStore], object] | None"
    keep_lease: Callable[[], None]
    """Called before and after each batch; it raises when the lease is lost."""

    def write(self, documents: "Sequence[Document]") -> None:
        """Put documents in the place of whatever has their ids."""
        if not documents:
            return
        entries = [
            Entry(str(document.id), fingerprint(document), "writing", self.run_id)
            for document in documents
        ]
        self.ledger.note(entries)
        for batch in in_batches(range(len(documents)), self.batch_size):
            self.keep_lease()
            put(self.vector_store, self.way, [documents[at] for at in batch])
            self._settle([entries[at] for at in batch], "present")
        self._settle_all(entries, "present")

    def remove(self, entries: Sequence[Entry]) -> None:
        """Delete documents, as far as they are there."""
        if not entries:
            return
        entries = [replace(entry, state="removing", run_id=self.run_id) for entry in entries]
        self.ledger.note(entries)
        for batch in in_batches(entries, self.batch_size):
            self.keep_lease()
            delete_there(self.vector_store, [entry.id for entry in batch])
            self._settle(batch, "removed")
        self._settle_all(entries, "removed")

    def _settle(self, entries: Sequence[Entry], state: State) -> None:
        """Say that a batch is done, unless it is only in memory yet."""
        if self.persist is not None:
            return
        try:
            self.keep_lease()
        except IndexBusyError:
            # Two have written since: whose documents are there is for the next plan to see.
            self.ledger.note(entries)
            raise
        self.ledger.note([replace(entry, state=state) for entry in entries])

    def _settle_all(self, entries: Sequence[Entry], state: State) -> None:
        if self.persist is not None:
            self.keep_lease()
            self.persist(self.vector_store)
            self.ledger.note([replace(entry, state=state) for entry in entries])
