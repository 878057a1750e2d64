"""What people do with an answer, and what it counts: the one table of signals."""

from types import MappingProxyType
from typing import NamedTuple

__all__ = ["SIGNALS", "SignalKind", "click_weight", "signal_kind", "vote_of_rating"]

_MOST_EXAMINED = 5.0
_LOWEST, _NEUTRAL, _HIGHEST = 1, 3, 5


class SignalKind(NamedTuple):
    """How a signal counts."""

    family: str
    """Signals of one family replace each other: the newest of a person counts."""
    polarity: int
    """1 in favor, -1 against, 0 neither."""
    weight: float
    """At least 0; what one such signal counts beside a rating's 1."""
    moves_ranking: bool
    """Whether it becomes evidence, or is kept for monitoring and review only."""


def _watched(name: str, polarity: int = 0, weight: float = 0.0, family: str = "") -> SignalKind:
    return SignalKind(family or name, polarity, weight, moves_ranking=False)


SIGNALS = MappingProxyType(
    {
        "rating": SignalKind("judgement", 0, 1.0, moves_ranking=True),
        "thumbs_up": SignalKind("judgement", 1, 1.0, moves_ranking=True),
        "thumbs_down": SignalKind("judgement", -1, 1.0, moves_ranking=True),
        "wrong_source": SignalKind("judgement", -1, 1.0, moves_ranking=True),
        "source_click": SignalKind("click", 1, 0.5, moves_ranking=True),
        "source_skipped": SignalKind("click", -1, 0.5, moves_ranking=True),
        "copy": SignalKind("copy", 1, 0.5, moves_ranking=True),
        "correction": _watched("correction"),
        "regenerate": _watched("regenerate", -1, 0.7, "reformulation"),
        "rephrase": _watched("rephrase", -1, 0.6, "reformulation"),
        "contradiction": _watched("contradiction", -1, 0.6, "reformulation"),
        "abandon": _watched("abandon"),
        "dwell": _watched("dwell"),
        "zero_result": _watched("zero_result"),
        "grounded": _watched("grounded", 1),
        "not_grounded": _watched("not_grounded", -1),
        "abstained": _watched("abstained"),
    }
)
"""Every signal by name. A rating's polarity is `vote_of_rating`; a click's weight
is multiplied by `click_weight`."""


def signal_kind(name: str) -> SignalKind:
    """Return how a signal counts.

    Raises:
        ValueError: If there is no such signal.

    Example:
        >>> signal_kind("copy").weight
        0.5
    """
    if name not in SIGNALS:
        msg = f"There is no signal {name!r}. There are: {', '.join(SIGNALS)}."
        raise ValueError(msg)
    return SIGNALS[name]


def vote_of_rating(rating: int) -> int:
    """Return the vote of a rating: 4 or 5 is 1, 3 is 0, 1 or 2 is -1.

    Raises:
        ValueError: If it is not a whole number from 1 to 5.

    Example:
        >>> [vote_of_rating(rating) for rating in (1, 2, 3, 4, 5)]
        [-1, -1, 0, 1, 1]
    """
    whole = isinstance(rating, int) and not isinstance(rating, bool)
    if not whole or not _LOWEST <= rating <= _HIGHEST:
        msg = f"A rating is a whole number from {_LOWEST} to {_HIGHEST}, got {rating!r}"
        raise ValueError(msg)
    return (rating > _NEUTRAL) - (rating < _NEUTRAL)


def click_weight(rank: int) -> float:
    """Return how much more a click counts at a rank, from 0: few people look that far.

    It is one over the chance that the rank was looked at, taken as `1 / (rank + 1)`, and at
    most 5 (inverse propensity weighting: Joachims, Swaminathan and Schnabel, "Unbiased
    learning-to-rank with biased feedback", WSDM 2017; clipped, since few clicks far down
    are mostly noise).

    Example:
        >>> [click_weight(rank) for rank in (0, 1, 4, 40)]
        [1.0, 2.0, 5.0, 5.0]
    """
    return min(float(rank + 1), _MOST_EXAMINED)
