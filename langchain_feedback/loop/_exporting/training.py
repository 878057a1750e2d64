"""Rows that sentence-transformers trains on: pairs, triplets, lists.

A trainer reads every column as input, so these rows hold nothing else. Only what a reviewer
named is a positive. A question whose right chunk nobody named teaches nothing here.
"""

from collections.abc import Iterator
from typing import Any, Literal

from langchain_feedback.loop._exporting.labels import Labeled

__all__ = ["Negatives", "lists", "pairs", "triplets"]

Negatives = Literal["pool", "confirmed"]
"""`pool`: what a reviewer rejected, and then the rest of the pool, of which nobody knows for
certain; `confirmed`: the former alone."""


def pairs(question: Labeled) -> Iterator[dict[str, Any]]:
    """Yield anchor and positive, for `MultipleNegativesRankingLoss`."""
    for right in question.right:
        yield {"anchor": question.of.question, "positive": right.text}


def triplets(question: Labeled, negatives: Negatives) -> Iterator[dict[str, Any]]:
    """Yield anchor, positive and negative, the confirmed negatives first.

    The whole pool is used, not its top: the hardest negatives are the chunks that stand first,
    and who learns from those alone learns that first is wrong.
    """
    against = question.wrong + (question.others if negatives == "pool" else ())
    for pair in pairs(question):
        for wrong in against:
            yield pair | {"negative": wrong.text}


def lists(question: Labeled) -> Iterator[dict[str, Any]]:
    """Yield the whole pool with labels, for `LambdaLoss` and other losses over lists."""
    if not question.right:
        return
    yield {
        "query": question.of.question,
        "docs": [passage.text for passage in question.passages],
        "labels": [int(passage.is_right) for passage in question.passages],
    }
