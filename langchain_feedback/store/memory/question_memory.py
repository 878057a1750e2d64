"""The nearest past questions, in memory.

Exact by NumPy up to `hnsw_above` questions. Above it a graph proposes candidates (`hnsw.py`),
and their cosines are computed exactly. Nothing locks a search out: a search reads one view, rows
are only ever appended behind what a view covers, and whoever changes something publishes a new
view.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from langchain_feedback.store.forks import renew_after_fork
from langchain_feedback.store.memory.hnsw import Hnsw, HnswBuilder, Snapshot
from langchain_feedback.store.memory.question_rows import Rows, units_of

__all__ = ["MemoryChanges", "QuestionMemory"]

_TAIL = 4096
"""So many of the newest questions may stay outside of the graph: their scan takes half a ms."""
_BLOCK = 4096
"""Rows that are normalized at a time, in double precision."""


@dataclass(frozen=True, eq=False)
class MemoryChanges:
    """What a database holds that the memory lacks."""

    epoch: int
    """Another number than before: what the memory holds is void (rows were deleted, say)."""
    seq: int
    """Where the next read goes on. Reading some rows again does no harm."""
    question_ids: NDArray[np.int64]
    """Shape (N,). A known question gets the new vector; of two for one question the last."""
    vectors: NDArray[np.float32]
    """Shape (N, D), of any length. A row of zeros, or with NaN, is never found."""


class QuestionMemory:
    """Nearest past questions by cosine: exact for few, by a graph (HNSW) for many.

    Safe across threads. `refresh` brings it up to date, `search` reads it; neither waits for the
    graph, which a thread of its own builds while NumPy answers.

    Args:
        hnsw_above: Up to so many questions the search is exact. Above it faiss is needed (the
            extra `faiss`); without it the search stays exact, and the log says so once.

    Example:
        >>> memory = QuestionMemory()
        >>> found = MemoryChanges(1, 2, np.array([7, 8]), np.array([[1, 0], [3, 4]], np.float32))
        >>> memory.refresh(lambda after_seq: found)
        >>> [(question, round(cosine, 3)) for question, cosine in memory.search([0.0, 2.0])]
        [(8, 0.8), (7, 0.0)]
        >>> len(memory.search([0.0, 2.0], minimum=0.5))
        1
    """

    def __init__(self, *, hnsw_above: int = 50_000) -> None:
        if hnsw_above < 0:
            msg = f"hnsw_above must be at least 0, got {hnsw_above!r}"
            raise ValueError(msg)
        self._hnsw_above = hnsw_above
        self._view = Rows()
        self._row_of: dict[int, int] = {}
        self._epoch: int | None = None
        self._seq = 0
        self._make_locks()
        renew_after_fork(self)
        self._builder = HnswBuilder(
            self._snapshot, self._publish_graph, tail=min(_TAIL, hnsw_above)
        )

    def _make_locks(self) -> None:
        self._refreshing = threading.Lock()
        self._publishing = threading.Lock()  # taken inside of `_refreshing`, never around it

    def after_fork(self) -> None:
        """Use locks that nobody holds; what another thread was changing is read anew."""
        if self._refreshing.locked() or self._publishing.locked():
            self._epoch, self._seq, self._row_of, self._view = 0, 0, {}, Rows()
        self._make_locks()

    def __len__(self) -> int:
        """Return how many questions can be found."""
        return len(self._row_of)

    @property
    def indexed(self) -> int:
        """How many rows the graph covers; 0 while every search is exact."""
        return self._view.indexed

    def refresh(self, read: Callable[[int], MemoryChanges]) -> None:
        """Take over what `read` finds; the graph follows in the background.

        Args:
            read: Returns the changes after a sequence number. It is called a second time, with
                0, when its answer to another number shows another epoch.

        Raises:
            ValueError: If ids and vectors do not fit each other, or the vectors have another
                dimension than those held. The memory is then as before.
        """
        with self._refreshing:
            changes = read(self._seq)
            # A number that went back: the database was put back to an earlier state.
            renewed = changes.epoch != self._epoch or changes.seq < self._seq
            if renewed and self._seq:
                changes = read(0)
            _check(changes, 0 if renewed else self._view.dimension)
            if renewed or len(changes.question_ids):
                self._take(changes, renewed=renewed)
            self._epoch, self._seq = changes.epoch, changes.seq
            if self._view.count > self._hnsw_above:
                self._builder.wake()

    def search(
        self,
        vector: Sequence[float] | NDArray[np.floating],
        *,
        limit: int = 32,
        minimum: float = 0.0,
    ) -> list[tuple[int, float]]:
        """Return the nearest questions, best first, ties by question id.

        Args:
            vector: Shape (D,), of any length; one of zeros or with NaN finds nothing.
            limit: At most so many, at least 1.
            minimum: The least cosine that counts.

        Returns:
            Question ids with their cosines in [-1, 1].

        Raises:
            ValueError: If `vector` has another dimension than the questions held, or `limit`
                is below 1.
        """
        if limit < 1:
            msg = f"limit must be at least 1, got {limit!r}"
            raise ValueError(msg)
        view = self._view
        query = np.asarray(vector, np.float64)
        if not view.count:
            return []
        if query.shape != (view.dimension,):
            msg = (
                f"The vector of the question has shape {query.shape}, those of past questions "
                f"have ({view.dimension},): did another embedding model make them?"
            )
            raise ValueError(msg)
        query = units_of(query[np.newaxis])[0]
        if np.isnan(query).any():
            return []
        return view.best(query, limit, minimum)

    def wait_for_index(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until no graph is being built; say whether it is so."""
        return self._builder.wait(timeout)

    def close(self) -> None:
        """Give up a graph that is being built, and build no other; searches still work."""
        self._builder.close()

    def _take(self, changes: MemoryChanges, *, renewed: bool) -> None:
        view = self._view
        if renewed:
            view, self._row_of = Rows(generation=view.generation + 1), {}
        for start in range(0, len(changes.question_ids), _BLOCK):
            block = slice(start, start + _BLOCK)
            view = self._put(view, np.asarray(changes.question_ids)[block], changes.vectors[block])
        if len(view.stale) > max(_TAIL, view.count // 2):
            view = view.compacted()
            self._row_of = dict(zip(view.ids.tolist(), range(view.count), strict=True))
        with self._publishing:
            same_rows = view.generation == self._view.generation
            self._view = replace(view, graph=self._view.graph if same_rows else None)

    def _put(self, view: Rows, ids: NDArray[np.int64], vectors: NDArray[np.floating]) -> Rows:
        units = units_of(vectors).astype(np.float32)
        # A row is NaN as a whole or not at all.
        pointless = np.isnan(units[:, 0])
        new: list[int] = []
        gone: list[int] = []
        for question, index in dict(zip(ids.tolist(), range(len(ids)), strict=True)).items():
            row = self._row_of.get(question)
            if row is not None:
                if np.array_equal(view.vectors[row], units[index]):
                    continue
                gone.append(self._row_of.pop(question))
            if not pointless[index]:
                self._row_of[question] = view.count + len(new)
                new.append(index)
        return view.appended(ids[new], units[new], gone)

    def _snapshot(self) -> Snapshot:
        view = self._view
        return Snapshot(view.vectors[: view.count], view.generation, view.graph)

    def _publish_graph(self, graph: Hnsw, generation: int) -> None:
        with self._publishing:
            if self._view.generation == generation:
                self._view = replace(self._view, graph=graph)


def _check(changes: MemoryChanges, dimension: int) -> None:
    rows, vectors = len(changes.question_ids), changes.vectors
    if not rows:
        return
    if vectors.ndim != 2 or len(vectors) != rows or not vectors.shape[1]:  # noqa: PLR2004
        msg = f"{rows} questions need vectors of shape ({rows}, D), got {vectors.shape}"
        raise ValueError(msg)
    if dimension and vectors.shape[1] != dimension:
        msg = f"Vectors have {vectors.shape[1]} numbers, those held have {dimension}"
        raise ValueError(msg)
