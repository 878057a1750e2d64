"""Two tests for experiments; both count people, not questions: one person's go together."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["Difference", "design_effect", "preference", "two_rates"]

_LEAST_PEOPLE = 20


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
    """Whether that is enough for the normal approximation: 20, and 20 in each arm."""

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
    a: Iterable[tuple[str, bool]], b: Iterable[tuple[str, bool]], *, alpha: float = 0.05
) -> Difference:
    """Test whether two rates differ, of questions that different people asked.

    The variance of each is that of a ratio over people, since people were divided, not questions
    (Deng, Knoblich and Lu, "Applying the delta method in metric analytics", KDD 2018).

    Args:
        a: Who asked, and whether it was a success, of each question of this arm.
        b: The other arm's.
        alpha: The level of the interval.

    Example:
        >>> a = [(f"u{at}", at % 4 == 0) for at in range(200)]
        >>> b = [(f"v{at}", at % 2 == 0) for at in range(200)]
        >>> found = two_rates(a, b)
        >>> found.value, found.p < 0.001
        (0.25, True)
    """
    arms = [_by_person(arm) for arm in (a, b)]
    rates = [_rate(*arm) for arm in arms]
    difference = rates[1][0] - rates[0][0]
    error = math.sqrt(rates[0][1] + rates[1][1])
    width = _z(alpha) * error
    return Difference(
        value=difference,
        low=difference - width,
        high=difference + width,
        p=_two_sided(difference / error) if error else 1.0,
        people=sum(asked.size for _, asked in arms),
        enough=all(asked.size >= _LEAST_PEOPLE for _, asked in arms),
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


def _by_person(
    outcomes: Iterable[tuple[str, bool]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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


def _z(alpha: float) -> float:
    return NormalDist().inv_cdf(1 - alpha / 2)


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))
