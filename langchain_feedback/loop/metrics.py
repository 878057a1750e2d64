"""How good an order is: nDCG, recall, reciprocal rank and success, as trec_eval computes them.

A chunk is right or it is not. Each right chunk counts once, where it stands first. What has no
right chunk at all scores 0.
"""

from collections.abc import Collection, Sequence

import numpy as np

from langchain_feedback.ranking._checks import Floats

__all__ = ["mrr", "ndcg_at", "recall_at", "scores_of", "success_at"]


def ndcg_at(ranked: Sequence[str], relevant: Collection[str], k: int = 10) -> float:
    """Return the discounted gain of the first k over that of the best order, in [0, 1].

    The right chunk at rank r, from 0, gains `1 / log2(r + 2)` (Järvelin and Kekäläinen,
    "Cumulated gain-based evaluation of IR techniques", TOIS 2002).

    Args:
        ranked: Ids, best first.
        relevant: The ids of what is right.
        k: How far down it looks.

    Raises:
        ValueError: If k is below 1.

    Example:
        >>> round(ndcg_at(["a", "b"], {"b"}), 3)
        0.631
    """
    hits = _hits(ranked, relevant, k)
    best = min(k, len(set(relevant)))
    if not best:
        return 0.0
    discounts = 1 / np.log2(np.arange(max(len(hits), best)) + 2)
    return float(hits @ discounts[: len(hits)] / discounts[:best].sum())


def recall_at(ranked: Sequence[str], relevant: Collection[str], k: int = 10) -> float:
    """Return which part of what is right stands among the first k.

    Example:
        >>> recall_at(["a", "b", "c"], {"b", "c"}, k=2)
        0.5
    """
    hits = _hits(ranked, relevant, k)
    return float(hits.sum() / len(set(relevant))) if relevant else 0.0


def mrr(ranked: Sequence[str], relevant: Collection[str]) -> float:
    """Return one over the rank, from 1, of the first right chunk; 0 where there is none.

    The mean over questions is the mean reciprocal rank.

    Example:
        >>> mrr(["a", "b"], {"b"}), mrr(["a"], {"b"})
        (0.5, 0.0)
    """
    hits = _hits(ranked, relevant, max(1, len(ranked)))
    return 1 / (int(hits.argmax()) + 1) if hits.any() else 0.0


def success_at(ranked: Sequence[str], relevant: Collection[str], k: int = 10) -> float:
    """Return 1 if any of the first k is right, else 0.

    Example:
        >>> success_at(["a", "b"], {"b"}, k=1), success_at(["a", "b"], {"b"}, k=2)
        (0.0, 1.0)
    """
    return float(_hits(ranked, relevant, k).any())


def scores_of(ranked: Sequence[str], relevant: Collection[str], k: int = 10) -> dict[str, float]:
    """Return all of them by name; success is that the first one is right.

    Example:
        >>> scores_of(["b", "a"], {"b"})
        {'ndcg@10': 1.0, 'recall@10': 1.0, 'mrr': 1.0, 'success@1': 1.0}
    """
    return {
        f"ndcg@{k}": ndcg_at(ranked, relevant, k),
        f"recall@{k}": recall_at(ranked, relevant, k),
        "mrr": mrr(ranked, relevant),
        "success@1": success_at(ranked, relevant, 1),
    }


def _hits(ranked: Sequence[str], relevant: Collection[str], k: int) -> Floats:
    if k < 1:
        msg = f"k must be at least 1, got {k!r}"
        raise ValueError(msg)
    left = set(relevant)
    hits = np.zeros(min(k, len(ranked)))
    for at, one in enumerate(ranked[:k]):
        if one in left:
            left.remove(one)
            hits[at] = 1.0
    return hits
