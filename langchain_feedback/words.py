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

# Words that a question has whatever it is about, without accents.
_STOP_WORDS = frozenset(
    # English: questions, pronouns, function words, and what apostrophes leave behind
    "what when where which who whom whose why how do does did doing done can could may might"
    " shall should will would must am is are was were be been being have has had having me my we"
    " us our you your he she it its they them their this that these those there here an the and"
    " or but nor if then else than so as of at by for from in into on onto to with without about"
    " under between through during before after above below again not no any"
    " some all each every both few more most other such only own same too very just also one"
    " need needs needed want wants wanted take takes took taken taking get gets got getting go"
    " goes going went gone come comes came make makes made making give gives gave given"
    " ll re ve don doesn didn isn aren wasn weren won couldn shouldn wouldn hasn haven hadn"
    # German, French and Spanish questions, where they are not English words of their own
    " wie wer wen wem wo wann warum wieso weshalb wozu welche welcher welches welchen gibt es ich"
    " kann muss darf quand pourquoi combien quel quelle quels quelles qui que quoi est ce je"
    " puis dois cuando cuanto cuanta cuantos cuantas cual cuales donde quien como por"
    " puedo".split()
)
# `\w` leaves combining signs out, and in Indic scripts they are vowels: Hindi would
# fall apart into single consonants. Whole blocks, without the danda that ends a sentence.
_SIGN = (
    r"\u0300-\u036f\u0900-\u0963\u0966-\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc"
    r"\u0ec8-\u0ecd\u102b-\u103e\u17b4-\u17d3\u3099\u309a"
)
# Hebrew and Arabic are written with or without points; joiners and soft hyphens are invisible.
_OPTIONAL = re.compile(
    r"[\u00ad\u200c\u200d\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    r"\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc]+"
)
_LETTERS = rf"[^\W_](?:[^\W_]|[{_SIGN}])*"
_WORD = re.compile(rf"{_LETTERS}(?:['’]{_LETTERS})?")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff]+"
)
_ACCENTS = re.compile("[\u0300-\u036f]")
# "How long" asks for a time, not for something long.
_HOW = re.compile(r"\bhow (?:long|many|much|often|far|fast|soon|old|big|large)\b", re.IGNORECASE)
_HANGUL = re.compile("[\uac00-\ud7af]")
_STEM_LENGTH = 6
_PLURAL = re.compile(r"(?<=..)[^us]s\Z")
# What must be left before an ending: all of them are part of other words ("string", "need").
_SYLLABLE = re.compile("[aeiouy][^aeiou]")
_ENDINGS = ("ing", "ed", "ment")
_LAST_E = re.compile(r"(?<=..)e+\Z")
_LAST_Y = re.compile(r"(?<=..)y\Z")
_DOUBLED = re.compile(r"([^\W_])\1\Z")

# Longer numbers open no list item: "The fee is\n500. It is due."
_BLOCK = re.compile(r"\n\s*\n|\n(?=[ \t]*(?:[-*+•|>#]|\d{1,2}[.)]\s))|(?<=\|)\n")
# One attempt for each run of marks, and none inside it: linear on "......".
_END = re.compile(
    r"(?<![.!?…؟۔।॥])[.!?…؟۔।॥]++[\"'”’)\]]*+(?=\s+[^\s\W]|\s+[\"'“‘(\[`*]|\s*$)"
    r"|[。！？｡]+[」』”]?"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|resp|approx|no|nr|fig|sec|dr|mr|mrs|ms|st|inc|ltd|bzw|z\.b|ca)"
    r"|\b[A-Za-z])\.$",
    re.IGNORECASE,
)
_MARKER = re.compile(r"\s*(?:(?:[-*+•>]|#{1,6}|\d{1,2}[.)])\s+)*")


def tokens(text: str) -> list[str]:
    """Return the folded words of `text`, unstemmed; pairs of characters where none are spaced.

    Example:
        >>> tokens("The server's 2 plans.")
        ['the', "server's", '2', 'plans']
        >>> tokens("退款时间")
        ['退款', '款时', '时间']
    """
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    folded = _OPTIONAL.sub("", folded)
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

    Accents do not count, nor do single letters and the words of `_STOP_WORDS`.

    Example:
        >>> content_words("How do cancellations of the plans work?")
        ['cancel', 'plan', 'work']
    """
    return [
        stem(word)
        for token in tokens(_HOW.sub("how", text))
        for word in _bare_words(token)
        if word not in _STOP_WORDS and (len(word) > 1 or word.isdigit())
    ]


def stem(word: str) -> str:
    """Cut a word's ending so that its forms meet; a wrong guess costs a match, no more.

    A plural `-s` goes first, nearly as in the S-stemmer (D. Harman, "How effective is
    suffixing?", JASIS 42(1), 1991), then one English ending, a last `-e`, and one of two
    equal last letters. Of the rest the first six letters are kept, which joins many
    forms of words in other languages too. Words with digits stay.

    Example:
        >>> [stem(word) for word in ("billed", "bills", "policies", "remboursement", "mp3s")]
        ['bil', 'bil', 'polici', 'rembou', 'mp3s']
    """
    if not word.isalpha():
        return word
    if _PLURAL.search(word):
        word = word[:-3] + "y" if word.endswith("ies") else word[:-1]
    for ending in _ENDINGS:
        root = word.removesuffix(ending)
        if root != word and _SYLLABLE.search(root):
            word = root
            break
    word = _LAST_Y.sub("i", _LAST_E.sub("", word))
    return _DOUBLED.sub(r"\1", word)[:_STEM_LENGTH]


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
        >>> weights["refund"] < weights[stem("timing")]
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


def _bare_words(token: str) -> list[str]:
    """Drop accents and a possessive; Korean, whose particles stick to words, goes in pairs."""
    if token.isascii():
        return [token.removesuffix("'s")]
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", token))
    word = unicodedata.normalize("NFC", bare)
    return _pairs(word) if _HANGUL.match(word) else [word]


def _in_block(text: str, start: int, end: int) -> list[tuple[int, int]]:
    spans = []
    # The full stop of "1. " ends no sentence; a number with nothing behind it is no marker.
    marker = _MARKER.match(text, start, end).end()  # type: ignore[union-attr]
    at = start if marker == end else marker
    for match in _END.finditer(text, at, end):
        if _ABBREVIATION.search(text, max(start, match.end() - 12), match.end()):
            continue
        spans.append((at, match.end()))
        at = match.end()
    spans.append((at, end))
    return [trimmed for span in spans if (trimmed := _trimmed(text, *span))]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if any(character.isalnum() for character in text[start:end]) else None
