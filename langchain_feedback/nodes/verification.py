"""Check that a draft rests on the kept chunks, and find the passages that it rests on."""

from typing import Any

from langchain_core.runnables import Runnable

from langchain_feedback.judges.base import (
    CheckingRequest,
    Citation,
    Groundedness,
    GroundednessChecker,
    Highlighter,
)
from langchain_feedback.judges.groundedness import LLMGroundednessChecker, make_groundedness
from langchain_feedback.judges.highlighting import LLMHighlighter
from langchain_feedback.judges.verdict import Verdict
from langchain_feedback.nodes._node import Node, chat_model, failure, is_judge
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.keys import StateKeys

__all__ = ["check_groundedness", "highlight_sources"]

_READS = ["question", "messages", "kept", "draft", "errors"]


def check_groundedness(
    checker: GroundednessChecker | Runnable[Any, Any], *, keys: StateKeys | None = None
) -> Node:
    """Make the node that says whether the draft rests on the kept chunks.

    Only a clear yes is grounded. An empty draft, or one without chunks, is not,
    and nobody is asked. `reason` becomes `empty_answer`, `no_documents`,
    `not_grounded`, or `judge_failed` where the judge gave no verdict.

    Args:
        checker: A checker, or a chat model for an `LLMGroundednessChecker`.
        keys: Your graph's names of the keys.

    Raises:
        TypeError: If `checker` is neither of what it may be.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.language_models import FakeListChatModel
        >>> node = check_groundedness(FakeListChatModel(responses=["No."]))
        >>> chunk = Document("Refunds take 14 days.")
        >>> node({"question": "How long?", "kept": [chunk], "draft": "41 days."})
        {'grounded': False, 'unsupported': [], 'reason': 'not_grounded'}
    """
    if not is_judge(checker, GroundednessChecker):
        model = chat_model(checker, "checker", kind="GroundednessChecker")
        checker = LLMGroundednessChecker(model)

    def prepare(view: StateView) -> CheckingRequest | Update:
        if not view.get("draft").strip():
            return Update(grounded=False, unsupported=[], reason="empty_answer")
        if not view.kept:
            return Update(grounded=False, unsupported=[], reason="no_documents")
        return _request(view)

    def finish(view: StateView, result: Groundedness) -> Update:
        verdict = Verdict(result["verdict"])
        update = Update(
            grounded=verdict is Verdict.YES,
            unsupported=result["unsupported"],
            reason=_REASONS[verdict],
        )
        if result["error"]:
            update["errors"] = [
                *view.get("errors"),
                failure("check_groundedness", result["error"]),
            ]
        return update

    def recover(view: StateView, error: Exception) -> Update:
        return finish(view, make_groundedness(Verdict.UNKNOWN, error=type(error).__name__))

    return Node(
        "check_groundedness",
        keys=keys or StateKeys(),
        reads=_READS,
        writes=["grounded", "unsupported", "reason", "errors"],
        prepare=prepare,
        step=checker,
        finish=finish,
        recover=recover,
    )


def highlight_sources(
    highlighter: Highlighter | Runnable[Any, Any],
    *,
    keys: StateKeys | None = None,
    id_field: str | None = None,
) -> Node:
    """Make the node that cites the passages which support the draft.

    Every quote is searched for in its chunk by code; `verified` says whether it
    stands there. A draft that was found not grounded gets no citations.

    Args:
        highlighter: A highlighter, or a chat model for an `LLMHighlighter`.
        keys: Your graph's names of the keys.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        TypeError: If `highlighter` is neither of what it may be.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback.judges.offline import SentenceHighlighter
        >>> state = {"question": "How long?", "draft": "Refunds take 14 days.",
        ...          "kept": [Document("Note: Refunds take 14 days.")]}
        >>> [citation] = highlight_sources(SentenceHighlighter())(state)["citations"]
        >>> citation["quote"], citation["start"]
        ('Refunds take 14 days.', 6)
    """
    if not is_judge(highlighter, Highlighter):
        model = chat_model(highlighter, "highlighter", kind="Highlighter")
        highlighter = LLMHighlighter(model, id_field=id_field)

    def prepare(view: StateView) -> CheckingRequest | Update:
        if view.get("grounded") is False or not view.kept or not view.get("draft").strip():
            return Update(citations=[])
        return _request(view)

    def finish(_: StateView, citations: list[Citation]) -> Update:
        return Update(citations=citations)

    def recover(view: StateView, error: Exception) -> Update:
        entry = failure("highlight_sources", type(error).__name__)
        return Update(citations=[], errors=[*view.get("errors"), entry])

    return Node(
        "highlight_sources",
        keys=keys or StateKeys(),
        reads=[*_READS, "grounded"],
        writes=["citations", "errors"],
        prepare=prepare,
        step=highlighter,
        finish=finish,
        recover=recover,
    )


_REASONS = {
    Verdict.YES: "",
    Verdict.NO: "not_grounded",
    Verdict.UNKNOWN: "judge_failed",
}


def _request(view: StateView) -> CheckingRequest:
    return CheckingRequest(question=view.question, answer=view.get("draft"), documents=view.kept)
