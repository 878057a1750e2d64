"""Find a quote in the chunk that it is said to come from.

This locator is strict on words and lenient only on white space and Unicode's two
spellings of one character: line breaks and runs of spaces count as one space.
"""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

__all__ = ["QuoteMatch", "locate_quote"]

_MIN_WORDS = 2
_MIN_UNSPACED = 4

_BOUNDARY = "\0"
_IN_NUMBERS = frozenset(".,:/-‐‑–")
_IN_WORDS = frozenset("-‐‑'’")
_SIGNS = frozenset("-−–+±<>≤≥~≈$€£¥")
_UNITS = frozenset("%‰°+#$€£¥")


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

    A quote must be 2 words long, or 4 characters in a script without spaces, and
    must start and end at the boundaries of words and numbers: "within 1" is not in "within
    14 days", "500 dollars" not in "1,500 dollars", "refundable" not in "non-refundable".

    Args:
        chunk: The source text.
        quote: The passage as somebody wrote it down.

    Returns:
        The first occurrence, with the source's own wording.

    Example:
        >>> locate_quote("Refunds take\n  14 days.", "take 14 days")
        QuoteMatch(start=8, end=22, text='take\n  14 days', occurrences=1)
        >>> locate_quote("Refunds take 14 days.", "take 41 days") is None
        True
    """
    wanted = " ".join(unicodedata.normalize("NFC", quote).split())
    if not _long_enough(wanted):
        return None
    folded, spans = _fold(chunk)
    marked, places = _mark(folded)
    sought, _ = _mark(wanted)
    found = _find_all(marked, sought)
    if not found:
        return None
    # The outer marks belong to no character.
    first, last = places[found[0] + 1], places[found[0] + len(sought) - 2]
    start, end = spans[first][0], spans[last][1]
    return QuoteMatch(start, end, chunk[start:end], len(found))


def _fold(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Collapse white space and compose accents; return the text and each character's span."""
    folded: list[str] = []
    spans: list[tuple[int, int]] = []
    for start, end in pairwise([*_starts(text), len(text)]):
        raw = text[start:end]
        normal = " " if raw.isspace() else unicodedata.normalize("NFC", raw)
        folded.append(normal)
        spans.extend([(start, end)] * len(normal))
    return "".join(folded), spans


def _starts(text: str) -> Iterator[int]:
    """Yield where white space begins, and each character that belongs to none before it."""
    before = ""
    for i, character in enumerate(text):
        if character.isspace():
            is_start = not before.isspace()
        else:
            is_start = not before.strip() or not _continues(character)
        if is_start:
            yield i
        before = character


def _mark(text: str) -> tuple[str, list[int]]:
    """Put a mark at each boundary, so that only a passage of whole words can be found.

    Returns:
        The marked text, and for each of its characters the place in `text`.
    """
    marked = [_BOUNDARY]
    places = [0]
    for i, character in enumerate(text):
        marked.append(character)
        places.append(i)
        if i + 1 == len(text) or not _is_joined(text, i + 1):
            marked.append(_BOUNDARY)
            places.append(i)
    return "".join(marked), places


def _find_all(marked: str, sought: str) -> list[int]:
    """Return where passages start that do not overlap; two neighbors share a mark."""
    found = []
    at = marked.find(sought)
    while at >= 0:
        found.append(at)
        at = marked.find(sought, at + len(sought) - 1)
    return found


def _long_enough(quote: str) -> bool:
    letters = sum(character.isalnum() for character in quote)
    unspaced = sum(character.isalpha() and _is_unspaced(character) for character in quote)
    return unspaced >= _MIN_UNSPACED or (len(quote.split()) >= _MIN_WORDS and letters > 1)


def _is_joined(text: str, at: int) -> bool:
    """Whether the characters before and behind `at` are parts of one word or number."""
    before, left = text[at - 2 : at - 1], text[at - 1]
    right, behind = text[at], text[at + 1 : at + 2]
    if (left != " " and _continues(right)) or (_is_word(left) and _is_word(right)):
        return True
    if left.isdigit() and right in _IN_NUMBERS and behind.isdigit():
        return True
    if before.isdigit() and left in _IN_NUMBERS and right.isdigit():
        return True
    if right in _IN_WORDS and _is_word(left) and _is_word(behind):
        return True
    if left in _IN_WORDS and _is_word(before) and _is_word(right):
        return True
    is_point = left == "." and not before.strip()
    signed = right.isdigit() and (left in _SIGNS or is_point)
    return signed or (_is_word(left) and right in _UNITS)


@lru_cache(maxsize=4096)
def _continues(character: str) -> bool:
    """Whether the character is part of the one before it: an accent, a vowel sign, a jamo."""
    is_jamo = "\u1160" <= character <= "\u11ff"
    return is_jamo or unicodedata.category(character).startswith("M")


@lru_cache(maxsize=4096)
def _is_word(character: str) -> bool:
    """Whether the character is of a word that spaces set apart; so none in Chinese or Thai."""
    is_letter = character.isalnum() or character == "_" or (character and _continues(character))
    return bool(is_letter) and not _is_unspaced(character)


def _is_unspaced(character: str) -> bool:
    """Whether the character belongs to a script that writes words without spaces."""
    name = unicodedata.name(character, "")
    return name.startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"))
