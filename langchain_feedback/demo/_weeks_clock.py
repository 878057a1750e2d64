"""Time passes: everything in a SQLite file of a store gets older."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Connection, String, func, select, type_coerce, update

from langchain_feedback.store.columns import UTCDateTime, metadata
from langchain_feedback.store.schema import settings
from langchain_feedback.store.transactions import writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["age"]

_TO_SECONDS = 19
"""How much of `2026-01-02 03:04:05.678901` SQLite's `datetime` reads without rounding it."""


def age(store: "FeedbackStore", days: int) -> None:
    """Make all that a store holds older, as if it had slept for some days.

    The instants of all tables move, and those that bookmarks hold. So nothing has to be told
    another time afterwards: what runs next runs by the clock.

    Args:
        store: One on SQLite; all its namespaces are aged.
        days: How many, at least 1.

    Raises:
        ValueError: If `days` is below 1, or the store is not on SQLite.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> store.record_trace("t1", "How long?", [])
        >>> before = store.trace("t1").created_at
        >>> age(store, 7)
        >>> (before - store.trace("t1").created_at).days
        7
    """
    if days < 1 or not store.url.startswith("sqlite"):
        msg = f"A store on SQLite is aged by 1 day or more; got {days!r} for {store.url!r}"
        raise ValueError(msg)
    with writing(store, durable=False) as (connection, _):
        for table in metadata.sorted_tables:
            instants = [one for one in table.c if isinstance(one.type, UTCDateTime)]
            if instants:
                older = {one.name: _older(one, days) for one in instants}
                connection.execute(update(table).values(older))
        _age_bookmarks(connection, timedelta(days=days))


def _older(column: Column[Any], days: int) -> ColumnElement[str]:
    text = type_coerce(column, String)
    seconds = func.datetime(func.substr(text, 1, _TO_SECONDS), f"-{days} days")
    return type_coerce(seconds, String).concat(func.substr(text, _TO_SECONDS + 1))


def _age_bookmarks(connection: Connection, by: timedelta) -> None:
    for name, value in connection.execute(select(settings.c.name, settings.c.value)).all():
        try:
            noted = datetime.fromisoformat(value)
        except ValueError:
            continue
        mine = update(settings).where(settings.c.name == name)
        connection.execute(mine.values(value=(noted - by).isoformat()))
