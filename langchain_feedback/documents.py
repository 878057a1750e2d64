"""What a chunk is: its key, the hash of its text, and copies that share nothing.

A chunk's key is how every part of this package names it: in grades and
citations. Documents that come back from a retriever may be live
objects of the index, so nothing here changes one; parts return copies.
"""

import copy
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
from langchain_core.documents import Document

__all__ = [
    "DERIVED_KEY",
    "chunk_key",
    "content_hash",
    "copy_document",
    "is_derived",
    "plain",
    "source_of",
    "text_key",
    "unique_documents",
]

DERIVED_KEY = "derived"
"""Marks, in a document's metadata, what is no source but an answer that was given before."""

_FINER = ("ns", "ps", "fs", "as")
"""Units of time that Python's own types cannot hold."""


def chunk_key(document: Document, id_field: str | None = None) -> str:
    """Name a chunk by the first identity it has.

    The order is: `metadata[id_field]` where a field is configured, `Document.id`,
    `metadata["_id"]` (where langchain-qdrant leaves it), and else a digest of the
    full text and the source. Scores and other volatile metadata never enter it.

    Args:
        document: The chunk.
        id_field: A metadata field that holds a stable id.

    Returns:
        The key, never empty.

    Raises:
        TypeError: If `document` is not a `Document`.

    Example:
        >>> chunk_key(Document("Refunds take 14 days.", id="refunds-1"))
        'refunds-1'
        >>> chunk_key(Document("Refunds take 14 days.", metadata={"source": "faq.md"}))
        'sha256:04106066f48e0b658befd14b'
    """
    if not isinstance(document, Document):
        msg = f"Expected a langchain_core Document, got {type(document).__name__}: {document!r}"
        raise TypeError(msg)
    candidates = (
        document.metadata.get(id_field) if id_field else None,
        document.id,
        document.metadata.get("_id"),
    )
    for candidate in candidates:
        if candidate is not None and str(candidate):
            return str(candidate)
    return text_key(document)


def text_key(document: Document) -> str:
    """Name a chunk by its text and source alone: the same after a re-index with new ids.

    Example:
        >>> one, two = Document("Refunds take 14 days.", id="1"), Document("Refunds take 14 days.")
        >>> text_key(one) == text_key(two) == chunk_key(two)
        True
    """
    # Length first: no choice of text and source can imitate another pair.
    text, source = document.page_content, str(document.metadata.get("source") or "")
    digest = hashlib.sha256(f"{len(text)}:{text}{source}".encode("utf-8", "surrogatepass"))
    return f"sha256:{digest.hexdigest()[:24]}"


def content_hash(document: Document) -> str:
    """Return the SHA-256 of the chunk's text, in hexadecimal.

    Example:
        >>> content_hash(Document("Refunds take 14 days."))[:12]
        'a2bf126b847a'
    """
    return hashlib.sha256(document.page_content.encode("utf-8", "surrogatepass")).hexdigest()


def copy_document(document: Document) -> Document:
    """Copy a chunk with its id, type and metadata; nested values are not shared.

    NumPy scalars and arrays in the metadata become plain Python on the copy:
    checkpointers and JSON cannot hold them.

    Example:
        >>> stored = Document("text", metadata={"tags": ["a"], "score": np.float32(0.5)})
        >>> copied = copy_document(stored)
        >>> copied.metadata["tags"].append("b")
        >>> stored.metadata["tags"], copied.metadata["score"]
        (['a'], 0.5)
    """
    return document.model_copy(update={"metadata": plain(document.metadata)})


def plain(value: Any) -> Any:
    """Return a deep copy of `value` in which every NumPy value is a plain Python one."""
    if isinstance(value, np.generic | np.ndarray):
        return _unpacked(value)
    if type(value) in (dict, OrderedDict):
        return type(value)((plain(key), plain(item)) for key, item in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(plain(item) for item in value)
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  a lock or a client in metadata must not cost the answer
        return value


def is_derived(document: Document) -> bool:
    """Tell whether a document is an answer that was folded back: nothing can rest on it.

    Example:
        >>> is_derived(Document("14 days.", metadata={"derived": True, "derived_id": "1"}))
        True
        >>> is_derived(Document("14 days.", metadata={"derived": True}))  # somebody else's word
        False
    """
    marks = document.metadata if isinstance(document, Document) else {}
    return marks.get(DERIVED_KEY) is True and isinstance(marks.get("derived_id"), str)


def source_of(document: Document) -> str:
    """Say where a chunk comes from, for people: the source, then page or heading.

    Example:
        >>> source_of(Document("...", metadata={"source": "guide.pdf", "page": 3}))
        'guide.pdf, page 3'
        >>> source_of(Document("...", metadata={"source": "faq.md", "heading": "Refunds"}))
        'faq.md > Refunds'
    """
    source = str(document.metadata.get("source") or document.id or "")
    if (page := document.metadata.get("page")) is not None:
        return f"{source}, page {page}" if source else f"page {page}"
    if heading := document.metadata.get("heading"):
        return f"{source} > {heading}" if source else str(heading)
    return source


def unique_documents(documents: Iterable[Document], id_field: str | None = None) -> list[Document]:
    """Keep the first document of each key, in order.

    Example:
        >>> one, two = Document("a", id="1"), Document("b", id="2")
        >>> [document.id for document in unique_documents([one, two, one])]
        ['1', '2']
    """
    first: dict[str, Document] = {}
    for document in documents:
        first.setdefault(chunk_key(document, id_field), document)
    return list(first.values())


def _unpacked(value: Any) -> Any:
    if value.dtype.kind in "mM" and np.datetime_data(value.dtype)[0] in _FINER:
        # Of these, `tolist` would make bare numbers.
        value = value.astype(f"{value.dtype.kind}8[us]")
    unpacked = value.tolist()
    if type(unpacked) is type(value):
        # Only long doubles come back as they are.
        return complex(value) if value.dtype.kind == "c" else float(value)
    # An object array may hold NumPy scalars of its own.
    return plain(unpacked) if isinstance(unpacked, list | np.generic) else unpacked
