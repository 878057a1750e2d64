"""Ask a chat model for a structured reply and survive whatever comes back.

The ladder: a structured reply; else the text of the same reply; else nothing,
with the class of the error. A refusal, a content filter or an outage costs one
reply, never the batch. Only what a person must fix raises: a bad key, a missing
permission, an unknown model.
"""

import json
import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from langchain_core.exceptions import (
    ModelAuthenticationError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
)
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs
from langchain_core.utils.function_calling import convert_to_json_schema
from langgraph.constants import TAG_NOSTREAM
from langgraph.errors import GraphBubbleUp
from pydantic import BaseModel, ValidationError

from langchain_feedback.judges.verdict import embedded_json, reply_text

__all__ = ["Asker", "Prompt", "Reply", "Steps", "must_raise"]

logger = logging.getLogger(__name__)

Prompt = list[BaseMessage]
ResultT = TypeVar("ResultT")
_FATAL = (ModelAuthenticationError, ModelPermissionDeniedError, ModelNotFoundError)
_FATAL_STATUS = {401, 403, 404}
_OUTAGE_STATUS = {408, 429}
_SERVER_ERROR = 500


@dataclass(frozen=True)
class Reply:
    """One reply of a model, as far as it could be read."""

    parsed: BaseModel | None = None
    """The structured reply, where there is one."""
    text: str = ""
    """The text of the same reply; of a tool call that did not validate, its arguments."""
    error: str | None = None
    """The class name of what went wrong, also where `text` is still of use."""
    retryable: bool = False
    """Whether the failure is an outage, in which asking again would only add load."""


Steps = Generator[list[Prompt], list[Reply], ResultT]
"""A judge's work without I/O: it yields prompts, is sent their replies, returns a result."""


class Asker:
    """Sends prompts to a chat model and reads the replies by the ladder.

    Args:
        model: A chat model, or a Runnable around one.
        schema: The Pydantic model of a structured reply.
        structured: Whether to ask for structured output. False where a server
            rejects tools and JSON schemas: the prompt then asks for JSON as text.
        max_concurrency: How many calls may be under way at once; a caller's config may
            ask for fewer.
    """

    def __init__(
        self,
        model: Runnable[Any, Any],
        schema: type[BaseModel],
        *,
        structured: bool = True,
        max_concurrency: int = 8,
    ) -> None:
        if max_concurrency < 1:
            msg = f"max_concurrency must be at least 1, got {max_concurrency!r}"
            raise ValueError(msg)
        self.schema = schema
        self.runnable = _structured(model, schema) if structured else model
        self.max_concurrency = max_concurrency

    def run(self, steps: Steps[ResultT], config: RunnableConfig) -> ResultT:
        """Drive a judge's steps."""
        config = self._config(config)
        try:
            prompts = next(steps)
            while True:
                raw = self.runnable.batch(cast("Any", prompts), config, return_exceptions=True)
                prompts = steps.send([self._read(item) for item in raw])
        except StopIteration as stop:
            return cast("ResultT", stop.value)

    async def arun(self, steps: Steps[ResultT], config: RunnableConfig) -> ResultT:
        """Drive a judge's steps without blocking the event loop."""
        config = self._config(config)
        try:
            prompts = next(steps)
            while True:
                raw = await self.runnable.abatch(
                    cast("Any", prompts), config, return_exceptions=True
                )
                prompts = steps.send([self._read(item) for item in raw])
        except StopIteration as stop:
            return cast("ResultT", stop.value)

    def _config(self, config: RunnableConfig) -> RunnableConfig:
        """Return the config of the calls: no more at once than the caller and `self` allow.

        The tag keeps a judge's tokens out of `stream_mode="messages"`.
        """
        wanted = config.get("max_concurrency") or self.max_concurrency
        at_once = min(wanted, self.max_concurrency)
        return merge_configs(config, {"tags": [TAG_NOSTREAM], "max_concurrency": at_once})

    def _read(self, raw: Any) -> Reply:
        if isinstance(raw, BaseException):
            return _failed(raw)
        error = None
        if isinstance(raw, dict) and {"raw", "parsed"} <= raw.keys():
            error, parsed, raw = raw.get("parsing_error"), raw["parsed"], raw["raw"]
        else:
            parsed = raw
        text = _text_of(raw)
        if (value := self._validated(parsed) or self._validated(embedded_json(text))) is not None:
            return Reply(parsed=value, text=text)
        return Reply(text=text, error=type(error).__name__ if error is not None else None)

    def _validated(self, value: Any) -> BaseModel | None:
        if isinstance(value, self.schema):
            return value
        data = value.model_dump() if isinstance(value, BaseModel) else value
        # A message is a BaseModel too; its fields are not the schema's.
        if isinstance(value, BaseMessage) or not isinstance(data, dict):
            return None
        return self._as_schema(data)

    def _as_schema(self, data: dict[str, Any]) -> BaseModel | None:
        """Validate a reply; one bad entry of a list is left out, and the others kept."""
        try:
            return self.schema.model_validate(data)
        except ValidationError as error:
            places = [problem["loc"] for problem in error.errors()]
        if not all(len(place) > 1 and isinstance(place[1], int) for place in places):
            return None
        bad = {(place[0], place[1]) for place in places}
        kept = {
            key: [item for i, item in enumerate(value) if (key, i) not in bad]
            if isinstance(value, list)
            else value
            for key, value in data.items()
        }
        return self.schema.model_validate(kept)


def _structured(model: Runnable[Any, Any], schema: type[BaseModel]) -> Runnable[Any, Any]:
    """Bind the schema where the model can, else leave it to the text of the reply."""
    if isinstance(model, RunnableWithFallbacks):
        others = [_structured(other, schema) for other in model.fallbacks]
        return model.model_copy(
            update={"runnable": _structured(model.runnable, schema), "fallbacks": others}
        )
    if isinstance(model, RunnableBindingBase) and not model.kwargs:
        return model.model_copy(update={"bound": _structured(model.bound, schema)})
    # With a Pydantic class, langchain-openai parses inside the client and raises on
    # prose, so that the reply itself is lost; with the same schema as a dict it is kept.
    keeps_reply = any(
        base.__module__.startswith("langchain_openai") for base in type(model).__mro__
    )
    options = {"strict": True} if keeps_reply else {}
    form = convert_to_json_schema(schema) if keeps_reply else schema
    try:
        bind = cast("Any", model).with_structured_output
        return cast("Runnable[Any, Any]", bind(form, include_raw=True, **options))
    except (AttributeError, NotImplementedError):
        return model


def must_raise(error: BaseException) -> bool:
    """Whether a person must act on `error`, or LangGraph itself does: never swallow those."""
    status = _status(error)
    fatal = isinstance(error, _FATAL) or status in _FATAL_STATUS
    return fatal or isinstance(error, GraphBubbleUp) or not isinstance(error, Exception)


def _failed(error: BaseException) -> Reply:
    if must_raise(error):
        raise error
    logger.warning("A judge's model call failed: %s: %s", type(error).__name__, error)
    return Reply(
        text=_text_of_error(error),
        error=type(error).__name__,
        retryable=_is_outage(error),
    )


def _is_outage(error: BaseException) -> bool:
    """Whether asking again now would only add load."""
    # Not every provider raises LangChain's typed errors, but most give a status.
    status = _status(error)
    is_status = isinstance(status, int) and (status in _OUTAGE_STATUS or status >= _SERVER_ERROR)
    typed = bool(getattr(error, "is_retryable", False))
    name = type(error).__name__
    is_network = name.startswith(("Connect", "ReadTimeout", "PoolTimeout", "RemoteProtocol"))
    return typed or is_status or is_network or isinstance(error, ConnectionError | TimeoutError)


def _status(error: BaseException) -> object:
    """Return the HTTP status of an error, also of a client that keeps it on its response."""
    response = getattr(error, "response", None)
    return getattr(error, "status_code", None) or getattr(response, "status_code", None)


def _text_of_error(error: BaseException) -> str:
    """Recover the reply from a validation error, which holds what it could not read."""
    if not isinstance(error, ValidationError):
        return ""
    value = error.errors()[0]["input"]
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _text_of(raw: Any) -> str:
    calls: Sequence[Any] = getattr(raw, "tool_calls", None) or []
    if isinstance(raw, dict):
        return json.dumps(raw, default=str)
    return reply_text(raw) or (json.dumps(calls[0]["args"], default=str) if calls else "")
