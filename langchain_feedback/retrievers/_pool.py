"""The candidates of one retrieval, and what is known of them, as the policies read it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langchain_feedback.documents import chunk_key, is_derived, text_key, unique_documents
from langchain_feedback.ranking.belief import local_failure, reciprocal_rank_fusion
from langchain_feedback.ranking.views import Candidates, EvidenceView
from langchain_feedback.store.records import CellKey, Origin, PastQuestion, QuestionEvidence

__all__ = [
    "Candidate",
    "as_candidates",
    "evidence_view",
    "failing",
    "fused",
    "kernel_of",
    "kernel_weights",
    "listed",
]

_FAILS_OFTEN = 0.6


@dataclass(frozen=True)
class Candidate:
    """One chunk that may be returned."""

    document: Document
    """The retriever's own object: to be read, never changed."""
    chunk_id: str
    base_rank: int | None
    """From 0 in the base retriever's order; None where it did not return the chunk."""
    pool_rank: int
    """From 0 in the pool, whose order is not the base's where it was widened; -1: outside."""
    origin: Origin = "base"
    cell: CellKey = ("", "")
    """Whose evidence it has; nobody's until the store was asked."""
    ranker_rank: int | None = None
    """From 0 in the pool as a learned ranker ordered it; None where none did."""
    shadow_rank: int | None = None
    """As one would have that is only watched."""


def listed(documents: Iterable[Document], limit: int, id_field: str | None) -> list[Candidate]:
    """Make candidates of what the base returned: the first of each key, `limit` at most.

    Answers that were folded back are none: they would take the place of sources.
    """
    sources = (document for document in documents if not is_derived(document))
    kept = unique_documents(sources, id_field)[:limit]
    return [
        Candidate(document, chunk_key(document, id_field), rank, rank)
        for rank, document in enumerate(kept)
    ]


def fused(
    base: Iterable[Document], more: Iterable[Document], limit: int, id_field: str | None
) -> list[Candidate]:
    """Join the base's documents and the fallback's by reciprocal rank fusion."""
    own = listed(base, limit, id_field)
    # Another index may hold the same chunk under another id, or under none.
    known = {text_key(candidate.document): candidate for candidate in own}
    by_key = {candidate.chunk_id: candidate for candidate in own}
    others = []
    for found in listed(more, limit, id_field):
        same = by_key.get(found.chunk_id) or known.get(text_key(found.document))
        others.append(same.chunk_id if same else found.chunk_id)
        if not same:
            by_key[found.chunk_id] = Candidate(found.document, found.chunk_id, None, 0, "widened")
    order = reciprocal_rank_fusion([[candidate.chunk_id for candidate in own], others])
    return [
        Candidate(one.document, one.chunk_id, one.base_rank, rank, one.origin)
        for rank, one in enumerate(by_key[key] for key in list(order)[:limit])
    ]


def as_candidates(chunks: Sequence[Candidate]) -> Candidates:
    """Return them as a policy reads them."""
    ranks = np.array([chunk.pool_rank for chunk in chunks], dtype=np.intp)
    return Candidates(ranks, [chunk.document for chunk in chunks])


def evidence_view(evidence: QuestionEvidence, columns: Sequence[CellKey]) -> EvidenceView:
    """Spread the evidence out: past questions by the chunks of these cells."""
    rows = {question.question_id: row for row, question in enumerate(evidence.questions)}
    places: dict[CellKey, list[int]] = {}
    for column, key in enumerate(columns):
        # Copies of a text in one index share their evidence.
        places.setdefault(key, []).append(column)
    positive = np.zeros((len(rows), len(columns)))
    negative = np.zeros_like(positive)
    for cell in evidence.cells:
        row = rows.get(cell.question_id)
        if row is not None and (at := places.get(cell.key)):
            positive[row, at] = cell.positive
            negative[row, at] = cell.negative
    return EvidenceView(
        similarity=np.array([_cosine(question) for question in evidence.questions]),
        exact=np.array([question.exact for question in evidence.questions], dtype=np.bool_),
        positive=positive,
        negative=negative,
    )


def kernel_of(policy: Any) -> Any | None:
    """Return how a policy weighs past questions, or None: the identical one only."""
    return getattr(policy, "kernel", None) if policy.needs == "evidence" else None


def kernel_weights(policy: Any, questions: Sequence[PastQuestion]) -> NDArray[np.float64]:
    """Return (Q,) how much each past question says about this one, in [0, 1]."""
    exact = np.array([question.exact for question in questions], dtype=np.bool_)
    kernel = kernel_of(policy)
    if kernel is None:
        return exact.astype(np.float64)
    similarity = np.array([_cosine(question) for question in questions])
    return np.where(exact, 1.0, kernel(similarity))


def failing(policy: Any, questions: Sequence[PastQuestion]) -> bool:
    """Tell whether answers to questions like this one failed more often than not."""
    if not questions:
        return False
    share = local_failure(
        kernel_weights(policy, questions),
        [question.positive for question in questions],
        [question.negative for question in questions],
    )
    return share is not None and share > _FAILS_OFTEN


def _cosine(question: PastQuestion) -> float:
    # Rounding may carry it past 1.
    return min(1.0, max(-1.0, question.similarity))
