"""What the owners of documents are asked to correct or to write: rows and their history."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.loop_schema import owner_events, owner_items

__all__ = ["CLOSED", "OWNER_STATES", "move_item", "open_item"]

OWNER_STATES = ("open", "acknowledged", "fixed", "verified", "withdrawn")
"""`fixed`: the document changed, or the missing one was written; `verified`: asked again, the
question is answered; `withdrawn`: a reviewer took it back."""

CLOSED = ("verified", "withdrawn")


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
