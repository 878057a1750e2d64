"""Bursts that were held, until a reviewer counts or drops them; `holding` finds them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, select, update

from langchain_feedback.store.evidence import batched, recredit
from langchain_feedback.store.inbox.holding import same_trace, voter
from langchain_feedback.store.schema import ANSWER, questions, signals, traces

__all__ = ["HeldBurst", "read_bursts", "settle_burst", "unsettle_burst"]

_COMMENTS, _TRACES = 5, 10


@dataclass(frozen=True)
class HeldBurst:
    """Signals that are held back, and do not count until somebody accepts them."""

    burst_id: str
    sign: int
    """1: votes for; -1: votes against."""
    target: str
    """The chunk id that all are about; empty where they are about answers, or several."""
    question_id: int | None
    """The question that all are about, if it is one."""
    question: str
    events: int
    actors: int
    signals: Mapping[str, int]
    """How many of each name."""
    comments: tuple[str, ...]
    """Some of the words that came with them."""
    trace_ids: tuple[str, ...]
    """Some of the answers, newest first."""
    first_at: datetime
    last_at: datetime


def read_bursts(connection: Connection, namespace: str) -> list[HeldBurst]:
    """Return the bursts that wait for a reviewer, oldest first."""
    rows = connection.execute(
        select(
            signals, traces.c.question_id, questions.c.text.label("asked"), voter().label("voter")
        )
        .outerjoin(traces, same_trace())
        .outerjoin(questions, questions.c.question_id == traces.c.question_id)
        .where(signals.c.namespace == namespace, signals.c.state == "held")
        .where(signals.c.burst_id.is_not(None))
        .order_by(signals.c.seq)
    )
    by_id: dict[str, list[Row[Any]]] = {}
    for row in rows:
        by_id.setdefault(row.burst_id, []).append(row)
    return [_held_burst(burst_id, found) for burst_id, found in by_id.items()]


def settle_burst(
    connection: Connection,
    namespace: str,
    burst_id: str,
    accept: bool,  # noqa: FBT001  the one thing that a reviewer says
    half_life: float | None,
) -> int:
    """Count the signals of a held burst, or drop them; return how many.

    Args:
        connection: A transaction that excludes other writers of votes.
        namespace: Whose.
        burst_id: Which.
        accept: Whether they count from now on. Those that do not stay in the log.
        half_life: In days; see `transactions.writing`.
    """
    held = (signals.c.burst_id == burst_id) & (signals.c.state == "held")
    return _move(connection, namespace, held, None if accept else "dropped", half_life)


def unsettle_burst(
    connection: Connection, namespace: str, burst_id: str, half_life: float | None
) -> int:
    """Hold the signals of a burst again, as before `settle_burst`; return how many."""
    return _move(connection, namespace, signals.c.burst_id == burst_id, "held", half_life)


def _held_burst(burst_id: str, rows: Sequence[Row[Any]]) -> HeldBurst:
    # What was derived came along with the clicks.
    main = [row for row in rows if row.signal != "source_skipped"] or list(rows)
    targets = {row.target for row in main}
    asked = {(row.question_id, row.asked) for row in main}
    question_id, question = asked.pop() if len(asked) == 1 else (None, None)
    comments = dict.fromkeys(text for row in rows if (text := row.comment or row.correction))
    trace_ids = dict.fromkeys(row.trace_id for row in reversed(rows))
    return HeldBurst(
        burst_id=burst_id,
        sign=main[0].polarity,
        target=targets.pop() if len(targets) == 1 else ANSWER,
        question_id=question_id,
        question=question or "",
        events=len(rows),
        actors=len({row.voter for row in rows}),
        signals=dict(Counter(row.signal for row in rows)),
        comments=tuple(comments)[:_COMMENTS],
        trace_ids=tuple(trace_ids)[:_TRACES],
        first_at=min(row.received_at for row in rows),
        last_at=max(row.received_at for row in rows),
    )


def _move(
    connection: Connection,
    namespace: str,
    which: ColumnElement[bool],
    state: str | None,
    half_life: float | None,
) -> int:
    mine = (signals.c.namespace == namespace) & which
    moved = update(signals).where(mine).values(state=state).returning(signals.c.trace_id)
    trace_ids = list(connection.execute(moved).scalars())
    for page in batched(sorted(set(trace_ids))):
        recredit(connection, namespace, page, half_life)
    return len(trace_ids)
