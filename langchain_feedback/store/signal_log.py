"""The signals as a log to follow: what is new, what was taken back, and how far one has read."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, exists, select

from langchain_feedback.store.questions import read_setting, write_setting
from langchain_feedback.store.records import SignalRecord
from langchain_feedback.store.schema import signals, traces

__all__ = ["move_bookmark", "read_bookmark", "read_signals"]

_KEY = ("namespace", "trace_id", "actor", "family", "target")
_AS_STORED = (
    "seq", "event_id", "trace_id", "signal", "family", "target", "rating", "polarity", "actor",
    "reviewer", "comment", "correction", "attached", "received_at", "retracted_at",
)  # fmt: skip


def read_signals(
    connection: Connection,
    namespace: str,
    *,
    after: int | None = None,
    among: Sequence[int] | None = None,
    retracted_since: datetime | None = None,
    limit: int | None = None,
) -> list[SignalRecord]:
    """Return signals: in order of arrival, or those taken back, in the order of that.

    Args:
        connection: A transaction.
        namespace: Whose.
        after: Only those of a higher number.
        among: Only those of these numbers.
        retracted_since: Only those that were taken back then or later.
        limit: The most.
    """
    wanted = [signals.c.namespace == namespace]
    order = [signals.c.seq]
    if after is not None:
        wanted.append(signals.c.seq > after)
    if among is not None:
        wanted.append(signals.c.seq.in_(among))
    if retracted_since is not None:
        wanted.append(signals.c.retracted_at >= retracted_since)
        order.insert(0, signals.c.retracted_at)
    found = (
        select(
            *(signals.c[name] for name in _AS_STORED),
            traces.c.created_at.label("asked_at"),
            _has_another(newer=False).label("repeats"),
            _has_another(newer=True).label("superseded"),
        )
        .outerjoin(
            traces,
            (traces.c.trace_id == signals.c.trace_id) & (traces.c.namespace == namespace),
        )
        .where(*wanted)
        .order_by(*order)
        .limit(limit)
    )
    return [SignalRecord(**row) for row in connection.execute(found).mappings()]


def read_bookmark(connection: Connection, namespace: str, name: str) -> str | None:
    """Return what a reader of the log has noted, or None."""
    return read_setting(connection, _setting(namespace, name))


def move_bookmark(
    connection: Connection, namespace: str, name: str, value: str, expected: str | None
) -> bool:
    """Note something unless somebody else noted another thing meanwhile; return whether."""
    if read_bookmark(connection, namespace, name) != expected:
        return False
    write_setting(connection, _setting(namespace, name), value)
    return True


def _has_another(*, newer: bool) -> ColumnElement[bool]:
    """Say that there is a newer, or an older, event of the same key: see `voting.Event`."""
    other = signals.alias("newer" if newer else "older")
    same_key = [other.c[name].is_not_distinct_from(signals.c[name]) for name in _KEY]
    # The plain equality beside it is what the index serves.
    same_trace = other.c.trace_id == signals.c.trace_id
    apart = other.c.seq > signals.c.seq if newer else other.c.seq < signals.c.seq
    return exists(select(1).where(same_trace, apart, *same_key))


def _setting(namespace: str, name: str) -> str:
    return f"bookmark:{namespace}:{name}"
