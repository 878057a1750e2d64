"""A ranker of a few weights, anchored at the base's order, that 30 reviewed questions train."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from langchain_core.documents import Document

from langchain_feedback.errors import NotEnoughFeedbackError
from langchain_feedback.ranking._anchored import fitted
from langchain_feedback.ranking._checks import Floats, finite_number
from langchain_feedback.ranking.features import (
    FEATURES,
    PairScorer,
    Scorer,
    WordWeights,
    features_of,
    version_of,
)
from langchain_feedback.ranking.views import Candidates

__all__ = ["LEAST_GROUPS", "LinearRanker", "Ranker", "TrainingGroup"]

LEAST_GROUPS = 30
"""How many reviewed questions with a named chunk in their pool training needs."""

_FORMAT = 1
_DAMAGE = (KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)


@runtime_checkable
class Ranker(Protocol):
    """What orders a pool before feedback acts on it."""

    def score(self, question: str, candidates: Candidates) -> Floats:
        """Return (C,) scores, larger for a better answer; nothing is changed."""


@dataclass(frozen=True)
class TrainingGroup:
    """A reviewed question: its whole stored pool, and which chunks of it are right."""

    question: str
    documents: Sequence[Document]
    base_rank: Sequence[int]
    right: frozenset[int]
    """Positions in `documents`."""

    def __post_init__(self) -> None:
        places = range(len(self.documents))
        if len(self.base_rank) != len(self.documents) or not all(
            at in places for at in self.right
        ):
            msg = (
                f"Of {len(self.documents)} documents there are {len(self.base_rank)} ranks, and "
                f"{sorted(self.right)} are right"
            )
            raise ValueError(msg)

    @property
    def teaches(self) -> bool:
        """Whether there is a right chunk in the pool, and one that is not."""
        return 0 < len(self.right) < len(self.documents)


@dataclass(frozen=True)
class LinearRanker:
    """Scores a candidate by a weighted sum of its standardized features.

    The weights minimize the pairwise logistic loss of each right chunk above every other one
    of its pool (as RankNet: Burges et al., "Learning to rank using gradient descent", ICML
    2005) plus `strength / 2` times the squared distance from the base's order, by Newton's
    method. That anchor is what keeps 30 questions, or wrong labels, from ruining the order; the
    weight of the base's order never falls below 0, whatever the labels say.

    Example:
        >>> pool = [Document("Keys rotate."), Document("Refunds take days.")]
        >>> group = TrainingGroup("How long do refunds take?", pool, [0, 1], frozenset({1}))
        >>> ranker = LinearRanker.fit([group] * 30)
        >>> ranker.score("When are refunds made?", Candidates([0, 1], pool)).argmax().item()
        1
        >>> LinearRanker.from_json(ranker.to_json()) == ranker
        True
    """

    weights: tuple[float, ...]
    """One for each feature, on the standardized scale."""
    means: tuple[float, ...]
    scales: tuple[float, ...]
    words: WordWeights
    labels: str
    """A digest of what it was trained on."""
    extra: tuple[str, ...] = ()
    """The names of the features of one's own, behind `FEATURES`."""
    scorers: Mapping[str, Scorer | PairScorer] = field(
        default_factory=dict, compare=False, repr=False
    )
    """What computes them."""
    versions: tuple[str | None, ...] = ()
    """Of the scorers that it was trained with: see `version_of`."""

    def __post_init__(self) -> None:
        count = len(FEATURES) + len(self.extra)
        if len({*FEATURES, *self.extra}) != count:
            msg = f"Each feature needs a name of its own, got {[*FEATURES, *self.extra]}"
            raise ValueError(msg)
        numbers = (self.weights, self.means, self.scales)
        finite = all(np.isfinite(row).all() for row in numbers)
        if not finite or {len(row) for row in numbers} != {count} or min(self.scales) <= 0:
            msg = (
                f"A ranker of {count} features needs as many finite weights, means and scales > 0"
            )
            raise ValueError(msg)
        if missing := set(self.extra) - set(self.scorers):
            msg = f"This ranker needs the features {sorted(missing)}: pass extra_features={{...}}"
            raise ValueError(msg)
        for name, version in zip(self.extra, self.versions, strict=bool(self.versions)):
            given = version_of(self.scorers[name])
            if version is not None and given != version:
                msg = (
                    f"This ranker was trained with the version {version!r} of the feature "
                    f"{name!r}, and this is {given!r}: train anew"
                )
                raise ValueError(msg)

    @classmethod
    def fit(
        cls,
        groups: Sequence[TrainingGroup],
        *,
        words: WordWeights | None = None,
        extra_features: Mapping[str, Scorer | PairScorer] | None = None,
        strength: float = 20.0,
        least: int = LEAST_GROUPS,
    ) -> "LinearRanker":
        """Train on reviewed questions.

        Args:
            groups: The reviewed questions. One whose right chunk is not in its pool, or that
                has nothing beside it, teaches nothing.
            words: How much each word says; None: counted in the groups' own chunks.
            extra_features: Features of one's own by name: functions, or cross-encoders.
            strength: How strongly the base's order holds, above 0. 5 to 60 gained at every
                size that was measured. At 5, 30 ordinary questions gain a point more than at
                20; of failing ones, which is what a queue holds, they gain the same, and at 20
                the worst runs with wrong labels lose least.
            least: How many questions are needed.

        Raises:
            NotEnoughFeedbackError: If fewer than `least` questions teach something.
            ValueError: If `strength` is not above 0.
        """
        if not (finite_number(strength) or 0) > 0:
            msg = f"strength must be above 0, got {strength!r}"
            raise ValueError(msg)
        taught = [group for group in groups if group.teaches]
        if len(taught) < max(least, 1):
            msg = (
                f"{least} reviewed questions with a named chunk in their pool are needed, and "
                f"there are {len(taught)}. Keep collecting: langchain-feedback loop review"
            )
            raise NotEnoughFeedbackError(msg)
        words = words or WordWeights.of(
            dict.fromkeys(
                document.page_content for group in taught for document in group.documents
            )
        )
        extra = dict(extra_features or {})
        tables = [
            features_of(group.question, Candidates(group.base_rank, group.documents), words, extra)  # type: ignore[arg-type]  # it makes an array
            for group in taught
        ]
        weights, means, scales = fitted(tables, [group.right for group in taught], strength)
        rows = [tuple(row.tolist()) for row in (weights, means, scales)]
        versions = tuple(version_of(scorer) for scorer in extra.values())
        labels = _digest(taught)
        return cls(rows[0], rows[1], rows[2], words, labels, tuple(extra), extra, versions)

    def score(self, question: str, candidates: Candidates) -> Floats:
        """Return (C,) scores; less than a millisecond for 20 candidates seen before.

        Raises:
            ValueError: If the candidates come without documents.
        """
        extra = {name: self.scorers[name] for name in self.extra}
        table = features_of(question, candidates, self.words, extra)
        return np.asarray((table - self.means) / self.scales @ np.array(self.weights))

    def to_json(self) -> str:
        """Write the ranker: names, numbers and digests of words, and nothing that runs."""
        parts = {
            "format": _FORMAT,
            "features": [*FEATURES, *self.extra],
            "versions": self.versions,
            "weights": self.weights,
            "means": self.means,
            "scales": self.scales,
            "words": dict(self.words.weights),
            "rare": self.words.rare,
            "labels": self.labels,
        }
        return json.dumps(parts, sort_keys=True)

    @classmethod
    def from_json(
        cls, text: str, *, extra_features: Mapping[str, Scorer | PairScorer] | None = None
    ) -> "LinearRanker":
        """Read what `to_json` wrote.

        Raises:
            ValueError: If it is something else, is damaged, or needs a feature that is not
                among `extra_features`, or another version of one.
        """
        try:
            parts = json.loads(text)
            known = list(FEATURES)
            if parts["format"] != _FORMAT or parts["features"][: len(known)] != known:
                msg = "another format"
                raise ValueError(msg)  # noqa: TRY301  told with the rest
            extra = tuple(map(str, parts["features"][len(known) :]))
            words = WordWeights(_weights(parts["words"]), _weight(parts["rare"]))
            rows = [tuple(map(float, parts[name])) for name in ("weights", "means", "scales")]
            labels, versions = str(parts["labels"]), tuple(parts["versions"])
        except (*_DAMAGE, ValueError) as error:
            msg = f"This is no ranker that this release reads: {error or type(error).__name__}"
            raise ValueError(msg) from error
        given = extra_features or {}
        scorers = {name: given[name] for name in extra if name in given}
        return cls(rows[0], rows[1], rows[2], words, labels, extra, scorers, versions)


def _weights(table: Mapping[str, Any]) -> dict[str, float]:
    return {str(word): _weight(weight) for word, weight in table.items()}


def _weight(value: Any) -> float:
    weight = float(value)
    if not 0 < weight < np.inf:
        msg = f"a word weighs {weight}"
        raise ValueError(msg)
    return weight


def _digest(groups: Sequence[TrainingGroup]) -> str:
    said = [
        [group.question, [group.documents[at].page_content for at in sorted(group.right)]]
        for group in groups
    ]
    return hashlib.sha256(json.dumps(sorted(said)).encode()).hexdigest()[:16]
