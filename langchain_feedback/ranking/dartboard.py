"""Dartboard: of a pool, the set that together says most about the question, without repeats.

Pickett, Hartman, Bhowmick, Alam and Vempaty, "Better RAG using Relevant Information Gain" (2024),
arXiv 2407.12101: throw a dart at the question; it lands on text t with a probability that falls
with the distance, and the selected text nearest to where it landed is paid for how near it is. In
linear space the score of a set S is a weighted facility location,

    F(S) = sum over t of w_t max over i in S of K_it,
    w_t = multiplicity_t exp(-relevance_weight d_qt^2 / 2 sigma^2),
    K_it = exp(-diversity_weight d_it^2 / 2 sigma^2),

which is monotone and submodular: a greedy step takes the text of the largest marginal gain
`sum_t w_t max(0, K_it - max over selected j of K_jt)`, gains never grow, and an exact copy of
a selected text gains exactly nothing. Comparing totals (or their logarithms) instead of gains
loses every gain below about 2e-16 of the total, and with it the order.
"""

import math
import operator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from langchain_feedback.ranking._facility import Floats, Pool, Rows, greedy, largest, smallest

__all__ = ["Selection", "cosine_distances", "select"]

_FARTHEST = 2.0
_SMALLEST_SIGMA, _LARGEST_SIGMA = 1e-9, 1e9
_LARGEST_WEIGHT = 1e9


class Selection(NamedTuple):
    """What was selected, best first."""

    indices: Rows
    """Positions in the pool, shape (min(k, n),), each once."""
    gains: Floats
    """What each added to F when it was selected; never increasing, 0 or more."""


def cosine_distances(query: ArrayLike, vectors: ArrayLike) -> tuple[Floats, Floats]:
    """Return the distances of a pool to the question, and to each other.

    Equal vectors get exactly equal distances: a plain matrix product rounds them apart.

    Args:
        query: The question's vector, shape (d,), of any length but 0.
        vectors: The pool's, shape (n, d).

    Returns:
        `1 - cosine`, in [0, 2], of shapes (n,) and (n, n). The distances of a vector that is
        zero or not finite are NaN; of such a question, all of the first.

    Raises:
        ValueError: If the shapes do not fit.

    Example:
        >>> to_query, between = cosine_distances([1, 0], [[2, 0], [0, 1], [0, 0]])
        >>> to_query.tolist(), between[0].tolist()
        ([0.0, 1.0, nan], [0.0, 1.0, nan])
    """
    asked = np.asarray(query, dtype=np.float64)
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.size == 0:
        rows = rows.reshape(-1, asked.size)
    if asked.ndim != 1 or rows.ndim != 2 or rows.shape[1] != asked.size:  # noqa: PLR2004
        msg = (
            f"Expected a question's vector of shape (d,) and a pool's of shape (n, d), "
            f"got {asked.shape} and {rows.shape}: were they made by the same embeddings?"
        )
        raise ValueError(msg)
    unique, place = _unique_rows(_unit(rows))
    to_query = _as_distances(unique @ _unit(asked[None])[0])
    between = _as_distances(unique @ unique.T)
    known = ~np.isnan(np.diagonal(between))
    np.fill_diagonal(between, np.where(known, 0.0, np.nan))
    if len(unique) == len(rows):
        return to_query, between
    return to_query[place], between[np.ix_(place, place)]


def select(
    query_distances: ArrayLike,
    pair_distances: ArrayLike,
    k: int,
    *,
    sigma: float = 0.1,
    relevance_weight: float = 1.0,
    diversity_weight: float = 1.0,
    multiplicity: ArrayLike | None = None,
) -> Selection:
    """Select `k` texts of a pool, greedily by marginal gain.

    Args:
        query_distances: Of each text to the question, shape (n,); `1 - cosine` of normalized
            vectors, clipped to [0, 2].
        pair_distances: Of the texts to each other, shape (n, n), in the same unit.
        k: How many to select, 0 or more; all n where there are fewer.
        sigma: How far texts may be apart and still say the same, in the unit of the distances.
            The paper's cosine distance is half of this one, and so is its sigma: .05 there
            is .1 here. From 1e-9 to 1e9.
        relevance_weight: Multiplies the squared distances to the question; 0 or more. A larger
            one ignores what is farther from the question.
        diversity_weight: Multiplies the squared distances between texts; 0 or more. A smaller
            one takes farther texts for repeats.
        multiplicity: How many copies of each text the pool held before they were put
            together, shape (n,), above 0. Default: 1 each. Counting copies selects the same texts
            as keeping them.

    Returns:
        Positions and gains. Ties (within 1e-12 of the gain) keep the pool's order. Texts that add
        nothing come after those that do, in the pool's order; last come those that have no
        distance (NaN or infinite).

    Raises:
        ValueError: If the shapes do not fit, `k` is negative, or a setting is out of range.

    Example:
        >>> to_query = [0.3, 0.3, 0.5]  # the second is a copy of the first
        >>> between = [[0, 0, 0.6], [0, 0, 0.6], [0.6, 0.6, 0]]
        >>> chosen = select(to_query, between, 2)
        >>> chosen.indices.tolist()
        [0, 2]
        >>> [float(f"{gain:.3g}") for gain in chosen.gains]
        [0.0222, 3.73e-06]
    """
    to_query, between = _distances(query_distances, pair_distances)
    size = to_query.size
    copies = None if multiplicity is None else _copies(multiplicity, size)
    relevance = _scale("relevance_weight", relevance_weight, sigma)
    diversity = _scale("diversity_weight", diversity_weight, sigma)
    k = min(_count(k), size)
    if not k:
        return Selection(np.empty(0, dtype=np.intp), np.empty(0))
    to_query, between, known = _known(to_query, between)
    if known is not None and copies is not None:  # texts without a distance weigh nothing
        copies = copies[known]
    pool = Pool(to_query, between, copies, relevance, diversity)
    indices, gains = greedy(pool, min(k, to_query.size))
    rows = np.array(indices, dtype=np.intp)
    if known is not None:
        rows = known[rows]
    if rows.size < k:
        gains += [0.0] * (k - rows.size)
        rows = _filled(rows, known, size)[:k]
    return Selection(rows, np.array(gains))


def _filled(rows: Rows, known: Rows | None, size: int) -> Rows:
    """Append the other texts in the pool's order, those without a distance last."""
    rank = np.ones(size, dtype=np.intp)
    if known is not None:
        rank += 1
        rank[known] = 1
    rank[rows] = 0
    rest = np.argsort(rank, kind="stable")[rows.size :]
    return np.concatenate([rows, rest])


def _distances(query_distances: ArrayLike, pair_distances: ArrayLike) -> tuple[Floats, Floats]:
    to_query = np.asarray(query_distances, dtype=np.float64)
    between = np.asarray(pair_distances, dtype=np.float64)
    if to_query.ndim != 1 or (to_query.size and between.shape != (to_query.size,) * 2):
        msg = (
            "Expected distances to the question of shape (n,) and between texts of shape (n, n), "
            f"got {to_query.shape} and {between.shape}."
        )
        raise ValueError(msg)
    return to_query, between


def _known(to_query: Floats, between: Floats) -> tuple[Floats, Floats, Rows | None]:
    """Clip the distances; return also the places of texts that have them, None if all do."""
    low, high = smallest(between), largest(between)
    nearest, farthest = smallest(to_query), largest(to_query)
    if math.isfinite(low + high) and math.isfinite(nearest + farthest):
        if low < 0 or high > _FARTHEST:
            between = between.clip(0.0, _FARTHEST)
        if nearest < 0 or farthest > _FARTHEST:
            to_query = to_query.clip(0.0, _FARTHEST)
        return to_query, between, None
    known = np.isfinite(to_query) & np.isfinite(np.diagonal(between))
    # One that has no distance to another that is known.
    strange = ~np.isfinite(between) & known & known[:, None]
    known &= ~(strange.any(axis=0) | strange.any(axis=1))
    rows = np.flatnonzero(known)
    to_query, between = to_query[rows], between[np.ix_(rows, rows)]
    return to_query.clip(0.0, _FARTHEST), between.clip(0.0, _FARTHEST), rows


def _scale(name: str, weight: float, sigma: float) -> float:
    """Return what squared distances are multiplied with."""
    if not _SMALLEST_SIGMA <= sigma <= _LARGEST_SIGMA:
        msg = (
            f"sigma must be a number from {_SMALLEST_SIGMA:g} to {_LARGEST_SIGMA:g}, got {sigma!r}"
        )
        raise ValueError(msg)
    if not 0 <= weight <= _LARGEST_WEIGHT:
        msg = f"{name} must be a number from 0 to {_LARGEST_WEIGHT:g}, got {weight!r}"
        raise ValueError(msg)
    return float(weight) / (2.0 * float(sigma) ** 2)


def _copies(multiplicity: ArrayLike, size: int) -> Floats:
    copies = np.asarray(multiplicity, dtype=np.float64)
    if copies.shape != (size,) or not (np.isfinite(copies) & (copies > 0)).all():
        msg = f"multiplicity must hold {size} numbers above 0, got {multiplicity!r}"
        raise ValueError(msg)
    return copies


def _count(k: Any) -> int:
    count = operator.index(k)
    if count < 0:
        msg = f"k must be 0 or more, got {k!r}"
        raise ValueError(msg)
    return count


def _unit(vectors: Floats) -> Floats:
    """Divide rows by their length; NaN where that is impossible."""
    # By the largest entry first: the squares of very small or large ones leave the range.
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = vectors / largest
        unit: Floats = scaled / np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    unit[~np.isfinite(unit).all(axis=1)] = np.nan
    return unit + 0.0  # no -0.0, whose bytes differ


def _unique_rows(rows: Floats) -> tuple[Floats, Rows]:
    """Return the distinct rows in order, and where among them each row stands."""
    first: dict[bytes, int] = {}
    place = np.array([first.setdefault(row.tobytes(), len(first)) for row in rows], dtype=np.intp)
    firsts = np.unique(place, return_index=True)[1]
    return rows[firsts], place


def _as_distances(cosines: Floats) -> Floats:
    distances: Floats = np.subtract(1.0, cosines, out=cosines)
    return distances.clip(0.0, _FARTHEST, out=distances)
