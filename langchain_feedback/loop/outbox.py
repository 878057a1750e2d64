"""Owners are told once a week: digests are written down first, and delivered then."""

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from langchain_feedback.loop._mending.digest import digest_of
from langchain_feedback.loop._mending.outbox_files import write_file
from langchain_feedback.loop.owners import Owner, Owners
from langchain_feedback.loop.webhooks import Outcome, post_signed
from langchain_feedback.store.deliveries import (
    Delivery,
    add_delivery,
    claim_delivery,
    count_waiting,
    last_told,
    settle_delivery,
)
from langchain_feedback.store.owner_items import OwnerItem, change_item, read_items
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Delivered", "deliver", "write_digests"]

logger = logging.getLogger(__name__)

_WAITING, _DONE = ("open", "acknowledged"), ("fixed", "verified")
_NEWS = timedelta(days=28)
"""How long ago something was fixed that is told to who was never told anything."""
_MOST_ITEMS = 100
_LEASE = timedelta(minutes=5)
_FIRST_WAIT, _LONGEST_WAIT = timedelta(minutes=1), timedelta(hours=6)
_MOST_ATTEMPTS = 12


@dataclass(frozen=True)
class Delivered:
    """What became of the digests that were due."""

    sent: int
    failed: int
    """Given up: `lcf_deliveries` holds why."""
    waiting: int
    """How many are still to be sent, those of other runs included."""


def write_digests(store: "FeedbackStore", owners: Owners, *, now: datetime | None = None) -> int:
    """Write down what each owner is to be told this week; return how many digests are new.

    There is one for each owner and week (ISO 8601, UTC) at most, whenever and however often this
    runs. It has the items that are open or acknowledged, and those that were fixed or verified
    since the last one. Where nothing is open and nothing has changed, there is none: who
    acknowledged everything is left in peace. Items that nobody owned yet get their owner here.

    Raises:
        StoreError: If the database cannot be written.
    """
    with writing(store) as (connection, _):
        at = (now or clock(store, connection)).astimezone(UTC)
        items = read_items(connection, store.namespace, states=_WAITING)
        since = at - _NEWS
        items += read_items(connection, store.namespace, states=_DONE, changed_since=since)
        by_owner = _routed(connection, store.namespace, owners, items)
        return sum(
            _write(connection, store.namespace, owner, mine, at)
            for owner, mine in by_owner.items()
        )


def deliver(
    store: "FeedbackStore",
    owners: Owners,
    *,
    folder: Path | None,
    now: datetime | None = None,
    timeout_s: float = 10,
    pauses: Sequence[float] = (1.0, 4.0),
) -> Delivered:
    """Send the digests that are due, each by its owner's channel.

    An `outbox` is the file `OWNER.jsonl` in the folder, a digest a line; `email` and `github`
    write a file there that is ready to send. A webhook is posted: see `webhooks.post_signed`.
    What fails for now is tried again by later runs, after 1, 2, 4 ... minutes and at most 6 hours,
    12 times in all; what fails for good is told in the log, and in `lcf_deliveries.error`.

    Any number of processes may do this at once: one has each digest. A digest is delivered at
    least once: a process that dies over it leaves it to another, five minutes later. What it
    says is read when it is sent, so that nothing is told that was withdrawn or forgotten.

    Args:
        store: Whose digests.
        owners: Where they go, now.
        folder: Where files are written; None: what needs one waits.
        now: When; None: now.
        timeout_s: How long each step of a webhook may take.
        pauses: After how many seconds a webhook is tried again by this run.

    Raises:
        StoreError: If the database cannot be read or written.
    """
    able = {owner.name: owner for owner in owners if _can_reach(owner, folder)}
    with reading(store) as connection:
        at = now or clock(store, connection)
    counts: dict[str, int] = defaultdict(int)
    while (taken := _claim(store, list(able), at)) is not None:
        owner, (delivery, items) = able[taken[0].owner], taken
        outcome = Outcome("sent")
        if items:
            outcome = _send(owner, delivery, items, folder, timeout_s=timeout_s, pauses=pauses)
        counts[_settle(store, owner, delivery, outcome, at, told=bool(items))] += 1
    with reading(store) as connection:
        waiting = count_waiting(connection, store.namespace)
    return Delivered(sent=counts["sent"], failed=counts["failed"], waiting=waiting)


def _routed(
    connection: Connection, namespace: str, owners: Owners, items: Sequence[OwnerItem]
) -> Mapping[Owner, list[OwnerItem]]:
    by_owner: dict[Owner, list[OwnerItem]] = defaultdict(list)
    for item in items:
        owner = owners.named(item.owner) or owners.of(item.source)
        if owner is None:
            continue
        if owner.name != item.owner:
            change_item(connection, namespace, item.item_id, owner=owner.name)
        by_owner[owner].append(item)
    return by_owner


def _write(
    connection: Connection, namespace: str, owner: Owner, items: Sequence[OwnerItem], now: datetime
) -> bool:
    told = last_told(connection, namespace, owner.name)
    since = told or now - _NEWS
    news = [item for item in items if item.state == "open" or item.changed_at > since]
    if not news:
        return False
    waiting = [item for item in items if item.state == "acknowledged" and item not in news]
    ids = [item.item_id for item in (*news, *waiting)]
    week = f"{now:%G-W%V}"
    key = json.dumps([namespace, owner.name, week]).encode()
    return add_delivery(
        connection,
        namespace,
        hashlib.sha256(key).hexdigest(),
        owner=owner.name,
        channel=owner.channel,
        address=owner.address,
        payload={"week": week, "items": ids[:_MOST_ITEMS], "in_all": len(ids)},
        now=now,
    )


def _can_reach(owner: Owner, folder: Path | None) -> bool:
    if owner.channel != "webhook":
        return folder is not None
    if owner.secret is None:
        logger.warning(
            "What is to be sent to %r waits: the environment variable %s, which holds the secret, "
            "is not set.",
            owner.name,
            owner.secret_env,
        )
    return owner.secret is not None


def _claim(
    store: "FeedbackStore", names: Sequence[str], now: datetime
) -> tuple[Delivery, list[OwnerItem]] | None:
    """Take what is due next, and read what it is to say, in a transaction of its own."""
    with writing(store, lock="traces") as (connection, _):
        delivery = claim_delivery(
            connection, store.namespace, owners=names, now=now, until=now + _LEASE
        )
        if delivery is None:
            return None
        ids = delivery.payload["items"]
        found = read_items(connection, store.namespace, item_ids=ids, states=[*_WAITING, *_DONE])
    return delivery, sorted(found, key=lambda item: ids.index(item.item_id))


def _send(
    owner: Owner,
    delivery: Delivery,
    items: Sequence[OwnerItem],
    folder: Path | None,
    *,
    timeout_s: float,
    pauses: Sequence[float],
) -> Outcome:
    digest = digest_of(delivery, items)
    if owner.channel == "webhook":
        body = json.dumps(digest, ensure_ascii=False).encode()
        return post_signed(
            owner.address, body, secret=owner.secret or "", key=delivery.delivery_id,
            timeout_s=timeout_s, pauses=pauses,
        )  # fmt: skip
    try:
        write_file(folder or Path(), owner, digest)
    except OSError as error:
        return Outcome("later", f"The file could not be written: {error}")
    return Outcome("sent")


def _settle(
    store: "FeedbackStore",
    owner: Owner,
    delivery: Delivery,
    outcome: Outcome,
    now: datetime,
    *,
    told: bool,
) -> str:
    """Keep what became of it; return the state that it has now, or "" where nothing was told."""
    state, next_at = outcome.kind, None
    if outcome.kind == "later":
        spent = delivery.attempts >= _MOST_ATTEMPTS
        state = "failed" if spent else "later"
        wait = min(_FIRST_WAIT * 2 ** min(delivery.attempts - 1, 20), _LONGEST_WAIT)
        asked = timedelta(seconds=min(outcome.after_s, _LONGEST_WAIT.total_seconds()))
        next_at = now + max(wait, asked)
    if state == "failed":
        logger.warning("Nothing reached the owner %r: %s", owner.name, outcome.reason)
    with writing(store, lock="traces") as (connection, _):
        settle_delivery(
            connection,
            delivery,
            "waiting" if state == "later" else state,
            now=now,
            next_at=next_at,
            channel=owner.channel,
            address=owner.address,
            error=(outcome.reason or None) if told else "Nothing was left to tell.",
        )
    return state if told else ""
