"""Taking in the lines that `jsonl` describes: each as a whole or not at all, and only once."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from sqlalchemy import Connection, insert
from sqlalchemy.exc import DataError, IntegrityError

from langchain_feedback.errors import UnknownChunkError, UnknownTraceError
from langchain_feedback.store.evidence import recredit
from langchain_feedback.store.incoming import new_trace
from langchain_feedback.store.jsonlines.imported_rows import (
    awaited_among,
    known_events,
    write_chunk,
    write_pin,
    write_signal,
)
from langchain_feedback.store.jsonlines.lines import ChunkLine, PinLine, RecipeLine, SignalLine
from langchain_feedback.store.jsonlines.reading import Bad, Good, read_lines, why
from langchain_feedback.store.questions import Question, question_key
from langchain_feedback.store.records import TracedChunk
from langchain_feedback.store.schema import signals
from langchain_feedback.store.tracing import attach, write_trace
from langchain_feedback.store.upkeep.removing import Access
from langchain_feedback.store.voting import Event

__all__ = ["Imported", "Importer"]

_PAGE = 50

Retriever = Runnable[str, Any]


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    imported: int
    """Lines that the store holds now and did not hold before."""
    duplicates: int
    """Lines that it held already."""
    problems: tuple[tuple[int, str], ...]
    """Number, from 1, and reason of each line that was left out, in order."""


class _Ready(NamedTuple):
    """A line, and what was retrieved for it."""

    good: Good
    documents: Sequence[Document] = ()


class Importer:
    """One import into one namespace."""

    def __init__(
        self, access: Access, now: datetime, retriever: Retriever | None, id_field: str | None
    ) -> None:
        self._access, self._now = access, now
        self._retriever, self._id_field = retriever, id_field
        self._retrieved: dict[str, list[Document]] = {}
        self._problems: list[tuple[int, str]] = []
        self._counts = {True: 0, False: 0}

    def run(self, path: str | os.PathLike[str]) -> Imported:
        """Import a file. It is read once before anything is written."""
        self._problems = [
            (bad.number, bad.reason) for bad in read_lines(path) if isinstance(bad, Bad)
        ]
        lines = (line for line in read_lines(path) if isinstance(line, Good))
        while page := list(islice(lines, _PAGE)):
            ready = self._prepared(page)
            with self._access.page() as (connection, half_life):
                self._write(connection, ready, half_life)
        return Imported(self._counts[True], self._counts[False], tuple(sorted(self._problems)))

    def _prepared(self, page: Sequence[Good]) -> list[_Ready]:
        """Retrieve what new lines of the recipe's ask for: no transaction waits for that."""
        with self._access.reading() as connection:
            known = known_events(
                connection, self._access.namespace, [good.event_id for good in page]
            )
        ready = []
        for good in page:
            if isinstance(good.line, RecipeLine) and good.event_id not in known:
                try:
                    ready.append(_Ready(good, self._found(good.line.query)))
                except Exception as error:  # noqa: BLE001  the other lines are imported
                    reason = f"nothing could be retrieved: {type(error).__name__}: {error}"
                    self._problems.append((good.number, reason))
            else:
                ready.append(_Ready(good))
        return ready

    def _found(self, query: str) -> Sequence[Document]:
        if self._retriever is None:
            return ()
        key = question_key(query)
        if key not in self._retrieved:
            found = self._retriever.invoke(query)
            if not isinstance(found, list) or not all(isinstance(one, Document) for one in found):
                msg = f"a retriever returns a list of Documents, got {type(found).__name__}"
                raise TypeError(msg)
            self._retrieved[key] = found
        return self._retrieved[key]

    def _write(
        self, connection: Connection, page: Sequence[_Ready], half_life: float | None
    ) -> None:
        namespace, touched = self._access.namespace, set[str]()
        known = known_events(connection, namespace, [_event_id(ready) for ready in page])
        for ready in page:
            try:
                if is_new := _event_id(ready) not in known:
                    with connection.begin_nested():
                        is_new = self._write_line(connection, ready, touched)
            except (
                ValueError, UnknownTraceError, UnknownChunkError, DataError, IntegrityError,
            ) as error:  # fmt: skip
                self._problems.append((ready.good.number, why(error)))
            else:
                known.add(_event_id(ready))
                self._counts[is_new] += 1
        for trace_id in awaited_among(connection, namespace, touched):
            attach(connection, namespace, trace_id)
        recredit(connection, namespace, sorted(touched), half_life)

    def _write_line(self, connection: Connection, ready: _Ready, touched: set[str]) -> bool:
        namespace, line = self._access.namespace, ready.good.line
        if isinstance(line, ChunkLine):
            return write_chunk(connection, namespace, line)
        if isinstance(line, PinLine):
            return write_pin(connection, namespace, line)
        if isinstance(line, SignalLine):
            write_signal(connection, namespace, line)
            touched.add(line.trace_id)
        else:
            touched.add(self._write_recipe(connection, ready, line))
        return True

    def _write_recipe(self, connection: Connection, ready: _Ready, line: RecipeLine) -> str:
        namespace, event_id = self._access.namespace, ready.good.event_id
        # Trace ids are unique over all namespaces, event ids within one.
        digest = hashlib.sha256(f"{namespace}:{event_id}".encode()).hexdigest()
        event = Event(
            f"imported:{digest[:32]}", "rating", self._now,
            rating=line.relevance, event_id=event_id, comment=line.comment,
        )  # fmt: skip
        # Without the marks of an earlier retrieval.
        found = [
            TracedChunk(document, final_rank=rank, base_rank=rank)
            for rank, document in enumerate(ready.documents)
        ]
        facts = {"answer": line.response, "status": "imported"}
        new = new_trace(
            event.trace_id, Question(line.query), found, attempt=1, query=None,
            id_field=self._id_field, created_at=self._now, facts=facts,
        )  # fmt: skip
        write_trace(connection, namespace, new)
        connection.execute(insert(signals), event.as_row(namespace) | {"attached": True})
        return event.trace_id


def _event_id(ready: _Ready) -> str:
    """Return under which id the line's event is kept; of a pin or a chunk one that is none."""
    line = ready.good.line
    return line.event_id if isinstance(line, SignalLine) else ready.good.event_id
