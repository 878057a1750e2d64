"""Asking an application a question again, whatever it is: as traffic of a test."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.pregel.protocol import PregelProtocol

from langchain_feedback.documents import chunk_key, content_hash
from langchain_feedback.traces import marks_of, new_trace_id

__all__ = ["App", "Found", "Reply", "ask_again"]

App = Runnable[Any, Any] | Callable[[str], Any]
"""A retriever, a graph, or a function of a question."""


@dataclass(frozen=True)
class Found:
    """One chunk of a reply."""

    document: Document
    chunk_id: str
    content_hash: str
    in_prompt: bool
    """Whether the answer could rest on it: it was not graded `no`."""
    cited: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {
            "chunk_id": self.chunk_id,
            "content_hash": self.content_hash,
            "text": self.document.page_content,
            "source": self.source,
            "in_prompt": self.in_prompt,
            "cited": self.cited,
        }

    @property
    def source(self) -> str:
        """Its document; empty where it names none."""
        return str(self.document.metadata.get("source") or "")


@dataclass(frozen=True)
class Reply:
    """What an application made of a question."""

    question: str
    is_answer: bool
    """False: a retriever's, which answers nothing."""
    answer: str | None = None
    status: str | None = None
    reason: str | None = None
    grounded: bool | None = None
    trace_id: str | None = None
    chunks: tuple[Found, ...] = ()

    @property
    def prompt(self) -> tuple[Found, ...]:
        """What the answer could rest on; all that a retriever returned."""
        return tuple(one for one in self.chunks if one.in_prompt or one.cited)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        names = ("question", "answer", "status", "reason", "grounded", "trace_id")
        facts = {name: getattr(self, name) for name in names}
        return facts | {"chunks": [one.as_dict() for one in self.chunks]}


def ask_again(app: App, question: str, *, id_field: str | None = None) -> Reply:
    """Ask, and read the reply.

    Args:
        app: A graph takes `{"question": ...}`, or `messages` where its input has only those; any
            other Runnable, and a function, the question itself.
        question: What is asked.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        TypeError: If the reply is neither documents, nor a mapping, nor a text.
    """
    if not isinstance(app, Runnable):
        return _read(question, app(question), id_field)
    config: RunnableConfig = {"metadata": {"source": "eval"}, "run_name": "retest"}
    if not isinstance(app, PregelProtocol):
        return _read(question, app.invoke(question, config), id_field)
    # A thread of its own: a checkpointer must not remember another question.
    config["configurable"] = {"thread_id": f"retest:{new_trace_id()}"}
    given: Any = {"question": question}
    if "messages" in (names := _inputs(app)) and "question" not in names:
        given = {"messages": [("user", question)]}
    return _read(question, app.invoke(given, config), id_field)


def _inputs(app: Any) -> Iterable[str]:
    try:
        return list(app.get_input_jsonschema().get("properties", ()))
    except Exception:  # noqa: BLE001  a graph behind a network may not say
        return ()


def _read(question: str, result: Any, id_field: str | None) -> Reply:
    if isinstance(result, str):
        return Reply(question, is_answer=True, answer=result, status="answered")
    if isinstance(result, Mapping):
        return _read_answer(question, result, id_field)
    if isinstance(result, Sequence) and all(isinstance(one, Document) for one in result):
        found = [_found(one, id_field, set(), {}) for one in result]
        return Reply(question, is_answer=False, chunks=tuple(found))
    msg = f"Expected documents, an answer or a mapping with one, got {type(result).__name__}"
    raise TypeError(msg)


def _read_answer(question: str, result: Mapping[str, Any], id_field: str | None) -> Reply:
    answer = result.get("answer")
    messages = result.get("messages") or ()
    if answer is None and messages and isinstance(messages[-1], BaseMessage):
        answer = str(messages[-1].text)
    citations = [one for one in result.get("citations") or () if one.get("verified", True)]
    cited = {str(one.get("chunk_id")) for one in citations}
    grades = {str(one.get("chunk_id")): one.get("verdict") for one in result.get("grades") or ()}
    documents = [_document(one) for one in result.get("documents") or ()]
    grounded, trace_id = result.get("grounded"), result.get("trace_id")
    return Reply(
        question,
        is_answer=True,
        answer=None if answer is None else str(answer),
        status=str(result.get("status") or ("answered" if answer else "abstained")),
        reason=str(result.get("reason") or "") or None,
        grounded=grounded if isinstance(grounded, bool) else None,
        trace_id=str(trace_id) if trace_id else None,
        chunks=tuple(_found(one, id_field, cited, grades) for one in documents),
    )


def _document(given: Any) -> Document:
    """Return a document, also where a server or a checkpointer made a mapping of it."""
    if isinstance(given, Document):
        return given
    return Document(
        str(given["page_content"]), id=given.get("id"), metadata=given.get("metadata") or {}
    )


def _found(
    document: Document, id_field: str | None, cited: set[str], grades: Mapping[str, Any]
) -> Found:
    chunk_id = str(marks_of(document).get("chunk_id") or chunk_key(document, id_field))
    return Found(
        document,
        chunk_id,
        content_hash(document),
        in_prompt=grades.get(chunk_id) != "no",
        cited=chunk_id in cited,
    )
