"""Text that was written in one encoding and read in another ("FÃ¼r", "РџСЂРё", "Ïðè").

UTF-8 gives itself away: a lead byte says how many bytes follow, and these lie in 0x80 to
0xBF. Read as a table of 256 characters, both are characters of that table; so for each
table one pattern finds what is UTF-8 underneath. The patterns are made of Python's own
codecs. (RFC 3629, section 3, for the bytes.)
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["misread_share"]

# Tables whose upper half is Western letters: one pair is nearly a proof.
_WESTERN = ("cp1252", "latin-1", "iso8859-15", "cp1250", "cp1254", "mac_roman", "cp437", "cp850")
# Tables whose upper half is a living alphabet: only several pairs in a row are.
_ALPHABETS = ("cp1251", "cp1253", "cp1255", "cp1256", "cp866", "koi8-r", "mac_cyrillic")
_RARELY_ALONE = frozenset("»”’“‘…–—®™°·.\u00a0«§©²³")
_QUOTES = frozenset("«»“”‘’…")
_ASCII = 0x80
_MANY = 40


def _decoded(table: str, first: int, last: int) -> str:
    """Return the characters that bytes are read as, and C1 controls where there are none."""
    found = []
    for byte in range(first, last + 1):
        try:
            found.append(bytes([byte]).decode(table))
        except UnicodeDecodeError:
            found.append(chr(byte))
    return "".join(character for character in found if ord(character) >= _ASCII)


@dataclass(frozen=True)
class _Table:
    """How UTF-8 looks when it is read as one table."""

    leads: frozenset[str]
    follows: frozenset[str]
    pattern: re.Pattern[str]

    def hits(self, text: str, alphabet: set[str]) -> int:
        """Count the characters of the original that were misread."""
        if self.leads.isdisjoint(alphabet) or self.follows.isdisjoint(alphabet):
            return 0
        return len(self.pattern.findall(text))


def _leads(name: str, first: int, last: int) -> str:
    """Return the lead bytes' characters, no letters where the bytes behind are letters too."""
    leads = _decoded(name, first, last)
    letters = sum(map(str.isalpha, _decoded(name, 0x80, 0xBF)))
    spare = "".join(lead for lead in leads if not lead.isalpha())
    if letters > _MANY and name in _ALPHABETS:
        leads = spare
    return "".join(lead for lead in leads if lead not in _QUOTES) or "\uffff"


def _any_of(characters: Iterable[str]) -> str:
    return f"[{re.escape(''.join(sorted(characters)))}]"


def _table(name: str, *, alone: bool) -> _Table:
    two, late, three, four = (
        _any_of(_leads(name, first, last))
        for first, last in ((0xC2, 0xC3), (0xC4, 0xDF), (0xE0, 0xEF), (0xF0, 0xF4))
    )
    follows = frozenset(_decoded(name, 0x80, 0xBF))
    any_one, sure = _any_of(follows), _any_of(follows - _RARELY_ALONE)
    # "É»" ends a quotation; behind the two lead bytes of Western letters anything counts, the
    # others (alphabets) come in a row.
    sequence = (
        f"{two}{any_one}|(?<={any_one}){late}{sure}|{three}{any_one}{{2}}|{four}{any_one}{{3}}"
    )
    # In an alphabet a pair may be two letters of a word: only the next in a row counts.
    pattern = sequence if alone else f"(?<={any_one})(?:{sequence})"
    return _Table(frozenset(_leads(name, 0xC2, 0xF4)), follows, re.compile(pattern))


_TABLES = [_table(name, alone=True) for name in _WESTERN]
_TABLES += [_table(name, alone=False) for name in _ALPHABETS]
# No language has words of four and more letters that are all accented Western ones.
_ALL_ACCENTED = re.compile(r"(?<![^\W\d_])[À-ÖØ-öø-ÿ]{4,}+(?![^\W\d_])")


def misread_share(text: str, visible: int) -> float:
    """Return misread characters of the original for each visible one, from 0 to about 1.

    The worst table counts, since a text is misread in one way.

    Example:
        >>> good = "Für später übrig"
        >>> misread_share(good, 14), round(misread_share(good.encode().decode("cp1252"), 17), 2)
        (0.0, 0.12)
    """
    if text.isascii():
        return 0.0
    alphabet = set(text)
    hits = [table.hits(text, alphabet) for table in _TABLES]
    accented = sum(map(len, _ALL_ACCENTED.findall(text)))
    # One alone is an accident, however short the text is.
    return max(0, max(*hits, accented) - 1) / max(1, visible)
