"""From a folder of files and a question to a result that people and programs can read."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langgraph.graph.state import CompiledStateGraph

from langchain_feedback.documents import chunk_key, source_of
from langchain_feedback.errors import MissingExtraError, MissingKeyError, UnknownModelError
from langchain_feedback.graph import create_reliable_rag
from langchain_feedback.judges.offline import (
    ExtractiveGenerator,
    LexicalGrader,
    LexicalGroundednessChecker,
    corpus_idf,
)
from langchain_feedback.nodes.publishing import ANSWER_TAG

__all__ = ["Answered", "answer", "chat_model", "make_graph"]


@dataclass(frozen=True)
class Answered:
    """One answer, with all that it rests on."""

    state: dict[str, Any]
    """The graph's output."""
    model_calls: int

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        verdicts = {grade["chunk_id"]: grade["verdict"] for grade in self.state["grades"]}
        fields = ("quote", "source", "start", "end", "verified")
        return {
            "status": self.state["status"],
            "answer": self.state["answer"],
            "reason": self.state["reason"],
            "citations": [
                {field: citation[field] for field in fields}
                for citation in self.state["citations"]
            ],
            "documents": [
                {
                    "id": (key := chunk_key(document)),
                    "source": source_of(document),
                    "grade": verdicts.get(key, "unknown"),
                }
                for document in self.state["documents"]
            ],
            "trace_id": self.state["trace_id"],
            "model_calls": self.model_calls,
        }


def make_graph(
    retriever: Runnable[str, list[Document]],
    chunks: Sequence[Document],
    model: BaseChatModel | None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Make the graph with a chat model, or with the offline parts where there is none."""
    if model is not None:
        return create_reliable_rag(retriever, model)
    idf = corpus_idf(chunks)
    return create_reliable_rag(
        retriever,
        ExtractiveGenerator(idf=idf),
        grader=LexicalGrader(idf=idf),
        groundedness=LexicalGroundednessChecker(idf=idf),
    )


def answer(graph: CompiledStateGraph[Any, Any, Any, Any], question: str) -> Answered:
    """Ask the graph one question and count its model calls."""
    counter = _CallCounter()
    state = graph.invoke({"question": question}, {"callbacks": [counter]})
    return Answered(state=state, model_calls=counter.calls)


def chat_model(name: str) -> BaseChatModel:
    """Make the chat model that `--model` names, for example `openai:gpt-4.1-mini`.

    Raises:
        UnknownModelError: If the name is not `openai:NAME`.
        MissingExtraError: If langchain-openai is not installed.
        MissingKeyError: If neither `OPENAI_API_KEY` nor `OPENAI_BASE_URL` is set.
    """
    provider, _, model = name.partition(":")
    if provider != "openai" or not model:
        msg = f"--model must be openai:NAME, for example openai:gpt-4.1-mini; got {name!r}"
        raise UnknownModelError(msg)
    try:
        from langchain_openai import ChatOpenAI  # noqa: PLC0415  an extra
    except ImportError as error:
        msg = 'This needs langchain-openai. Run: pip install "langchain-feedback[openai]"'
        raise MissingExtraError(msg) from error
    key, base_url = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL")
    if not key and not base_url:
        msg = (
            "No key for OpenAI. Set OPENAI_API_KEY (or OPENAI_BASE_URL for a server of your own), "
            "or leave --model out to answer without a model."
        )
        raise MissingKeyError(msg)
    # A server of one's own often wants no key, but the client insists on one.
    make: Callable[..., BaseChatModel] = ChatOpenAI
    return make(model=model, api_key=key or "none", temperature=0)


class _CallCounter(BaseCallbackHandler):
    """Counts calls of chat models; the replay of a verified answer is not one."""

    def __init__(self) -> None:
        self.calls = 0

    def on_chat_model_start(self, *_: Any, tags: list[str] | None = None, **__: Any) -> None:
        self.calls += ANSWER_TAG not in (tags or [])
