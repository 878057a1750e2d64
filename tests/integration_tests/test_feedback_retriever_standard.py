"""LangChain's standard suite for retrievers, over several kinds of base."""

from uuid import NAMESPACE_URL, uuid5

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_feedback import FeedbackRetriever, trace_id_of
from langchain_feedback.store.feedback_store import FeedbackStore

EMBEDDINGS = DeterministicFakeEmbedding(size=8)
QUESTION = "How long does a refund take?"
CHUNKS = [Document(f"Text {at}.", id=f"c{at}", metadata={"source": f"{at}.md"}) for at in range(9)]


class Standard(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _parts(self, vector_store, tmp_path):
        self._vector_store = vector_store
        with FeedbackStore(f"sqlite:///{tmp_path}/f.db", embeddings=EMBEDDINGS) as self._store:
            yield

    @property
    def retriever_constructor(self):
        return FeedbackRetriever

    @property
    def retriever_constructor_params(self):
        return {
            "base_retriever": self._vector_store.as_retriever(),
            "store": self._store,
            "resolve": self._vector_store.get_by_ids,
        }

    @property
    def retriever_query_example(self):
        return QUESTION

    async def test_a_rating_moves_a_chunk_and_survives_resolve(self, retriever):
        store = self._store
        last = retriever.invoke(QUESTION, k=9)[-1]
        for number in range(4):
            found = retriever.invoke(QUESTION, {"metadata": {"user_id": f"u{number}"}}, k=9)
            store.rate(trace_id_of(found), 5, target=last.id)
        assert retriever.invoke(QUESTION)[0].id == last.id
        assert (await retriever.ainvoke(QUESTION))[0].id == last.id
        # And so where the base gives too few to hold it.
        narrow = FeedbackRetriever(**self.retriever_constructor_params, k=2, fetch_k=2)
        first = narrow.invoke(QUESTION)[0]
        assert (first.id, first.metadata["feedback"]["origin"]) == (last.id, "injected")
        assert first.page_content == last.page_content

    async def test_a_pin_holds_until_its_text_changes(self, retriever):
        store, kept = self._store, self._vector_store
        last = retriever.invoke(QUESTION, k=9)[-1]
        store.pin(QUESTION, last.id)
        narrow = FeedbackRetriever(**self.retriever_constructor_params, k=2, fetch_k=2)
        for found in (narrow.invoke(QUESTION), await narrow.ainvoke(QUESTION)):
            assert (found[0].id, found[0].metadata["feedback"]["origin"]) == (last.id, "pinned")
        kept.delete([last.id])
        assert last.id not in {one.id for one in narrow.invoke(QUESTION)}
        kept.add_documents([Document("An edited text.", id=last.id)])
        found = retriever.invoke(QUESTION, k=9)
        edited = [one for one in found if one.id == last.id]
        assert [one.page_content for one in edited] == ["An edited text."]
        assert edited[0].metadata["feedback"]["origin"] == "base"


class TestOverInMemory(Standard):
    @pytest.fixture
    def vector_store(self):
        made = InMemoryVectorStore(EMBEDDINGS)
        made.add_documents(CHUNKS)
        return made


class TestOverFaiss(Standard):
    @pytest.fixture
    def vector_store(self):
        pytest.importorskip("faiss")
        community = pytest.importorskip("langchain_community.vectorstores")
        return community.FAISS.from_documents(CHUNKS, EMBEDDINGS)


class TestOverPGVector(Standard):
    @pytest.fixture
    def vector_store(self, postgres_url):
        postgres = pytest.importorskip("langchain_postgres")
        engine = postgres.PGEngine.from_connection_string(postgres_url)
        # Its ids are UUIDs unless it is told otherwise.
        id_column = postgres.Column("langchain_id", "TEXT", nullable=False)
        engine.init_vectorstore_table("chunks", 8, id_column=id_column)
        made = postgres.PGVectorStore.create_sync(engine, EMBEDDINGS, "chunks")
        made.add_documents(CHUNKS)
        yield made
        engine._run_as_sync(engine.close())


class TestOverPGVectorWithUuids(Standard):
    """Its columns as they are by default: any other id than a UUID fails the whole request."""

    @pytest.fixture
    def vector_store(self, postgres_url):
        postgres = pytest.importorskip("langchain_postgres")
        engine = postgres.PGEngine.from_connection_string(postgres_url)
        engine.init_vectorstore_table("by_uuid", 8)
        made = postgres.PGVectorStore.create_sync(engine, EMBEDDINGS, "by_uuid")
        made.add_documents(
            [
                chunk.model_copy(update={"id": str(uuid5(NAMESPACE_URL, str(chunk.id)))})
                for chunk in CHUNKS
            ]
        )
        yield made
        engine._run_as_sync(engine.close())


class TestOverTheOlderPGVector(Standard):
    """It is either sync or async; a function over the sync one serves both."""

    @pytest.fixture
    def vector_store(self, postgres_url):
        postgres = pytest.importorskip("langchain_postgres")
        made = postgres.PGVector(EMBEDDINGS, connection=postgres_url, use_jsonb=True)
        made.add_documents(CHUNKS)
        yield made
        made._engine.dispose()

    @property
    def retriever_constructor_params(self):
        def search(query, k=4):
            return self._vector_store.similarity_search(query, k=k)

        return super().retriever_constructor_params | {"base_retriever": RunnableLambda(search)}
