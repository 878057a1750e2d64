"""Questions that were asked before and after something changed: do they fare better now?"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from langchain_feedback.loop._triage.resting import asks_between
from langchain_feedback.ranking.kernels import Kernel, LinearKernel
from langchain_feedback.store.asking import Ask
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import questions
from langchain_feedback.store.transactions import clock, reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["RepeatReport", "mcnemar", "repeat_win_rate"]

_LEAST = 30
_SAME = 0.95


@dataclass(frozen=True)
class RepeatReport:
    """How questions fared that were asked before and after a moment."""

    pairs: int
    """Questions that were asked on both sides, and of which both times something is known."""
    won: int
    """It failed before and went well after."""
    lost: int
    """It went well before and failed after."""
    win_rate: float | None
    """`won / (won + lost)`; None below 30 of these, where it says nothing."""
    p: float | None
    """Two-sided, by McNemar's exact test; None as `win_rate`."""
    why: str
    """In a sentence, with what this comparison cannot rule out."""


def repeat_win_rate(
    store: "FeedbackStore",
    since: datetime,
    *,
    days: float = 28,
    kernel: Kernel | None = None,
    now: datetime | None = None,
) -> RepeatReport:
    """Compare questions asked in the days before a moment with the same ones asked after it.

    The same question is the identical one, or one of a kernel weight of .95 or more: with
    `LinearKernel` a cosine of .995. Of each the last time before and the first time after count,
    so that a question that is asked often counts once. An answer went well if somebody found it
    good, or it quotes its sources and was found grounded, and nobody found it bad; where nobody
    said anything and nothing was verified, nothing is known of it, and it does not count.

    Nobody was drawn by lot: whatever else changed at that time is in the numbers, and questions
    that went badly by chance go better the next time anyway. An experiment
    (`loop.experiments`) rules that out.

    Args:
        store: Where, and whose namespace.
        since: The moment, such as the `at` of an activation.
        days: How far to look on either side, above 0.
        kernel: What is the same question, by its vector; None: `LinearKernel()`.
        now: The end; None: by the database's clock.

    Raises:
        ValueError: If `days` is not above 0, or `since` has no zone.
    """
    if not days > 0:
        msg = f"days must be above 0, got {days!r}"
        raise ValueError(msg)
    if since.tzinfo is None:
        msg = f"since needs a zone, got the naive {since!r}"
        raise ValueError(msg)
    moment, span = since.astimezone(UTC), timedelta(days=days)
    with reading(store) as connection:
        end = min(moment + span, now or clock(store, connection))
        before = _known(asks_between(connection, store.namespace, moment - span, moment))
        after = _known(asks_between(connection, store.namespace, moment, end))
        asked = {ask.question_id for ask, _ in (*before, *after)}
        group = _same_questions(connection, sorted(asked), kernel or LinearKernel())
    last = {group[ask.question_id]: good for ask, good in before}
    first = {group[ask.question_id]: good for ask, good in reversed(after)}
    both = [(last[one], first[one]) for one in last if one in first]
    won, lost = (sum(pair == way for pair in both) for way in ((False, True), (True, False)))
    return _report(len(both), won, lost)


def mcnemar(won: int, lost: int) -> float:
    """Return the two-sided p of McNemar's exact test: is one as likely as the other?

    McNemar, "Note on the sampling error of the difference between correlated proportions"
    (Psychometrika, 1947), by the binomial distribution.

    Args:
        won: Pairs that differ one way, at least 0.
        lost: Pairs that differ the other way.

    Raises:
        ValueError: If one of them is below 0.

    Example:
        >>> mcnemar(0, 0), mcnemar(5, 5), mcnemar(10, 0)
        (1.0, 1.0, 0.001953125)
    """
    if won < 0 or lost < 0:
        msg = f"won and lost must be at least 0, got {won!r} and {lost!r}"
        raise ValueError(msg)
    differing = won + lost
    tail = sum(math.comb(differing, at) for at in range(min(won, lost) + 1))
    # Whole numbers are exact, also where a power of two is past what a float holds.
    return float(min(1.0, 2 * tail / 2**differing))


def _known(asks: Iterable[Ask]) -> list[tuple[Ask, bool]]:
    """Return the asks of which something is known, and whether they went well."""
    told = ((ask, _went_well(ask)) for ask in asks)
    return [(ask, good) for ask, good in told if good is not None]


def _went_well(ask: Ask) -> bool | None:
    if ask.against:
        return False
    if any(said.is_for for said in ask.said):
        return True
    if ask.status == "abstained" or ask.grounded is False:
        return False
    known = [chunk.cited for chunk in ask.prompt if chunk.cited is not None]
    return bool(ask.grounded) and any(known) if known else None


def _same_questions(connection: Connection, ids: Sequence[int], kernel: Kernel) -> dict[int, int]:
    """Return of each question the one that stands for all that are the same."""
    leader = {one: one for one in ids}
    for numbers, vectors in _vectors(connection, ids):
        for at, number in enumerate(numbers):
            # The earliest one that it is the same as stands for it, if that stands for itself.
            weights = kernel(np.clip(vectors[:at] @ vectors[at], -1, 1)) if at else np.zeros(0)
            for found in np.flatnonzero(weights >= _SAME).tolist():
                if leader[numbers[found]] == numbers[found]:
                    leader[number] = numbers[found]
                    break
    return leader


def _vectors(
    connection: Connection, ids: Sequence[int]
) -> Iterable[tuple[list[int], NDArray[np.float32]]]:
    """Yield the stored vectors, model by model."""
    rows: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for page in batched(list(ids)):
        named = questions.c.question_id.in_(page) & questions.c.vector.is_not(None)
        columns = (questions.c.question_id, questions.c.vector, questions.c.embedder)
        for row in connection.execute(
            select(*columns).where(named).order_by(questions.c.question_id)
        ):
            rows[row.embedder].append((row.question_id, row.vector))
    for found in rows.values():
        stacked = np.frombuffer(b"".join(vector for _, vector in found), dtype="<f4")
        yield [number for number, _ in found], stacked.reshape(len(found), -1)


def _report(pairs: int, won: int, lost: int) -> RepeatReport:
    differing = won + lost
    limits = "Nobody was drawn by lot: what else changed at that time is in it, too."
    if differing < _LEAST:
        why = f"Too few: {differing} of {pairs} repeated questions fared differently, and {_LEAST}"
        return RepeatReport(pairs, won, lost, None, None, f"{why} are needed. {limits}")
    p = mcnemar(won, lost)
    why = f"Of {differing} repeated questions that fared differently {won} fared better"
    return RepeatReport(pairs, won, lost, won / differing, p, f"{why} (p = {p:.3f}). {limits}")
