"""Who looks at what: one item, one reviewer, for a while."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, and_, case, exists, or_, select, update

from langchain_feedback.errors import ClaimLostError
from langchain_feedback.store.loop_schema import review_events, review_items
from langchain_feedback.store.reviewing.items import ReviewItem, as_item, read_item

__all__ = ["claim_item", "claimed_at", "held_item", "lock_item", "release_item"]


def claim_item(
    connection: Connection,
    namespace: str,
    reviewer: str,
    *,
    now: datetime,
    until: datetime,
    item_id: str | None = None,
) -> ReviewItem | None:
    """Give a reviewer an item that nobody else has, for a while; None where there is none.

    It is the one that he has already, else the most urgent one that he neither decided nor
    skipped. SQLite has one writer; on PostgreSQL a row that another claim is about to take is
    passed over.

    Args:
        connection: A transaction for writing.
        namespace: Whose queue.
        reviewer: Who asks.
        now: When, by the database's clock.
        until: When the claim ends.
        item_id: This one, also where he skipped it; None: the next one.
    """
    mine = and_(review_items.c.claimed_by == reviewer, review_items.c.claimed_until > now)
    free = or_(
        review_items.c.claimed_until.is_(None),
        review_items.c.claimed_until <= now,
        review_items.c.claimed_by == reviewer,
    )
    wanted = and_(
        review_items.c.namespace == namespace,
        review_items.c.state == "open",
        review_items.c.expires_at > now,
        free,
        ~_has(reviewer, "decide"),
        review_items.c.item_id == item_id if item_id else or_(mine, ~_has(reviewer, "skip")),
    )
    order = (
        case((mine, 1), else_=0).desc(),
        review_items.c.priority.desc(),
        review_items.c.created_at,
    )
    chosen = select(review_items.c.item_id).where(wanted)
    chosen = chosen.order_by(*order, review_items.c.item_id).limit(1)
    found = connection.execute(chosen.with_for_update(skip_locked=True)).scalar()
    if found is None:
        return None
    this = update(review_items).where(review_items.c.item_id == found)
    # One's own claim goes on: a form that is open in another window still holds.
    token = case((mine, review_items.c.claim_token), else_=_new_token(now))
    this = this.values(claimed_by=reviewer, claimed_until=until, claim_token=token)
    row = connection.execute(this.returning(*review_items.c)).mappings().one()
    return as_item(row)


def held_item(connection: Connection, namespace: str, claimed: ReviewItem) -> ReviewItem:
    """Return an item as it is now, if a claim on it still holds.

    Raises:
        ClaimLostError: If somebody else has it, or it is closed.
        UnknownItemError: If it is gone.
    """
    item = lock_item(connection, namespace, claimed.item_id)
    if item.state != "open":
        msg = f"This item is {item.state} meanwhile: your verdict came too late and was not kept."
        raise ClaimLostError(msg)
    if not claimed.claim_token or item.claim_token != claimed.claim_token:
        who = f"{item.claimed_by} has this item now" if item.claimed_by else "Your claim ended"
        msg = f"{who}: your verdict came too late and was not kept. Claim it again."
        raise ClaimLostError(msg)
    return item


def lock_item(connection: Connection, namespace: str, item_id: str) -> ReviewItem:
    """Return an item that nobody else changes until the end of the transaction.

    Raises:
        UnknownItemError: If it is gone.
    """
    this = select(review_items.c.item_id).where(review_items.c.item_id == item_id)
    connection.execute(this.with_for_update())
    return read_item(connection, namespace, item_id)


def release_item(connection: Connection, item_id: str, **changes: Any) -> None:
    """End the claim on an item, and change it."""
    free = {"claimed_by": None, "claimed_until": None, "claim_token": None}
    this = update(review_items).where(review_items.c.item_id == item_id)
    connection.execute(this.values(free | changes))


def claimed_at(item: ReviewItem) -> datetime | None:
    """Return when the claim on an item began; None where nobody has it."""
    stamp = (item.claim_token or "").partition(".")[0]
    return datetime.fromtimestamp(int(stamp, 16) / 1_000, UTC) if stamp else None


def _new_token(now: datetime) -> str:
    """Make a token that says when its claim began, in milliseconds."""
    return f"{round(now.timestamp() * 1_000):x}.{uuid4().hex}"


def _has(reviewer: str, action: str) -> ColumnElement[bool]:
    """Whether a reviewer did this to the item, and did not take it back."""
    undone = review_events.alias("undone")
    back = exists(select(1).where(undone.c.undoes == review_events.c.seq))
    return exists(
        select(1).where(
            review_events.c.item_id == review_items.c.item_id,
            review_events.c.reviewer == reviewer,
            review_events.c.action == action,
            ~back,
        )
    )
