"""How much one token, one person and one address may send; counted in the database."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

from sqlalchemy import Connection, delete, func, insert, select, update

from langchain_feedback.errors import TooManySignalsError
from langchain_feedback.store.loop_schema import counters

__all__ = ["DEFAULT_LIMITS", "Burst", "Limits", "Spent", "count_in"]

_HOUR = timedelta(hours=1)
_TOKEN_LIVES = timedelta(days=30)


@dataclass(frozen=True)
class Burst:
    """What is too much of one sign on one chunk or question within an hour.

    The numbers are this package's own; they were not measured.
    """

    least: int = 5
    """So many votes an hour are never a burst."""
    times: float = 5.0
    """Nor is what stays below so many times the hourly mean of `days`."""
    days: int = 28
    few: int = 2
    """A burst comes from at most so many people ..."""
    each: int = 5
    """... or from ones with at least so many votes each."""
    people: int = 10
    """Where fewer people than this spoke within `days`, nothing is held: a team of two would
    quarantine itself."""


@dataclass(frozen=True)
class Limits:
    """How many events are taken; None: any number.

    Example:
        >>> Limits().per_token, Limits(per_address=None).per_address
        (20, None)
    """

    per_token: int | None = 20
    """Over its life."""
    per_actor: int | None = 60
    """In a clock hour."""
    per_address: int | None = 300
    """In a clock hour, what was refused included."""
    burst: Burst | None = Burst()
    """What is held back for a reviewer; None: nothing."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Spent:
    """How many events of a batch count for whom."""

    tokens: Mapping[str, int]
    actors: Mapping[str, int]
    address: str | None
    events: int
    """All, for the address."""


def count_in(
    connection: Connection, namespace: str, spent: Spent, limits: Limits, now: datetime
) -> None:
    """Count a batch in; counters that no longer matter are removed.

    The caller's transaction excludes other writers of the namespace, and is rolled back when
    this raises: then nothing was counted.

    Raises:
        TooManySignalsError: If somebody is over a limit.
    """
    hour = now.replace(minute=0, second=0, microsecond=0)
    connection.execute(delete(counters).where(counters.c.hour < hour - _HOUR))
    counts = [("token", name, n, limits.per_token) for name, n in spent.tokens.items()]
    counts += [("actor", name, n, limits.per_actor) for name, n in spent.actors.items()]
    if spent.address:
        counts.append(("address", _network(spent.address), spent.events, limits.per_address))
    for kind, name, number, most in counts:
        if number and most is not None:
            # A token's rows are dated by when they stop to matter, so that they go by then.
            until = hour + (_TOKEN_LIVES if kind == "token" else timedelta())
            bucket = _digest(namespace, kind, name)
            if _add(connection, bucket, until, number, hour) > most:
                raise _too_many(connection, kind, bucket, most, now)


def _add(connection: Connection, bucket: str, until: datetime, number: int, hour: datetime) -> int:
    """Add to a counter and return what it holds in all its hours that matter."""
    mine = counters.c.bucket == bucket
    more = update(counters).where(mine, counters.c.hour == until)
    if not connection.execute(more.values(count=counters.c.count + number)).rowcount:
        row = {"bucket": bucket, "hour": until, "count": number}
        connection.execute(insert(counters), row)
    total = select(func.sum(counters.c.count)).where(mine, counters.c.hour >= hour)
    return int(connection.execute(total).scalar_one())


def _too_many(
    connection: Connection, kind: str, bucket: str, most: int, now: datetime
) -> TooManySignalsError:
    first = select(func.min(counters.c.hour)).where(
        counters.c.bucket == bucket, counters.c.hour > now - _HOUR
    )
    free: datetime = connection.execute(first).scalar_one() + _HOUR
    seconds = max(1, ceil((free - now).total_seconds()))
    whose = {"token": "one token", "actor": "one person an hour", "address": "one address an hour"}
    msg = f"At most {most} events of {whose[kind]}; nothing of this batch was kept."
    return TooManySignalsError(msg, seconds)


def _digest(namespace: str, kind: str, name: str) -> str:
    told = f"{namespace}\0{kind}\0{name}".encode("utf-8", "replace")
    return f"{kind}:{hashlib.sha256(told).hexdigest()[:32]}"


def _network(address: str) -> str:
    """Return what counts as one address: of IPv6 the /64, which is one line's."""
    with suppress(ValueError):
        parsed = ip_address(address)
        if isinstance(parsed, IPv6Address):
            if parsed.ipv4_mapped:
                return str(parsed.ipv4_mapped)
            return str(ip_network((int(parsed), 64), strict=False))
    return address
