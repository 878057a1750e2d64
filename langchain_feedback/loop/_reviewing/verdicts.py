"""Verdicts as reviewers give them: what they may say, and what became of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from langchain_feedback.errors import ReviewError
from langchain_feedback.loop.failures import FailureClass
from langchain_feedback.store.reviewing.items import ReviewEvent, ReviewItem
from langchain_feedback.store.reviewing.verdicts import BLAMELESS
from langchain_feedback.traces import storable

__all__ = ["Decision", "Verdict", "check_verdict", "in_force_of", "named", "text_of"]

_MOST_RIGHT = 50

Verdict = Literal["confirm", "reject", "unclear"]
"""About the system's guess: it is right, it is wrong, or that cannot be told."""


@dataclass(frozen=True)
class Decision:
    """What became of a verdict."""

    item_id: str
    seq: int
    """Its number in the item's history."""
    state: Literal["open", "decided"]
    """`open` while another reviewer must look, too: until then it does nothing."""
    pins: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    owner_items: tuple[str, ...] = ()


def in_force_of(events: Iterable[ReviewEvent], reviewer: str) -> list[ReviewEvent]:
    """Return a reviewer's entries that he has not taken back, oldest first."""
    listed = [event for event in events if event.reviewer == reviewer]
    undone = {event.undoes for event in listed if event.undoes is not None}
    return [event for event in listed if event.seq not in undone]


def named(reviewer: str) -> str:
    """Return a reviewer's name, as it is kept.

    Raises:
        ValueError: If there is none.
    """
    name = storable(reviewer).strip()
    if not name:
        msg = "A reviewer needs a name."
        raise ValueError(msg)
    return name


def text_of(said: str | None) -> str | None:
    """Return what somebody wrote, as it is kept; None where that is nothing."""
    return storable(said).strip() or None if said else None


def check_verdict(
    item: ReviewItem,
    verdict: str,
    right: Sequence[str],
    *,
    none_exists: bool,
    failure_class: str | None,
) -> None:
    """Refuse a verdict whose parts contradict each other.

    Raises:
        ValueError: If they do.
        ReviewError: If it says of a burst what can only be said of an answer.
    """
    problems: Mapping[str, bool] = {
        f"verdict is one of {', '.join(get_args(Verdict))}, got {verdict!r}": verdict
        not in get_args(Verdict),
        "Either a chunk is right, or none exists: not both.": bool(right) and none_exists,
        "The chunk that is confirmed to be wrong cannot be right, too.": verdict == "confirm"
        and (failure_class or item.failure_class) not in BLAMELESS
        and item.guess in right,
        f"At most {_MOST_RIGHT} chunks can be named.": len(right) > _MOST_RIGHT,
        f"There is no failure class {failure_class!r}.": failure_class is not None
        and failure_class not in get_args(FailureClass),
    }
    if found := next((words for words, is_so in problems.items() if is_so), None):
        raise ValueError(found)
    if item.kind == "burst" and (right or none_exists):
        msg = "Of a burst there is only to say whether it is one."
        raise ReviewError(msg)
    if item.kind == "foldback" and (right or none_exists):
        msg = "Of an answer that may be served again there is only to say whether it is right."
        raise ReviewError(msg)
