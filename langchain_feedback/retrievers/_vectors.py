"""Vectors of documents: as the vector store holds them, else embedded anew.

The stores are told apart by the name of their class: none of their packages is needed here.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore

__all__ = ["VectorSource"]

_LOGGER = logging.getLogger(__name__)

Stored = Mapping[str, Sequence[float]]
"""Vectors by the store's id; an id that the store does not hold is absent."""


class VectorSource(NamedTuple):
    """Gives the vectors of questions and of documents, all in one space."""

    store: VectorStore | None
    embeddings: Embeddings | None

    @classmethod
    def of(cls, store: VectorStore | None, embeddings: Embeddings | None) -> "VectorSource":
        """Put a store and embeddings together.

        Embeddings that are not the store's own are another space: then the store is not read.
        """
        own = store.embeddings if store is not None else None
        if embeddings is not None and own is not None and embeddings is not own:
            return cls(None, embeddings)
        return cls(store, embeddings or own)

    def question(self, question: str) -> Sequence[float] | None:
        """Return the question's vector, None without embeddings."""
        return None if self.embeddings is None else self.embeddings.embed_query(question)

    async def aquestion(self, question: str) -> Sequence[float] | None:
        """Return the question's vector, None without embeddings."""
        return None if self.embeddings is None else await self.embeddings.aembed_query(question)

    def documents(self, documents: Sequence[Document]) -> list[Sequence[float]]:
        """Return one vector for each document.

        Raises:
            ValueError: The store does not hold one of them, and there are no embeddings.
        """
        stored: Stored = {}
        if (reader := _reader(self.store)) and (ids := _ids(documents)):
            try:
                stored = reader.read(self.store, ids)
            except Exception as error:  # noqa: BLE001  their insides may change; texts can be embedded
                self._unread(error)
        found, missing = _found(documents, stored)
        texts = [documents[at].page_content for at in missing]
        fresh = self._embedding(missing).embed_documents(texts) if missing else []
        return _merged(found, missing, fresh)

    async def adocuments(self, documents: Sequence[Document]) -> list[Sequence[float]]:
        """Return one vector for each document, without blocking the event loop.

        Raises:
            ValueError: The store does not hold one of them, and there are no embeddings.
        """
        stored: Stored = {}
        if (reader := _reader(self.store)) and (ids := _ids(documents)):
            try:
                if reader.aread is None:
                    stored = await run_in_executor(None, reader.read, self.store, ids)
                else:
                    stored = await reader.aread(self.store, ids)
            except Exception as error:  # noqa: BLE001  see above
                self._unread(error)
        found, missing = _found(documents, stored)
        texts = [documents[at].page_content for at in missing]
        fresh = await self._embedding(missing).aembed_documents(texts) if missing else []
        return _merged(found, missing, fresh)

    def _embedding(self, missing: list[int]) -> Embeddings:
        if self.embeddings is None:
            msg = (
                f"{len(missing)} documents have no vector in {type(self.store).__name__} and "
                "cannot be embedded. Pass `embeddings`."
            )
            raise ValueError(msg)
        return self.embeddings

    def _unread(self, error: Exception) -> None:
        name = type(self.store).__name__
        _LOGGER.warning("Vectors of %s could not be read, texts are embedded: %r", name, error)


def _store_id(document: Document) -> str | None:
    """Return the id in the store; langchain-qdrant leaves it in the metadata."""
    found = document.metadata.get("_id") if document.id is None else document.id
    return None if found is None else str(found)


def _ids(documents: Sequence[Document]) -> list[str]:
    return [found for document in documents if (found := _store_id(document)) is not None]


def _found(
    documents: Sequence[Document], stored: Stored
) -> tuple[list[Sequence[float] | None], list[int]]:
    found = [stored.get(_store_id(document) or "") for document in documents]
    return found, [at for at, vector in enumerate(found) if vector is None]


def _merged(
    found: list[Sequence[float] | None], missing: list[int], fresh: list[list[float]]
) -> list[Sequence[float]]:
    vectors = dict(zip(missing, fresh, strict=True))
    return [vectors[at] if vector is None else vector for at, vector in enumerate(found)]


# -- the stores


def _in_memory(store: Any, ids: list[str]) -> Stored:
    held = {found: store.store.get(found) for found in ids}
    return {found: entry["vector"] for found, entry in held.items() if entry is not None}


_POSITIONS: "WeakKeyDictionary[Any, dict[str, int]]" = WeakKeyDictionary()
"""Where each id stands in a FAISS index, for those that were asked."""


def _faiss(store: Any, ids: list[str]) -> Stored:
    positions = _positions(store, ids)
    return {
        found: store.index.reconstruct(positions[found]) for found in ids if found in positions
    }


def _positions(store: Any, ids: list[str]) -> dict[str, int]:
    """Return places of ids, from the last time where they still hold."""
    held: dict[int, str] = store.index_to_docstore_id
    known = _POSITIONS.get(store, {})
    if any(held.get(known.get(found, -1)) != found for found in ids):
        known = {found: at for at, found in list(held.items())}
        _POSITIONS[store] = known
    return known


def _pgvector(store: Any, ids: list[str]) -> Stored:
    with store._make_sync_session() as session:  # noqa: SLF001
        table, collection = store.EmbeddingStore, store.get_collection(session)
        rows = session.query(table.id, table.embedding).filter(
            table.collection_id == collection.uuid, table.id.in_(ids)
        )
        return {str(found): _parsed(vector) for found, vector in rows}


async def _apgvector(store: Any, ids: list[str]) -> Stored:
    if not store.async_mode:
        return await run_in_executor(None, _pgvector, store, ids)
    async with store._make_async_session() as session:  # noqa: SLF001
        collection = await store.aget_collection(session)

        def read(sync_session: Any) -> list[Any]:
            table = store.EmbeddingStore
            query = sync_session.query(table.id, table.embedding)
            found = query.filter(table.collection_id == collection.uuid, table.id.in_(ids))
            return list(found)

        rows = await session.run_sync(read)
    return {str(found): _parsed(vector) for found, vector in rows}


def _pgvector_store(store: Any, ids: list[str]) -> Stored:
    return _columns(store.get(ids=ids, include=["embeddings"]))


async def _apgvector_store(store: Any, ids: list[str]) -> Stored:
    return _columns(await store.aget(ids=ids, include=["embeddings"]))


def _columns(rows: Mapping[str, Sequence[Any]]) -> Stored:
    pairs = zip(rows["ids"], rows["embeddings"], strict=True)
    return {str(found): _parsed(vector) for found, vector in pairs}


def _parsed(vector: Any) -> Sequence[float]:
    """Read a vector as the database driver gives it: text, or an array."""
    parsed: list[float] = json.loads(vector) if isinstance(vector, str) else list(vector)
    return parsed


def _qdrant(store: Any, ids: list[str]) -> Stored:
    # Its ids are numbers or UUIDs.
    wanted = [int(found) if found.isdecimal() else found for found in ids]
    points = store.client.retrieve(
        store.collection_name, wanted, with_payload=False, with_vectors=True
    )
    vectors = {
        str(point.id): point.vector.get(store.vector_name)
        if isinstance(point.vector, dict)
        else point.vector
        for point in points
    }
    return {found: vector for found, vector in vectors.items() if vector is not None}


class _Reader(NamedTuple):
    read: Callable[[Any, list[str]], Stored]
    aread: Callable[[Any, list[str]], Any] | None = None


_READERS = {
    "InMemoryVectorStore": _Reader(_in_memory),
    "FAISS": _Reader(_faiss),
    "PGVector": _Reader(_pgvector, _apgvector),
    "PGVectorStore": _Reader(_pgvector_store, _apgvector_store),
    "AsyncPGVectorStore": _Reader(_pgvector_store, _apgvector_store),
    "QdrantVectorStore": _Reader(_qdrant),
}


def _reader(store: VectorStore | None) -> _Reader | None:
    names = [kind.__name__ for kind in type(store).__mro__]
    return next((_READERS[name] for name in names if name in _READERS), None)
