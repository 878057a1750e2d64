"""The vectors of past questions as one search sees them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from langchain_feedback.store.memory.hnsw import Hnsw

__all__ = ["Rows", "units_of"]


@dataclass(frozen=True, eq=False)
class Rows:
    """A view of an array that grows: rows from `count` on belong to the writer alone.

    Rows are appended and never changed, so a view stays right while later ones are made.
    """

    vectors: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    """Shape (capacity, D), unit length."""
    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Shape (capacity,): the question of each row."""
    count: int = 0
    stale: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    """Rows that no longer count: their question has a newer one, or no vector."""
    generation: int = 0
    """Another number than before: the rows were numbered anew."""
    graph: Hnsw | None = None
    """Covers the first `len(graph)` rows, stale ones included."""

    @property
    def dimension(self) -> int:
        """D, or 0 when there never was a row."""
        return int(self.vectors.shape[1])

    @property
    def indexed(self) -> int:
        """How many rows the graph covers."""
        return 0 if self.graph is None else len(self.graph)

    def appended(
        self, ids: NDArray[np.int64], units: NDArray[np.float32], gone: Sequence[int]
    ) -> "Rows":
        """Return a view of these rows more, in which the rows `gone` are stale."""
        end = self.count + len(ids)
        view = self if self.count and end <= len(self.ids) else self._grown(end, units.shape[1])
        view.vectors[self.count : end] = units
        view.ids[self.count : end] = ids
        stale = np.append(self.stale, np.asarray(gone, np.intp))
        return replace(view, count=end, stale=stale)

    def _grown(self, needed: int, dimension: int) -> "Rows":
        # Pages of an empty array take no memory until they are written.
        capacity = max(needed, 2 * self.count)
        vectors, ids = np.empty((capacity, dimension), np.float32), np.empty(capacity, np.int64)
        if self.count:
            vectors[: self.count] = self.vectors[: self.count]
            ids[: self.count] = self.ids[: self.count]
        return replace(self, vectors=vectors, ids=ids)

    def compacted(self) -> "Rows":
        """Return a view of the next generation, without the stale rows and without a graph."""
        alive = np.setdiff1d(np.arange(self.count), self.stale)
        vectors, ids = self.vectors[alive], self.ids[alive]
        return Rows(vectors, ids, len(alive), generation=self.generation + 1)

    def best(
        self, query: NDArray[np.float64], limit: int, minimum: float
    ) -> list[tuple[int, float]]:
        """Return (question, cosine) of the nearest rows, best first, ties by question.

        Args:
            query: Shape (D,), unit length.
            limit: At most so many, at least 1.
            minimum: The least cosine.
        """
        rows = self._near(query.astype(np.float32), limit, minimum)
        # Not a matrix product: its sums depend on a row's place, and equal rows must stay equal.
        cosines = (self.vectors[rows] * query).sum(axis=1).clip(-1.0, 1.0)
        ids = self.ids[rows]
        order = np.lexsort((ids, -cosines))[:limit]
        order = order[cosines[order] >= minimum]
        return list(zip(ids[order].tolist(), cosines[order].tolist(), strict=True))

    def _near(self, query: NDArray[np.float32], limit: int, minimum: float) -> NDArray[np.intp]:
        """Return the rows of the best `limit`, and perhaps more."""
        scanned = self._scanned(query, limit, minimum)
        if self.graph is None:
            return scanned
        return np.concatenate([self._walked(self.graph, query, limit, minimum), scanned])

    def _scanned(self, query: NDArray[np.float32], limit: int, minimum: float) -> NDArray[np.intp]:
        """Compare all rows that the graph does not cover."""
        start = self.indexed
        # Not `@`: BLAS would use every core, and on a busy machine wait for each of them.
        similarity = np.einsum("ij,j->i", self.vectors[start : self.count], query)
        similarity[self.stale[self.stale >= start] - start] = np.nan
        # How wrong a sum of D products in single precision can be, and more than that.
        slack = (len(query) + 1) * float(np.finfo(np.float32).eps)
        rows = np.flatnonzero(similarity >= minimum - slack)
        if len(rows) > limit:
            among = similarity[rows]
            rows = rows[among >= np.partition(among, -limit)[-limit] - 2 * slack]
        return rows + start

    def _walked(
        self, graph: Hnsw, query: NDArray[np.float32], limit: int, minimum: float
    ) -> NDArray[np.intp]:
        """Ask the graph, for more as long as stale rows take the places of others."""
        wanted = limit
        while True:
            rows, least = graph.search(query, wanted)
            alive = rows[~np.isin(rows, self.stale)] if len(self.stale) else rows
            if len(alive) >= limit or least < minimum or wanted >= len(graph):
                return alive
            wanted = min(2 * wanted, len(graph))


def units_of(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scale rows, shape (N, D), to unit length; a row without a direction becomes NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.asarray(vectors, np.float64)
        # The largest number first: squares of very large or small ones leave the range.
        rows = rows / np.abs(rows).max(axis=1, keepdims=True)
        units: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return units
