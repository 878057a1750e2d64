"""A verdict on its way into the history of an item, and out of it again."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from langchain_feedback.loop._reviewing.effects import Effects
from langchain_feedback.loop._reviewing.verdicts import Decision
from langchain_feedback.store.questions import Question
from langchain_feedback.store.reviewing.claiming import claimed_at, lock_item, release_item
from langchain_feedback.store.reviewing.items import ReviewEvent, ReviewItem, read_events
from langchain_feedback.store.reviewing.verdicts import add_event, agreed, effects_of, in_force

__all__ = ["keep_verdict", "take_back"]


def keep_verdict(
    doing: Effects, held: ReviewItem, said: Mapping[str, Any], asked: Question
) -> Decision:
    """Add a verdict to an item's history, and do what it says once enough people agree.

    Args:
        doing: The transaction, and what verdicts do in it.
        held: The item, whose claim holds.
        said: The fields of the verdict, as the history has them.
        asked: The item's question.
    """
    reviewer, now = str(held.claimed_by), doing.now
    seconds = max(0.0, (now - (claimed_at(held) or now)).total_seconds())
    event = ReviewEvent(
        seq=0, item_id=held.item_id, reviewer=reviewer, action="decide", effects={}, undoes=None,
        seconds=seconds, at=now, **{**said, "right_chunks": tuple(said["right_chunks"])},
    )  # fmt: skip
    before = in_force(read_events(doing.connection, doing.namespace, held.item_id))
    shared = agreed([*before, event], held.reviews_required)
    effects = {} if shared is None else doing.apply(held, shared, asked)
    seq = add_event(
        doing.connection, doing.namespace, held.item_id, reviewer, "decide", now,
        effects=effects, seconds=seconds, **said,
    )  # fmt: skip
    closed = {"state": "decided", "decided_at": now} if shared else {}
    release_item(doing.connection, held.item_id, **closed)
    made = (tuple(effects.get(name, ())) for name in ("pins", "signals", "owner_items"))
    return Decision(held.item_id, seq, "decided" if shared else "open", *made)


def take_back(doing: Effects, last: ReviewEvent, *, reopened_until: datetime) -> None:
    """Take a verdict back; its item opens again unless enough others say the same without it."""
    connection, namespace, item_id = doing.connection, doing.namespace, last.item_id
    item = lock_item(connection, namespace, item_id)
    history = read_events(connection, namespace, item_id)
    done = effects_of(history)
    left = [event for event in in_force(history) if event.seq != last.seq]
    stays = item.state == "decided" and agreed(left, item.reviews_required) is not None
    if not stays:
        doing.undo(done)
    add_event(
        connection, namespace, item_id, last.reviewer, "undo", doing.now,
        undoes=last.seq, effects=done if stays else {},
    )  # fmt: skip
    if item.state != "open" and not stays:
        again = {"state": "open", "decided_at": None, "expires_at": reopened_until}
        release_item(connection, item_id, **again)
