"""What trains a ranker: the linear one, or any other model behind the same protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from langchain_feedback.ranking.features import PairScorer, Scorer, WordWeights, version_of
from langchain_feedback.ranking.linear import LEAST_GROUPS, LinearRanker, Ranker, TrainingGroup

__all__ = ["Estimator", "LinearEstimator", "TrainedRanker"]


@runtime_checkable
class TrainedRanker(Ranker, Protocol):
    """A ranker that can be kept."""

    def to_json(self) -> str:
        """Write it as JSON, or where it lies and what its digest is; nothing that runs."""


@runtime_checkable
class Estimator(Protocol):
    """Learns a ranker from reviewed questions.

    Example:
        >>> isinstance(LinearEstimator(), Estimator)
        True
    """

    @property
    def kind(self) -> str:
        """Which loader reads what it makes."""

    @property
    def least(self) -> int:
        """How many reviewed questions it needs."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What else, beside the labels, decides what it makes: plain JSON values."""

    def fit(self, groups: Sequence[TrainingGroup], words: WordWeights) -> TrainedRanker:
        """Learn.

        Args:
            groups: Reviewed questions with their whole pools, each of which teaches something.
            words: How much each word says, over all chunks that are known.
        """


@dataclass(frozen=True)
class LinearEstimator:
    """Makes a `LinearRanker`: see there."""

    strength: float = 20.0
    """How strongly the base's order holds."""
    extra_features: Mapping[str, Scorer | PairScorer] = field(default_factory=dict, repr=False)
    """Features of one's own by name: functions, or cross-encoders."""
    least: int = LEAST_GROUPS
    """How many reviewed questions it needs."""
    kind: str = field(default="linear", init=False)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The strength, and the features with their versions."""
        features = {name: version_of(scorer) for name, scorer in self.extra_features.items()}
        return {"strength": self.strength, "extra_features": features}

    def fit(self, groups: Sequence[TrainingGroup], words: WordWeights) -> LinearRanker:
        """Learn; see `LinearRanker.fit`."""
        return LinearRanker.fit(
            groups,
            words=words,
            extra_features=self.extra_features,
            strength=self.strength,
            least=self.least,
        )
