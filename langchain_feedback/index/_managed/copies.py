"""Which chunks only repeat another one, and which of them all stays."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from langchain_feedback.index._managed.known import as_chunks, read_known
from langchain_feedback.index.duplicates import Chunk, exact_duplicates

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["copies_of", "first_ones_first"]


def first_ones_first(
    store: "FeedbackStore",
    documents: Iterable[Document],
    id_field: str | None = None,
    scope_field: str | None = None,
) -> list[Chunk]:
    """Return documents as they are compared, those first that the catalog saw first.

    Those that are live there come before others, so that what stands for its copies goes on
    doing so, in whatever order a loader brings them. New ones follow in the loader's order.

    Raises:
        StoreError: If the database cannot be read.
    """
    compared = as_chunks(documents, id_field, scope_field)
    known, _ = read_known(store, [chunk.id for chunk in compared])

    def came(chunk: Chunk) -> tuple[bool, float]:
        row = known.get(chunk.id)
        return (row is None or row.status != "live", row.first_seen.timestamp() if row else 0.0)

    return sorted(compared, key=came)


def copies_of(
    store: "FeedbackStore",
    documents: Iterable[Document],
    id_field: str | None = None,
    scope_field: str | None = None,
) -> dict[str, str]:
    """Return the chunks that only repeat another one of a scope, each with that one.

    Args:
        store: Whose catalog.
        documents: What is compared; what is to be out for another reason is not among it, or a
            chunk that nobody sees would stand for others.
        id_field: As `ManagedIndex` has it.
        scope_field: As `ManagedIndex` has it.

    Raises:
        StoreError: If the database cannot be read.
    """
    compared = first_ones_first(store, documents, id_field, scope_field)
    return {one.id: one.of for one in exact_duplicates(compared)}
