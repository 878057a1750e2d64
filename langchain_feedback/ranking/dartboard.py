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

Each step compares gains in linear space within a proven error and recomputes those that are too
near each other to tell, in log space with differences of squares, where nothing underflows and
nothing cancels.
"""

import math
import operator
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Selection", "cosine_distances", "select"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_TIE = 1e-12
"""Gains nearer to each other than this share of the larger are a tie, which pool order breaks."""
_ROUNDING = 1e-14
"""Bounds the rounding of a linear gain, as a share of the terms that it is computed from."""
_COMPARED, _REPORTED = 1e-13, 1e-10
"""What share of a gain its rounding may be where another is near it, and where none is."""
_SMALLEST = 1e-200
"""Of gains below this, terms may have underflowed (weights are scaled to a largest of about 1)."""
_DENSE = 100
"""Up to this many texts, computing all gains costs less than choosing which to compute."""
_KEPT = 600
"""Up to this many texts the kernel is kept; of more, rows are computed where they are needed."""
_LIGHT = 1e-9
"""In the first bounds of a large pool, texts with this share of the weight count in full."""
_BATCH = 8
_BLOCK = 1 << 16
"""Elements of the arrays that the log space works on at a time."""
_FARTHEST = 2.0
_ZERO = np.zeros(())
_SMALLEST_SIGMA = 1e-9
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
            is .1 here.
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
    pool = _Pool(to_query, between, copies, relevance, diversity)
    indices, gains = _greedy(pool, min(k, to_query.size))
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


class _Pool:
    """The texts that can be selected, and how far the selected ones cover them.

    Weights are kept divided by the largest that one copy has, and so are gains until they are
    reported: those of a far question would all underflow.
    """

    def __init__(
        self,
        to_query: Floats,
        between: Floats,
        copies: Floats | None,
        relevance: float,
        diversity: float,
    ) -> None:
        size = to_query.size
        self._to_query, self._between, self._copies = to_query, between, copies
        self._relevance, self._diversity = relevance, diversity
        self._nearest_query = _smallest(to_query) if size else 0.0
        self._log_scale = -relevance * self._nearest_query**2
        self._scale = math.exp(self._log_scale)
        excess = (to_query - self._nearest_query) * (to_query + self._nearest_query)
        excess *= -relevance
        self._weights: Floats = np.exp(excess, out=excess)
        if copies is not None:
            self._weights *= copies
        self._kept = self._kernel_of(between) if size <= _KEPT else None
        self._covered: Floats = np.zeros(size)
        self._gains: Floats = self._first_bounds()
        """Linear gains; of a large pool, upper bounds of those that are not in question."""
        self._rounding: Floats = self._gains * _ROUNDING
        """Upper bounds of the rounding of these, which does not shrink as they do."""
        self._most_rounding = _ROUNDING * _largest(self._gains)
        self._log_bounds: Floats | None = None
        self._selected: list[int] = []
        self._buffer = np.empty_like(between) if size <= _DENSE else None

    def best(self) -> tuple[int, float]:
        """Return the text of the largest gain, and the gain; -1 where nothing gains anything."""
        gains = self._gains
        if self._buffer is None or self._kept is None:
            self._refresh()
        elif self._selected:
            buffer = np.subtract(self._kept, self._covered, out=self._buffer)
            np.maximum(buffer, _ZERO, out=buffer).dot(self._weights, gains)
        at = int(gains.argmax())
        top = gains.item(at)
        gains[at] = -1.0
        second = gains.item(gains.argmax())
        gains[at] = top
        rounding = self._rounding.item(at)
        if (
            second + rounding + self._most_rounding < top * (1 - _TIE)
            and rounding <= _REPORTED * top
            and top > _SMALLEST
        ):
            return at, top * self._scale
        at, log_gain = self._closely(top)
        return at, math.exp(log_gain + self._log_scale) if log_gain > -math.inf else -1.0

    def take(self, at: int) -> None:
        """Select a text."""
        row = self._rows(at) if self._kept is None else self._kept[at]
        np.maximum(self._covered, row, out=self._covered)
        self._selected.append(at)
        self._gains[at] = self._rounding[at] = 0.0

    def _closely(self, top: float) -> tuple[int, float]:
        """Return the text of the largest gain where another is near, and the gain's logarithm."""
        if self._log_bounds is None:
            self._log_bounds = np.full(self._gains.size, np.inf)
        if top <= _SMALLEST:
            return self._best_of(np.setdiff1d(np.arange(self._gains.size), self._selected))
        near = (self._gains + self._rounding >= top * (1 - _TIE)).nonzero()[0]
        if near.size > 1 and self._rounding[near].max() > _COMPARED * top:
            near = self._nearer(near, top)
        first = int(near[0])
        allowed = _REPORTED if near.size == 1 else _COMPARED
        if self._rounding[near].max() <= allowed * top:
            return first, math.log(self._gains[first])
        return self._best_of(near)

    def _nearer(self, near: Rows, top: float) -> Rows:
        """Leave out those of these texts of which a closer look shows that they gain less."""
        bounds = cast("Floats", self._log_bounds)
        near = near[bounds[near] >= math.log(top) - _REPORTED]
        kernel = self._rows(near)
        # Where the two are equal, a distance that is smaller may have been rounded away.
        kernel[kernel < self._covered] = 0.0
        self._rounding[near] = _ROUNDING * (kernel @ self._weights)
        self._most_rounding = float(self._rounding.max())
        return near[self._gains[near] + self._rounding[near] >= top * (1 - _TIE)]

    def _kernel_of(self, between: Floats) -> Floats:
        kernel = between * between
        kernel *= -self._diversity
        return np.exp(kernel, out=kernel)

    def _rows(self, at: int | Rows) -> Floats:
        """Return a row of the kernel, or a copy of several."""
        return self._kernel_of(self._between[at]) if self._kept is None else self._kept[at]

    def _first_bounds(self) -> Floats:
        if self._kept is not None:
            return self._kept @ self._weights
        order = self._weights.argsort()
        light = self._weights[order].cumsum() < _LIGHT * self._weights.sum()
        heavy = np.sort(order[~light])
        rest = float(self._weights[order[light]].sum())
        bounds: Floats = self._kernel_of(self._between[:, heavy]) @ self._weights[heavy]
        return bounds + rest

    def _refresh(self) -> None:
        """Bring the gains of a large pool up to date, as many as may be the largest."""
        stale = self._gains + self._rounding
        best, batch = 0.0, _BATCH
        while (rows := (stale >= max(best * (1 - _TIE), _SMALLEST)).nonzero()[0]).size:
            if rows.size > batch:
                rows = rows[np.argpartition(-stale[rows], batch)[:batch]]
            uncovered = self._rows(rows)
            uncovered -= self._covered
            np.maximum(uncovered, 0.0, out=uncovered)
            fresh = uncovered @ self._weights
            stale[rows], self._gains[rows] = -1.0, fresh
            best, batch = max(best, float(fresh.max())), 2 * batch

    def _best_of(self, rows: Rows) -> tuple[int, float]:
        """Tell near gains apart in log space."""
        best = -np.inf
        bounds = cast("Floats", self._log_bounds)
        if rows.size > _BATCH:  # the likeliest first: what is known of the others may spare them
            likeliest = np.argpartition(-bounds[rows], _BATCH)[:_BATCH]
            best = self._renew(rows[likeliest])
            rows = self._not_below(best, rows)
        best = max(best, self._renew(rows))
        if best == -np.inf:
            return int(rows[0]), best
        rows = self._not_below(best, rows)
        log_gains = bounds[rows]
        top = int(log_gains.argmax())
        if rows.size == 1:
            return int(rows[0]), best
        # Measured from the largest term, so that what all have in common rounds nothing.
        nearest = int(self._log_terms(rows[[top]], (0.0, 0.0))[0].argmax())
        origin = float(self._to_query[nearest]), float(self._between[rows[top], nearest])
        precise = self._log_sums(rows, origin)
        return int(rows[np.argmax(precise >= precise.max() - _TIE)]), best

    def _renew(self, rows: Rows) -> float:
        """Bring the bounds in log space up to date, and return the largest."""
        fresh = self._log_sums(rows, (self._nearest_query, 0.0))
        cast("Floats", self._log_bounds)[rows] = fresh
        return float(fresh.max())

    def _not_below(self, best: float, rows: Rows) -> Rows:
        """Leave out the rows whose gain is smaller for certain."""
        if best == -np.inf:
            return rows
        bounds = cast("Floats", self._log_bounds)
        return rows[bounds[rows] >= best - _TIE * (10 + abs(best))]

    def _log_sums(self, rows: Rows, origin: tuple[float, float]) -> Floats:
        """Return the logarithms of gains, less the logarithm of the term at the origin."""
        size = max(1, _BLOCK // self._to_query.size)
        blocks = [rows[start : start + size] for start in range(0, rows.size, size)]
        return np.concatenate([_log_sum(self._log_terms(block, origin)) for block in blocks])

    def _log_terms(self, rows: Rows, origin: tuple[float, float]) -> Floats:
        """Return the logarithms of the terms of gains, shape (rows, n), from an origin.

        With `a^2 - b^2 = (a - b)(a + b)` each is as exact as the distances are.
        """
        asked, said = origin
        between = self._between[rows]
        terms = -self._diversity * (between - said) * (between + said)
        terms -= self._relevance * (self._to_query - asked) * (self._to_query + asked)
        if self._copies is not None:
            terms += np.log(self._copies)
        if self._selected:
            nearest = self._between[self._selected].min(axis=0)
            nearer = np.maximum(nearest - between, 0.0)
            nearer *= -self._diversity * (nearest + between)
            with np.errstate(divide="ignore"):
                terms += np.log(-np.expm1(nearer))
        return terms


def _greedy(pool: _Pool, k: int) -> tuple[list[int], list[float]]:
    """Select until nothing gains anything; return positions and gains."""
    chosen: list[int] = []
    gains: list[float] = []
    last = math.inf
    while len(chosen) < k:
        at, gain = pool.best()
        if gain < 0:
            break
        pool.take(at)
        chosen.append(at)
        last = min(gain, last)  # rounding aside they never grow by themselves
        gains.append(last)
    return chosen, gains


def _smallest(values: Floats) -> float:
    """Return the smallest value, NaN if there is one; as a method it takes thrice as long."""
    return values.item(values.argmin())


def _largest(values: Floats) -> float:
    return values.item(values.argmax()) if values.size else 0.0


def _log_sum(terms: Floats) -> Floats:
    """Return the logarithm of the sum of exponentials of each row, -inf for a row of -inf."""
    largest = terms.max(axis=1, keepdims=True)
    largest[largest == -np.inf] = 0.0
    with np.errstate(divide="ignore"):
        sums: Floats = np.log(np.exp(terms - largest).sum(axis=1)) + largest[:, 0]
    return sums


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
    low, high = _smallest(between), _largest(between)
    nearest, farthest = _smallest(to_query), _largest(to_query)
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
    if not _SMALLEST_SIGMA <= sigma < np.inf:
        msg = f"sigma must be a number from {_SMALLEST_SIGMA} up, got {sigma!r}"
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
