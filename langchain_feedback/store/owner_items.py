"""What the owners of documents are asked to correct or to write: rows and their history."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select, update

from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.loop_schema import owner_events, owner_items

__all__ = [
    "CLOSED",
    "OWNER_STATES",
    "ItemKind",
    "OwnerEvent",
    "OwnerItem",
    "change_item",
    "count_items",
    "move_item",
    "move_item_from",
    "open_item",
    "read_events",
    "read_items",
]

OWNER_STATES = ("open", "acknowledged", "fixed", "verified", "withdrawn")
"""`fixed`: the document changed, or the missing one was written; `verified`: asked again, the
question is answered; `withdrawn`: a reviewer took it back."""

CLOSED = ("verified", "withdrawn")

ItemKind = Literal["correction", "missing_document", "stale_document"]


@dataclass(frozen=True)
class OwnerItem:
    """What the owner of a document is asked to correct or to write."""

    item_id: str
    kind: str
    """`correction`, `missing_document` or `stale_document`."""
    source: str
    """The document; empty where none exists."""
    chunk_id: str | None
    """The chunk that is wrong."""
    content_hash: str | None
    """Of that chunk, as it was wrong."""
    question: str
    trace_id: str | None
    text: str
    """What would be right, or what is missing: a claim of people, never a fact."""
    snapshot: Mapping[str, Any]
    """What its owner sees; it outlives the trace."""
    owner: str
    """Empty where nobody owns the source."""
    state: str
    """One of `OWNER_STATES`."""
    retest: Mapping[str, Any] | None
    """How the question was answered before and after: see `retest`."""
    opened_by: str | None
    opened_at: datetime
    """UTC, as `changed_at`."""
    changed_at: datetime
    """When it got its state."""


@dataclass(frozen=True)
class OwnerEvent:
    """A state that an item got."""

    state: str
    actor: str | None
    note: str | None
    at: datetime
    """UTC."""


def open_item(
    connection: Connection,
    namespace: str,
    *,
    about: str,
    kind: str,
    now: datetime,
    text: str,
    question: str = "",
    source: str = "",
    chunk_id: str | None = None,
    content_hash: str | None = None,
    trace_id: str | None = None,
    owner: str = "",
    snapshot: Mapping[str, Any] | None = None,
    opened_by: str | None = None,
) -> tuple[str, bool]:
    """Open an item, or open again the one that was withdrawn; return its id and whether it did.

    Args:
        connection: A transaction.
        namespace: Whose.
        about: A digest of what it is about: there is one item of each.
        kind: `correction`, `missing_document` or `stale_document`.
        now: When.
        text: What would be right, or what is missing.
        question: Whose answer was wrong.
        source: The document; empty where none exists.
        chunk_id: The chunk that is wrong.
        content_hash: Of that chunk, as it is wrong.
        trace_id: Where it was seen.
        owner: Who is asked; empty where nobody owns the source.
        snapshot: What the owner sees.
        opened_by: Which reviewer, if one.
    """
    row = {
        "item_id": str(uuid4()),
        "namespace": namespace,
        "about": about,
        "kind": kind,
        "source": source,
        "content_hash": content_hash,
        "chunk_id": chunk_id,
        "question": question,
        "trace_id": trace_id,
        "text": text,
        "snapshot": json.dumps(snapshot or {}),
        "owner": owner,
        "state": "open",
        "opened_by": opened_by,
        "opened_at": now,
        "changed_at": now,
    }
    is_new = bool(insert_or_ignore(connection, owner_items, [row]))
    same = (owner_items.c.namespace == namespace) & (owner_items.c.about == about)
    kept = connection.execute(select(owner_items.c.item_id, owner_items.c.state).where(same)).one()
    if not is_new and kept.state == "withdrawn":
        changed = {name: row[name] for name in ("text", "snapshot", "owner", "opened_by")}
        connection.execute(update(owner_items).where(same).values(changed))
    opened = is_new or kept.state == "withdrawn"
    if opened:
        move_item(connection, kept.item_id, "open", now=now, actor=opened_by)
    return str(kept.item_id), opened


def move_item(
    connection: Connection,
    item_id: str,
    state: str,
    *,
    now: datetime,
    actor: str | None = None,
    note: str | None = None,
) -> None:
    """Give an item another state, and keep that it got it."""
    mine = owner_items.c.item_id == item_id
    connection.execute(update(owner_items).where(mine).values(state=state, changed_at=now))
    event = {"item_id": item_id, "state": state, "actor": actor, "note": note, "at": now}
    connection.execute(insert(owner_events), event)


def move_item_from(
    connection: Connection,
    namespace: str,
    item_id: str,
    state: str,
    *,
    among: Sequence[str],
    now: datetime,
    actor: str | None = None,
    note: str | None = None,
) -> bool:
    """Give an item another state if its own is still one of some; return whether it did.

    Of two that move it at once, one does.
    """
    row = owner_items.c
    still = (row.namespace == namespace) & (row.item_id == item_id) & row.state.in_(list(among))
    # The first statement of both takes the row, so that the second one finds the new state.
    taken = update(owner_items).where(still).values(state=state)
    if not connection.execute(taken).rowcount:
        return False
    move_item(connection, item_id, state, now=now, actor=actor, note=note)
    return True


def change_item(
    connection: Connection,
    namespace: str,
    item_id: str,
    *,
    text: str | None = None,
    snapshot: Mapping[str, Any] | None = None,
    owner: str | None = None,
    retest: Mapping[str, Any] | None = None,
) -> None:
    """Change what an item says. Its state and its history stay; None leaves a field as it is."""
    given: dict[str, Any] = {
        "text": text,
        "snapshot": None if snapshot is None else json.dumps(snapshot),
        "owner": owner,
        "retest": None if retest is None else json.dumps(retest),
    }
    changed = {name: value for name, value in given.items() if value is not None}
    mine = (owner_items.c.namespace == namespace) & (owner_items.c.item_id == item_id)
    if changed:
        connection.execute(update(owner_items).where(mine).values(changed))


def read_items(
    connection: Connection,
    namespace: str,
    *,
    item_ids: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    owner: str | None = None,
    source: str | None = None,
    changed_since: datetime | None = None,
    limit: int | None = None,
) -> list[OwnerItem]:
    """Return items, newest first; each argument that is given narrows them down."""
    row = owner_items.c
    wanted: list[ColumnElement[bool]] = [row.namespace == namespace]
    wanted += [row.state.in_(list(states))] if states is not None else []
    wanted += [row.kind.in_(list(kinds))] if kinds is not None else []
    wanted += [row.owner == owner] if owner is not None else []
    wanted += [row.source == source] if source is not None else []
    wanted += [row.changed_at > changed_since] if changed_since is not None else []
    pages = [None] if item_ids is None else list(batched(list(item_ids)))
    newest = select(owner_items).order_by(row.opened_at.desc(), row.item_id).limit(limit)
    found: list[OwnerItem] = []
    for page in pages:
        named = [] if page is None else [row.item_id.in_(page)]
        found += map(_item, connection.execute(newest.where(*wanted, *named)))
    return found[:limit]


def count_items(connection: Connection, namespace: str) -> dict[str, int]:
    """Return how many items each state has that any has."""
    row = owner_items.c
    counted = select(row.state, func.count()).where(row.namespace == namespace)
    return {state: int(n) for state, n in connection.execute(counted.group_by(row.state))}


def read_events(connection: Connection, namespace: str, item_id: str) -> list[OwnerEvent]:
    """Return the states that an item got, oldest first."""
    rows = connection.execute(
        select(owner_events)
        .join(owner_items, owner_items.c.item_id == owner_events.c.item_id)
        .where(owner_items.c.namespace == namespace, owner_items.c.item_id == item_id)
        .order_by(owner_events.c.seq)
    )
    return [OwnerEvent(row.state, row.actor, row.note, row.at) for row in rows]


def _item(row: Row[Any]) -> OwnerItem:
    fields = {name: getattr(row, name) for name in OwnerItem.__dataclass_fields__}
    retest = None if row.retest is None else json.loads(row.retest)
    return OwnerItem(**(fields | {"snapshot": json.loads(row.snapshot), "retest": retest}))
