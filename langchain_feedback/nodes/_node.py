"""What a node is: prepare a request, make one call, turn the result into an update.

The one call is a Runnable (a model, a judge, a retriever), so a node's logic is
written once and runs sync and async, in a graph and in a plain unit test.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs, run_in_executor
from langgraph.config import get_stream_writer
from langgraph.constants import TAG_NOSTREAM

from langchain_feedback.judges.asking import must_raise
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.keys import StateKeys, node_schema
from langchain_feedback.traces import TRACE_ID_KEY

__all__ = [
    "Node",
    "emit",
    "failure",
    "quiet",
    "tagged",
]

logger = logging.getLogger(__name__)


class Node(Runnable[Any, dict[str, Any]]):
    """One step of a graph. Add it with `builder.add_node(node)`, or call it with a state.

    A node that you wrap (`node.with_retry()`, or a function of yours that calls it)
    hides its channels from LangGraph. Add it with
    `builder.add_node(name, wrapped, input_schema=node.state_schema)` then, or better
    give `add_node` a `retry_policy`; otherwise counters that your state does not
    declare are lost, and a loop has no end of its own. It warns where that is so.

    Args:
        name: The node's name in a graph.
        keys: The graph's names of the keys.
        reads: Keys that the node reads.
        writes: Keys that the node changes.
        prepare: Makes the request, or an `Update` where there is nothing to call.
        step: The Runnable to call.
        finish: Turns its result into an `Update`.
        recover: Turns a failed call into an `Update`. Errors that a person must
            act on are raised all the same.
        config: Added to the config of the call: a mapping, or a function of the state.
        step_kwargs: Further arguments of the call.
        record: Is told of the update before it is returned; beside the event loop, so it
            may do I/O. It must not raise.
    """

    def __init__(
        self,
        name: str,
        *,
        keys: StateKeys,
        reads: Sequence[str],
        writes: Sequence[str],
        prepare: Callable[[StateView], Any],
        step: Runnable[Any, Any] | None = None,
        finish: Callable[[StateView, Any], Update] | None = None,
        recover: Callable[[StateView, Exception], Update] | None = None,
        config: Callable[[StateView], RunnableConfig] | None = None,
        step_kwargs: Mapping[str, Any] | None = None,
        record: Callable[[StateView, Update], None] | None = None,
    ) -> None:
        self.name = name
        self.keys = keys
        self._prepare, self._step, self._finish = prepare, step, finish
        self._recover, self._config, self._record = recover, config, record
        self._step_kwargs = dict(step_kwargs or {})
        self.state_schema = node_schema(name, keys, dict.fromkeys([*reads, *writes]))
        # LangGraph reads the annotation of the instance's own `__call__` and adds
        # its channels to the host's: see `node_schema`.
        vars(self)["__call__"] = MethodType(_call_for(self.state_schema), self)
        self._warned = False

    def __call__(self, state: Any, config: RunnableConfig | None = None) -> dict[str, Any]:
        """Run the node on a state and return what it changes."""
        return self.invoke(state, config)

    def invoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Run the node on a state and return what it changes."""
        return self._call_with_config(cast("Any", self._run), input, config)

    async def ainvoke(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Run the node without blocking the event loop."""
        return await self._acall_with_config(cast("Any", self._arun), input, config)

    def _run(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        view = self._view(state, config)
        update = self._updated(view)
        if self._record is not None:
            self._record(view, update)
        return self._named(update)

    async def _arun(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        view = self._view(state, config)
        update = await self._aupdated(view)
        if self._record is not None:
            await run_in_executor(config, self._record, view, update)
        return self._named(update)

    def _updated(self, view: StateView) -> Update:
        request = self._prepare(view)
        if isinstance(request, Update) or self._step is None:
            return cast("Update", request)
        try:
            result = self._step.invoke(request, self._call_config(view), **self._step_kwargs)
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            return self._recovered(view, error)
        return self._finished(view, result)

    async def _aupdated(self, view: StateView) -> Update:
        request = self._prepare(view)
        if isinstance(request, Update) or self._step is None:
            return cast("Update", request)
        try:
            call_config = self._call_config(view)
            result = await self._step.ainvoke(request, call_config, **self._step_kwargs)
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            return self._recovered(view, error)
        return self._finished(view, result)

    def _view(self, state: Any, config: RunnableConfig) -> StateView:
        view = StateView(state, self.keys, config)
        in_graph = "langgraph_node" in (config.get("metadata") or {})
        if in_graph and not view.counts_steps and not self._warned:
            self._warned = True
            logger.warning(
                "Node %r is wrapped and cannot name its state keys to the graph. Add it with "
                "input_schema=node.state_schema, or declare its keys; else its data may be lost.",
                self.name,
            )
        return view

    def _call_config(self, view: StateView) -> RunnableConfig:
        return merge_configs(view.config, self._config(view)) if self._config else view.config

    def _finished(self, view: StateView, result: Any) -> Update:
        return self._finish(view, result) if self._finish else cast("Update", result)

    def _recovered(self, view: StateView, error: Exception) -> Update:
        if self._recover is None or must_raise(error):
            raise error
        update = self._recover(view, error)
        logger.warning(
            "Node %r survived %s: %s", self.name, type(error).__name__, error, exc_info=error
        )
        return update

    def _named(self, update: Mapping[str, Any]) -> dict[str, Any]:
        names = self.keys.names()
        return {names[key]: value for key, value in update.items() if key in names}


def failure(node: str, error: str, chunk_id: str | None = None) -> dict[str, Any]:
    """Make an entry of the `errors` key."""
    return {"node": node, "error": error, "chunk_id": chunk_id}


def tagged(view: StateView, *tags: str) -> RunnableConfig:
    """Make the config of a call whose tokens may be streamed: they carry the trace id."""
    trace_id = view.get("trace_id")
    return {"tags": list(tags), "metadata": {TRACE_ID_KEY: trace_id} if trace_id else {}}


def quiet(_: StateView) -> RunnableConfig:
    """Make the config of a call whose models, also inner ones, stream to nobody."""
    return {"tags": [TAG_NOSTREAM]}


def emit(event: dict[str, Any]) -> None:
    """Send an event to `stream_mode="custom"`; outside a graph there is nobody to hear it."""
    try:
        writer = get_stream_writer()
    except (RuntimeError, KeyError):
        return
    writer(event)


def _call_for(schema: type[Any]) -> Callable[..., dict[str, Any]]:
    def __call__(  # noqa: N807
        self: Node, state: Any, config: RunnableConfig | None = None
    ) -> dict[str, Any]:
        return self.invoke(state, config)

    __call__.__annotations__ = {"state": schema, "return": dict[str, Any]}
    return __call__
