"""Two tests for experiments; both count people, not questions: one person's go together."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["Difference", "design_effect", "preference", "two_rates"]

_LEAST_PEOPLE = 20
_DEALS, _AT_ONCE, _SEED = 10_000, 1_000, 20_261
_Counts = tuple[NDArray[np.float64], NDArray[np.float64]]
"""By person: successes, and questions asked."""


@dataclass(frozen=True)
class Difference:
    """What a test says of a difference, `b` less `a`."""

    value: float
    low: float
    """The least difference that the data allow, at the given level."""
    high: float
    p: float
    """Two-sided."""
    people: int
    """How many it rests on."""
    enough: bool
    """Whether that is enough for a verdict: 20, and of two rates 20 in each arm. Fewer may tell
    something of themselves, and hardly of others."""

    def winner(self, alpha: float) -> str | None:
        """Return `a` or `b`, None where the data do not tell."""
        if not self.enough or self.p > alpha:
            return None
        return "b" if self.value > 0 else "a"


def preference(outcomes: Iterable[tuple[str, int]], *, alpha: float = 0.05) -> Difference:
    """Test whether people prefer one of two retrievers in mixed lists.

    If neither is better, what a person prefers in all is as likely one as the other, and the sum
    over people over the root of their squares is normal: a sign test that lets one person's
    questions go together, and in which nobody counts more than the others allow.

    Args:
        outcomes: Who asked, and 1 for `b`, -1 for `a`, 0 for neither, of each question.
        alpha: The level of the interval.

    Example:
        >>> said = [(f"u{at}", 1 if at % 4 else -1) for at in range(40)]
        >>> found = preference(said)
        >>> found.value, round(found.p, 4), found.winner(0.05)
        (0.5, 0.0016, 'b')
    """
    by_person: dict[str, float] = {}
    asked: dict[str, int] = {}
    for person, outcome in outcomes:
        by_person[person] = by_person.get(person, 0) + outcome
        asked[person] = asked.get(person, 0) + 1
    number = sum(asked.values())
    sums = np.array([*by_person.values()], dtype=np.float64)
    total, spread = float(sums.sum()), math.sqrt(float((sums**2).sum()))
    people = int(np.count_nonzero(sums))
    mean = total / number if number else 0.0
    # The interval is about the mean that there is, the test about none.
    around = sums - mean * np.array([*asked.values()], dtype=np.float64)
    width = _z(alpha) * math.sqrt(float((around**2).sum())) / number if number else 0.0
    return Difference(
        value=mean,
        low=mean - width,
        high=mean + width,
        p=_two_sided(total / spread) if spread else 1.0,
        people=people,
        enough=people >= _LEAST_PEOPLE,
    )


def two_rates(
    a: Iterable[tuple[str, bool]],
    b: Iterable[tuple[str, bool]],
    *,
    alpha: float = 0.05,
    deals: int = _DEALS,
) -> Difference:
    """Test whether two rates differ, of questions that different people asked.

    It is a permutation test (Fisher, "The design of experiments", 1935): people were divided by
    lot, so if nothing differs, any other division of the same people was as likely. What it says
    holds for few people, too, and where some ask a hundred times as often as others: there a
    test by the normal distribution finds a difference that is none in one of seven experiments.
    The interval is what the test allows around the difference that was found. The lots are drawn
    with a fixed seed: the same answers give the same numbers.

    Args:
        a: Who asked, and whether it was a success, of each question of this arm.
        b: The other arm's.
        alpha: The level of the interval.
        deals: How many other divisions are drawn.

    Example:
        >>> a = [(f"u{at}", at % 4 == 0) for at in range(200)]
        >>> b = [(f"v{at}", at % 2 == 0) for at in range(200)]
        >>> found = two_rates(a, b)
        >>> found.value, found.p < 0.001
        (0.25, True)
    """
    arms = [_by_person(arm) for arm in (a, b)]
    asked = [float(of.sum()) for _, of in arms]
    difference = _rate(*arms[1])[0] - _rate(*arms[0])[0]
    p, width = 1.0, math.inf
    if all(asked):
        found, dealt = _excess(arms[0], arms[1], deals)
        p = float(1 + np.count_nonzero(dealt >= found)) / (1 + deals)
        width = _exceeded(dealt, alpha) / sum(asked) * sum(1 / of for of in asked)
    return Difference(
        value=difference,
        low=max(-1.0, difference - width),
        high=min(1.0, difference + width),
        p=p,
        people=sum(of.size for _, of in arms),
        enough=all(of.size >= _LEAST_PEOPLE for _, of in arms),
    )


def design_effect(outcomes: Sequence[tuple[str, bool]]) -> float:
    """Return how much more a rate varies than if each question were another person's, >= 1.

    Example:
        >>> design_effect([(f"u{at}", at % 2 == 0) for at in range(100)])
        1.0
        >>> alike = [(f"u{at}", at % 2 == 0) for at in range(100) for _ in range(4)]
        >>> round(design_effect(alike), 1)
        4.0
    """
    successes, asked = _by_person(outcomes)
    rate, variance = _rate(successes, asked)
    independent = rate * (1 - rate) / float(asked.sum()) if asked.size else 0.0
    people = asked.size
    unbiased = variance * (people - 1) / people if people else 0.0
    return max(1.0, unbiased / independent) if independent else 1.0


def _by_person(outcomes: Iterable[tuple[str, bool]]) -> _Counts:
    successes: dict[str, int] = {}
    asked: dict[str, int] = {}
    for person, success in outcomes:
        successes[person] = successes.get(person, 0) + success
        asked[person] = asked.get(person, 0) + 1
    counts = [*successes.values()], [*asked.values()]
    return np.array(counts[0], dtype=np.float64), np.array(counts[1], dtype=np.float64)


def _rate(successes: NDArray[np.float64], asked: NDArray[np.float64]) -> tuple[float, float]:
    """Return a rate over people, and its variance."""
    people = asked.size
    if not people:
        return 0.0, 0.0
    rate = float(successes.sum() / asked.sum())
    if people == 1:
        return rate, 0.0
    squares = float(((successes - rate * asked) ** 2).sum())
    return rate, squares / float(asked.sum()) ** 2 * people / (people - 1)


def _excess(a: _Counts, b: _Counts, deals: int) -> tuple[int, NDArray[np.int64]]:
    """Return how many successes one arm has more than its share, by lot and by other lots.

    All are times the number of questions: whole numbers, in which equal ones are equal.
    """
    successes, asked = (np.concatenate(pair).astype(np.int64) for pair in zip(a, b, strict=True))
    over = successes * asked.sum() - asked * successes.sum()
    # Many people are alike. How many of each kind get into an arm is hypergeometric.
    kinds, numbers = np.unique(over, return_counts=True)
    size = min(a[0].size, b[0].size)
    random = np.random.default_rng(_SEED)
    pages = []
    for start in range(0, deals, _AT_ONCE):
        drawn = random.multivariate_hypergeometric(
            numbers, size, size=min(_AT_ONCE, deals - start), method="marginals"
        )
        pages.append(np.abs(drawn @ kinds))
    return abs(int(over[: a[0].size].sum())), np.concatenate(pages)


def _exceeded(dealt: NDArray[np.int64], alpha: float) -> float:
    """Return what must be exceeded for a p of at most alpha."""
    more = math.floor(alpha * (1 + len(dealt)) + 1e-9) - 1
    return float(np.sort(dealt)[-1 - more]) if more >= 0 else math.inf


def _z(alpha: float) -> float:
    return NormalDist().inv_cdf(1 - alpha / 2)


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))
