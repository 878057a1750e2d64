"""What kind of text a chunk is, decided by its lines before anything is judged."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from langchain_feedback.index._quality.characters import Characters, count_characters, units

__all__ = ["Chunk", "Kind", "is_row"]

Kind = Literal["prose", "list", "table", "code"]

# Longer lines of them are rulers.
_FENCE = re.compile(r"\s*(?:`{3,9}|~{3,9})(?![`~])")
_MARKER = re.compile(r"\s*(?:[-*+•‣◦▪●·–—]|\(?(?:\d{1,3}|[A-Za-z])[.)])\s")
# A line of a program: how it begins, how it ends, or what only programs write.
_OPENS = re.compile(
    r"\s*(?:(?:def|class|import|from|return|raise|elif|else:|try:|except|with|async|await|yield"
    r"|const|let|var|function|export|public|private|static|void|int|struct|fn|func|impl|use|pub"
    r"|package|namespace|using|SELECT|INSERT|UPDATE|CREATE|FROM|WHERE)\b[^.?!]*$"
    r"|>>>|\.\.\. |\$ |@\w|#!|#include|//|/\*|\*/|</?\w|[}\])]+[;,]?\s*$)"
)
_CLOSES = re.compile(r"(?:[{};\\(\[]|\):|[\])\"'\w],)$")
_CALLS = re.compile(
    r"[\w\])]\(|\w\.\w+[.(=]|\w\[|[\w\])\"'] ?(?:[-+*/|&]?=|[=!<>]=|->|=>|::|:=|&&|\|\|) ?\S"
)
# No line without one of these can be told for code by what stands inside it.
_INSIDE = frozenset("([=.:>|&")
_GAPS = re.compile(r"[^\s.!?:;,|·•›»](?: {2,}|\t)(?=[^\s|·•›»])")
_FIGURES = frozenset("0123456789-+.")
_HALF = 0.5
_MIN_ROWS = 2
_CELLS = 2
_WIDEST = 40


def is_row(line: str) -> bool:
    """Tell whether a line is a row of a table: pipes around cells, tabs, or a ruled line."""
    bare = line.strip()
    if bare.startswith(("|", "+-", "+=")):
        return bare.count("|") + bare.count("+") >= _CELLS
    gaps = max(line.count("\t"), len(_GAPS.findall(bare)) if "  " in bare else 0)
    return (gaps >= _CELLS and len(bare) / (gaps + 1) <= _WIDEST) or _is_numeric(bare)


def _is_numeric(bare: str) -> bool:
    words = bare.split() if bare[:1] in _FIGURES else []
    return len(words) > _CELLS and all(word[0] in _FIGURES for word in words)


@dataclass(frozen=True)
class Chunk:
    """A text with what every check needs of it, each worked out once."""

    text: str

    @cached_property
    def lines(self) -> list[str]:
        """The lines that are not blank, with their indents."""
        return [line for line in self.text.splitlines() if line.strip()]

    @cached_property
    def characters(self) -> Characters:
        """The character classes of the whole text."""
        return count_characters(self.text)

    @cached_property
    def units(self) -> float:
        """The length in words."""
        return units(self.text, self.characters)

    @cached_property
    def fences(self) -> int:
        """How many lines open or close a fenced block."""
        return sum(_FENCE.match(line) is not None for line in self.lines)

    @cached_property
    def kind(self) -> Kind:
        """Code, table or list when at least half of the lines are; else prose."""
        lines = self.lines
        if not lines:
            return "prose"
        if self._code_share() >= _HALF:
            return "code"
        if self._row_share() >= _HALF:
            return "table"
        marked = sum(_MARKER.match(line) is not None for line in lines)
        return "list" if len(lines) >= _MIN_ROWS and marked / len(lines) >= _HALF else "prose"

    def _row_share(self) -> float:
        if len(self.lines) < _MIN_ROWS:
            return 0.0
        rows = sum(is_row(line) for line in self.lines)
        return max(rows, self._separated()) / len(self.lines)

    def _separated(self) -> int:
        """Count the lines that have as many commas, semicolons or pipes as most others."""
        best = 0
        for mark in ",;|":
            # Prose puts a space behind a comma.
            counts = Counter(
                line.count(mark) - (mark != "|") * line.count(mark + " ") for line in self.lines
            )
            number, times = counts.most_common(1)[0]
            if number >= _CELLS and times > _CELLS:
                best = max(best, times)
        return best

    def _code_share(self) -> float:
        inside, code = False, 0
        for line in self.lines:
            if _FENCE.match(line):
                inside, code = not inside, code + 1
            else:
                code += inside or _is_code(line)
        return code / len(self.lines)


def _is_code(line: str) -> bool:
    opens = _OPENS.match(line) is not None
    calls = not _INSIDE.isdisjoint(line) and _CALLS.search(line) is not None
    others = calls + (_CLOSES.search(line.rstrip()[-3:]) is not None)
    indented = line.startswith(("    ", "\t")) and _MARKER.match(line) is None
    return opens or others == _CELLS or (indented and others > 0 and line.count("\t") < _CELLS)
