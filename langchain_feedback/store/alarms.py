"""Alarms over sources: rows that are raised once, and closed when it is over."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from langchain_feedback.store.loop_schema import source_alarms

__all__ = ["SourceAlarm", "close_alarm", "note_alarm", "raise_alarm", "read_alarms"]


@dataclass(frozen=True)
class SourceAlarm:
    """Something is wrong with a document."""

    alarm_id: str
    source: str
    kind: str
    """`complaints`: its answers fail oftener than before; `changed`: a chunk that answers rested
    on has another text now; `gone`: searches that found it find it no more; `reviewer`: somebody
    looked, and says so."""
    statistic: float | None
    """Of complaints: the evidence when it was raised; see `loop.staleness.cusum`."""
    evidence: dict[str, Any]
    """What shows it, by kind: see `loop.staleness.check_sources`."""
    raised_at: datetime
    """UTC, as `closed_at`."""
    closed_at: datetime | None
    """None while it is open."""


def raise_alarm(  # noqa: PLR0917  one row, one call
    connection: Connection,
    namespace: str,
    source: str,
    kind: str,
    now: datetime,
    evidence: Mapping[str, Any],
    statistic: float | None = None,
) -> str:
    """Raise an alarm unless one of this kind is open over this source; return its id.

    Args:
        connection: A transaction that excludes other writers of votes: two that raise the
            same alarm at once would make two.
        namespace: Whose.
        source: The document.
        kind: See `SourceAlarm`.
        now: When.
        evidence: What shows it, as JSON holds it; no names of people.
        statistic: How strong it is.
    """
    mine = (source_alarms.c.namespace == namespace) & source_alarms.c.closed_at.is_(None)
    same = mine & (source_alarms.c.source == source) & (source_alarms.c.kind == kind)
    known = connection.execute(select(source_alarms.c.alarm_id).where(same)).scalars().first()
    if known is not None:
        return str(known)
    row = {
        "alarm_id": str(uuid4()),
        "namespace": namespace,
        "source": source,
        "kind": kind,
        "statistic": statistic,
        "evidence": json.dumps(dict(evidence)),
        "raised_at": now,
    }
    connection.execute(insert(source_alarms), row)
    return str(row["alarm_id"])


def note_alarm(
    connection: Connection, namespace: str, alarm_id: str, evidence: Mapping[str, Any]
) -> None:
    """Replace what an alarm says."""
    mine = (source_alarms.c.namespace == namespace) & (source_alarms.c.alarm_id == alarm_id)
    said = json.dumps(dict(evidence))
    connection.execute(update(source_alarms).where(mine).values(evidence=said))


def close_alarm(connection: Connection, namespace: str, alarm_id: str, now: datetime) -> None:
    """Close an alarm; closing it twice is harmless."""
    mine = (source_alarms.c.namespace == namespace) & (source_alarms.c.alarm_id == alarm_id)
    still = mine & source_alarms.c.closed_at.is_(None)
    connection.execute(update(source_alarms).where(still).values(closed_at=now))


def read_alarms(
    connection: Connection, namespace: str, *, closed: bool = False
) -> list[SourceAlarm]:
    """Return the open alarms, oldest first; with `closed` those that are over, too."""
    rows = select(source_alarms).where(source_alarms.c.namespace == namespace)
    if not closed:
        rows = rows.where(source_alarms.c.closed_at.is_(None))
    order = (source_alarms.c.raised_at, source_alarms.c.alarm_id)
    return [
        SourceAlarm(
            evidence=json.loads(row["evidence"]),
            **{name: row[name] for name in SourceAlarm.__dataclass_fields__ if name != "evidence"},
        )
        for row in connection.execute(rows.order_by(*order)).mappings()
    ]
