"""Policies: each turns one view of the feedback into scores to sort by."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar, get_args, runtime_checkable

import numpy as np
from langchain_core.documents import Document

from langchain_feedback.ranking._base import scaled_base
from langchain_feedback.ranking._checks import Floats, finite_number, not_negative, one_of
from langchain_feedback.ranking._wilson import wilson_feedback
from langchain_feedback.ranking.belief import belief, multiplier
from langchain_feedback.ranking.kernels import Kernel, LinearKernel
from langchain_feedback.ranking.views import (
    Candidates,
    EvidenceView,
    RatingsView,
    Scores,
    View,
    VotesView,
)

__all__ = ["AverageRating", "KernelBelief", "Needs", "RankingPolicy", "WilsonFusion"]

Needs: TypeAlias = Literal["evidence", "ratings", "votes"]
Direction: TypeAlias = Literal["higher", "lower"]
Scope: TypeAlias = Literal["question", "all"]
Quality: TypeAlias = Callable[[Document], float | None]
Wanted = TypeVar("Wanted", EvidenceView, RatingsView, VotesView)

_SIMILARITY, _QUALITY, _FEEDBACK = 0.50, 0.25, 0.25
_UNKNOWN_QUALITY = 0.5
_EXPLORED_VOTES, _WORTH_EXPLORING, _BONUS = 10, 0.65, 0.05


@runtime_checkable
class RankingPolicy(Protocol):
    """What a policy of one's own must offer.

    Example:
        >>> isinstance(KernelBelief(), RankingPolicy)
        True
    """

    @property
    def needs(self) -> Needs:
        """Which view `score` reads: `EvidenceView`, `RatingsView` or `VotesView`."""

    def score(self, candidates: Candidates, view: View) -> Scores:
        """Return one score for each candidate; neither argument is changed."""


@dataclass(frozen=True)
class KernelBelief:
    """The default: the base's order, moved by what similar past questions say of each chunk.

    The score is `base + strength * belief`, in [-strength, 1 + strength] (this package's own
    design, section 6). The base is `1 / log2(2 + rank)`, rank from 0, the discount of DCG
    (Burges et al., "Learning to rank using gradient descent", ICML 2005), min-max scaled to
    [0, 1] over the pool; all equal: 1. A chunk that the pool lacks has the base 0.

    Of two chunks the base's first stays first, unless feedback says better things of the
    other: a vote for a chunk never moves it down, one against it never up.

    Raises:
        ValueError: If strength or prior are negative or not finite, or the direction is
            unknown.
        TypeError: If the kernel is none.

    Example:
        >>> view = EvidenceView([1.0], [True], [[0.0, 0.0, 2.0]], [[0.0, 0.0, 0.0]])
        >>> scores = KernelBelief().score(Candidates([0, 1, 2]), view)
        >>> scores.score.round(2).tolist(), scores.order().tolist()
        ([1.0, 0.26, 1.0], [0, 2, 1])
    """

    kernel: Kernel = field(default_factory=LinearKernel)
    """How much a past question of some similarity counts."""
    strength: float = 2.0
    """How far full belief moves a chunk, in widths of the pool's base scores."""
    prior: float = 2.0
    """How many votes without an opinion shrink each conviction."""
    score_key: str | None = None
    """Metadata field with the backend's own number, used in place of the rank. Ranks are used
    all the same where a chunk of the pool has no finite number there, or the numbers are at
    odds with the base's order (another direction, or another stage's score)."""
    score_direction: Direction = "higher"
    """Whether a higher number is the better one, or a lower one, as of a distance."""

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            msg = f"kernel must be a Kernel such as LinearKernel(), got {self.kernel!r}"
            raise TypeError(msg)
        not_negative("strength", self.strength)
        not_negative("prior", self.prior)
        one_of("score_direction", self.score_direction, get_args(Direction))

    @property
    def needs(self) -> Needs:
        """`"evidence"`."""
        return "evidence"

    def belief(self, view: EvidenceView) -> Floats:
        """Return (C,) what feedback says of each column, in [-1, 1]; 0 is nothing.

        Example:
            >>> view = EvidenceView([0.95], [False], [[2.0, 0.0]], [[0.0, 2.0]])
            >>> KernelBelief().belief(view).round(3).tolist()
            [0.25, -0.25]
        """
        weights = np.where(view.exact, 1.0, self.kernel(view.similarity))
        return belief(weights, view.positive, view.negative, self.prior)

    def score(self, candidates: Candidates, view: View) -> Scores:
        """Return base plus belief.

        Raises:
            TypeError: If the view is no `EvidenceView`.
            ValueError: If its columns are not the candidates.
        """
        said = self.belief(_expected(EvidenceView, candidates, view))
        base = scaled_base(candidates, self.score_key, lower=self.score_direction == "lower")
        return Scores(base + self.strength * said, said, multiplier(said))


@dataclass(frozen=True)
class AverageRating:
    """The classic rule, for comparison: mean raw rating / 3, in [1/3, 5/3]; unrated: 1.

    No similarity, decay or shrinkage; the base's order decides between equals only.

    Raises:
        ValueError: If the scope is unknown.

    Example:
        >>> view = RatingsView(total=[5.0, 0.0, 3.0], count=[1, 0, 3])
        >>> AverageRating().score(Candidates([0, 1, 2]), view).score.round(3).tolist()
        [1.667, 1.0, 0.333]
    """

    scope: Scope = "question"
    """`"question"`: ratings under the identical question; `"all"`: under any question."""

    def __post_init__(self) -> None:
        one_of("scope", self.scope, get_args(Scope))

    @property
    def needs(self) -> Needs:
        """`"ratings"`."""
        return "ratings"

    def score(self, candidates: Candidates, view: View) -> Scores:
        """Return mean rating / 3 as the score and the multiplier; there is no belief.

        Raises:
            TypeError: If the view is no `RatingsView`.
            ValueError: If its columns are not the candidates.
        """
        ratings = _expected(RatingsView, candidates, view)
        score = np.ones_like(ratings.total)
        np.divide(ratings.total, 3 * ratings.count, out=score, where=ratings.count > 0)
        return Scores(score, np.zeros_like(score), score.copy())


@dataclass(frozen=True)
class WilsonFusion:
    """A published recipe, for comparison: .50 similarity + .25 quality + .25 feedback.

    It reproduces the recipe and is no advice. Ranked by .50 similarity + .25 of the recipe's own
    quality score, real questions lost 1.3 points of nDCG@10 (FeedbackQA); on a clean corpus no
    score of that kind foretold what people find helpful. So none is a default here: without
    `quality` each chunk has .5, a constant that changes no order. Junk is hidden by
    `index.gate.QualityGate` instead, which ranks nothing.

    Similarity is the scaled rank base of `KernelBelief`. Feedback is the lower end of the 95 %
    score interval of the share of good votes (Wilson, "Probable inference, the law of
    succession, and statistical inference", JASA 22, 1927), blended with .5 by the confidence
    `min(1, votes / 50)`, and .5 under 5 votes. A chunk of a quality above .65 with n < 10
    votes gets `.05 (1 - n / 10)` on top. The score is in [0, 1.05].

    Raises:
        ValueError: If the window is not above 0.
        TypeError: If `quality` cannot be called.

    Example:
        >>> view = VotesView(positive=[0.0, 60.0], negative=[0.0, 0.0], votes=[0, 60])
        >>> WilsonFusion().score(Candidates([0, 1]), view).score.round(3).tolist()
        [0.75, 0.36]
    """

    quality: Quality | None = None
    """Returns the quality of a chunk in [0, 1], or None when unknown, which counts as .5. None: it
    weighs nothing."""
    window_days: float = 30
    """How old a vote may be that the view counts, in days."""

    def __post_init__(self) -> None:
        if self.quality is not None and not callable(self.quality):
            msg = f"quality must be a function of a Document, got {self.quality!r}"
            raise TypeError(msg)
        days = finite_number(self.window_days)
        if days is None or days <= 0:
            msg = f"window_days must be a number above 0, got {self.window_days!r}"
            raise ValueError(msg)

    @property
    def needs(self) -> Needs:
        """`"votes"`."""
        return "votes"

    def score(self, candidates: Candidates, view: View) -> Scores:
        """Return the fused score; the belief is the feedback part from -1 to 1.

        Raises:
            TypeError: If the view is no `VotesView`.
            ValueError: If its columns are not the candidates, or a quality is not in [0, 1].
        """
        votes = _expected(VotesView, candidates, view)
        similarity = scaled_base(candidates)
        quality, feedback = self._qualities(candidates), wilson_feedback(votes)
        fused = _SIMILARITY * similarity + _QUALITY * quality + _FEEDBACK * feedback
        explored = np.minimum(votes.votes / _EXPLORED_VOTES, 1)
        bonus = np.where(quality > _WORTH_EXPLORING, _BONUS * (1 - explored), 0.0)
        said = 2 * feedback - 1
        return Scores(fused + bonus, said, multiplier(said))

    def _qualities(self, candidates: Candidates) -> Floats:
        values = np.full(len(candidates), _UNKNOWN_QUALITY)
        if self.quality is None:
            return values
        for position, document in enumerate(candidates.documents):
            value = self.quality(document)
            if value is None:
                continue
            number = finite_number(value)
            if number is None or not 0 <= number <= 1:
                msg = f"quality must be from 0 to 1, or None, got {value!r} for {document.id!r}"
                raise ValueError(msg)
            values[position] = number
        return values


def _expected(kind: type[Wanted], candidates: Candidates, view: View) -> Wanted:
    if not isinstance(view, kind):
        msg = f"This policy reads {kind.__name__}, got {type(view).__name__}"
        raise TypeError(msg)
    if view.candidates != len(candidates):
        msg = f"The view has {view.candidates} columns for {len(candidates)} candidates"
        raise ValueError(msg)
    return view
