"""How a correction becomes an item: which chunk it is about, and what its owner will see."""

import hashlib
import json
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from langchain_feedback.errors import UnknownChunkError, UnknownTraceError
from langchain_feedback.loop.owners import Owners
from langchain_feedback.store.owner_items import open_item
from langchain_feedback.store.records import TraceChunk, TraceRecord
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.tracing import read_trace
from langchain_feedback.traces import storable

__all__ = ["about_correction", "about_missing", "open_correction"]


def about_correction(namespace: str, about: str, content_hash: str | None, text: str) -> str:
    """Return what makes two corrections the same one: the chunk as it was, and the words.

    Args:
        namespace: Whose.
        about: The id of the chunk; of the trace where no chunk is named.
        content_hash: Of the chunk, so that a new text may be corrected again.
        text: What would be right; white space does not count.

    Example:
        >>> one = about_correction("default", "refunds", "ab12", "30 days")
        >>> one == about_correction("default", "refunds", "ab12", " 30  days ")
        True
    """
    return _digest("correction", namespace, about, content_hash or "", " ".join(text.split()))


def about_missing(namespace: str, question_id: int) -> str:
    """Return what makes two missing documents the same one: the question that was first.

    Example:
        >>> about_missing("default", 7) == about_missing("other", 7)
        False
    """
    return _digest("missing_document", namespace, str(question_id))


def open_correction(
    connection: Connection,
    namespace: str,
    trace_id: str,
    text: str,
    owners: Owners | None,
    *,
    chunk: str | None,
    actor: str | None,
    now: datetime,
) -> str:
    """Open the item of a correction, once, and return its id: see `Corrections.correct`."""
    said = storable(text).strip()
    if not said:
        msg = "A correction needs a text: say what would be right."
        raise ValueError(msg)
    trace = read_trace(connection, namespace, trace_id)
    if trace is None:
        msg = f"No trace {trace_id!r} in namespace {namespace!r}"
        raise UnknownTraceError(msg)
    wrong = _chunk_of(trace, chunk)
    chunk_id, hashed = (wrong.chunk_id, wrong.content_hash) if wrong else (None, None)
    snapshot = _snapshot(connection, namespace, trace)
    source = next((one["source"] for one in snapshot["chunks"] if one["chunk_id"] == chunk_id), "")
    owner = owners.of(source) if owners else None
    item_id, _ = open_item(
        connection,
        namespace,
        about=about_correction(namespace, chunk_id or trace_id, hashed, said),
        kind="correction",
        now=now,
        text=said,
        question=trace.question,
        source=source,
        chunk_id=chunk_id,
        content_hash=hashed,
        trace_id=trace_id,
        owner=owner.name if owner else "",
        snapshot=snapshot,
        opened_by=None if actor is None else storable(actor),
    )
    return item_id


def _chunk_of(trace: TraceRecord, wanted: str | None) -> TraceChunk | None:
    if wanted is None:
        cited = {one.chunk_id: one for one in trace.chunks if one.cited}
        return next(iter(cited.values())) if len(cited) == 1 else None
    found = [one for one in trace.chunks if one.chunk_id == wanted]
    if not found:
        msg = f"Trace {trace.trace_id!r} did not retrieve {wanted!r}"
        raise UnknownChunkError(msg)
    return found[-1]


def _snapshot(connection: Connection, namespace: str, trace: TraceRecord) -> dict[str, Any]:
    """Return what the owner sees, with the texts of the chunks as they were then."""
    ids = sorted({chunk.chunk_id for chunk in trace.chunks})
    wanted = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(ids)
    seen = {row.chunk_id: row for row in connection.execute(select(chunks).where(wanted))}
    return {
        "question": trace.question,
        "asked_at": trace.created_at.isoformat(),
        "answer": trace.answer,
        "status": trace.status,
        "reason": trace.reason,
        "grounded": trace.grounded,
        "searches": list(trace.searches.values()),
        "chunks": [_as_seen(chunk, seen.get(chunk.chunk_id)) for chunk in trace.chunks],
    }


def _as_seen(chunk: TraceChunk, row: Any) -> dict[str, Any]:
    # Another text is not what was answered from.
    same = row is not None and row.content_hash == chunk.content_hash
    about = json.loads(row.metadata) if row is not None else {}
    names = ("chunk_id", "cell_id", "content_hash", "base_rank", "grade", "in_prompt", "cited")
    return {name: getattr(chunk, name) for name in (*names, "origin")} | {
        "rank": chunk.final_rank,
        "text": row.text if same else None,
        "source": row.source if row is not None else "",
        "heading": about.get("heading"),
        "url": about.get("url"),
    }


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
