"""What the store is told of an answer: what it rests on, and how it went."""

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document

from langchain_feedback.claims import claims_of
from langchain_feedback.documents import chunk_key, is_derived, unique_documents
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.traces import asker_of, marks_of, traffic_of

if TYPE_CHECKING:
    # Importing it takes a database library along, which graphs without a store do not need.
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["keep_outcome"]

logger = logging.getLogger(__name__)

_VERDICTS = ("yes", "no", "unknown")


def keep_outcome(
    store: "FeedbackStore", id_field: str | None, view: StateView, update: Update
) -> None:
    """Keep an answer's outcome under its trace, without keeping the answer waiting.

    The answer stands whatever happens here: an error is logged.

    Args:
        store: Where.
        id_field: The metadata field that holds a chunk's id, if any.
        view: The state as `record_answer` found it.
        update: What `record_answer` makes of it.
    """
    trace_id = str(view.get("trace_id"))
    if not trace_id:
        return
    try:
        _keep(store, id_field, trace_id, view, update)
    except Exception:  # the host's state may hold anything, and the answer is ready
        logger.exception("The outcome of trace %.200r was not kept", trace_id)


def _keep(
    store: "FeedbackStore", id_field: str | None, trace_id: str, view: StateView, update: Update
) -> None:
    question, searched = view.question, view.get("search_question") or view.question
    documents = unique_documents(_chunks([*view.get("documents"), *view.kept]), id_field)
    recorded_for = claims_of(store).question_of(trace_id, searched)
    if recorded_for is None and not _is_recorded(documents, trace_id):
        run = view.config.get("metadata") or {}
        actor, session_id = asker_of(run)
        store.record_soon(
            trace_id,
            question,
            documents,
            attempt=view.get("rewrites") + 1,
            query=searched,
            actor=actor,
            session_id=session_id,
            traffic=traffic_of(run),
            id_field=id_field,
        )
    known = {chunk_key(document, id_field) for document in documents}
    store.update_soon(
        trace_id,
        # Never the trace of another question. A follow-up's is of what it stands for.
        asked=[recorded_for] if recorded_for else list(dict.fromkeys([question, searched])),
        answer=update["answer"],
        status=update["status"],
        reason=(update["reason"] if "reason" in update else view.get("reason")) or None,
        grounded=view.get("grounded"),
        in_prompt=_chunks(view.kept),
        cited=_cited(view, known) if update["status"] == "answered" else None,
        grades=_grades(view, known),
        id_field=id_field,
    )


def _chunks(documents: Sequence[Any]) -> list[Document]:
    """Return the documents that are sources: an earlier answer is no part of a trace."""
    found = (document for document in documents if isinstance(document, Document))
    return [document for document in found if not is_derived(document)]


def _is_recorded(documents: Sequence[Document], trace_id: str) -> bool:
    """Whether a `FeedbackRetriever` returned all of them for this trace."""
    marks = [marks_of(document) for document in documents]
    # A retrieval tool marks the documents of other retrievers too, with their trace id alone.
    return bool(marks) and all(
        mark.get("trace_id") == trace_id and "origin" in mark for mark in marks
    )


def _cited(view: StateView, known: Collection[str]) -> list[str] | None:
    """Return the chunks that a verified citation stands in; None where nobody cited at all."""
    citations = view.get("citations")
    if not citations:
        return None
    return [c["chunk_id"] for c in citations if c["verified"] and c["chunk_id"] in known]


def _grades(view: StateView, known: Collection[str]) -> dict[str, str]:
    """Return the verdict on each chunk that was graded."""
    verdicts = {grade["chunk_id"]: grade["verdict"] for grade in view.get("grades")}
    return {key: word for key, word in verdicts.items() if key in known and word in _VERDICTS}
