"""How much a past question says about the one now asked, given their similarity."""

import json
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from langchain_feedback.ranking._checks import Floats, finite_number, floats
from langchain_feedback.ranking._fitting import fitted_points

__all__ = ["CalibratedKernel", "ExactKernel", "Kernel", "LinearKernel"]

_KIND = "calibrated"


@runtime_checkable
class Kernel(Protocol):
    """Turns cosines into weights. The identical question has weight 1 without asking it."""

    @property
    def minimum(self) -> float:
        """The cosine below which the kernel is 0: the store searches no further.

        At 1 only the identical question counts, and no search is needed.
        """

    def __call__(self, similarity: ArrayLike, /) -> Floats:
        """Return weights in [0, 1] for cosines in [-1, 1], of the same shape."""


@dataclass(frozen=True)
class ExactKernel:
    """Only the identical question counts; no embedding is needed.

    Example:
        >>> ExactKernel()([0.99, 1.0]).tolist()
        [0.0, 0.0]
    """

    @property
    def minimum(self) -> float:
        """1: there is nothing to search for."""
        return 1.0

    def __call__(self, similarity: ArrayLike, /) -> Floats:
        """Return zeros of the same shape."""
        return np.zeros_like(floats("similarity", similarity))


@dataclass(frozen=True)
class LinearKernel:
    """From 0 at the floor to 1 at a cosine of 1: `max(0, (cosine - floor) / (1 - floor))`.

    This is the triangular (Bartlett) kernel on the distance `1 - cosine`, of the bandwidth
    `1 - floor` (Silverman, "Density estimation for statistics and data analysis", 1986). The
    default floor is on the scale of MiniLM sentence embeddings; other embedders need their own
    one, or a `CalibratedKernel`.

    Raises:
        ValueError: If the floor is not in [0, 1).

    Example:
        >>> LinearKernel()([0.5, 0.9, 0.95, 1.0]).round(3).tolist()
        [0.0, 0.0, 0.5, 1.0]
    """

    floor: float = 0.9
    """The cosine at and below which a past question says nothing, in [0, 1)."""

    def __post_init__(self) -> None:
        number = finite_number(self.floor)
        if number is None or not 0 <= number < 1:
            msg = f"floor must be at least 0 and below 1, got {self.floor!r}"
            raise ValueError(msg)

    @property
    def minimum(self) -> float:
        """The floor."""
        return self.floor

    def __call__(self, similarity: ArrayLike, /) -> Floats:
        """Return weights in [0, 1], of the same shape."""
        rise = (floats("similarity", similarity) - self.floor) / (1 - self.floor)
        return np.asarray(np.clip(rise, 0.0, 1.0))


@dataclass(frozen=True)
class CalibratedKernel:
    """A rising table, straight between its points, fitted from one's own log.

    Below the first point it is 0, above the last it stays at the last one's weight.

    Raises:
        ValueError: If there is no point, a number is out of range, the similarities do not
            rise, or a weight falls.

    Example:
        >>> kernel = CalibratedKernel([(0.6, 0.0), (0.8, 0.5), (0.9, 0.9)])
        >>> kernel([0.5, 0.7, 0.8, 1.0]).round(3).tolist(), kernel.minimum
        ([0.0, 0.25, 0.5, 0.9], 0.6)
    """

    points: tuple[tuple[float, float], ...]
    """(similarity, weight) pairs; similarities rise in [-1, 1], weights never fall in [0, 1]."""
    embedder: str | None = None
    """Name of the embedder whose similarities these are; the table fits no other."""

    def __post_init__(self) -> None:
        table = floats("points", self.points, 2)
        if table.shape[1] != 2 or not len(table):  # noqa: PLR2004  a pair
            msg = f"points must be one or more pairs of similarity and weight: {self.points!r}"
            raise ValueError(msg)
        similarity, weight = table.T
        rises = (np.diff(similarity) > 0).all() and (np.diff(weight) >= 0).all()
        inside = (abs(similarity) <= 1).all() and 0 <= weight[0] <= weight[-1] <= 1
        if not (rises and inside):
            msg = (
                "points must have similarities that rise in [-1, 1] and weights in [0, 1] that "
                f"never fall, got {self.points!r}"
            )
            raise ValueError(msg)
        pairs = tuple((float(at), float(of)) for at, of in table)
        object.__setattr__(self, "points", pairs)

    @property
    def minimum(self) -> float:
        """The last similarity of weight 0, else the first point; 1 if all weights are 0."""
        nothing = [at for at, weight in self.points if weight == 0]
        if len(nothing) == len(self.points):
            return 1.0
        return nothing[-1] if nothing else self.points[0][0]

    def __call__(self, similarity: ArrayLike, /) -> Floats:
        """Return weights in [0, 1], of the same shape."""
        at, weight = np.array(self.points).T
        return np.asarray(np.interp(floats("similarity", similarity), at, weight, left=0.0))

    @classmethod
    def fit(
        cls,
        similarity: ArrayLike,
        first: ArrayLike,
        second: ArrayLike,
        *,
        embedder: str | None = None,
        minimum_pairs: int = 100,
    ) -> Self:
        """Learn from a log how far what one question says of a chunk holds for another.

        Each entry is a pair of past questions with votes on one chunk. Give pairs of every
        similarity, not of close questions alone: the distant ones show what chance is.

        The model: with probability k(similarity) the second question says what the first one
        says, else it is drawn at random. Then k is the agreement of their signs beyond chance,
        Scott's pi `1 - observed / expected disagreement` ("Reliability of content analysis",
        Public Opinion Quarterly 19, 1955). Pairs count by the product of their convictions.

        Chance is what random questions *on one chunk* show. It starts from the share of good
        votes in pairs of that similarity (distant questions more often agree that a chunk is
        bad), and is lowered by what all pairs under a cosine of .9 agree on beyond it, which is
        the chunk's own quality: good or bad, whatever the question.

        The pool-adjacent-violators algorithm (Ayer et al., Annals of Mathematical Statistics
        26, 1955) makes k rise. Since many weak voices add up in a belief, the table holds
        the lower ends of one-sided 95 % intervals, each at the upper end of its bin (of 25
        pairs or more). So k is rather too low than too high; noise of the raters lowers it too.

        Args:
            similarity: (N,) cosines in [-1, 1].
            first: (N,) `conviction` of one question about the chunk, in [-1, 1].
            second: (N,) that of the other. Which one is first does not matter.
            embedder: Name of the embedder, kept with the table.
            minimum_pairs: The fewest pairs to learn from; ones without a sign do not count.

        Returns:
            A kernel with at most 50 points.

        Raises:
            NotEnoughFeedbackError: If there are fewer pairs, or all votes say the same.
            ValueError: If shapes differ, or a number is out of its range or not finite.

        Example:
            Two questions agree above .5, and are at odds as often as not below:

            >>> cosine = np.linspace(0, 1, 1000)
            >>> first = np.tile([0.5, 0.5, -0.5, -0.5], 250)
            >>> second = np.where(cosine > 0.5, first, np.tile([0.5, -0.5], 500))
            >>> kernel = CalibratedKernel.fit(cosine, first, second, embedder="mini")
            >>> kernel([0.2, 0.9]).round(1).tolist()
            [0.0, 0.8]
        """
        points = fitted_points(similarity, first, second, minimum_pairs=minimum_pairs)
        return cls(points, embedder)

    def to_json(self) -> str:
        """Return the table as JSON, for `from_json`.

        Example:
            >>> kernel = CalibratedKernel([(0.8, 0.0), (1.0, 0.9)], embedder="mini")
            >>> kernel.to_json()
            '{"kernel": "calibrated", "embedder": "mini", "points": [[0.8, 0.0], [1.0, 0.9]]}'
            >>> CalibratedKernel.from_json(kernel.to_json()) == kernel
            True
        """
        return json.dumps({"kernel": _KIND, "embedder": self.embedder, "points": self.points})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the kernel that `to_json` wrote.

        Raises:
            ValueError: If it is not the JSON of one.
        """
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.get("kernel") != _KIND or "points" not in data:
            msg = f"This is not the JSON of a {cls.__name__}: {text[:80]!r}"
            raise ValueError(msg)
        return cls(data["points"], data.get("embedder"))
