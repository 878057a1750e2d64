"""Verify a draft against the kept chunks, in one node or in two."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from langchain_core.runnables import Runnable

from langchain_feedback.judges.base import (
    AnswerVerifier,
    CheckingRequest,
    Citation,
    Groundedness,
    GroundednessChecker,
    Highlighter,
    Verification,
    chat_model,
    is_judge,
)
from langchain_feedback.judges.groundedness import LLMGroundednessChecker, make_groundedness
from langchain_feedback.judges.highlighting import LLMHighlighter
from langchain_feedback.judges.two_steps import NO_CITATIONS, make_verification
from langchain_feedback.judges.verdict import Verdict
from langchain_feedback.judges.verifying import LLMVerifier
from langchain_feedback.nodes._node import Node, failure, quiet
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.keys import StateKeys

__all__ = ["check_groundedness", "highlight_sources", "verify_answer"]

T = TypeVar("T")

_READS = ["question", "messages", "kept", "draft", "errors", "checks", "verifications"]
_WRITES = ["grounded", "unsupported", "reason", "errors", "checks", "verifications"]


def verify_answer(
    verifier: AnswerVerifier | Runnable[Any, Any],
    *,
    keys: StateKeys | None = None,
    id_field: str | None = None,
) -> Node:
    """Make the node that verifies the draft and cites what proves it, in one call.

    Only a draft whose every claim is proved is grounded. An empty draft, or one
    without chunks, is not, and nobody is asked. A draft that says in its own words
    that there is no answer becomes `status="abstained"` with those words as `answer`.
    `reason` becomes `empty_answer`, `no_documents`, `not_grounded`, or `judge_failed`
    where the judge gave no verdict.

    Args:
        verifier: A verifier, or a chat model for an `LLMVerifier`.
        keys: Your graph's names of the keys.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        TypeError: If `verifier` is neither of what it may be.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.language_models import FakeListChatModel
        >>> node = verify_answer(FakeListChatModel(responses=["No."]))
        >>> chunk = Document("Refunds take 14 days.")
        >>> node({"question": "How long?", "kept": [chunk], "draft": "41 days."})["reason"]
        'not_grounded'
    """
    if not is_judge(verifier, AnswerVerifier):
        model = chat_model(verifier, "verifier", kind="AnswerVerifier")
        verifier = LLMVerifier(model, id_field=id_field)

    def prepare(view: StateView) -> CheckingRequest | Update:
        if view.get("status") == "abstained" and not view.get("draft").strip():
            return Update(grounded=False, citations=[], claims=[])
        if problem := _unfit(view):
            return Update(grounded=False, unsupported=[], citations=[], claims=[], reason=problem)
        return _request(view)

    def finish(view: StateView, result: Verification) -> Update:
        verdict = Verdict(result["verdict"])
        grounded = verdict is Verdict.YES and not result["abstained"]
        update = Update(
            grounded=grounded,
            unsupported=result["unsupported"],
            # The claims of a draft are the draft: nobody sees those of a rejected one.
            claims=result["claims"] if grounded else [],
            citations=result["citations"] if grounded else [],
            reason=_REASONS[verdict],
        )
        if result["abstained"]:
            update |= {"status": "abstained", "answer": view.get("draft")}
            update["reason"] = "empty_answer"
        elif view.get("status"):
            # It is the last question's, in a thread whose host writes its own drafts.
            update["status"] = ""
        if result["error"]:
            entry = failure("verify_answer", result["error"])
            update["errors"] = [*view.get("errors"), entry]
        return _with_check(view, update, result)

    def recover(view: StateView, error: Exception) -> Update:
        return finish(view, make_verification(Verdict.UNKNOWN, error=type(error).__name__))

    return Node(
        "verify_answer",
        keys=keys or StateKeys(),
        reads=[*_READS, "status"],
        writes=[*_WRITES, "claims", "citations", "status", "answer"],
        prepare=_counted(prepare),
        step=verifier,
        finish=_counted(finish),
        recover=_counted(recover),
        config=quiet,
    )


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
        {'grounded': False, 'unsupported': [], 'reason': 'not_grounded', 'verifications': 1}
    """
    if not is_judge(checker, GroundednessChecker):
        model = chat_model(checker, "checker", kind="GroundednessChecker")
        checker = LLMGroundednessChecker(model)

    def prepare(view: StateView) -> CheckingRequest | Update:
        if problem := _unfit(view):
            return Update(grounded=False, unsupported=[], reason=problem)
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
        return _with_check(view, update, result)

    def recover(view: StateView, error: Exception) -> Update:
        return finish(view, make_groundedness(Verdict.UNKNOWN, error=type(error).__name__))

    return Node(
        "check_groundedness",
        keys=keys or StateKeys(),
        reads=_READS,
        writes=_WRITES,
        prepare=_counted(prepare),
        step=checker,
        finish=_counted(finish),
        recover=_counted(recover),
        config=quiet,
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

    def finish(view: StateView, citations: list[Citation]) -> Update:
        update = Update(citations=citations)
        if not citations:
            entry = failure("highlight_sources", NO_CITATIONS)
            update["errors"] = [*view.get("errors"), entry]
        return update

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
        config=quiet,
    )


_REASONS = {
    Verdict.YES: "",
    Verdict.NO: "not_grounded",
    Verdict.UNKNOWN: "judge_failed",
}


def _counted(function: Callable[..., T]) -> Callable[..., T]:
    """Have each draft that was looked at counted: a host's own writer may not count its drafts."""

    def count(view: StateView, *args: Any) -> T:
        made = function(view, *args)
        if isinstance(made, Update):
            made["verifications"] = view.get("verifications") + 1
        return made

    return count


def _with_check(view: StateView, update: Update, result: Mapping[str, Any]) -> Update:
    """Keep what a first stage said beside the verdict, for calibration."""
    if "first_stage" in result:
        check = {"verdict": result["verdict"], "first_stage": result["first_stage"]}
        update["checks"] = [*view.get("checks"), check]
    return update


def _unfit(view: StateView) -> str:
    """Say why a draft need not be looked at, if so."""
    if not view.get("draft").strip():
        return "empty_answer"
    return "" if view.kept else "no_documents"


def _request(view: StateView) -> CheckingRequest:
    return CheckingRequest(question=view.question, answer=view.get("draft"), documents=view.kept)
