"""Questions and signals at a given time, for tests of what the loop makes of them."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from langchain_core.documents import Document
from sqlalchemy import update

from langchain_feedback.store.evidence import recredit
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.records import TracedChunk
from langchain_feedback.store.schema import signals, traces
from langchain_feedback.store.transactions import writing
from langchain_feedback.traces import new_trace_id

__all__ = ["asked", "chunk", "said"]


def chunk(chunk_id: str, text: str | None = None, **metadata: Any) -> Document:
    """A document with this id; its source and heading go into the metadata."""
    return Document(text or f"This is chunk {chunk_id}.", id=chunk_id, metadata=metadata)


def asked(
    store: FeedbackStore,
    question: str,
    documents: Iterable[Document | TracedChunk | str],
    *,
    trace_id: str | None = None,
    actor: str | None = None,
    session_id: str | None = None,
    at: datetime | None = None,
    answer: str | None = None,
    status: str | None = None,
    grounded: bool | None = None,
    cited: Collection[str] | None = None,
    grades: Mapping[str, str] | None = None,
    in_prompt: Collection[str] | None = None,
    reason: str | None = None,
    vector: Iterable[float] | None = None,
    traffic: str | None = None,
    attempt: int = 1,
) -> str:
    """Record a question as asked at a time; return its trace id. A text is a chunk's id."""
    trace_id = trace_id or new_trace_id()
    found = [chunk(one, source="") if isinstance(one, str) else one for one in documents]
    store.record_trace(
        trace_id, question, found, actor=actor, session_id=session_id, traffic=traffic,
        vector=None if vector is None else list(vector), attempt=attempt, answer=answer,
    )  # fmt: skip
    store.update_trace(
        trace_id, status=status, reason=reason, grounded=grounded, cited=cited, grades=grades,
        in_prompt=in_prompt,
    )  # fmt: skip
    if at is not None:
        with writing(store) as (connection, _):
            this = update(traces).where(traces.c.trace_id == trace_id)
            connection.execute(this.values(created_at=at))
    return trace_id


def said(
    store: FeedbackStore, trace_id: str, name: str, *, at: datetime | None = None, **kwargs: Any
) -> str:
    """Give a signal (or a rating: `rating=`) at a time; return its event id."""
    if name == "rating":
        event_id = store.rate(trace_id, kwargs.pop("rating"), **kwargs)
    else:
        event_id = store.signal(trace_id, name, **kwargs)
    if at is not None:
        with writing(store) as (connection, half_life):
            this = update(signals).where(signals.c.event_id == event_id)
            this = this.where(signals.c.namespace == store.namespace)
            connection.execute(this.values(received_at=at))
            recredit(connection, store.namespace, [trace_id], half_life)
    return event_id
