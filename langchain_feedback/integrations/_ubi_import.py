"""Taking in queries and events of User Behavior Insights: each line once, or not at all."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import DataError, IntegrityError

from langchain_feedback.errors import StoreError, UnknownChunkError, UnknownTraceError
from langchain_feedback.integrations._ubi_lines import EventLine, QueryLine, digest_of
from langchain_feedback.store.chunks import take_snapshots
from langchain_feedback.store.evidence import recredit
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.incoming import TraceUpdate, new_trace
from langchain_feedback.store.jsonlines.reading import why
from langchain_feedback.store.questions import Question
from langchain_feedback.store.records import TracedChunk
from langchain_feedback.store.schema import ANSWER, chunks, signals, trace_chunks, traces
from langchain_feedback.store.tracing import attach, require_trace, write_trace, write_update
from langchain_feedback.store.transactions import clock, writing
from langchain_feedback.store.voting import Event

__all__ = ["Importer", "Problem"]

_PAGE = 50
_REFUSED = (ValueError, UnknownTraceError, UnknownChunkError, DataError, IntegrityError)


class Problem(NamedTuple):
    """A line that was left out."""

    file: str
    """`queries` or `events`."""
    line: int
    """From 1."""
    reason: str


class _Raw(NamedTuple):
    number: int
    fields: dict[str, Any]


class Importer:
    """One import into one namespace."""

    def __init__(
        self,
        store: FeedbackStore,
        actions: Mapping[str, str],
        documents: Callable[[str], Document | None],
    ) -> None:
        self._store, self._actions, self._documents = store, actions, documents
        self.counts = dict.fromkeys(("queries", "events", "duplicates", "ignored"), 0)
        self.unknown = set[str]()
        self.problems: list[Problem] = []
        self._file = ""

    def read(self, file: str, path: str | os.PathLike[str]) -> None:
        """Import `queries` or `events`, a page of lines in each transaction."""
        self._file = file
        write = self._query if file == "queries" else self._event
        lines = self._lines(path)
        while page := list(islice(lines, _PAGE)):
            with writing(self._store) as (connection, half_life):
                touched = self._write(connection, page, write)
                recredit(connection, self._store.namespace, sorted(touched), half_life)

    def _lines(self, path: str | os.PathLike[str]) -> Iterator[_Raw]:
        try:
            with Path(path).open("rb") as lines:
                for number, raw in enumerate(lines, start=1):
                    if (fields := self._parsed(number, raw)) is not None:
                        yield _Raw(number, fields)
        except OSError as error:
            msg = f"{os.fspath(path)} cannot be read: {error.strerror or error}"
            raise StoreError(msg) from error

    def _parsed(self, number: int, raw: bytes) -> dict[str, Any] | None:
        try:
            found = json.loads(raw.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            self._say(number, f"not JSON: {error}")
            return None
        if not isinstance(found, dict):
            self._say(number, "not an object")
            return None
        return found

    def _say(self, number: int, reason: str) -> None:
        self.problems.append(Problem(self._file, number, reason))

    def _write(
        self,
        connection: Connection,
        page: Sequence[_Raw],
        write: Callable[[Connection, dict[str, Any]], tuple[str, str | None]],
    ) -> set[str]:
        """Write a page; return the traces to credit anew."""
        touched = set[str]()
        for raw in page:
            try:
                with connection.begin_nested():
                    became, trace_id = write(connection, raw.fields)
            except _REFUSED as error:
                self._say(raw.number, why(error))
            else:
                self.counts[became] += 1
                touched |= {trace_id} if trace_id else set()
        return touched

    # -- queries

    def _query(self, connection: Connection, fields: dict[str, Any]) -> tuple[str, str | None]:
        line = QueryLine.model_validate(fields)
        namespace, now = self._store.namespace, clock(self._store, connection)
        ours = line.query_attributes.ours
        found = self._found(connection, line.query_response_hit_ids, now)
        before = _candidates(connection, namespace, line.query_id)
        user = line.user_id or line.query_attributes.user_id
        facts = {
            "actor": (ours.actor if ours else user) or None,
            "session_id": (ours.session_id if ours else line.client_id) or None,
        }
        write_trace(
            connection, namespace,
            new_trace(
                line.query_id, Question(line.user_query), found, attempt=1, query=None,
                id_field=None, created_at=line.timestamp or now, facts=facts,
            ),
        )  # fmt: skip
        after = _candidates(connection, namespace, line.query_id) or set()
        if before == after:
            return "duplicates", None
        if ours is not None:
            told = _among(ours.in_prompt, after), _among(ours.cited, after)
            write_update(connection, namespace, TraceUpdate(line.query_id, {}, *told))
        attach(connection, namespace, line.query_id)
        return "queries", line.query_id

    def _found(
        self, connection: Connection, ids: Iterable[str], now: datetime
    ) -> list[TracedChunk]:
        """Return the hits whose text is known, each at its rank: feedback is on texts."""
        hits = list(dict.fromkeys(ids))
        texts = self._texts(connection, hits)
        self.unknown.update(set(hits) - texts.keys())
        # Now, since they are there now; the query may be years old.
        take_snapshots(connection, self._store.namespace, list(texts.values()), now)
        return [
            TracedChunk(texts[chunk_id], final_rank=rank, base_rank=rank)
            for rank, chunk_id in enumerate(hits)
            if chunk_id in texts
        ]

    def _texts(self, connection: Connection, ids: Sequence[str]) -> dict[str, Document]:
        """Return the documents that are known: as they are now, else as last seen."""
        given = {chunk_id: self._documents(chunk_id) for chunk_id in ids}
        seen = select(chunks.c.chunk_id, chunks.c.text, chunks.c.metadata)
        seen = seen.where(chunks.c.namespace == self._store.namespace)
        missing = [chunk_id for chunk_id, document in given.items() if document is None]
        rows = connection.execute(seen.where(chunks.c.chunk_id.in_(missing))) if missing else ()
        known = {
            row.chunk_id: Document(row.text, id=row.chunk_id, metadata=json.loads(row.metadata))
            for row in rows
        }
        return known | {
            chunk_id: document.model_copy(update={"id": chunk_id})
            for chunk_id, document in given.items()
            if document is not None
        }

    # -- events

    def _event(self, connection: Connection, fields: dict[str, Any]) -> tuple[str, str | None]:
        line = EventLine.model_validate(fields)
        signal = self._actions.get(line.action_name)
        if signal is None:
            return "ignored", None
        event = _event_of(line, signal, digest_of(fields))
        namespace = self._store.namespace
        mine = (signals.c.namespace == namespace) & (signals.c.event_id == event.event_id)
        if connection.execute(select(signals.c.seq).where(mine)).first():
            return "duplicates", None
        _check_trace(connection, namespace, event)
        connection.execute(insert(signals), event.as_row(namespace) | {"attached": True})
        return "events", event.trace_id


def _event_of(line: EventLine, signal: str, digest: str) -> Event:
    attributes = line.event_attributes
    if not line.query_id or attributes is None:
        msg = "query_id and event_attributes are needed to know what it is about"
        raise ValueError(msg)
    target = attributes.object.object_id if attributes.object else ANSWER
    if (ours := attributes.ours) is None:
        actor = line.user_id or None
        return Event(line.query_id, signal, line.timestamp, target, actor=actor, event_id=digest)
    return Event(line.query_id, signal, line.timestamp, target, **ours.model_dump())


def _check_trace(connection: Connection, namespace: str, event: Event) -> None:
    try:
        require_trace(connection, namespace, event.trace_id)
    except UnknownTraceError as error:
        msg = f"query_id: there is no query {event.trace_id!r} in this namespace; import it first"
        raise UnknownTraceError(msg) from error
    known = _candidates(connection, namespace, event.trace_id) or set()
    if event.target != ANSWER and event.target not in known:
        msg = (
            f"object_id: query {event.trace_id!r} has no hit {event.target!r} of a known text; "
            "pass documents="
        )
        raise UnknownChunkError(msg)


def _candidates(connection: Connection, namespace: str, trace_id: str) -> set[str] | None:
    """Return the chunks of a trace; None where there is no such trace."""
    mine = (traces.c.trace_id == trace_id) & (traces.c.namespace == namespace)
    if connection.execute(select(traces.c.trace_id).where(mine)).first() is None:
        return None
    found = select(trace_chunks.c.chunk_id).where(trace_chunks.c.trace_id == trace_id)
    return set(connection.execute(found).scalars())


def _among(ids: Sequence[str] | None, known: set[str]) -> list[str] | None:
    return None if ids is None else [chunk_id for chunk_id in ids if chunk_id in known]
