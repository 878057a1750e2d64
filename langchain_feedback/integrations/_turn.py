"""What an agent did since its last answer: what was asked, searched for and found."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_feedback.integrations._memory import Memory, Search, documents_in, last_question

__all__ = ["GROUNDING_KEY", "Turn", "calls_of", "read_turn"]

GROUNDING_KEY = "grounding"
"""The key of an answer's `response_metadata` under which its outcome stands."""


@dataclass(frozen=True)
class Turn:
    """What happened since the last answer."""

    question: str
    found: list[Search]
    """The calls of retrieval tools in this turn; one may have found nothing, or failed."""
    lost: list[Search]
    """Calls of which no message ever showed the result: nobody knows what they found."""
    earlier: list[Search]
    """The searches of earlier turns, if they were read."""
    without_documents: list[str]
    """Names of the tools of this turn whose messages count for nothing."""
    memory: Memory
    """What is known of the run, with what the messages show now."""

    @property
    def searches(self) -> list[Search]:
        """Every search of this turn."""
        return [*self.found, *self.lost]

    @property
    def queries(self) -> str:
        """What was searched for, where it is not the question itself."""
        asked = self.question.strip().casefold()
        queries = dict.fromkeys(one.query for one in self.searches if one.query.strip())
        return "; ".join(query for query in queries if query.strip().casefold() != asked)


def read_turn(
    messages: Sequence[AnyMessage],
    tools: Collection[str],
    *,
    memory: Memory,
    named: bool,
    earlier: bool = False,
) -> Turn:
    """Read the turn from an agent's messages, and from what is known of its run.

    Args:
        messages: The agent's messages.
        tools: Names of retrieval tools: each call of one is a search.
        memory: Where the turn starts, what was asked in it, and what earlier looks at the
            messages have shown. What they show no more counts all the same.
        named: Whether only those tools count. Otherwise every tool message counts that holds
            documents, or an empty list in place of them.
        earlier: Whether to read earlier turns, too.
    """
    start = memory.start(messages)
    turn = messages[start:]
    calls = {
        call["id"]: call
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    read = partial(_searches, calls=calls, tools=tools, named=named)
    memory = memory.seen(list(read(turn)))
    results = [message for message in turn if isinstance(message, ToolMessage)]
    shown = {message.tool_call_id for message in results}
    memory = replace(memory, called=[one for one in memory.called if one.call_id not in shown])
    searches = [*memory.searches, *memory.called]
    counted = {search.tool for search in searches}
    queries = "; ".join(one.query for one in searches if one.query)
    return Turn(
        question=memory.question or last_question(turn) or queries or "?",
        found=memory.searches,
        lost=memory.called,
        earlier=list(read(messages[:start])) if earlier else [],
        without_documents=[str(m.name) for m in results if str(m.name) not in counted],
        memory=memory,
    )


def calls_of(messages: Sequence[Any], tools: Collection[str]) -> list[Search]:
    """Return the searches that a model calls for, before they are done."""
    return [
        Search(call["name"], _query(call["args"]), [], call["id"] or "")
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["name"] in tools
    ]


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
        artifact = message.artifact
        documents = [] if message.status == "error" else documents_in(artifact)
        if documents or _is_empty(artifact) or tool in tools:
            trace_id = "" if documents else _trace_id(artifact)
            query = _query(call.get("args"))
            yield Search(tool, query, documents, message.tool_call_id, trace_id)


def _is_empty(artifact: Any) -> bool:
    """Whether an artifact says that nothing was found."""
    found = artifact.get("documents") if isinstance(artifact, Mapping) else artifact
    return isinstance(found, list | tuple) and not found


def _trace_id(artifact: Any) -> str:
    """Return the trace id that `create_feedback_retriever_tool` leaves where it found nothing."""
    trace_id = artifact.get("trace_id") if isinstance(artifact, Mapping) else None
    return trace_id if isinstance(trace_id, str) else ""


def _query(arguments: Any) -> str:
    """Return what a call searches for: its `query`, or else its only text."""
    if not isinstance(arguments, Mapping):
        return ""
    texts = [value for value in arguments.values() if isinstance(value, str)]
    query = arguments.get("query", texts[0] if len(texts) == 1 else "")
    return query if isinstance(query, str) else ""
