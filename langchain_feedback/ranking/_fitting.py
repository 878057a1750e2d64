"""Fit the table of a `CalibratedKernel`; the method stands in `CalibratedKernel.fit`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_feedback.errors import NotEnoughFeedbackError
from langchain_feedback.ranking._checks import Floats, cosines, floats, in_range, same_shape

__all__ = ["fitted_points"]

_PAIRS_A_BIN = 25
_MOST_BINS = 50
_UNRELATED = 0.9
"""Bins of a lower mean cosine stand for random pairs on one chunk."""
_ONE_SIDED = 1.64
"""Standard errors between an estimate and its one-sided 95 % bound."""


class _Pairs(NamedTuple):
    similarity: Floats
    weight: Floats
    """Product of the two convictions; the mean is 1."""
    good: Floats
    """Share of the two that are in favor: 0, .5 or 1."""

    @property
    def split(self) -> Floats:
        """1 where the two are at odds, else 0."""
        return 1 - abs(2 * self.good - 1)


class _Bins(NamedTuple):
    mean: Floats
    """Mean similarity."""
    highest: Floats
    """Highest similarity."""
    observed: Floats
    """Weight of the pairs that are at odds."""
    expected: Floats
    """The same by chance."""


def fitted_points(
    similarity: ArrayLike, first: ArrayLike, second: ArrayLike, *, minimum_pairs: int
) -> tuple[tuple[float, float], ...]:
    """Return (similarity, weight) points, rising in both."""
    pairs = _pairs(similarity, first, second)
    count = len(pairs.weight)
    needed = max(minimum_pairs, 1)
    if count < needed:
        msg = (
            f"{needed} pairs of rated questions that share a chunk are needed, and there are "
            f"{count}. Until then use a LinearKernel."
        )
        raise NotEnoughFeedbackError(msg)
    good = float(np.average(pairs.good, weights=pairs.weight))
    if good in (0.0, 1.0):
        msg = "All votes say the same, so nothing shows what chance is. Use a LinearKernel."
        raise NotEnoughFeedbackError(msg)
    bins = _binned(pairs, good)
    spread = float(np.mean(pairs.weight**2))
    weights = _lower_bounds(bins.observed, bins.expected * _left_by_chunk(bins), spread)
    # What a bin shows on average counts from its upper end on.
    return tuple(zip(bins.highest.tolist(), weights.tolist(), strict=True))


def _pairs(similarity: ArrayLike, first: ArrayLike, second: ArrayLike) -> _Pairs:
    at = cosines("similarity", similarity)
    one = in_range("first", floats("first", first, 1), -1, 1)
    other = in_range("second", floats("second", second, 1), -1, 1)
    same_shape(similarity=at.shape, first=one.shape, second=other.shape)
    weight = abs(one * other)
    says = weight > 0
    at, one, other, weight = at[says], one[says], other[says], weight[says]
    good = ((one > 0).astype(np.float64) + (other > 0)) / 2
    return _Pairs(at, weight / weight.mean() if len(weight) else weight, good)


def _binned(pairs: _Pairs, good: float) -> _Bins:
    count = int(np.clip(len(pairs.weight) // _PAIRS_A_BIN, 1, _MOST_BINS))
    edges = np.unique(np.quantile(pairs.similarity, np.linspace(0, 1, count + 1)[1:-1]))
    # By value: pairs of one similarity must not be parted by the order they come in.
    _, of_pair = np.unique(np.searchsorted(edges, pairs.similarity), return_inverse=True)
    weight = np.bincount(of_pair, pairs.weight)
    highest = np.full(len(weight), -1.0)
    np.maximum.at(highest, of_pair, pairs.similarity)
    # One pair of the whole log is added: a bin of good votes alone has a chance to be at odds.
    share = (np.bincount(of_pair, pairs.weight * pairs.good) + good) / (weight + 1)
    return _Bins(
        mean=np.bincount(of_pair, pairs.weight * pairs.similarity) / weight,
        highest=highest,
        observed=np.bincount(of_pair, pairs.weight * pairs.split).astype(np.float64),
        expected=weight * 2 * share * (1 - share),
    )


def _left_by_chunk(bins: _Bins) -> float:
    """Return the part of the expected disagreement that a chunk's own quality leaves, in (0, 1].

    A chunk that is good for everyone makes unrelated questions agree.
    """
    apart = bins.mean < _UNRELATED
    observed, expected = bins.observed[apart].sum(), bins.expected[apart].sum()
    return min(1.0, float((observed + 1) / (expected + 1)))


def _lower_bounds(observed: Floats, expected: Floats, spread: float) -> Floats:
    """Return how much agreement beyond chance is sure in each bin, rising, in [0, 1].

    Args:
        observed: (B,) disagreement in bins of rising similarity.
        expected: (B,) the same by chance.
        spread: Mean squared weight of a pair, where the mean is 1.
    """
    # One disagreement that the pairs do not show: thin evidence says little.
    odds, information, sizes = _falling(observed + 1, expected + 1)
    error = np.sqrt(odds * spread) / information
    sure = np.clip(1 - odds / information - _ONE_SIDED * error, 0.0, 1.0)
    # What is sure of distant questions is sure of closer ones.
    return np.repeat(np.maximum.accumulate(sure), sizes)


def _falling(parts: Floats, wholes: Floats) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Pool adjacent bins until the ratios `parts / wholes` fall; return both, and the sizes."""
    blocks: list[tuple[float, float, int]] = []
    for part, whole in zip(parts.tolist(), wholes.tolist(), strict=True):
        blocks.append((part, whole, 1))
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] <= blocks[-1][0] * blocks[-2][1]:
            (first, over, few), (second, under, more) = blocks[-2:]
            blocks[-2:] = [(first + second, over + under, few + more)]
    pooled, total, sizes = zip(*blocks, strict=True)
    return np.array(pooled), np.array(total), np.array(sizes, np.intp)
