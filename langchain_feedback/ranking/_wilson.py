"""How good a share of good votes is for sure, by Wilson's interval."""

import numpy as np

from langchain_feedback.ranking._checks import Floats
from langchain_feedback.ranking.views import VotesView

__all__ = ["wilson_feedback"]

_NEUTRAL = 0.5
_Z = 1.96
"""Standard errors to the ends of a 95 % interval."""
_FEWEST_VOTES, _SURE_VOTES = 5, 50


def wilson_feedback(view: VotesView) -> Floats:
    """Return (C,) the feedback part of `WilsonFusion`, in [0, 1]; .5 where too little is known.

    The lower end of the score interval of the share of good votes (Wilson, JASA 22, 1927,
    pages 209 to 212), blended with .5 by the confidence `min(1, votes / 50)`.
    """
    weight = view.positive + view.negative
    counts = (view.votes >= _FEWEST_VOTES) & (weight > 0)
    votes = np.where(counts, view.votes, 1.0)
    share = np.divide(view.positive, weight, out=np.full_like(weight, _NEUTRAL), where=counts)
    spread = _Z * np.sqrt(share * (1 - share) / votes + _Z**2 / (4 * votes**2))
    lower = (share + _Z**2 / (2 * votes) - spread) / (1 + _Z**2 / votes)
    sure = np.minimum(votes / _SURE_VOTES, 1)
    return np.where(counts, sure * lower + (1 - sure) * _NEUTRAL, _NEUTRAL)
