"""What a node is: prepare a request, make one call, turn the result into an update.

The one call is a Runnable (a model, a judge, a retriever), so a node's logic is
written once and runs sync and async, in a graph and in a plain unit test.
"""

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, cast

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs
from langgraph.config import get_stream_writer

from langchain_feedback.judges.asking import must_raise
from langchain_feedback.judges.base import Judge
from langchain_feedback.nodes.keys import DEFAULTS, StateKeys, state_schema
from langchain_feedback.traces import TRACE_ID_KEY

__all__ = [
    "Node",
    "StateView",
    "Update",
    "chat_model",
    "emit",
    "failure",
    "is_judge",
    "tagged",
]

logger = logging.getLogger(__name__)


class Update(dict[str, Any]):
    """What a node changes, by the keys' own names. A `prepare` that returns one calls nobody."""


class StateView:
    """The state of any graph, read by the keys' own names."""

    def __init__(self, state: Any, keys: StateKeys, config: RunnableConfig | None = None) -> None:
        self._state = state
        self._names = keys.names()
        self.config: RunnableConfig = config or {}

    def get(self, key: str) -> Any:
        """Return the value of a key, or its default where there is none."""
        value = self._lookup(self._names.get(key))
        return copy.copy(DEFAULTS[key]) if value is None else value

    @property
    def question(self) -> str:
        """The question; in a chat graph without one, the last human message.

        Raises:
            ValueError: If there is none.
        """
        return self.checked(str(self.get("question")) or self.last_human or "")

    @property
    def last_human(self) -> str | None:
        """The text of the last human message, or None where there is none."""
        humans = (m for m in reversed(self.get("messages")) if isinstance(m, HumanMessage))
        return next((str(message.text) for message in humans), None)

    def checked(self, question: str) -> str:
        """Return the question.

        Raises:
            ValueError: If it is blank.
        """
        if not question.strip():
            where = " or ".join(
                repr(self._names[key]) for key in ("question", "messages") if key in self._names
            )
            msg = f"There is no question in the state under {where}."
            raise ValueError(msg)
        return question

    @property
    def history(self) -> str:
        """The earlier turns of a chat as text, without the question itself."""
        messages: list[BaseMessage] = self.get("messages")
        asked = max((i for i, m in enumerate(messages) if isinstance(m, HumanMessage)), default=0)
        turns = (
            f"{'user' if isinstance(m, HumanMessage) else 'assistant'}: {m.text}"
            for m in messages[:asked]
            if m.type in ("human", "ai") and str(m.text).strip()
        )
        return "\n".join(turns)

    @property
    def remaining_steps(self) -> int:
        """Steps until the recursion limit; plenty where nobody counts them."""
        return cast("int", self._lookup("remaining_steps") or 1_000)

    @property
    def kept(self) -> list[Document]:
        """The kept chunks that hold any text."""
        return [document for document in self.get("kept") if document.page_content.strip()]

    def _lookup(self, name: str | None) -> Any:
        if name is None:
            return None
        if isinstance(self._state, Mapping):
            return self._state.get(name)
        return getattr(self._state, name, None)


class Node(Runnable[Any, dict[str, Any]]):
    """One step of a graph. Add it with `builder.add_node(node)`, or call it with a state.

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
    ) -> None:
        self.name = name
        self.keys = keys
        self._prepare, self._step, self._finish = prepare, step, finish
        self._recover, self._config = recover, config
        self._step_kwargs = dict(step_kwargs or {})
        schema = state_schema(
            "".join(word.title() for word in name.split("_")) + "State",
            keys,
            list(dict.fromkeys([*reads, *writes])),
            remaining_steps=True,
        )
        # LangGraph reads the annotation of the instance's own `__call__` and adds
        # its channels to the host's: see `state_schema`.
        call = _call_for(schema)
        vars(self)["__call__"] = MethodType(call, self)

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
        view = StateView(state, self.keys, config)
        request = self._prepare(view)
        if isinstance(request, Update) or self._step is None:
            return self._named(request)
        try:
            result = self._step.invoke(request, self._call_config(view), **self._step_kwargs)
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            return self._recovered(view, error)
        return self._finished(view, result)

    async def _arun(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        view = StateView(state, self.keys, config)
        request = self._prepare(view)
        if isinstance(request, Update) or self._step is None:
            return self._named(request)
        try:
            call_config = self._call_config(view)
            result = await self._step.ainvoke(request, call_config, **self._step_kwargs)
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            return self._recovered(view, error)
        return self._finished(view, result)

    def _call_config(self, view: StateView) -> RunnableConfig:
        return merge_configs(view.config, self._config(view)) if self._config else view.config

    def _finished(self, view: StateView, result: Any) -> dict[str, Any]:
        return self._named(self._finish(view, result) if self._finish else result)

    def _recovered(self, view: StateView, error: Exception) -> dict[str, Any]:
        if self._recover is None or must_raise(error):
            raise error
        logger.warning("Node %r survived %s: %s", self.name, type(error).__name__, error)
        return self._named(self._recover(view, error))

    def _named(self, update: Mapping[str, Any]) -> dict[str, Any]:
        names = self.keys.names()
        return {names[key]: value for key, value in update.items() if key in names}


def is_judge(value: Any, kind: type[Any]) -> bool:
    """Whether `value` is a judge of that kind, also behind `with_retry` or `with_config`."""
    while isinstance(value, RunnableBindingBase):
        value = value.bound
    return isinstance(value, kind)


def chat_model(value: Any, name: str, *, kind: str = "") -> Runnable[Any, Any]:
    """Return a chat model, or any Runnable that may be a chain around one.

    Raises:
        TypeError: If it is no Runnable, or a judge of another kind than `kind`.
    """
    if isinstance(value, Runnable) and not is_judge(value, Judge):
        return value
    wanted = f"a {kind} or a chat model" if kind else "a chat model"
    msg = f"{name} must be {wanted}, got {value!r}"
    raise TypeError(msg)


def failure(node: str, error: str, chunk_id: str | None = None) -> dict[str, Any]:
    """Make an entry of the `errors` key."""
    return {"node": node, "error": error, "chunk_id": chunk_id}


def tagged(view: StateView, *tags: str) -> RunnableConfig:
    """Make the config of a call whose tokens may be streamed: they carry the trace id."""
    trace_id = view.get("trace_id")
    return {"tags": list(tags), "metadata": {TRACE_ID_KEY: trace_id} if trace_id else {}}


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
