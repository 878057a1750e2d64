"""Grade the retrieved chunks and keep the relevant ones."""

from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from langchain_feedback.documents import (
    chunk_key,
    copy_document,
    is_derived,
    unique_documents,
)
from langchain_feedback.judges.base import (
    DocumentGrader,
    Grade,
    GradingRequest,
    chat_model,
    is_judge,
)
from langchain_feedback.judges.grading import LLMDocumentGrader, make_grade
from langchain_feedback.judges.verdict import Verdict
from langchain_feedback.nodes._node import Node, failure, quiet
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.keys import StateKeys

__all__ = ["grade_documents"]

_NAME = "grade_documents"


def grade_documents(
    grader: DocumentGrader | Runnable[Any, Any],
    *,
    on_unknown: Literal["keep", "drop"] = "keep",
    keys: StateKeys | None = None,
    id_field: str | None = None,
) -> Node:
    """Make the node that keeps the chunks that help to answer the question.

    Chunks without text are dropped unasked, and each distinct chunk is graded
    once, also where a reducer of your state has collected it twice. `grades`
    holds every verdict; a chunk that got none (`unknown`) is kept or dropped as
    `on_unknown` says, and is never recorded as a `no`.

    An answer that was folded back is graded as a chunk is, and is kept only beside a
    chunk: nothing can rest on it.

    `reason` becomes `no_documents` where there was no text to grade,
    `none_relevant` where nothing was kept, `judge_failed` where nothing was kept
    because no chunk got a verdict.

    Args:
        grader: A grader, or a chat model for an `LLMDocumentGrader`.
        on_unknown: What to do with a chunk that got no verdict.
        keys: Your graph's names of the keys.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        TypeError: If `grader` is neither of what it may be.
        ValueError: If `on_unknown` is neither `keep` nor `drop`, or when the
            grader returns another number of grades than it was given chunks.

    Example:
        >>> from langchain_feedback.judges.offline import LexicalGrader
        >>> chunks = [Document("A refund takes 14 days."), Document("Keys rotate.")]
        >>> state = {"question": "How long does a refund take?", "documents": chunks}
        >>> [chunk.page_content for chunk in grade_documents(LexicalGrader())(state)["kept"]]
        ['A refund takes 14 days.']
    """
    if on_unknown not in ("keep", "drop"):
        msg = f"on_unknown must be 'keep' or 'drop', got {on_unknown!r}"
        raise ValueError(msg)
    if not is_judge(grader, DocumentGrader):
        model = chat_model(grader, "grader", kind="DocumentGrader")
        grader = LLMDocumentGrader(model, id_field=id_field)

    def with_text(view: StateView) -> list[Document]:
        documents = unique_documents(view.get("documents"), id_field)
        return [document for document in documents if document.page_content.strip()]

    def prepare(view: StateView) -> GradingRequest | Update:
        documents = with_text(view)
        if all(is_derived(document) for document in documents):
            return Update(kept=[], grades=[], reason="no_documents")
        return GradingRequest(question=_question(view), documents=documents)

    def finish(view: StateView, grades: list[Grade]) -> Update:
        documents = with_text(view)
        if len(grades) != len(documents):
            msg = f"{grader!r} returned {len(grades)} grades for {len(documents)} chunks"
            raise ValueError(msg)
        kept, why = _sorted_out(documents, grades, on_unknown == "keep")
        update = Update(kept=kept, grades=grades, reason=why)
        failed = [failure(_NAME, g["error"], g["chunk_id"]) for g in grades if g["error"]]
        if failed:
            update["errors"] = view.get("errors") + failed
        return update

    def recover(view: StateView, error: Exception) -> Update:
        names = [
            make_grade(chunk_key(document, id_field), Verdict.UNKNOWN, error=type(error).__name__)
            for document in with_text(view)
        ]
        return finish(view, names)

    return Node(
        _NAME,
        keys=keys or StateKeys(),
        reads=["question", "search_question", "messages", "documents", "errors"],
        writes=["kept", "grades", "reason", "errors"],
        prepare=prepare,
        step=grader,
        finish=finish,
        recover=recover,
        config=quiet,
    )


def _question(view: StateView) -> str:
    """Return the question, with the rewritten one that may stand better on its own."""
    question, searched = view.question, view.get("search_question")
    return f"{question}\n(in other words: {searched})" if searched else question


def _sorted_out(
    documents: list[Document],
    grades: list[Grade],
    keeps_unknown: bool,  # noqa: FBT001  a setting
) -> tuple[list[Document], str]:
    """Return copies of the chunks that are kept, or why there are none."""
    wanted = {Verdict.YES, Verdict.UNKNOWN} if keeps_unknown else {Verdict.YES}
    pairs = list(zip(documents, grades, strict=True))
    kept = [copy_document(document) for document, grade in pairs if grade["verdict"] in wanted]
    # On an earlier answer alone another one could not rest.
    if all(is_derived(document) for document in kept):
        return [], _why([grade for document, grade in pairs if not is_derived(document)])
    return kept, ""


def _why(grades: list[Grade]) -> str:
    unread = any(grade["verdict"] == Verdict.UNKNOWN for grade in grades)
    return "judge_failed" if unread else "none_relevant"
