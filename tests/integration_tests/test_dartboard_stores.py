"""Dartboard on real servers: PostgreSQL with pgvector, and Qdrant's local mode."""

import uuid
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_feedback import DartboardRetriever
from tests.unit_tests.retrievers.test_dartboard_vectors import TEXTS, Counting

COPIES = 5


def documents() -> list[Document]:
    """Every text five times, under ids of their own."""
    return [
        Document(text, id=str(uuid.UUID(int=COPIES * at + copy + 1)), metadata={"n": at})
        for at, text in enumerate(TEXTS)
        for copy in range(COPIES)
    ]


async def agrees(store: VectorStore, embeddings: Counting, ways: str = "sync async") -> None:
    """The vectors read from the store select what embedded texts do, sync and async."""
    embeddings.embedded.clear()
    memory_embeddings = Counting()
    memory = InMemoryVectorStore(memory_embeddings)
    memory.add_documents(documents())
    expected = DartboardRetriever(vector_store=memory, k=4).invoke("Which?")
    retriever = DartboardRetriever(vector_store=store, k=4)
    results = []
    if "sync" in ways.split():
        results.append(retriever.invoke("Which?"))
    if "async" in ways.split():
        results.append(await retriever.ainvoke("Which?"))
    for found in results:
        assert [d.page_content for d in found] == [d.page_content for d in expected]
        scores = [[d.metadata["relevance_score"] for d in some] for some in (found, expected)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-3)
        assert all(type(score) is float for score in scores[0])
    assert embeddings.embedded == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
async def test_pgvector(postgres_url: str) -> None:
    make = pytest.importorskip("langchain_postgres").PGVector
    embeddings = Counting()
    store = make(embeddings, connection=postgres_url, collection_name="sync")
    store.add_documents(documents(), ids=[d.id for d in documents()])
    await agrees(store, embeddings, "sync")
    retriever = DartboardRetriever(vector_store=store, k=2)
    found = retriever.invoke("Which?", filter={"n": {"$in": [3, 7]}})
    assert {d.metadata["n"] for d in found} == {3, 7}
    waiting = make(embeddings, connection=postgres_url, collection_name="sync", async_mode=True)
    await agrees(waiting, embeddings, "async")


async def test_pgvector_store(postgres_url: str) -> None:
    postgres = pytest.importorskip("langchain_postgres")
    embeddings = Counting()
    engine = postgres.PGEngine.from_connection_string(postgres_url)
    engine.init_vectorstore_table("dartboard", embeddings.size)
    store = postgres.PGVectorStore.create_sync(engine, embeddings, "dartboard")
    store.add_documents(documents(), ids=[d.id for d in documents()])
    await agrees(store, embeddings)
    await engine.close()


@pytest.mark.parametrize("name", ["", "dense"])
async def test_qdrant(name: str) -> None:
    qdrant = pytest.importorskip("langchain_qdrant")
    embeddings = Counting()
    store = qdrant.QdrantVectorStore.from_documents(
        documents(),
        embeddings,
        ids=[d.id for d in documents()],
        location=":memory:",
        collection_name="texts",
        vector_name=name,
    )
    await agrees(store, embeddings)


class TestDartboardRetriever(RetrieversIntegrationTests):
    """LangChain's own suite for retrievers."""

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return DartboardRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        store = InMemoryVectorStore(Counting())
        store.add_documents(documents())
        return {"vector_store": store, "k": 3}

    @property
    def retriever_query_example(self) -> str:
        return "Which?"
