"""The graph keeps what each answer rests on and how it went, under one trace."""

import logging
import time

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver

from langchain_feedback import (
    FeedbackRetriever,
    FeedbackStore,
    create_reliable_rag,
    new_trace_id,
    nodes,
)
from langchain_feedback.documents import chunk_key
from tests.fakes import Asked, FakeChatModel, ListRetriever, claims, replies

QUESTION = "How long does a refund take?"
REFUND = Document("Refunds take 14 days.", id="refund", metadata={"source": "faq.md"})
KEYS = Document("Keys rotate every 90 days.", id="keys", metadata={"source": "faq.md"})


@pytest.fixture
def store(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}", timeout_s=5) as opened:
        yield opened


def base():
    return ListRetriever(documents=[KEYS, REFUND])


def grading(asked: Asked):
    """Only the chunk on refunds is relevant."""
    grades = [
        {"slot": slot, "reason": "read", "relevant": "Refunds" in asked.chunk(slot)}
        for slot in asked.slots
    ]
    return {"grades": grades}


def model(**by_role):
    return FakeChatModel(reply=replies(**{"grade": grading, **by_role}))


@pytest.fixture(params=["plain retriever", "feedback retriever"])
def retriever(request, store):
    if request.param == "plain retriever":
        return base()
    return FeedbackRetriever(base_retriever=base(), store=store)


def graded(trace):
    return {chunk.chunk_id: (chunk.grade, chunk.in_prompt, chunk.cited) for chunk in trace.chunks}


def test_what_was_kept_cited_and_answered_is_recorded_under_one_trace(store, retriever):
    graph = create_reliable_rag(retriever, model(), store=store)
    config = {"metadata": {"user_id": "ann", "session_id": "s1"}}
    result = graph.invoke({"question": QUESTION}, config)
    trace = store.trace(result["trace_id"])
    assert (trace.question, trace.actor, trace.session_id) == (QUESTION, "ann", "s1")
    assert (trace.answer, trace.status, trace.grounded) == (result["answer"], "answered", True)
    assert graded(trace) == {"refund": ("yes", True, True), "keys": ("no", False, False)}
    store.rate(result["trace_id"], 5)
    [cell] = store.evidence_for(QUESTION).cells
    assert (cell.key, cell.positive) == (store.cells_of([REFUND])[0], 1)


async def test_async_keeps_the_same_and_never_blocks(store, retriever):
    graph = create_reliable_rag(retriever, model(), store=store)
    store.setup()
    with blockbuster_ctx("langchain_feedback"):
        result = await graph.ainvoke({"question": QUESTION})
    trace = await store.atrace(result["trace_id"])
    assert graded(trace) == {"refund": ("yes", True, True), "keys": ("no", False, False)}


def test_a14_the_trace_id_is_in_the_first_event_and_can_be_rated_after_the_last(store, retriever):
    graph = create_reliable_rag(retriever, model(), store=store)
    events = graph.stream({"question": QUESTION}, stream_mode="updates")
    trace_id = next(iter(events))["begin"]["trace_id"]
    early = store.rate(trace_id, 1, pending=True)
    list(events)
    assert store.rate(trace_id, 5)
    store.retract(early)
    assert store.trace(trace_id).status == "answered"
    assert [c.positive for c in store.evidence_for(QUESTION).cells] == [1]


def test_an_abstention_is_recorded_with_its_grades_and_credits_nobody(store, retriever):
    graph = create_reliable_rag(
        retriever, model(grade=lambda a: {"grades": [
            {"slot": slot, "reason": "no", "relevant": False} for slot in a.slots
        ]}), store=store, max_rewrites=0,
    )  # fmt: skip
    result = graph.invoke({"question": QUESTION})
    trace = store.trace(result["trace_id"])
    assert (trace.status, trace.grounded, trace.answer) == ("abstained", None, result["answer"])
    assert graded(trace) == {"refund": ("no", False, None), "keys": ("no", False, None)}
    store.rate(result["trace_id"], 1)
    assert store.evidence_for(QUESTION).cells == ()
    assert store.evidence_for(QUESTION).questions[0].negative == 1


def test_an_ungrounded_answer_is_the_writers_failure_not_its_sources(store, retriever):
    def verify(asked):
        return claims(asked.answer, asked.slots[0], "no such quote", supported=False)

    graph = create_reliable_rag(retriever, model(verify=verify), store=store)
    result = graph.invoke({"question": QUESTION})
    trace = store.trace(result["trace_id"])
    assert (trace.status, trace.grounded) == ("abstained", False)
    store.rate(result["trace_id"], 1)
    assert store.evidence_for(QUESTION).cells == ()


def test_a_rewritten_search_joins_the_trace_and_credit_goes_to_the_users_question(store):
    rewritten = "When is money returned?"
    by_query = {rewritten: [REFUND], QUESTION: [KEYS]}
    retriever = FeedbackRetriever(
        base_retriever=ListRetriever(documents=[], by_query=by_query), store=store
    )
    graph = create_reliable_rag(retriever, model(rewrite=rewritten))
    result = graph.invoke({"question": QUESTION})
    assert result["status"] == "answered"
    trace = store.trace(result["trace_id"])
    assert trace.searches == {1: QUESTION, 2: rewritten}
    assert trace.question == QUESTION
    store.rate(result["trace_id"], 5)
    assert [c.key for c in store.evidence_for(QUESTION).cells] == store.cells_of([REFUND])
    assert store.evidence_for(rewritten).cells == ()


def test_a_second_question_of_a_thread_has_its_own_trace_though_the_caller_repeats_the_id(store):
    retriever = FeedbackRetriever(base_retriever=base(), store=store)
    graph = create_reliable_rag(retriever, model(), checkpointer=InMemorySaver())
    given = new_trace_id()
    config = {"configurable": {"thread_id": "1"}, "metadata": {"feedback_trace_id": given}}
    first = graph.invoke({"question": QUESTION}, config)
    second = graph.invoke({"question": "And how long does it take?"}, config)
    assert first["trace_id"] == given
    assert second["trace_id"] != given
    assert store.trace(second["trace_id"]).question == "And how long does it take?"
    assert store.trace(second["trace_id"]).status == "answered"
    assert store.trace(given).question == QUESTION
    assert store.trace(given).session_id == "1"


def test_ratings_change_the_graphs_next_retrieval(store):
    graph = create_reliable_rag(FeedbackRetriever(base_retriever=base(), store=store), model())
    first = graph.invoke({"question": QUESTION})
    assert [chunk_key(d) for d in first["documents"]] == ["keys", "refund"]
    for actor in ("ann", "bob", "eve"):
        store.rate(first["trace_id"], 5, actor=actor)
    again = graph.invoke({"question": QUESTION})
    assert [chunk_key(d) for d in again["documents"]] == ["refund", "keys"]


def test_another_store_than_the_retrievers_is_refused(store):
    other = FeedbackStore("sqlite://")
    retriever = FeedbackRetriever(base_retriever=base(), store=store)
    with pytest.raises(ValueError, match="leave it out"):
        create_reliable_rag(retriever, model(), store=other)
    with pytest.raises(ValueError, match="leave it out"):
        create_reliable_rag(retriever.bind(k=2), model(), store=other)
    create_reliable_rag(retriever, model(), store=store)


class SlowStore(FeedbackStore):
    """Writes after the answer's patience is over."""

    def _write(self, new):
        time.sleep(0.6)
        super()._write(new)


def test_a16_a_slow_store_costs_the_answer_its_patience_and_nothing_is_lost(tmp_path, caplog):
    with SlowStore(f"sqlite:///{tmp_path / 'f.db'}", timeout_s=0.1) as store:
        graph = create_reliable_rag(base(), model(), store=store)
        graph.invoke({"question": "Warm up?"})
        with caplog.at_level(logging.WARNING):
            result = graph.invoke({"question": QUESTION})
        assert result["status"] == "answered"
    with FeedbackStore(f"sqlite:///{tmp_path / 'f.db'}") as store:
        trace = store.trace(result["trace_id"])
        assert (trace.status, graded(trace)["refund"]) == ("answered", ("yes", True, True))


def test_a16_a_store_that_cannot_be_opened_costs_the_record_only(tmp_path):
    store = FeedbackStore(f"sqlite:///{tmp_path / 'no' / 'folder.db'}")
    retriever = FeedbackRetriever(base_retriever=base(), store=store)
    result = create_reliable_rag(retriever, model()).invoke({"question": QUESTION})
    assert result["status"] == "answered"


def test_record_answer_keeps_the_outcome_in_a_graph_of_ones_own(store):
    state = {
        "question": QUESTION,
        "trace_id": "t1",
        "documents": [KEYS, REFUND],
        "kept": [REFUND],
        "draft": "14 days.",
        "grounded": True,
    }
    nodes.record_answer(store=store)(state)
    trace = store.trace("t1")
    assert (trace.answer, trace.grounded) == ("14 days.", True)
    assert graded(trace) == {"keys": (None, False, None), "refund": (None, True, None)}
