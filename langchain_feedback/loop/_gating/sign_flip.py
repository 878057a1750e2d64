"""The paired test of the gate: could as much of a gain come by chance?"""

import numpy as np

from langchain_feedback.ranking._checks import Floats

__all__ = ["PERMUTATIONS", "chance_of"]

PERMUTATIONS = 10_000
_AT_ONCE = 1_000
_SEED = 20_240


def chance_of(shares: Floats, *, permutations: int = PERMUTATIONS) -> float:
    """Return how likely a sum as large is if each difference might as well be its opposite.

    It is the one-sided sign-flip permutation test of paired differences (Fisher, "The design
    of experiments", 1935, section 21; for retrieval: Smucker, Allan and Carterette, CIKM 2007),
    with the observed signs counted among the permutations, so that it is never 0. The signs
    are drawn with a fixed seed: the same differences give the same number.

    Args:
        shares: (n,) what each case adds to the weighted mean difference.
        permutations: How many signs are drawn.

    Example:
        >>> chance_of(np.ones(10)) < 0.01, chance_of(-np.ones(10)) > 0.99
        (True, True)
        >>> chance_of(np.zeros(10))
        1.0
    """
    told = shares[shares != 0]  # whatever its sign, a difference of 0 adds nothing
    observed = told.sum()
    slack = 1e-12 * np.abs(told).sum()
    random = np.random.default_rng(_SEED)
    as_large = 1
    for start in range(0, permutations, _AT_ONCE):
        size = (min(_AT_ONCE, permutations - start), len(told))
        signs = random.integers(0, 2, size=size, dtype=np.int8) * 2.0 - 1.0
        as_large += int((signs @ told >= observed - slack).sum())
    return float(as_large / (permutations + 1))
