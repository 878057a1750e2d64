"""Decide what becomes of a draft: published, rejected, or passed on unverified."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from langchain_feedback.documents import chunk_key, copy_document, is_derived
from langchain_feedback.integrations._driving import Ask, Step
from langchain_feedback.integrations._turn import Turn
from langchain_feedback.judges import prompts
from langchain_feedback.judges.base import AnswerVerifier, CheckingRequest, Citation, Verification
from langchain_feedback.judges.declining import says_no_answer
from langchain_feedback.judges.two_steps import make_verification
from langchain_feedback.judges.verdict import Verdict
from langchain_feedback.nodes._node import Node, failure

__all__ = ["Checker", "Finding", "note_on"]

_STEPS = 1_000
_QUESTION_MARKS = ("?", "？", "؟")
_CLOSING = " \t\n\"'”’»)]*_"


@dataclass
class Finding:
    """What was found out about a draft."""

    status: Literal["answered", "abstained", "unverified", "rejected"]
    reason: str = ""
    grounded: bool | None = None
    unsupported: list[str] = field(default_factory=list)
    """The claims that nothing proves, for the next draft."""
    citations: list[Citation] = field(default_factory=list)

    @property
    def may_improve(self) -> bool:
        """Whether another draft may fare better: one that nobody can check cannot."""
        return self.status == "rejected" and self.reason != "judge_failed"


class Checker:
    """Checks the drafts of one turn against what was found in it.

    Args:
        turn: The turn.
        documents: What a draft must rest on.
        grade: The node that keeps the relevant ones; None: all are kept.
        verifier: Verifies a draft against the kept ones.
    """

    def __init__(
        self,
        turn: Turn,
        documents: list[Document],
        *,
        grade: Node | None,
        verifier: Runnable[CheckingRequest, Verification] | AnswerVerifier,
        id_field: str | None = None,
    ) -> None:
        self._turn, self._grade, self._verifier = turn, grade, verifier
        self.documents = _distinct(documents, id_field)
        self.kept: list[Document] | None = None
        """The documents that were kept; None before anybody asked."""
        self.grades: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self._problem = ""

    def check(self, draft: str) -> Generator[Step, Any, Finding]:
        """Check one draft, asking as few judges as can be."""
        if not draft.strip():
            return Finding("rejected", "empty_answer")
        if not self.documents:
            self._problem = "no_documents" if self._turn.searches else "no_retrieval"
        elif self.kept is None:
            yield from self._graded()
        if not self.kept:
            # Where there is something to check it by, the verifier says what an answer says.
            if says_no_answer(draft):
                return Finding("abstained", "empty_answer", grounded=False)
            return Finding("rejected", self._problem)
        request = CheckingRequest(question=self._turn.question, answer=draft, documents=self.kept)
        result = yield Ask(self._verifier, request, _unknown)
        return self._finding(draft, result)

    def _graded(self) -> Generator[Step, Any, None]:
        if self._grade is None:
            self.kept = self.documents
            return
        state = {
            "question": self._turn.question,
            "search_question": self._turn.queries,
            "documents": self.documents,
            # A node that LangGraph runs is told these; this one is run by the middleware.
            "remaining_steps": _STEPS,
        }
        update = yield Ask(self._grade, state)
        self.kept, self.grades = update["kept"], update["grades"]
        self._problem = update["reason"]
        self.errors += update.get("errors", [])

    def _finding(self, draft: str, result: Verification) -> Finding:
        if result["error"]:
            self.errors.append(failure("verify_answer", result["error"]))
        verdict = Verdict(result["verdict"])
        if result["abstained"]:
            return Finding("abstained", "empty_answer", grounded=False)
        if verdict is Verdict.YES:
            return Finding("answered", grounded=True, citations=result["citations"])
        if self._claims_nothing(draft, result):
            return Finding("unverified", "no_claims")
        # A verifier that decides by rules may have none for this draft, and one for the next.
        failed = verdict is Verdict.UNKNOWN and result["error"]
        reason = "judge_failed" if failed else "not_grounded"
        return Finding("rejected", reason, grounded=False, unsupported=result["unsupported"])

    def _claims_nothing(self, draft: str, result: Verification) -> bool:
        """Whether a draft only asks back, or is small talk in a turn without a search.

        The judge's word that nothing in it is a fact is not enough where something was
        searched for: it must end in a question, too.
        """
        kinds = {claim["verdict"] for claim in result["claims"]}
        if kinds != {"no_support_needed"} or result["unsupported"]:
            return False
        return not self._turn.searches or draft.rstrip(_CLOSING).endswith(_QUESTION_MARKS)


def note_on(finding: Finding) -> tuple[str, list[str]]:
    """Return what the model is told of a rejected draft, and the statements to go with it."""
    notes = {
        "empty_answer": prompts.ANSWER_IN_WORDS,
        "no_documents": prompts.SEARCH_AGAIN,
        "none_relevant": prompts.SEARCH_AGAIN,
        "no_retrieval": prompts.SEARCH_FIRST,
    }
    return notes.get(finding.reason, prompts.REVISE_ANSWER), finding.unsupported


def _unknown(error: Exception) -> Verification:
    return make_verification(Verdict.UNKNOWN, error=type(error).__name__)


def _distinct(documents: list[Document], id_field: str | None) -> list[Document]:
    """Copy the sources that hold text, each once; two indexes may use the same ids."""
    first = {
        (chunk_key(document, id_field), document.page_content): document
        for document in reversed(documents)
        if document.page_content.strip() and not is_derived(document)
    }
    return [copy_document(document) for document in reversed(first.values())]
