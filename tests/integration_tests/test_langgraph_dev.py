"""The deployable graphs on the real `langgraph dev` server, over HTTP, with the SDK client."""

from pathlib import Path

import pytest
from langgraph_sdk import get_sync_client

from langchain_feedback.judges import prompts
from tests.fakes import claims
from tests.langgraph_dev_server import langgraph_dev
from tests.openai_server import ChatRequest, Json, OpenAIServer, Text

CONFIG = Path(__file__).parents[2] / "langgraph.json"
REFUND = "How do I ask for a refund of the first payment?"
SENTENCE = "Ask for a refund within fourteen days of the first payment."


@pytest.fixture(scope="module")
def client():
    with langgraph_dev(CONFIG) as url:
        yield get_sync_client(url=url)


def text_of(stream, tag="answer"):
    tokens = [
        part.data[0]["content"]
        for part in stream
        if part.event == "messages" and tag in part.data[1].get("tags", [])
    ]
    return "".join(tokens)


def test_the_graphs_are_served_with_narrow_schemas(client):
    found = {item["graph_id"]: item["assistant_id"] for item in client.assistants.search()}
    assert set(found) == {"reliable_rag", "messages_rag", "weekly_loop"}
    schemas = client.assistants.get_schemas(found["reliable_rag"])
    assert set(schemas["input_schema"]["properties"]) == {"question"}
    assert {"answer", "status", "citations"} <= set(schemas["output_schema"]["properties"])
    assert "draft" not in schemas["output_schema"]["properties"]
    chat = client.assistants.get_schemas(found["messages_rag"])
    assert set(chat["input_schema"]["properties"]) == {"messages"}


def test_a_question_is_answered_with_quotes_and_no_key(client):
    result = client.runs.wait(None, "reliable_rag", input={"question": REFUND})
    assert result["status"] == "answered"
    assert SENTENCE in result["answer"]
    assert result["citations"][0]["quote"].startswith(SENTENCE)
    assert result["citations"][0]["verified"] is True


def test_the_stream_shows_the_trace_id_first_and_the_answer_once_as_tokens(client):
    parts = list(
        client.runs.stream(
            None,
            "reliable_rag",
            input={"question": REFUND},
            stream_mode=["updates", "messages-tuple"],
        )
    )
    updates = [part.data for part in parts if part.event == "updates"]
    trace_id = updates[0]["begin"]["trace_id"]
    assert updates[-1]["record_answer"]["answer"] == text_of(parts)
    tokens = [part.data[1] for part in parts if part.event == "messages"]
    assert {metadata["feedback_trace_id"] for metadata in tokens} == {trace_id}


def test_a_thread_keeps_its_state_and_each_question_its_own(client):
    thread = client.threads.create()["thread_id"]
    client.runs.wait(thread, "reliable_rag", input={"question": REFUND})
    first = client.threads.get_state(thread)["values"]
    client.runs.wait(thread, "reliable_rag", input={"question": "Who won the world cup?"})
    second = client.threads.get_state(thread)["values"]
    assert (first["status"], second["status"]) == ("answered", "abstained")
    assert second["citations"] == []
    assert first["trace_id"] != second["trace_id"]


def test_the_chat_graph_appends_one_message(client):
    thread = client.threads.create()["thread_id"]
    asked = {"messages": [{"role": "user", "content": REFUND}]}
    parts = list(
        client.runs.stream(thread, "messages_rag", input=asked, stream_mode="messages-tuple")
    )
    messages = client.threads.get_state(thread)["values"]["messages"]
    assert [message["type"] for message in messages] == ["human", "ai"]
    [block] = messages[-1]["content"]
    assert block["text"] == text_of(parts)
    assert SENTENCE in block["text"]
    [cited, *_] = block["annotations"]
    assert (cited["type"], cited["extras"]["verified"]) == ("citation", True)
    assert cited["cited_text"].startswith(SENTENCE)
    # As a client does that sends back what it was given, and asks on.
    again = {"messages": [*messages, {"role": "user", "content": REFUND}]}
    client.runs.wait(thread, "messages_rag", input=again)
    longer = client.threads.get_state(thread)["values"]["messages"]
    assert [message["type"] for message in longer] == ["human", "ai", "human", "ai"]
    assert (longer[1]["id"], longer[1]["content"]) == (messages[1]["id"], messages[1]["content"])


def test_the_chat_graph_streams_one_message_to_clients_that_gather_tokens(client):
    asked = {"messages": [{"role": "user", "content": REFUND}]}
    parts = list(client.runs.stream(None, "messages_rag", input=asked, stream_mode="messages"))
    gathered = [part.data[0] for part in parts if part.event == "messages/partial"]
    assert len({message["id"] for message in gathered}) == 1
    assert SENTENCE in gathered[-1]["content"]


def test_a_question_that_is_missing_is_told_to_the_client(client):
    with pytest.raises(Exception, match="There is no question"):
        client.runs.wait(None, "reliable_rag", input={"question": " "})


def as_a_good_model(asked: ChatRequest):
    system, data = asked.messages[0]["content"], asked.messages[-1]["content"]
    slots = [line[5:] for line in data.splitlines() if line.startswith("Slot ")]
    if system == prompts.GRADE_DOCUMENTS:
        return Json(
            {
                "grades": [
                    {"slot": slot, "reason": "it fits", "relevant": number == 0}
                    for number, slot in enumerate(slots)
                ]
            }
        )
    if system == prompts.VERIFY_ANSWER:
        return Json(claims("Within fourteen days.", slots[0], SENTENCE[:-1]))
    return Text("Within fourteen days.")


def test_with_an_openai_server_it_uses_chat_embeddings_and_faiss():
    with OpenAIServer(reply=as_a_good_model) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": "some-model"}
        with langgraph_dev(CONFIG, env) as url:
            client = get_sync_client(url=url)
            result = client.runs.wait(None, "reliable_rag", input={"question": REFUND})
        assert result["answer"] == "Within fourteen days."
        assert result["citations"][0]["source"] == "handbook/refund-window > Refund window"
        assert len(server.chats) == 3
        assert {request.body["model"] for request in server.chats} == {"some-model"}
        embedded = [body for body in server.requests if "input" in body]
        assert sum(len(body["input"]) for body in embedded) >= 12 + 1
