"""Dartboard in 60 decimal digits: what the fast selection is compared with."""

from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import Any

__all__ = ["assert_exact", "exact_gains"]

_EXACT = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
_TIE = Decimal("1e-12")


class _Oracle:
    def __init__(self, to_query: Any, between: Any, sigma: float, **settings: Any) -> None:
        copies = settings.get("multiplicity")
        scale = 2 * Decimal(sigma) ** 2
        relevance = Decimal(settings.get("relevance_weight", 1)) / scale
        diversity = Decimal(settings.get("diversity_weight", 1)) / scale
        size = len(to_query)
        counts = [1] * size if copies is None else [float(count) for count in copies]
        self.weights = [
            (-relevance * Decimal(float(d)) ** 2).exp() * Decimal(count)
            for d, count in zip(to_query, counts, strict=True)
        ]
        distances = {float(d) for row in between for d in row}
        kernel = {d: (-diversity * Decimal(d) ** 2).exp() for d in distances}
        self.kernel = [[kernel[float(d)] for d in row] for row in between]
        self.covered = [Decimal(0)] * size

    def gain(self, at: int) -> Decimal:
        """What a text adds to what is selected."""
        rows = zip(self.weights, self.kernel[at], self.covered, strict=True)
        return sum((w * (new - old) for w, new, old in rows if new > old), Decimal(0))

    def take(self, at: int) -> None:
        self.covered = [max(pair) for pair in zip(self.covered, self.kernel[at], strict=True)]


def exact_gains(
    to_query: Any, between: Any, indices: Sequence[int], sigma: float, **settings: Any
) -> list[tuple[Decimal, Decimal, int, Decimal]]:
    """For each step: the gain of the choice, the largest, the first tied with it, the second."""
    with localcontext(_EXACT):
        oracle = _Oracle(to_query, between, sigma, **settings)
        left, steps = list(range(len(to_query))), []
        for chosen in indices:
            gains = {at: oracle.gain(at) for at in left}
            largest = max(gains.values())
            first = next(at for at in left if gains[at] >= largest * (1 - _TIE))
            others = [gain for at, gain in gains.items() if at != first]
            steps.append((gains[chosen], largest, first, max(others, default=Decimal(0))))
            oracle.take(chosen)
            left.remove(chosen)
        return steps


def assert_exact(
    selection: Any, to_query: Any, between: Any, sigma: float, **settings: Any
) -> None:
    """Each choice has the largest exact gain, ties go to the pool's first, gains are right."""
    indices = [int(at) for at in selection.indices]
    steps = exact_gains(to_query, between, indices, sigma, **settings)
    pairs = zip(indices, selection.gains.tolist(), steps, strict=True)
    for at, told, (gain, largest, first, _) in pairs:
        assert gain >= largest * (1 - _TIE), (at, first, sigma)
        assert at == first, (at, first, sigma)
        assert abs(Decimal(told) - gain) <= gain * Decimal("1e-9") + Decimal("1e-307"), sigma
