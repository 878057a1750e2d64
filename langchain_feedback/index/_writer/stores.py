"""What vector stores have in common, once their differences are out of the way."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from langchain_feedback.documents import chunk_key, content_hash, copy_document, plain, text_key
from langchain_feedback.index.errors import UnsupportedIndexError
from langchain_feedback.index.ledger import Fingerprint, in_batches

__all__ = ["checked_store", "fingerprint", "found_in", "identified"]

_HUNDRED = 100
_OURS = frozenset(("feedback", "relevance_score", "_id", "_collection_name"))
"""Metadata that this package and langchain-qdrant write themselves: not the document's own."""

_UUID_ONLY = ("QdrantVectorStore", "Qdrant")


def checked_store(vector_store: VectorStore) -> VectorStore:
    """Return a vector store that can be written to safely.

    Raises:
        UnsupportedIndexError: If it cannot; the message says why.
    """
    lineage = type(vector_store).__mro__
    if any(kind.__name__ == "PGVector" for kind in lineage):
        msg = (
            "PGVector keeps one row for an id in all of its collections, so writing to one"
            " overwrites the rows of another (langchain-postgres#139). Use PGVectorStore: it has"
            " a table for each collection."
        )
        raise UnsupportedIndexError(msg)
    for name in ("get_by_ids", "delete"):
        if getattr(type(vector_store), name, None) in (None, getattr(VectorStore, name)):
            msg = (
                f"{type(vector_store).__name__} has no `{name}`, without which nobody can tell"
                " what is in it. Write to it with its own methods, or use another vector store."
            )
            raise UnsupportedIndexError(msg)
    return vector_store


def identified(
    documents: Iterable[Document], vector_store: VectorStore, id_field: str | None = None
) -> dict[str, Document]:
    """Return copies of documents by the ids that they are written under, in order.

    The id is `metadata[id_field]` where one is configured, else the document's own, else a
    UUID made of text and source: the same in every run, and one that every store takes.

    Raises:
        UnsupportedIndexError: If two documents have one id, or the store does not take an id.
    """
    found: dict[str, Document] = {}
    for document in documents:
        key = chunk_key(document, id_field)
        if key == text_key(document):
            key = str(uuid5(NAMESPACE_URL, key))
        _check_id(key, vector_store)
        kept = {name: value for name, value in document.metadata.items() if name not in _OURS}
        copied = copy_document(document.model_copy(update={"id": key, "metadata": kept}))
        if key in found and fingerprint(found[key]) != fingerprint(copied):
            msg = f"Two documents have the id {key!r}, and only one of them can be kept under it."
            raise UnsupportedIndexError(msg)
        found.setdefault(key, copied)
    return found


def found_in(vector_store: VectorStore, ids: Sequence[str]) -> dict[str, Document]:
    """Return the documents of some ids that are in a vector store, asking for hundreds."""
    found: dict[str, Document] = {}
    for batch in in_batches(ids, _HUNDRED):
        # Qdrant and PostgreSQL return a UUID in their own form.
        asked = {_canonical(key): key for key in batch}
        documents = vector_store.get_by_ids(list(batch))
        named = {_canonical(chunk_key(document)): document for document in documents}
        found |= {asked[key]: document for key, document in named.items() if key in asked}
        if len(asked.keys() & named.keys()) < len(documents):
            # Some came without their ids, as from old FAISS files: each is asked for alone.
            alone = {key: vector_store.get_by_ids([key]) for key in batch if key not in found}
            found |= {key: documents[0] for key, documents in alone.items() if documents}
    return found


def fingerprint(document: Document) -> Fingerprint:
    """Return the hashes of a document's text and of its metadata, whatever order these have.

    Example:
        >>> one, two = (Document("a", metadata=m) for m in ({"x": 1, "y": 2}, {"y": 2, "x": 1}))
        >>> fingerprint(one) == fingerprint(two)
        True
    """
    told = json.dumps(_told(plain(document.metadata)), sort_keys=True)
    digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
    return Fingerprint(content_hash(document), digest)


def _told(value: Any) -> Any:
    """Return what JSON can hold, the same in every process."""
    if isinstance(value, dict):
        return {str(key): _told(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_told(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_told(item), sort_keys=True) for item in value)
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, str | int | float):
        return value
    # Of other objects only their kind: their text may hold an address.
    return type(value).__name__


def _canonical(key: str) -> str:
    try:
        return str(UUID(key))
    except ValueError:
        return key


def _check_id(key: str, vector_store: VectorStore) -> None:
    if not any(kind.__name__ in _UUID_ONLY for kind in type(vector_store).__mro__):
        return
    try:
        UUID(key)
    except ValueError as error:
        msg = (
            f"Qdrant takes UUIDs only, and a document has the id {key!r}. Leave ids empty: the"
            " writer makes UUIDs of text and source."
        )
        raise UnsupportedIndexError(msg) from error
