"""Turns, checkpoints and stores: what an agent's memory does to grounded answers."""

import json
import logging
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from langchain.agents.middleware import SummarizationMiddleware, before_model
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of
from langchain_feedback.integrations.agents import create_feedback_retriever_tool, grounding_of
from tests.fakes import ListRetriever, claims
from tests.unit_tests.integrations.agents_kit import (
    ANSWER,
    ASKED,
    LAPTOPS,
    QUESTION,
    REFUNDS,
    REJECTED,
    agent,
    calls,
    judge,
    run,
    says,
    search_tool,
)

sync_or_async = pytest.mark.parametrize("mode", ["sync", "async"])
CONFIG = {"configurable": {"thread_id": "t"}, "metadata": {"user_id": "ann"}}


@pytest.fixture
def store(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}", timeout_s=5) as opened:
        yield opened


@pytest.fixture
def traces(store, tmp_path):
    """Return a function that says which traces there are."""

    def read():
        store.trace("none")  # waits for what is being written
        with closing(sqlite3.connect(tmp_path / "feedback.db")) as connection:
            return {row[0] for row in connection.execute("select trace_id from lcf_traces")}

    return read


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    if request.param == "memory":
        yield InMemorySaver()
        return
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite", reason="not installed")
    connection = sqlite3.connect(tmp_path / "saved.db", check_same_thread=False)
    yield sqlite.SqliteSaver(connection)
    connection.close()


def saved(saver=None):
    return {"checkpointer": saver or InMemorySaver()}


def last(state):
    return state["messages"][-1]


def ask(text):
    return {"messages": [("user", text)]}


# Turns.


@sync_or_async
async def test_only_what_was_found_in_this_turn_counts(mode):
    script = says(calls(QUESTION), ANSWER, calls("laptops", name="find"), ANSWER, ANSWER)
    verifier = judge()
    tools = [search_tool(REFUNDS), search_tool(LAPTOPS, name="find")]
    graph = agent(script, verifier, tools=tools, agent_options=saved())
    await run(graph, mode, config=CONFIG)
    state = await run(graph, mode, ask("And laptops?"), CONFIG)
    assert "Refunds" not in verifier.calls[-1].fenced("chunk-1")
    assert grounding_of(last(state))["status"] == "abstained"


@sync_or_async
async def test_with_the_threads_documents_a_follow_up_is_verified_without_a_search(mode):
    verifier = judge()
    script = says(calls(QUESTION), ANSWER, ANSWER)
    graph = agent(script, verifier, scope="thread", agent_options=saved())
    await run(graph, mode, config=CONFIG)
    state = await run(graph, mode, ask("Really?"), CONFIG)
    assert grounding_of(last(state))["grounded"] is True
    assert verifier.count("verify") == 2

    lies = agent(says(calls(QUESTION), ANSWER, REJECTED), scope="thread", agent_options=saved())
    await run(lies, mode, config=CONFIG)
    state = await run(lies, mode, ask("Really?"), CONFIG)
    assert grounding_of(last(state))["reason"] == "not_grounded"


def test_with_the_threads_documents_small_talk_passes():
    def verify(asked):
        kind = "fact" if asked.answer == ANSWER else "other"
        return claims(asked.answer, asked.slots[0], ANSWER, kind=kind)

    script = says(calls(QUESTION), ANSWER, "You are welcome!")
    graph = agent(script, judge(verify=verify), scope="thread", agent_options=saved())
    graph.invoke(ASKED, CONFIG)
    state = graph.invoke(ask("Thanks!"), CONFIG)
    assert last(state).text == "You are welcome!"
    assert grounding_of(last(state))["status"] == "unverified"


def test_a_second_turn_has_its_own_budget():
    script = says(calls(QUESTION), REJECTED, ANSWER, calls(QUESTION), REJECTED, ANSWER)
    graph = agent(script, agent_options=saved())
    assert grounding_of(last(graph.invoke(ASKED, CONFIG)))["regenerations"] == 1
    second = graph.invoke(ask("Once more?"), CONFIG)
    assert (last(second).text, grounding_of(last(second))["regenerations"]) == (ANSWER, 1)


def test_a_reminder_between_the_tools_ends_no_turn():
    @before_model
    def remind(state, runtime):
        found = isinstance(state["messages"][-1], ToolMessage)
        return {"messages": [HumanMessage("Be brief.")]} if found else None

    state = agent(says(calls(QUESTION), REJECTED, ANSWER), after=[remind]).invoke(ASKED)
    assert (last(state).text, grounding_of(last(state))["regenerations"]) == (ANSWER, 1)


def test_a_summary_of_what_came_before_is_no_answer():
    summarize = SummarizationMiddleware(
        says("Earlier: small talk."), trigger=("messages", 4), keep=("messages", 2)
    )
    script = says("Hi!", "Fine.", calls(QUESTION), REJECTED, ANSWER)
    graph = agent(script, after=[summarize], agent_options=saved())
    graph.invoke(ask("Hello!"), CONFIG)
    graph.invoke(ask("How are you?"), CONFIG)
    state = graph.invoke(ASKED, CONFIG)
    assert (last(state).text, grounding_of(last(state))["grounded"]) == (ANSWER, True)


def test_a_turn_without_any_text_of_a_user_is_judged_by_its_searches():
    grader = judge()
    picture = [{"type": "image", "url": "https://example.org/x.png"}]
    state = agent(says(calls("refund"), ANSWER), grader=grader).invoke(
        {"messages": [HumanMessage(picture)]}
    )
    assert last(state).text == ANSWER
    assert "refund" in grader.calls[0].fenced("question")


# Checkpoints.


@sync_or_async
async def test_documents_are_found_again_after_a_checkpoint(mode, saver):
    if mode == "async" and not isinstance(saver, InMemorySaver):
        pytest.skip("this saver is sync")
    options = {"checkpointer": saver, "interrupt_after": ["tools"]}
    graph = agent(says(calls(QUESTION), REJECTED, ANSWER), agent_options=options)
    stopped = await run(graph, mode, config=CONFIG)
    assert isinstance(last(stopped), ToolMessage)
    state = graph.invoke(None, CONFIG) if mode == "sync" else await graph.ainvoke(None, CONFIG)
    assert (last(state).text, grounding_of(last(state))["grounded"]) == (ANSWER, True)


def test_a_host_reads_the_trace_id_before_and_after_a_checkpoint():
    message = search_tool(REFUNDS).invoke(
        {"type": "tool_call", "id": "1", "name": "search", "args": {"query": QUESTION}}
    )
    serde = JsonPlusSerializer()
    again = serde.loads_typed(serde.dumps_typed(message))
    assert not isinstance(again.artifact[0], Document)
    assert trace_id_of(again.artifact) == trace_id_of(message.artifact)


def test_a20_answers_and_artifacts_with_numpy_metadata_come_back_equal(saver):
    scored = Document(ANSWER, id="n", metadata={"score": np.float32(0.5), "ok": np.bool_(1)})
    tools, options = [search_tool(scored)], saved(saver)
    graph = agent(says(calls(QUESTION), ANSWER), tools=tools, agent_options=options)
    state = graph.invoke(ASKED, CONFIG)
    stored = graph.get_state(CONFIG).values["messages"]
    assert grounding_of(stored[-1]) == grounding_of(last(state))
    assert stored[-1] == last(state)
    [found] = stored[2].artifact
    metadata = found["metadata"] if isinstance(found, dict) else found.metadata
    assert (metadata["score"], type(metadata["score"])) == (0.5, float)
    assert metadata["ok"] is True


def test_every_mark_on_an_answer_is_plain_json():
    state = agent(says(calls(QUESTION), ANSWER), grader=judge()).invoke(ASKED)
    assert json.loads(json.dumps(grounding_of(last(state)))) == grounding_of(last(state))


# Stores.


def fed(store, *documents, name="search"):
    retriever = FeedbackRetriever(
        base_retriever=ListRetriever(documents=[*documents]), store=store
    )
    return create_feedback_retriever_tool(retriever, name, "Searches.")


def graded(trace):
    return {chunk.chunk_id: (chunk.grade, chunk.in_prompt, chunk.cited) for chunk in trace.chunks}


def relevant(asked):
    grades = [
        {"slot": slot, "reason": "read", "relevant": "Refunds" in asked.chunk(slot)}
        for slot in asked.slots
    ]
    return {"grades": grades}


@sync_or_async
@pytest.mark.parametrize("kind", ["plain retriever", "feedback retriever"])
async def test_what_was_found_kept_cited_and_answered_is_recorded(mode, kind, store):
    plain = kind == "plain retriever"
    tools = [search_tool(LAPTOPS, REFUNDS)] if plain else [fed(store, LAPTOPS, REFUNDS)]
    options = {"store": store} if plain else {}
    model = says(calls("refund period"), REJECTED, ANSWER)
    graph = agent(model, tools=tools, grader=judge(grade=relevant), **options)
    state = await run(graph, mode, config=CONFIG)

    found = grounding_of(last(state))
    [trace_id] = found["trace_ids"]
    assert trace_id == found["trace_id"] == trace_id_of(state["messages"][2].artifact)
    trace = store.trace(trace_id)
    assert (trace.answer, trace.status, trace.grounded) == (ANSWER, "answered", True)
    assert (trace.actor, trace.session_id) == ("ann", "t")
    assert graded(trace) == {"refunds": ("yes", True, True), "laptops": ("no", False, False)}
    store.rate(trace_id, 5)
    assert store.evidence_for(trace.question).cells[0].positive == 1


def test_several_searches_of_a_turn_are_recorded_each(store):
    tools = [fed(store, REFUNDS), fed(store, LAPTOPS, name="find")]
    model = says(calls(QUESTION), calls("laptops", name="find"), ANSWER)
    found = grounding_of(last(agent(model, tools=tools).invoke(ASKED, CONFIG)))
    one, two = map(store.trace, found["trace_ids"])
    assert (one.answer, two.answer) == (ANSWER, ANSWER)
    assert graded(one) == {"refunds": (None, True, True)}
    assert graded(two) == {"laptops": (None, True, False)}
    assert found["trace_id"] == one.trace_id


@pytest.mark.parametrize("found", [[REFUNDS], []], ids=["found", "nothing"])
def test_an_abstention_is_recorded_too(store, found):
    graph = agent(says(calls(QUESTION), REJECTED), tools=[search_tool(*found)], store=store)
    state = graph.invoke(ASKED, CONFIG)
    trace = store.trace(grounding_of(last(state))["trace_id"])
    assert (trace.question, trace.status) == (QUESTION, "abstained")
    assert trace.answer == last(state).text
    assert "REJECTED" not in repr(trace)


def test_a14_a_trace_id_of_the_callers_names_the_turns_search(store):
    config = {"metadata": {"feedback_trace_id": "mine"}}
    state = agent(says(calls(QUESTION), ANSWER), tools=[fed(store, REFUNDS)]).invoke(ASKED, config)
    assert grounding_of(last(state))["trace_ids"] == ["mine"]
    assert store.trace("mine").answer == ANSWER


@sync_or_async
@pytest.mark.parametrize("interrupted", [False, True], ids=["", "interrupted"])
async def test_a_search_that_found_nothing_keeps_its_one_trace(
    mode, interrupted, store, traces, caplog
):
    options = saved() | ({"interrupt_after": ["tools"]} if interrupted else {})
    script = says(calls("refund"), calls("more", name="other"), ANSWER)
    tools = [fed(store), fed(store, REFUNDS, name="other")]
    graph = agent(script, tools=tools, agent_options=options)
    state = await run(graph, mode, config=CONFIG)
    while interrupted and last(state).type == "tool":
        state = graph.invoke(None, CONFIG) if mode == "sync" else await graph.ainvoke(None, CONFIG)
    found = grounding_of(last(state))
    empty = trace_id_of(state["messages"][2].artifact)
    assert found["trace_ids"] == [empty, found["trace_id"]]
    assert traces() == set(found["trace_ids"])
    assert [store.trace(one).question for one in found["trace_ids"]] == ["refund", "more"]
    assert {store.trace(one).answer for one in found["trace_ids"]} == {ANSWER}
    assert not caplog.records


def test_a_turn_that_found_nothing_is_recorded_under_its_own_trace(store, traces, caplog):
    state = agent(says(calls("refund"), REJECTED), tools=[fed(store)]).invoke(ASKED, CONFIG)
    [trace_id] = grounding_of(last(state))["trace_ids"]
    assert trace_id == trace_id_of(state["messages"][2].artifact)
    assert traces() == {trace_id}
    assert store.trace(trace_id).status == "abstained"
    assert not caplog.records


def test_another_store_is_told_what_was_asked_where_nothing_was_found(store):
    other = FeedbackStore("sqlite://", timeout_s=5)
    state = agent(says(calls("refund"), REJECTED), tools=[fed(store)], store=other).invoke(ASKED)
    [trace_id] = grounding_of(last(state))["trace_ids"]
    assert (other.trace(trace_id).question, store.trace(trace_id).question) == (QUESTION, "refund")


def test_a14_a_second_search_has_a_trace_of_its_own(store, caplog):
    config = {"metadata": {"feedback_trace_id": "mine"}}
    script = says(calls("refund"), calls("money"), ANSWER)
    state = agent(script, tools=[fed(store, REFUNDS)]).invoke(ASKED, config)
    first, second = grounding_of(last(state))["trace_ids"]
    assert first == "mine"
    assert [store.trace(one).question for one in (first, second)] == ["refund", "money"]
    assert "was used before" not in caplog.text


@sync_or_async
async def test_a14_of_parallel_searches_one_has_the_callers_trace_id(mode, store, caplog):
    config = {"metadata": {"feedback_trace_id": "mine"}}
    graph = agent(says(calls("a", "b", "c"), ANSWER), tools=[fed(store, REFUNDS)])
    state = await run(graph, mode, config=config)
    ids = grounding_of(last(state))["trace_ids"]
    assert (ids.count("mine"), len(set(ids))) == (1, 3)
    assert {store.trace(one).question for one in ids} == {"a", "b", "c"}
    assert "was used before" not in caplog.text


@pytest.mark.parametrize("found", [[REFUNDS], []], ids=["found", "nothing"])
def test_a_model_that_gives_each_call_the_same_id_searches_twice_all_the_same(found, store):
    script = says(calls("refund"), calls("refund"), calls("x", name="other"), ANSWER)
    tools = [fed(store, *found), fed(store, REFUNDS, name="other")]
    traced = grounding_of(last(agent(script, tools=tools).invoke(ASKED)))["trace_ids"]
    assert [store.trace(one).question for one in traced] == ["refund", "refund", "x"]
    assert {store.trace(one).answer for one in traced} == {ANSWER}


def test_the_documents_of_any_tool_are_recorded_under_one_new_trace(store):
    @tool(response_format="content_and_artifact")
    def look(query: str):
        """Look something up."""
        return "text", [REFUNDS]

    state = agent(says(calls(QUESTION, name="look"), ANSWER), tools=[look], store=store).invoke(
        ASKED, CONFIG
    )
    trace = store.trace(grounding_of(last(state))["trace_id"])
    assert (trace.question, trace.answer) == (QUESTION, ANSWER)
    assert graded(trace) == {"refunds": (None, True, True)}


def test_without_a_store_a_tools_own_trace_id_is_still_told():
    state = agent(says(calls(QUESTION), ANSWER)).invoke(ASKED)
    assert grounding_of(last(state))["trace_id"] == trace_id_of(state["messages"][2].artifact)


@sync_or_async
async def test_a16_a_store_that_is_away_costs_no_answer(mode, store, caplog):
    store.setup()
    store.close()
    graph = agent(says(calls(QUESTION), ANSWER), store=FeedbackStore("sqlite:////nowhere/x.db"))
    with caplog.at_level(logging.WARNING):
        state = await run(graph, mode)
    assert last(state).text == ANSWER


def test_an_agents_message_of_before_is_no_outcome():
    assert grounding_of(AIMessage("Hi.")) == {}
    script = says(REJECTED, calls(QUESTION), ANSWER)
    state = agent(script, when_no_documents="abstain").invoke(ASKED)
    assert grounding_of(state["messages"][1]) == {}
