"""A graph for nearest neighbors of many vectors, built beside the searches that go on.

HNSW: Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using
Hierarchical Navigable Small World graphs", arXiv:1603.09320; the implementation is faiss.
"""

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from copy import copy
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_feedback.store.forks import renew_after_fork

__all__ = ["Hnsw", "HnswBuilder", "Snapshot"]

_LINKS, _BUILD_BREADTH, _SEARCH_BREADTH = 32, 80, 192
"""M, efConstruction and efSearch. Measured on 200,000 questions of 384 numbers: recall of the
nearest 32 is 1.00 where they are near (cosine about .9) and .99 where they are far (about .6),
at .5 ms a search (p95); half the search breadth gives .98, half the links .5 points less."""
_STEP = 256
"""Rows added between two looks at whether to stop: less than a tenth of a second."""

logger = logging.getLogger(__name__)


class Hnsw:
    """Unit vectors in the order of their rows; similarity is the inner product.

    Equal vectors are one node: many nodes in one place would link to each other alone, and
    a search that comes from elsewhere would never see them.

    Searches may run at once; `add` must be alone, so what is searched is never added to.

    Raises:
        ImportError: If faiss is not installed.
    """

    def __init__(self, dimension: int) -> None:
        import faiss  # noqa: PLC0415 - an extra, and slow to import

        self._faiss: Any = faiss
        self._index = faiss.IndexHNSWFlat(dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = _BUILD_BREADTH
        self._rows = 0
        self._nodes: dict[bytes, int] = {}
        self._first: list[int] = []  # by node
        self._others: dict[int, list[int]] = {}  # by node, where there are any

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def add(self, vectors: NDArray[np.float32], rows: NDArray[np.intp]) -> None:
        """Add vectors, shape (N, D), under their row numbers, shape (N,)."""
        new = []
        for offset, (vector, row) in enumerate(zip(vectors, rows.tolist(), strict=True)):
            key = blake2b(vector.tobytes(), digest_size=16).digest()
            node = self._nodes.setdefault(key, len(self._first))
            if node == len(self._first):
                self._first.append(row)
                new.append(offset)
            else:
                self._others.setdefault(node, []).append(row)
        # OpenMP keeps this number for each thread: no other thread of the process is affected.
        self._faiss.omp_set_num_threads(max(1, (os.cpu_count() or 1) // 2))
        self._index.add(vectors[new])
        self._rows += len(vectors)

    def copy(self) -> "Hnsw":
        """Return a graph of its own memory, to be added to."""
        other = copy(self)
        other._index = self._faiss.clone_index(self._index)  # noqa: SLF001
        other._nodes, other._first = self._nodes.copy(), self._first.copy()  # noqa: SLF001
        other._others = {node: rows.copy() for node, rows in self._others.items()}  # noqa: SLF001
        return other

    def search(self, query: NDArray[np.float32], limit: int) -> tuple[NDArray[np.intp], float]:
        """Return the rows of about the nearest `limit` vectors, and the least similarity.

        Args:
            query: Shape (D,). One query runs in the calling thread alone, without OpenMP.
            limit: At most so many vectors; the rows are more where vectors are equal.

        Returns:
            Rows in no order; the least similarity is -inf when there are no more vectors.
        """
        breadth = self._faiss.SearchParametersHNSW(efSearch=max(_SEARCH_BREADTH, 2 * limit))
        similarity, found = self._index.search(query[np.newaxis], limit, params=breadth)
        nodes = found[0][found[0] >= 0].tolist()
        rows = [self._first[node] for node in nodes]
        for node in self._others.keys() & nodes:
            rows += self._others[node]
        least = float(similarity[0][-1]) if len(nodes) == limit else -np.inf
        return np.array(rows, np.intp), least


class Snapshot(NamedTuple):
    """The rows that there are now."""

    vectors: NDArray[np.float32]
    """Shape (N, D); these rows never change."""
    generation: int
    """Another number than before: rows were renumbered, a graph of the old ones is void."""
    graph: Hnsw | None
    """The graph that searches use; it covers the first `len(graph)` rows."""


class HnswBuilder:
    """Builds the graph in a thread of its own, and extends it when enough rows came.

    Args:
        snapshot: Returns the rows; called from the thread.
        publish: Takes over a graph that covers all rows of a generation; called from the thread.
        tail: So many rows may stay outside of the graph.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        publish: Callable[[Hnsw, int], None],
        *,
        tail: int,
    ) -> None:
        self._snapshot, self._publish, self._tail = snapshot, publish, tail
        self.after_fork()
        renew_after_fork(self)
        self._thread: threading.Thread | None = None
        self._off = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        # Also at the interpreter's exit: it must not end below a thread that runs C++.
        self._finalizer = weakref.finalize(self, _stopped, self._stop, self._threads)

    def after_fork(self) -> None:
        """Use a lock that nobody holds."""
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Start the thread where there is something to do; return at once."""
        with self._lock:
            # After a fork the thread is there and not alive.
            busy = self._thread is not None and self._thread.is_alive()
            if busy or self._off or self._stop.is_set() or not self._due(self._snapshot()):
                return
            thread = threading.Thread(
                target=self._run, name="langchain-feedback-hnsw", daemon=True
            )
            # No thread to be had, at the end of the interpreter or above a limit: not now.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread, self._threads[:] = thread, [thread]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is being built; say whether it is so."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def close(self) -> None:
        """Stop for good, within a tenth of a second or so."""
        with self._lock:
            self._stop.set()
        self._finalizer()

    def _due(self, rows: Snapshot) -> bool:
        covered = 0 if rows.graph is None else len(rows.graph)
        return len(rows.vectors) - covered > self._tail

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                rows = self._snapshot()
                with self._lock:
                    if not self._due(rows):
                        self._thread = None
                        return
                self._build(rows)
        except ImportError:
            self._off = True
            logger.warning(
                "Past questions are compared one by one, which takes milliseconds for each "
                "100,000: install langchain-feedback[faiss] for a faster search."
            )
        except (MemoryError, RuntimeError):
            self._off = True
            logger.exception("No graph of past questions: they are compared one by one.")

    def _build(self, rows: Snapshot) -> None:
        generation = rows.generation
        graph = rows.graph.copy() if rows.graph else Hnsw(rows.vectors.shape[1])
        while len(graph) < len(rows.vectors):
            # Shuffled: topic after topic, the nodes of one would link to each other alone, and
            # a fifth of the neighbors would not be found.
            order = np.arange(len(graph), len(rows.vectors))
            np.random.default_rng(len(order)).shuffle(order)
            for start in range(0, len(order), _STEP):
                if self._stop.is_set() or self._snapshot().generation != generation:
                    return
                some = order[start : start + _STEP]
                graph.add(rows.vectors[some], some)
            rows = self._snapshot()
        self._publish(graph, generation)


def _stopped(stop: threading.Event, threads: list[threading.Thread]) -> None:
    stop.set()
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()
