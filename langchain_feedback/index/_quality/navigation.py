"""Is the text a way to other texts: lists of links, contents pages, menu bars."""

import re

from langchain_feedback.index._quality.kinds import Chunk, is_row
from langchain_feedback.index._quality.sentences import says_a_sentence

__all__ = ["navigation"]

# None of these looks at a character more than a few times: each stops at the bracket that
# it could begin again at.
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()\n]*\)")
_LINK = re.compile(r"\[[^\[\]]*\](?:\([^()\n]*\)|\[[^\[\]]*\])")
_TARGET = re.compile(
    r"\s*(?:\[[^\[\]]{1,200}\]:|\.\. _[^:]{1,200}:|\.\. (?:\|[^|]{1,200}\| )?image::"
    r"|:target:|:alt:)\s*\S"
)
_ADDRESS = re.compile(r"<?(?:https?|ftp)://[^\s<>]+>?|\bwww\.[^\s<>]+")
_WORD = re.compile(r"[^\W_]")
_LEADERS = re.compile(
    r"(?<![.·…])(?<![.·…] )(?:\. ?|·|…){4,}+[ \t]*+(?:\d{1,4}|[ivxlc]{1,6})?$", re.IGNORECASE
)
_PAGE = re.compile(r"[^\W\d_][^.!?;,=]*\s(\d{1,4})\s*$")
_FACT = re.compile(r"\d\s?[^\W\d_]|\d[:.,]\d|[:：]\s?\S")
# "col·labora" is Catalan, "«Refunds», «Fees»" are quotations.
_BARS = re.compile(r"[|›]|(?<=\s)[·•»]|[·•](?=\s)|(?<=\s)[>/→](?=\s)")
_MARKER = re.compile(r"\s*(?:[-*+•|]|\d{1,3}[.)])\s+")
_ITEMS = 4
_LEAST = 10
_WORDS = 6
_LONGEST = 40
_PAGES = 5
_YEARS = range(1500, 2100)
_CAPTION = 6
_ENOUGH = 0.5
_ENTRY = 90


def navigation(chunk: Chunk) -> float:
    """Return 1 for a text that says something, falling to 0; below 0.5 it only points.

    One minus the share that lines have of what is shown (targets of links and addresses are
    not) which hold nothing but links or addresses, end in dot leaders or, five and more in a
    rising series, in page numbers, or are menu bars. Where the other lines hold a sentence of
    10 words it is 0.5 at least: what a page says above its badges is worth keeping.
    """
    if chunk.kind == "code":
        return 1.0
    lines = chunk.lines
    pages = _page_entries(lines) if chunk.kind != "table" else set()
    points = total = 0
    others: list[str] = []
    for at, line in enumerate(lines):
        shown = max(_LEAST, len(_shown(line)))
        total += shown
        if at in pages or _points(line, rows=chunk.kind == "table"):
            points += shown
        else:
            others.append(line)
    said = 1.0 - points / total if total else 1.0
    return said if said >= _ENOUGH or not says_a_sentence("\n".join(others)) else _ENOUGH


def _points(line: str, *, rows: bool) -> bool:
    if _LEADERS.search(line.rstrip()):
        return True
    if ("](" in line or "][" in line or "://" in line or "www." in line) and _only_links(line):
        return True
    if _TARGET.match(line):
        return True
    return not rows and not is_row(line) and _is_bar(line)


def _shown(line: str) -> str:
    """Return what a reader sees of a line: labels without their targets, addresses cut short."""
    if "](" in line or "][" in line:
        line = _LINK.sub(_label, _IMAGE.sub("", line))
    return _ADDRESS.sub("", line) if "://" in line or "www." in line else line


def _caption(image: re.Match[str]) -> str:
    """What is said of an image, where it is more than its name."""
    said = image[0][2 : image[0].index("]")]
    return said if len(said.split()) >= _CAPTION else ""


def _label(link: re.Match[str]) -> str:
    return link[0][1 : link[0].index("]")]


def _only_links(line: str) -> bool:
    marker = _MARKER.match(line)
    rest = line[marker.end() :] if marker else line
    # A badge is a link around an image.
    rest = _LINK.sub("", _IMAGE.sub(_caption, rest))
    rest = _ADDRESS.sub("", rest)
    return _WORD.search(rest) is None


def _is_bar(line: str) -> bool:
    items = [item.strip() for item in _BARS.split(line) if item.strip()]
    if len(items) < _ITEMS:
        return False
    if any(len(item) > _LONGEST or len(item.split()) > _WORDS for item in items):
        return False
    # Opening hours, weights and sizes are facts, whatever stands between them.
    return sum(_FACT.search(item) is not None for item in items) < len(items) / 2


def _page_entries(lines: list[str]) -> set[int]:
    """Find runs of lines that end in page numbers which never fall."""
    found: set[int] = set()
    run: list[int] = []
    last = -1
    for at, line in enumerate(lines):
        match = _PAGE.search(line) if len(line) <= _ENTRY else None
        number = int(match[1]) if match else -1
        is_page = match is not None and number not in _YEARS
        if number < last or not is_page:
            found.update(run if len(run) >= _PAGES else ())
            run, last = [], -1
        if is_page:
            run.append(at)
            last = number
    return found | set(run if len(run) >= _PAGES else ())
