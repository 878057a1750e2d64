"""Recognize an answer that only says that there is no answer, without asking anybody."""

import re

from langchain_feedback.words import sentence_spans

__all__ = ["says_no_answer"]

_NO_ANSWER = re.compile(
    r"\b(?:(?:i|we) (?:do not|don't|could not|couldn't|can not|cannot|can't|was not able to|am "
    r"(?:not able|unable) to|was unable to) (?:know|find|answer|determine)\b"
    r"|(?:the )?(?:provided |given )?(?:documents?|chunks?|context|sources?|texts?|passages?) "
    r"(?:do not|does not|don't|doesn't) (?:say|mention|contain|hold|provide|answer|specify|"
    r"include|state|cover)\b"
    r"|(?:there is|i have|i found) no (?:information|answer|mention)\b"
    r"|(?:ich|wir) (?:weiß|weiss|wissen) (?:das |es )?nicht\b|keine (?:angaben|informationen)\b"
    r"|je ne sais pas\b|aucune information\b|no (?:lo )?sé\b|no encontré\b)",
    re.IGNORECASE,
)
# What follows one of these says something that nobody has verified.
_TURN = re.compile(
    r"\b(?:but|however|although|though|yet|and|so|than|because|since|while|whereas|which|who"
    r"|aber|jedoch|und|weil|denn|mais|et|car|parce|pero|sino|y|porque)\b|[;:,]",
    re.IGNORECASE,
)
_SHORT_ANSWER = 40


def says_no_answer(answer: str) -> bool:
    """Whether an answer only says, in common words, that there is no answer.

    Deliberately narrow: it must open with such words, be short, and hold no number
    no comma, and no "but" or "because". The verifying model recognizes the others.

    Example:
        >>> says_no_answer("I could not find this in the documents.")
        True
        >>> says_no_answer("The documents do not mention fees. Refunds take 14 days.")
        False
    """
    plain = answer.replace("’", "'").strip()
    opening = (
        re.split(r"[,;:]\s", plain, maxsplit=1)[-1] if plain[:5].casefold() == "sorry" else plain
    )
    short = len(plain.split()) <= _SHORT_ANSWER and not re.search(r"\d", plain)
    only = len(sentence_spans(plain)) == 1
    return short and only and bool(_NO_ANSWER.match(opening)) and not _TURN.search(opening)
