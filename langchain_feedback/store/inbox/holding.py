"""Holding bursts: many votes of one sign on one thing, by few people, within an hour."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    and_,
    distinct,
    func,
    literal_column,
    select,
    update,
)

from langchain_feedback.store.evidence import batched
from langchain_feedback.store.inbox.limits import Burst
from langchain_feedback.store.schema import ANSWER, signals, traces

__all__ = ["hold_bursts", "same_trace", "voter"]

_HOUR = timedelta(hours=1)
_SOME = 100
_REPEATS = 10

Group = tuple[str, Any, int]
"""`target` or `question`, which one, and the sign."""


class _Voter(NamedTuple):
    name: str
    votes: int


def voter() -> ColumnElement[str]:
    """Say whose a signal is, over signals outer joined with traces: see `evidence.credits_of`."""
    # Constants in the text: PostgreSQL would take two parameters for two expressions.
    empty: ColumnElement[str] = literal_column("''", String)
    prefix: ColumnElement[str] = literal_column("'session:'", String)
    alone: ColumnElement[str] = literal_column("'trace:'", String)
    session = func.nullif(traces.c.session_id, empty, type_=String)
    named = func.nullif(signals.c.actor, empty), func.nullif(traces.c.actor, empty)
    nameless = prefix.concat(session), alone.concat(signals.c.trace_id)
    return func.coalesce(*named, *nameless, type_=String)


def same_trace() -> ColumnElement[bool]:
    """Say that a trace is a signal's; only one of the same namespace ever is attached."""
    return (traces.c.trace_id == signals.c.trace_id) & signals.c.attached


def hold_bursts(
    connection: Connection, namespace: str, event_ids: Sequence[str], rule: Burst, now: datetime
) -> set[str]:
    """Hold what belongs to a burst that some new events make or go on; return those traces.

    Several votes of a person on one answer are one, up to ten of them, since who likes an
    answer may open its sources, copy it and say so.
    """
    hour = _ours(namespace) & (signals.c.received_at > now - _HOUR)
    touched: set[str] = set()
    for group in _crowded(connection, namespace, event_ids, hour, rule):
        there = hour & _in_group(group)
        people = _voters(connection, there)
        # More than a few: only those who vote and vote. Others' votes are no part of it.
        makers = people if len(people) <= rule.few else [p for p in people if p.votes >= rule.each]
        votes = sum(maker.votes for maker in makers)
        if votes <= rule.least:
            continue
        held = _held_already(connection, there)
        if not held and not _is_burst(connection, namespace, group, votes, rule=rule, now=now):
            continue
        names = [maker.name for maker in makers]
        touched |= _hold(connection, there, names, held or str(uuid4()))
    _hold_skips(connection, namespace, touched)
    return touched


def _ours(namespace: str) -> ColumnElement[bool]:
    """Say that a signal may make a burst: no reviewer's, not derived, and none accepted."""
    open_ = signals.c.state.is_not(None) | signals.c.burst_id.is_(None)
    return (
        (signals.c.namespace == namespace)
        & signals.c.reviewer.is_(False)
        & (signals.c.polarity != 0)
        & (signals.c.signal != "source_skipped")
        & signals.c.event_id.not_like("derived:%")
        & open_
    )


def _question() -> Any:
    """Say which question a signal is about.

    Looked up by the trace's id, row by row: the signals of an hour are few, and a planner that
    knows nothing yet of a table would pair them with all traces of a question.
    """
    its = traces.alias("its")
    found = select(its.c.question_id).where(its.c.trace_id == signals.c.trace_id)
    return found.where(signals.c.attached).correlate(signals).scalar_subquery()


def _in_group(group: Group) -> ColumnElement[bool]:
    kind, which, sign = group
    column: Any = signals.c.target if kind == "target" else _question()
    return and_(column == which, signals.c.polarity == sign)


def _crowded(
    connection: Connection,
    namespace: str,
    event_ids: Sequence[str],
    hour: ColumnElement[bool],
    rule: Burst,
) -> list[Group]:
    """Return the groups of some events that hold more than the least: chunks, then questions."""
    mine = signals.c.namespace == namespace
    new = [
        row
        for page in batched(event_ids)
        for row in connection.execute(
            select(signals.c.target, traces.c.question_id, signals.c.polarity)
            .outerjoin(traces, same_trace())
            .where(mine, signals.c.event_id.in_(page), signals.c.polarity != 0)
        )
    ]
    of_chunks: set[Group] = {("target", row.target, row.polarity) for row in new}
    of_questions: set[Group] = {("question", row.question_id, row.polarity) for row in new}
    return [
        *_counted(connection, signals.c.target, of_chunks, hour, rule),
        *_counted(connection, _question(), of_questions, hour, rule),
    ]


def _counted(
    connection: Connection,
    column: Any,
    groups: set[Group],
    hour: ColumnElement[bool],
    rule: Burst,
) -> list[Group]:
    """Return those of some groups that hold more than the least."""
    by_key = {(which, sign): (kind, which, sign) for kind, which, sign in groups}
    among = {which for which, _ in by_key} - {ANSWER, None}
    crowded = []
    for page in batched(sorted(among)):
        found = connection.execute(
            select(column.label("which"), signals.c.polarity)
            .where(hour, column.in_(page))
            .group_by("which", signals.c.polarity)
            .having(func.count() > rule.least)
            .order_by("which", signals.c.polarity)
        )
        crowded += [by_key[key] for row in found if (key := (row[0], row.polarity)) in by_key]
    return crowded


def _voters(connection: Connection, there: ColumnElement[bool]) -> list[_Voter]:
    """Return who votes in a group, the busiest first; a hundred tell enough."""
    answers, events = func.count(distinct(signals.c.trace_id)), func.count()
    rows = connection.execute(
        select(voter().label("voter"), answers.label("answers"), events.label("events"))
        .select_from(signals)
        .outerjoin(traces, same_trace())
        .where(there)
        .group_by("voter")
        .order_by(events.desc())
        .limit(_SOME)
    )
    return [_Voter(row.voter, max(row.answers, row.events // _REPEATS)) for row in rows]


def _held_already(connection: Connection, there: ColumnElement[bool]) -> str | None:
    newest = (
        select(signals.c.burst_id)
        .outerjoin(traces, same_trace())
        .where(there, signals.c.state == "held")
        .order_by(signals.c.seq.desc())
        .limit(1)
    )
    return connection.execute(newest).scalar()


def _is_burst(
    connection: Connection,
    namespace: str,
    group: Group,
    votes: int,
    *,
    rule: Burst,
    now: datetime,
) -> bool:
    since = now - timedelta(days=rule.days)
    recent = (signals.c.namespace == namespace) & (signals.c.received_at > since)
    # `trace:...` is nobody: a team of two may leave out its names.
    named = recent & signals.c.reviewer.is_(False) & voter().not_like("trace:%")
    people = select(voter().label("voter")).select_from(signals).outerjoin(traces, same_trace())
    some = people.where(named).distinct().limit(rule.people).subquery()
    if connection.execute(select(func.count()).select_from(some)).scalar_one() < rule.people:
        return False
    earlier = recent & _ours(namespace) & (signals.c.received_at <= now - _HOUR)
    usual = (
        select(func.count(distinct(signals.c.trace_id)))
        .select_from(signals)
        .outerjoin(traces, same_trace())
        .where(earlier, _in_group(group))
    )
    mean = connection.execute(usual).scalar_one() / (rule.days * 24)
    return votes > rule.times * mean


def _hold(
    connection: Connection, there: ColumnElement[bool], names: Sequence[str], burst_id: str
) -> set[str]:
    found = connection.execute(
        select(signals.c.seq, signals.c.trace_id)
        .outerjoin(traces, same_trace())
        .where(there, signals.c.state.is_(None), voter().in_(names))
    ).all()
    for page in batched([row.seq for row in found]):
        mine = update(signals).where(signals.c.seq.in_(page))
        connection.execute(mine.values(state="held", burst_id=burst_id))
    return {row.trace_id for row in found}


def _hold_skips(connection: Connection, namespace: str, trace_ids: Iterable[str]) -> None:
    """Hold what was derived from clicks that are held now, under the same burst."""
    for page in batched(sorted(trace_ids)):
        mine = (signals.c.namespace == namespace) & signals.c.trace_id.in_(page)
        clicks = connection.execute(
            select(signals.c.trace_id, signals.c.actor, signals.c.burst_id).where(
                mine, signals.c.signal == "source_click", signals.c.state == "held"
            )
        )
        for trace_id, actor, burst_id in clicks.all():
            derived = (signals.c.namespace == namespace) & (signals.c.trace_id == trace_id)
            derived &= (signals.c.signal == "source_skipped") & signals.c.state.is_(None)
            derived &= signals.c.actor.is_not_distinct_from(actor)
            held = update(signals).where(derived, signals.c.burst_id.is_(None))
            connection.execute(held.values(state="held", burst_id=burst_id))
