"""The state of any graph, as the nodes see it, and what they change of it."""

import copy
from collections.abc import Mapping
from typing import Any, cast

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from langchain_feedback.documents import is_derived
from langchain_feedback.nodes.keys import DEFAULTS, StateKeys

__all__ = ["StateView", "Update"]


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
    def drafts(self) -> int:
        """How many drafts there were: counted by who wrote them, or by who looked at them."""
        return max(int(self.get("generations")), int(self.get("verifications")))

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
        """Steps until the recursion limit; plenty where nobody counts them.

        `update_state` runs routers, too, with a count that means nothing there.
        """
        running = not self.config or "langgraph_node" in (self.config.get("metadata") or {})
        steps = self._lookup("remaining_steps") if running else None
        return cast("int", steps or 1_000)

    @property
    def counts_steps(self) -> bool:
        """Whether LangGraph told the steps that remain, as it does to a node that it knows."""
        return self._lookup("remaining_steps") is not None

    @property
    def kept(self) -> list[Document]:
        """The kept chunks that hold any text; none where no answer could rest on any of them."""
        kept = [document for document in self.get("kept") if document.page_content.strip()]
        return kept if any(not is_derived(document) for document in kept) else []

    def _lookup(self, name: str | None) -> Any:
        if name is None:
            return None
        if isinstance(self._state, Mapping):
            return self._state.get(name)
        return getattr(self._state, name, None)
