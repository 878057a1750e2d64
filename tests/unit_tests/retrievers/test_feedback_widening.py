"""Widening: another search is asked too where answers to such questions failed."""

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_feedback import FeedbackRetriever, trace_id_of
from langchain_feedback.local import TfidfRetriever
from langchain_feedback.ranking.policies import AverageRating
from tests.fakes import ListRetriever, Recorder
from tests.unit_tests.retrievers.feedback_kit import (
    MONEY,
    REFUND,
    SERVER,
    chunks,
    ids,
    marks,
    run,
    wrap,
)

ELSEWHERE = [
    Document("Elsewhere.", id="e0", metadata={"source": "e0.md"}),
    Document("Text 5.", id="c5", metadata={"source": "5.md"}),
    Document("Text 4.", metadata={"source": "4.md"}),
]


def disappoint(store, question=REFUND, times=2, rating=1):
    """Let answers to a question fail, without any chunk to blame."""
    for at in range(times):
        asked = wrap(store, []).invoke(question, run(feedback_trace_id=f"{question}{at}{rating}"))
        assert asked == []
        store.rate(f"{question}{at}{rating}", rating)


def wide(store, documents=None, fallback=None, **settings):
    fallback = ListRetriever(documents=ELSEWHERE) if fallback is None else fallback
    return wrap(store, documents, fallback_retriever=fallback, **{"k": 9} | settings)


async def test_where_answers_failed_both_are_asked_for_a_doubled_pool(store):
    disappoint(store)
    retriever = wide(store, fetch_k=6)
    found = retriever.invoke(REFUND)
    assert retriever.base_retriever.queries[-1][1] == 12
    assert retriever.fallback_retriever.queries[-1][1] == 12
    # In both lists: c5 and c4; then by rank, the base's first of equal ones.
    assert ids(found) == ["c5", "c4", "c0", "e0", "c1", "c2", "c3"]
    shown = {one.id: (marks(one)["origin"], marks(one)["base_rank"]) for one in found}
    assert shown["e0"] == ("widened", None)
    assert shown["c5"] == ("base", 5)
    assert ids(await retriever.ainvoke(REFUND)) == ids(found)
    record = store.trace(trace_id_of(found))
    assert [chunk.origin for chunk in record.chunks].count("widened") == 1


@pytest.mark.parametrize(
    ("question", "votes", "widens"),
    [
        (REFUND, [(1, 1)], True),
        (REFUND, [(2, 1), (1, 5)], False),
        (REFUND, [(3, 1), (1, 5)], True),
        (REFUND, [(1, 5)], False),
        (REFUND, [(4, 3)], False),
        (REFUND, [], False),
        (MONEY, [(1, 1)], True),
        (SERVER, [(9, 1)], False),
    ],
)
def test_it_takes_failures_of_this_question_or_of_similar_ones(store, question, votes, widens):
    for times, rating in votes:
        disappoint(store, REFUND, times, rating)
    retriever = wide(store)
    retriever.invoke(question)
    assert bool(retriever.fallback_retriever.queries) == widens


def test_a_similar_question_is_worth_its_kernel_weight(store, embeddings):
    embeddings.degrees["far"] = 24  # cosine .914: weight .14
    disappoint(store, times=2)
    retriever = wide(store)
    retriever.invoke("far")
    assert not retriever.fallback_retriever.queries


def test_the_classic_rule_widens_for_the_identical_question(store):
    disappoint(store)
    retriever = wide(store, policy=AverageRating())
    retriever.invoke(MONEY)
    assert not retriever.fallback_retriever.queries
    retriever.invoke(REFUND)
    assert retriever.fallback_retriever.queries


def test_the_pool_is_cut_to_twice_its_size(store):
    disappoint(store)
    retriever = wide(
        store,
        chunks(9),
        RunnableLambda(lambda _: chunks(30, start=50)),
        fetch_k=5,
        k=30,
    )
    found = retriever.invoke(REFUND)
    assert len(found) == 10
    assert [marks(one)["origin"] for one in found] == ["base", "widened"] * 5


async def test_a_fallback_that_fails_costs_the_widening_only(store, caplog):
    disappoint(store)

    def broken(_):
        msg = "no such host"
        raise OSError(msg)

    retriever = wide(store, fallback=RunnableLambda(broken), k=3)
    for _ in range(2):
        assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
        assert ids(await retriever.ainvoke(REFUND)) == ["c0", "c1", "c2"]
    (line,) = caplog.records
    assert "no such host" in line.getMessage()


def test_it_runs_below_the_retriever(store):
    disappoint(store)
    recorder = Recorder()
    wide(store).invoke(REFUND, {"callbacks": [recorder], "tags": ["mine"]})
    assert ["mine" in tags for _, tags, _ in recorder.named("retriever")] == [True] * 3


class TestOptionsOfTheCall:
    """A fallback that does not take a filter might show what the filter hides."""

    def base(self):
        def search(query, k=None, filter=None):  # noqa: A002
            return chunks()[:k]

        return RunnableLambda(search)

    def wrapped(self, store, fallback, **settings):
        return FeedbackRetriever(
            base_retriever=self.base(), store=store, fallback_retriever=fallback, k=20, **settings
        )

    def test_a_fallback_that_takes_them_gets_them(self, store):
        disappoint(store)
        seen = []

        def search(query, filter=None):  # noqa: A002
            seen.append(filter)
            return ELSEWHERE

        found = self.wrapped(store, RunnableLambda(search)).invoke(REFUND, filter="a")
        assert seen == ["a"]
        assert "e0" in ids(found)

    def test_one_that_does_not_is_left_out(self, store):
        disappoint(store)
        words = TfidfRetriever.from_documents([Document("A refund elsewhere.", id="e0")])
        assert "e0" in ids(self.wrapped(store, words).invoke(REFUND))
        assert "e0" not in ids(self.wrapped(store, words).invoke(REFUND, filter="a"))

    def test_unless_allow_decides(self, store):
        disappoint(store)
        words = TfidfRetriever.from_documents(
            [Document("A refund.", id="e0"), Document("A refund too.", id="e1")]
        )
        retriever = self.wrapped(store, words, allow=lambda document, _: document.id == "e1")
        found = ids(retriever.invoke(REFUND, filter="a"))
        assert ("e0" in found, "e1" in found) == (False, True)
