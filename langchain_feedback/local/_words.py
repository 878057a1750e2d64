"""The words of a text as the file search counts them: folded, without stop words, stemmed."""

import re
import unicodedata
from collections.abc import Iterator

__all__ = ["STOP_WORDS", "stem", "words"]

_STEM_LENGTH = 6
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"  # East Asia
)
_MARKS = "".join(
    chr(code) for code in range(0x370, 0x2000) if unicodedata.category(chr(code))[0] == "M"
)
"""Vowel signs and the like, which `\\w` leaves out: they belong to the word (Hindi, Arabic)."""
_RUN = re.compile(rf"(?P<spaceless>[{_SPACELESS}]+)|(?:(?![{_SPACELESS}])(?:[^\W_]|[{_MARKS}]))+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_PLURAL = re.compile(r"(?<=..)[^us]s\Z")
_SYLLABLE = re.compile("[aeiouy][^aeiou]")
"""What must be left before `-ing` and `-ed`: both are part of `string`, `need`, `red`."""
_LAST_E = re.compile(r"(?<=..)e+\Z")
_LAST_Y = re.compile(r"(?<=..)y\Z")
_DOUBLED = re.compile(r"([^\W_])\1\Z")

STOP_WORDS = frozenset(
    # English: questions, pronouns, function words, and what apostrophes leave behind
    "what when where which who whom whose why how do does did doing done can could may might"
    " shall should will would must am is are was were be been being have has had having me my we"
    " us our you your he she it its they them their this that these those there here an the and"
    " or but nor if then else than so as of at by for from in into on onto to with without about"
    " over under between through during before after above below up down out off again not no any"
    " some all each every both few more most other such only own same too very just also one"
    " ll re ve don doesn didn isn aren wasn weren won couldn shouldn wouldn hasn haven hadn"
    # German, French and Spanish questions, where they are not English words of their own
    " wie wer wen wem wo wann warum wieso weshalb wozu welche welcher welches welchen gibt es ich"
    " kann muss darf quand pourquoi combien quel quelle quels quelles qui que quoi est ce je"
    " puis dois cuando cuanto cuanta cuantos cuantas cual cuales donde quien como por"
    " puedo".split()
)
"""Words that a question has whatever it is about, in small letters without accents."""


def words(text: str) -> list[str]:
    """List the stems of a text in order, without stop words and single letters.

    Case and accents do not count. Names such as `max_retries` are read as their parts. Scripts
    that put no spaces between words are read as pairs of characters, as Lucene's CJK analyzer
    does.

    Example:
        >>> words("How do I get refunds for cancelled plans?")
        ['get', 'refund', 'cancel', 'plan']
        >>> words("返金期間")
        ['返金', '金期', '期間']
    """
    return list(_words(_folded(text)))


def stem(word: str) -> str:
    """Cut a word's ending so that its forms meet: cancel, cancels, cancelled, cancelling.

    A plural `-s` goes first, nearly as in the S-stemmer (D. Harman, "How effective is suffixing?",
    JASIS 42(1), 1991), then English `-ing` or `-ed`, a last `-e`, and one of two equal last
    letters; of the rest the first six letters are kept, which joins many forms of words in other
    languages too. Words with digits stay.

    Example:
        >>> [stem(word) for word in ("billed", "bills", "policies", "remboursement", "mp3s")]
        ['bil', 'bil', 'polici', 'rembou', 'mp3s']
    """
    if not word.isalpha():
        return word
    word = _without_plural(word)
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and _SYLLABLE.search(base):
            word = base
            break
    word = _LAST_Y.sub("i", _LAST_E.sub("", word))
    return _DOUBLED.sub(r"\1", word)[:_STEM_LENGTH]


def _without_plural(word: str) -> str:
    if _PLURAL.search(word):
        return word[:-3] + "y" if word.endswith("ies") else word[:-1]
    return word


def _folded(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", decomposed))


def _words(text: str) -> Iterator[str]:
    for match in _RUN.finditer(text):
        run = match.group()
        if match["spaceless"]:
            yield from [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        elif run not in STOP_WORDS and (len(run) > 1 or run.isdigit()):
            yield stem(run)
