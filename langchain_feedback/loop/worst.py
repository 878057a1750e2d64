"""The worst list: which questions fail, how often they are asked, and who says so."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from langchain_feedback.store.asking import Ask, Said, read_asks
from langchain_feedback.store.transactions import clock, reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["WorstQuestion", "rank_questions", "worst_questions"]

_PRIOR = 2.0
_AGREEING = 2
_BASE_OF_NOTHING_GOOD = 0.5


@dataclass(frozen=True)
class WorstQuestion:
    """A question that fails more often than others do."""

    question_id: int
    question: str
    asks: int
    """How often it was asked, whether anybody said something about it or not."""
    negative: int
    """People whose newest word about an answer to it is that it was wrong."""
    positive: int
    """People whose newest word is that it was good."""
    failure_rate: float
    """`(negative + 2 b) / (negative + positive + 2)`, where b is that of all questions; 0 to 1."""
    excess: float
    """How far that lies above b; above 0."""
    score: float
    """`asks * excess`: about how many asks of it fail that would not, were it as the others."""
    families: tuple[str, ...]
    """What kinds of signals say so: see `signals.SIGNALS`."""
    actors: int
    """How many people say so."""
    last_asked: datetime
    trace_ids: tuple[str, ...]
    """The asks that somebody complained of, newest first."""


def worst_questions(
    store: "FeedbackStore", *, days: float = 7, limit: int = 40, now: datetime | None = None
) -> list[WorstQuestion]:
    """Return the questions that fail most, worst first; see `rank_questions`.

    Args:
        store: Whose questions. Traffic of evaluations and playgrounds does not count.
        days: How far back it looks, by when a question was asked; above 0.
        limit: The most that are returned: about half an hour of a reviewer's time.
        now: The end of these days; None: the database's clock.

    Raises:
        ValueError: If `days` or `limit` is not above 0.
        StoreError: If the database cannot be read.
    """
    if not days > 0 or limit < 1:
        msg = f"days and limit must be above 0, got {days!r} and {limit!r}"
        raise ValueError(msg)
    with reading(store) as connection:
        now = now or clock(store, connection)
        asks = read_asks(connection, store.namespace, since=now - timedelta(days=days))
    return rank_questions([ask for ask in asks if ask.created_at <= now], limit=limit)


def rank_questions(asks: Iterable[Ask], *, limit: int | None = None) -> list[WorstQuestion]:
    """Return the questions of some asks that fail most, worst first.

    A question is listed where two signals agree that it fails: of two kinds, or of two people.
    A person has one voice a question, the newest, however often it was asked or rated, and one
    who both complains and praises at once complains. Questions are ordered by how often they
    are asked times how far their failure rate lies above that of all questions. The rate
    is shrunk by two votes of that base rate, so that one complaint alone does not make 100 %.

    In the simulation of the tests (5,000 asks, 600 questions of which a fifth fail mostly, one
    rating in five wrong), 73 % of 40 items were such questions where 30 % of the asks were
    rated, and 61 % with 5 %; they stood for half of all failures. The newest 40 traces with a
    mean rating below -.3 were 33 questions, right in 43 and 41 %, and stood for 30 %.
    """
    by_question: dict[int, list[Ask]] = defaultdict(list)
    for ask in sorted(asks, key=lambda ask: (ask.created_at, ask.trace_id)):
        by_question[ask.question_id].append(ask)
    voices = {key: _voices(found) for key, found in by_question.items()}
    base = _base_rate(voices.values())
    listed = [
        one
        for key, found in by_question.items()
        if (one := _worst(found, voices[key], base)) is not None
    ]
    listed.sort(key=lambda one: (-one.score, -one.negative, one.question_id))
    return listed[:limit]


class _Voices(NamedTuple):
    against: frozenset[str]
    for_it: frozenset[str]


def _voices(asks: Sequence[Ask]) -> _Voices:
    """Return who says what of a question; the asks are in the order of time."""
    newest: dict[str, bool] = {}
    for ask in asks:
        newest |= {said.actor: False for said in ask.said if said.is_for}
        newest |= {said.actor: True for said in ask.against}
    against = frozenset(actor for actor, complains in newest.items() if complains)
    return _Voices(against, frozenset(newest) - against)


def _base_rate(voices: Iterable[_Voices]) -> float:
    """Return the failure rate of all that was said; a half where nobody said anything good."""
    counted = [(len(one.against), len(one.for_it)) for one in voices]
    negative, positive = sum(n for n, _ in counted), sum(p for _, p in counted)
    # Otherwise none of them would be worse than all the others, which fail always.
    return negative / (negative + positive) if positive else _BASE_OF_NOTHING_GOOD


def _worst(asks: Sequence[Ask], voices: _Voices, base: float) -> WorstQuestion | None:
    complaints = [(ask, _complaints(ask, voices)) for ask in asks]
    families = {said.family for _, all_said in complaints for said in all_said}
    negative, positive = len(voices.against), len(voices.for_it)
    rate = (negative + _PRIOR * base) / (negative + positive + _PRIOR)
    agree = len(families) >= _AGREEING or negative >= _AGREEING
    if not agree or rate <= base:
        return None
    return WorstQuestion(
        question_id=asks[-1].question_id,
        question=asks[-1].question,
        asks=len(asks),
        negative=negative,
        positive=positive,
        failure_rate=rate,
        excess=rate - base,
        score=len(asks) * (rate - base),
        families=tuple(sorted(families)),
        actors=negative,
        last_asked=asks[-1].created_at,
        trace_ids=tuple(ask.trace_id for ask, all_said in reversed(complaints) if all_said),
    )


def _complaints(ask: Ask, voices: _Voices) -> list[Said]:
    return [said for said in ask.against if said.actor in voices.against]
