"""Items of the review queue as records, and how they come in and expire."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, select, update

from langchain_feedback.errors import UnknownItemError
from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.loop_schema import review_events, review_items

__all__ = [
    "Candidate",
    "ReviewEvent",
    "ReviewItem",
    "add_items",
    "count_items",
    "expire_items",
    "is_seen",
    "item_id_of",
    "read_events",
    "read_item",
    "read_items",
    "seen_until",
]

ItemState = Literal["open", "decided", "expired"]


@dataclass(frozen=True)
class Candidate:
    """What mining found worth a look, on its way into the queue."""

    kind: Literal["answer", "burst", "foldback"]
    question: str
    priority: float
    """Larger comes first."""
    snapshot: Mapping[str, Any]
    """All that a reviewer sees: it outlives the trace."""
    question_id: int | None = None
    trace_id: str | None = None
    failure_class: str | None = None
    guess: str | None = None
    """The chunk that the system holds to be wrong; of a burst its id, of an answer that may be
    folded back that entry's."""


@dataclass(frozen=True)
class ReviewItem:
    """One item of the queue."""

    item_id: str
    kind: str
    question_id: int | None
    question: str
    trace_id: str | None
    failure_class: str | None
    guess: str | None
    """The chunk that the system holds to be wrong: what `confirm` and `reject` are about."""
    priority: float
    state: ItemState
    snapshot: dict[str, Any] = field(repr=False)
    claim_token: str | None = field(repr=False)
    claimed_by: str | None
    claimed_until: datetime | None
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    reviews_required: int
    """How many people must say the same."""


@dataclass(frozen=True)
class ReviewEvent:
    """One entry of an item's history, which is only ever added to."""

    seq: int
    item_id: str
    reviewer: str
    """Empty where nobody in person, or somebody who was forgotten."""
    action: str
    """`decide`, `skip`, `undo` or `expire`."""
    verdict: str | None
    right_chunks: tuple[str, ...]
    none_exists: bool
    failure_class: str | None
    note: str | None
    correction: str | None
    effects: dict[str, Any]
    """What it did: `pins`, `signals`, `owner_items`, `alarms`, `burst`."""
    undoes: int | None
    seconds: float | None
    at: datetime


def item_id_of(namespace: str, candidate: Candidate) -> str:
    """Return the id of an item: the same question with the same pool is the same item."""
    if candidate.kind == "burst":
        about: list[Any] = [candidate.guess]
    elif candidate.kind == "foldback":
        # Each time that its sources came back it is looked at anew.
        about = [candidate.guess, candidate.snapshot.get("round", 0)]
    else:
        pool = candidate.snapshot.get("chunks") or ()
        about = [candidate.question, sorted(str(chunk["content_hash"]) for chunk in pool)]
    said = json.dumps([namespace, candidate.kind, *about])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def add_items(
    connection: Connection,
    namespace: str,
    candidates: Sequence[Candidate],
    *,
    now: datetime,
    expires_at: datetime,
    required: Mapping[str, int],
) -> list[str]:
    """Add what is not in the queue yet, whatever became of it there; return the new ids."""
    added = []
    for candidate in candidates:
        item_id = item_id_of(namespace, candidate)
        row = {
            "item_id": item_id,
            "namespace": namespace,
            "kind": candidate.kind,
            "question_id": candidate.question_id,
            "trace_id": candidate.trace_id,
            "failure_class": candidate.failure_class,
            "guess": candidate.guess,
            "priority": candidate.priority,
            "snapshot": json.dumps({"question": candidate.question} | dict(candidate.snapshot)),
            "state": "open",
            "reviews_required": required[item_id],
            "created_at": now,
            "expires_at": expires_at,
        }
        if insert_or_ignore(connection, review_items, [row]):
            added.append(item_id)
    return added


def expire_items(connection: Connection, namespace: str, now: datetime) -> int:
    """Close what nobody decided in time; return how many."""
    old = (
        (review_items.c.namespace == namespace)
        & (review_items.c.state == "open")
        & (review_items.c.expires_at <= now)
    )
    gone = update(review_items).where(old).values(state="expired", claim_token=None)
    ids = list(connection.execute(gone.returning(review_items.c.item_id)).scalars())
    events = [
        {"namespace": namespace, "item_id": one, "reviewer": "", "action": "expire", "at": now}
        for one in ids
    ]
    if events:
        connection.execute(insert(review_events), events)
    return len(ids)


def read_item(connection: Connection, namespace: str, item_id: str) -> ReviewItem:
    """Return an item.

    Raises:
        UnknownItemError: If there is none of this id.
    """
    mine = (review_items.c.namespace == namespace) & (review_items.c.item_id == item_id)
    row = connection.execute(select(review_items).where(mine)).mappings().first()
    if row is None:
        msg = f"No review item {item_id!r} in namespace {namespace!r}"
        raise UnknownItemError(msg)
    return as_item(row)


def read_items(
    connection: Connection, namespace: str, *, state: str | None, limit: int, offset: int
) -> list[ReviewItem]:
    """Return items, the most urgent first; those that are closed, the newest first."""
    rows = select(review_items).where(review_items.c.namespace == namespace)
    order = [review_items.c.priority.desc(), review_items.c.created_at, review_items.c.item_id]
    if state is not None:
        rows = rows.where(review_items.c.state == state)
    if state == "decided":
        order.insert(0, review_items.c.decided_at.desc())
    found = connection.execute(rows.order_by(*order).limit(limit).offset(offset))
    return [as_item(row) for row in found.mappings()]


def count_items(connection: Connection, namespace: str, state: str) -> int:
    """Return how many items are in a state."""
    mine = (review_items.c.namespace == namespace) & (review_items.c.state == state)
    counted = select(func.count()).select_from(review_items).where(mine)
    return int(connection.execute(counted).scalar_one())


def seen_until(connection: Connection, namespace: str) -> dict[int, datetime | None]:
    """Return until when each question was looked at; None while an item of it is open."""
    row = review_items.c
    rows = select(row.question_id, row.state, row.decided_at, row.expires_at)
    mine = (row.namespace == namespace) & (row.kind == "answer") & row.question_id.is_not(None)
    seen: dict[int, datetime | None] = {}
    for found in connection.execute(rows.where(mine)):
        until = None if found.state == "open" else found.decided_at or found.expires_at
        before = seen.get(found.question_id, until)
        seen[found.question_id] = until and before and max(until, before)
    return seen


def is_seen(seen: Mapping[int, datetime | None], question_id: int, asked_at: datetime) -> bool:
    """Return whether an answer is one that the queue has, or had when it was looked at."""
    until = seen.get(question_id)
    return question_id in seen and (until is None or asked_at <= until)


def read_events(
    connection: Connection, namespace: str, item_id: str | None, *, reviewer: str | None = None
) -> list[ReviewEvent]:
    """Return the history of an item, or of all, oldest first; or what one reviewer did."""
    rows = select(review_events).where(review_events.c.namespace == namespace)
    if item_id is not None:
        rows = rows.where(review_events.c.item_id == item_id)
    if reviewer is not None:
        rows = rows.where(review_events.c.reviewer == reviewer)
    found = connection.execute(rows.order_by(review_events.c.seq)).mappings()
    return [_as_event(row) for row in found]


def as_item(row: Mapping[Any, Any]) -> ReviewItem:
    """Make a record of a row."""
    snapshot = json.loads(row["snapshot"])
    taken = set(ReviewItem.__dataclass_fields__) - {"snapshot", "question"}
    fields = {name: row[name] for name in taken}
    return ReviewItem(snapshot=snapshot, question=str(snapshot.get("question", "")), **fields)


def _as_event(row: Mapping[Any, Any]) -> ReviewEvent:
    taken = set(ReviewEvent.__dataclass_fields__) - {"right_chunks", "none_exists", "effects"}
    return ReviewEvent(
        right_chunks=tuple(json.loads(row["right_chunks"] or "[]")),
        none_exists=bool(row["none_exists"]),
        effects=json.loads(row["effects"] or "{}"),
        **{name: row[name] for name in taken},
    )
