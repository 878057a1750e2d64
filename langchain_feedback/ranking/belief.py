"""What feedback says of a chunk: shrunk votes, joined over past questions, aged."""

from collections.abc import Hashable, Iterable, Sequence
from math import fsum
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from langchain_feedback.ranking._checks import (
    Floats,
    amounts,
    finite_number,
    floats,
    in_range,
    not_negative,
    same_shape,
)

__all__ = [
    "belief",
    "conviction",
    "decay",
    "local_failure",
    "multiplier",
    "reciprocal_rank_fusion",
]

Key = TypeVar("Key", bound=Hashable)

_LEAST_OBSERVED = 0.5


def conviction(positive: ArrayLike, negative: ArrayLike, prior: float = 2.0) -> Floats:
    """Return what the votes on a chunk under one past question say, shrunk toward 0.

    It is `(positive - negative) / (positive + negative + prior)`: twice the posterior mean of
    the share of good votes, less 1, under a Beta(prior / 2, prior / 2) prior (Gelman et al.,
    "Bayesian Data Analysis", 3rd ed., section 2.4); a prior of 2 is the uniform one.

    Args:
        positive: Weight of the votes in favor, at least 0, of any shape.
        negative: Weight of the votes against, of the same shape.
        prior: How many votes without an opinion are added, at least 0.

    Returns:
        Values in [-1, 1], of the same shape; 0 where there is no vote.

    Raises:
        ValueError: If a weight or the prior is negative or not finite, or shapes differ.

    Example:
        >>> conviction([1.0, 8.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]).round(3).tolist()
        [0.333, 0.8, 0.0, -0.333]
        >>> conviction([1.0, 0.0], [0.0, 0.0], prior=0).tolist()
        [1.0, 0.0]
    """
    positive, negative = amounts("positive", positive), amounts("negative", negative)
    same_shape(positive=positive.shape, negative=negative.shape)
    not_negative("prior", prior)
    total = positive + negative + prior
    return np.divide(positive - negative, total, out=np.zeros_like(total), where=total > 0)


def belief(
    kernel_weights: ArrayLike, positive: ArrayLike, negative: ArrayLike, prior: float = 2.0
) -> Floats:
    """Join what past questions say of each chunk.

    With d the `conviction` of a past question and k its kernel weight,
    `B = [1 - prod(1 - k max(d, 0))] - [1 - prod(1 - k max(-d, 0))]` over the past questions:
    for and against are each joined by noisy-or (Pearl, "Probabilistic Reasoning in Intelligent
    Systems", 1988, section 4.3.2), as causes that may each do it alone. So one past question
    moves B by at most k times its own conviction, however many votes it has.

    Args:
        kernel_weights: (Q,) how much each past question says about this one, in [0, 1].
        positive: (Q, C) weight of the votes in favor of each chunk, at least 0.
        negative: (Q, C) weight of the votes against.
        prior: As in `conviction`.

    Returns:
        (C,) in [-1, 1]; 0 where there is no evidence, or as much for as against.

    Raises:
        ValueError: If shapes do not fit, or a number is out of its range or not finite.

    Example:
        The identical question had four good votes, a similar one a bad vote:

        >>> belief([1.0, 0.5], [[4.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]).round(3)
        array([0.5, 0. ])
    """
    weights = in_range("kernel_weights", floats("kernel_weights", kernel_weights, 1), 0, 1)
    positive = amounts("positive", positive, 2)
    same_shape(kernel_weights=weights.shape, rows_of_positive=positive.shape[:1])
    said = weights[:, np.newaxis] * conviction(positive, negative, prior)
    doubt_for = np.prod(1 - np.maximum(said, 0), axis=0)
    doubt_against = np.prod(1 - np.maximum(-said, 0), axis=0)
    joined: Floats = doubt_against - doubt_for
    return joined


def multiplier(belief: ArrayLike) -> Floats:
    """Return a belief as people read it: `1 + 2 B / 3`.

    The scale is the classic rule's, mean rating / 3: with votes of 5 and 1 alone, no prior, no
    decay and the identical question the two are equal.

    Args:
        belief: Values in [-1, 1], of any shape.

    Returns:
        Values in [1/3, 5/3], 1 where feedback says nothing, of the same shape.

    Raises:
        ValueError: If a belief is out of range or not finite.

    Example:
        >>> multiplier([-1.0, 0.0, 0.5, 1.0]).round(3).tolist()
        [0.333, 1.0, 1.333, 1.667]
    """
    scaled: Floats = 1 + 2 * in_range("belief", belief, -1, 1) / 3
    return scaled


def decay(age_days: ArrayLike, half_life: float | None) -> Floats:
    """Return what is left of a vote's weight: `2 ** (-age / half_life)`.

    Exponential forgetting: old and new votes keep their ratio while both age, so that sums of
    them may be aged as one (Cormode et al., "Forward decay: a practical time decay model for
    streaming systems", ICDE 2009).

    Args:
        age_days: Ages in days, of any shape. A vote from the future, by a clock that is ahead,
            counts in full.
        half_life: Days after which half is left; None: votes do not age.

    Returns:
        Values in [0, 1], of the same shape.

    Raises:
        ValueError: If an age is not finite, or the half-life not above 0.

    Example:
        >>> decay([0.0, 90.0, 180.0, -1.0], half_life=90).tolist()
        [1.0, 0.5, 0.25, 1.0]
    """
    ages = floats("age_days", age_days)
    if half_life is None:
        return np.ones_like(ages)
    number = finite_number(half_life)
    if number is None or number <= 0:
        msg = f"half_life must be a number of days above 0, or None, got {half_life!r}"
        raise ValueError(msg)
    return np.asarray(np.exp2(-np.maximum(ages, 0) / number))


def local_failure(weights: ArrayLike, positive: ArrayLike, negative: ArrayLike) -> float | None:
    """Return how often answers to questions like this one failed, or None when unknown.

    It is `(negative + 1) / (positive + negative + 2)` over outcomes weighted by the kernel:
    Laplace's law of succession (Gelman et al., "Bayesian Data Analysis", 3rd ed., section 2.1).

    Args:
        weights: (Q,) kernel weights in [0, 1].
        positive: (Q,) weight of good outcomes of each past question, at least 0.
        negative: (Q,) weight of bad ones.

    Returns:
        A share strictly between 0 and 1; None under half an observation.

    Raises:
        ValueError: If shapes differ, or a number is out of its range or not finite.

    Example:
        >>> local_failure([1.0, 0.5], [0.0, 0.0], [2.0, 2.0])
        0.8
        >>> local_failure([0.2], [0.0], [1.0]) is None
        True
    """
    kernel = in_range("weights", floats("weights", weights, 1), 0, 1)
    good, bad = amounts("positive", positive, 1), amounts("negative", negative, 1)
    same_shape(weights=kernel.shape, positive=good.shape, negative=bad.shape)
    succeeded, failed = float(kernel @ good), float(kernel @ bad)
    if succeeded + failed < _LEAST_OBSERVED:
        return None
    return (failed + 1) / (succeeded + failed + 2)


def reciprocal_rank_fusion(
    rankings: Iterable[Sequence[Key]], constant: float = 60
) -> dict[Key, float]:
    """Join rankings of the same things by their ranks alone.

    The score is the sum of `1 / (constant + rank)`, rank from 1, over the rankings that hold
    the thing (Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and
    individual rank learning methods", SIGIR 2009, which also gives the constant).

    Args:
        rankings: Keys, best first. What stands in one twice counts where it stands first.
        constant: At least 0; the higher, the less the first ranks stand out.

    Returns:
        Scores by key, best first; of equal ones the one that was seen first.

    Raises:
        ValueError: If the constant is negative or not finite.

    Example:
        >>> list(reciprocal_rank_fusion([["a", "b", "c"], ["c", "b"]]))
        ['c', 'b', 'a']
    """
    not_negative("constant", constant)
    parts: dict[Key, list[float]] = {}
    for ranking in rankings:
        for rank, key in enumerate(dict.fromkeys(ranking), start=1):
            parts.setdefault(key, []).append(1 / (constant + rank))
    # An exact sum: the order of the rankings must not decide between equals.
    scores = {key: fsum(of_key) for key, of_key in parts.items()}
    return dict(sorted(scores.items(), key=lambda item: -item[1]))
