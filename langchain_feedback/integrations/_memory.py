"""What the middleware knows of a run, in a private key of the agent's state.

Other middleware may shorten, rewrite and add messages: what was found, what was asked and how
many drafts were rejected is therefore not read from them alone.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langchain_feedback.documents import plain
from langchain_feedback.integrations._langchain import AgentState, PrivateStateAttr
from langchain_feedback.traces import marks_of

__all__ = ["MEMORY_KEY", "GroundedState", "Memory", "Search", "documents_in", "last_question"]

MEMORY_KEY = "grounded_answers"
"""The key of the agent's state; under it, each middleware's memory has the middleware's name."""

_DEEPEST = 12


class GroundedState(AgentState[Any]):
    """The agent's state with the middleware's own key, which no input and output has."""

    grounded_answers: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, operator.or_]]


@dataclass(frozen=True)
class Search:
    """One call of a retrieval tool."""

    tool: str
    query: str
    """What was searched for, as far as the call tells."""
    documents: list[Document]
    call_id: str = ""
    trace_id: str = ""
    """The trace of a search that found nothing; otherwise each document has its own."""

    def repeats(self, other: "Search") -> bool:
        """Whether this is another's call, which the messages show again, or show no more."""
        if (self.call_id, self.tool) != (other.call_id, other.tool):
            return False
        # Some models give each of their calls the same id: each retrieval has its own trace.
        if not self.documents:
            return self.trace_id in {"", other.trace_id}
        return _marked_texts(self.documents) == _marked_texts(other.documents)


@dataclass(frozen=True)
class Memory:
    """What is known of one run."""

    question: str = ""
    behind: str = ""
    """The id of the message that the turn's first one stands behind; empty: there was none."""
    first: str = ""
    """The id of the turn's first message."""
    searches: list[Search] = field(default_factory=list)
    """What tools returned, as the messages showed it at some call of the model."""
    called: list[Search] = field(default_factory=list)
    """Calls of retrieval tools whose results no message has shown yet."""
    rejected: int = 0
    """Drafts that were written again."""

    @classmethod
    def of_run(cls, messages: Sequence[AnyMessage]) -> "Memory":
        """Begin one, from the messages that a run starts with."""
        start = _start(messages)
        return cls(
            question=last_question(messages[start:]),
            behind=str(messages[start - 1].id or "") if start else "",
            first=str(messages[start].id or "") if start < len(messages) else "",
        )

    @classmethod
    def of_state(cls, state: Mapping[str, Any], name: str) -> "Memory | None":
        """Read what the middleware of this name knows; None: its run has not begun."""
        kept = (state.get(MEMORY_KEY) or {}).get(name)
        if not isinstance(kept, Mapping):
            return None
        return cls(
            question=kept["question"],
            behind=kept["behind"],
            first=kept["first"],
            searches=[_search(one) for one in kept["searches"]],
            called=[_search(one) for one in kept["called"]],
            rejected=kept["rejected"],
        )

    def to_state(self, name: str) -> dict[str, Any]:
        """Return the update of the state that keeps it, of plain values."""
        kept = {
            "question": self.question,
            "behind": self.behind,
            "first": self.first,
            "searches": [_plain(one) for one in self.searches],
            "called": [_plain(one) for one in self.called],
            "rejected": self.rejected,
        }
        return {MEMORY_KEY: {name: kept}}

    def is_like(self, other: "Memory") -> bool:
        """Whether another one says the same, so that nothing new need be kept."""
        # Searches are only ever added, and metadata need not compare.
        added = len(self.searches) != len(other.searches)
        calls = [[one.call_id for one in memory.called] for memory in (self, other)]
        return not added and calls[0] == calls[1] and self.rejected == other.rejected

    def start(self, messages: Sequence[AnyMessage]) -> int:
        """Return where the turn starts: by the message before it, the first, or a guess."""
        places = {message.id: place for place, message in enumerate(messages) if message.id}
        if self.behind in places:
            return places[self.behind] + 1
        return places[self.first] if self.first in places else _start(messages)

    def seen(self, searches: Sequence[Search]) -> "Memory":
        """Add what the messages show."""
        new: list[Search] = []
        for search in searches:
            if not any(search.repeats(known) for known in [*self.searches, *new]):
                new.append(search)
        return replace(self, searches=[*self.searches, *new]) if new else self


def last_question(messages: Sequence[AnyMessage]) -> str:
    """Return the last human message that holds text."""
    humans = (str(m.text) for m in reversed(messages) if isinstance(m, HumanMessage))
    return next((text for text in humans if text.strip()), "")


def documents_in(artifact: Any, depth: int = 0) -> list[Document]:
    """Find the documents in a tool message's artifact, in order, however deep they lie.

    A checkpointer gives documents back as dicts: these count, too.

    Example:
        >>> artifact = {"found": [[Document("a")], {"page_content": "b", "metadata": {}}]}
        >>> [document.page_content for document in documents_in(artifact)]
        ['a', 'b']
    """
    if isinstance(artifact, Document):
        return [artifact]
    if depth > _DEEPEST:
        return []
    if isinstance(artifact, Mapping):
        # LangChain's own JSON wraps what a constructor is given.
        given = artifact.get("kwargs") if artifact.get("lc") else artifact
        if isinstance(given, Mapping) and isinstance(given.get("page_content"), str):
            return [_document(given)]
        values: list[Any] = list(artifact.values())
    elif isinstance(artifact, list | tuple):
        values = list(artifact)
    else:
        return []
    return [document for value in values for document in documents_in(value, depth + 1)]


def _document(given: Mapping[str, Any]) -> Document:
    metadata = given.get("metadata")
    document_id = given.get("id")
    return Document(
        page_content=given["page_content"],
        metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
        id=str(document_id) if isinstance(document_id, str | int) else None,
    )


def _start(messages: Sequence[AnyMessage]) -> int:
    """Return where the last turn starts: behind the last answer before the last human message.

    What stands behind that message belongs to the turn, whoever put it there.
    """
    asked = max((i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), default=0)
    return max((i for i, m in enumerate(messages[:asked]) if _is_answer(m)), default=-1) + 1


def _is_answer(message: AnyMessage) -> bool:
    return isinstance(message, AIMessage) and not message.tool_calls


def _marked_texts(documents: Sequence[Document]) -> list[tuple[str, Any]]:
    return [(one.page_content, marks_of(one).get("trace_id")) for one in documents]


def _plain(search: Search) -> dict[str, Any]:
    documents = [
        {"page_content": one.page_content, "metadata": plain(one.metadata), "id": one.id}
        for one in search.documents
    ]
    return {
        "tool": search.tool,
        "query": search.query,
        "documents": documents,
        "call_id": search.call_id,
        "trace_id": search.trace_id,
    }


def _search(kept: Mapping[str, Any]) -> Search:
    return Search(
        tool=kept["tool"],
        query=kept["query"],
        documents=documents_in(kept["documents"]),
        call_id=kept["call_id"],
        trace_id=kept["trace_id"],
    )
