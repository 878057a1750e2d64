"""When people's votes are enough for an answer to be served again."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from langchain_feedback.index._ranges import check_ranges
from langchain_feedback.ranking.intervals import wilson_interval

__all__ = ["ANONYMOUS", "Gate", "Tally", "Vote", "tally"]

ANONYMOUS = ""
"""All people of whom nothing is known: together they are one."""

_MOST_PER_ACTOR = 2


class Vote(NamedTuple):
    """What a person said of an answer."""

    actor: str
    good: bool
    reviewer: bool
    at: datetime


@dataclass(frozen=True)
class Tally:
    """What some votes add up to."""

    positive: int = 0
    negative: int = 0
    actors: int = 0
    """How many people said it."""
    reviewer_against: bool = False

    @property
    def lower(self) -> float:
        """The lower end of the 95 % interval of the share of good votes."""
        return wilson_interval(self.positive, self.positive + self.negative)[0]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self) | {"lower": round(self.lower, 6)}


@dataclass(frozen=True)
class Gate:
    """How much is enough; all of it must hold, and no reviewer must have said no.

    Looked at after every vote, an answer that 36 % of people like gets through in .2 % of
    cases within 100 votes, one that 68 % like in 61 %.

    Example:
        >>> Gate().passes(Tally(positive=6, actors=3)), Gate().passes(Tally(positive=5, actors=5))
        (True, False)
    """

    least_lower: float = 0.6
    """Of the lower end of the share of good votes; see `Tally.lower`."""
    least_votes: int = 5
    least_actors: int = 3
    """Who has no name is known by the session; all that have neither are one."""

    def __post_init__(self) -> None:
        """Refuse numbers that are out of range."""
        check_ranges(self, shares=("least_lower",))

    def passes(self, said: Tally) -> bool:
        """Whether these votes are enough."""
        return (
            said.positive + said.negative >= self.least_votes
            and said.actors >= self.least_actors
            and said.lower >= self.least_lower
            and not said.reviewer_against
        )


def tally(votes: Iterable[Vote]) -> Tally:
    """Add votes up; of each person the two newest count, of all nameless ones together, too.

    Example:
        >>> from datetime import UTC
        >>> now = datetime(2026, 1, 1, tzinfo=UTC)
        >>> tally([Vote("ann", good=True, reviewer=False, at=now)] * 1_000)
        Tally(positive=2, negative=0, actors=1, reviewer_against=False)
    """
    by_actor: Mapping[str, list[Vote]] = defaultdict(list)
    for vote in votes:
        by_actor[vote.actor].append(vote)
    counted = [vote for said in by_actor.values() for vote in _newest(said)]
    good = sum(vote.good for vote in counted)
    against = any(vote.reviewer and not vote.good for said in by_actor.values() for vote in said)
    return Tally(good, len(counted) - good, len(by_actor), against)


def _newest(said: Sequence[Vote]) -> list[Vote]:
    # Of votes of one instant those against come first: they must not be lost.
    return sorted(said, key=lambda vote: (vote.at, not vote.good), reverse=True)[:_MOST_PER_ACTOR]
