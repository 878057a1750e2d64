"""How facts are said on the pages: times, shares, and the names of what the database holds."""

from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

__all__ = [
    "ACTIONS",
    "ALARMS",
    "CLASSES",
    "DONE",
    "ERRORS",
    "FILTERS",
    "KINDS",
    "LOST",
    "MOVES",
    "RANKER_STATES",
    "RATES",
    "SIGNALS",
    "STALE_FORM",
    "STATES",
    "VERDICTS",
    "ago",
    "day",
    "days",
    "percent",
    "points",
    "seconds",
    "short_number",
    "span",
]

STALE_FORM = (
    "This form was made for another session, or for one that ended. Nothing was changed. Open the "
    "page again and send it once more."
)

LOST = "Somebody else looks at it now, or it has its verdict already. Nothing of yours was kept."

ERRORS = MappingProxyType(
    {
        400: ("That cannot be done", "The request is not one that this page sends."),
        403: ("You may not review", "Ask whoever runs this for the permission to review."),
        404: ("There is no such page", "It may have been removed, or the address was cut off."),
        405: ("That cannot be done", "The request is not one that this page sends."),
        409: ("Somebody was faster", LOST),
        413: ("Too much text", "A form holds at most 256 KB."),
        415: ("That cannot be done", "The request is not one that this page sends."),
        500: ("Something broke", "It is in the server's log. Nothing was half written."),
        503: ("The feedback store is away", "Try again soon. The reason is in the server's log."),
    }
)
"""What is said of each status: a title, and words unless the error has some of its own."""

VERDICTS = MappingProxyType(
    {
        "answer": (
            ("confirm", "1", "Confirm", "The answer failed, as suspected"),
            ("reject", "2", "Reject", "The suspicion is wrong"),
            ("unclear", "3", "Unclear", "It cannot be told from this"),
        ),
        "burst": (
            ("confirm", "1", "Drop them", "They are not honest votes"),
            ("reject", "2", "Keep them", "They count from now on"),
            ("unclear", "3", "Unclear", "They stay held back"),
        ),
    }
)
"""The verdicts on each kind of item: value, key, name and meaning."""

DONE = MappingProxyType(
    {
        "confirm": "Confirmed. Here is the next one.",
        "reject": "Rejected. Here is the next one.",
        "unclear": "Kept as unclear. Here is the next one.",
        "skip": "Skipped: it goes back to the others.",
        "undo": "Taken back, with all that came of it. It is yours again.",
        "nothing": "There is nothing of yours to take back.",
    }
)

ACTIONS = MappingProxyType(
    {"decide": "Decided", "skip": "Skipped", "undo": "Taken back", "expire": "Expired"}
)

CLASSES = MappingProxyType(
    {
        "missing_document": ("Missing document", "No document says it."),
        "retrieval": ("Retrieval", "The right chunk exists, and was not found or not used."),
        "generation": ("Generation", "The right chunk was there, and the answer is wrong."),
        "stale_document": ("Stale document", "The answer says what an outdated document says."),
        "disputed": ("Disputed", "The answer says what the document says; somebody disagrees."),
        "unclear": ("Unclear", "None of these, or not to be told."),
    }
)
"""Each class of failure: its name, and what it says."""

SIGNALS = MappingProxyType(
    {
        "thumbs_up": "thumbs up",
        "thumbs_down": "thumbs down",
        "wrong_source": "wrong source",
        "source_click": "opened a source",
        "source_skipped": "passed over a source",
        "copy": "copied it",
        "regenerate": "asked for it again",
        "rephrase": "put the question in other words",
        "contradiction": "contradicted it",
        "abandon": "went away",
        "zero_result": "nothing was found",
        "not_grounded": "not grounded",
    }
)
"""What people did, where its name is not the word for it."""

KINDS = MappingProxyType(
    {
        "correction": "Correction",
        "missing_document": "Missing document",
        "stale_document": "Stale document",
    }
)
STATES = MappingProxyType(
    {
        "open": "Open",
        "acknowledged": "Acknowledged",
        "fixed": "Fixed",
        "verified": "Verified",
        "withdrawn": "Withdrawn",
    }
)
MOVES = MappingProxyType(
    {
        "open": "Open again",
        "acknowledged": "Acknowledge",
        "fixed": "Mark as fixed",
        "verified": "Mark as verified",
        "withdrawn": "Withdraw",
    }
)
ALARMS = MappingProxyType(
    {
        "complaints": ("Complaints", "More complaints than usual rest on it."),
        "changed": ("Changed", "Its text changed since answers were drawn from it."),
        "gone": ("Gone", "It was not found lately."),
        "reviewer": ("Reviewer", "A reviewer says that it is outdated."),
    }
)

RATES = MappingProxyType(
    {
        "complained": ("Complaints", "Somebody says that the answer or a source was wrong."),
        "zero_result": ("Nothing found", "There was nothing to answer from."),
        "abstained": ("No answer", "It abstained."),
        "not_grounded": ("Not grounded", "Of the answers that were checked."),
        "rephrased": ("Asked again", "The next question said it again, or contradicted it."),
    }
)
"""What may go wrong with an answer: its name, and what it counts."""

RANKER_STATES = MappingProxyType(
    {
        "active": ("Active", "good", "It orders the pools."),
        "recommended": ("Recommended", "accent", "It passed its evaluation; nobody promoted it."),
        "shadow": ("Watched", "accent", "It orders pools for comparison only."),
        "advice": ("Too few cases", "", "An evaluation with fewer cases decides nothing."),
        "untested": ("Not tried", "", "Nobody evaluated it yet."),
        "replaced": ("Replaced", "", "It was active until a better one came."),
        "rejected": ("Rejected", "bad", "It did not pass its evaluation."),
        "rolled back": ("Rolled back", "bad", "Somebody took it back."),
    }
)
"""What became of a ranker: its name, its color, and what it says."""

_DAY = 60 * 24
_STEPS = ((1, "minute"), (60, "hour"), (_DAY, "day"), (30 * _DAY, "month"), (365 * _DAY, "year"))


def ago(then: datetime, now: datetime | None = None) -> str:
    """Return how long ago something was.

    Example:
        >>> ago(datetime(2026, 3, 1, 9, tzinfo=UTC), datetime(2026, 3, 3, 12, tzinfo=UTC))
        '2 days ago'
    """
    minutes = ((now or datetime.now(UTC)) - then).total_seconds() / 60
    if minutes < 1:
        return "just now"
    size, unit = max(step for step in _STEPS if step[0] <= minutes)
    whole = int(minutes / size)
    return f"{whole} {unit}{'' if whole == 1 else 's'} ago"


def percent(share: float | None) -> str:
    """Return a share in percent.

    Example:
        >>> percent(.256), percent(.001), percent(0), percent(None)
        ('26 %', '< 1 %', '0 %', '–')
    """
    if share is None:
        return "–"
    return "< 1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"  # noqa: PLR2004


def days(number: float | None) -> str:
    """Return a number of days.

    Example:
        >>> days(.2), days(1.4), days(96.6), days(None)
        ('< 1 day', '1 day', '97 days', '–')
    """
    if number is None:
        return "–"
    whole = round(number)
    return "< 1 day" if number < 1 else f"{whole:,} day{'' if whole == 1 else 's'}"


def seconds(duration: float | None) -> str:
    """Return a number of seconds.

    Example:
        >>> seconds(42.4), seconds(95), seconds(None)
        ('42 s', '1:35 min', '–')
    """
    if duration is None:
        return "–"
    whole = round(duration)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"  # noqa: PLR2004


def points(share: float | None) -> str:
    """Return a difference of scores in points, with its sign.

    Example:
        >>> points(.0512), points(-.3), points(0), points(None)
        ('+5.1', '−30.0', '0.0', '–')
    """
    if share is None:
        return "–"
    sign = {True: "+", False: ""}[round(share, 3) > 0]
    return f"{sign}{share * 100:.1f}".replace("-0.0", "0.0").replace("-", "−")


def span(duration: float | None) -> str:
    """Return a duration of any length.

    Example:
        >>> span(42.4), span(95), span(7_200), span(200_000), span(None)
        ('42 s', '1:35 min', '2.0 h', '2 days', '–')
    """
    if duration is None or duration < 3_600:  # noqa: PLR2004
        return seconds(duration)
    if duration < 172_800:  # noqa: PLR2004  two days
        return f"{duration / 3_600:.1f} h"
    return days(duration / 86_400)


def short_number(number: float | None) -> str:
    """Return a number as short as it may be.

    Example:
        >>> [short_number(one) for one in (3.0, .257, .001, 1234.5, None)]
        ['3', '0.26', '< 0.01', '1,234', '–']
    """
    if number is None:
        return "–"
    if number == int(number) or abs(number) >= 100:  # noqa: PLR2004
        return f"{number:,.0f}"
    if 0 < number < 0.01:  # noqa: PLR2004
        return "< 0.01"
    return f"{number:.2f}" if abs(number) < 1 else f"{number:.1f}"


def when(moment: datetime | str | None) -> Markup:
    """Return a time for a page, with how long ago it was."""
    if moment is None:
        return Markup("–")
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    exact = f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), exact, ago(at)
    )


def day(moment: datetime) -> str:
    """Return a day as short as it may be.

    Example:
        >>> day(datetime(2026, 3, 1, 9, tzinfo=UTC))
        '1 Mar'
    """
    at = moment.astimezone(UTC)
    return f"{at.day} {at:%b}"


def signal_name(said: Any) -> str:
    """Return what somebody did, in words."""
    if said["signal"] == "rating" and said.get("rating") is not None:
        return f"{said['rating']} of 5"
    return SIGNALS.get(said["signal"], said["signal"].replace("_", " "))


FILTERS = MappingProxyType(
    {
        "ago": ago,
        "when": when,
        "days": days,
        "percent": percent,
        "seconds": seconds,
        "number": short_number,
        "points": points,
        "day": day,
        "span": span,
        "signal_name": signal_name,
    }
)
"""What templates may say of a value."""
