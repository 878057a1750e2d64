"""Citations as annotations of the answer's message: what it holds, and where it may go."""

import json
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.load import dumpd, load
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    convert_to_messages,
    convert_to_openai_messages,
    messages_from_dict,
    messages_to_dict,
)
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import add_messages

from langchain_feedback import nodes
from langchain_feedback.graph import create_reliable_rag, reliable_rag_builder
from langchain_feedback.nodes import StateKeys
from tests.fakes import ListRetriever, StreamingFakeChatModel, replies
from tests.openai_server import OpenAIServer, Text

QUESTION = "How long does a refund take?"
ANSWER = "Refunds take 14 days."
REFUNDS = Document(
    f"Terms. {ANSWER}", id="a", metadata={"source": "https://example.org/faq", "page": 3}
)
IN_CHAT = StateKeys(messages="messages")
CONFIG = {"configurable": {"thread_id": "t"}}
CITATION = {
    "claim": ANSWER,
    "answer_start": 0,
    "answer_end": 21,
    "chunk_id": "a",
    "source": "faq.md > Refunds",
    "quote": "Refunds take 14 days",
    "start": 7,
    "end": 27,
    "verified": True,
    "occurrences": 1,
}
UNVERIFIED = CITATION | {"quote": "within a fortnight", "verified": False, "occurrences": 0}
sync_or_async = pytest.mark.parametrize("mode", ["sync", "async"])


def rag(**options: Any) -> Any:
    model = StreamingFakeChatModel(reply=replies())
    options = {"messages": True, "citations": "annotations", **options}
    return create_reliable_rag(ListRetriever(documents=[REFUNDS]), model, **options)


def recorded(*citations: dict[str, Any], **state: Any) -> AIMessage:
    node = nodes.record_answer(citations="annotations", keys=IN_CHAT)
    draft = {"draft": ANSWER, "grounded": True, "citations": list(citations)}
    [message] = node({"messages": [HumanMessage(QUESTION)], **draft, **state})["messages"]
    return message


def annotations(message: AIMessage) -> list[dict[str, Any]]:
    [block] = message.content
    assert set(block) == {"type", "text", "annotations"}
    return block["annotations"]


# What it holds.


def test_the_message_is_one_text_block_with_the_answers_citations():
    message = recorded(CITATION)
    [annotation] = annotations(message)
    assert annotation.pop("id").startswith("lc_")
    assert annotation == {
        "type": "citation",
        "title": "faq.md > Refunds",
        "start_index": 0,
        "end_index": 21,
        "cited_text": "Refunds take 14 days",
        "extras": {"chunk_id": "a", "start": 7, "end": 27, "verified": True, "occurrences": 1},
    }
    assert message.text == ANSWER
    assert message.content_blocks == message.content
    json.dumps(message.content)


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("https://example.org/faq, page 3", "https://example.org/faq"),
        ("javascript:alert(1)", None),
        ("faq.md", None),
    ],
)
def test_only_an_http_source_has_a_url(source, url):
    [annotation] = annotations(recorded(CITATION | {"source": source}))
    assert annotation.get("url") == url
    assert annotation["title"] == source


def test_a_source_without_a_name_has_no_title():
    assert "title" not in annotations(recorded(CITATION | {"source": ""}))[0]


def test_unverified_citations_are_shown_only_where_none_is_verified():
    assert [a["cited_text"] for a in annotations(recorded(UNVERIFIED, CITATION))] == [
        "Refunds take 14 days"
    ]
    [alone] = annotations(recorded(UNVERIFIED))
    assert alone["extras"]["verified"] is False
    assert alone["extras"]["occurrences"] == 0


def test_without_citations_and_in_an_abstention_it_is_plain_text():
    assert recorded().content == ANSWER
    assert isinstance(recorded(CITATION, grounded=False).content, str)
    assert isinstance(recorded(CITATION, status="abstained", answer="No.").content, str)


def test_by_default_citations_are_in_the_state_alone():
    result = rag(citations="state").invoke({"messages": [("user", QUESTION)]})
    assert result["messages"][-1].content == ANSWER
    assert result["citations"][0]["quote"] == "Refunds take 14 days"


# Settings that cannot be meant.


def test_annotations_need_messages():
    for make in (create_reliable_rag, reliable_rag_builder):
        with pytest.raises(ValueError, match="messages=True"):
            make(ListRetriever(documents=[]), "offline", citations="annotations")
    with pytest.raises(ValueError, match="StateKeys"):
        nodes.record_answer(citations="annotations")


@pytest.mark.parametrize("word", ["annotation", "", None])
def test_an_unknown_word_is_told(word):
    with pytest.raises(ValueError, match="must be 'state' or 'annotations', got"):
        rag(citations=word)
    with pytest.raises(ValueError, match="must be 'state' or 'annotations', got"):
        nodes.record_answer(citations=word)


# In a graph and its streams.


async def parts_of(graph: Any, mode: str, **options: Any) -> list[Any]:
    asked = {"messages": [("user", QUESTION)]}
    if mode == "sync":
        return list(graph.stream(asked, CONFIG, **options))
    return [part async for part in graph.astream(asked, CONFIG, **options)]


@sync_or_async
@pytest.mark.parametrize("stream_drafts", [False, True])
async def test_the_tokens_are_the_text_once_and_the_message_has_their_id(mode, stream_drafts):
    graph = rag(checkpointer=InMemorySaver(), stream_drafts=stream_drafts)

    parts = await parts_of(graph, mode, stream_mode="messages")

    message = graph.get_state(CONFIG).values["messages"][-1]
    assert "".join(str(token.text) for token, _ in parts) == ANSWER == message.text
    assert all(isinstance(token, AIMessageChunk) for token, _ in parts)
    assert {token.id for token, _ in parts} == {message.id}
    tag = "draft" if stream_drafts else "answer"
    assert {tuple(metadata["tags"]) for _, metadata in parts} == {(tag,)}
    [annotation] = annotations(message)
    assert annotation["url"] == "https://example.org/faq"
    extras = annotation["extras"]
    assert REFUNDS.page_content[extras["start"] : extras["end"]] == annotation["cited_text"]


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
def test_the_third_event_protocol_shows_the_text_once():
    graph = rag(checkpointer=InMemorySaver())
    asked = {"messages": [("user", QUESTION)]}
    events = list(graph.stream_events(asked, CONFIG, version="v3"))
    said = [event["params"]["data"][0] for event in events if event["method"] == "messages"]
    deltas = [part["delta"]["text"] for part in said if part["event"] == "content-block-delta"]
    assert "".join(deltas) == ANSWER
    assert sum(part["event"] == "message-start" for part in said) == 1


@sync_or_async
async def test_each_turn_of_a_chat_has_its_own_message(mode):
    graph = rag(checkpointer=InMemorySaver())
    for _ in range(2):
        await parts_of(graph, mode, stream_mode="messages")
    messages = graph.get_state(CONFIG).values["messages"]
    assert [message.type for message in messages] == ["human", "ai", "human", "ai"]
    assert len({message.id for message in messages}) == 4
    assert all(annotations(message) for message in messages[1::2])


def test_the_next_turn_is_told_its_text_only():
    model = StreamingFakeChatModel(reply=replies())
    graph = create_reliable_rag(
        ListRetriever(documents=[REFUNDS]),
        model,
        messages=True,
        citations="annotations",
        checkpointer=InMemorySaver(),
    )
    for _ in range(2):
        graph.invoke({"messages": [("user", QUESTION)]}, CONFIG)
    asked = [call for call in model.calls if call.role == "generate"][-1]
    assert f"assistant: {ANSWER}" in asked.text
    assert "annotations" not in asked.text
    assert "cited_text" not in asked.text


# Where it may go.


@pytest.mark.filterwarnings("ignore:The function `load` is in beta")
def test_it_survives_being_stored_and_sent():
    message = recorded(CITATION)
    serde = JsonPlusSerializer()
    copies = [
        serde.loads_typed(serde.dumps_typed(message)),
        load(json.loads(json.dumps(dumpd(message))), allowed_objects="messages"),
        messages_from_dict(json.loads(json.dumps(messages_to_dict([message]))))[0],
        convert_to_messages([json.loads(message.model_dump_json())])[0],
        add_messages([HumanMessage("?", id="q")], [message])[-1],
        add_messages([message], [message.model_copy()])[-1],
    ]
    for copied in copies:
        assert isinstance(copied, AIMessage)
        assert (copied.content, copied.id) == (message.content, message.id)
        assert copied.content_blocks == message.content_blocks


@pytest.mark.parametrize("api", ["invoke", "stream"])
def test_chat_openai_gets_the_text_of_the_whole_list_of_messages(api):
    messages = rag().invoke({"messages": [("user", QUESTION)]})["messages"]
    with OpenAIServer(reply=lambda asked: Text("Gladly.")) as server:
        model = ChatOpenAI(model="some-model", base_url=server.base_url, api_key="none")
        if api == "invoke":
            reply = model.invoke([*messages, HumanMessage("Thanks.")]).text
        else:
            reply = "".join(str(chunk.text) for chunk in model.stream([*messages, ("user", "?")]))
    assert reply == "Gladly."
    [asked] = server.chats
    # What OpenAI's API knows of an assistant's content; it refuses what it does not know.
    assert asked.messages[1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": ANSWER}],
    }


def test_the_neutral_openai_format_has_the_text_only():
    [converted] = convert_to_openai_messages([recorded(CITATION)])
    assert converted["content"] in (ANSWER, [{"type": "text", "text": ANSWER}])
