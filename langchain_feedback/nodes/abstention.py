"""Say that there is no reliable answer, and why."""

from collections.abc import Callable, Mapping
from typing import Any

from langchain_feedback.documents import source_of
from langchain_feedback.nodes._node import Node, StateView, Update
from langchain_feedback.nodes.generation import withdraw_draft
from langchain_feedback.nodes.keys import StateKeys

__all__ = ["ABSTENTION_MESSAGES", "AbstentionMessage", "abstain", "abstention"]

ABSTENTION_MESSAGES: dict[str, str] = {
    "no_documents": "I could not find anything about this in the documents.",
    "none_relevant": "I looked, but none of the documents I found answers this.",
    "not_grounded": "I found related documents, but no answer that they support.",
    "empty_answer": "I found related documents, but they do not hold an answer to this.",
    "judge_failed": "I could not verify an answer to this, so I will not give one.",
    "step_limit": "I ran out of steps before I had a verified answer.",
}
"""What the user is told, by reason."""

AbstentionMessage = str | Mapping[str, str] | Callable[[dict[str, Any]], str]
"""One text, a text for some of the reasons, or a function of `{reason, question, sources}`."""

_LAST_STEPS = 2
READS = ["question", "messages", "documents", "reason", "grounded", "draft_id", "trace_id"]
WRITES = ["answer", "status", "reason", "citations", "draft", "draft_id", "unsupported"]


def abstain(
    message: AbstentionMessage | None = None,
    *,
    nearest: int = 3,
    keys: StateKeys | None = None,
) -> Node:
    """Make the node that abstains, with a reason and the nearest sources it looked at.

    The reason is the one that the nodes before left in `reason`: `no_documents`,
    `none_relevant`, `not_grounded`, `empty_answer` or `judge_failed`; or
    `step_limit` where the recursion limit left no room for another attempt. The
    rejected draft is cleared.

    Args:
        message: Replaces the texts of `ABSTENTION_MESSAGES`.
        nearest: How many of the retrieved chunks' sources the text names; 0 for none.
        keys: Your graph's names of the keys.

    Raises:
        ValueError: If `nearest` is negative.

    Example:
        >>> update = abstain("No answer.")({"question": "?", "reason": "none_relevant"})
        >>> update["answer"], update["status"], update["reason"]
        ('No answer.', 'abstained', 'none_relevant')
    """
    if nearest < 0:
        msg = f"nearest must not be negative, got {nearest!r}"
        raise ValueError(msg)

    def prepare(view: StateView) -> Update:
        withdraw_draft(view)
        return abstention(view, message, nearest)

    return Node(
        "abstain",
        keys=keys or StateKeys(),
        reads=READS,
        writes=WRITES,
        prepare=prepare,
    )


def abstention(
    view: StateView, message: AbstentionMessage | None = None, nearest: int = 3
) -> Update:
    """Make the update of a state that abstains."""
    reason = _reason(view)
    sources = dict.fromkeys(filter(None, map(source_of, view.get("documents"))))
    named = list(sources)[:nearest]
    return Update(
        answer=_text(message, {"reason": reason, "question": view.question, "sources": named}),
        status="abstained",
        reason=reason,
        citations=[],
        draft="",
        draft_id="",
        unsupported=[],
    )


def _reason(view: StateView) -> str:
    if view.remaining_steps <= _LAST_STEPS:
        return "step_limit"
    if reason := view.get("reason"):
        return str(reason)
    if not view.get("documents"):
        return "no_documents"
    return "none_relevant" if view.get("grounded") is None else "not_grounded"


def _text(message: AbstentionMessage | None, facts: dict[str, Any]) -> str:
    if callable(message):
        return message(facts)
    if isinstance(message, str):
        text = message
    else:
        texts = ABSTENTION_MESSAGES | dict(message or {})
        text = texts.get(facts["reason"], ABSTENTION_MESSAGES["not_grounded"])
    if not facts["sources"]:
        return text
    return f"{text} The nearest sources I looked at: {'; '.join(facts['sources'])}."
