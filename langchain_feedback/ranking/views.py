"""What a policy reads (the candidates, and one view of the feedback) and what it gives.

C is the number of candidate chunks, Q the number of past questions. Sequences of numbers
become arrays; wrong shapes and impossible numbers raise `ValueError`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langchain_feedback.ranking._checks import Floats, amounts, cosines, same_shape

__all__ = ["Candidates", "EvidenceView", "RatingsView", "Scores", "View", "VotesView"]

_LOWEST, _HIGHEST = 1, 5
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Candidates:
    """The chunks to rank.

    Example:
        >>> pool = Candidates([0, 1, -1])
        >>> len(pool), pool.pool.tolist()
        (3, [True, True, False])
    """

    base_rank: NDArray[np.intp]
    """(C,) position in the base's order, from 0; -1: the base's pool lacks it (injected)."""
    documents: Sequence[Document] = ()
    """The chunks themselves, for policies that read metadata; empty when unknown."""

    def __post_init__(self) -> None:
        ranks = np.asarray(self.base_rank)
        if ranks.size and ranks.dtype.kind not in "iu":
            msg = f"base_rank must be whole numbers, got {self.base_rank!r}"
            raise ValueError(msg)
        if ranks.ndim != 1 or (ranks < -1).any():
            msg = f"base_rank must be one row of ranks from 0, or -1, got {self.base_rank!r}"
            raise ValueError(msg)
        if len(self.documents) not in (0, len(ranks)):
            msg = f"There are {len(ranks)} base ranks, and {len(self.documents)} documents"
            raise ValueError(msg)
        object.__setattr__(self, "base_rank", ranks.astype(np.intp))

    def __len__(self) -> int:
        return len(self.base_rank)

    @property
    def pool(self) -> NDArray[np.bool_]:
        """(C,) which of them the base returned itself."""
        return self.base_rank >= 0


@dataclass(frozen=True, eq=False)
class EvidenceView:
    """What was said of the candidates (columns) under past questions (rows).

    Example:
        >>> view = EvidenceView([0.97], [False], positive=[[2.0, 0.0]], negative=[[0.0, 1.0]])
        >>> view.positive.shape, view.candidates
        ((1, 2), 2)
    """

    similarity: Floats
    """(Q,) cosine to the question now asked, in [-1, 1]."""
    exact: NDArray[np.bool_]
    """(Q,) whether it is the identical normalized question."""
    positive: Floats
    """(Q, C) weight of the votes in favor, decayed to now, at least 0."""
    negative: Floats
    """(Q, C) weight of the votes against, decayed to now, at least 0."""

    def __post_init__(self) -> None:
        similarity = cosines("similarity", self.similarity)
        exact = np.asarray(self.exact)
        if exact.size and exact.dtype.kind != "b":
            msg = f"exact must be true or false for each past question, got {self.exact!r}"
            raise ValueError(msg)
        positive = amounts("positive", self.positive, 2)
        negative = amounts("negative", self.negative, 2)
        rows = positive.shape[:1]
        same_shape(similarity=similarity.shape, exact=exact.shape, rows_of_positive=rows)
        same_shape(positive=positive.shape, negative=negative.shape)
        _set(self, similarity=similarity, exact=exact.astype(np.bool_))
        _set(self, positive=positive, negative=negative)

    @property
    def candidates(self) -> int:
        """C, the number of columns."""
        return int(self.positive.shape[1])


@dataclass(frozen=True, eq=False)
class RatingsView:
    """The raw ratings of each candidate.

    Example:
        >>> RatingsView(total=[9, 0], count=[2, 0]).candidates
        2
    """

    total: Floats
    """(C,) sum of its ratings, each from 1 to 5."""
    count: Floats
    """(C,) how many there are."""

    def __post_init__(self) -> None:
        total, count = amounts("total", self.total, 1), amounts("count", self.count, 1)
        same_shape(total=total.shape, count=count.shape)
        slack = _ROUNDING * (1 + total)
        if (total < _LOWEST * count - slack).any() or (total > _HIGHEST * count + slack).any():
            msg = (
                f"total must be the sum of count ratings from {_LOWEST} to {_HIGHEST}, "
                f"got {total} for counts of {count}"
            )
            raise ValueError(msg)
        _set(self, total=total, count=count)

    @property
    def candidates(self) -> int:
        """C, the number of chunks."""
        return len(self.total)


@dataclass(frozen=True, eq=False)
class VotesView:
    """The votes on each candidate within a window of days, whatever the question was.

    Example:
        >>> VotesView(positive=[3.0], negative=[0.3], votes=[4]).candidates
        1
    """

    positive: Floats
    """(C,) summed weight in favor, at least 0."""
    negative: Floats
    """(C,) summed weight against, at least 0."""
    votes: Floats
    """(C,) number of votes."""

    def __post_init__(self) -> None:
        positive = amounts("positive", self.positive, 1)
        negative = amounts("negative", self.negative, 1)
        votes = amounts("votes", self.votes, 1)
        same_shape(positive=positive.shape, negative=negative.shape, votes=votes.shape)
        _set(self, positive=positive, negative=negative, votes=votes)

    @property
    def candidates(self) -> int:
        """C, the number of chunks."""
        return len(self.votes)


View: TypeAlias = EvidenceView | RatingsView | VotesView


@dataclass(frozen=True, eq=False)
class Scores:
    """What a policy says of each candidate.

    They are float64 arrays; `tolist()` makes the plain numbers that metadata holds.

    Example:
        >>> Scores([0.5, 1.0, 0.5], belief=[0, 0, 0], multiplier=[1, 1, 1]).order().tolist()
        [1, 0, 2]
    """

    score: Floats
    """(C,) to sort by, higher is better; its scale is the policy's own."""
    belief: Floats
    """(C,) in [-1, 1]: what feedback says of it, 0 is nothing."""
    multiplier: Floats
    """(C,) the same for people, 1 is nothing."""

    def order(self) -> NDArray[np.intp]:
        """Return the positions of the candidates, best first; equal ones keep their order.

        Equal means to six digits: votes that came seconds apart have aged by less.
        """
        return np.argsort(-np.round(self.score, 6), kind="stable")


def _set(view: object, **values: NDArray[np.generic]) -> None:
    # The only way to put a converted array into a frozen dataclass.
    for name, value in values.items():
        object.__setattr__(view, name, value)
