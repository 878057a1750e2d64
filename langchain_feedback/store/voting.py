"""Votes and pins: what people said, kept once, and never dropped without a word."""

from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any
from uuid import uuid4

from langchain_core.documents import Document
from sqlalchemy import Connection, insert, select, update

from langchain_feedback.documents import chunk_key
from langchain_feedback.errors import (
    EventReusedError,
    UnknownChunkError,
    UnknownEventError,
    UnknownTraceError,
)
from langchain_feedback.signals import signal_kind, vote_of_rating
from langchain_feedback.store.chunks import take_snapshots
from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.evidence import recredit
from langchain_feedback.store.questions import Question, question_id_of, remember
from langchain_feedback.store.records import CellKey
from langchain_feedback.store.schema import ANSWER, chunks, pins, signals, trace_chunks
from langchain_feedback.store.tracing import attach, require_trace
from langchain_feedback.traces import marks_of, storable

__all__ = ["Event", "add_event", "add_pin", "retract", "target_of"]

_OF_SOURCES = ("source_click", "source_skipped", "wrong_source")


@dataclass(frozen=True)
class Event:
    """One signal on its way into the store.

    Raises:
        ValueError: If there is no such signal, a rating is not 1 to 5, a time has no zone,
            a correction has no text,
            or a dwell no time.
    """

    trace_id: str
    signal: str
    received_at: datetime
    target: str = ANSWER
    rating: int | None = None
    actor: str | None = None
    event_id: str | None = None
    comment: str | None = None
    correction: str | None = None
    client_time: datetime | None = None
    reviewer: bool = False
    value: float | None = None

    def __post_init__(self) -> None:
        signal_kind(self.signal)
        if self.signal == "rating":
            vote_of_rating(self.rating)  # type: ignore[arg-type]  # it checks
        if self.signal in _OF_SOURCES and self.target == ANSWER:
            msg = f"{self.signal!r} is about one source: pass target=document"
            raise ValueError(msg)
        if self.client_time is not None and self.client_time.tzinfo is None:
            msg = f"client_time needs a zone, got the naive {self.client_time!r}"
            raise ValueError(msg)
        if self.signal == "correction" and not (self.correction or "").strip():
            msg = "A correction needs a text: pass correction='...'"
            raise ValueError(msg)
        measured = self.value is not None and isfinite(self.value) and self.value >= 0
        if (self.signal == "dwell") != measured or (self.value is not None and not measured):
            msg = f"'dwell' takes value=milliseconds, and nothing else does; got {self.value!r}"
            raise ValueError(msg)

    def as_row(self, namespace: str) -> dict[str, Any]:
        """Return the event as a row of the signals table."""
        kind = signal_kind(self.signal)
        rated = self.signal == "rating" and self.rating is not None
        return {
            "namespace": namespace,
            "event_id": self.event_id or str(uuid4()),
            "trace_id": self.trace_id,
            "family": kind.family,
            "signal": self.signal,
            "target": self.target,
            "rating": self.rating,
            "polarity": vote_of_rating(self.rating or 0) if rated else kind.polarity,
            "weight": kind.weight,
            "value": self.value,
            "actor": self.actor,
            "reviewer": self.reviewer,
            "comment": None if self.comment is None else storable(self.comment),
            "correction": None if self.correction is None else storable(self.correction),
            "client_time": self.client_time,
            "received_at": self.received_at,
        }


def target_of(target: Document | str | None, id_field: str | None = None) -> str:
    """Return the chunk id that a vote names; empty for the whole answer."""
    if target is None or target == "answer":
        return ANSWER
    if isinstance(target, Document):
        return str(marks_of(target).get("chunk_id") or chunk_key(target, id_field))
    return str(target)


def add_event(
    connection: Connection,
    namespace: str,
    event: Event,
    half_life: float | None,
    *,
    pending: bool = False,
) -> str:
    """Keep an event and what follows from it; return its id. A known id changes nothing.

    Raises:
        UnknownTraceError: If there is no such trace and the event may not wait for it.
        UnknownChunkError: If the target is none of the trace's candidates.
        EventReusedError: If the id is known from another trace or target.
    """
    row = event.as_row(namespace)
    attached = True
    try:
        require_trace(connection, namespace, event.trace_id)
    except UnknownTraceError:
        if not pending:
            raise
        attached = False
    if attached and event.target != ANSWER:
        _check_target(connection, event)
    if not insert_or_ignore(connection, signals, [row | {"attached": attached}]):
        _check_same(connection, row)
    elif attached:
        attach(connection, namespace, event.trace_id)
        recredit(connection, namespace, [event.trace_id], half_life)
    return str(row["event_id"])


def retract(
    connection: Connection, namespace: str, event_id: str, now: datetime, half_life: float | None
) -> None:
    """Take back an event or a pin; taking it back twice is harmless.

    Raises:
        UnknownEventError: If there is neither of this id.
    """
    pinned = (pins.c.namespace == namespace) & (pins.c.pin_id == event_id)
    given = (signals.c.namespace == namespace) & (signals.c.event_id == event_id)
    trace_id = connection.execute(select(signals.c.trace_id).where(given)).scalar()
    if trace_id is not None:
        open_ = given & signals.c.retracted_at.is_(None)
        connection.execute(update(signals).where(open_).values(retracted_at=now))
        recredit(connection, namespace, [trace_id], half_life)
    elif connection.execute(select(pins.c.pin_id).where(pinned)).scalar():
        open_ = pinned & pins.c.retracted_at.is_(None)
        connection.execute(update(pins).where(open_).values(retracted_at=now))
    else:
        msg = f"No rating, signal or pin {event_id!r} in namespace {namespace!r}"
        raise UnknownEventError(msg)


def add_pin(
    connection: Connection,
    namespace: str,
    question: Question,
    target: Document | str,
    *,
    actor: str | None,
    now: datetime,
    id_field: str | None = None,
) -> str:
    """Name the right chunk for a question; the same pin twice is one pin.

    Raises:
        UnknownChunkError: If the chunk is named by an id that the store never saw.
    """
    if isinstance(target, Document):
        [cell] = take_snapshots(connection, namespace, [target], now, id_field)
    else:
        cell = _known_cell(connection, namespace, target)
    question_id = question_id_of(connection, namespace, question)
    remember(connection, namespace, [question_id])
    same = {
        "namespace": namespace,
        "question_id": question_id,
        "chunk_id": cell[0],
        "content_hash": cell[1],
    }
    there = select(pins.c.pin_id).filter_by(**same).where(pins.c.retracted_at.is_(None))
    if pin_id := connection.execute(there).scalars().first():
        return str(pin_id)
    pin_id = str(uuid4())
    connection.execute(insert(pins), same | {"pin_id": pin_id, "actor": actor, "created_at": now})
    return pin_id


def _check_target(connection: Connection, event: Event) -> None:
    named = (trace_chunks.c.trace_id == event.trace_id) & (trace_chunks.c.chunk_id == event.target)
    if connection.execute(select(trace_chunks.c.chunk_id).where(named)).first() is None:
        msg = (
            f"Trace {event.trace_id!r} did not retrieve chunk {event.target!r}. Rate a document "
            "that it returned, or leave `target` out to rate the answer."
        )
        raise UnknownChunkError(msg)


def _check_same(connection: Connection, row: dict[str, Any]) -> None:
    same = {name: row[name] for name in ("namespace", "event_id")}
    about = select(signals.c.trace_id, signals.c.target).filter_by(**same)
    kept = connection.execute(about).first()
    if kept is not None and tuple(kept) != (row["trace_id"], row["target"]):
        msg = (
            f"Event id {row['event_id']!r} was used for {kept.target or 'the answer'!r} of trace "
            f"{kept.trace_id!r}, and so this was not kept. Make one for each submission, or leave "
            "it out."
        )
        raise EventReusedError(msg)


def _known_cell(connection: Connection, namespace: str, chunk_id: str) -> CellKey:
    mine = (chunks.c.namespace == namespace) & (chunks.c.chunk_id == chunk_id)
    row = connection.execute(select(chunks.c.cell_id, chunks.c.content_hash).where(mine)).first()
    if row is None:
        msg = f"The store never saw a chunk {chunk_id!r}. Pass the document itself to pin it."
        raise UnknownChunkError(msg)
    return row.cell_id, row.content_hash
