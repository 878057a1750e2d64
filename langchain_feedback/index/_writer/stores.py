"""What vector stores have in common, once their differences are out of the way."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from math import inf
from pathlib import PurePath
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore
from pydantic import ValidationError

from langchain_feedback.documents import chunk_key, content_hash, copy_document, plain, text_key
from langchain_feedback.index.errors import UnsupportedIndexError
from langchain_feedback.index.ledger import Fingerprint, in_batches
from langchain_feedback.traces import storable

__all__ = [
    "canonical",
    "checked_store",
    "fingerprint",
    "fingerprints_in",
    "found_in",
    "identified",
]

_HUNDRED = 100
_OURS = frozenset(("feedback", "relevance_score", "_id", "_collection_name"))
"""Metadata that this package and langchain-qdrant write themselves: not the document's own."""

_PLACES = ("page", "start_index")
"""Metadata that say where in its source a copy of a text stands."""

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
    UUID made of text and source: the same in every run, and one that every store takes. Copies
    of a text in one source then are one document, with the metadata of the first place.

    Raises:
        UnsupportedIndexError: If two documents have an id of their own in common, or the store
            does not take an id.
    """
    found: dict[str, Document] = {}
    for document in documents:
        key = chunk_key(document, id_field)
        is_made = key == text_key(document)
        if is_made:
            key = str(uuid5(NAMESPACE_URL, key))
        _check_id(key, vector_store)
        kept = {name: value for name, value in document.metadata.items() if name not in _OURS}
        copied = copy_document(document.model_copy(update={"id": key, "metadata": kept}))
        same = found.setdefault(key, copied)
        if same is copied or fingerprint(same) == fingerprint(copied):
            continue
        if not is_made:
            msg = f"Two documents have the id {key!r}, and only one of them can be kept under it."
            raise UnsupportedIndexError(msg)
        # "Back to top" on each page: the same one in whatever order they come.
        found[key] = min(same, copied, key=_place)
    return found


def found_in(vector_store: VectorStore, ids: Sequence[str]) -> dict[str, Document]:
    """Return the documents of some ids that are in a vector store, asking for hundreds."""
    found: dict[str, Document] = {}
    for batch in in_batches(ids, _HUNDRED):
        # Qdrant and PostgreSQL return a UUID in their own form.
        asked = {canonical(key): key for key in batch}
        documents = _read(vector_store, list(batch))
        named = {canonical(chunk_key(document)): document for document in documents}
        found |= {asked[key]: document for key, document in named.items() if key in asked}
        if len(asked.keys() & named.keys()) < len(documents):
            # Some came without their ids, as from old FAISS files: each is asked for alone.
            alone = {key: vector_store.get_by_ids([key]) for key in batch if key not in found}
            found |= {key: documents[0] for key, documents in alone.items() if documents}
    return found


def _read(vector_store: VectorStore, ids: list[str]) -> list[Document]:
    try:
        return vector_store.get_by_ids(ids)
    except ValidationError:
        # Chroma cannot read what somebody wrote without metadata. It is there: it is written anew.
        if len(ids) == 1:
            return [Document("", id=ids[0])]
        return [one for key in ids for one in _read(vector_store, [key])]


def fingerprints_in(vector_store: VectorStore, ids: Sequence[str]) -> dict[str, Fingerprint]:
    """Return the same as fingerprints: the texts of an index need not be in memory at once."""
    return {
        key: fingerprint(document)
        for batch in in_batches(ids, _HUNDRED)
        for key, document in found_in(vector_store, batch).items()
    }


def fingerprint(document: Document) -> Fingerprint:
    """Return the hashes of a document's text and of its metadata, whatever order these have.

    Example:
        >>> one, two = (Document("a", metadata=m) for m in ({"x": 1, "y": 2}, {"y": 2, "x": 1}))
        >>> fingerprint(one) == fingerprint(two)
        True
    """
    told = _metadata(document).encode("utf-8", "surrogatepass")
    return Fingerprint(content_hash(document), hashlib.sha256(told).hexdigest())


def _metadata(document: Document) -> str:
    return json.dumps(_told(plain(document.metadata)), sort_keys=True)


def _place(document: Document) -> tuple[list[float], str]:
    """Return what orders the copies of a text: where they stand, and then anything."""
    numbers = (document.metadata.get(name) for name in _PLACES)
    stands = [float(n) if isinstance(n, int | float) else inf for n in numbers]
    return stands, _metadata(document)


def _told(value: Any) -> Any:
    """Return what JSON can hold, the same in every process."""
    if isinstance(value, dict):
        return {str(key): _told(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_told(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_told(item), sort_keys=True) for item in value)
    return value if value is None or isinstance(value, str | int | float) else _said(value)


def _said(value: Any) -> Any:
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Enum):
        return [type(value).__name__, value.name]
    if isinstance(value, UUID | PurePath | Decimal | timedelta):
        # As stores give them back that keep JSON.
        return str(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _told(getattr(value, one.name)) for one in fields(value)}
    # Of other objects only their kind: their text may hold an address.
    return type(value).__name__


def canonical(key: str) -> str:
    """Return an id in one form: a UUID may be written in several.

    Example:
        >>> canonical("0198F2B0AAAA7BBBBCCCDDDDEEEEFFFF")
        '0198f2b0-aaaa-7bbb-bccc-ddddeeeeffff'
    """
    try:
        return str(UUID(key))
    except ValueError:
        return key


def _check_id(key: str, vector_store: VectorStore) -> None:
    if storable(key) != key:
        msg = f"The id {key!r} cannot be kept in every database: no NUL, no half characters."
        raise UnsupportedIndexError(msg)
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
