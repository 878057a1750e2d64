"""What the store is told of an answer: what it rests on, and how it went."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, unique_documents
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.traces import asker_of

if TYPE_CHECKING:
    # Importing it takes a database library along, which graphs without a store do not need.
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["keep_outcome"]


def keep_outcome(
    store: "FeedbackStore", id_field: str | None, view: StateView, update: Update
) -> None:
    """Keep an answer's outcome under its trace, without keeping the answer waiting.

    Args:
        store: Where.
        id_field: The metadata field that holds a chunk's id, if any.
        view: The state as `record_answer` found it.
        update: What `record_answer` makes of it.
    """
    if not (trace_id := view.get("trace_id")):
        return
    documents = unique_documents([*view.get("documents"), *view.kept], id_field)
    if not _is_recorded(documents, trace_id):
        actor, session_id = asker_of(view.config.get("metadata") or {})
        store.record_soon(
            trace_id,
            view.question,
            documents,
            attempt=view.get("rewrites") + 1,
            query=view.get("search_question") or view.question,
            actor=actor,
            session_id=session_id,
            id_field=id_field,
        )
    known = {chunk_key(document, id_field) for document in documents}
    answered = update["status"] == "answered"
    store.update_soon(
        trace_id,
        answer=update["answer"],
        status=update["status"],
        grounded=view.get("grounded"),
        in_prompt=view.kept,
        cited=_cited(view, known) if answered else None,
        grades={g["chunk_id"]: g["verdict"] for g in view.get("grades") if g["chunk_id"] in known},
        id_field=id_field,
    )


def _is_recorded(documents: Sequence[Document], trace_id: str) -> bool:
    """Whether a `FeedbackRetriever` returned all of them for this trace."""
    marks = [document.metadata.get("feedback") or {} for document in documents]
    # A retrieval tool marks the documents of other retrievers too, with their trace id alone.
    return bool(marks) and all(
        mark.get("trace_id") == trace_id and "origin" in mark for mark in marks
    )


def _cited(view: StateView, known: set[str]) -> list[str] | None:
    """Return the chunks that a verified citation stands in; None where nobody cited at all."""
    citations = view.get("citations")
    if not citations:
        return None
    return [c["chunk_id"] for c in citations if c["verified"] and c["chunk_id"] in known]
