"""Rewrite a question whose search found nothing that helps."""

from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from langgraph.constants import TAG_NOSTREAM

from langchain_feedback.judges.base import chat_model
from langchain_feedback.judges.prompts import CONDENSE_QUESTION, REWRITE_QUESTION, Fences, prompt
from langchain_feedback.judges.verdict import reply_text
from langchain_feedback.nodes._node import Node, failure
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.keys import StateKeys

__all__ = ["rewrite_question"]


def rewrite_question(model: Runnable[Any, Any], *, keys: StateKeys | None = None) -> Node:
    """Make the node that asks the same in other words, for the next search.

    In a chat graph the earlier turns go along; before the first search of a follow-up
    it is only made to stand on its own. An empty reply or a failed call leaves the
    search as it was; it counts as a rewrite all the same, so that the graph ends.

    Args:
        model: A chat model.
        keys: Your graph's names of the keys.

    Raises:
        TypeError: If `model` is not a chat model.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> node = rewrite_question(FakeListChatModel(responses=["When is money returned?"]))
        >>> node({"question": "refund time?"})
        {'search_question': 'When is money returned?', 'rewrites': 1}
    """

    def prepare(view: StateView) -> list[BaseMessage]:
        fences = Fences()
        history, searched = view.history, view.get("search_question")
        # Before the first search of a follow-up nothing was searched in vain.
        first = bool(history) and not view.get("reason")
        return prompt(
            CONDENSE_QUESTION if first else REWRITE_QUESTION,
            fences.around("conversation", history) if history else "",
            fences.around("question", view.question),
            fences.around("searched-in-vain", searched) if searched else "",
        )

    def finish(view: StateView, reply: Any) -> Update:
        text = " ".join(reply_text(reply).split()).strip("\"'")
        return Update(
            search_question=text or view.get("search_question"),
            rewrites=view.get("rewrites") + 1,
        )

    def recover(view: StateView, error: Exception) -> Update:
        entry = failure("rewrite_question", type(error).__name__)
        return Update(finish(view, "") | {"errors": [*view.get("errors"), entry]})

    return Node(
        "rewrite_question",
        keys=keys or StateKeys(),
        reads=["question", "search_question", "messages", "rewrites", "errors", "reason"],
        writes=["search_question", "rewrites", "errors"],
        prepare=prepare,
        step=chat_model(model, "model"),
        finish=finish,
        recover=recover,
        config=lambda _: {"tags": [TAG_NOSTREAM]},
    )
