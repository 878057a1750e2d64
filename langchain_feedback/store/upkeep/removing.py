"""Taking rows out of the store, a page at a time, so that evidence is right after each page."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, select, text, update

from langchain_feedback.store.care_schema import derived
from langchain_feedback.store.evidence import recompute
from langchain_feedback.store.schema import credits_, pins, questions, signals, traces

__all__ = [
    "Access",
    "drop_questions",
    "drop_signals",
    "drop_traces",
    "is_silent",
    "is_unused",
    "pages_of",
]

T = TypeVar("T")

_LONGEST_REST_S = 0.1


@dataclass(frozen=True)
class Access:
    """A namespace of a store, for work that takes many transactions."""

    namespace: str
    reading: Callable[[], AbstractContextManager[Connection]]
    writing: Callable[[], AbstractContextManager[tuple[Connection, float | None]]]
    """Yields the half-life, too."""

    @contextmanager
    def page(self) -> Iterator[tuple[Connection, float | None]]:
        """Open one of many transactions in a row.

        On SQLite it rests afterwards for half as long as it took: who waits there for the
        file asks for it again and again, and would hardly ever find it free.
        """
        began = time.perf_counter()
        with self.writing() as (connection, half_life):
            yield connection, half_life
        if connection.dialect.name == "sqlite":
            time.sleep(min((time.perf_counter() - began) / 2, _LONGEST_REST_S))

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a transaction in which all queries see one state of the database."""
        with self.reading() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            yield connection

    def read(self, statement: Any) -> list[Any]:
        """Return the first column of a query, read in a transaction of its own."""
        with self.reading() as connection:
            return list(connection.execute(statement).scalars())


def pages_of(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a list into pages."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def drop_signals(connection: Connection, seqs: Sequence[int], half_life: float | None) -> int:
    """Remove signals and what they credit; return how many there were.

    The other signals keep their credits only if no older event of a removed one's key stays
    behind: it would come back into force. The caller sees to that.
    """
    cell = credits_.c.question_id, credits_.c.chunk_id, credits_.c.content_hash
    credited = delete(credits_).where(credits_.c.seq.in_(seqs)).returning(*cell)
    cells = {(row[0], row[1], row[2]) for row in connection.execute(credited)}
    removed = connection.execute(delete(signals).where(signals.c.seq.in_(seqs))).rowcount
    recompute(connection, cells, half_life)
    return int(removed)


def drop_traces(connection: Connection, trace_ids: Sequence[str]) -> int:
    """Remove traces, which no signal may be on, with their searches and candidates."""
    return int(connection.execute(delete(traces).where(traces.c.trace_id.in_(trace_ids))).rowcount)


def drop_questions(connection: Connection, question_ids: Sequence[int]) -> tuple[int, bool]:
    """Remove those of some questions that nothing refers to.

    Those that are kept without feedback are no longer found by similar ones.

    Returns:
        How many were removed, and whether question memories hold some that they must not.
    """
    among = questions.c.question_id.in_(question_ids)
    memory_seq = questions.c.memory_seq
    gone: list[Row[Any]] = list(
        connection.execute(delete(questions).where(among, is_unused()).returning(memory_seq))
    )
    silenced = connection.execute(
        update(questions).where(among, is_silent()).values(memory_seq=None)
    )
    was_found = any(row.memory_seq is not None for row in gone)
    return len(gone), was_found or silenced.rowcount > 0


def is_unused() -> ColumnElement[bool]:
    """Say that nothing refers to a question."""
    served = _has(derived, derived.c.status == "active")
    return ~(_has(traces) | _has(pins) | _has(credits_) | served)


def is_silent() -> ColumnElement[bool]:
    """Say that similar questions find a question although it has no feedback any more."""
    pinned = _has(pins, pins.c.retracted_at.is_(None))
    return questions.c.memory_seq.is_not(None) & ~(_has(credits_) | pinned)


def _has(table: Any, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists(select(1).where(table.c.question_id == questions.c.question_id, *conditions))
