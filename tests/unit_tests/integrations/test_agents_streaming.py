"""A23: what an agent's user sees in every stream, while drafts are checked."""

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_core import to_json

from langchain_feedback.integrations.agents import grounding_of
from tests.unit_tests.integrations.agents_kit import (
    ANSWER,
    ASKED,
    INTERNAL,
    KINDS,
    QUESTION,
    REFUNDS,
    REJECTED,
    agent,
    calls,
    judge,
    says,
    search_tool,
)

STATE_MODES = ["values", "updates", "custom", "checkpoints", "tasks", "debug"]
ALL_MODES = [*STATE_MODES, "messages"]
CONFIG = {"configurable": {"thread_id": "t"}}
each_model = pytest.mark.parametrize("kind", KINDS)
sync_or_async = pytest.mark.parametrize("mode", ["stream", "astream"])
last_words = pytest.mark.parametrize("end", ["answers", "abstains"])


def scripted(kind, end="answers", **options):
    script = [calls(QUESTION), REJECTED, ANSWER if end == "answers" else REJECTED]
    options = {"agent_options": {"checkpointer": InMemorySaver()}, "grader": judge(), **options}
    return agent(says(*script, kind=kind), **options)


async def parts_of(graph, mode, asked=None, config=CONFIG, **options):
    asked = asked or ASKED
    if mode == "stream":
        return list(graph.stream(asked, config, **options))
    return [part async for part in graph.astream(asked, config, **options)]


def shown_in(parts):
    return repr(parts) + to_json(parts, fallback=str).decode()


def tokens_of(parts):
    return [(token, meta) for token, meta in parts if "answer" in (meta.get("tags") or [])]


def text_of(parts):
    return "".join(str(token.text) for token, _ in parts if not isinstance(token, ToolMessage))


@each_model
@sync_or_async
@last_words
@pytest.mark.parametrize("stream_mode", [*ALL_MODES, ALL_MODES], ids=str)
async def test_a23_no_stream_shows_a_rejected_draft_or_a_judges_words(
    stream_mode, end, mode, kind
):
    graph = scripted(kind, end)
    parts = await parts_of(graph, mode, stream_mode=stream_mode)

    shown = shown_in(parts) + repr(graph.get_state(CONFIG).values)
    for hidden in ("REJECTED", "41 days", INTERNAL):
        assert hidden not in shown
    if stream_mode != "custom":
        assert "14" in shown


@each_model
@sync_or_async
@last_words
async def test_a23_the_answer_is_shown_once_in_tokens_that_say_what_they_are(end, mode, kind):
    graph = scripted(kind, end)
    parts = await parts_of(graph, mode, stream_mode="messages")

    answer = graph.get_state(CONFIG).values["messages"][-1]
    tokens = tokens_of(parts)
    assert text_of(parts) == text_of(tokens) == answer.text
    assert len(tokens) > 1
    assert all(isinstance(token, AIMessageChunk) for token, _ in tokens)
    assert {token.id for token, _ in tokens} == {answer.id}
    assert {tuple(meta["tags"]) for _, meta in tokens} == {("answer",)}
    trace_id = grounding_of(answer)["trace_id"]
    assert {meta["feedback_trace_id"] for _, meta in tokens} == {trace_id}
    others = [token.type for token, meta in parts if "answer" not in (meta.get("tags") or [])]
    assert {"ai", "tool"} >= {name.removesuffix("MessageChunk").lower() for name in others}


@each_model
@last_words
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.filterwarnings("ignore:astream_events version='v1'")
async def test_a23_events_show_no_draft_and_the_answer_once(version, end, kind):
    graph = scripted(kind, end)
    events = [event async for event in graph.astream_events(ASKED, CONFIG, version=version)]

    for hidden in ("REJECTED", "41 days", INTERNAL):
        assert hidden not in repr(events)
    answer = graph.get_state(CONFIG).values["messages"][-1]
    streamed = [
        str(event["data"]["chunk"].text)
        for event in events
        if event["event"] == "on_chat_model_stream" and "answer" in event["tags"]
    ]
    assert "".join(streamed) == answer.text
    every = [e["data"]["chunk"] for e in events if e["event"] == "on_chat_model_stream"]
    assert "".join(str(chunk.text) for chunk in every) == answer.text


@each_model
@last_words
@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
async def test_a23_runs_of_the_newest_protocol_show_no_draft_either(end, kind):
    graph = scripted(kind, end)
    run = await graph.astream_events(ASKED, CONFIG, version="v3")
    texts = [str(await message.text) async for message in run.messages]
    answer = graph.get_state(CONFIG).values["messages"][-1]
    assert [text for text in texts if text] == [answer.text]


@each_model
@sync_or_async
async def test_a_greeting_streams_at_once_and_once(mode, kind):
    graph = scripted(kind)
    graph = agent(says("Hello! How can I help?", kind=kind))
    parts = await parts_of(graph, mode, {"messages": [("user", "Hi!")]}, stream_mode="messages")
    assert text_of(parts) == "Hello! How can I help?"
    assert not tokens_of(parts)
    assert (len(parts) > 1) is (kind == "tokens")


@each_model
@sync_or_async
async def test_with_abstain_no_draft_of_an_unsearched_turn_is_shown(mode, kind):
    graph = agent(says(REJECTED, calls(QUESTION), ANSWER, kind=kind), when_no_documents="abstain")
    for stream_mode in ALL_MODES:
        parts = await parts_of(graph, mode, stream_mode=stream_mode)
        assert "REJECTED" not in shown_in(parts)


@each_model
@sync_or_async
async def test_later_searches_are_shown_as_whole_messages(mode, kind):
    script = [calls(QUESTION), calls("refund period"), ANSWER]
    parts = await parts_of(agent(says(*script, kind=kind)), mode, stream_mode="messages")
    searched = [call["args"]["query"] for token, _ in parts for call in
                getattr(token, "tool_calls", []) if call["args"].get("query")]  # fmt: skip
    assert "refund period" in searched
    assert len({token.id for token, _ in parts if isinstance(token, ToolMessage)}) == 2
    assert text_of(parts) == ANSWER


@sync_or_async
@pytest.mark.parametrize(
    "text",
    ["退款需要14天。\n\n第二段。", "  Two  spaces,\n\n- a list\n- `code`  ", "It ends.\n"],
    ids=repr,
)
async def test_a23_an_answer_in_any_script_and_spacing_is_shown_to_the_letter(text, mode):
    graph = scripted("tokens")
    tools = [search_tool(REFUNDS.model_copy(update={"page_content": text}))]
    graph = agent(says(calls(QUESTION), text, kind="tokens"), tools=tools)
    parts = await parts_of(graph, mode, stream_mode=["messages", "values"])
    shown = text_of([part for name, part in parts if name == "messages"])
    assert shown == parts[-1][1]["messages"][-1].text == text.strip()


@sync_or_async
async def test_a23_deep_in_other_graphs_nothing_else_is_shown(mode):
    inner = agent(says(calls(QUESTION), REJECTED, ANSWER, kind="tokens"))
    middle = StateGraph(MessagesState)
    middle.add_node("agent", inner)
    middle.add_edge(START, "agent")
    outer = StateGraph(MessagesState)
    outer.add_node("middle", middle.compile())
    outer.add_edge(START, "middle")
    graph = outer.compile(checkpointer=InMemorySaver())

    parts = await parts_of(graph, mode, stream_mode=ALL_MODES, subgraphs=True)
    assert "REJECTED" not in shown_in(parts)
    tokens = [part for _, name, part in parts if name == "messages"]
    assert text_of(tokens) == ANSWER
    events = [
        e async for e in graph.astream_events(ASKED, CONFIG | {"run_name": "x"}, version="v2")
    ]
    assert "REJECTED" not in repr(events)


async def test_a_node_that_only_calls_an_agent_shows_no_draft_either():
    inner = agent(says(calls(QUESTION), REJECTED, ANSWER, kind="tokens"))

    async def ask(state):
        return {"messages": (await inner.ainvoke(state))["messages"][-1:]}

    outer = StateGraph(MessagesState)
    outer.add_node("ask", ask)
    outer.add_edge(START, "ask")
    events = [event async for event in outer.compile().astream_events(ASKED, version="v2")]
    assert "REJECTED" not in repr(events)
    assert ANSWER in repr(events)


class Listener(BaseCallbackHandler):
    """A tracer of one's own."""

    def __init__(self):
        self.texts = []

    def on_llm_end(self, response, **kwargs):
        self.texts.append(str(response.generations[0][0].text))


@sync_or_async
async def test_your_own_callbacks_see_every_call(mode):
    listener = Listener()
    graph = scripted("tokens")
    await parts_of(graph, mode, config={**CONFIG, "callbacks": [listener]}, stream_mode="messages")
    assert REJECTED in listener.texts


async def test_tokens_are_counted_once():
    usage = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
    known = {"usage_metadata": usage, "response_metadata": {"model_name": "m-1"}}
    script = [calls(QUESTION), AIMessage(REJECTED, **known), AIMessage(ANSWER, **known)]
    counter = UsageMetadataCallbackHandler()
    graph = agent(says(*script))
    parts = graph.astream(ASKED, {"callbacks": [counter]}, stream_mode="messages")
    assert [part async for part in parts]
    assert counter.usage_metadata["m-1"]["total_tokens"] == 16


@sync_or_async
async def test_a_cached_model_answers_under_its_own_id_with_tokens(mode):
    set_llm_cache(InMemoryCache())
    try:
        for thread in ("a", "b"):
            graph = scripted("tokens")
            config = {"configurable": {"thread_id": thread}}
            parts = await parts_of(graph, mode, config=config, stream_mode="messages")
            assert text_of(parts) == ANSWER
            assert len(tokens_of(parts)) > 1
    finally:
        set_llm_cache(None)


def test_nobody_replays_where_nobody_streams():
    listener = Listener()
    agent(says(calls(QUESTION), ANSWER)).invoke(ASKED, {"callbacks": [listener]})
    assert listener.texts.count(ANSWER) == 1
