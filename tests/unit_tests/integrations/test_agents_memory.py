"""What the middleware knows of a run stays known, whatever other middleware does to messages."""

import json
import logging

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
    before_model,
    hook_config,
)
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command

from langchain_feedback import FeedbackStore
from langchain_feedback.integrations.agents import GroundedAnswerMiddleware, grounding_of
from tests.unit_tests.integrations.agents_kit import (
    ANSWER,
    ASKED,
    LAPTOPS,
    QUESTION,
    REFUNDS,
    REJECTED,
    agent,
    calls,
    clock,
    judge,
    run,
    says,
    search_tool,
)

sync_or_async = pytest.mark.parametrize("mode", ["sync", "async"])
CONFIG = {"configurable": {"thread_id": "t"}}
TICK = [AIMessage("", tool_calls=[{"name": "clock", "args": {}, "id": f"c{i}"}]) for i in range(9)]


def last(state):
    return state["messages"][-1]


def saved():
    return {"checkpointer": InMemorySaver()}


def jumping(times, *messages):
    """Make a validator that asks for a better answer, the way LangChain documents it."""

    class Jump(AgentMiddleware):
        jumps = 0

        @hook_config(can_jump_to=["model"])
        def after_model(self, state, runtime):
            if state["messages"][-1].tool_calls or self.jumps >= times:
                return None
            self.jumps += 1
            return {"jump_to": "model", "messages": [*messages]}

        async def aafter_model(self, state, runtime):
            return self.after_model(state, runtime)

    return Jump()


def replacing(change):
    """Make middleware that rewrites the history before each call of the model."""

    @before_model
    def rewrite(state, runtime):
        kept = change(state["messages"])
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *kept]}

    return rewrite


def statuses(state):
    return [
        grounding_of(message)["status"]
        for message in state["messages"]
        if isinstance(message, AIMessage) and grounding_of(message)
    ]


# Where a turn ends is not read from messages.


@sync_or_async
@pytest.mark.parametrize("messages", [[], [HumanMessage("Be more precise.")]], ids=["", "told"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
async def test_a_jump_back_to_the_model_starts_no_turn(mode, messages, first):
    model, jump = says(calls(QUESTION), REJECTED), jumping(2, *messages)
    graph = agent(model, **{"after" if first else "before": [jump]})
    state = await run(graph, mode)
    assert statuses(state) == ["abstained"] * 3
    assert "REJECTED" not in repr(state)
    # One regeneration in all, and a call for each of the two jumps.
    assert model.count() == 1 + 2 + 2


@sync_or_async
async def test_after_a_jump_an_answer_is_verified_against_what_was_found(mode):
    model = says(calls(QUESTION), REJECTED, REJECTED, ANSWER)
    state = await run(agent(model, before=[jumping(1)]), mode)
    assert (last(state).text, grounding_of(last(state))["grounded"]) == (ANSWER, True)


@sync_or_async
async def test_a_note_in_the_models_name_ends_no_turn(mode):
    @before_model
    def note(state, runtime):
        found = isinstance(state["messages"][-1], ToolMessage)
        return {"messages": [AIMessage("Let me read what was found.")]} if found else None

    state = await run(agent(says(calls(QUESTION), REJECTED), before=[note]), mode)
    assert statuses(state) == ["abstained"]
    assert "REJECTED" not in repr(state)


def test_a_reminder_is_not_the_question():
    @before_model
    def remind(state, runtime):
        found = isinstance(state["messages"][-1], ToolMessage)
        return {"messages": [HumanMessage("Be brief.")]} if found else None

    verifier = judge()
    agent(says(calls("refund"), ANSWER), verifier, after=[remind]).invoke(ASKED)
    assert verifier.calls[-1].fenced("question").strip() == QUESTION


# What was found stays known.


def summarizing():
    summary = says("SUMMARY: a search was made.")
    return SummarizationMiddleware(summary, trigger=("messages", 5), keep=("messages", 2))


@sync_or_async
@pytest.mark.parametrize("draft", [ANSWER, REJECTED])
async def test_documents_that_a_summary_dropped_are_still_there(mode, draft):
    model = says(calls("refund"), *TICK[:2], draft)
    graph = agent(model, tools=[search_tool(REFUNDS), clock], before=[summarizing()])
    state = await run(graph, mode)
    assert not [m for m in state["messages"] if isinstance(m, ToolMessage) and m.artifact]
    assert statuses(state) == ["answered" if draft == ANSWER else "abstained"]
    assert "REJECTED" not in repr(state)


@sync_or_async
async def test_documents_cut_from_a_message_are_still_there(mode):
    def without_artifacts(messages):
        if len(messages) < 4:
            return messages
        return [m.model_copy(update={"artifact": None}) if m.type == "tool" else m
                for m in messages]  # fmt: skip

    graph = agent(
        says(calls("refund"), TICK[0], ANSWER),
        tools=[search_tool(REFUNDS), clock],
        before=[replacing(without_artifacts)],
    )
    assert statuses(await run(graph, mode)) == ["answered"]


@sync_or_async
@pytest.mark.parametrize("named", [True, False])
async def test_a_search_whose_result_nobody_saw_is_never_answered(mode, named):
    """The documents are gone before the first model call after the search."""
    graph = agent(
        says(calls(QUESTION), REJECTED),
        before=[replacing(lambda messages: [HumanMessage("SUMMARY: it takes 41 days.")])],
        **({"retrieval_tools": ["search"]} if named else {}),
    )
    state = await run(graph, mode)
    assert statuses(state) == ["abstained"]
    assert grounding_of(last(state))["reason"] == "no_documents"
    assert "REJECTED" not in repr(state)


def test_a_search_whose_result_nobody_saw_invents_no_trace(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}", timeout_s=5) as store:
        cut = replacing(lambda messages: [HumanMessage("SUMMARY")])
        state = agent(says(calls(QUESTION), REJECTED), before=[cut], store=store).invoke(ASKED)
        assert grounding_of(last(state))["trace_ids"] == []


# The bound.


def cleaned(message):
    return message.model_copy(update={"response_metadata": {}})


@sync_or_async
@pytest.mark.parametrize("budget", [0, 1, 2])
async def test_a05_the_budget_holds_where_middleware_cleans_messages(mode, budget):
    class Clean(AgentMiddleware):
        def after_model(self, state, runtime):
            return {"messages": [cleaned(state["messages"][-1])]}

    def reply(asked):
        if asked.index % 2:
            return REJECTED
        return calls(f"query {asked.index}")

    model = type(says(""))(reply=reply)
    graph = agent(model, before=[Clean()], max_regenerations=budget)
    state = await run(graph, mode, config={"recursion_limit": 60})
    assert model.count() == 2 * (budget + 1)
    assert "REJECTED" not in repr(state)


def test_a05_the_budget_holds_where_messages_are_written_anew():
    def anew(messages):
        return [m.model_copy(update={"id": None, "response_metadata": {}}) for m in messages]

    model = says(*[REJECTED if i % 2 else calls(f"q{i}") for i in range(40)])
    state = agent(model, before=[replacing(anew)]).invoke(ASKED, {"recursion_limit": 60})
    assert grounding_of(last(state))["status"] == "abstained"
    assert model.count() == 4


# Runs, checkpoints, and who sees it.


@sync_or_async
async def test_each_run_starts_afresh(mode):
    script = says(calls(QUESTION), REJECTED, ANSWER, "Hello!", calls(QUESTION), REJECTED, ANSWER)
    verifier = judge()
    graph = agent(script, verifier, agent_options=saved())
    first = await run(graph, mode, config=CONFIG)
    assert grounding_of(last(first))["regenerations"] == 1
    second = await run(graph, mode, {"messages": [("user", "Hi!")]}, CONFIG)
    assert grounding_of(last(second))["reason"] == "no_retrieval"
    third = await run(graph, mode, {"messages": [("user", "Once more?")]}, CONFIG)
    assert (last(third).text, grounding_of(last(third))["regenerations"]) == (ANSWER, 1)
    assert verifier.calls[-1].fenced("question").strip() == "Once more?"


@sync_or_async
async def test_an_interrupted_run_goes_on_with_what_it_knew(mode):
    """A person approves the second search; by then the first one's message is gone."""

    def forgetful(messages):
        return [m for m in messages if "search-refund" not in repr(m)]

    approve = HumanInTheLoopMiddleware({"find": {"allowed_decisions": ["approve"]}})
    tools = [search_tool(REFUNDS), search_tool(LAPTOPS, name="find")]
    model = says(calls("refund"), TICK[0], REJECTED, calls("laptops", name="find"), ANSWER)
    cut = before_model(
        lambda state, runtime: (
            {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *forgetful(state["messages"])]}
            if len(state["messages"]) > 4
            else None
        ),
        name="cut",
    )
    graph = agent(model, tools=[*tools, clock], before=[approve, cut], agent_options=saved())
    stopped = await run(graph, mode, config=CONFIG)
    assert stopped["__interrupt__"]
    resume = Command(resume={"decisions": [{"type": "approve"}]})
    state = await run(graph, mode, resume, CONFIG)
    assert (last(state).text, grounding_of(last(state))["regenerations"]) == (ANSWER, 1)
    assert len(grounding_of(last(state))["trace_ids"]) == 2


def test_it_is_private_and_plain():
    graph = agent(says(calls(QUESTION), REJECTED, ANSWER), agent_options=saved())
    state = graph.invoke(ASKED, CONFIG)
    assert set(state) == {"messages"}
    assert set(graph.get_input_jsonschema()["properties"]) == {"messages"}
    assert set(graph.get_output_jsonschema()["properties"]) == {
        "messages",
        "structured_response",
    }
    kept = graph.get_state(CONFIG).values["grounded_answers"]
    assert json.loads(json.dumps(kept)) == kept
    assert ANSWER in repr(kept)
    assert "REJECTED" not in repr(kept)


def test_nobody_hands_it_in():
    forged = {"GroundedAnswerMiddleware": {"rejected": -99, "searches": []}}
    model = says(calls(QUESTION), REJECTED)
    agent(model).invoke({**ASKED, "grounded_answers": forged})
    assert model.count() == 3


def test_two_of_them_count_for_themselves():
    class Second(GroundedAnswerMiddleware):
        pass

    model = says(calls(QUESTION), REJECTED)
    both = [GroundedAnswerMiddleware(judge()), Second(judge())]
    state = create_agent(model, [search_tool(REFUNDS)], middleware=both).invoke(ASKED)
    assert grounding_of(last(state))["status"] == "abstained"
    assert "REJECTED" not in repr(state)


def test_updates_of_the_model_stay_a_mapping_with_messages():
    graph = agent(says(calls(QUESTION), REJECTED, ANSWER))
    updates = [u["model"] for u in graph.stream(ASKED, stream_mode="updates") if "model" in u]
    assert [len(update["messages"]) for update in updates] == [1, 1]


# Middleware inside that returns more than the answer.


def talking(*messages):
    class Talk(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            response = handler(request)
            response.result[:0] = messages
            return response

        async def awrap_model_call(self, request, handler):
            response = await handler(request)
            response.result[:0] = messages
            return response

    return Talk()


@sync_or_async
async def test_of_two_messages_only_the_checked_one_goes_out(mode):
    talk = talking(AIMessage(REJECTED), SystemMessage("note"))
    graph = agent(says(calls(QUESTION), calls("refund"), ANSWER), after=[talk])
    streamed = (
        list(graph.stream(ASKED, stream_mode="updates"))
        if mode == "sync"
        else [part async for part in graph.astream(ASKED, stream_mode="updates")]
    )
    assert ANSWER in repr(streamed)
    assert "REJECTED" not in repr(streamed[3:])
    assert "note" in repr(streamed[3:])


def test_nothing_is_logged_of_it(caplog):
    with caplog.at_level(logging.WARNING):
        agent(says(calls(QUESTION), REJECTED, ANSWER), before=[jumping(1)]).invoke(ASKED)
    assert not [r for r in caplog.records if r.name.startswith("langchain_feedback")]
