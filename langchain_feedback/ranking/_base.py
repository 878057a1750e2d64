"""The base retriever's order as numbers from 0 to 1, on which feedback is added."""

import numpy as np

from langchain_feedback.ranking._checks import Floats, finite_number
from langchain_feedback.ranking.views import Candidates

__all__ = ["scaled_base"]


def scaled_base(
    candidates: Candidates, score_key: str | None = None, *, lower: bool = False
) -> Floats:
    """Return (C,) numbers that fall along the base's order: the first 1, the last 0.

    They are `1 / log2(2 + rank)`, or the backend's own numbers from `metadata[score_key]`,
    min-max scaled over the pool; all equal: 1. What the pool lacks gets 0.

    Ranks serve where a chunk of the pool has no finite number, and where the numbers are at
    odds with the order: then the direction is wrong, or they are another stage's (a fusion or
    a reranker came after), and a liked chunk could move down.

    Args:
        candidates: The chunks; without their documents, ranks serve.
        score_key: The metadata field with the backend's number, if one is to be used.
        lower: Whether a lower number is the better one, as of a distance.
    """
    scaled = np.zeros(len(candidates))
    pool = candidates.pool
    ranks = candidates.base_rank[pool]
    numbers = _numbers(candidates, score_key, lower=lower)[pool]
    in_order = numbers[np.argsort(ranks, kind="stable")]
    usable = np.isfinite(numbers).all() and (in_order[:-1] >= in_order[1:]).all()
    scaled[pool] = _scaled(numbers if usable else 1 / np.log2(2.0 + ranks))
    return scaled


def _numbers(candidates: Candidates, score_key: str | None, *, lower: bool) -> Floats:
    numbers = np.full(len(candidates), np.nan)
    if score_key is not None:
        for position, document in enumerate(candidates.documents):
            number = finite_number(document.metadata.get(score_key))
            if number is not None:
                numbers[position] = -number if lower else number
    return numbers


def _scaled(numbers: Floats) -> Floats:
    # Halves, so that the widest span of floats stays finite.
    halves = numbers / 2
    low, high = halves.min(initial=np.inf), halves.max(initial=-np.inf)
    return (halves - low) / (high - low) if high > low else np.ones_like(numbers)
