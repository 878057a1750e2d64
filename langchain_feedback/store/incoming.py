"""What is on its way into the store: searches, and what became known of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from typing import Any, Self, get_args

from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, copy_document
from langchain_feedback.store.questions import Question
from langchain_feedback.store.records import Origin, TracedChunk
from langchain_feedback.traces import marks_of

__all__ = ["GRADES", "NewTrace", "TraceUpdate", "new_trace"]

GRADES = ("yes", "no", "unknown")


@dataclass(frozen=True)
class NewTrace:
    """One search on its way into the store."""

    trace_id: str
    question: Question
    chunks: Sequence[TracedChunk]
    query: str
    created_at: datetime
    attempt: int = 1
    id_field: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the trace."""

    def own(self) -> Self:
        """Copy the documents: their owner may change them while this waits."""
        chunks = [replace(chunk, document=copy_document(chunk.document)) for chunk in self.chunks]
        return replace(self, chunks=chunks)


@dataclass(frozen=True)
class TraceUpdate:
    """What became known of a trace, on its way into the store."""

    trace_id: str
    facts: Mapping[str, Any]
    in_prompt: Sequence[str] | None = None
    cited: Sequence[str] | None = None
    grades: Mapping[str, str] | None = None
    asked: Collection[str] | None = None
    """Its question must be one of these."""

    def __post_init__(self) -> None:
        if wrong := sorted(set(map(str, (self.grades or {}).values())) - set(GRADES)):
            msg = f"A grade is one of {', '.join(GRADES)}, got {wrong[0]!r}"
            raise ValueError(msg)

    def own(self) -> Self:
        """Return itself: nothing in it is shared."""
        return self


def new_trace(
    trace_id: str,
    question: Question,
    documents: Iterable[Document | TracedChunk],
    *,
    attempt: int,
    query: str | None,
    id_field: str | None,
    created_at: datetime,
    facts: Mapping[str, Any],
) -> NewTrace:
    """Make a search of what a retriever returned or considered.

    Raises:
        ValueError: If `attempt` is below 1.
    """
    if attempt < 1:
        msg = f"attempt counts from 1, got {attempt!r}"
        raise ValueError(msg)
    return NewTrace(
        trace_id=trace_id,
        question=question,
        chunks=_distinct(_traced(documents), id_field),
        query=question.text if query is None else query,
        created_at=created_at,
        attempt=attempt,
        id_field=id_field,
        facts={name: value for name, value in facts.items() if value is not None},
    )


def _traced(documents: Iterable[Document | TracedChunk]) -> list[TracedChunk]:
    """Make candidates of documents: in their order, with the marks that they carry."""
    chunks = []
    for rank, given in enumerate(documents):
        if isinstance(given, TracedChunk):
            chunks.append(given)
            continue
        marks = marks_of(given)
        base_rank = marks.get("base_rank", rank)
        chunks.append(
            TracedChunk(
                document=given,
                final_rank=rank,
                base_rank=base_rank if isinstance(base_rank, int) else None,
                origin=marks["origin"] if marks.get("origin") in get_args(Origin) else "base",
                belief=_number(marks.get("belief")) or 0.0,
                multiplier=_number(marks.get("multiplier")),
                final_score=_number(given.metadata.get("relevance_score")),
            )
        )
    return chunks


def _number(value: Any) -> float | None:
    """Return a finite number, or None for whatever else stands in somebody's metadata."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if isfinite(number) else None


def _distinct(chunks: Iterable[TracedChunk], id_field: str | None) -> list[TracedChunk]:
    first: dict[str, TracedChunk] = {}
    for chunk in chunks:
        first.setdefault(chunk_key(chunk.document, id_field), chunk)
    return list(first.values())
