"""What one question says about the answer before it; pure rules over two asks of a session."""

import re
import unicodedata
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_feedback.loop._deriving.denials import MONTHS, asks_about, denies, folded
from langchain_feedback.quotes.figures import missing_figures
from langchain_feedback.store.asking import Ask
from langchain_feedback.words import content_words, stem, tokens

__all__ = ["Vector", "contradicts", "is_regenerated", "is_rephrased", "names_another_figure"]

Vector = NDArray[np.float32]

_REGENERATED = timedelta(seconds=30)
_REPHRASED = timedelta(seconds=120)
_CONVERSATION = timedelta(minutes=30)
_SAME_TOP_COSINE, _COSINE = 0.5, 0.82
_FEW_WORDS = 2
_STEM, _UNSPACED = 3, "\u2e80"

_NUMBER = re.compile(r"\d+(?:[.,'’]\d+)*")
_SYMBOLS = {"%": "percent", "€": "euro", "$": "dollar", "£": "pound", "¥": "yen"}
_ALIASES = {"prozent": "percent", "procent": "percent", "pourcent": "percent", "eur": "euro"}
_DAY = re.compile(
    rf"(?<!\d)(\d{{1,2}})(?:\.|st|nd|rd|th|er|º|°)?\s+(?:of\s+|de\s+|di\s+)?({'|'.join(MONTHS)})\b"
    rf"|\b({'|'.join(MONTHS)})\.?\s+(\d{{1,2}})(?!\d)"
)


def is_regenerated(first: Ask, then: Ask) -> bool:
    """Whether the same question was asked again within 30 seconds, for another answer."""
    return first.question_id == then.question_id and _within(first, then, _REGENERATED)


def is_rephrased(
    first: Ask, then: Ask, one: Vector | None = None, other: Vector | None = None
) -> bool:
    """Whether a question was asked again in other words, within 120 seconds.

    It was if both found the same first chunk and the cosine of their vectors is at least .5,
    or the cosine is at least .82; without vectors, if both found the same first chunk. For
    questions of one FeedbackQA passage, against questions of other passages of its page
    (2,150 questions of the United States part, all pairs, 3 in 10 being rephrased), that is
    right in 95 % and finds 47 %; a cosine of .82 alone is right in 96 % and finds 19 %. On all
    of FeedbackQA it was 78 and 36 %, against 83 and 13 %.

    Args:
        first: The question.
        then: The next one of its session.
        one: The first question's vector, of unit length.
        other: The next one's, by the same model.
    """
    if first.question_id == then.question_id or not _within(first, then, _REPHRASED):
        return False
    same_top = bool(_top(first)) and _top(first) == _top(then)
    if one is None or other is None or one.shape != other.shape:
        return same_top
    cosine = float(one @ other)
    return cosine >= _COSINE or (same_top and cosine >= _SAME_TOP_COSINE)


def contradicts(first: Ask, then: Ask) -> bool:
    """Whether what is written next denies the answer before it, within 30 minutes.

    It opens with a denial, or names another figure for what the answer gives one for: see
    `names_another_figure`. A hint for reviewers; how often it is right was not measured.
    """
    if first.question_id == then.question_id or not _within(first, then, _CONVERSATION):
        return False
    answer = (first.answer or "").rstrip()
    return denies(then.question, asked_back=answer.endswith(("?", "？"))) or names_another_figure(
        first.question, answer, then.question
    )


def names_another_figure(question: str, answer: str, reply: str) -> bool:
    """Whether a reply has a number or a date where the answer has another one.

    A number counts for the word behind it, or its sign: 30 days against 14 days, never
    against 14 %. A number of the question, or of the answer, is nobody's correction. The reply
    must be about the same: it shares a further word with question or answer, or says little
    else. A reply that opens as a question does ("what if", "can I") asks, and claims nothing.

    Example:
        >>> said = "Refunds take 14 days and cost 5 %."
        >>> [
        ...     names_another_figure("How long do refunds take?", said, reply)
        ...     for reply in ("It says 30 days!", "Can I wait 30 days?", "I pay 30 euros")
        ... ]
        [True, False, False]
    """
    if not answer or asks_about(reply):
        return False
    claimed = _another_number(question, answer, reply) or _another_day(question, answer, reply)
    return bool(claimed) and _is_about(f"{question}\n{answer}", reply, claimed)


class _Measure(NamedTuple):
    number: str
    things: tuple[str, ...]
    """The stems of the sign beside it and of the two words behind it."""


def _another_number(question: str, answer: str, reply: str) -> set[str]:
    """Return the things of which the reply has another number than the answer."""
    new = set(missing_figures(reply, [answer, question]))
    given = [measure.things for measure in _measures(answer)]
    return {
        thing
        for measure in _measures(reply)
        if measure.number in new
        for things in given
        for thing in _shared(measure.things, things)
    }


def _another_day(question: str, answer: str, reply: str) -> set[str]:
    given = set(_days(answer))
    other = set(_days(reply)) - given - set(_days(question))
    return {"date"} if given and other else set()


def _measures(text: str) -> Iterator[_Measure]:
    text = unicodedata.normalize("NFKC", text)
    for match in _NUMBER.finditer(text):
        before, behind = text[: match.start()].rstrip()[-1:], text[match.end() :][:60].lstrip()
        sign = _SYMBOLS.get(before) or _SYMBOLS.get(behind[:1])
        # No word of the next clause.
        words = tokens(re.split(r"[.,;:!?()\d\n]", behind, maxsplit=1)[0])[:2]
        stems = [_ALIASES.get(folded(word), stem(folded(word))) for word in words]
        things = [sign] if sign else stems
        yield _Measure(match.group(), tuple(things))


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> Iterator[str]:
    """Yield what both are numbers of; of "14 working days" and "3 days", the second word."""
    for at, mine in enumerate(one):
        for where, theirs in enumerate(other):
            shorter, longer = sorted((mine, theirs), key=len)
            long_enough = len(shorter) >= _STEM or shorter[:1] >= _UNSPACED
            if (at == 0 or where == 0) and long_enough and longer.startswith(shorter):
                yield mine


def _days(text: str) -> Iterator[tuple[int, int]]:
    """Yield the month and day of each date with a month's name."""
    for day, month, month_first, day_second in _DAY.findall(folded(text)):
        yield MONTHS[month or month_first], int(day or day_second)


def _is_about(said: str, reply: str, things: set[str]) -> bool:
    known = {word for word in content_words(said) if word.isalpha()} - things
    words = {word for word in content_words(reply) if word.isalpha()} - things
    return bool(words & known) or len(words) <= _FEW_WORDS


def _within(first: Ask, then: Ask, limit: timedelta) -> bool:
    return timedelta() <= then.created_at - first.created_at <= limit


def _top(ask: Ask) -> str:
    return ask.last_search[0].chunk_id if ask.last_search else ""
