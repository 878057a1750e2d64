"""A loopback server that speaks enough of OpenAI's wire format for ChatOpenAI and embeddings.

Only the standard library. A test gives a function from the request to one of the replies::

    with OpenAIServer(lambda request: Text("Lyon.")) as server:
        model = ChatOpenAI(model="gpt-4o-mini", base_url=server.base_url, api_key="test")
        model.invoke("Where?")

`OpenAIEmbeddings` needs `check_embedding_ctx_length=False`: else tiktoken downloads its encoding.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import sys
import threading
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Callable

DIMENSIONS = 256
PIECE = 8  # characters in one streamed delta


@dataclass(frozen=True)
class Text:
    """Plain content. `finish_reason` "length" and "content_filter" are the cut-off answers."""

    text: str
    finish_reason: str = "stop"


@dataclass(frozen=True)
class Json:
    """An object, in the way the request asked for it: content, or the arguments of its tool."""

    value: dict[str, Any]


@dataclass(frozen=True)
class ToolCalls:
    """Pairs of tool name and arguments; arguments given as a string are sent as they are."""

    calls: list[tuple[str, dict[str, Any] | str]]


@dataclass(frozen=True)
class Refusal:
    text: str


@dataclass(frozen=True)
class ContentFilter:
    """HTTP 400, the filter stopped the prompt. For the answer: `Text("", "content_filter")`."""


@dataclass(frozen=True)
class Failure:
    status: int
    message: str = "The server had an error"
    retry_after: float | None = None  # seconds, at least 0.001: the client ignores 0


@dataclass(frozen=True)
class Slow:
    """Wait, then answer; the end of the server ends the wait too."""

    seconds: float
    then: Reply


@dataclass(frozen=True)
class Empty:
    """An answer whose content is null."""


Reply = Text | Json | ToolCalls | Refusal | ContentFilter | Failure | Slow | Empty


@dataclass(frozen=True)
class ChatRequest:
    body: dict[str, Any]
    index: int  # how many chat requests came before, retries included

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def text(self) -> str:
        return "\n".join(_content_text(message.get("content")) for message in self.messages)

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def mode(self) -> Literal["text", "json_schema", "function"]:
        """How an object is wanted; "json_schema" without a name is `json_object`."""
        if self.body.get("response_format", {}).get("type", "text") != "text":
            return "json_schema"
        if self.body.get("tools") and self.body.get("tool_choice") != "none":
            return "function"
        return "text"

    @property
    def schema_name(self) -> str | None:
        return self._wanted.get("name")

    @property
    def schema(self) -> dict[str, Any] | None:
        return self._wanted.get("parameters", self._wanted.get("schema"))

    @property
    def forced(self) -> bool:
        return isinstance(self.body.get("tool_choice"), dict)

    @cached_property
    def _wanted(self) -> dict[str, Any]:
        if self.mode == "json_schema":
            return self.body["response_format"].get("json_schema", {})
        if self.mode == "text":
            return {}
        tools = [tool["function"] for tool in self.body["tools"] if "function" in tool]
        if self.forced:
            name = self.body["tool_choice"].get("function", {}).get("name")
            tools = [tool for tool in tools if tool["name"] == name]
        return tools[0] if tools else {}


class OpenAIServer:
    """Serves from `__enter__` to `__exit__`, which raises what `reply` raised meanwhile."""

    def __init__(self, reply: Callable[[ChatRequest], Reply] = lambda _: Text("ok")) -> None:
        self.reply = reply
        self._lock = threading.Lock()
        self._bodies: list[dict[str, Any]] = []
        self._chats: list[ChatRequest] = []
        self.errors: list[BaseException] = []
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        if self.errors and kind is None:
            raise self.errors[0]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all POST requests, in order of arrival."""
        with self._lock:
            return list(self._bodies)

    @property
    def chats(self) -> list[ChatRequest]:
        """The chat requests alone."""
        with self._lock:
            return list(self._chats)

    def record(self, path: str, body: dict[str, Any]) -> ChatRequest:
        with self._lock:
            self._bodies.append(body)
            request = ChatRequest(body, len(self._chats))
            if path == _CHAT:
                self._chats.append(request)
            return request

    def answer(self, request: ChatRequest) -> Reply:
        try:
            reply = self.reply(request)
        except Exception as error:  # noqa: BLE001 - the test's own failure, raised at the exit
            self.errors.append(error)
            return Failure(418, f"the test's reply function raised {error!r}")
        while isinstance(reply, Slow):
            self._stopped.wait(reply.seconds)
            reply = reply.then
        return reply


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
    owner: OpenAIServer

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without HTTPServer's look-up of the host's full name

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        if error and not isinstance(error, ConnectionError):  # some tests' clients leave early
            self.owner.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # HTTP/1.0: one request a connection, so no thread outlives its client

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            return self._failure(Failure(404, f"Invalid URL (GET {self.path})"))
        model = {"id": "gpt-4o-mini", "object": "model", "created": 0, "owned_by": "test"}
        return self._json(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        request = self.server.owner.record(self.path, body)
        if self.path == "/v1/embeddings":
            return self._json(200, _embeddings(body))
        if self.path != _CHAT:
            return self._failure(Failure(404, f"Invalid URL (POST {self.path})"))
        reply = self.server.owner.answer(request)
        if isinstance(reply, ContentFilter):
            return self._failure(_FILTERED, "content_filter")
        if isinstance(reply, Failure):
            return self._failure(reply)
        message, reason = _message(request, reply)
        deltas = _deltas(message)
        usage = {"prompt_tokens": len(request.text.split()), "completion_tokens": len(deltas)}
        usage["total_tokens"] = sum(usage.values())
        head = {"id": f"chatcmpl-{request.index}", "created": 0, "model": body.get("model", "")}
        if not request.stream:
            choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
            head["object"] = "chat.completion"
            return self._json(200, {**head, "choices": [choice], "usage": usage})
        self._headers(200, "text/event-stream")
        head["object"] = "chat.completion.chunk"
        for delta in [*deltas, {}]:
            finish = None if delta else reason
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
            self._event(json.dumps({**head, "choices": [choice]}))
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event(json.dumps({**head, "choices": [], "usage": usage}))
        return self._event("[DONE]")

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())

    def _failure(self, reply: Failure, code: str | None = None) -> None:
        kind = "server_error" if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR else _INVALID
        error = {"message": reply.message, "type": kind, "param": None}
        error["code"] = code or _CODES.get(reply.status)
        after = {} if reply.retry_after is None else {"retry-after": f"{reply.retry_after:g}"}
        return self._json(reply.status, {"error": error}, **after)

    def _json(self, status: int, answer: object, **headers: str) -> None:
        data = json.dumps(answer).encode()
        self._headers(status, "application/json", **{"content-length": str(len(data))}, **headers)
        self.wfile.write(data)

    def _headers(self, status: int, content_type: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": content_type, **headers}.items():
            self.send_header(name, value)
        self.end_headers()


_CHAT = "/v1/chat/completions"
_INVALID = "invalid_request_error"
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_FILTERED = Failure(400, "The response was filtered: the prompt triggered the content policy")


def _content_text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return str(content or "")


def _message(request: ChatRequest, reply: Reply) -> tuple[dict[str, Any], str]:
    """The assistant's message and its finish reason."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    if isinstance(reply, Json) and request.mode == "function":
        reply = ToolCalls([(request.schema_name or "", reply.value)])
    if isinstance(reply, ToolCalls):
        message["tool_calls"] = []
        for number, (name, args) in enumerate(reply.calls):
            arguments = args if isinstance(args, str) else json.dumps(args)
            function = {"name": name, "arguments": arguments}
            call = {"id": f"call_{request.index}_{number}", "type": "function"}
            message["tool_calls"].append({**call, "function": function})
        return message, "stop" if request.forced else "tool_calls"  # as OpenAI's API does
    if isinstance(reply, Refusal):
        return {**message, "refusal": reply.text}, "stop"
    if isinstance(reply, Json):
        return {**message, "content": json.dumps(reply.value)}, "stop"
    if isinstance(reply, Text):
        return {**message, "content": reply.text}, reply.finish_reason
    return message, "stop"


def _deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The message as the stream brings it: first the role, then pieces."""
    content = None if message["content"] is None else ""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": content, "refusal": None}]
    for key in ("content", "refusal"):
        deltas += [{key: piece} for piece in _pieces(message[key] or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        first = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [first]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in _pieces(call["function"]["arguments"])
        ]
    return deltas


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    texts = body["input"]
    if isinstance(texts, str) or (texts and isinstance(texts[0], int)):
        texts = [texts]
    data = []
    for index, text in enumerate(texts):
        vector: Any = _vector(text, body.get("dimensions") or DIMENSIONS)
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    used = sum(len(_words(text)) for text in texts)
    usage = {"prompt_tokens": used, "total_tokens": used}
    return {"object": "list", "data": data, "model": body.get("model", ""), "usage": usage}


def _words(text: str | list[int]) -> list[str]:
    return [str(t) for t in text] if isinstance(text, list) else re.findall(r"\w+", text.lower())


def _vector(text: str | list[int], dimensions: int) -> list[float]:
    """A bag of hashed words of length 1."""
    counts = [0.0] * dimensions
    for word in _words(text) or [""]:
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        counts[int.from_bytes(digest) % dimensions] += 1
    norm = math.sqrt(sum(count * count for count in counts))
    return [count / norm for count in counts]
