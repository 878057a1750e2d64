"""Which chunks people hold to answer which questions: pins and beliefs, of many at once."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, select

from langchain_feedback.ranking.belief import belief
from langchain_feedback.ranking.kernels import LinearKernel
from langchain_feedback.store.evidence import aged, batched
from langchain_feedback.store.half_life import read_half_life
from langchain_feedback.store.reading import PIN_WEIGHT
from langchain_feedback.store.records import CellKey
from langchain_feedback.store.schema import ANSWER, chunks, evidence, pins, questions

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["LEAST_BELIEF", "LikedChunk", "liked_chunks"]

LEAST_BELIEF = 0.1
"""From where on a chunk is held to answer a question."""

_NEIGHBORS = 32

Weights = Mapping[int, float]
Cells = dict[CellKey, tuple[float, float]]


@dataclass(frozen=True)
class LikedChunk:
    """A chunk that people hold to answer a question, and that still has that text."""

    key: CellKey
    """Its cell: see `CellKey`."""
    chunk_id: str
    """Its id where it was last seen."""
    source: str
    belief: float
    """In [.1, 1], or less for a pinned one that was voted down."""
    pinned: bool
    """Whether a reviewer pinned it for this very question."""


def liked_chunks(
    store: "FeedbackStore", connection: Connection, question_ids: Iterable[int], now: datetime
) -> dict[int, list[LikedChunk]]:
    """Return the chunks that are pinned for some questions, or whose belief is at least .1.

    The belief is that of `ranking.belief.belief`, from the evidence of the question and, where
    the store has their vectors, of similar ones, weighed by the default kernel. A handful of
    statements for any number of questions up to 500, and as many again for each further 500.

    Args:
        store: Whose namespace, and whose memory of questions.
        connection: A transaction.
        question_ids: Of which questions.
        now: When; older votes count less.

    Returns:
        By question, the strongest first; pinned ones before all others. Chunks whose text has
        changed since are not among them.
    """
    wanted = sorted(set(question_ids))
    weights = _weights(store, connection, wanted)
    every = sorted({other for known in weights.values() for other in known})
    cells, pinned = _cells(connection, every, now)
    found = {one: _beliefs(weights[one], cells) for one in wanted}
    named = {key for beliefs in found.values() for key in beliefs}
    named |= {key for one in wanted for key in pinned[one]}
    there = _there(connection, store.namespace, named)
    return {
        one: sorted(
            (
                LikedChunk(key, *there[key], found[one].get(key, 0.0), key in pinned[one])
                for key in found[one].keys() | pinned[one]
                if key in there
            ),
            key=lambda liked: (not liked.pinned, -liked.belief, liked.key),
        )
        for one in wanted
    }


def _weights(
    store: "FeedbackStore", connection: Connection, wanted: Sequence[int]
) -> dict[int, Weights]:
    """Return how much past questions say of each: itself 1, similar ones by the kernel."""
    kernel = LinearKernel()
    weights: dict[int, dict[int, float]] = {one: {one: 1.0} for one in wanted}
    memories: dict[str, Any] = {}
    for page in batched(wanted):
        columns = (questions.c.question_id, questions.c.vector, questions.c.embedder)
        mine = questions.c.question_id.in_(page) & questions.c.vector.is_not(None)
        for row in connection.execute(select(*columns).where(mine)):
            # Vectors of another model than the store's are never compared.
            if row.embedder.rpartition(":")[0] != store._embedder:  # noqa: SLF001  ours
                continue
            if row.embedder not in memories:
                memories[row.embedder] = store._memory(connection, row.embedder)  # noqa: SLF001
            vector = np.frombuffer(row.vector, dtype="<f4")
            memory = memories[row.embedder]
            for other, cosine in memory.search(vector, limit=_NEIGHBORS, minimum=kernel.minimum):
                at_most = float(kernel([min(1.0, cosine)])[0])
                weights[row.question_id].setdefault(other, at_most)
    return dict(weights)


def _cells(
    connection: Connection, question_ids: Sequence[int], now: datetime
) -> tuple[dict[int, Cells], dict[int, set[CellKey]]]:
    """Return what was said of chunks under each question, aged, and what is pinned for it."""
    cells: dict[int, Cells] = defaultdict(dict)
    pinned: dict[int, set[CellKey]] = defaultdict(set)
    half_life = read_half_life(connection)
    for page in batched(question_ids):
        voted = evidence.c.question_id.in_(page) & (evidence.c.chunk_id != ANSWER)
        rows = connection.execute(select(evidence).where(voted)).all()
        for row, kept in zip(rows, aged([row.as_of for row in rows], now, half_life), strict=True):
            key = row.chunk_id, row.content_hash
            cells[row.question_id][key] = row.positive * kept, row.negative * kept
        still = pins.c.question_id.in_(page) & pins.c.retracted_at.is_(None)
        for row in connection.execute(select(pins).where(still)):
            key = row.chunk_id, row.content_hash
            good, bad = cells[row.question_id].get(key, (0.0, 0.0))
            cells[row.question_id][key] = good + PIN_WEIGHT, bad
            pinned[row.question_id].add(key)
    return cells, pinned


def _beliefs(weights: Weights, cells: Mapping[int, Cells]) -> dict[CellKey, float]:
    """Return the chunks whose belief is high enough, under one question."""
    past = [one for one in weights if one in cells]
    keys = sorted({key for one in past for key in cells[one]})
    if not keys:
        return {}
    counted = np.array([[cells[one].get(key, (0.0, 0.0)) for key in keys] for one in past])
    values = belief([weights[one] for one in past], counted[:, :, 0], counted[:, :, 1])
    joined = zip(keys, values.tolist(), strict=True)
    return {key: value for key, value in joined if value >= LEAST_BELIEF}


def _there(
    connection: Connection, namespace: str, keys: Iterable[CellKey]
) -> dict[CellKey, tuple[str, str]]:
    """Return the id and the source of the chunks that still have the text of these cells."""
    wanted = set(keys)
    found: dict[CellKey, tuple[str, str]] = {}
    for page in batched(sorted({cell_id for cell_id, _ in wanted})):
        columns = (chunks.c.cell_id, chunks.c.content_hash, chunks.c.chunk_id, chunks.c.source)
        mine = (chunks.c.namespace == namespace) & chunks.c.cell_id.in_(page)
        newest_last = (chunks.c.last_seen, chunks.c.chunk_id)
        for row in connection.execute(select(*columns).where(mine).order_by(*newest_last)):
            if (row.cell_id, row.content_hash) in wanted:
                found[row.cell_id, row.content_hash] = row.chunk_id, row.source
    return found
