"""Turn quotes into citations: proved by code, in one chunk or over the border of two."""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, source_of
from langchain_feedback.judges.base import Citation
from langchain_feedback.quotes.locate import locate_quote

__all__ = ["AnswerSpan", "cite"]

_MAX_GAP = 2


class AnswerSpan(NamedTuple):
    """A part of the answer; the answer as a whole where the text is empty."""

    text: str
    start: int
    end: int


class _Joined(NamedTuple):
    """Two neighbors as one text."""

    text: str
    border: int
    """Where the first one ends."""
    shift: int
    """Where the second one begins."""


def cite(
    quote: str,
    named: Document | None,
    documents: Sequence[Document],
    *,
    claim: AnswerSpan,
    id_field: str | None = None,
) -> list[Citation]:
    """Make the citations of a quote: one where it is proved, two where it runs over a border.

    The quote is looked for in the chunk that it is said to come from, then in the
    others, then over the border of chunks whose metadata show that they are
    neighbors: the same source and page with `start_index`, or one page and the next.
    One that stands nowhere cites the whole named chunk, as unverified.

    Args:
        quote: The quote as somebody wrote it down.
        named: The chunk that it is said to come from.
        documents: All chunks that it may stand in.
        claim: The part of the answer that it supports.
        id_field: The metadata field that holds a chunk's id, if any.

    Returns:
        The citations; none for an unproved quote of no known chunk.
    """
    first = [named] if named is not None else []
    for document in [*first, *(doc for doc in documents if doc is not named)]:
        if match := locate_quote(document.page_content, quote):
            span = (match.start, match.end)
            return [_citation(document, match.text, span, match.occurrences, claim, id_field)]
    for one, two in permutations(documents, 2):
        if (joined := _joined(one, two)) and (pair := _over_border(joined, quote)):
            return [
                _citation(document, document.page_content[slice(*span)], span, 1, claim, id_field)
                for document, span in zip((one, two), pair, strict=True)
            ]
    if named is None or not quote.strip():
        return []
    return [_citation(named, quote, (0, len(named.page_content)), 0, claim, id_field)]


def _over_border(joined: _Joined, quote: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    match = locate_quote(joined.text, quote)
    if match is None or not match.start < joined.border < match.end:
        return None
    behind = max(joined.border, joined.shift) - joined.shift
    return (match.start, joined.border), (behind, match.end - joined.shift)


def _joined(one: Document, two: Document) -> _Joined | None:
    """Join two chunks if the second goes on where the first ends."""
    source = one.metadata.get("source")
    if source is None or source != two.metadata.get("source"):
        return None
    pages = one.metadata.get("page"), two.metadata.get("page")
    if pages[0] == pages[1] and one.metadata.get("heading") == two.metadata.get("heading"):
        return _joined_by_start(one, two)
    this, that = pages
    is_next = isinstance(this, int) and isinstance(that, int) and that - this == 1
    if is_next and not two.metadata.get("start_index"):
        return _appended(one, two)
    return None


def _joined_by_start(one: Document, two: Document) -> _Joined | None:
    text, following = one.page_content, two.page_content
    here, there = one.metadata.get("start_index"), two.metadata.get("start_index")
    if not (isinstance(here, int) and isinstance(there, int)):
        return None
    shift = there - here
    if len(text) < shift <= len(text) + _MAX_GAP:
        return _appended(one, two)
    overlap = len(text) - shift
    if 0 < shift <= len(text) and following.startswith(text[shift:]) and overlap < len(following):
        return _Joined(text[:shift] + following, len(text), shift)
    return None


def _appended(one: Document, two: Document) -> _Joined:
    border = len(one.page_content)
    return _Joined(f"{one.page_content}\n{two.page_content}", border, border + 1)


def _citation(  # noqa: PLR0917  the parts of a citation
    document: Document,
    quote: str,
    span: tuple[int, int],
    occurrences: int,
    claim: AnswerSpan,
    id_field: str | None,
) -> Citation:
    return Citation(
        claim=claim.text,
        answer_start=claim.start,
        answer_end=claim.end,
        chunk_id=chunk_key(document, id_field),
        source=source_of(document),
        quote=quote,
        start=span[0],
        end=span[1],
        verified=occurrences > 0,
        occurrences=occurrences,
    )
