"""The graph keeps what each answer rests on and how it went, under one trace."""

import logging
import time

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
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
    given = {"metadata": {"feedback_trace_id": new_trace_id()}}
    with blockbuster_ctx("langchain_feedback"):
        result = await graph.ainvoke({"question": QUESTION}, given)
    assert result["trace_id"] == given["metadata"]["feedback_trace_id"]
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
    assert trace.reason == "none_relevant"
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


OTHER = "And how long does it take?"


@pytest.mark.parametrize("found_later", [True, False])
async def test_a14_a_repeated_id_never_mixes_two_questions(store, retriever, caplog, found_later):
    bare = getattr(retriever, "base_retriever", retriever)
    bare.by_query = {} if found_later else {OTHER: []}
    graph = create_reliable_rag(
        retriever, model(), store=store, max_rewrites=0, checkpointer=InMemorySaver()
    )
    given = new_trace_id()
    config = {"configurable": {"thread_id": "1"}, "metadata": {"feedback_trace_id": given}}
    first = graph.invoke({"question": QUESTION}, config)
    caplog.clear()
    # The first event tells the id already, for a rating that cannot wait.
    events = list(graph.stream({"question": OTHER}, config, stream_mode="updates"))
    second, told = graph.get_state(config).values, events[0]["begin"]["trace_id"]
    third = await graph.ainvoke({"question": OTHER}, config)
    assert first["trace_id"] == given
    assert len({given, told, third["trace_id"]}) == 3
    assert told == second["trace_id"]
    assert [line.name for line in caplog.records] == ["langchain_feedback.claims"] * 2
    for state, question in ((first, QUESTION), (second, OTHER), (third, OTHER)):
        trace = store.trace(state["trace_id"])
        assert (trace.question, trace.answer) == (question, state["answer"])
        assert trace.status == ("answered" if question == QUESTION or found_later else "abstained")


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a14_of_a_batch_with_one_id_exactly_one_keeps_it(store, retriever, asynchronous):
    graph = create_reliable_rag(retriever, model(), store=store)
    given = new_trace_id()
    questions = [QUESTION, "How long does a refund take me?", QUESTION, "How long, a refund?"]
    asked = [{"question": question} for question in questions]
    config = {"metadata": {"feedback_trace_id": given, "user_id": "ann"}}
    results = await graph.abatch(asked, config) if asynchronous else graph.batch(asked, config)
    made = [result["trace_id"] for result in results]
    assert (len(set(made)), made.count(given)) == (4, 1)
    for question, result in zip(questions, results, strict=True):
        trace = store.trace(result["trace_id"])
        assert (trace.question, trace.answer) == (question, result["answer"])
        assert graded(trace) == {"refund": ("yes", True, True), "keys": ("no", False, False)}


@pytest.mark.parametrize("user_id", ["ann", 7, "a\0b"])
def test_a14_the_given_id_is_kept_where_it_is_new(store, retriever, user_id, caplog):
    graph = create_reliable_rag(retriever, model(), store=store)
    given = new_trace_id()
    config = {"metadata": {"feedback_trace_id": given, "user_id": user_id}}
    assert graph.invoke({"question": QUESTION}, config)["trace_id"] == given
    assert store.trace(given).status == "answered"
    assert not caplog.records


def test_a14_a_nodes_graph_that_never_begins_learns_the_fresh_id_of_an_empty_result(store):
    retriever = FeedbackRetriever(base_retriever=ListRetriever(documents=[]), store=store)
    node = nodes.retrieve(retriever.bind(k=2))
    first = node({"question": QUESTION, "trace_id": "t"})
    second = node({"question": OTHER, "trace_id": "t"})
    assert first.get("trace_id", "t") == "t"
    assert second["trace_id"] != "t"
    state = {"question": OTHER, "status": "abstained", "answer": "No."} | second
    nodes.record_answer(store=store)(state)
    assert store.trace(second["trace_id"]).answer == "No."
    assert store.trace("t").answer is None


@pytest.mark.parametrize("grade_all", [True, False])
def test_a_follow_up_in_a_chat_is_recorded_under_the_question_it_stands_for(
    store, grade_all, caplog
):
    documents = [REFUND]
    retriever = FeedbackRetriever(base_retriever=ListRetriever(documents=documents), store=store)
    condensed = "How long does a refund of a plan take?"
    graph = create_reliable_rag(
        retriever,
        model(condense=condensed, rewrite="When is a plan paid back?"),
        messages=True,
        max_rewrites=2,
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [("user", QUESTION)]}, config)
    documents[:] = documents if grade_all else []
    retriever.base_retriever.documents = documents
    result = graph.invoke({"messages": [("user", "And of a plan?")]}, config)
    trace = store.trace(result["trace_id"])
    assert trace.question == condensed
    assert trace.status == result["status"] == ("answered" if grade_all else "abstained")
    assert trace.answer == result["answer"]
    assert len(trace.searches) == (1 if grade_all else 2)
    assert not caplog.records


@pytest.mark.parametrize("odd", ["good", ["a"], None, 7, {"trace_id": ["t"]}])
def test_what_an_index_keeps_under_our_key_costs_nothing(store, odd):
    documents = [one.model_copy(update={"metadata": {"feedback": odd}}) for one in (KEYS, REFUND)]
    for retriever in (
        ListRetriever(documents=documents),
        FeedbackRetriever(base_retriever=ListRetriever(documents=documents), store=store),
    ):
        result = create_reliable_rag(retriever, model(), store=store).invoke(
            {"question": QUESTION}
        )
        assert store.trace(result["trace_id"]).status == "answered"


def test_fallbacks_that_record_nothing_keep_the_questions_id(store):
    def fails(_):
        msg = "the index is away"
        raise ConnectionError(msg)

    learning = FeedbackRetriever(base_retriever=RunnableLambda(fails), store=store)
    graph = create_reliable_rag(learning.with_fallbacks([base()]), model(), store=store)
    result = graph.invoke({"question": QUESTION})
    assert store.trace(result["trace_id"]).status == "answered"


ODD_STATES = {
    "no question": {"question": ""},
    "documents that are none": {"documents": ["text", None], "kept": ["text"]},
    "a grade without a chunk": {"grades": [{"verdict": "yes"}]},
    "a grade that is none": {"documents": [REFUND], "grades": [
        {"chunk_id": "refund", "verdict": "perhaps"}, {"chunk_id": ["refund"], "verdict": "no"},
    ]},
    "rewrites that are no number": {"rewrites": "two"},
    "a trace id of another type": {"trace_id": 7},
    "a trace id that no database holds": {"trace_id": "a\0\ud800"},
    "grounded by another word": {"grounded": "yes"},
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_STATES)
async def test_an_odd_state_costs_the_record_at_most_never_the_answer(store, name):
    plain_state = {
        "question": QUESTION,
        "trace_id": "t1",
        "draft": "14 days.",
        "grounded": True,
    }
    node = nodes.record_answer(store=store)
    assert node(plain_state | ODD_STATES[name])["answer"] == "14 days."
    assert (await node.ainvoke(plain_state | ODD_STATES[name]))["answer"] == "14 days."


def test_a_store_that_raises_what_it_should_not_costs_the_record_only(store, monkeypatch, caplog):
    def broken(*_, **__):
        msg = "a bug"
        raise RuntimeError(msg)

    monkeypatch.setattr(store, "update_soon", broken)
    result = create_reliable_rag(base(), model(), store=store).invoke({"question": QUESTION})
    assert result["status"] == "answered"
    assert result["trace_id"] in caplog.text


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
