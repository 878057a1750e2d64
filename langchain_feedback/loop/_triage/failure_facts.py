"""What is known beside the answers themselves, for all of them in a few statements."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from langchain_feedback.quotes.figures import missing_figures
from langchain_feedback.store.alarms import read_alarms
from langchain_feedback.store.asking import Ask
from langchain_feedback.store.believing import LikedChunk, liked_chunks
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Facts", "facts_of", "other_figures"]

_STALE = ("complaints", "reviewer", "gone")
# "One" is more often a pronoun than a number.
_SMALL = "two three four five six seven eight nine ten eleven twelve".split()
_SPELLED = {word: str(value) for value, word in enumerate(_SMALL, 2)}
_WORD = re.compile(rf"\b(?:{'|'.join(_SMALL)})\b", re.IGNORECASE)
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = """January February March April May June July August September October November
December""".split()
# With their capitals: "you may march" names no month.
_DATE = re.compile(rf"\b(?:{'|'.join((*_DAYS, *_MONTHS))})\b")


@dataclass(frozen=True)
class Facts:
    """What is known now."""

    liked: Mapping[int, Sequence[LikedChunk]]
    """By question: the chunks that are pinned for it, or whose belief is at least .1."""
    hashes: Mapping[str, str]
    """Of the texts of chunks, as last seen."""
    texts: Mapping[str, str]
    alarms: Mapping[str, str]
    """The kind of an open alarm, by source."""


def facts_of(
    store: "FeedbackStore", connection: Connection, asks: Sequence[Ask], now: datetime
) -> Facts:
    """Return what is known of some answers' questions, chunks and sources."""
    hashes: dict[str, str] = {}
    texts: dict[str, str] = {}
    columns = (chunks.c.chunk_id, chunks.c.content_hash, chunks.c.text)
    for page in batched(sorted({chunk.chunk_id for ask in asks for chunk in ask.prompt})):
        mine = (chunks.c.namespace == store.namespace) & chunks.c.chunk_id.in_(page)
        for row in connection.execute(select(*columns).where(mine)):
            hashes[row.chunk_id], texts[row.chunk_id] = row.content_hash, row.text
    # A changed text has its own rule, chunk by chunk: complaints of today are of the new one.
    alarms = {
        alarm.source: alarm.kind
        for alarm in read_alarms(connection, store.namespace)
        if alarm.kind in _STALE
    }
    liked = liked_chunks(store, connection, {ask.question_id for ask in asks}, now)
    return Facts(liked, hashes, texts, alarms)


def other_figures(said: str, source: str, known: Sequence[str] = ()) -> list[str]:
    """Return the numbers and dates that a correction has, and its source has others instead.

    Empty where the source names none: then it does not say otherwise.

    Args:
        said: The correction.
        source: The text that the answer rests on.
        known: What else may name them: the question.

    Example:
        >>> other_figures("It is seven days.", "Within five working days.")
        ['7']
        >>> other_figures("It is seven days.", "Money is returned to the card.")
        []
        >>> other_figures("From Monday on.", "The desk is open until Friday.")
        ['Monday']
    """
    said, source = _in_digits(said), _in_digits(source)
    numbers = missing_figures(said, [source, *known]) if missing_figures(source, []) else []
    named = set(_DATE.findall(source))
    dates = [one for one in _DATE.findall(said) if one not in named] if named else []
    return numbers + list(dict.fromkeys(dates))


def _in_digits(text: str) -> str:
    return _WORD.sub(lambda match: _SPELLED[match.group().casefold()], text)
