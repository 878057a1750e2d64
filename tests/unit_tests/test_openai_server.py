"""The test server itself: what ChatOpenAI and OpenAIEmbeddings get from it."""

from __future__ import annotations

import math
import time

import openai
import pytest
from langchain_core.exceptions import ModelAPIError, ModelInvalidRequestError, ModelRefusalError
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from tests.openai_server import (
    ChatRequest,
    ContentFilter,
    Empty,
    Failure,
    Json,
    OpenAIServer,
    Refusal,
    Reply,
    Slow,
    Text,
    ToolCalls,
)

# langchain-openai dumps the parsed object as a field that openai declares as None.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

TEXT = "A sentence that is longer than one piece."


class Verdict(BaseModel):
    """A verdict."""

    supported: bool
    note: str


VERDICT = {"supported": True, "note": "said so on page 3"}


def chat(server: OpenAIServer, **settings) -> ChatOpenAI:
    settings = {"model": "gpt-4o-mini", "api_key": "test", "max_retries": 0, **settings}
    return ChatOpenAI(base_url=server.base_url, **settings)


def embedder(server: OpenAIServer, **settings) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        model="text-embedding-3-small",
        base_url=server.base_url,
        api_key="test",
        check_embedding_ctx_length=False,  # else tiktoken downloads its encoding
        **settings,
    )


async def test_text_sync_async_and_batch():
    with OpenAIServer(lambda request: Text(f"{request.text} {request.mode}")) as server:
        model = chat(server)
        message = model.invoke([("system", "Be brief."), ("user", "Hello")])
        assert message.content == "Be brief.\nHello text"
        assert message.usage_metadata["input_tokens"] == 3
        assert (await model.ainvoke("Hello")).content == "Hello text"
        answers = {answer.content for answer in model.batch(["a", "b", "c"])}
    assert answers == {"a text", "b text", "c text"}
    assert [request.index for request in server.chats] == [0, 1, 2, 3, 4]
    assert server.requests[0]["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_stream_comes_in_pieces_and_with_usage_when_asked():
    with OpenAIServer(lambda _: Text(TEXT)) as server:
        pieces = [chunk.content for chunk in chat(server).stream("q")]
        assert "".join(pieces) == TEXT
        assert sum(bool(piece) for piece in pieces) > 3
        whole = None
        async for chunk in chat(server, stream_usage=True).astream("q"):
            whole = chunk if whole is None else whole + chunk
    assert whole.content == TEXT
    assert whole.usage_metadata["total_tokens"] > 1
    assert whole.response_metadata["finish_reason"] == "stop"
    assert all(request.stream for request in server.chats)


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
async def test_structured_output(method):
    with OpenAIServer(lambda _: Json(VERDICT)) as server:
        judge = chat(server).with_structured_output(Verdict, method=method, include_raw=True)
        answers = [judge.invoke("q"), await judge.ainvoke("q")]
        *_, streamed = chat(server).with_structured_output(Verdict, method=method).stream("q")
    assert [answer["parsed"] for answer in answers] == [Verdict(**VERDICT)] * 2
    assert answers[0]["parsing_error"] is None
    assert streamed == Verdict(**VERDICT)
    request = server.chats[0]
    named = method != "json_mode"
    assert request.mode == ("function" if method == "function_calling" else "json_schema")
    assert request.schema_name == ("Verdict" if named else None)
    assert not named or set(request.schema["properties"]) == {"supported", "note"}


def test_tool_calls_stream_their_arguments_in_pieces():
    calls = ToolCalls([("Verdict", VERDICT), ("Verdict", '{"broken": ')])
    with OpenAIServer(lambda _: calls) as server:
        model = chat(server).bind_tools([Verdict])
        message = model.invoke("q")
        chunks = list(model.stream("q"))
    assert [call["args"] for call in message.tool_calls] == [VERDICT]
    assert message.invalid_tool_calls[0]["args"] == '{"broken": '
    assert len(chunks) > 5
    assert sum(chunks[1:], chunks[0]).tool_calls[0]["args"] == VERDICT


async def test_refusal_and_empty_content():
    replies = [Refusal("I will not."), Refusal("I will not."), Empty()]
    with OpenAIServer(lambda request: replies[request.index]) as server:
        judge = chat(server).with_structured_output(Verdict, include_raw=True)
        error = judge.invoke("q")["parsing_error"]
        with pytest.raises(ModelRefusalError, match="I will not"):
            _ = [chunk async for chunk in judge.astream("q")]
        assert chat(server).invoke("q").content == ""
    assert isinstance(error, ModelRefusalError)


def test_content_filter_of_the_prompt_and_of_the_answer():
    replies = [ContentFilter(), Text("", "content_filter")]
    with OpenAIServer(lambda request: replies[request.index]) as server:
        with pytest.raises(ModelInvalidRequestError) as caught:
            chat(server).invoke("q")
        assert caught.value.code == "content_filter"
        with pytest.raises(openai.ContentFilterFinishReasonError):
            chat(server).with_structured_output(Verdict).invoke("q")


async def test_429_then_success_and_500_to_the_end():
    def reply(request: ChatRequest) -> Reply:
        return Failure(429, "slow down", 0.01) if request.index == 0 else Text("ok")

    with OpenAIServer(reply) as server:
        assert chat(server, max_retries=1).invoke("q").content == "ok"
        assert len(server.chats) == 2
    with OpenAIServer(lambda _: Failure(500, retry_after=0.01)) as server:
        with pytest.raises(ModelAPIError):
            await chat(server, max_retries=None).ainvoke("q")
        assert len(server.chats) == 3  # the client's default is two retries


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, openai.AuthenticationError), (404, openai.NotFoundError), (429, openai.RateLimitError)],
)
def test_failures_have_their_classes(status, error):
    with OpenAIServer(lambda _: Failure(status, "no")) as server, pytest.raises(error, match="no"):
        list(chat(server).stream("q"))


def test_slow_answers_meet_the_clients_timeout_and_do_not_hold_the_server():
    started = time.monotonic()
    late = OpenAIServer(lambda _: Slow(30, Text("late")))
    with late as server, pytest.raises(openai.APITimeoutError):
        chat(server, timeout=0.1).invoke("q")
    assert time.monotonic() - started < 2
    with OpenAIServer(lambda _: Slow(0.01, Text("late"))) as server:
        assert chat(server).invoke("q").content == "late"


def test_an_error_in_the_reply_function_reaches_the_test():
    def reply(request: ChatRequest) -> Reply:
        raise KeyError(request.text)

    failed = pytest.raises(openai.APIStatusError, match="reply function raised")
    with pytest.raises(KeyError, match="q"), OpenAIServer(reply) as server, failed:
        chat(server).invoke("q")


async def test_embeddings():
    with OpenAIServer() as server:
        model = embedder(server)
        a, b, c = model.embed_documents(["The cat sat", "the CAT sat.", "a dog"])
        assert await model.aembed_query("The cat sat") == a
        as_floats = embedder(server, model_kwargs={"encoding_format": "float"})
        assert as_floats.embed_query("The cat sat") == pytest.approx(a)
        assert len(embedder(server, dimensions=8).embed_query("x")) == 8
        tokens = model.client.create(input=[[1, 2], [3]], model="m").data
    assert len(a) == 256
    assert math.hypot(*a) == pytest.approx(1)
    assert a == b
    assert sum(x * y for x, y in zip(a, c, strict=True)) < 0.5
    assert len(tokens) == 2
    assert server.requests[0]["encoding_format"] == "base64"
    assert server.chats == []


def test_models_and_unknown_paths():
    with OpenAIServer() as server, openai.OpenAI(base_url=server.base_url, api_key="x") as client:
        assert [model.id for model in client.models.list()] == ["gpt-4o-mini"]
        with pytest.raises(openai.NotFoundError, match="/v1/responses"):
            client.responses.create(model="gpt-4o-mini", input="q")
