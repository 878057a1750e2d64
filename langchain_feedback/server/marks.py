"""Which parts of an answer and of its sources are quotes that were proved."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_feedback.quotes.locate import locate_quote
from langchain_feedback.quotes.segments import Segment, segments

__all__ = ["marked_answer", "marked_chunk"]

Citations = Sequence[Mapping[str, Any]]


def marked_answer(answer: str, citations: Citations) -> list[Segment]:
    """Cut an answer at the borders of what it quotes, numbered as its citations are.

    Example:
        >>> cited = [{"chunk_id": "a", "quote": "14 days", "start": 13, "end": 20}]
        >>> [part.text for part in marked_answer("It takes 14 days.", cited)]
        ['It takes ', '14 days', '.']
    """
    return segments(answer, _found(answer, _numbered(citations)))


def marked_chunk(chunk: Mapping[str, Any], citations: Citations) -> list[Segment]:
    """Cut a chunk at the borders of what the answer quotes from it.

    Example:
        >>> cited = [{"chunk_id": "a", "quote": "14 days", "start": 13, "end": 20}]
        >>> chunk = {"chunk_id": "a", "text": "We take 14 days"}
        >>> [part.text for part in marked_chunk(chunk, cited)]
        ['We take ', '14 days']
    """
    text = str(chunk["text"])
    here = [
        (number, quote)
        for (number, quote), cited in zip(_numbered(citations), citations, strict=True)
        if cited["chunk_id"] == chunk["chunk_id"]
    ]
    return segments(text, _found(text, here))


def _numbered(citations: Citations) -> list[tuple[int, str]]:
    """Return each citation's number, from 1, with its quote."""
    return [(number, str(cited["quote"])) for number, cited in enumerate(citations, 1)]


def _found(text: str, quotes: Sequence[tuple[int, str]]) -> list[tuple[int, int, int]]:
    # Offsets are those of the text when it was quoted: what stands there now is looked for anew.
    matches = [(number, locate_quote(text, quote)) for number, quote in quotes]
    return [(match.start, match.end, number) for number, match in matches if match]
