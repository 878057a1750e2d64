"""Put documents in the place of whatever has their ids, each store in the way that it can.

The order matters when an embedder fails, which it does: what is only to be replaced stays found
until there is something to replace it with.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_feedback.index._writer.stores import canonical, found_in
from langchain_feedback.index.errors import IndexWriteError, UnsupportedIndexError

__all__ = ["Way", "delete_there", "put", "way_of"]

Way = Literal["replace", "embed_first", "chroma", "delete_first"]
"""How a kind of store replaces a document: see `way_of`."""

# These embed first and then write each row anew, its metadata too.
_REPLACING = frozenset(("InMemoryVectorStore", "QdrantVectorStore", "PGVectorStore"))


def way_of(vector_store: Any) -> Way:
    """Tell how documents of a store are replaced, by the name of its class.

    FAISS breaks on an id that it has, so its texts are embedded before anything is deleted.
    Chroma keeps old metadata under a replaced document, and it and unknown ones are deleted from
    first. What they had comes back as far as it can when writing fails.

    Example:
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> way_of(InMemoryVectorStore(None))
        'replace'
    """
    kinds = {kind.__name__ for kind in type(vector_store).__mro__}
    if kinds & _REPLACING:
        return "replace"
    if "FAISS" in kinds:
        return "embed_first"
    return "chroma" if "Chroma" in kinds else "delete_first"


def put(vector_store: Any, way: Way, documents: Sequence[Document]) -> None:
    """Write documents under their ids.

    Raises:
        UnsupportedIndexError: If the store gives them ids of its own.
        IndexWriteError: If it did not delete what was there.
        Exception: What the store or its embedder raises.
    """
    ids = [str(document.id) for document in documents]
    if way == "replace":
        _add(vector_store, documents, ids)
    elif way == "embed_first" and isinstance(vector_store.embeddings, Embeddings):
        texts = [document.page_content for document in documents]
        vectors = vector_store.embeddings.embed_documents(texts)
        delete_there(vector_store, ids)
        metadata = [document.metadata for document in documents]
        pairs = list(zip(texts, vectors, strict=True))
        vector_store.add_embeddings(pairs, metadatas=metadata, ids=ids)
    else:
        _replace(vector_store, way, documents, ids)


def delete_there(vector_store: Any, ids: Sequence[str]) -> dict[str, Document]:
    """Delete what is there of some ids, and return it: FAISS refuses ids that it does not have.

    Raises:
        IndexWriteError: If the store says that it did not.
    """
    there = found_in(vector_store, ids)
    if there and vector_store.delete(ids=[key for key in ids if key in there]) is False:
        msg = (
            f"{type(vector_store).__name__} did not delete {len(there):,} documents, by its own"
            " word. The ledger knows that they were to go: run it again when the store can."
        )
        raise IndexWriteError(msg)
    return there


def _replace(vector_store: Any, way: Way, documents: Sequence[Document], ids: list[str]) -> None:
    there = found_in(vector_store, ids)
    embeddings = getattr(vector_store, "embeddings", None)
    if there and isinstance(embeddings, Embeddings):
        # An embedder that is down says so before anything is gone.
        embeddings.embed_documents([documents[0].page_content])
    there = delete_there(vector_store, ids) if there else there
    if way == "chroma":
        # Chroma cannot read a document without metadata; `_id` is nobody's own.
        documents = [_with_metadata(document) for document in documents]
    try:
        _add(vector_store, documents, ids)
    except Exception:
        with suppress(Exception):
            gone = [key for key in there if key not in found_in(vector_store, list(there))]
            if gone:
                vector_store.add_documents([there[key] for key in gone], ids=gone)
        raise


def _with_metadata(document: Document) -> Document:
    if document.metadata:
        return document
    return document.model_copy(update={"metadata": {"_id": document.id}})


def _add(vector_store: Any, documents: Sequence[Document], ids: list[str]) -> None:
    given = vector_store.add_documents(list(documents), ids=ids)
    if isinstance(given, list) and set(map(canonical, map(str, given))) != set(
        map(canonical, ids)
    ):
        msg = (
            f"{type(vector_store).__name__} gives documents ids of its own ({given[0]!r} for"
            f" {ids[0]!r}), so that each run would write them again. What it wrote now is still"
            " there: delete it, and write to the store with its own methods."
        )
        raise UnsupportedIndexError(msg)
