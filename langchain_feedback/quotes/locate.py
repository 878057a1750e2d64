"""Find a quote in the chunk that it is said to come from, or say that it is not there.

Lenient on how text looks (see `folding`), strict on what it says: every word, number
and sign of the quote must stand in the chunk, in order and in a row. Time is linear in
the chunk; no pattern is ever built from the quote.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice, pairwise
from typing import NamedTuple

from langchain_feedback.quotes.folding import Folded, fold, has_markup
from langchain_feedback.words import content_words, tokens

__all__ = ["QuoteMatch", "locate_quote"]

_MIN_WORDS = 2
_MIN_UNSPACED = 4
_MIN_PIECE_WORDS = 3
_MAX_PIECES = 8
_MAX_GAP = 400
_MAX_TRIES = 1_000
_SEPARATOR = "\x1f"

_ELLIPSIS = re.compile(r"[\[(]?\s*(?:…|\.{3,}|(?:\. ){2,}\.)\s*[\])]?")
_ESCAPES = re.compile(r"\\[nrt]|\\(?=[\"'\\/])")
# What a gap may not hide: words that turn or limit what is said around them.
_TURNS = frozenset(
    """not no never none nor neither cannot without unless except excluding only but however if
    until provided although though despite nicht kein keine keinen nie ohne außer nur aber wenn
    ne pas jamais sans sauf seulement mais si nunca sin salvo excepto solo pero non mai senza
    tranne ma não nunca sem exceto mas""".split()
)
_TAIL = {
    **dict.fromkeys(".!?。！？…؟।", "end"),
    **dict.fromkeys(",;:，；：、،؛", "pause"),
    **dict.fromkeys("\"'”’»」』)]）】", "close"),
}
# Emphasis may stand between a word and its marks.
_EMPHASIS = frozenset("*_`~")
_OUTER = re.compile(r"(?:[*_`~]|</?[a-zA-Z][a-zA-Z0-9]{0,9}>)*")
_HEAD = frozenset("\"'“‘„«「『([（【")


class QuoteMatch(NamedTuple):
    """A quote's place in the chunk."""

    start: int
    """Offset of the passage in the chunk, in code points."""
    end: int
    """Offset behind the passage."""
    text: str
    """The passage as it stands in the chunk."""
    occurrences: int
    """How often it stands there, at least 1."""


def locate_quote(chunk: str, quote: str) -> QuoteMatch | None:
    r"""Find `quote` in `chunk`, or return None.

    Typography makes no difference: white space, line breaks and the hyphens at them,
    curly quotes, dashes, soft punctuation, Markdown, HTML tags and entities, footnote
    marks, ligatures, width, composed or decomposed accents, invisible characters, and
    case (though an occurrence in the quote's own case comes first). Everything else
    does: words, digits, signs such as `%`, `-` and `€`, accents, and the points and
    commas inside a number.

    A passage starts and ends at the boundaries of words, numbers and compounds; none
    are needed inside scripts without spaces. A quote must hold 2 words, one of them
    with content, or 4 characters of such a script. An ellipsis may stand for up to
    400 characters between pieces of 3 words or more, unless they hold a word that
    turns the meaning, such as "not" or "unless".

    Args:
        chunk: The source text.
        quote: The passage as somebody wrote it down.

    Returns:
        The first occurrence, with the source's own wording.

    Example:
        >>> locate_quote("Refunds take\n  **14 days**.", "refunds take 14 days")
        QuoteMatch(start=0, end=24, text='Refunds take\n  **14 days', occurrences=1)
        >>> locate_quote("Refunds take 14 days.", "Refunds take 41 days") is None
        True
    """
    for text in _readings(quote):
        # Markup of the quote's own must be the chunk's, to the letter.
        markup = not has_markup(text)
        folded = fold(text, markup=markup)
        if not _says_enough(folded, text):
            continue
        source = fold(chunk, markup=markup)
        if found := _find(source, folded):
            return _match(chunk, text, source, folded, found)
        if match := _find_pieces(chunk, text, source):
            return match
    return None


def _readings(quote: str) -> Iterator[str]:
    """Yield the quote, and what it says where its line breaks are written as escapes."""
    yield quote
    if "\\" in quote and (plain := _ESCAPES.sub(" ", quote)) != quote:
        yield plain


def _says_enough(folded: Folded, text: str) -> bool:
    if folded.unspaced >= _MIN_UNSPACED:
        return True
    # Two characters of a script without spaces weigh about as much as a word.
    return folded.words + folded.unspaced // 2 >= _MIN_WORDS and bool(content_words(text))


def _find(source: Folded, quote: Folded) -> list[int]:
    """Return the index of the first token of each occurrence, in the quote's case if it can."""
    keys, said = _rejoined(source, quote), quote.keys
    for case in (str, str.lower, str.casefold):
        occurrences = _occurrences(list(map(case, keys)), list(map(case, said)))
        found: list[int] = []
        for at in islice(occurrences, _MAX_TRIES):
            behind = at + len(said)
            overlaps = found and at < found[-1] + len(said)
            if not overlaps and _is_whole(source, at, behind):
                found.append(at)
        if found and (case is not str.casefold or _same_words(keys[found[0] :], said)):
            return found
    return []


def _same_words(keys: list[str], said: list[str]) -> bool:
    """Whether words that only full case folding makes equal are so for their capitals.

    "STRASSE" is "Straße", but "Masse" is not "Maße".
    """
    return all(
        key.lower() == word.lower() or key.isupper() or word.isupper()
        for key, word in zip(keys, said, strict=False)
    )


def _rejoined(source: Folded, quote: Folded) -> list[str]:
    """Choose between the two readings of a word broken over a line: as the quote has it."""
    if not source.breaks:
        return source.keys
    said = {key.casefold() for key in quote.keys}
    keys = list(source.keys)
    for at, hyphened in source.breaks.items():
        if hyphened.casefold() in said:
            keys[at] = hyphened
    return keys


def _occurrences(keys: list[str], wanted: list[str]) -> Iterator[int]:
    if not wanted:
        return
    text = _SEPARATOR.join(["", *keys, ""])
    sought = _SEPARATOR.join(["", *wanted, ""])
    starts = list(accumulate((len(key) + 1 for key in keys), initial=0))
    at = text.find(sought)
    while at >= 0:
        yield bisect_right(starts, at) - 1
        at = text.find(sought, at + 1)


def _is_whole(source: Folded, first: int, behind: int) -> bool:
    cut_after = behind < len(source.keys) and source.glued[behind]
    return not (source.glued[first] or cut_after)


def _match(chunk: str, text: str, source: Folded, quote: Folded, found: list[int]) -> QuoteMatch:
    first, last = found[0], found[0] + len(quote.keys) - 1
    start, end = source.spans[first][0], source.spans[last][1]
    start = _with_head(chunk, start, text[: quote.spans[0][0]])
    end = _with_tail(chunk, end, text[quote.spans[-1][1] :])
    return QuoteMatch(start, end, chunk[start:end], len(found))


def _with_tail(chunk: str, end: int, said: str) -> int:
    """Take in the marks behind the last word that the quote has there as well."""
    at = end
    for mark in said:
        kind = _TAIL.get(mark)
        behind = _OUTER.match(chunk, at).end()  # type: ignore[union-attr]
        if kind is not None and behind < len(chunk) and _TAIL.get(chunk[behind]) == kind:
            at = behind + 1
    return at


def _with_head(chunk: str, start: int, said: str) -> int:
    at = start
    for mark in reversed(said):
        before = at
        while before > 0 and chunk[before - 1] in _EMPHASIS:
            before -= 1
        if mark in _HEAD and before > 0 and chunk[before - 1] in _HEAD:
            at = before - 1
    return at


def _find_pieces(chunk: str, text: str, source: Folded) -> QuoteMatch | None:
    """Find the pieces of a quote with ellipses, in order and near to each other."""
    pieces = [fold(piece) for piece in _ELLIPSIS.split(text)]
    pieces = [piece for piece in pieces if piece.keys]
    is_split = _ELLIPSIS.search(text) is not None
    if not is_split or not 0 < len(pieces) <= _MAX_PIECES:
        return None
    if len(pieces) > 1 and any(not _is_piece(piece) for piece in pieces):
        return None
    ways = [[at] for at in _find(source, pieces[0])]
    for before, piece in pairwise(pieces):
        found = _find(source, piece)
        ways = list(_extended(chunk, source, ways, found, len(before.keys)))
    if not ways:
        return None
    first, last = ways[0][0], ways[0][-1] + len(pieces[-1].keys) - 1
    start, end = source.spans[first][0], source.spans[last][1]
    return QuoteMatch(start, end, chunk[start:end], len(ways))


def _is_piece(piece: Folded) -> bool:
    return piece.words >= _MIN_PIECE_WORDS or piece.unspaced >= _MIN_UNSPACED


def _extended(
    chunk: str, source: Folded, ways: list[list[int]], found: list[int], length: int
) -> Iterator[list[int]]:
    """Add to each way the nearest next piece that it may lead to."""
    for way in ways:
        behind = way[-1] + length
        following = bisect_left(found, behind)
        if following == len(found):
            return
        at = found[following]
        gap = chunk[source.spans[behind - 1][1] : source.spans[at][0]]
        if len(gap) <= _MAX_GAP and not _turns(gap):
            yield [*way, at]


def _turns(gap: str) -> bool:
    return any(word in _TURNS or word.endswith("n't") for word in tokens(gap))
