"""Words and sentences of plain text, for the parts that work without a model.

Nothing here needs a dictionary: words are folded and lightly stemmed, scripts
without spaces are read as pairs of characters, and sentences are spans of the text.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

__all__ = ["content_words", "inverse_document_frequency", "sentence_spans", "stem", "tokens"]

_STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being
    below between both but by can cannot could did do does doing done during each else ever few
    for from further get got had has have having he her here hers him his how i if in into is it
    its just let like may me might more most much must my no nor not now of off on once one only
    or other our out over own per please same shall she should so some still such than that the
    their them then there these they this those through to too under until up upon us use used
    user using very was way we were what when where whether which while who whom whose why will
    with within without would yes you your happen happens make makes need needs want work
    der die das den dem des ein eine einer eines einem einen und oder nicht ist sind war wie was
    wann wo wer warum mit von zu auf für im in am um bei aus nach ich wir sie es man kann le la
    les un une des du et ou est sont comment quand où que qui pour dans sur avec el los las una
    y o es son cómo cuándo dónde qué quién para por con en de del al se su""".split()
)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_MIN_STEM = 3
_VOWEL = re.compile(r"[aeiouy]")
_SUFFIXES = (
    "ational ations ation ings ing edly ed ers er ies ly ments ment ness able ible ally al es s e "
    "y"
).split()

_BLOCK = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*+•|>#]|\d+[.)]\s))|(?<=\|)\n")
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s+[^\s\W]|\s+[\"'“‘(\[`*]|\s*$)|[。！？]+[」』”]?")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|resp|approx|no|nr|fig|sec|dr|mr|mrs|ms|st|inc|ltd|bzw|z\.b|ca)"
    r"|\b[A-Za-z])\.$",
    re.IGNORECASE,
)
_MARKER = re.compile(r"\s*(?:(?:[-*+•>]|#{1,6}|\d+[.)])\s+)*")


def tokens(text: str) -> list[str]:
    """Return the folded words of `text`, unstemmed; pairs of characters where none are spaced.

    Example:
        >>> tokens("The server's 2 plans.")
        ['the', "server's", '2', 'plans']
        >>> tokens("退款时间")
        ['退款', '款时', '时间']
    """
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    found: list[str] = []
    for match in _WORD.finditer(folded):
        at = 0
        word = match.group()
        for run in _UNSPACED.finditer(word):
            found.extend(filter(None, [word[at : run.start()]]))
            found.extend(_pairs(run.group()))
            at = run.end()
        found.extend(filter(None, [word[at:]]))
    return found


def content_words(text: str) -> list[str]:
    """Return the stems of the words that carry meaning, in order, with repeats.

    Example:
        >>> content_words("How long do cancellations of the plans take?")
        ['long', 'cancel', 'plan', 'tak']
    """
    plain = (word.removesuffix("'s") for word in tokens(text))
    return [
        stem(word)
        for word in plain
        if word not in _STOP_WORDS and (len(word) > 1 or word.isdigit())
    ]


def stem(word: str) -> str:
    """Strip an English ending, lightly; a wrong guess costs a match, never an error.

    The longest of a short list of endings goes where three letters and a vowel
    stay, then a doubled last consonant is made one: after the idea of Harman, "How
    effective is suffixing?" (JASIS 42, 1991), whose S-stemmer this extends.

    Example:
        >>> [stem(word) for word in ("cancel", "cancelled", "cancelling", "cancellation")]
        ['cancel', 'cancel', 'cancel', 'cancel']
    """
    if not word.isascii() or not word.isalpha():
        return word
    root = word
    for suffix in _SUFFIXES:
        left = word.removesuffix(suffix)
        if left != word and len(left) >= _MIN_STEM and _VOWEL.search(left) and word[-2:] != "ss":
            root = left
            break
    if len(root) > _MIN_STEM and root[-1] == root[-2] and root[-1] not in "aeiou":
        root = root[:-1]
    return root.removesuffix("e") if len(root) > _MIN_STEM else root


def sentence_spans(text: str) -> list[tuple[int, int]]:
    r"""Return the start and end of each sentence, list item or heading, without its marker.

    Example:
        >>> text = "# Refunds\n\nAsk for it, e.g. by mail. Money is back\nin 5 days."
        >>> [text[start:end] for start, end in sentence_spans(text)]
        ['Refunds', 'Ask for it, e.g. by mail.', 'Money is back\nin 5 days.']
    """
    blocks = [0, *(match.end() for match in _BLOCK.finditer(text)), len(text)]
    spans: list[tuple[int, int]] = []
    for start, end in pairwise(blocks):
        spans.extend(_in_block(text, start, end))
    return spans


def inverse_document_frequency(texts: Iterable[str]) -> dict[str, float]:
    """Weigh each stem by how rare it is: `ln((1 + n) / (1 + df)) + 1`, as scikit-learn smooths it.

    Example:
        >>> weights = inverse_document_frequency(["refund window", "refund timing"])
        >>> weights["refund"] < weights["timing"[:3]]
        True
    """
    frequency: Counter[str] = Counter()
    n = 0
    for text in texts:
        n += 1
        frequency.update(set(content_words(text)))
    return {word: math.log((1 + n) / (1 + df)) + 1 for word, df in frequency.items()}


def _pairs(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def _in_block(text: str, start: int, end: int) -> list[tuple[int, int]]:
    spans = []
    at = start
    for match in _END.finditer(text, start, end):
        if _ABBREVIATION.search(text, max(start, match.end() - 12), match.end()):
            continue
        spans.append((at, match.end()))
        at = match.end()
    spans.append((at, end))
    return [trimmed for span in spans if (trimmed := _trimmed(text, *span))]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    start = max(start, _MARKER.match(text, start, end).end())  # type: ignore[union-attr]
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if any(character.isalnum() for character in text[start:end]) else None
