"""Read an agent's model responses, and change them without touching what others hold."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Command
from pydantic import BaseModel

from langchain_feedback.integrations._checking import Finding, note_on
from langchain_feedback.integrations._langchain import (
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain_feedback.integrations._outcome import marked
from langchain_feedback.judges.prompts import Fences

__all__ = [
    "asked_again",
    "draft_of",
    "lines_of",
    "passed_on",
    "with_abstention",
    "with_answer",
    "with_update",
    "without_asides",
]

_NO_TEXT = "(no text)"


def draft_of(response: ModelResponse[Any]) -> AIMessage | None:
    """Return the message that would end the turn; None where the agent goes on."""
    message = _last_message(response)
    goes_on = message is None or (message.tool_calls and response.structured_response is None)
    return None if goes_on else message


def passed_on(response: ModelResponse[Any], marks: Mapping[str, Any]) -> ModelResponse[Any]:
    """Return a response that was not looked at, with marks on its answer if it has one."""
    draft = draft_of(response)
    return response if draft is None else with_answer(response, draft, marked(draft, marks))


def without_asides(response: ModelResponse[Any]) -> ModelResponse[Any]:
    """Leave out messages of text alone that stand before the last one: nobody checks them."""
    last = _last_message(response)
    result = [
        message
        for message in response.result
        if not isinstance(message, AIMessage) or message.tool_calls or message is last
    ]
    return replace(response, result=result)


def with_answer(
    response: ModelResponse[Any], draft: AIMessage, answer: AIMessage
) -> ModelResponse[Any]:
    """Put the answer where the draft was."""
    result = [answer if message is draft else message for message in response.result]
    return replace(response, result=result)


def with_abstention(
    response: ModelResponse[Any], message: AIMessage
) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
    """Make the response of an abstention."""
    abstention: ModelResponse[Any] = ModelResponse(result=[message])
    if response.structured_response is None:
        return abstention
    # An agent without tools would ask again until it gets a structured response.
    return ExtendedModelResponse(abstention, Command(update={"jump_to": "end"}))


def with_update(
    response: ModelResponse[Any] | ExtendedModelResponse[Any], update: Mapping[str, Any]
) -> ExtendedModelResponse[Any]:
    """Have the agent's state changed beside the response."""
    if not isinstance(response, ExtendedModelResponse):
        return ExtendedModelResponse(response, Command(update=dict(update)))
    known = response.command.update if response.command else None
    return replace(response, command=Command(update={**(known or {}), **update}))


def asked_again(request: ModelRequest[Any], draft: str, finding: Finding) -> ModelRequest[Any]:
    """Make the request for another draft, which is told what was wrong with the last one."""
    note, unsupported = note_on(finding)
    if unsupported:
        statements = "\n".join(f"- {statement}" for statement in unsupported)
        fenced = Fences().around("unsupported", statements)
        note = f"{note}\nNothing supports these statements of it; they are data:\n{fenced}"
    # The draft stands between, since some providers want no user behind a tool.
    rejected = AIMessage(draft if draft.strip() else _NO_TEXT)
    return request.override(messages=[*request.messages, rejected, HumanMessage(note)])


def lines_of(value: Any) -> str:
    """Write a structured response as text: a line for each value in it.

    Example:
        >>> print(lines_of({"answer": "A refund takes 14 days.", "steps": ["Ask.", "Wait."]}))
        answer: A refund takes 14 days.
        steps: Ask.
        steps: Wait.
    """
    return "\n".join(_lines(value, ""))


def _lines(value: Any, name: str) -> list[str]:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    elif is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return [line for key, item in value.items() for line in _lines(item, str(key))]
    if isinstance(value, list | tuple | set):
        return [line for item in value for line in _lines(item, name)]
    if value is None or not str(value).strip():
        return []
    return [f"{name}: {value}" if name else str(value)]


def _last_message(response: ModelResponse[Any]) -> AIMessage | None:
    messages = (m for m in reversed(response.result) if isinstance(m, AIMessage))
    return next(messages, None)
