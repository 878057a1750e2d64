"""Cut text into the tokens that a quote must have in common with its source.

Typography goes: white space, soft punctuation, Markdown, tags, curly quotes, ligatures,
width, invisible characters, and the hyphen of a broken line. Words, numbers and the
signs that change what a number or a name says stay. Each token keeps its place in the
text, so nothing here loses an offset.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Folded", "fold", "has_markup"]

# What can be no part of a word: white space is apart. Anything else may, in any script.
_PUNCTUATION = (
    r"!-/:-@\[-`{-~"  # ASCII
    r"\u00a1-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7"  # Latin-1
    r"\u055a-\u055f\u0589\u05be\u05c0\u05c3\u05f3\u05f4\u060c\u061b\u061f\u066a-\u066d\u06d4"
    r"\u0964\u0965\u0e4f\u0e5a\u0e5b\u104a\u104b\u17d4-\u17d6"
    r"\u2010-\u2027\u2030-\u205e\u20a0-\u20cf\u2100-\u2101\u2105\u2116\u2117\u2120-\u2122"
    r"\u2190-\u245f\u2500-\u2bff\u3001-\u3004\u3008-\u3020\u3030\u303d\u30fb"
    r"\ufe30-\ufe6b\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffee"
)
_CORE = rf"[^\s{_PUNCTUATION}]"
_LETTER_BEFORE = rf"(?<![\s\d{_PUNCTUATION}])"
_LETTER_AFTER = rf"(?=[^\s\d{_PUNCTUATION}])"
_BREAK = re.compile(r"[-‐‑\u00ad][ \t]*\r?\n[ \t]*")
_WORD = (
    rf"{_CORE}+(?:(?:(?<=\d)[.,:．，：](?=\d)|(?<={_CORE})_+(?={_CORE})"
    rf"|{_LETTER_BEFORE}(?:['’ʼ＇]|[-‐‑](?:[ \t]*\r?\n[ \t]*)?){_LETTER_AFTER}"
    rf"|(?<=\u00ad)[ \t]*\r?\n[ \t]*{_LETTER_AFTER}){_CORE}+)*"
)
# Signs that say something. A dash before a digit is a minus or a range; a dash elsewhere,
# a bullet, a heading mark and a quote mark say nothing.
_SIGN = (
    rf"(?<![\d{_PUNCTUATION}])\.(?=\d)|[%‰°±×÷=≤≥≈≠$€£¥₹¢§№&@^％＋＝＆＠＄￥￡]"
    rf"|<|(?<![\n>])(?<!^)>|>(?=\s?\d)|(?<={_CORE})\+|(?<=\+)\+|\+(?=\s?\d)"
    rf"|[-−–‐‑－](?=\d)|(?<=\d)[-−–‐‑－](?={_CORE})|-(?=[-]?{_CORE})"
    rf"|[#＃](?={_CORE})|(?<={_CORE})[#＃]|[~～](?=\d)|(?<={_CORE})[/／](?={_CORE})|\\(?={_CORE})"
)
_TAGS = (
    "a|abbr|article|b|blockquote|br|code|dd|del|div|dl|dt|em|figure|figcaption|font|h[1-6]|hr|i"
    "|img|ins|kbd|li|main|mark|ol|p|pre|q|s|section|small|span|strike|strong|sub|sup|table|tbody"
    "|td|tfoot|th|thead|tr|tt|u|ul|var"
)
_ATTRIBUTE = r"\s+[a-zA-Z][\w:-]*\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>]+)"
_MARKUP = (
    rf"</?(?:{_TAGS})(?:{_ATTRIBUTE})*\s*/?>"
    r"|\]\([^()\s]{0,500}(?:\s\"[^\"()]{0,200}\")?\)"
    rf"|(?<=\S)\[\^?\d{{1,3}}\]"
)
_ENTITY = r"&(?:#\d{1,6}|#[xX][0-9a-fA-F]{1,5}|[a-zA-Z][a-zA-Z0-9]{1,30});"
_FIND_MARKUP = re.compile(_MARKUP, re.IGNORECASE)
_SCANNER = {
    True: re.compile(
        rf"(?P<skip>{_MARKUP})|(?P<entity>{_ENTITY})|(?P<word>{_WORD})|(?P<sign>{_SIGN})",
        re.IGNORECASE,
    ),
    False: re.compile(rf"(?P<word>{_WORD})|(?P<sign>{_SIGN})"),
}
# Their digits are apart: a number is cut nowhere.
_UNSPACED_SET = (
    "\u0e00-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u104a-\u108f\u109a-\u109f\u1780-\u17df"
    "\u17ea-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Vowel signs and tone marks go with their letter.
_MARK_SET = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059"
    "\u17b4-\u17d3\u3099\u309a\uff9e\uff9f\u0300-\u036f\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff\u00ad"
)
_UNSPACED = re.compile(f"[{_UNSPACED_SET}]")
_CHARACTERS = re.compile(
    f"(?P<unspaced>[{_UNSPACED_SET}][{_MARK_SET}]*)|(?P<word>[^{_UNSPACED_SET}]+)"
)
# Signs that belong to the number beside them, over a space as well.
_BEFORE = frozenset("<>≤≥±≈~$€£¥₹")
_AFTER = frozenset("%‰€£¥₹$")
_SAME_SIGN = str.maketrans("−–‐‑－％＋＝＆＠＄￥￡＃～／", "-----%+=&@$¥£#~/")
_SAME_MARK = str.maketrans("’ʼ＇‐‑", "'''--")
_WIDTH = ("<wide>", "<narrow>")
_FORMS = ("<isolated>", "<initial>", "<medial>", "<final>")


class Folded(NamedTuple):
    """The tokens of a text."""

    keys: list[str]
    """What each token says; case is kept."""
    spans: list[tuple[int, int]]
    """Where each token stands in the text."""
    glued: list[bool]
    """Whether a token may not be parted from the one before."""
    breaks: dict[int, str]
    """Tokens over the end of a line: the key with the hyphen; `keys` has it without."""
    words: int
    """How many tokens are words or numbers."""
    unspaced: int
    """How many tokens are characters of scripts without spaces."""


def has_markup(text: str) -> bool:
    """Whether the text has tags, link targets or footnote marks of its own."""
    return _FIND_MARKUP.search(text) is not None


@lru_cache(maxsize=256)
def fold(text: str, *, markup: bool = True) -> Folded:
    """Fold a text; the last ones are kept for their next quote.

    Args:
        text: Any text.
        markup: Whether tags, link targets and footnote marks are left out and
            entities read; else they are text like any other.
    """
    keys: list[str] = []
    spans: list[tuple[int, int]] = []
    glued: list[bool] = []
    breaks: dict[int, str] = {}
    words = unspaced = end = 0
    for match in _SCANNER[markup].finditer(text):
        kind, raw, start = match.lastgroup, match.group(), match.start()
        if kind == "skip":
            continue
        if kind == "entity":
            decoded = html.unescape(raw)
            if decoded == raw or decoded.isspace():
                continue
            raw = decoded
        touches = _touches(text[end:start], keys[-1] if keys else "", kind, raw)
        if kind == "sign" or (kind == "entity" and not raw.isalnum()):
            keys.append(raw.translate(_SAME_SIGN))
            spans.append(match.span())
            glued.append(touches)
        elif _UNSPACED.search(raw):
            for key, place, is_unspaced in _characters(raw, start):
                keys.append(key)
                spans.append(place)
                glued.append(False)
                unspaced += is_unspaced
                words += not is_unspaced
        else:
            words += 1
            if _BREAK.search(raw):
                breaks[len(keys)] = folded_word(_BREAK.sub("-", raw))
                raw = _BREAK.sub("", raw)
            keys.append(folded_word(raw))
            spans.append(match.span())
            glued.append(touches)
        end = match.end()
    return Folded(keys, spans, glued, breaks, words, unspaced)


def _touches(gap: str, before: str, kind: str | None, raw: str) -> bool:
    """Whether a token may not be parted from the one before: "-5", "$20", "≤ 5", "50 %"."""
    if not before:
        return False
    if not gap:
        return True
    one_space = len(gap) == 1 and gap.isspace()
    bound = before in _BEFORE if kind == "word" else raw in _AFTER and before[-1].isdigit()
    return one_space and bound


def folded_word(raw: str) -> str:
    """Compose accents, drop what is invisible, and undo ligatures and widths."""
    if raw.isascii():
        return raw
    visible = "".join(_character(c) for c in raw if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", visible.translate(_SAME_MARK))


def _character(character: str) -> str:
    # Not all of NFKC: it would make a superscript two a digit.
    form = unicodedata.decomposition(character)
    is_ligature = form.startswith("<compat>") and "\ufb00" <= character <= "\ufb17"
    if is_ligature or form.startswith(_WIDTH) or form.startswith(_FORMS) or character == "µ":
        return unicodedata.normalize("NFKC", character)
    return character


def _characters(raw: str, start: int) -> Iterator[tuple[str, tuple[int, int], bool]]:
    """Cut a run that holds an unspaced script into its characters and the words between."""
    for match in _CHARACTERS.finditer(raw):
        piece = match.group()
        is_unspaced = match.lastgroup == "unspaced"
        marked = len(piece) > 1 or not is_unspaced
        if key := folded_word(piece) if marked or piece > "\uff00" else piece:
            yield key, (start + match.start(), start + match.end()), is_unspaced
