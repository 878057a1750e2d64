"""What people say of answers, a whole month at once: the same as `store.asking` has it."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, select

from langchain_feedback.store.schema import ANSWER, signals, traces

__all__ = ["Word", "read_words"]

_AGAINST, _FOR = ("judgement", "reformulation"), ("judgement", "copy")
_FAMILIES = ("judgement", "reformulation", "correction", "copy")


class Word(NamedTuple):
    """A signal in force: the newest of a person, about one thing, of one family."""

    trace_id: str
    question_id: int
    asked_at: datetime
    actor: str | None
    family: str
    target: str
    polarity: int
    said_at: datetime
    taken_back_at: datetime | None

    @property
    def is_against(self) -> bool:
        """Whether it complains: see `Said.is_against`."""
        return self.family == "correction" or (self.polarity < 0 and self.family in _AGAINST)

    @property
    def is_for(self) -> bool:
        """Whether it praises the answer: see `Said.is_for`."""
        return self.polarity > 0 and self.family in _FOR and self.target == ANSWER


def read_words(
    connection: Connection, namespace: str, *conditions: ColumnElement[bool]
) -> list[Word]:
    """Return the signals in force that say something good or bad of some answers.

    Which one is the newest is found here: a database that is asked takes ten times as long.

    Args:
        connection: A transaction.
        namespace: Whose.
        conditions: On signals and their traces. One that leaves out a newer signal, and not an
            older one of the same person, lets the older one count.
    """
    row, ask = signals.c, traces.c
    rows = connection.execute(
        select(
            row.trace_id, ask.question_id, ask.created_at, row.actor, row.family, row.target,
            row.polarity, row.received_at, row.retracted_at,
        )
        .join(traces, ask.trace_id == row.trace_id)
        .where(row.namespace == namespace, row.family.in_(_FAMILIES), *conditions)
        .where(row.attached, row.state.is_(None))
        .order_by(row.seq)
    )  # fmt: skip
    newest: dict[tuple[str, str | None, str, str], Word] = {}
    for found in rows:
        word = Word(*found)
        newest[word.trace_id, word.actor, word.family, word.target] = word
    return [word for word in newest.values() if word.taken_back_at is None]
