"""A small handbook of a hosting company, with five questions and the chunks that answer them."""

import json
from importlib.resources import files
from typing import NamedTuple

from langchain_core.documents import Document

__all__ = ["GoldenQuestion", "golden_questions", "handbook_documents", "stop_words"]


class GoldenQuestion(NamedTuple):
    """A question and the ids of the chunks that hold its answer."""

    question: str
    evidence: tuple[str, ...]


def handbook_documents() -> list[Document]:
    """Return the handbook's twelve chunks.

    Example:
        >>> chunk = handbook_documents()[3]
        >>> chunk.id, chunk.page_content
        ('refund-window', 'Ask for a refund within fourteen days of the first payment.')
    """
    rows = map(json.loads, _read("handbook.jsonl").splitlines())
    return [
        Document(
            row["text"],
            id=row["id"],
            metadata={"source": f"handbook/{row['id']}", "heading": row["title"]},
        )
        for row in rows
    ]


def golden_questions() -> list[GoldenQuestion]:
    """Return the five questions."""
    rows = json.loads(_read("golden.json"))["questions"]
    return [GoldenQuestion(row["question"], tuple(row["evidence"])) for row in rows]


def stop_words() -> list[str]:
    """Return the words that the handbook's retriever passes over."""
    words: list[str] = json.loads(_read("golden.json"))["stop_words"]
    return words


def _read(name: str) -> str:
    return (files("langchain_feedback.demo") / "data" / name).read_text(encoding="utf-8")
