"""How fast votes age: one setting, kept in the database, so that all its users agree."""

from sqlalchemy import Connection, select

from langchain_feedback.store.database import Database
from langchain_feedback.store.evidence import rebuild
from langchain_feedback.store.questions import read_setting, write_setting
from langchain_feedback.store.schema import signals

__all__ = ["checked_half_life", "keep_half_life", "read_half_life"]

_NAME, _DEFAULT, _NEVER = "half_life_days", 90.0, "never"


def checked_half_life(days: float | str | None) -> float | None:
    """Return a half-life in days; None: votes do not age.

    Raises:
        ValueError: If it is not above 0.
    """
    if days is None:
        return None
    if isinstance(days, str | bool) or not 0 < days < float("inf"):
        msg = f"half_life_days must be a number of days above 0, or None, got {days!r}"
        raise ValueError(msg)
    return float(days)


def read_half_life(connection: Connection) -> float | None:
    """Return the database's half-life in days."""
    kept = read_setting(connection, _NAME)
    if kept is None:
        return _DEFAULT
    return None if kept == _NEVER else float(kept)


def keep_half_life(database: Database, days: float | None) -> None:
    """Keep a half-life; where it is another one, work out all evidence anew with it."""
    with database.reading() as connection:
        if read_half_life(connection) == days:
            return
    # At once, and alone: no vote may be counted by one half-life under the other.
    with database.writing(lock="all") as connection:
        write_setting(connection, _NAME, _NEVER if days is None else repr(days))
        named = connection.execute(select(signals.c.namespace).distinct()).scalars()
        for namespace in sorted(named):
            rebuild(connection, namespace, days)
