"""The published blueprint's quality score, rebuilt for comparison.

Rebuilt from a description of its formulas and of what they gave (words split at white space,
`isalpha`, English stop words, a type/token ratio, one matching line condemns a chunk, four
English openings, 0.5 where no model answered, indexable from 0.45). Its exact weights were
not at hand: read its figures as an indication.
"""

import re

__all__ = ["FLOOR", "composite", "density", "gated", "sufficiency"]

FLOOR = 0.45
_STOP = frozenset(
    "the a an and or but of to in on at by for with from as is are was were be been it this that"
    " these those we you they he she i not no can will would should may have has had do".split()
)
_BOILERPLATE = re.compile(
    r"^\s*(?:page \d+(?: of \d+)?|copyright .*|all rights reserved.*|table of contents|\d+)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
# Bounded here: the original's nested repetition backtracks exponentially.
_LINKS = re.compile(r"^(?:https?://\S+[ \t]+){2,20}https?://\S+$", re.MULTILINE)
_OPENINGS = re.compile(r"(?:this|that|these|it)\b", re.IGNORECASE)
_WEIGHTS = (0.30, 0.35, 0.25, 0.10)
_UNKNOWN = 0.5


def density(text: str) -> float:
    """Mean of the shares of alphabetic, of content, and of different words."""
    words = text.lower().split()
    if not words:
        return 0.0
    if _BOILERPLATE.search(text) or _LINKS.search(text):
        return 0.05
    alphabetic = sum(word.strip(".,;:!?()\"'").isalpha() for word in words) / len(words)
    content = sum(word not in _STOP for word in words) / len(words)
    return (alphabetic + content + len(set(words)) / len(words)) / 3


def sufficiency(text: str) -> float:
    """One, or less where an English pronoun opens the text."""
    return 0.65 if _OPENINGS.match(text.lstrip()) else 1.0


def composite(text: str) -> float:
    """The weighted sum, with no model asked and no duplicate known."""
    parts = (density(text), _UNKNOWN, sufficiency(text), 1.0)
    return sum(weight * part for weight, part in zip(_WEIGHTS, parts, strict=True))


def gated(text: str) -> bool:
    """Tell whether it would be left out of the index."""
    return composite(text) < FLOOR
