"""Verify an answer in two steps: a checker decides, a highlighter cites."""

import logging

from langchain_core.runnables import RunnableConfig

from langchain_feedback.judges.asking import must_raise
from langchain_feedback.judges.base import (
    AnswerVerifier,
    CheckingRequest,
    Citation,
    ClaimVerdict,
    Groundedness,
    GroundednessChecker,
    Highlighter,
    Verification,
)
from langchain_feedback.judges.declining import says_no_answer
from langchain_feedback.judges.verdict import Verdict

__all__ = ["NO_CITATIONS", "CheckAndHighlight", "make_verification"]

logger = logging.getLogger(__name__)


NO_CITATIONS = "NoCitations"
"""The error of an answer that was found grounded, and for which no passage was found."""


class CheckAndHighlight(AnswerVerifier):
    """Verifies in two steps: a checker decides, then a highlighter cites what it approved.

    Args:
        checker: Says whether the answer is grounded.
        highlighter: Finds the passages that it rests on.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback.judges.offline import (
        ...     LexicalGroundednessChecker, SentenceHighlighter)
        >>> verifier = CheckAndHighlight(LexicalGroundednessChecker(), SentenceHighlighter())
        >>> verifier.invoke({"question": "How long?", "answer": "Refunds take 14 days.",
        ...     "documents": [Document("Refunds take 14 days.")]})["verdict"]
        'yes'
    """

    def __init__(self, checker: GroundednessChecker, highlighter: Highlighter) -> None:
        self.checker = checker
        self.highlighter = highlighter

    def judge(self, request: CheckingRequest, config: RunnableConfig) -> Verification:
        """Check, and highlight what is grounded."""
        if says_no_answer(request["answer"]):
            return make_verification(Verdict.NO, abstained=True)
        checked = self.checker.invoke(request, config)
        if checked["verdict"] != Verdict.YES:
            return _combined(checked, [])
        try:
            return _combined(checked, self.highlighter.invoke(request, config))
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            return _uncited(checked, error)

    async def ajudge(self, request: CheckingRequest, config: RunnableConfig) -> Verification:
        """Do the same without blocking."""
        if says_no_answer(request["answer"]):
            return make_verification(Verdict.NO, abstained=True)
        checked = await self.checker.ainvoke(request, config)
        if checked["verdict"] != Verdict.YES:
            return _combined(checked, [])
        try:
            return _combined(checked, await self.highlighter.ainvoke(request, config))
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            return _uncited(checked, error)


def make_verification(
    verdict: str,
    *,
    abstained: bool = False,
    claims: list[ClaimVerdict] | None = None,
    unsupported: list[str] | None = None,
    citations: list[Citation] | None = None,
    error: str | None = None,
) -> Verification:
    """Make a `Verification` of plain values."""
    return Verification(
        verdict=str(verdict),
        abstained=abstained,
        claims=claims or [],
        unsupported=unsupported or [],
        citations=citations or [],
        error=error,
    )


def _uncited(checked: Groundedness, error: Exception) -> Verification:
    """Keep an answer that was found grounded where only its highlighter fails."""
    if must_raise(error):
        raise error
    logger.warning("A highlighter failed: %s: %s", type(error).__name__, error)
    return _combined(checked, [], type(error).__name__)


def _combined(
    checked: Groundedness, citations: list[Citation], error: str | None = None
) -> Verification:
    uncited = checked["verdict"] == Verdict.YES and not citations
    result = make_verification(
        checked["verdict"],
        unsupported=checked["unsupported"],
        citations=citations,
        error=error or checked["error"] or (NO_CITATIONS if uncited else None),
    )
    if "first_stage" in checked:
        result["first_stage"] = checked["first_stage"]
    return result
