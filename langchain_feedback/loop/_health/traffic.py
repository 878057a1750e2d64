"""How the answers fared, week by week.

It is counted by the database, a dashboard reads it every minute; only asks of which something is
wrong are read one by one.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, exists, func, select

from langchain_feedback.loop._health.records import Rates
from langchain_feedback.loop._health.said import read_words
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import trace_chunks, traces

__all__ = ["count_asks", "count_weeks", "rates_of"]

_NOTHING_FOUND = ("no_documents", "none_relevant")
_REPHRASED = "reformulation"
_PLAIN = ("asks", "abstained", "checked", "not_grounded")


def count_weeks(
    connection: Connection, namespace: str, edges: Sequence[datetime]
) -> list[Counter[str]]:
    """Count the asks between each two of these instants (at least three), and what went wrong."""
    asked = _asked(namespace, edges[0], edges[-1])
    found = [Counter[str]() for _ in edges[1:]]
    past = [(traces.c.created_at < edge, at) for at, edge in enumerate(edges[1:-1])]
    week = case(*past, else_=len(past)).label("week")
    for row in connection.execute(select(*_plain(), week).where(*asked).group_by("week")):
        found[row.week].update({name: int(getattr(row, name)) for name in _PLAIN})
    words = read_words(connection, namespace, *asked)
    wrong = {
        "zero_result": _nothing_found(connection, asked),
        "rephrased": {one.trace_id: one.asked_at for one in words if one.family == _REPHRASED},
        "complained": {one.trace_id: one.asked_at for one in words if one.is_against},
    }
    for name, asks in wrong.items():
        for created_at in asks.values():
            found[bisect_right(edges, created_at) - 1][name] += 1
    return found


def count_asks(connection: Connection, namespace: str, since: datetime, until: datetime) -> int:
    """Return how many questions people asked in a time."""
    mine = select(func.count()).where(*_asked(namespace, since, until))
    return int(connection.execute(mine).scalar_one())


def rates_of(counts: Iterable[Counter[str]]) -> Rates:
    """Return the rates of some weeks together."""
    total = sum(counts, Counter[str]())
    asks, checked = total["asks"], total["checked"]
    shares = {
        name: total[name] / asks if asks else None
        for name in ("zero_result", "abstained", "rephrased", "complained")
    }
    not_grounded = total["not_grounded"] / checked if checked else None
    return Rates(asks=asks, not_grounded=not_grounded, **shares)


_Conditions = tuple[ColumnElement[bool], ...]


def _asked(namespace: str, since: datetime, until: datetime) -> _Conditions:
    row = traces.c
    return (
        row.namespace == namespace,
        row.traffic.is_(None),
        row.created_at >= since,
        row.created_at < until,
    )


def _plain() -> list[ColumnElement[int]]:
    """Count what stands in the trace itself: see `_PLAIN`."""
    row = traces.c
    kinds: dict[str, ColumnElement[bool]] = {
        "abstained": row.status == "abstained",
        "checked": row.grounded.is_not(None),
        "not_grounded": row.grounded.is_(False),
    }
    sums = [func.sum(case((is_so, 1), else_=0)).label(name) for name, is_so in kinds.items()]
    return [func.count().label("asks"), *sums]


def _nothing_found(connection: Connection, asked: _Conditions) -> dict[str, datetime]:
    """Return the asks that found nothing: the same as `Ask.found_nothing`."""
    ask = select(traces.c.trace_id, traces.c.created_at).where(*asked)
    any_chunk = exists(select(1).where(trace_chunks.c.trace_id == traces.c.trace_id))
    said_so = _by_id(connection.execute(ask.where(traces.c.reason.in_(_NOTHING_FOUND))))
    empty = _by_id(connection.execute(ask.where(~any_chunk)))
    return said_so | empty | _all_graded_no(connection, asked)


def _all_graded_no(connection: Connection, asked: _Conditions) -> dict[str, datetime]:
    """Return the asks of whose last search all grades are no."""
    of_use = func.sum(case((trace_chunks.c.grade == "no", 0), else_=1))
    columns = (traces.c.trace_id, traces.c.created_at, trace_chunks.c.attempt)
    bad = connection.execute(
        select(*columns)
        .join(trace_chunks, trace_chunks.c.trace_id == traces.c.trace_id)
        .where(*asked, trace_chunks.c.grade.is_not(None))
        .group_by(*columns)
        .having(of_use == 0)
    ).all()
    last: dict[str, int] = {}
    row = trace_chunks.c
    for page in batched(sorted({one.trace_id for one in bad})):
        newest = select(row.trace_id, func.max(row.attempt)).where(row.trace_id.in_(page))
        rows = connection.execute(newest.group_by(row.trace_id))
        last |= {key: int(attempt) for key, attempt in rows}
    return _by_id(one for one in bad if one.attempt == last[one.trace_id])


def _by_id(rows: Iterable[Any]) -> dict[str, datetime]:
    return {row.trace_id: row.created_at for row in rows}
