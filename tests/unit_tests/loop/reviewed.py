"""Reviewed questions for tests of what is made of them."""

import hashlib
from datetime import UTC, datetime

from langchain_feedback.loop.labels import PoolChunk, ReviewedQuestion

WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def chunk(chunk_id, text=None, rank=0, heading=""):
    text = text or f"Text of {chunk_id}."
    digest = hashlib.sha256(text.encode()).hexdigest()
    return PoolChunk(
        chunk_id=chunk_id, cell_id=f"cell-{chunk_id}", content_hash=digest, text=text,
        source="faq.md", heading=heading, base_rank=rank, final_rank=rank,
    )  # fmt: skip


def question(number=1, *, pool=("a", "b", "c", "d"), right=("b",), wrong=("a",), **fields):
    pool = tuple(
        one if isinstance(one, PoolChunk) else chunk(one, rank=rank)
        for rank, one in enumerate(pool)
    )
    known = {
        "item_id": f"item-{number}",
        "question_id": number,
        "question": f"Question {number}?",
        "pool": pool,
        "right": right,
        "wrong": wrong,
        "none_exists": False,
        "verdict": "confirm",
        "failure_class": "retrieval",
        "reviewers": ("ann",),
        "decided_at": WHEN,
        "needs_review": False,
        "trace_id": f"t{number}",
        "answer": "An answer.",
        "correction": None,
    }
    return ReviewedQuestion(**(known | fields))


def unreviewed(number=9, **fields):
    known = {"right": (), "wrong": (), "verdict": None, "reviewers": (), "decided_at": None}
    return question(number, **(known | {"needs_review": True} | fields))
