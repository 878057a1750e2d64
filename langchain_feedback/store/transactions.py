"""Transactions on a store's database, for the packages that build on the store."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from langchain_feedback.store.migrations.running import version_of

if TYPE_CHECKING:
    from datetime import datetime

    from langchain_feedback.store.database import Lock
    from langchain_feedback.store.feedback_store import FeedbackStore
    from langchain_feedback.store.questions import Question

__all__ = ["clock", "is_made", "question_of", "reading", "writing"]


@contextmanager
def reading(store: "FeedbackStore") -> Iterator[Connection]:
    """Open a transaction for reading; the tables are there.

    Raises:
        StoreError: If the database cannot be read.
    """
    with store._reading() as connection:  # noqa: SLF001  ours
        yield connection


@contextmanager
def writing(
    store: "FeedbackStore", *, lock: "Lock" = "votes", durable: bool = True
) -> Iterator[tuple[Connection, float | None]]:
    """Open a transaction that is kept as a whole or not at all; the second value is the half-life.

    Args:
        store: Whose database, and whose namespace.
        lock: `"votes"` wherever signals, pins or evidence change; `"traces"` else.
        durable: Whether it is on the disk when this returns.

    Raises:
        StoreError: If the database cannot be written.
    """
    with store._writing(lock=lock, durable=durable) as opened:  # noqa: SLF001
        yield opened


def clock(store: "FeedbackStore", connection: Connection) -> "datetime":
    """Return this instant in UTC, by the clock that all writers of the database share."""
    return store._database.now(connection)  # noqa: SLF001


def is_made(store: "FeedbackStore") -> bool:
    """Return whether the database holds a feedback store already; nothing is made.

    Raises:
        StoreError: If the database cannot be read.
    """
    with store._database.reading() as connection:  # noqa: SLF001
        return version_of(connection) > 0


def question_of(store: "FeedbackStore", text: str) -> "Question":
    """Return a question with its vector, as the store keeps it: at most one embedding call.

    Raises:
        ValueError: If it is blank.
    """
    return store._question(text, None, embed=True)  # noqa: SLF001
