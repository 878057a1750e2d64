"""LangChain's standard suite for the retrievers that compare two others."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_feedback import FeedbackRetriever
from langchain_feedback.loop.experiments import start_experiment
from langchain_feedback.retrievers.interleaved import InterleavedRetriever
from langchain_feedback.retrievers.split import SplitRetriever
from langchain_feedback.store.feedback_store import FeedbackStore

EMBEDDINGS = DeterministicFakeEmbedding(size=8)
CHUNKS = [Document(f"Text {at}.", id=f"c{at}", metadata={"source": f"{at}.md"}) for at in range(9)]


class Standard(RetrieversIntegrationTests):
    kind = "interleave"

    @pytest.fixture(autouse=True)
    def _parts(self, tmp_path):
        index = InMemoryVectorStore(EMBEDDINGS)
        index.add_documents(CHUNKS)
        path = f"sqlite:///{tmp_path}/f.db"
        with FeedbackStore(path, embeddings=EMBEDDINGS, timeout_s=20) as self._store:
            start_experiment(self._store, "e", self.kind)
            base = index.as_retriever()
            self._sides = base, FeedbackRetriever(base_retriever=base, store=self._store)
            yield

    @property
    def retriever_constructor_params(self):
        a, b = self._sides
        return {"a": a, "b": b, "store": self._store, "experiment": "e"}

    @property
    def retriever_query_example(self):
        return "How long does a refund take?"


class TestInterleaved(Standard):
    @property
    def retriever_constructor(self):
        return InterleavedRetriever


class TestInterleavedTheOtherWayRound(TestInterleaved):
    @property
    def retriever_constructor_params(self):
        b, a = self._sides
        return {"a": a, "b": b, "store": self._store, "experiment": "e"}


class TestInterleavedWithoutAnExperiment(TestInterleaved):
    @property
    def retriever_constructor_params(self):
        a, b = self._sides
        return {"a": a, "b": b, "store": self._store}


class TestSplit(Standard):
    kind = "ab"

    @property
    def retriever_constructor(self):
        return SplitRetriever
