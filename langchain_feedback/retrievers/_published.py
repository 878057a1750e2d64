"""What leaves a retrieval: marked copies for the caller, and a record for the store."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from langchain_core.documents import Document

from langchain_feedback.documents import copy_document
from langchain_feedback.ranking.views import Scores
from langchain_feedback.retrievers._growing import texts_of
from langchain_feedback.retrievers._pool import Candidate
from langchain_feedback.store.records import CellKey, TracedChunk
from langchain_feedback.traces import MARKS_KEY, marks_of

__all__ = ["Ranked", "enough", "in_order", "marked", "ranked", "traced"]


class Ranked(NamedTuple):
    """A candidate, and what the policy says of it as plain numbers."""

    chunk: Candidate
    score: float
    belief: float
    multiplier: float


def ranked(chunks: Sequence[Candidate], scores: Scores, order: Sequence[int]) -> list[Ranked]:
    """Return the candidates in an order, with their scores."""
    columns = (scores.score, scores.belief, scores.multiplier)
    picked = (np.asarray(column, np.float64)[list(order)].tolist() for column in columns)
    return list(map(Ranked, [chunks[at] for at in order], *picked))


def in_order(chunks: Sequence[Candidate], scores: Scores, pinned: Sequence[CellKey]) -> list[int]:
    """Return the positions of the chunks, best first: pins, oldest first, then by score."""
    first = [at for at, chunk in enumerate(chunks) if chunk.origin == "pinned"]
    first.sort(key=lambda at: pinned.index(chunks[at].cell))
    rest = [at for at in scores.order().tolist() if chunks[at].origin != "pinned"]
    return [*first, *rest]


def enough(best_first: Sequence[Ranked], k: int, texts: int) -> int:
    """Return how many are returned: `k`, doubled until they hold the texts wanted."""
    while k < len(best_first):
        if texts_of(one.chunk.document for one in best_first[:k]) >= texts:
            break
        k *= 2
    return k


def marked(one: Ranked, trace_id: str) -> Document:
    """Return a copy of a chunk that says where it comes from; others' notes there are kept."""
    copied = copy_document(one.chunk.document)
    copied.metadata["relevance_score"] = one.score
    copied.metadata[MARKS_KEY] = marks_of(copied) | {
        "trace_id": trace_id,
        "chunk_id": one.chunk.chunk_id,
        "base_rank": one.chunk.base_rank,
        "origin": one.chunk.origin,
        "belief": one.belief,
        "multiplier": one.multiplier,
    }
    if one.chunk.ranker_rank is not None:
        copied.metadata[MARKS_KEY]["ranker_rank"] = one.chunk.ranker_rank
    return copied


def traced(chunks: Sequence[Ranked], k: int, score_key: str | None) -> list[TracedChunk]:
    """Return all candidates as the store keeps them; the first `k` were returned."""
    return [
        TracedChunk(
            document=one.chunk.document,
            final_rank=rank,
            base_rank=one.chunk.base_rank,
            origin=one.chunk.origin,
            returned=rank < k,
            base_score=_base_score(one.chunk.document, score_key),
            belief=one.belief,
            multiplier=one.multiplier,
            final_score=one.score,
            ranker_rank=one.chunk.ranker_rank,
            shadow_rank=one.chunk.shadow_rank,
        )
        for rank, one in enumerate(chunks)
    ]


def _base_score(document: Document, score_key: str | None) -> float | None:
    if score_key is None:
        return None
    try:
        score = float(document.metadata[score_key])
    except (KeyError, TypeError, ValueError):
        return None
    return score if np.isfinite(score) else None
