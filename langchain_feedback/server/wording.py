"""What the database holds, in the words of the pages."""

from types import MappingProxyType
from typing import Any

from langchain_feedback.server.figures import (
    ago,
    day,
    days,
    percent,
    points,
    seconds,
    short_number,
    span,
    when,
)

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
        "foldback": (
            (
                "confirm",
                "1",
                "Serve it",
                "The answer is right, and its sources say so: the next fold-back run serves them",
            ),
            ("reject", "2", "Never", "It is not to be served again"),
            ("unclear", "3", "Unclear", "It waits, and is not served"),
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
