"""A23: what reaches the user's stream, in every stream mode."""

import re
from typing import Any, TypedDict

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.documents import Document
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage, AIMessageChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from pydantic_core import to_json

from langchain_feedback import nodes
from langchain_feedback.graph import create_reliable_rag
from tests.fakes import (
    FakeChatModel,
    ListRetriever,
    StreamingFakeChatModel,
    as_json,
    claims,
    good,
    replies,
)

QUESTION = "How long does a refund take?"
ANSWER = "Refunds take 14 days."
REJECTED = "REJECTED-DRAFT: it takes 41 days."
INTERNAL = "INTERNAL-YES"
REFUNDS = Document(ANSWER, id="a", metadata={"source": "faq.md"})
CONFIG = {"configurable": {"thread_id": "t"}}
STATE_MODES = ["values", "updates", "custom", "checkpoints"]
ALL_MODES = [*STATE_MODES, "messages", "tasks", "debug"]


def judged(args: dict[str, Any], structured: str | None) -> AIMessage:
    """A judge's reply as real models give it: words around the tool call, or around the JSON."""
    if structured is None:
        return AIMessage(f"{INTERNAL}: {as_json(args)}")
    call = {"name": "reply", "args": args, "id": "call-1"}
    return AIMessage(f"{INTERNAL}. Let me think.", tool_calls=[call])


def scripted(structured: str | None = "class", rejections: int = 1) -> Any:
    """Write drafts that are rejected, then a good one; every judge says INTERNAL-YES."""
    drafts = {"written": 0}

    def check(asked: Any) -> AIMessage:
        bad = "REJECTED" in asked.text
        found = {"unsupported": [REJECTED] if bad else [], "grounded": not bad}
        return judged({"reason": f"{INTERNAL}, so it is.", **found}, structured)

    def verify(asked: Any) -> AIMessage:
        found = claims(
            asked.answer, asked.slots[0], ANSWER, supported="REJECTED" not in asked.text
        )
        if "REJECTED" in asked.text:
            found["claims"][0]["reason"] = f"{INTERNAL}, so it is."
        return judged(found, structured)

    def generate(asked: Any) -> str:
        drafts["written"] += 1
        return REJECTED if drafts["written"] <= rejections else ANSWER

    def judge(asked: Any) -> AIMessage:
        return judged(good(asked), structured)

    return replies(grade=judge, highlight=judge, check=check, verify=verify, generate=generate)


MODELS = {
    "whole": lambda **options: FakeChatModel(reply=scripted(**options)),
    "tokens": lambda **options: StreamingFakeChatModel(reply=scripted(**options)),
    "tokens_of_json": lambda **options: StreamingFakeChatModel(
        reply=scripted(structured=None, **options), structured=None
    ),
}
each_model = pytest.mark.parametrize("kind", MODELS)
chat_or_not = pytest.mark.parametrize("messages", [False, True], ids=["plain", "chat"])
sync_or_async = pytest.mark.parametrize("mode", ["stream", "astream"])


def rag(model: Any, *, messages: bool = False, **options: Any) -> Any:
    retriever = ListRetriever(documents=[REFUNDS])
    options = {"messages": messages, "checkpointer": InMemorySaver(), **options}
    return create_reliable_rag(retriever, model, **options)


def ask(*, messages: bool) -> dict[str, Any]:
    return {"messages": [("user", QUESTION)]} if messages else {"question": QUESTION}


async def parts_of(graph: Any, asked: Any, mode: str, config: Any = None, **options: Any) -> list:
    config = config or CONFIG
    if mode == "stream":
        return list(graph.stream(asked, config, **options))
    return [part async for part in graph.astream(asked, config, **options)]


def text_of(parts: list[tuple[Any, dict[str, Any]]]) -> str:
    return "".join(str(token.text) for token, _ in parts)


# Held back.


@each_model
@chat_or_not
@sync_or_async
@pytest.mark.parametrize("stream_mode", [*STATE_MODES, "messages", ALL_MODES[:5]], ids=str)
async def test_a23_no_stream_shows_a_rejected_draft_or_a_judges_words(
    stream_mode, mode, messages, kind
):
    model = MODELS[kind]()
    graph = rag(model, messages=messages)

    parts = await parts_of(graph, ask(messages=messages), mode, stream_mode=stream_mode)

    shown = repr(parts)
    assert model.count("generate") == 2
    assert "REJECTED" not in shown
    assert "41 days" not in shown
    assert INTERNAL not in shown
    if stream_mode != "custom":
        assert "14" in shown
    state = graph.get_state(CONFIG).values
    assert state["answer"] == ANSWER
    assert "REJECTED" not in repr(state)
    assert INTERNAL not in repr(state)


@chat_or_not
@sync_or_async
async def test_a23_what_is_abstained_from_shows_no_draft_either(mode, messages):
    for stream_mode in ALL_MODES[:5]:
        graph = rag(MODELS["tokens"](rejections=9), messages=messages)
        parts = await parts_of(graph, ask(messages=messages), mode, stream_mode=stream_mode)

        assert graph.get_state(CONFIG).values["reason"] == "not_grounded"
        assert "REJECTED" not in repr(parts), stream_mode
        assert INTERNAL not in repr(parts), stream_mode
        if stream_mode == "messages":
            assert text_of(parts) == graph.get_state(CONFIG).values["answer"]


SURE = "REJECTED-DRAFT: refunds take 41 days."


@each_model
@chat_or_not
@sync_or_async
@pytest.mark.parametrize("stream_mode", ALL_MODES)
async def test_a23_no_stream_shows_the_claims_of_drafts_whose_figure_is_wrong(
    stream_mode, mode, messages, kind
):
    """The judge calls it supported by an honest quote; code names the claim as unsupported."""
    structured = None if kind == "tokens_of_json" else "class"

    def verify(asked: Any) -> AIMessage:
        return judged(claims(asked.answer, asked.slots[0], ANSWER), structured)

    fake = FakeChatModel if kind == "whole" else StreamingFakeChatModel
    model = fake(reply=replies(generate=SURE, verify=verify), structured=structured)
    graph = rag(model, messages=messages)

    parts = await parts_of(graph, ask(messages=messages), mode, stream_mode=stream_mode)

    second = [asked.text for asked in model.calls if asked.role == "generate"][1]
    assert f"- {SURE}" in second
    state = graph.get_state(CONFIG).values
    assert (state["status"], state["reason"]) == ("abstained", "not_grounded")
    for shown in (repr(parts), to_json(parts, fallback=str).decode(), repr(state)):
        assert "REJECTED" not in shown
        assert "41 days" not in shown


@each_model
@chat_or_not
@sync_or_async
async def test_a23_the_answer_is_shown_once_in_tokens_that_say_what_they_are(mode, messages, kind):
    graph = rag(MODELS[kind](), messages=messages)

    parts = await parts_of(graph, ask(messages=messages), mode, stream_mode="messages")

    state = graph.get_state(CONFIG).values
    assert text_of(parts) == state["answer"] == ANSWER
    assert len(parts) > 1
    assert all(isinstance(token, AIMessageChunk) for token, _ in parts)
    assert {tuple(metadata["tags"]) for _, metadata in parts} == {("answer",)}
    assert {metadata["feedback_trace_id"] for _, metadata in parts} == {state["trace_id"]}
    [message_id] = {token.id for token, _ in parts}
    if messages:
        assert state["messages"][-1].id == message_id
        assert state["messages"][-1].content == ANSWER


@sync_or_async
async def test_a23_an_answer_in_any_script_and_spacing_is_shown_to_the_letter(mode):
    for text in (
        "  two\n\n spaces ",
        "日本語のテキスト。",
        "a",
        "- one\n- two\n\n```\nx = {14}\n```",
    ):
        graph = rag(StreamingFakeChatModel(reply=replies(generate=text)))

        parts = await parts_of(graph, ask(messages=False), mode, stream_mode="messages")

        assert text_of(parts) == graph.get_state(CONFIG).values["answer"] == text.strip()


@sync_or_async
async def test_a23_each_turn_of_a_chat_shows_its_own_answer_only(mode):
    def generate(asked: Any) -> str:
        return f"Answer to {re.search(r'Question [A-C]', asked.text.rsplit('<question')[-1])[0]}."

    graph = rag(StreamingFakeChatModel(reply=replies(generate=generate)), messages=True)
    ids = []
    for turn in "ABC":
        asked = {"messages": [("user", f"Question {turn}?")]}
        parts = await parts_of(graph, asked, mode, stream_mode="messages")
        assert text_of(parts) == f"Answer to Question {turn}."
        ids.append(parts[0][0].id)

    assert len(set(ids)) == 3


@sync_or_async
async def test_a23_a_model_cache_changes_nothing_in_what_is_shown(mode):
    graph = rag(StreamingFakeChatModel(reply=replies()), messages=True)
    set_llm_cache(InMemoryCache())
    try:
        shown = []
        for thread in ("t", "t", "u", "u"):
            config = {"configurable": {"thread_id": thread}}
            asked = ask(messages=True)
            parts = await parts_of(graph, asked, mode, config, stream_mode="messages")
            shown.append(text_of(parts))
    finally:
        set_llm_cache(None)

    assert shown == [ANSWER] * 4
    for thread in ("t", "u"):
        state = graph.get_state({"configurable": {"thread_id": thread}}).values
        types = [message.type for message in state["messages"]]
        assert types == ["human", "ai", "human", "ai"]


@each_model
@chat_or_not
async def test_a23_only_the_answers_chunks_carry_the_answer_tag_in_events(messages, kind):
    graph = rag(MODELS[kind](), messages=messages)

    events = [
        event async for event in graph.astream_events(ask(messages=messages), CONFIG, version="v2")
    ]

    answer = [event for event in events if "answer" in event["tags"]]
    chunks = [e["data"]["chunk"] for e in answer if e["event"] == "on_chat_model_stream"]
    assert "".join(str(chunk.text) for chunk in chunks) == ANSWER
    assert {event["event"] for event in answer} == {
        "on_chat_model_start",
        "on_chat_model_stream",
        "on_chat_model_end",
    }
    assert "REJECTED" not in repr(answer)
    assert INTERNAL not in repr(answer)
    # All the others are told apart: they carry a tag of their own, or that of a judge.
    others = [e for e in events if "chat_model" in e["event"] and "answer" not in e["tags"]]
    assert others
    assert all("nostream" in event["tags"] for event in others)
    state = graph.get_state(CONFIG).values
    assert {event["metadata"]["feedback_trace_id"] for event in answer} == {state["trace_id"]}


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.parametrize("kind", ["whole", "tokens"])
@chat_or_not
@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a23_the_third_event_protocol_shows_the_answer_only(mode, messages, kind):
    graph = rag(MODELS[kind](), messages=messages)
    asked = ask(messages=messages)
    if mode == "sync":
        events = list(graph.stream_events(asked, CONFIG, version="v3"))
    else:
        run = await graph.astream_events(asked, CONFIG, version="v3")
        events = [event async for event in run]

    assert "REJECTED" not in repr(events)
    assert INTERNAL not in repr(events)
    said = [event["params"]["data"][0] for event in events if event["method"] == "messages"]
    deltas = [part["delta"]["text"] for part in said if part["event"] == "content-block-delta"]
    assert "".join(deltas) == ANSWER


@each_model
@chat_or_not
@sync_or_async
@pytest.mark.parametrize("stream_mode", ["tasks", "debug"])
async def test_a23_tasks_and_debug_show_a_nodes_input_without_the_draft(
    stream_mode, mode, messages, kind
):
    graph = rag(MODELS[kind](), messages=messages)

    parts = await parts_of(graph, ask(messages=messages), mode, stream_mode=stream_mode)

    # As a person reads it, and as a server sends it.
    for shown in (repr(parts), to_json(parts, fallback=str).decode()):
        assert "verify_answer" in shown
        assert "REJECTED" not in shown
        assert INTERNAL not in shown


class Host(TypedDict, total=False):
    question: str
    answer: str


@sync_or_async
@pytest.mark.parametrize("subgraphs", [False, True])
async def test_a23_it_holds_for_the_graph_inside_another_one(subgraphs, mode):
    host = StateGraph(Host)
    host.add_node("rag", rag(MODELS["tokens"](), checkpointer=None))
    host.add_edge(START, "rag")
    graph = host.compile(checkpointer=InMemorySaver())

    for stream_mode in ALL_MODES[:5]:
        config = {"configurable": {"thread_id": stream_mode}}
        options = {"stream_mode": stream_mode, "subgraphs": subgraphs}
        parts = await parts_of(graph, ask(messages=False), mode, config, **options)

        assert "REJECTED" not in repr(parts), stream_mode
        assert INTERNAL not in repr(parts), stream_mode
        if stream_mode == "messages" and subgraphs:
            assert text_of([part for _, part in parts]) == ANSWER


@sync_or_async
async def test_a23_nodes_in_a_hand_built_graph_show_no_draft_among_the_messages(mode):
    model = MODELS["tokens"]()
    builder = StateGraph(Host)
    for node in (
        nodes.retrieve(ListRetriever(documents=[REFUNDS])),
        nodes.grade_documents(model),
        nodes.generate(model),
        nodes.check_groundedness(model),
        nodes.record_answer(),
    ):
        builder.add_node(node)
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", "grade_documents")
    builder.add_edge("grade_documents", "generate")
    builder.add_edge("generate", "check_groundedness")
    builder.add_conditional_edges("check_groundedness", nodes.route_after_verification())
    builder.add_node(nodes.abstain())
    builder.add_edge("abstain", "record_answer")

    config = {"metadata": {"feedback_trace_id": "mine"}}
    parts = await parts_of(
        builder.compile(), ask(messages=False), mode, config, stream_mode="messages"
    )

    assert text_of(parts) == ANSWER
    # Without `begin` the caller's trace id is the one that they carry.
    assert {metadata["feedback_trace_id"] for _, metadata in parts} == {"mine"}


# Streamed at once, and withdrawn.

BOTH = ["messages", "custom"]


def split(parts: list[tuple[str, Any]]) -> tuple[list[Any], list[dict[str, Any]]]:
    tokens = [part for kind, part in parts if kind == "messages"]
    return tokens, [part for kind, part in parts if kind == "custom"]


def left_standing(parts: list[tuple[str, Any]]) -> str:
    """The text that a client shows which removes withdrawn messages."""
    shown: dict[str, str] = {}
    for kind, part in parts:
        if kind == "messages":
            shown[part[0].id] = shown.get(part[0].id, "") + str(part[0].text)
        elif part["event"] == "draft_withdrawn":
            # It names a message that was really shown.
            del shown[part["message_id"]]
    return "|".join(shown.values())


@pytest.mark.parametrize("kind", ["whole", "tokens"])
@chat_or_not
@sync_or_async
async def test_a23_streamed_drafts_are_withdrawn_and_the_accepted_one_stands_once(
    mode, messages, kind
):
    graph = rag(MODELS[kind](), messages=messages, stream_drafts=True)

    parts = await parts_of(graph, ask(messages=messages), mode, stream_mode=BOTH)

    tokens, events = split(parts)
    state = graph.get_state(CONFIG).values
    assert left_standing(parts) == state["answer"] == ANSWER
    assert text_of(tokens) == REJECTED + ANSWER
    assert {tuple(metadata["tags"]) for _, metadata in tokens} == {("draft",)}
    assert {metadata["feedback_trace_id"] for _, metadata in tokens} == {state["trace_id"]}
    assert events == [
        {
            "event": "draft_withdrawn",
            "message_id": tokens[0][0].id,
            "trace_id": state["trace_id"],
        }
    ]
    assert INTERNAL not in repr(parts)
    if messages:
        assert state["messages"][-1].id == tokens[-1][0].id
        assert len(state["messages"]) == 2


def test_a23_streamed_drafts_come_before_they_are_checked_and_are_withdrawn_before_the_next():
    model = MODELS["tokens"]()
    graph = rag(model, stream_drafts=True)
    seen = []
    for kind, part in graph.stream(ask(messages=False), CONFIG, stream_mode=BOTH):
        what = part["event"] if kind == "custom" else str(part[0].text).strip()
        seen.append((what, model.count("verify")))

    assert seen[0] == ("REJECTED-DRAFT:", 0)
    order = [what for what, _ in seen]
    assert order.index("draft_withdrawn") < order.index("Refunds")
    assert dict(seen)["Refunds"] == 1


@pytest.mark.parametrize("kind", ["whole", "tokens"])
@chat_or_not
@sync_or_async
async def test_a23_streamed_drafts_of_an_abstention_are_all_withdrawn(mode, messages, kind):
    graph = rag(MODELS[kind](rejections=9), messages=messages, stream_drafts=True)

    parts = await parts_of(graph, ask(messages=messages), mode, stream_mode=BOTH)

    tokens, events = split(parts)
    state = graph.get_state(CONFIG).values
    assert state["reason"] == "not_grounded"
    assert left_standing(parts) == state["answer"]
    assert len(events) == len({event["message_id"] for event in events}) == 2
    assert {event["trace_id"] for event in events} == {state["trace_id"]}
    tags = {token.id: metadata["tags"] for token, metadata in tokens}
    assert sorted(tags.values()) == [["answer"], ["draft"], ["draft"]]


@sync_or_async
async def test_a23_the_models_word_for_no_answer_is_withdrawn_too(mode):
    graph = rag(StreamingFakeChatModel(reply=replies(generate="NO_ANSWER")), stream_drafts=True)

    parts = await parts_of(graph, ask(messages=False), mode, stream_mode=BOTH)

    assert left_standing(parts) == graph.get_state(CONFIG).values["answer"]
    assert "NO_ANSWER" not in left_standing(parts)


@sync_or_async
async def test_a23_an_accepted_draft_is_not_withdrawn_by_the_next_question(mode):
    graph = rag(MODELS["tokens"](rejections=0), messages=True, stream_drafts=True)

    for turn in (1, 2):
        parts = await parts_of(graph, ask(messages=True), mode, stream_mode=BOTH)
        tokens, events = split(parts)
        assert (text_of(tokens), events) == (ANSWER, [])
        assert len(graph.get_state(CONFIG).values["messages"]) == 2 * turn


@sync_or_async
async def test_a23_a_server_that_gives_every_message_one_id_loses_no_answer(mode):
    """Some local servers do; a chat would take the second answer for the first."""
    model = FakeChatModel(reply=replies(generate=lambda asked: AIMessage(ANSWER, id="same")))
    graph = rag(model, messages=True, stream_drafts=True)

    for turn in (1, 2):
        parts = await parts_of(graph, ask(messages=True), mode, stream_mode="messages")
        assert text_of(parts) == ANSWER
        assert len(graph.get_state(CONFIG).values["messages"]) == 2 * turn


@sync_or_async
async def test_a23_a_host_that_publishes_without_abstaining_withdraws_the_draft_too(mode):
    model = MODELS["tokens"](rejections=9)
    builder = StateGraph(Host)
    builder.add_node("seed", lambda state: {"kept": [REFUNDS], "trace_id": "t-1"})
    builder.add_node(nodes.generate(model, stream_drafts=True))
    builder.add_node(nodes.check_groundedness(model))
    builder.add_node(nodes.record_answer())
    builder.add_edge(START, "seed")
    builder.add_edge("seed", "generate")
    builder.add_edge("generate", "check_groundedness")
    builder.add_edge("check_groundedness", "record_answer")

    parts = await parts_of(builder.compile(), ask(messages=False), mode, stream_mode=BOTH)

    assert [event["trace_id"] for event in split(parts)[1]] == ["t-1"]
    assert "REJECTED" not in left_standing(parts)
    assert "no answer that they support" in left_standing(parts)


@chat_or_not
async def test_a23_streamed_drafts_stay_out_of_the_streams_of_state(messages):
    for stream_mode in STATE_MODES[:2] + STATE_MODES[3:]:
        graph = rag(MODELS["tokens"](), messages=messages, stream_drafts=True)
        parts = await parts_of(graph, ask(messages=messages), "stream", stream_mode=stream_mode)
        assert "REJECTED" not in repr(parts), stream_mode
        assert INTERNAL not in repr(parts), stream_mode


@chat_or_not
async def test_a23_without_a_stream_the_answer_is_the_same_with_streamed_drafts(messages):
    graph = rag(MODELS["tokens"](), messages=messages, stream_drafts=True)

    sync = graph.invoke(ask(messages=messages), CONFIG)
    second = await graph.ainvoke(ask(messages=messages), CONFIG)

    assert (sync["answer"], second["answer"]) == (ANSWER, ANSWER)
    if messages:
        ids = [message.id for message in second["messages"]]
        assert len(set(ids)) == 4
        assert all(ids)
