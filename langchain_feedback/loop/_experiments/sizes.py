"""How many questions an experiment needs, before it begins."""

import math
from statistics import NormalDist
from typing import Literal

__all__ = ["Credit", "Kind", "needed_questions"]

Kind = Literal["interleave", "ab"]
Credit = Literal["clicks", "citations", "ratings"]

_DRAFT = {"clicks": 21.0, "citations": 24.5}
"""Questions for a team draft at 5 % and 80 %, times effect and share of questions that tell
something: see `needed_questions`."""
_ASSUMED = {"clicks": 0.31, "citations": 1.0, "ratings": 0.1}
"""That share, where nothing is known: half of the people look at sources; a tenth rate."""
_AT = (0.05, 0.8)


def needed_questions(
    kind: Kind,
    *,
    credit: Credit = "clicks",
    effect: float = 5.0,
    engaged: float | None = None,
    base_rate: float = 0.5,
    share: float = 0.5,
    alpha: float = 0.05,
    power: float = 0.8,
    design: float = 1.0,
) -> int:
    """Return how many questions it takes to find a difference, if there is one.

    For `interleave` it is `21 / (effect * engaged)` with clicks and `24.5 / (effect * engaged)`
    with citations, the effect as a share. Both come from simulations with effects of 2 and 5
    points and with clicks of 50 and 10 % of the people, in which they held
    (`benchmarks/interleaving.py`; with clicks it says 18, an earlier one 21). A team draft
    compares within one question, and two retrievers find the same for most; so it is not the
    square of the effect that counts. For `ab` it is the usual formula for two proportions, those
    of the questions that tell something.

    Args:
        kind: `interleave` or `ab`.
        credit: What tells: `clicks` on sources, `citations` in answers, or, for `ab` only,
            `ratings` of answers.
        effect: What is to be found, in points. For `interleave` of nDCG, which in the simulation
            were as many of questions whose right chunk is shown; for `ab` of the success rate.
        engaged: The share of questions that tell something, in (0, 1]: with a click on a source;
            whose citations are known; that are rated. None: .31, 1 and .1.
        base_rate: For `ab`: the success rate of `a`, in (0, 1). For `clicks` it is the share of
            questions with a click.
        share: For `ab`: the share of people who get `b`, in (0, 1).
        alpha: The chance to find a difference that is none, two-sided, in (0, 1).
        power: The chance to find it if there is one, in (0, 1).
        design: How much more one person's questions vary together than as many of different
            people, at least 1 (Kish, "Survey sampling", 1965). For `interleave` it is about
            whom he prefers, not how much he clicks, and the coin of each list keeps it near 1.

    Raises:
        ValueError: If a number is out of its range, or `credit` is none for this kind.

    Example:
        >>> needed_questions("interleave", effect=5), needed_questions("interleave", effect=2)
        (1355, 3388)
        >>> needed_questions("ab", effect=2, base_rate=0.32)
        17347
    """
    _check_credit(kind, credit)
    engaged = _ASSUMED[credit] if engaged is None else engaged
    _check_shares(
        effect=effect / 100, engaged=engaged, base_rate=base_rate, share=share, alpha=alpha,
        power=power,
    )  # fmt: skip
    if design < 1:
        msg = f"design must be at least 1, got {design!r}"
        raise ValueError(msg)
    sure = _sureness(alpha, power)
    if kind == "interleave":
        needed = _DRAFT[credit] / (effect / 100 * engaged) * sure / _sureness(*_AT)
        return math.ceil(needed * design)
    raised = base_rate + effect / 100
    if raised >= 1:
        msg = f"A rate of {base_rate:.0%} cannot rise by {effect:g} points"
        raise ValueError(msg)
    noise = base_rate * (1 - base_rate) / (1 - share) + raised * (1 - raised) / share
    # All questions count for clicks: that there is none tells something, too.
    counted = 1.0 if credit == "clicks" else engaged
    return math.ceil(sure * noise / (effect / 100) ** 2 * design / counted)


def _sureness(alpha: float, power: float) -> float:
    normal = NormalDist()
    return (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) ** 2


def _check_credit(kind: Kind, credit: Credit) -> None:
    known = {"interleave": ("clicks", "citations"), "ab": ("clicks", "citations", "ratings")}
    if kind not in known:
        msg = f"kind must be one of {', '.join(known)}, got {kind!r}"
        raise ValueError(msg)
    if credit not in known[kind]:
        msg = f"credit must be one of {', '.join(known[kind])} for {kind!r}, got {credit!r}"
        raise ValueError(msg)


def _check_shares(**given: float) -> None:
    for name, value in given.items():
        if not 0 < value <= 1 or (value == 1 and name != "engaged"):
            most = "above 0 and at most 100" if name == "effect" else "between 0 and 1"
            shown = value * 100 if name == "effect" else value
            msg = f"{name} must be {most}, got {shown:g}"
            raise ValueError(msg)
