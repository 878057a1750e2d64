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

# Word processors draw their list bullets with private characters; Korean and Japanese pages
# put a square or a disk before a line.
_BULLETS = re.compile(r"^[ \t]*(?:[\ue000-\uf8ff](?=[ \t])|[\u25a0-\u25ff])", re.MULTILINE)
_RULES = re.compile(r"([-=_*~#+.:·…─━═|])\1{2,}+")
_C1 = re.compile(r"[\x80-\x9f]")
_GLYPH_NUMBERS = re.compile(r"\(cid:\d{1,6}\)")
# Code, addresses, entities, tags; "20 °C" and "n° 5"; "x^2"; what a commit is called
# (three digits in a word are no fault of a scanner).
_NOT_WORDS = re.compile(
    r"(?<![^\W\d_])`[^`\n]+`|(?:https?|ftp)://\S+|\]\([^()\s]*\)|&#?\w{1,8};|<[^<>\n]{1,200}>"
    r"|\|[\w .-]{1,40}\|"
    r"|(?<![^\W\d_])°[CFKNSEOW]\b|\b[nN]°|\b[A-Za-z]\^[\w({-]+"
    r"|\b(?=(?:[^\W\d]*\d){3})\w{7,}+\b"
)
_RUN = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{24,}+={0,2}")
_ADDRESS = re.compile(r"(?:https?|ftp)://\S+")
_JOINTS = re.compile(r"[-_/+=]")
# A check sum or a UUID beside a word is the name of something, which people ask for.
_NAMES = re.compile(
    r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z",
    re.IGNORECASE,
)
_ALPHABETIC = re.compile(r"[^0-9]+\Z")
_EDGES = "\"'“”‘’«»„()[]{}<>.,:;!?…*_—–-"
# At a word's edge a dagger is a footnote's.
_EDGE_SPECKS = r"¦¬°\u25a0-\u25ff"
_SPECKS = rf"†{_EDGE_SPECKS}"
_SIGNS = rf"!?;$§°%#\\{{}}\u2022€£¥¤*_`^~|{_SPECKS}"
# Letter, stray sign, letter ("sy;tem"); a speck at a word's edge. In "it?Yes" only a space is
# missing.
_INSIDE = rf"!?;§°•€£¥^~*`{_SPECKS}"
_SIGN = re.compile(rf"[{_INSIDE}]")
_STRAY = re.compile(
    rf"{LETTER}(?![!?;][A-ZÀ-ÞΑ-ΩА-Я])[{_INSIDE}]++(?={LETTER})"
    rf"|{LETTER}[{_EDGE_SPECKS}^]|[{_EDGE_SPECKS}]{LETTER}"
)
_DIGITS = re.compile(r"[a-zß-ÿ][0-9]++[a-zß-ÿ]{2}")

_NAMING = frozenset("_()=/\\{}[]@<>$%#&+|")
_SPECKLED = re.compile(rf"[{UNSPACED}][{_SIGNS}']++(?=[{UNSPACED}])")
# Grades, chords and quantities are capitals.
_SINGLE = re.compile(r"[a-z]\Z")
_WORDS_OF_ONE = frozenset("aieoyuxwz")
# Letters on their own between these are variables.
_OPERATORS = re.compile(r"(?<!\S)[=≠≈≤≥<>±+∈→×√∑∫](?!\S)")
_LONG = 45
_FLOORS = {"prose": 0.55, "list": 0.55, "table": 0.35, "code": 0.35}
_FEW = 8
_HABIT = 2
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
    # What an address carries is no text that went wrong; `navigation` looks at addresses.
    text = _ADDRESS.sub(" ", text) if "://" in text else text
    runs = _RUN.findall(text)
    encoded = sum(len(run) for run in runs if _restless(run))
    names = [run for run in runs if _NAMES.match(run)] if encoded else []
    if names and sum(map(_is_word, _RUN.sub(" ", text).split())) >= len(names):
        encoded -= sum(map(len, filter(_restless, names)))
    return encoded / visible


def _is_word(piece: str) -> bool:
    return any(map(str.isalpha, piece))


def _restless(run: str) -> bool:
    # Random base64 changes at 64 % of places, hexadecimal digits at 47 %, names below 25 %, but
    # those of classes up to 45 %: they have no digits, which 98 % of base64's runs of 24 have.
    if _ALPHABETIC.match(run):
        return False
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
    stray = (_strays(joined) + len(set(_DIGITS.findall(joined)))) / number
    singles = sum(len(word) <= _SHORT and _is_single(word) for word in words)
    is_formula = singles and len(_OPERATORS.findall(text)) > 1
    single = 0.0 if is_formula else singles / number
    return 12 * max(0.0, stray - 0.012) + 4 * max(0.0, single - 0.2) + lost


def _strays(joined: str) -> int:
    """Count stray signs; one that comes alone is a habit: "Kund*innen", "it`s", "l`eau"."""
    found = _STRAY.findall(joined)
    signs = {sign[0] for each in found if (sign := _SIGN.search(each))}
    return 0 if len(found) > _HABIT and len(signs) == 1 else len(found)


def _speckled(text: str, characters: Characters) -> float:
    """The same for scripts without spaces: specks between their letters."""
    if characters.unspaced < _FEW:
        return 0.0
    specks = len(_SPECKLED.findall(_NOT_WORDS.sub(" ", text)))
    return 20 * max(0.0, specks / characters.unspaced - 0.01)


def _is_single(word: str) -> bool:
    bare = word.strip(_EDGES) if len(word) > 1 else word
    return _SINGLE.match(bare) is not None and bare not in _WORDS_OF_ONE
