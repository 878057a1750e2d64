"""Verdicts in force: what was decided and not taken back, and whether it agrees."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert

from langchain_feedback.store.loop_schema import review_events
from langchain_feedback.store.reviewing.items import ReviewEvent

__all__ = ["BLAMELESS", "add_event", "agreed", "effects_of", "in_force", "kappa"]

BLAMELESS = ("generation", "disputed")
"""Failures of which the suspected chunk is not the cause: confirmed, it is not a wrong one."""


def add_event(  # noqa: PLR0917  one row, one call
    connection: Connection,
    namespace: str,
    item_id: str,
    reviewer: str,
    action: str,
    now: datetime,
    **fields: Any,
) -> int:
    """Add to an item's history; return the number of the entry."""
    row = {
        "namespace": namespace,
        "item_id": item_id,
        "reviewer": reviewer,
        "action": action,
        "at": now,
    }
    for name in ("right_chunks", "effects"):
        if fields.get(name) is not None:
            fields[name] = json.dumps(fields[name])
    added = insert(review_events).returning(review_events.c.seq)
    return int(connection.execute(added, row | fields).scalar_one())


def in_force(events: Iterable[ReviewEvent]) -> list[ReviewEvent]:
    """Return the newest verdict of each reviewer that was not taken back, oldest first."""
    listed = list(events)
    undone = {event.undoes for event in listed if event.undoes is not None}
    newest: dict[str, ReviewEvent] = {}
    for event in listed:
        if event.action == "decide" and event.seq not in undone:
            # Nobody's name tells two people apart who were forgotten.
            newest[event.reviewer or f"\0{event.seq}"] = event
    return sorted(newest.values(), key=lambda event: event.seq)


def agreed(verdicts: Sequence[ReviewEvent], required: int) -> ReviewEvent | None:
    """Return the verdict that enough people share, as the last of them said it; else None.

    Two share a verdict that say the same of the guess, and name a right chunk in common, or
    none both. Right is what all of them name; of their corrections the last one counts.
    """
    for one in reversed(verdicts):
        same = [other for other in verdicts if _alike(one, other)]
        shared = [
            chunk
            for chunk in one.right_chunks
            if all(chunk in other.right_chunks for other in same)
        ]
        if len(same) >= required and bool(shared) == bool(one.right_chunks):
            said = [other.correction for other in reversed(same) if other.correction]
            return replace(one, right_chunks=tuple(shared), correction=next(iter(said), None))
    return None


def effects_of(events: Iterable[ReviewEvent]) -> dict[str, Any]:
    """Return what verdicts did since the last one that was taken back."""
    found: dict[str, Any] = {}
    for event in events:
        if event.action == "undo":
            found = event.effects  # of those that still agree, if any do
        elif event.effects:
            found = event.effects
    return found


def kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Return Cohen's kappa of two verdicts on each item; None without pairs.

    How much oftener than by chance two reviewers agree: 1 always, 0 as by chance (Cohen, "A
    coefficient of agreement for nominal scales", 1960). Where all say the same, 1.

    Example:
        >>> kappa([("confirm", "confirm"), ("reject", "reject"), ("reject", "confirm")])
        0.4
    """
    if not pairs:
        return None
    count = len(pairs)
    observed = sum(one == other for one, other in pairs) / count
    first, second = (Counter(pair[at] for pair in pairs) for at in (0, 1))
    chance = sum(first[name] * second[name] for name in first) / count**2
    return 1.0 if chance == 1 else round((observed - chance) / (1 - chance), 12)


def _alike(one: ReviewEvent, other: ReviewEvent) -> bool:
    named: Mapping[bool, bool] = {
        True: bool(set(one.right_chunks) & set(other.right_chunks)),
        False: not one.right_chunks and not other.right_chunks,
    }
    same = one.verdict == other.verdict and one.none_exists == other.none_exists
    return same and named[bool(one.right_chunks)]
