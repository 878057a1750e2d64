"""Say that there is no reliable answer, and why."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_core.documents import Document

from langchain_feedback.documents import is_derived, source_of
from langchain_feedback.nodes._node import Node
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.generation import withdraw_draft
from langchain_feedback.nodes.keys import StateKeys
from langchain_feedback.nodes.routing import STEPS_TO_ANSWER, STEPS_TO_REWRITE

__all__ = [
    "ABSTENTION_MESSAGES",
    "AbstentionMessage",
    "abstain",
    "abstention",
    "abstention_text",
]

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

READS = ["question", "messages", "documents", "kept", "reason", "grounded", "status"]
READS += ["generations", "verifications", "rewrites", "draft_id", "trace_id"]
WRITES = ["answer", "status", "reason", "citations", "draft", "draft_id", "unsupported", "claims"]


def abstain(
    message: AbstentionMessage | None = None,
    *,
    nearest: int = 3,
    max_rewrites: int = 1,
    max_regenerations: int = 1,
    keys: StateKeys | None = None,
) -> Node:
    """Make the node that abstains, with a reason and the nearest sources it looked at.

    The reason is the one that the nodes before left in `reason`: `no_documents`,
    `none_relevant`, `not_grounded`, `empty_answer` or `judge_failed`; or
    `step_limit` where the recursion limit left no room for another attempt that
    the budget still had. The rejected draft is cleared.

    Args:
        message: Replaces the texts of `ABSTENTION_MESSAGES`.
        nearest: How many of the retrieved chunks' sources the text names; 0 for none.
        max_rewrites: As in `route_after_grading`, to tell a spent budget from `step_limit`.
        max_regenerations: As in `route_after_verification`.
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
        reason = _reason(view, max_rewrites, max_regenerations)
        return abstention(view, reason, message, nearest)

    return Node(
        "abstain",
        keys=keys or StateKeys(),
        reads=READS,
        writes=WRITES,
        prepare=prepare,
    )


def abstention(
    view: StateView,
    reason: str,
    message: AbstentionMessage | None = None,
    nearest: int = 3,
) -> Update:
    """Make the update of a state that abstains for a reason."""
    return Update(
        answer=abstention_text(
            reason, view.question, view.get("documents"), message=message, nearest=nearest
        ),
        status="abstained",
        reason=reason,
        citations=[],
        draft="",
        draft_id="",
        unsupported=[],
        claims=[],
    )


def _reason(view: StateView, max_rewrites: int, max_regenerations: int) -> str:
    return "step_limit" if _cut_short(view, max_rewrites, max_regenerations) else why(view)


def _cut_short(view: StateView, max_rewrites: int, max_regenerations: int) -> bool:
    """Whether the router, one step ago, had another attempt to offer but no steps for it."""
    steps = view.remaining_steps + 1
    if view.get("grounded") is None and not view.kept:
        return bool(view.get("rewrites") < max_rewrites and steps < STEPS_TO_REWRITE)
    spent = view.drafts > max_regenerations or view.get("reason") == "judge_failed"
    # A model that said that there is no answer is not asked for another.
    declined = view.get("status") == "abstained"
    return steps < STEPS_TO_ANSWER and not spent and not declined


def why(view: StateView) -> str:
    """Return the reason that the nodes before left, or the one that the state suggests."""
    if reason := view.get("reason"):
        return str(reason)
    if not view.get("documents"):
        return "no_documents"
    return "none_relevant" if view.get("grounded") is None else "not_grounded"


def abstention_text(
    reason: str,
    question: str,
    documents: Iterable[Document],
    *,
    message: AbstentionMessage | None = None,
    nearest: int = 3,
) -> str:
    """Say why there is no answer, and name the nearest sources.

    Example:
        >>> found = [Document("Keys.", metadata={"source": "faq.md"})]
        >>> abstention_text("none_relevant", "Fees?", found, message="No answer.")
        'No answer. The nearest sources I looked at: faq.md.'
    """
    found = (document for document in documents if not is_derived(document))
    sources = list(dict.fromkeys(filter(None, map(source_of, found))))[:nearest]
    if callable(message):
        return message({"reason": reason, "question": question, "sources": sources})
    if isinstance(message, str):
        text = message
    else:
        texts = ABSTENTION_MESSAGES | dict(message or {})
        text = texts.get(reason, ABSTENTION_MESSAGES["not_grounded"])
    return f"{text} The nearest sources I looked at: {'; '.join(sources)}." if sources else text
