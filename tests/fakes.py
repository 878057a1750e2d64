"""Models and retrievers for tests. A reply is a function of the prompt: batches are threaded."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel, Field, PrivateAttr

from langchain_feedback.judges import prompts

_ROLES = {
    prompts.GRADE_DOCUMENTS: "grade",
    prompts.GRADE_DOCUMENT: "grade_one",
    prompts.CHECK_GROUNDEDNESS: "check",
    prompts.HIGHLIGHT_SOURCES: "highlight",
    prompts.VERIFY_ANSWER: "verify",
    prompts.GENERATE_ANSWER: "generate",
    prompts.REWRITE_QUESTION: "rewrite",
    prompts.CONDENSE_QUESTION: "condense",
}


class Asked:
    """One call of a model: whose prompt it is, and its data."""

    def __init__(self, messages: list[BaseMessage], index: int, tags: list[str]) -> None:
        self.messages, self.index, self.tags = messages, index, tags
        self.role = _ROLES.get(str(messages[0].content), "other")
        self.text = str(messages[-1].content)

    @property
    def slots(self) -> list[str]:
        """The slots' names, in order."""
        return [
            line.removeprefix("Slot ")
            for line in self.text.splitlines()
            if line.startswith("Slot ") and "-" in line
        ]

    @property
    def answer(self) -> str:
        """The fenced answer that is to be checked."""
        return self.fenced("answer")

    def fenced(self, name: str) -> str:
        """What stands between the fences of a name."""
        return self.text.split(f"<{name}-")[1].partition("\n")[2].partition(f"\n</{name}-")[0]

    def chunk(self, slot: str) -> str:
        """The text in a slot."""
        return self.text.split(f"Slot {slot}\n")[1].split("\n</chunk-")[0].partition("\n")[2]


class FakeChatModel(BaseChatModel):
    """Replies with `reply(asked)`: text, a dict (structured), a message, or an error to raise.

    `structured="class"` gives an object of the schema, `"dict"` a dict, `"none"` None for
    the parsed reply, `None` has no structured output at all.
    """

    reply: Callable[[Asked], Any]
    structured: str | None = "class"
    calls: list[Asked] = Field(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "fake"

    def count(self, *roles: str) -> int:
        """How many calls were made (of some roles)."""
        return sum(not roles or asked.role in roles for asked in self.calls)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        tags = list(run_manager.tags) if run_manager else []
        with self._lock:
            asked = Asked(messages, len(self.calls), tags)
            self.calls.append(asked)
        reply = self.reply(asked)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, dict):
            call = {"name": "reply", "args": reply, "id": "call-1"}
            reply = AIMessage("", tool_calls=[call])
        if isinstance(reply, str | list):
            reply = AIMessage(content=reply)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def with_structured_output(self, schema: Any, *, include_raw: bool = False, **_: Any) -> Any:
        if self.structured is None:
            raise NotImplementedError

        def parse(message: AIMessage) -> dict[str, Any]:
            args = message.tool_calls[0]["args"] if message.tool_calls else None
            parsed, error = args, None
            if self.structured == "none":
                parsed = None
            elif args is not None and self.structured == "class":
                try:
                    parsed = schema.model_validate(args)
                except ValueError as caught:
                    parsed, error = None, caught
            return {"raw": message, "parsed": parsed, "parsing_error": error}

        return self | RunnableLambda(parse)


class StreamingFakeChatModel(FakeChatModel):
    """Streams each reply in pieces, as real models do: words, or a tool call's arguments."""

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        message = self._generate(messages, stop, run_manager).generations[0].message
        parts: list[dict[str, Any]] = [{"content": message.content}]
        if isinstance(message.content, str):
            parts = [{"content": word} for word in re.findall(r"\s*\S+", message.content)]
        for index, call in enumerate(message.tool_calls):
            args = json.dumps(call["args"])
            call_chunk = {"name": call["name"], "id": call["id"], "index": index}
            for start in range(0, len(args), 24):
                piece = {**call_chunk, "args": args[start : start + 24]}
                parts.append({"content": "", "tool_call_chunks": [piece]})
                call_chunk = {"name": None, "id": None, "index": index}
        for part in parts or [{"content": ""}]:
            yield ChatGenerationChunk(message=AIMessageChunk(**part))


class StatusError(Exception):
    """An error of a provider's client, with the HTTP status that it carries."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code


class Recorder(BaseCallbackHandler):
    """Notes each run that it is told of: kind, name, tags, metadata."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, str, list[str], dict[str, Any]]] = []

    def named(self, kind: str) -> list[tuple[str, list[str], dict[str, Any]]]:
        """The runs of one kind (`chain`, `model`, `retriever`), in order."""
        return [(name, tags, meta) for of, name, tags, meta in self.runs if of == kind]

    def _note(self, kind: str, kwargs: dict[str, Any]) -> None:
        tags, metadata = kwargs.get("tags") or [], kwargs.get("metadata") or {}
        self.runs.append((kind, str(kwargs.get("name")), list(tags), dict(metadata)))

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self._note("chain", kwargs)

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self._note("model", kwargs)

    def on_retriever_start(self, *args: Any, **kwargs: Any) -> None:
        self._note("retriever", kwargs)


class ListRetriever(BaseRetriever):
    """Returns its own documents, live objects as FAISS does; counts its calls."""

    documents: list[Document]
    queries: list[Any] = Field(default_factory=list)
    by_query: dict[str, list[Document]] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any, k: int | None = None
    ) -> list[Document]:
        self.queries.append((query, k, dict(run_manager.metadata), list(run_manager.tags)))
        return self.by_query.get(query, self.documents)[:k]

    # Without it LangChain's own async hook takes no `k`.
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, k: int | None = None
    ) -> list[Document]:
        return self._get_relevant_documents(query, run_manager=run_manager, k=k)


def good(asked: Asked, answer: str = "Refunds take 14 days.") -> Any:
    """Reply as a model that does its work well."""
    quote = answer.rstrip(".")
    replies_by_role: dict[str, Callable[[], Any]] = {
        "grade": lambda: {
            "grades": [{"slot": s, "reason": "it fits", "relevant": True} for s in asked.slots]
        },
        "grade_one": lambda: {"reason": "it fits", "relevant": True},
        "check": lambda: {"reason": "it is there", "unsupported": [], "grounded": True},
        "highlight": lambda: {"quotes": [{"slot": asked.slots[0], "quote": quote}]},
        "verify": lambda: claims(asked.answer, asked.slots[0], quote),
        "rewrite": lambda: "When is money returned?",
        "condense": lambda: asked.fenced("question"),
    }
    return replies_by_role.get(asked.role, lambda: answer)()


def claims(
    answer: str, slot: str, quote: str, *, supported: bool = True, kind: str = "fact"
) -> dict[str, Any]:
    """Make the reply of a verifying model: the whole answer as one claim with one quote."""
    claim = {
        "claim": answer,
        "kind": kind,
        "quotes": [{"slot": slot, "quote": quote}],
        "computed": [],
        "reason": "as quoted",
        "supported": supported,
    }
    return {"claims": [claim]}


def replies(**by_role: Any) -> Callable[[Asked], Any]:
    """Make a reply function: a value, or a function of `Asked`, for some roles; else `good`."""

    def reply(asked: Asked) -> Any:
        if asked.role not in by_role:
            return good(asked)
        value = by_role[asked.role]
        return value(asked) if callable(value) else value

    return reply


def as_json(value: BaseModel | dict[str, Any]) -> str:
    """Write a value as JSON text."""
    return json.dumps(value.model_dump() if isinstance(value, BaseModel) else value)
