"""Whether what went wrong goes right later, and what still waits for the owners of documents."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from statistics import median

from sqlalchemy import Connection, func, select

from langchain_feedback.loop._health.records import CorrectionHealth
from langchain_feedback.loop._health.said import read_words
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.loop_schema import owner_items, source_alarms
from langchain_feedback.store.owner_items import CLOSED
from langchain_feedback.store.schema import signals, trace_chunks, traces

__all__ = ["correction_health"]

_DAY_S = 86_400


def correction_health(
    connection: Connection, namespace: str, since: datetime, until: datetime
) -> CorrectionHealth:
    """Return how soon failing questions are answered well, and what owners are asked."""
    first = _first_complaints(connection, namespace, since, until)
    good = _first_good(connection, namespace, first, until)
    days = [(at - first[key]).total_seconds() / _DAY_S for key, at in good.items()]
    states = select(owner_items.c.state, func.count()).group_by(owner_items.c.state)
    asked = connection.execute(states.where(owner_items.c.namespace == namespace)).all()
    by_state = {str(state): int(number) for state, number in sorted(asked)}
    alarms = select(func.count()).where(
        source_alarms.c.namespace == namespace, source_alarms.c.closed_at.is_(None)
    )
    return CorrectionHealth(
        failing=len(first),
        answered=len(days),
        median_days=median(days) if days else None,
        owner_items=by_state,
        owner_open=sum(number for state, number in by_state.items() if state not in CLOSED),
        alarms=int(connection.execute(alarms).scalar_one()),
    )


def _first_complaints(
    connection: Connection, namespace: str, since: datetime, until: datetime
) -> dict[int, datetime]:
    """Return when somebody first complained of an answer in a time, by question."""
    lately = (signals.c.received_at >= since, signals.c.received_at <= until)
    first: dict[int, datetime] = {}
    for word in read_words(connection, namespace, traces.c.traffic.is_(None), *lately):
        if word.is_against:
            known = first.get(word.question_id, word.said_at)
            first[word.question_id] = min(known, word.said_at)
    return first


def _first_good(
    connection: Connection, namespace: str, first: dict[int, datetime], until: datetime
) -> dict[int, datetime]:
    """Return when a good answer was first given after the complaint, where one was."""
    good: dict[int, datetime] = {}
    for page in batched(sorted(first)):
        asks = _asks_of(connection, page, min(first[key] for key in page), until)
        words = read_words(connection, namespace, traces.c.question_id.in_(page))
        fine = {one.trace_id for one in words if one.is_for} | _proved(connection, page)
        fine -= {one.trace_id for one in words if one.is_against}
        for key, found in asks.items():
            times = [at for at, trace_id in found if at > first[key] and trace_id in fine]
            if times:
                good[key] = min(times)
    return good


def _asks_of(
    connection: Connection, question_ids: Sequence[int], since: datetime, until: datetime
) -> dict[int, list[tuple[datetime, str]]]:
    """Return when people asked them; what evaluations are answered mends nothing."""
    row = traces.c
    wanted = row.question_id.in_(question_ids) & row.traffic.is_(None) & (row.created_at > since)
    asks = select(row.question_id, row.created_at, row.trace_id)
    found: dict[int, list[tuple[datetime, str]]] = defaultdict(list)
    for one in connection.execute(asks.where(wanted, row.created_at <= until)):
        found[one.question_id].append((one.created_at, one.trace_id))
    return found


def _proved(connection: Connection, question_ids: Sequence[int]) -> set[str]:
    """Return the asks of these questions whose answer is grounded and quotes its sources."""
    rows = connection.execute(
        select(traces.c.trace_id)
        .join(trace_chunks, trace_chunks.c.trace_id == traces.c.trace_id)
        .where(traces.c.question_id.in_(question_ids), traces.c.grounded.is_(True))
        .where(trace_chunks.c.cited.is_(True))
        .distinct()
    )
    return set(rows.scalars())
