"""Run the middleware's steps sync or async, with drafts and judges held back from streams."""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import (
    merge_configs,
    patch_config,
    run_in_executor,
    var_child_runnable_config,
)
from langgraph.constants import TAG_NOSTREAM

from langchain_feedback.judges.asking import must_raise
from langchain_feedback.nodes.generation import DRAFT_TAG
from langchain_feedback.nodes.publishing import ANSWER_TAG, Replay
from langchain_feedback.traces import TRACE_ID_KEY

__all__ = ["Ask", "CallModel", "Keep", "Show", "Step", "adrive", "drive"]

logger = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class CallModel:
    """Call the agent's model, through whatever middleware stands inside."""

    request: Any
    live: bool = False
    """Whether its tokens may be streamed: nothing of it can be rejected."""


@dataclass(frozen=True)
class Ask:
    """Ask a judge."""

    judge: Runnable[Any, Any]
    request: Any
    recover: Callable[[Exception], Any] | None = None
    """Turns a failure into a result. What a person must act on is raised all the same."""


@dataclass(frozen=True)
class Show:
    """Replay a message as tokens to whoever streams."""

    message: AIMessage
    trace_id: str


@dataclass(frozen=True)
class Keep:
    """Do work that may block, after which the answer goes out."""

    work: Callable[[RunnableConfig], None]


Step = CallModel | Ask | Show | Keep


def drive(steps: Generator[Step, Any, ResultT], handler: Callable[[Any], Any]) -> ResultT:
    """Run the steps and return what they return."""
    # The model node's own config, which LangGraph keeps where runs below it look for it.
    config = ensure_config()
    result: Any = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        match step:
            case CallModel(request, live=True):
                result = handler(request)
            case CallModel(request):
                with _config_set(_held_back(config, DRAFT_TAG)):
                    result = handler(request)
            case Ask(judge, request):
                try:
                    result = judge.invoke(request, _held_back(config))
                except Exception as error:  # noqa: BLE001  raised again unless it may be survived
                    result = _recovered(step, error)
            case Show(message) if _has_listeners(config):
                _REPLAY.invoke([message], _shown(config, step))
            case Keep(work):
                work(config)


async def adrive(
    steps: Generator[Step, Any, ResultT], handler: Callable[[Any], Awaitable[Any]]
) -> ResultT:
    """Do the same without blocking the event loop."""
    config = ensure_config()
    result: Any = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        match step:
            case CallModel(request, live=True):
                result = await handler(request)
            case CallModel(request):
                with _config_set(_held_back(config, DRAFT_TAG)):
                    result = await handler(request)
            case Ask(judge, request):
                try:
                    result = await judge.ainvoke(request, _held_back(config))
                except Exception as error:  # noqa: BLE001
                    result = _recovered(step, error)
            case Show(message) if _has_listeners(config):
                await _REPLAY.ainvoke([message], _shown(config, step))
            case Keep(work):
                await run_in_executor(config, work, config)


# A cached reply would come without tokens, and under an earlier answer's id.
_REPLAY = Replay(cache=False)


def _shown(config: RunnableConfig, step: Show) -> RunnableConfig:
    metadata = {TRACE_ID_KEY: step.trace_id} if step.trace_id else {}
    return merge_configs(config, {"tags": [ANSWER_TAG], "metadata": metadata})


def _held_back(config: RunnableConfig, *tags: str) -> RunnableConfig:
    """Return the config of runs that no stream may show: tracers and callbacks still see them.

    The tag keeps their tokens out of `stream_mode="messages"`; `astream_events` and
    `astream_log` know no such tag, so their listeners are left out.
    """
    held = merge_configs(config, {"tags": [TAG_NOSTREAM, *tags]})
    callbacks = held.get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        callbacks = callbacks.copy()
        for listener in filter(_listens, [*callbacks.handlers]):
            callbacks.remove_handler(listener)
        return patch_config(held, callbacks=callbacks)
    if callbacks:
        held["callbacks"] = [handler for handler in callbacks if not _listens(handler)]
    return held


def _has_listeners(config: RunnableConfig) -> bool:
    callbacks = config.get("callbacks")
    handlers = (
        callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks or []
    )
    return any(map(_listens, handlers))


def _listens(handler: Any) -> bool:
    """Whether a handler makes a stream for somebody, by the method that each of them has."""
    return hasattr(handler, "tap_output_aiter")


@contextmanager
def _config_set(config: RunnableConfig) -> Iterator[None]:
    """Let runs below start from this config where they are given none."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _recovered(step: Ask, error: Exception) -> Any:
    if step.recover is None or must_raise(error):
        raise error
    logger.warning("A judge failed: %s: %s", type(error).__name__, error, exc_info=error)
    return step.recover(error)
