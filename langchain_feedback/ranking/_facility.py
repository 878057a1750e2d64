"""Greedy weighted facility location, exact to the last digit that decides.

Each step compares the gains in linear space, within a bound of their rounding, and computes those
that are too near each other to tell anew in log space, from differences of squares of
distances: there nothing underflows, and nothing cancels. `dartboard` holds the formula.
"""

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Pool", "Rows", "greedy", "largest", "smallest"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_TIE = 1e-12
"""Gains nearer to each other than this share of the larger are a tie, which pool order breaks."""
_ROUNDING = 2e-14
"""Bounds the rounding of a linear gain, as a share of the terms that it is computed from."""
_SUMMED = 1000
"""Sums of more terms than this round more, in proportion."""
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
"""Elements of the arrays that are worked on at a time."""
_ZERO = np.zeros(())


class Pool:
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
        self._nearest_query = smallest(to_query) if size else 0.0
        self._log_scale = -relevance * self._nearest_query**2
        self._scale = math.exp(self._log_scale)
        excess = (to_query - self._nearest_query) * (to_query + self._nearest_query)
        excess *= -relevance
        self._weights: Floats = np.exp(excess, out=excess)
        if copies is not None:
            self._weights *= copies
        self._kept = self._kernel_of(between) if size <= _KEPT else None
        self._covered: Floats = np.zeros(size)
        # Of a small pool: the kernel less what is covered, all of it at a time.
        self._uncovered = self._kept if size <= _DENSE else None
        self._gains: Floats = self._first_bounds()
        """Linear gains; of a large pool, upper bounds of those that are not in question."""
        self._share = _ROUNDING * max(1.0, size / _SUMMED)
        self._rounding: Floats = self._gains * self._share
        """Upper bounds of the rounding of these, which does not shrink as they do."""
        self._most_rounding = self._share * largest(self._gains)
        self._log_bounds: Floats | None = None
        self._selected: list[int] = []
        self._buffer: Floats | None = None

    def best(self) -> tuple[int, float]:
        """Return the text of the largest gain, and the gain; -1 where nothing gains anything."""
        gains = self._gains
        if self._uncovered is None:
            self._refresh()
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
        self._selected.append(at)
        if self._uncovered is None:
            np.maximum(self._covered, self._rows(at), out=self._covered)
            self._gains[at] = 0.0
        else:
            row = self._uncovered[at].copy()
            self._buffer = np.subtract(self._uncovered, row, out=self._buffer)
            self._uncovered = np.maximum(self._buffer, _ZERO, out=self._buffer)
            self._uncovered.dot(self._weights, self._gains)
        self._rounding[at] = 0.0

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
        covered = self._covered
        if self._kept is not None and self._selected:
            covered = self._kept[self._selected].max(axis=0)
        # Where the two are equal, a distance that is smaller may have been rounded away.
        kernel[kernel < covered] = 0.0
        self._rounding[near] = self._share * (kernel @ self._weights)
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
            gains: Floats = self._kept.dot(self._weights)
            return gains
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
        most = max(batch, _BLOCK // stale.size)
        while (rows := (stale >= max(best * (1 - _TIE), _SMALLEST)).nonzero()[0]).size:
            if rows.size > batch:
                rows = rows[np.argpartition(-stale[rows], batch)[:batch]]
            uncovered = self._rows(rows)
            uncovered -= self._covered
            np.maximum(uncovered, 0.0, out=uncovered)
            fresh = uncovered @ self._weights
            stale[rows], self._gains[rows] = -1.0, fresh
            best, batch = max(best, float(fresh.max())), min(2 * batch, most)

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


def greedy(pool: Pool, k: int) -> tuple[list[int], list[float]]:
    """Select until nothing gains anything; return positions and gains."""
    chosen: list[int] = []
    gains: list[float] = []
    last = math.inf
    while k:
        at, gain = pool.best()
        if gain < 0:
            break
        chosen.append(at)
        last = min(gain, last)  # rounding aside they never grow by themselves
        gains.append(last)
        if len(chosen) == k:
            break
        pool.take(at)
    return chosen, gains


def smallest(values: Floats) -> float:
    """Return the smallest value, NaN if there is one; as a method it takes thrice as long."""
    return values.item(values.argmin())


def largest(values: Floats) -> float:
    return values.item(values.argmax()) if values.size else 0.0


def _log_sum(terms: Floats) -> Floats:
    """Return the logarithm of the sum of exponentials of each row, -inf for a row of -inf."""
    largest = terms.max(axis=1, keepdims=True)
    largest[largest == -np.inf] = 0.0
    with np.errstate(divide="ignore"):
        sums: Floats = np.log(np.exp(terms - largest).sum(axis=1)) + largest[:, 0]
    return sums
