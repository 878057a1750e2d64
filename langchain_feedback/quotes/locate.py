"""Find a quote in the chunk that it is said to come from.

This locator is strict on words and lenient only on white space and Unicode's two
spellings of one character: line breaks and runs of spaces count as one space.
"""

import re
import unicodedata
from typing import NamedTuple

__all__ = ["QuoteMatch", "locate_quote"]

_MIN_WORDS = 2
_MIN_UNSPACED = 4


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
    must start and end at word boundaries: "within 1" is not in "within 14 days".

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
    folded, offsets = _fold(chunk)
    wanted = " ".join(unicodedata.normalize("NFC", quote).split())
    if not _long_enough(wanted):
        return None
    starts = [at for at in _find_all(folded, wanted) if _is_bounded(folded, at, len(wanted))]
    if not starts:
        return None
    start, end = offsets[starts[0]], offsets[starts[0] + len(wanted) - 1] + 1
    # A combining accent behind the last letter belongs to it.
    while end < len(chunk) and unicodedata.combining(chunk[end]):
        end += 1
    return QuoteMatch(start, end, chunk[start:end], len(starts))


def _fold(text: str) -> tuple[str, list[int]]:
    """Collapse white space and compose accents; return the text and each character's offset."""
    folded: list[str] = []
    offsets: list[int] = []
    for piece in re.finditer(r"\s+|\S[\u0300-\u036f]*", text):
        raw = piece.group()
        normal = " " if raw.isspace() else unicodedata.normalize("NFC", raw)
        folded.append(normal)
        offsets.extend([piece.start()] * len(normal))
    return "".join(folded), offsets


def _find_all(text: str, wanted: str) -> list[int]:
    found = []
    at = text.find(wanted)
    while at >= 0:
        found.append(at)
        at = text.find(wanted, at + len(wanted))
    return found


def _long_enough(quote: str) -> bool:
    letters = sum(character.isalnum() for character in quote)
    unspaced = sum(character.isalpha() and _is_unspaced(character) for character in quote)
    return unspaced >= _MIN_UNSPACED or (len(quote.split()) >= _MIN_WORDS and letters > 1)


def _is_bounded(text: str, start: int, length: int) -> bool:
    end = start + length
    return not (_joined(text, start) or _joined(text, end))


def _joined(text: str, at: int) -> bool:
    """Whether the characters before and behind `at` are parts of one word."""
    if not 0 < at < len(text):
        return False
    left, right = text[at - 1], text[at]
    both = _is_word(left) and _is_word(right)
    return both and not (_is_unspaced(left) or _is_unspaced(right))


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_unspaced(character: str) -> bool:
    """Whether the character belongs to a script that writes words without spaces."""
    name = unicodedata.name(character, "")
    return name.startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"))
