"""Cut texts at the borders of what was cited."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["Citations", "Segment", "answer_segments", "segments", "source_segments"]

Citations = Sequence[Mapping[str, Any]]


class Segment(NamedTuple):
    """A piece of the text that is covered by the same citations throughout."""

    text: str
    numbers: tuple[int, ...]
    """The citations that cover it, in ascending order; none for text between passages."""


def segments(text: str, spans: Iterable[tuple[int, int, int]]) -> list[Segment]:
    """Cut a text at the borders of spans, which may touch and overlap.

    Args:
        text: The text; joined, the segments are the text again.
        spans: Triples of start, end (in code points) and the citation's number. What
            lies outside the text is ignored.

    Example:
        >>> segments("abcdef", [(0, 3, 1), (2, 5, 2)])  # doctest: +NORMALIZE_WHITESPACE
        [Segment(text='ab', numbers=(1,)), Segment(text='c', numbers=(1, 2)),
         Segment(text='de', numbers=(2,)), Segment(text='f', numbers=())]
    """
    kept = [(max(start, 0), min(end, len(text)), number) for start, end, number in spans]
    kept = [span for span in kept if span[0] < span[1]]
    borders = sorted({0, len(text), *(at for start, end, _ in kept for at in (start, end))})
    found: list[Segment] = []
    for here, there in pairwise(borders):
        numbers = tuple(sorted({n for start, end, n in kept if start <= here and there <= end}))
        before = found.pop() if found and found[-1].numbers == numbers else Segment("", numbers)
        found.append(Segment(before.text + text[here:there], numbers))
    return found


def source_segments(text: str, chunk_id: str, citations: Citations) -> list[Segment]:
    """Cut a chunk's text into proved passages and what stands between them.

    Example:
        >>> cited = {"chunk_id": "a", "start": 3, "end": 6, "quote": "one", "verified": True}
        >>> [segment.text for segment in source_segments("No one.", "a", [cited])]
        ['No ', 'one', '.']
    """
    spans = [
        (citation["start"], citation["end"], number)
        for number, citation in enumerate(citations, 1)
        if citation["verified"] and citation["chunk_id"] == chunk_id
        # A document that has changed since proves nothing by what stands there now.
        if text[citation["start"] : citation["end"]] == citation["quote"]
    ]
    return segments(text, spans)


def answer_segments(answer: str, citations: Citations) -> list[Segment]:
    """Cut an answer into the parts that have citations, verified or not, and the rest.

    A citation of the answer as a whole (with an empty claim) covers no part.
    """
    spans = [
        (citation["answer_start"], citation["answer_end"], number)
        for number, citation in enumerate(citations, 1)
        if answer[citation["answer_start"] : citation["answer_end"]] == citation["claim"]
    ]
    return segments(answer, spans)
