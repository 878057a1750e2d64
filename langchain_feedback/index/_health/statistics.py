"""When are two shares, or two sets of numbers, more different than chance makes them.

Pure functions. Tests are one-sided and exact where counts are small, which they are at night.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rise", "binomial_tail", "fisher_greater", "ks", "psi", "rise", "z_of_shares"]

Floats = NDArray[np.float64] | Sequence[float]

MOST_P = 0.005
"""An alarm that means nothing: one in 200 at most."""
LEAST_POINTS = 0.02
"""A rise below this is of no concern, however sure it is."""
_BINS = 10
_SMALL = 1e-18
_ROUNDING = 1e-9
_KS_TERMS = 100
_KS_ALIKE = 0.04


class Rise(NamedTuple):
    """How a share compares with one before."""

    share: float
    before: float
    p: float
    """Of a rise at least as large, had nothing changed."""

    @property
    def is_real(self) -> bool:
        """Whether it is both sure (p < 0.005) and large enough (2 points) to act upon."""
        return self.p < MOST_P and self.share - self.before >= LEAST_POINTS - _ROUNDING

    def as_figures(self) -> dict[str, float]:
        """Return it as a report shows it."""
        return {
            "share": round(self.share, 4),
            "share_before": round(self.before, 4),
            "p": float(f"{self.p:.2g}"),
        }


def rise(hits: int, n: int, before: int, m: int) -> Rise:
    """Compare a share with one before, by Fisher's exact test.

    The usual z > 3.3 on two proportions takes one hit in 50 for an alarm where there was none in
    5,000, which happens in up to 2 % of nights without any change. The exact test has a false
    alarm in at most one night of 200 at any size, and finds as much from 200 on.

    Args:
        hits: Of `n` now.
        n: Above 0.
        before: Of `m` then.
        m: Above 0.

    Example:
        >>> rise(1, 50, 0, 5_000).is_real, rise(10, 200, 25, 5_000).is_real
        (False, True)
        >>> rise(150, 10_000, 50, 10_000).is_real  # sure, and one point
        False
    """
    return Rise(hits / n, before / m, fisher_greater(hits, n, before, m))


def fisher_greater(hits: int, n: int, before: int, m: int) -> float:
    """Return the one-sided p of Fisher's exact test for a 2 x 2 table.

    It is the chance that, of `hits + before` hits dealt to `n + m` places at random, `hits` or
    more are among the `n` (R. A. Fisher, The Design of Experiments, 1935).

    Example:
        >>> round(fisher_greater(3, 4, 1, 4), 4)  # the lady tasting tea
        0.2429
    """
    total, drawn = n + m, hits + before
    least, most = max(0, drawn - m), min(n, drawn)

    def log(x: int) -> float:
        ways = _log_choose(drawn, x) + _log_choose(total - drawn, n - x)
        return ways - _log_choose(total, n)

    def ratio(x: int) -> float:
        return (drawn - x) * (n - x) / ((x + 1) * (total - drawn - n + x + 1))

    return _tail(hits, _Counts(least, most, n * drawn / total, log, ratio))


def binomial_tail(hits: int, n: int, share: float) -> float:
    """Return the chance of `hits` or more in `n` when each hits with a known chance.

    Args:
        hits: From 0 to `n`.
        n: How many.
        share: In (0, 1).

    Example:
        >>> round(binomial_tail(2, 2, 0.5), 4), binomial_tail(0, 9, 0.1)
        (0.25, 1.0)
    """
    logs, odds = (math.log(share), math.log1p(-share)), share / (1 - share)

    def log(x: int) -> float:
        return _log_choose(n, x) + x * logs[0] + (n - x) * logs[1]

    def ratio(x: int) -> float:
        return (n - x) / (x + 1) * odds

    return _tail(hits, _Counts(0, n, n * share, log, ratio))


def z_of_shares(hits: int, n: int, before: int, m: int) -> float:
    """Return z of two proportions with their pooled variance; 0 where nothing varies.

    Example:
        >>> round(z_of_shares(1, 50, 0, 5_000), 1)
        10.0
    """
    pooled = (hits + before) / (n + m)
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return (hits / n - before / m) / deviation if deviation else 0.0


def psi(before: Floats, now: Floats) -> float:
    """Return the population stability index of two samples, in ten bins of equal old share.

    The sum over bins of `(q - p) ln(q / p)`, p and q the bins' shares before and now: the
    symmetric Kullback-Leibler divergence (Jeffreys, 1946). Half an observation is added to each
    bin, so that an empty one is no infinity; equal values fall into one bin, so there may be
    fewer. Without any change it is about 9 (1/n + 1/m): of 50 values .18, of 200 .05. The usual
    "0.2 is a shift" is meant for thousands.

    Args:
        before: Finite numbers, at least one.
        now: Finite numbers, at least one.

    Example:
        >>> psi([1, 2, 3, 4], [1, 2, 3, 4])
        0.0
        >>> psi([0.1] * 50 + [0.9] * 50, [0.9] * 100) > 1
        True
    """
    old, new = (np.asarray(values, dtype=np.float64) for values in (before, now))
    edges = np.unique(np.quantile(old, np.linspace(0, 1, _BINS + 1)[1:-1], method="lower"))
    p, q = (
        (np.bincount(np.searchsorted(edges, values, side="left"), minlength=edges.size + 1) + 0.5)
        / (values.size + 0.5 * (edges.size + 1))
        for values in (old, new)
    )
    return float(np.sum((q - p) * np.log(q / p)))


def ks(before: Floats, now: Floats) -> tuple[float, float]:
    """Return the statistic of the two-sample Kolmogorov-Smirnov test, and its p.

    D is the largest distance between the two empirical distributions; p is the limit
    `2 sum (-1)^(j-1) exp(-2 j^2 D^2 n m / (n + m))` (N. Smirnov, 1939), which is good from some
    hundred values on, and too large where many are equal.

    Args:
        before: Finite numbers, at least one.
        now: Finite numbers, at least one.

    Example:
        >>> ks([1, 2, 3, 4], [1, 2, 3, 4])
        (0.0, 1.0)
        >>> round(ks(range(500), range(100, 600))[0], 4)
        0.2
    """
    old, new = (np.sort(np.asarray(values, dtype=np.float64)) for values in (before, now))
    both = np.concatenate((old, new))
    shares = (np.searchsorted(values, both, side="right") / values.size for values in (old, new))
    distance = float(np.abs(np.subtract(*shares)).max())
    scaled = distance * math.sqrt(old.size * new.size / (old.size + new.size))
    if scaled < _KS_ALIKE:  # the sum converges too slowly there, and is 1
        return distance, 1.0
    terms = ((-1) ** (j - 1) * math.exp(-2 * (j * scaled) ** 2) for j in range(1, _KS_TERMS))
    return distance, min(1.0, max(0.0, 2 * math.fsum(terms)))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


class _Counts(NamedTuple):
    """A distribution of counts."""

    least: int
    most: int
    mean: float
    log: Callable[[int], float]
    """Of the chance of a count."""
    ratio: Callable[[int], float]
    """The chance of the next count, by that of a count."""


def _tail(hits: int, of: _Counts) -> float:
    """Return the chance of so many or more, summed from the mean outwards: terms only fall."""
    if hits <= of.least:
        return 1.0
    if hits > of.mean:
        return _sum(math.exp(of.log(hits)), (of.ratio(x) for x in range(hits, of.most)))
    below = range(hits - 2, of.least - 1, -1)
    return 1.0 - _sum(math.exp(of.log(hits - 1)), (1 / of.ratio(x) for x in below))


def _sum(term: float, ratios: Iterable[float]) -> float:
    total = term
    for ratio in ratios:
        term *= ratio
        total += term
        if term <= total * _SMALL:
            break
    return min(1.0, total)
