"""What a client may send, and whether the database will take it."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from langchain_feedback.store.schema import ANSWER
from langchain_feedback.store.voting import Event
from langchain_feedback.traces import storable

__all__ = ["CLIENT_SIGNALS", "Incoming", "Received", "Status", "checked", "usable_id"]

CLIENT_SIGNALS = (
    "thumbs_up", "thumbs_down", "rating", "wrong_source", "correction", "source_click", "copy",
    "dwell", "regenerate",
)  # fmt: skip
"""What a client may say; everything else is derived here, or said by the server."""

Status = Literal["accepted", "duplicate", "pending", "held", "rejected"]

# A colon is for ids that are derived here: nobody can take one in advance.
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LONGEST_NAME, _LONGEST_TEXT = 500, 5_000
_LONGEST_DWELL_MS = 120_000.0


@dataclass(frozen=True)
class Incoming:
    """One event as a client sent it. Nothing in it is trusted but `trace_id` and `actor`.

    Those come from a token, or from a server that knows who speaks.
    """

    event_id: str
    """1 to 64 letters, digits, points, dashes and underscores: one for each submission."""
    trace_id: str
    signal: str
    """One of `CLIENT_SIGNALS`."""
    target: str = ANSWER
    """A chunk id of the trace; empty, or `answer`, for the whole answer."""
    rating: int | None = None
    """1 to 5, of a `rating`."""
    value: float | None = None
    """Milliseconds of a `dwell`; more than 120,000 count as that."""
    comment: str | None = None
    """At most 5,000 characters."""
    correction: str | None = None
    client_time: datetime | None = None
    """With a zone."""
    actor: str | None = None
    """None: whoever asked."""
    rank: int | None = None
    """Where the source stood on the page, from 0: decides what was passed over above it."""
    token: str | None = None
    """What it came with, to be counted; it is not kept."""


@dataclass(frozen=True)
class Received:
    """What became of an event.

    `pending`: kept until its trace arrives. `held`: kept, and not counted until a reviewer
    accepts it; the sender is not to be told.
    """

    event_id: str | None
    status: Status
    reason: str | None = None
    """Why it was rejected."""


def usable_id(event_id: object) -> str | None:
    """Return an event id that a client may use, or None.

    Example:
        >>> usable_id("7f0c-1"), usable_id("skipped:7f0c"), usable_id(7)
        ('7f0c-1', None, None)
    """
    return event_id if isinstance(event_id, str) and _ID.fullmatch(event_id) else None


def checked(one: Incoming, now: datetime) -> Event:
    """Return an event that the database will take.

    Raises:
        ValueError: If it is none; the message says why.
    """
    if usable_id(one.event_id) is None:
        msg = "event_id must be 1 to 64 letters, digits, points, dashes or underscores"
        raise ValueError(msg)
    if one.signal not in CLIENT_SIGNALS:
        msg = f"signal must be one of {', '.join(CLIENT_SIGNALS)}"
        raise ValueError(msg)
    if one.rating is not None and one.signal != "rating":
        msg = "rating goes with the signal 'rating' only"
        raise ValueError(msg)
    target = _text("target", one.target, _LONGEST_NAME) or ANSWER
    return Event(
        _text("trace_id", one.trace_id, _LONGEST_NAME) or "",
        one.signal,
        now,
        ANSWER if target == "answer" else target,
        rating=one.rating,
        actor=_text("actor", one.actor, _LONGEST_NAME) or None,
        event_id=one.event_id,
        comment=_text("comment", one.comment, _LONGEST_TEXT),
        correction=_text("correction", one.correction, _LONGEST_TEXT),
        client_time=_time(one.client_time),
        value=_milliseconds(one.value),
    )


def _text(name: str, given: object, longest: int) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or len(given) > longest:
        msg = f"{name} must be a text of at most {longest:,} characters"
        raise ValueError(msg)
    return storable(given)


def _time(given: object) -> datetime | None:
    if given is None:
        return None
    if not isinstance(given, datetime) or given.tzinfo is None:
        msg = "client_time needs a zone"
        raise ValueError(msg)
    # Near the ends of the calendar this fails, as it would in the database.
    return given.astimezone(UTC)


def _milliseconds(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float):
        msg = "value must be a number of milliseconds"
        raise ValueError(msg)  # noqa: TRY004
    return min(float(given), _LONGEST_DWELL_MS)
