"""The search box of the review queue: chunks that hold some words."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, or_, select

from langchain_feedback.store.chunks import heading_of
from langchain_feedback.store.schema import chunks
from langchain_feedback.words import content_words, stem, tokens

__all__ = ["chunk_entry", "find_chunks"]

_MOST_WORDS, _MOST_ROWS = 8, 500


def find_chunks(
    connection: Connection, namespace: str, text: str, limit: int
) -> list[dict[str, Any]]:
    """Return the chunks that hold the most of these words, as a snapshot has them.

    The database picks 500 at most that hold one of the first eight words, newest first.
    """
    words = list(dict.fromkeys(tokens(text)))[:_MOST_WORDS]
    if not words or limit < 1:
        return []
    # What a word and its stem begin with finds its other forms, too.
    parts = [_beginning(word) for word in words]
    holds = [func.lower(chunks.c.text).contains(part, autoescape=True) for part in parts]
    rows = connection.execute(
        select(chunks)
        .where(chunks.c.namespace == namespace, or_(*holds))
        .order_by(chunks.c.last_seen.desc(), chunks.c.chunk_id)
        .limit(_MOST_ROWS)
    ).mappings()
    sought = set(content_words(text)) or set(words)
    best = sorted(rows, key=lambda row: -_share(sought, row["text"]))
    return [chunk_entry(row) for row in best[:limit]]


def chunk_entry(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a chunk as a snapshot has it."""
    metadata = json.loads(row["metadata"])
    return {
        "chunk_id": row["chunk_id"],
        "cell_id": row["cell_id"],
        "content_hash": row["content_hash"],
        "text": row["text"],
        "source": row["source"],
        "heading": heading_of(metadata),
        "url": str(metadata.get("url") or ""),
    }


def _beginning(word: str) -> str:
    """Return what a word has in common with its stem, from the start."""
    root = stem(word)
    same = next((at for at, (a, b) in enumerate(zip(word, root, strict=False)) if a != b), None)
    return word[: len(root) if same is None else same] or word


def _share(sought: set[str], text: str) -> float:
    held = set(content_words(text)) | set(tokens(text))
    return len(sought & held) / len(sought)
