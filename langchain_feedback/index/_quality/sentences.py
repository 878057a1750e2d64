"""Does the text state anything, and does it begin and end where sentences do."""

import re
import unicodedata

from langchain_feedback.index._quality.kinds import Chunk

__all__ = ["end", "says_a_sentence", "start", "statement"]

_CLOSERS = "\"'”’»)\\]*_`›」』】）"
# What else ends a sentence: Unicode's Sentence_Terminal, and the marks of Hebrew, Tibetan and
# ancient texts that end one too. (Unicode Character Database, PropList.txt.)
_STOPS = (
    r"\u0589\u05c3\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965"
    r"\u0df4\u0e5a\u0e5b\u0f0d-\u0f12\u104a\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5"
    r"\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1c3b\u1c3c\u1c7e\u1c7f"
    r"\u203c\u203d\u2047-\u2049\u2e2e\u2e3c\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877"
    r"\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe52\ufe56\ufe57\uff01"
    r"\uff0e\uff1f\uff61"
)
# One attempt for each run of marks, and none inside it: linear on "......".
_FULL_STOP = re.compile(rf"(?<![.!?…])[.!?…]++[{_CLOSERS}]*+(?=\s|$)|[{_STOPS}]")
_LAST = re.compile(rf"[.!?…:：;；{_STOPS}][{_CLOSERS}\s]*\Z")
_PAIR = re.compile(r"[^\s:：][:：]\s*[^\s:：/]|\w[@/_]\w|\w\.[a-z]|://")
_BLOCK = re.compile(r"\s*(?:#{1,6}\s|[-*+•>|]|\(?\d{1,3}[.)]|```|~~~|<)")
_CLOSING = frozenset(",;:.!?)]}»”’%。、，；：！？）」』】؛،")
_BARE = 10
_TAIL = 200


def statement(chunk: Chunk) -> float:
    """Return 1 for a text that states something, else 0.

    Prose and lists of under 10 words state nothing when they hold no end of a sentence in
    any script, no figure, no "name: value" and no address. A bare heading is the usual case.
    """
    if chunk.kind in {"table", "code"} or chunk.units >= _BARE:
        return 1.0
    text = chunk.text
    says = chunk.characters.digits or _FULL_STOP.search(text) or _PAIR.search(text)
    return 1.0 if says else 0.0


def says_a_sentence(text: str) -> bool:
    """Tell whether a text holds the end of a sentence and is long enough for one."""
    return _FULL_STOP.search(text) is not None and Chunk(text).units >= _BARE


def start(chunk: Chunk, before: str | None) -> float:
    """Return how likely the text begins where something begins: 1, or 0.3 for a cut, or 0.

    Args:
        chunk: The text.
        before: What stands before it in its source; "" at the beginning, None if unknown.
    """
    text = chunk.text.lstrip()
    if not text or chunk.kind in {"code", "table"}:
        return 1.0
    if before is not None:
        return _joint(before, chunk.text)
    if _BLOCK.match(text):
        return 1.0
    return 0.3 if text[0] in _CLOSING or _is_small(text[0]) or _is_sign(text[0]) else 1.0


def end(chunk: Chunk, after: str | None) -> float:
    """Return how likely the text ends where something ends: 1, 0.7 for an item, 0.3 for a cut.

    Args:
        chunk: The text.
        after: What stands behind it in its source; "" at the end, None if unknown.
    """
    text = chunk.text.rstrip()
    if not text or chunk.kind in {"code", "table"}:
        return 1.0
    if after is not None:
        return _joint(chunk.text, after)
    if _LAST.search(text[-_TAIL:]):
        return 1.0
    last = chunk.lines[-1]
    return 0.7 if chunk.kind == "list" or _BLOCK.match(last) else 0.3


def _joint(left: str, right: str) -> float:
    """Judge a place in a source: 1 between sentences or blocks, 0.3 inside, 0 inside a word."""
    if not left.strip() or not right.strip():
        return 1.0
    gap = left[len(left.rstrip()) :] + right[: len(right) - len(right.lstrip())]
    if gap.count("\n") > 1 or _LAST.search(left[-_TAIL:]):
        return 1.0
    if "\n" in gap and _BLOCK.match(right.lstrip()):
        return 1.0
    inside = not gap and left[-1].isalnum() and right[0].isalnum()
    return 0.0 if inside else 0.3


def _is_small(character: str) -> bool:
    return character.islower() and unicodedata.category(character) == "Ll"


def _is_sign(character: str) -> bool:
    """A sign that sits on the letter before it cannot begin a text."""
    return unicodedata.category(character)[0] == "M"
