"""Which options reach which base: found by reading signatures, never by trying."""

import functools
from typing import Any

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField, RunnableLambda, chain
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_feedback import DartboardRetriever, FeedbackRetriever
from langchain_feedback.local import TfidfRetriever
from tests.fakes import ListRetriever
from tests.unit_tests.retrievers.feedback_kit import REFUND, chunks, ids, marks, run


class SyncOnly(BaseRetriever):
    """Its async hook is LangChain's own, which takes no options."""

    asked: list = []  # noqa: RUF012 - Pydantic copies it

    def _get_relevant_documents(self, query, *, run_manager, k=4, filter=None):  # noqa: A002
        self.asked.append((k, filter))
        return chunks(40)[:k]


class TakesNothing(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return chunks(7)


class OldStyle(BaseRetriever):
    def _get_relevant_documents(self, query):
        return chunks(7)


class TakesAnything(BaseRetriever):
    """What it does with unnamed options nobody knows."""

    def _get_relevant_documents(self, query, *, run_manager, **kwargs):
        assert "k" not in kwargs
        return chunks(7)


class Diverse(BaseRetriever):
    """It names `k` itself, whatever its own base takes, and hands everything else on."""

    base_retriever: Any

    def _get_relevant_documents(self, query, *, run_manager, k=4, **options):
        return self.base_retriever.invoke(query, **options)[:k]


class HandsOn(BaseRetriever):
    """A wrapper with a sync hook only, over a base with both."""

    base_retriever: Any

    def _get_relevant_documents(self, query, *, run_manager, **options):
        return self.base_retriever.invoke(query, **options)


class Keep(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        return documents


def index(**settings):
    made = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
    made.add_documents(chunks(40))
    return made.as_retriever(**settings)


def by_k(query, k=4):
    return chunks(40)[:k]


def by_nothing(query):
    return chunks(7)


def k_is_the_question(k):
    return chunks(7)


def anything(query, **options):
    assert "k" not in options
    return chunks(7)


async def async_by_k(query, k=4):
    return chunks(40)[:k]


class Searcher:
    def __call__(self, query, *, k=4):
        return chunks(40)[:k]


TAKES_K = {
    "a vector store": index,
    "a vector store with its own k": lambda: index(search_kwargs={"k": 3}),
    "by MMR": lambda: index(search_type="mmr", search_kwargs={"fetch_k": 40}),
    "a k parameter": lambda: ListRetriever(documents=chunks(40)),
    "a sync hook only": SyncOnly,
    "our word search": lambda: TfidfRetriever.from_documents(
        [Document(f"refund {at}", id=f"c{at}") for at in range(40)]
    ),
    "a function": lambda: RunnableLambda(by_k),
    "a method": lambda: RunnableLambda(Searcher().__call__),
    "a partial function": lambda: RunnableLambda(functools.partial(by_k, k=3)),
    "a decorated function": lambda: chain(by_k),
    "a binding": lambda: RunnableLambda(by_k).bind(k=3),
    "a binding of a vector store": lambda: index().bind(k=3).with_config(tags=["x"]),
    "with retries": lambda: index().with_retry(stop_after_attempt=2),
    "with fallbacks": lambda: index().with_fallbacks([ListRetriever(documents=chunks(40))]),
    "with configurable fields": lambda: index().configurable_fields(
        search_kwargs=ConfigurableField("search")
    ),
    "with alternatives": lambda: index().configurable_alternatives(
        ConfigurableField("which"), other=ListRetriever(documents=chunks(40))
    ),
    "a sequence": lambda: RunnableLambda(by_k) | RunnableLambda(lambda found: found),
    "a wrapper that names k itself": lambda: Diverse(
        base_retriever=RunnableLambda(lambda query: chunks(40))
    ),
    "a wrapper with a sync hook only": lambda: HandsOn(base_retriever=index()),
    "a wrapper that hands it on": lambda: ContextualCompressionRetriever(
        base_compressor=Keep(), base_retriever=index()
    ),
}
TAKES_NONE = {
    "no k parameter": TakesNothing,
    "the old signature": OldStyle,
    "unnamed options": TakesAnything,
    "a function without k": lambda: RunnableLambda(by_nothing),
    "a function whose question is named k": lambda: RunnableLambda(k_is_the_question),
    "a function with unnamed options": lambda: RunnableLambda(anything),
    "a binding of such": lambda: TakesNothing().with_config(tags=["x"]),
    "fallbacks of which one takes none": lambda: index(search_kwargs={"k": 7}).with_fallbacks(
        [TakesNothing()]
    ),
    "alternatives of which one takes none": lambda: TakesNothing().configurable_alternatives(
        ConfigurableField("which"), other=index()
    ),
    "a sequence whose first step takes none": lambda: (
        RunnableLambda(lambda query: query) | index(search_kwargs={"k": 7})
    ),
    "an ensemble": lambda: EnsembleRetriever(retrievers=[TakesNothing()]),
    "a wrapper around such": lambda: ContextualCompressionRetriever(
        base_compressor=Keep(), base_retriever=TakesNothing()
    ),
}
# Retries of a retriever are a binding of it.
TAKES_K["a retriever with retries in a binding"] = lambda: (
    SyncOnly().with_retry(stop_after_attempt=2).bind(k=3)
)


@pytest.mark.parametrize("name", TAKES_K)
async def test_a_base_that_takes_k_is_asked_for_the_pool(store, name):
    retriever = FeedbackRetriever(base_retriever=TAKES_K[name](), store=store, k=24, fetch_k=30)
    found = retriever.invoke("refund")
    assert len(found) == 24
    assert ids(await retriever.ainvoke("refund")) == ids(found)


@pytest.mark.parametrize("name", TAKES_NONE)
async def test_a_base_that_takes_no_k_is_asked_as_it_is(store, name):
    retriever = FeedbackRetriever(base_retriever=TAKES_NONE[name](), store=store, k=24)
    assert len(retriever.invoke(REFUND)) == 7
    assert len(await retriever.ainvoke(REFUND)) == 7


async def test_base_k_arg_none_never_passes_it(store):
    retriever = FeedbackRetriever(
        base_retriever=RunnableLambda(by_k), store=store, base_k_arg=None, k=24
    )
    assert len(retriever.invoke(REFUND)) == len(await retriever.ainvoke(REFUND)) == 4


async def test_a_base_that_is_async_only(store):
    retriever = FeedbackRetriever(base_retriever=RunnableLambda(async_by_k), store=store, k=24)
    assert len(await retriever.ainvoke(REFUND)) == 24


async def test_a22_options_reach_a_base_with_a_sync_hook_only(store):
    base = SyncOnly()
    retriever = FeedbackRetriever(base_retriever=base, store=store)
    retriever.invoke(REFUND, filter="a")
    await retriever.ainvoke(REFUND, filter="a")
    await FeedbackRetriever(base_retriever=base.bind(filter="b"), store=store).ainvoke(REFUND)
    assert base.asked == [(20, "a"), (20, "a"), (20, "b")]


async def test_a_dartboard_retriever_is_asked_for_the_pool_and_keeps_its_notes(store):
    embeddings = DeterministicFakeEmbedding(size=4)
    made = InMemoryVectorStore(embeddings)
    made.add_documents([*chunks(40), *[Document("Text 0.", id=f"d{at}") for at in range(3)]])
    texts = RunnableLambda(lambda query: made.similarity_search(query, k=43))
    base = DartboardRetriever(base_retriever=texts, embeddings=embeddings, k=3)
    retriever = FeedbackRetriever(base_retriever=base, store=store, k=43, fetch_k=30)
    for found in (retriever.invoke(REFUND), await retriever.ainvoke(REFUND)):
        assert len(found) == 30
        notes = {one.page_content: marks(one)["duplicates"] for one in found}
        assert len(notes["Text 0."]) == 3
        assert marks(found[0])["trace_id"]


async def test_a_feedback_retriever_may_be_the_base(store):
    inner = FeedbackRetriever(base_retriever=index(), store=store.scoped("inner"))
    retriever = FeedbackRetriever(base_retriever=inner, store=store, k=24)
    assert len(retriever.invoke(REFUND, run(feedback_trace_id="one"))) == 24
    assert len(await retriever.ainvoke(REFUND)) == 24
