"""What every table is made of: instants in UTC, counted keys, and the one set of tables."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Dialect, Integer, MetaData, types

__all__ = ["SERIAL", "UTCDateTime", "instant", "metadata"]


class UTCDateTime(types.TypeDecorator[datetime]):
    """An instant: aware in Python, `timestamptz` in PostgreSQL, sortable text in SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Store UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            msg = f"A time needs a zone, got the naive {value!r}"
            raise ValueError(msg)
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return UTC, whatever zone the session has."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


metadata = MetaData()
# SQLite counts up by itself only in a column of its own INTEGER type.
SERIAL = BigInteger().with_variant(Integer, "sqlite")


def instant(name: str, **kwargs: Any) -> Column[datetime]:
    """Make a column of instants."""
    return Column(name, UTCDateTime(), **kwargs)
