"""What an agent did since its last answer: what was asked, searched for and found."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

__all__ = ["GROUNDING_KEY", "Search", "Turn", "documents_in", "read_turn"]

GROUNDING_KEY = "grounding"
"""The key of an answer's `response_metadata` under which its outcome stands."""

_DEEPEST = 12


@dataclass(frozen=True)
class Search:
    """One call of a retrieval tool."""

    tool: str
    query: str
    """What was searched for, as far as the call tells."""
    documents: list[Document]


@dataclass(frozen=True)
class Turn:
    """The messages since the last answer."""

    question: str
    searches: list[Search]
    """The calls of retrieval tools in this turn; one may have found nothing, or failed."""
    earlier: list[Search]
    """Those of earlier turns, if they were read."""
    without_documents: list[str]
    """Names of the tools of this turn whose messages count for nothing."""
    regenerations: int
    """Drafts of this turn that were rejected, and followed by another tool call."""

    @property
    def queries(self) -> str:
        """What was searched for, where it is not the question itself."""
        asked = self.question.strip().casefold()
        queries = dict.fromkeys(one.query for one in self.searches if one.query.strip())
        return "; ".join(query for query in queries if query.strip().casefold() != asked)


def read_turn(
    messages: Sequence[AnyMessage], tools: Collection[str], *, named: bool, earlier: bool = False
) -> Turn:
    """Read the turn from an agent's messages.

    A turn starts behind the last answer, which is the last model message without tool calls.
    Every human message in it belongs to it, and the last one is the question: middleware may
    put reminders between the tools' results.

    Args:
        messages: The agent's messages.
        tools: Names of retrieval tools: each call of one is a search.
        named: Whether only those count. Otherwise every tool message counts that holds
            documents, or an empty list in place of them.
        earlier: Whether to read earlier turns, too.
    """
    start = max((i for i, m in enumerate(messages) if _is_answer(m)), default=-1) + 1
    turn = messages[start:]
    calls = {
        call["id"]: call
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    read = partial(_searches, calls=calls, tools=tools, named=named)
    searches = list(read(turn))
    counted = {search.tool for search in searches}
    others = [str(message.name) for message in turn if isinstance(message, ToolMessage)]
    humans = [str(message.text) for message in turn if isinstance(message, HumanMessage)]
    asked = next((text for text in reversed(humans) if text.strip()), "")
    return Turn(
        question=asked or "; ".join(filter(None, (one.query for one in searches))) or "?",
        searches=searches,
        earlier=list(read(messages[:start])) if earlier else [],
        without_documents=[name for name in others if name not in counted],
        regenerations=sum(map(_regenerations, turn)),
    )


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


def _searches(
    messages: Sequence[AnyMessage],
    *,
    calls: Mapping[str | None, Any],
    tools: Collection[str],
    named: bool,
) -> Iterator[Search]:
    for message in messages:
        if not isinstance(message, ToolMessage):
            continue
        call = calls.get(message.tool_call_id) or {}
        tool = message.name or str(call.get("name") or "")
        if named and tool not in tools:
            continue
        documents = [] if message.status == "error" else documents_in(message.artifact)
        is_empty = isinstance(message.artifact, list | tuple) and not message.artifact
        if documents or is_empty or tool in tools:
            yield Search(tool, _query(call.get("args")), documents)


def _query(arguments: Any) -> str:
    """Return what a call searches for: its `query`, or else its only text."""
    if not isinstance(arguments, Mapping):
        return ""
    texts = [value for value in arguments.values() if isinstance(value, str)]
    query = arguments.get("query", texts[0] if len(texts) == 1 else "")
    return query if isinstance(query, str) else ""


def _is_answer(message: AnyMessage) -> bool:
    return isinstance(message, AIMessage) and not message.tool_calls


def _regenerations(message: AnyMessage) -> int:
    marks = message.response_metadata.get(GROUNDING_KEY) if isinstance(message, AIMessage) else {}
    count = marks.get("regenerations", 0) if isinstance(marks, Mapping) else 0
    return count if isinstance(count, int) else 0
