"""The gate: what a gain must be to be promoted, said in words."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from langchain_feedback.loop._gating.strata import Stratum

__all__ = ["CHANCE", "LEAST_CASES", "Verdict", "decide"]

Verdict: TypeAlias = Literal["promote", "reject", "advice"]

LEAST_CASES = 100
"""Of fewer cases even a gain of five points is missed every fifth time."""
CHANCE = 0.10
"""How likely a gain may be by chance: one in ten rankers that change nothing passes."""
_TINY = 0.001


def decide(
    n: int, gain: float, p: float, strata: Sequence[Stratum], *, metric: str = "nDCG@10"
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict, and why, in sentences.

    Args:
        n: How many cases.
        gain: The weighted mean difference.
        p: How likely it is by chance.
        strata: How each kind of question fared.
        metric: What was measured, for the sentences.

    Example:
        >>> decide(120, 0.05, 0.01, [])
        ('promote', ('It gains 5.0 points of nDCG@10 on 120 cases (p = 0.010).',))
        >>> decide(40, 0.05, 0.01, [])[0], decide(120, 0.01, 0.3, [])[0]
        ('advice', 'reject')
    """
    said = "gains" if gain >= 0 else "loses"
    moved = f"It {said} {abs(gain) * 100:.1f} points of {metric} on {n} cases ({_said(p)})."
    against = [
        f"On {one.n} cases of the stratum {one.name!r} it loses {-one.gain * 100:.1f} points "
        f"({_said(one.p_worse)})."
        for one in strata
        if one.worse
    ]
    if gain <= 0:
        against.insert(0, "It is not better than what orders the pools now.")
    elif p > CHANCE:
        against.insert(0, f"That may well be chance: p is above {CHANCE:.2f}.")
    if n < LEAST_CASES:
        few = f"{LEAST_CASES} cases are needed to decide; this is advice only."
        return "advice", (moved, *against, few)
    return ("reject" if against else "promote"), (moved, *against)


def _said(p: float) -> str:
    return "p < 0.001" if p < _TINY else f"p = {p:.3f}"
