"""The names of a graph's state keys, which the nodes read and write."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langgraph.managed import RemainingSteps
from pydantic import BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypedDict

__all__ = ["DEFAULTS", "HELD_BACK", "StateKeys", "node_schema", "state_schema"]


@dataclass(frozen=True, kw_only=True)
class StateKeys:
    """Where the nodes keep their data in your state.

    Map a name where your graph has another one for it, for example
    `StateKeys(question="query", draft="generation")`. A graph that overwrites its
    documents with the relevant ones maps `kept="documents"`. Keys that your state
    does not declare are added by the nodes themselves.

    Raises:
        ValueError: If a name does not start with a letter, or two keys share one (but for `kept`,
            which may be `documents`).
    """

    question: str = "question"
    """The user's question."""
    search_question: str = "search_question"
    """The rewritten question to search with; empty before a rewrite."""
    documents: str = "documents"
    """The retrieved chunks."""
    kept: str = "kept"
    """The chunks that answers may rest on."""
    grades: str = "grades"
    """One dict for each distinct chunk that was graded (see `Grade`)."""
    draft: str = "draft"
    """An answer that is not verified yet."""
    draft_id: str = "draft_id"
    """The message id of a draft that was streamed; else empty."""
    unsupported: str = "unsupported"
    """Statements of the last draft that no chunk supports."""
    answer: str = "answer"
    """What the user gets: a verified answer or an abstention."""
    citations: str = "citations"
    """One dict for each passage that supports the answer (see `Citation`)."""
    claims: str = "claims"
    """One dict for each claim of a grounded draft (see `ClaimVerdict`)."""
    checks: str = "checks"
    """One dict for each draft that a first stage looked at (see `StagedChecker`)."""
    grounded: str = "grounded"
    """Whether the draft is grounded; None before the check."""
    status: str = "status"
    """`answered` or `abstained`."""
    reason: str = "reason"
    """Why the graph abstained, or would now."""
    generations: str = "generations"
    """How many drafts were written for this question."""
    verifications: str = "verifications"
    """How many drafts were looked at for this question."""
    rewrites: str = "rewrites"
    """How often the question was rewritten."""
    trace_id: str = "trace_id"
    """The id of this question and its answer."""
    feedback_token: str = "feedback_token"  # noqa: S105  a name
    """What lets its asker's browser speak about the answer (see `FeedbackTokens`); it is kept
    only where nodes are given `tokens`."""
    errors: str = "errors"
    """One dict for each failure that was survived: node, error class, chunk."""
    messages: str | None = None
    """The message list of a chat graph. The question is then its last human message."""

    def __post_init__(self) -> None:
        names = self.names()
        if wrong := [name for name in names.values() if not re.fullmatch(r"[a-zA-Z]\w*", name)]:
            msg = f"A state key must be a name that starts with a letter, got {wrong[0]!r}"
            raise ValueError(msg)
        taken = [name for key, name in names.items() if key != "kept" or name != self.documents]
        if doubled := sorted({name for name in taken if taken.count(name) > 1}):
            msg = f"Two state keys share one name: {', '.join(map(repr, doubled))}"
            raise ValueError(msg)

    def names(self) -> dict[str, str]:
        """Return your graph's name for each key; without `messages` where there are none."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {key: name for key, name in pairs if name is not None}


DEFAULTS: dict[str, Any] = {
    "question": "",
    "search_question": "",
    "documents": [],
    "kept": [],
    "grades": [],
    "draft": "",
    "draft_id": "",
    "unsupported": [],
    "answer": "",
    "citations": [],
    "claims": [],
    "checks": [],
    "grounded": None,
    "status": "",
    "reason": "",
    "generations": 0,
    "verifications": 0,
    "rewrites": 0,
    "trace_id": "",
    "feedback_token": "",
    "errors": [],
    "messages": [],
}
"""What a key holds before anything was written to it."""

HELD_BACK = ("draft", "draft_id", "unsupported")
"""What only the nodes need: a draft is nobody's answer yet, so no stream shows it."""

_TYPES: dict[str, Any] = {
    **dict.fromkeys("question search_question draft draft_id answer status reason".split(), str),
    **dict.fromkeys(("trace_id", "feedback_token"), str),
    **dict.fromkeys(("documents", "kept"), list[Document]),
    **dict.fromkeys(("grades", "citations", "claims", "checks", "errors"), list[dict[str, Any]]),
    **dict.fromkeys(("generations", "verifications", "rewrites"), int),
    "unsupported": list[str],
    "grounded": bool | None,
    "messages": list[AnyMessage],
}


def state_schema(
    name: str,
    keys: StateKeys,
    used: Iterable[str],
    *,
    remaining_steps: bool = False,
    annotations: dict[str, Any] | None = None,
) -> type[Any]:
    """Make the TypedDict of some keys under your names.

    Args:
        name: The name of the TypedDict.
        keys: Your names.
        used: The keys to declare; those without a name in `keys` are left out.
        remaining_steps: Whether to ask LangGraph for the steps left.
        annotations: Types to use in place of the usual ones, by key.
    """
    names = keys.names()
    types = _TYPES | (annotations or {})
    channels = {names[key]: types[key] for key in used if key in names}
    if remaining_steps:
        channels["remaining_steps"] = RemainingSteps
    return TypedDict(name, channels, total=False)  # type: ignore[operator, no-any-return]


def node_schema(node: str, keys: StateKeys, used: Iterable[str]) -> type[Any]:
    """Make the input schema of a node, under your names.

    LangGraph adds the channels of a node's input schema to the graph, so a node's
    data survives in any host state without being declared there. A channel that
    the host declares keeps the host's type and reducer.

    A node that reads a draft gets a Pydantic model that leaves it out of its
    representation and of JSON: `stream_mode="tasks"` and `"debug"` show the input
    of every node. The others get a TypedDict.

    Args:
        node: The node's name.
        keys: Your names.
        used: The keys that the node reads or writes.
    """
    used = list(used)
    name = "".join(word.title() for word in node.split("_")) + "State"
    if not set(used) & set(HELD_BACK):
        return state_schema(name, keys, used, remaining_steps=True)
    names = keys.names()
    fields: dict[str, Any] = {
        names[key]: (Any, Field(default=None, exclude=held_back, repr=not held_back))
        for key in used
        if key in names
        for held_back in [key in HELD_BACK]
    }
    fields["remaining_steps"] = (RemainingSteps, Field(default=None))
    model: type[Any] = create_model(name, __base__=_NodeState, **fields)
    model.origin = (node, keys, tuple(used))
    return model


class _NodeState(BaseModel):
    """A node's input. A model made at run time cannot be pickled by name, as caches want it."""

    model_config = ConfigDict(protected_namespaces=())
    origin: ClassVar[tuple[str, StateKeys, tuple[str, ...]]]

    # A router of the host's own that stands behind the node gets this for its state.
    def __getitem__(self, name: str) -> Any:
        if name not in self.model_fields_set:
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.model_fields_set

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a key, or a default where it has none."""
        return getattr(self, name) if name in self.model_fields_set else default

    def __reduce__(self) -> tuple[Any, ...]:
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return _rebuilt, (*self.origin, values)


def _rebuilt(
    node: str, keys: StateKeys, used: tuple[str, ...], values: dict[str, Any]
) -> BaseModel:
    state: BaseModel = node_schema(node, keys, used)(**values)
    return state
