"""Can the text be read at all: broken encodings, scanning faults, encoded data."""

import re
from itertools import pairwise

from langchain_feedback.index._quality.characters import (
    LETTER,
    UNSPACED,
    Characters,
    count_characters,
    without_unspaced,
)
from langchain_feedback.index._quality.kinds import Chunk
from langchain_feedback.index._quality.mojibake import misread_share

__all__ = ["legibility"]

# Word processors draw their list bullets with private characters.
_BULLETS = re.compile(r"^[ \t]*[\ue000-\uf8ff](?=[ \t])", re.MULTILINE)
_RULES = re.compile(r"([-=_*~#+.:·…─━═|])\1{2,}+")
_C1 = re.compile(r"[\x80-\x9f]")
_GLYPH_NUMBERS = re.compile(r"\(cid:\d{1,6}\)")
_NOT_WORDS = re.compile(
    r"`[^`\n]+`|(?:https?|ftp)://\S+|\]\([^()\s]*\)|&#?\w{1,8};|<[^<>\n]{1,200}>|\|[\w .-]{1,40}\|"
)
_RUN = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{24,}+={0,2}")
_JOINTS = re.compile(r"[-_/+=]")
_EDGES = "\"'“”‘’«»„()[]{}<>.,:;!?…*_—–-"
_SPECKS = r"¦¬†°\u25a0-\u25ff"
_SIGNS = rf"!?;$§°%#\\{{}}\u2022€£¥¤*_`^~|{_SPECKS}"
# Letter, stray sign, letter ("sy;tem"); a speck at a word's edge.
_STRAY = re.compile(rf"{LETTER}[{_SIGNS}]++(?={LETTER})|{LETTER}[{_SPECKS}^]|[{_SPECKS}]{LETTER}")
_DIGITS = re.compile(r"[a-zß-ÿ][0-9]++[a-zß-ÿ]{2}")

_NAMING = frozenset("_()=/\\{}[]@<>$%#&+|")
_SPECKLED = re.compile(rf"[{UNSPACED}][{_SIGNS}']++(?=[{UNSPACED}])")
_SINGLE = re.compile(r"[A-Za-z]\Z")
_WORDS_OF_ONE = frozenset("aAiIeEoOyYuUxXwWzZ")
_LONG = 45
_FLOORS = {"prose": 0.55, "list": 0.55, "table": 0.35, "code": 0.35}
_FEW = 8
_SHORT = 3
_UNSPACED_WORD = 0.6
_SAMPLE = 200
_RESTLESS = 0.3


def legibility(chunk: Chunk) -> float:
    """Return 1 for a text that can be read, falling to 0; below 0.5 it is garbled.

    One minus a sum of penalties: broken characters, misread encodings, too few letters,
    encoded data, and words that look like faults of a scanner (these half in code). Each factor
    is such that one fault alone reaches 0.5 at: 1.25 % broken, 0.8 % misread, 25 points too few
    letters, half encoded, 5.4 specks for 100 words, a third of single letters.
    """
    text = _BULLETS.sub("", chunk.text)
    characters = chunk.characters if text == chunk.text else count_characters(text)
    if not characters.visible:
        return 0.0
    penalty = (
        40 * _broken_share(text, characters)
        + 60 * misread_share(text, characters.visible)
        + 2 * _missing_letters(chunk, text, characters)
        + _encoded_share(text, characters.visible)
    )
    odd = _odd_words(text, characters.unspaced) + _speckled(text, characters)
    penalty += odd / 2 if chunk.kind == "code" else odd
    return max(0.0, 1.0 - penalty)


def _broken_share(text: str, characters: Characters) -> float:
    glyphs = len(_GLYPH_NUMBERS.findall(text)) if "(cid:" in text else 0
    # What one Western table has at 0x80 to 0x9F, read as another one: mostly quotation marks.
    quotes = len(_C1.findall(text)) / 2 if characters.broken else 0
    # One alone is an accident, however short the text is.
    return max(0.0, characters.broken + glyphs - quotes - 1) / characters.visible


def _missing_letters(chunk: Chunk, text: str, characters: Characters) -> float:
    """How far the share of letters is below what the kind has; rulers do not count."""
    bare = _RULES.sub("", text)
    characters = characters if bare == text else count_characters(bare)
    if not characters.visible:
        return _FLOORS[chunk.kind]
    weight = 1.0 if chunk.kind in {"table", "code"} else 0.5
    readable = (characters.letters + weight * characters.digits) / characters.visible
    return max(0.0, _FLOORS[chunk.kind] - readable)


def _encoded_share(text: str, visible: int) -> float:
    """The share of base64, hashes and keys: runs that keep changing between classes."""
    encoded = sum(len(run) for run in _RUN.findall(text) if _restless(run))
    return encoded / visible


def _restless(run: str) -> bool:
    # Random base64 changes at 64 % of places, hexadecimal digits at 47 %, names below 25 %.
    letters = _JOINTS.sub("", run)[:_SAMPLE]
    changes = sum(_class(left) != _class(right) for left, right in pairwise(letters))
    return len(letters) > len(run[:_SAMPLE]) / 2 and changes > _RESTLESS * len(letters)


def _class(character: str) -> int:
    return 0 if character.islower() else 1 if character.isupper() else 2


def _odd_words(text: str, unspaced: int) -> float:
    """Penalty for specks in words, words of one letter, and words without end."""
    spaced = without_unspaced(_NOT_WORDS.sub(" ", text))
    overlong = sum(len(word) for word in spaced.split() if len(word) > _LONG and word.isalpha())
    words = _RUN.sub(" ", spaced).split()
    # Names of programs and paths hold signs that words do not; a speck there proves nothing.
    words = [word for word in words if _NAMING.isdisjoint(word) and word[0] != "-"]
    lost = overlong / max(1, len(spaced))
    if len(words) < _FEW:
        return lost
    joined = " ".join(words)
    # A name with a digit ("e2fsck") comes again; a fault of the scanner hardly does.
    # A few names in a text without spaces are no measure of it.
    number = len(words) + _UNSPACED_WORD * unspaced
    stray = (len(_STRAY.findall(joined)) + len(set(_DIGITS.findall(joined)))) / number
    single = sum(len(word) <= _SHORT and _is_single(word) for word in words) / number
    return 12 * max(0.0, stray - 0.012) + 4 * max(0.0, single - 0.2) + lost


def _speckled(text: str, characters: Characters) -> float:
    """The same for scripts without spaces: specks between their letters."""
    if characters.unspaced < _FEW:
        return 0.0
    specks = len(_SPECKLED.findall(_NOT_WORDS.sub(" ", text)))
    return 20 * max(0.0, specks / characters.unspaced - 0.01)


def _is_single(word: str) -> bool:
    bare = word.strip(_EDGES) if len(word) > 1 else word
    if bare.isupper() and word[-1] in ".,":
        return False  # an initial
    return _SINGLE.match(bare) is not None and bare not in _WORDS_OF_ONE
