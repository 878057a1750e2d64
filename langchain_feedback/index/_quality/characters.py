"""Character classes of every script, counted once a chunk."""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["LETTER", "UNSPACED", "Characters", "count_characters", "units", "without_unspaced"]

# Scripts that put no spaces between words: Thai to Lao, Myanmar, Khmer, kana, Han.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
LETTER = (
    r"(?:[^\W\d_]"
    r"|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0971-\u0df3\u1a00-\u1aff])"
)
"""A letter, or a sign that sits on one: in Indic scripts these are vowels, and not in `\\w`."""
_UNSPACED = re.compile(f"[{UNSPACED}]+")
_LAYOUT = frozenset("\t\n\r\f\v\x1c\x1d\x1e\x1f\x85")
_UNIT = 0.6


@dataclass(frozen=True)
class Characters:
    """How many characters of which class a text has."""

    total: int
    """All of them, white space too."""
    visible: int
    """All but white space."""
    letters: int
    """Letters and the signs that sit on them, in any script."""
    digits: int
    """Digits and other numbers."""
    broken: int
    """What no writing system uses: control and private characters, U+FFFD, surrogates."""
    unspaced: int
    """Letters of scripts without spaces."""


@lru_cache(maxsize=1 << 16)
def _classes(character: str) -> tuple[int, int, int, int, int]:
    """Return 0 or 1 for visible, letter, digit, broken, unspaced."""
    category = unicodedata.category(character)
    if character in _LAYOUT or category[0] == "Z":
        return (0, 0, 0, 0, 0)
    letter = category[0] in "LM"
    broken = category in {"Cc", "Co", "Cn", "Cs"} or character == "\ufffd"
    unspaced = letter and _UNSPACED.match(character) is not None
    return (1, int(letter), int(category[0] == "N"), int(broken), int(unspaced))


def count_characters(text: str) -> Characters:
    r"""Count the classes of `text`; the cost grows with its length and its alphabet.

    Example:
        >>> found = count_characters("退款 in 5\x00")
        >>> found.letters, found.unspaced, found.digits, found.broken
        (4, 2, 1, 1)
    """
    sums = [0, 0, 0, 0, 0]
    for character, times in Counter(text).items():
        for at, flag in enumerate(_classes(character)):
            if flag:
                sums[at] += times
    visible, letters, digits, broken, unspaced = sums
    return Characters(len(text), visible, letters, digits, broken, unspaced)


def without_unspaced(text: str) -> str:
    """Put a space where letters of scripts without spaces stand."""
    return text if text.isascii() else _UNSPACED.sub(" ", text)


def units(text: str, characters: Characters) -> float:
    """Return the length in words; a letter of a script without spaces counts 0.6.

    Example:
        >>> text = "Refunds take 5 days."
        >>> units(text, count_characters(text))
        4.0
    """
    words = sum(
        word[0].isalnum() or any(map(str.isalnum, word)) for word in without_unspaced(text).split()
    )
    return words + _UNIT * characters.unspaced
