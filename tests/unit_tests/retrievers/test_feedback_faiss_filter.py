"""FAISS filters what a search found, 20 documents by default: the search is made wide enough."""

import pytest
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from langchain_feedback import FeedbackRetriever, trace_id_of
from tests.unit_tests.retrievers.feedback_kit import REFUND

NUMBER = 1_500
RARE = {"topic": "rare"}


class Watched(FAISS):
    """Notes what each search was asked for."""

    def similarity_search(self, query, k=4, filter=None, fetch_k=None, **kwargs):  # noqa: A002
        self.__dict__.setdefault("asked", []).append((k, fetch_k))
        fetched = {} if fetch_k is None else {"fetch_k": fetch_k}
        return super().similarity_search(query, k=k, filter=filter, **fetched, **kwargs)

    async def asimilarity_search(self, query, k=4, **kwargs):
        return self.similarity_search(query, k=k, **kwargs)


@pytest.fixture
def index():
    """The six rare ones are those that are farthest from the question."""
    vectors = DeterministicFakeEmbedding(size=8)
    documents = [Document(f"Text {at}.", id=f"c{at}") for at in range(NUMBER)]
    index = Watched.from_documents(documents, vectors)
    for one in FAISS.similarity_search(index, REFUND, k=NUMBER)[-6:]:
        one.metadata["topic"] = "rare"
    return index


def over(base, store, **settings):
    return FeedbackRetriever(base_retriever=base, store=store, **settings)


async def test_a_filter_of_faiss_is_not_cut_short(index, store):
    retriever = over(index.as_retriever(), store)
    bound = over(index.as_retriever(search_kwargs={"filter": RARE}), store)
    for found in (
        retriever.invoke(REFUND, filter=RARE),
        await retriever.ainvoke(REFUND, filter=RARE),
        retriever.invoke(REFUND, filter=lambda metadata: metadata.get("topic") == "rare"),
        bound.invoke(REFUND),
        await bound.ainvoke(REFUND),
    ):
        assert len(found) == 4
        assert all(one.metadata["topic"] == "rare" for one in found)
        assert store.trace(trace_id_of(found)).searches == {1: REFUND}
    assert len(retriever.invoke(REFUND, filter=RARE, k=10)) == 6
    assert retriever.invoke(REFUND, filter={"topic": "none"}) == []


def test_it_is_asked_again_only_while_the_filter_leaves_too_few(index, store):
    retriever = over(index.as_retriever(), store)
    retriever.invoke(REFUND, filter=lambda metadata: "topic" not in metadata)
    assert index.asked == [(20, 200)]
    index.asked.clear()
    retriever.invoke(REFUND, filter={"topic": "none"})
    assert [k for k, _ in index.asked] == [20] * len(index.asked)
    fetched = [fetch_k for _, fetch_k in index.asked]
    assert fetched[0] == 200
    assert fetched[-2] < NUMBER <= fetched[-1]


@pytest.mark.parametrize(
    ("search_kwargs", "options", "asked"),
    [
        ({}, {}, (20, None)),
        ({}, {"filter": None}, (20, None)),
        ({}, {"filter": RARE, "fetch_k": 30}, (20, 30)),
        ({"fetch_k": 30}, {"filter": RARE}, (20, 30)),
        ({"filter": RARE, "fetch_k": 30}, {}, (20, 30)),
    ],
)
def test_without_a_filter_or_with_a_fetch_k_of_yours_all_is_as_you_say(
    index, store, search_kwargs, options, asked
):
    base = index.as_retriever(search_kwargs=search_kwargs)
    over(base, store).invoke(REFUND, **options)
    assert index.asked == [asked]


def test_other_searches_than_by_similarity_keep_their_own_fetch_k(index, store):
    seen = []
    index.max_marginal_relevance_search = lambda query, **options: seen.append(options) or []
    over(index.as_retriever(search_type="mmr"), store).invoke(REFUND, filter=RARE)
    assert seen == [{"k": 20, "filter": RARE}]


def test_a_pool_size_of_yours_is_kept(index, store):
    retriever = over(index.as_retriever(), store, fetch_k=5)
    found = retriever.invoke(REFUND, filter=RARE, k=6)
    assert len(found) == 5
    assert {k for k, _ in index.asked} == {5}
    assert len(over(index.as_retriever(), store, base_k_arg=None).invoke(REFUND)) == 4
