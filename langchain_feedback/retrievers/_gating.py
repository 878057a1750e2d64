"""A gate between what a base found and what is shown."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, text_key
from langchain_feedback.retrievers._growing import Call

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Gate", "Sieve"]

_MOST_FETCHED = 1_000
"""How many the base is asked for, at most, because of what is hidden."""


@runtime_checkable
class Gate(Protocol):
    """Knows which documents are to stay hidden, such as `index.gate.QualityGate`."""

    def hidden(self, documents: Sequence[Document]) -> Mapping[int, Sequence[str]]:
        """Return the reasons of each document that is not to be shown, by its position."""


class Sieve:
    """Leaves out what a gate hides, during one retrieval.

    The gate is asked of each chunk once, however often the pool grows. One that fails, or is
    not back within the store's `timeout_s`, is not asked again: the answer goes out, without
    what it had hidden by then.

    Args:
        gate: What is asked; None: everything passes.
        store: Waits for the gate, and says so where it fails.
        id_field: The metadata field that holds a chunk's id, if any.
    """

    def __init__(self, gate: Gate | None, store: "FeedbackStore", id_field: str | None) -> None:
        self._gate, self._store, self._id_field = gate, store, id_field
        self._hides: dict[tuple[str, str], bool] = {}
        self._failed = False

    def __call__(self, documents: Sequence[Document]) -> Sequence[Document]:
        """Return the documents that pass, in order."""
        hidden = self.hidden(documents)
        if not hidden:
            return documents
        return [one for at, one in enumerate(documents) if at not in hidden]

    def hidden(self, documents: Sequence[Document]) -> Collection[int]:
        """Return the positions of those that do not pass."""
        if self._gate is None:
            return ()
        keys = [(chunk_key(one, self._id_field), text_key(one)) for one in documents]
        new = {
            key: one for key, one in zip(keys, documents, strict=True) if key not in self._hides
        }
        if new and not self._failed:
            self._ask(self._gate, new)
        return {at for at, key in enumerate(keys) if self._hides.get(key)}

    def _ask(self, gate: Gate, new: Mapping[tuple[str, str], Document]) -> None:
        documents = list(new.values())
        hidden = self._store.try_read(lambda: gate.hidden(documents), None)
        self._failed = hidden is None
        if hidden is not None:
            self._hides |= {key: at in hidden for at, key in enumerate(new)}

    def within_reach(self, following: Call, call: Call) -> Call | None:
        """Keep the next call below the most that are fetched, None where the last one had them."""
        size = min(following.size, _MOST_FETCHED)
        return following._replace(size=size) if size > call.size else None
