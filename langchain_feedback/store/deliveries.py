"""What is on its way to the owners of documents: rows that one process at a time may send."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, func, select, update

from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.loop_schema import deliveries

__all__ = [
    "Delivery",
    "add_delivery",
    "claim_delivery",
    "count_waiting",
    "last_told",
    "read_deliveries",
    "settle_delivery",
]


@dataclass(frozen=True)
class Delivery:
    """One message to one owner."""

    delivery_id: str
    namespace: str
    owner: str
    channel: str
    address: str
    payload: Mapping[str, Any]
    state: str
    """`waiting`, `sent` or `failed`."""
    attempts: int
    """How often it was claimed."""
    error: str | None
    """Why it was not sent the last time."""
    next_at: datetime
    """When it may be claimed, or claimed again: UTC."""
    created_at: datetime
    sent_at: datetime | None


def add_delivery(
    connection: Connection,
    namespace: str,
    delivery_id: str,
    *,
    owner: str,
    channel: str,
    address: str,
    payload: Mapping[str, Any],
    now: datetime,
) -> bool:
    """Keep a message that is to be sent; return whether it is new."""
    row = {
        "delivery_id": delivery_id,
        "namespace": namespace,
        "owner": owner,
        "channel": channel,
        "address": address,
        "payload": json.dumps(payload),
        "state": "waiting",
        "attempts": 0,
        "next_at": now,
        "created_at": now,
    }
    return bool(insert_or_ignore(connection, deliveries, [row]))


def claim_delivery(
    connection: Connection,
    namespace: str,
    *,
    owners: Sequence[str],
    now: datetime,
    until: datetime,
) -> Delivery | None:
    """Take a message that is due, for this process alone until an instant; None: there is none.

    Whoever dies over it loses it then, and another one sends it: at least once.
    """
    row = deliveries.c
    due = (row.namespace == namespace) & (row.state == "waiting") & (row.next_at <= now)
    oldest = (
        select(deliveries)
        .where(due, row.owner.in_(list(owners)))
        .order_by(row.next_at, row.delivery_id)
        .limit(1)
        # On PostgreSQL, where two may look at once; writers of SQLite take turns.
        .with_for_update(skip_locked=True)
    )
    found = connection.execute(oldest).one_or_none()
    if found is None:
        return None
    mine = update(deliveries).where(row.delivery_id == found.delivery_id)
    connection.execute(mine.values(attempts=found.attempts + 1, next_at=until))
    fields = {name: getattr(found, name) for name in Delivery.__dataclass_fields__}
    taken = {"payload": json.loads(found.payload), "attempts": found.attempts + 1}
    return Delivery(**(fields | taken | {"next_at": until}))


def settle_delivery(
    connection: Connection,
    delivery: Delivery,
    state: Literal["waiting", "sent", "failed"],
    *,
    now: datetime,
    next_at: datetime | None = None,
    channel: str,
    address: str,
    error: str | None = None,
) -> bool:
    """Say what became of a claimed message; return whether it was still this process's."""
    row = deliveries.c
    # Each claim counts the attempts up, so that a claim that ran out settles nothing.
    mine = (row.delivery_id == delivery.delivery_id) & (row.attempts == delivery.attempts)
    changed = {
        "state": state,
        "next_at": next_at or now,
        "sent_at": now if state == "sent" else None,
        "channel": channel,
        "address": address,
        "error": error,
    }
    still = mine & (row.state == "waiting")
    return bool(connection.execute(update(deliveries).where(still).values(changed)).rowcount)


def last_told(connection: Connection, namespace: str, owner: str) -> datetime | None:
    """Return when the newest message to an owner was written that did not fail; None: never."""
    row = deliveries.c
    mine = (row.namespace == namespace) & (row.owner == owner) & (row.state != "failed")
    found: datetime | None = connection.execute(
        select(func.max(row.created_at)).where(mine)
    ).scalar()
    return found


def count_waiting(connection: Connection, namespace: str) -> int:
    """Return how many messages were not sent yet."""
    row = deliveries.c
    waiting = (row.namespace == namespace) & (row.state == "waiting")
    return int(connection.execute(select(func.count()).where(waiting)).scalar_one())


def read_deliveries(
    connection: Connection, namespace: str, *, state: str | None = None, limit: int = 200
) -> list[Delivery]:
    """Return messages, newest first."""
    row = deliveries.c
    wanted = [row.namespace == namespace] + ([] if state is None else [row.state == state])
    newest = select(deliveries).where(*wanted).order_by(row.created_at.desc(), row.delivery_id)
    return [
        Delivery(**(dict(found) | {"payload": json.loads(found["payload"])}))
        for found in connection.execute(newest.limit(limit)).mappings()
    ]
