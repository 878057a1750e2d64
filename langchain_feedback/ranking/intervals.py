"""Between which shares the truth lies, given some votes."""

import math

__all__ = ["wilson_interval"]


def wilson_interval(positive: float, votes: float, z: float = 1.96) -> tuple[float, float]:
    """Return both ends of the interval of a share, each in [0, 1]; (0, 1) without votes.

    The score interval (Wilson, JASA 22, 1927, pages 209 to 212).

    Args:
        positive: What the good votes count.
        votes: What all of them count.
        z: How many standard deviations wide it is to each side: 1.96 for 95 %, 2.58 for 99 %.

    Raises:
        ValueError: If the good ones count more than all, or a number is negative.

    Example:
        >>> [round(end, 3) for end in wilson_interval(6, 6)], wilson_interval(0, 0)
        ([0.61, 1.0], (0.0, 1.0))
        >>> [round(end, 3) for end in wilson_interval(2, 40, z=2.58)]
        [0.01, 0.219]
    """
    if not 0 <= positive <= votes:
        msg = f"positive is from 0 to votes, got {positive!r} of {votes!r}"
        raise ValueError(msg)
    if not votes:
        return 0.0, 1.0
    share = positive / votes
    middle = share + z**2 / (2 * votes)
    spread = z * math.sqrt(share * (1 - share) / votes + z**2 / (4 * votes**2))
    whole = 1 + z**2 / votes
    # Where all agree, rounding would pass the end.
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)
