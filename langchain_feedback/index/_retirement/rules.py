"""When a chunk has earned its retirement, and how much of an index may go: numbers and votes."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from langchain_feedback.index._ranges import check_ranges
from langchain_feedback.ranking.intervals import wilson_interval

__all__ = ["RetirementRules", "Tally", "Vote", "tally"]

_Z = 2.58
"""Standard deviations to each end of a 99 % interval."""
_SHARES = ("most_upper", "least_kept_share", "most_share")


class Vote(NamedTuple):
    """What a vote credited to a chunk under a question."""

    actor: str
    """Empty: nobody knows who; all such people are one."""
    question_id: int
    polarity: int
    """1 or -1; 0 says neither, and takes back what the person said before."""
    weight: float
    at: datetime


@dataclass(frozen=True)
class Tally:
    """What the votes on a chunk add up to."""

    votes: float = 0.0
    """Each counts its weight, 1 at most."""
    positive: float = 0.0
    actors: int = 0
    questions: int = 0
    upper: float = 1.0
    """The upper end of the 99 % interval of the share of good votes."""
    last_positive: datetime | None = None
    """When somebody last said that the chunk was good, under any question."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        last = self.last_positive and self.last_positive.isoformat()
        return asdict(self) | {"upper": round(self.upper, 6), "last_positive": last}


@dataclass(frozen=True)
class RetirementRules:
    """When votes are enough, how long a chunk is hidden first, and how much may go.

    Looked at after each of 200 votes, a chunk that 36 % of people find good is retired in .2 %
    of cases, one that half of them do never, one that 20 % do in 82 %, one that 10 % do always
    (20,000 runs each).

    Example:
        >>> rules = RetirementRules()
        >>> rules.condemns(Tally(votes=40, positive=2, actors=9, questions=8, upper=0.22))
        True
        >>> rules.condemns(Tally(votes=1_000, positive=0, actors=1, questions=8, upper=0.01))
        False
        >>> rules.most_at_once(30), rules.most_at_once(2_000), rules.most_at_once(50_000)
        (1, 20, 100)
    """

    most_upper: float = 0.3
    """Of the share of good votes: the upper end must not be above this, in [0, 1]."""
    least_votes: float = 20
    least_actors: int = 5
    least_questions: int = 5
    most_against_by_one: float = 4
    """What one person's votes against a chunk count at most, over all questions."""
    quiet_days: float = 90
    """A chunk that was found good within these days stays; so does one that somebody restored."""
    hidden_days: float = 14
    """For so long a chunk is only hidden, before it is removed from the index."""
    least_kept_share: float = 0.5
    """The share of a source's text that stays, in [0, 1]; one chunk stays in any case."""
    most_share: float = 0.01
    """The share of all chunks that one run may hide, and remove, in [0, 1]; one in any case."""
    most_a_run: int = 100

    def __post_init__(self) -> None:
        """Refuse numbers that are out of range."""
        check_ranges(self, shares=_SHARES)

    def condemns(self, said: Tally) -> bool:
        """Whether these votes alone are enough."""
        return (
            said.votes >= self.least_votes
            and said.actors >= self.least_actors
            and said.questions >= self.least_questions
            and said.upper <= self.most_upper
        )

    def most_at_once(self, chunks: int) -> int:
        """How many of so many chunks one run may hide, and how many it may remove."""
        return min(self.most_a_run, max(1, math.floor(self.most_share * chunks)))


def tally(votes: Iterable[Vote], most_against_by_one: float = 4) -> Tally:
    """Add up the votes on a chunk: of each person the newest under each question.

    Example:
        >>> from datetime import UTC
        >>> now = datetime(2026, 1, 1, tzinfo=UTC)
        >>> said = tally(Vote("ann", at, -1, 1.0, now) for at in range(1_000))
        >>> said.votes, said.positive, said.actors, said.questions
        (4.0, 0.0, 1, 1000)
    """
    newest: dict[tuple[str, int], Vote] = {}
    last: datetime | None = None
    # Of votes of one instant the good one counts: it must not be lost.
    for vote in sorted(votes, key=lambda vote: (vote.at, vote.polarity, vote.weight)):
        newest[vote.actor, vote.question_id] = vote
        last = vote.at if vote.polarity > 0 else last
    counted = [vote for vote in newest.values() if vote.polarity]
    good = [min(vote.weight, 1.0) for vote in counted if vote.polarity > 0]
    against = defaultdict[str, list[float]](list)
    for vote in counted:
        against[vote.actor] += [min(vote.weight, 1.0)] if vote.polarity < 0 else []
    # Summed exactly: in whatever order the votes came, it is the same.
    positive = math.fsum(good)
    most = (min(math.fsum(one), most_against_by_one) for one in against.values())
    total = positive + math.fsum(most)
    return Tally(
        votes=total,
        positive=positive,
        actors=len({vote.actor for vote in counted}),
        questions=len({vote.question_id for vote in counted}),
        upper=wilson_interval(positive, total, z=_Z)[1],
        last_positive=last,
    )
