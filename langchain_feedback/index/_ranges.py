"""Numbers of rules that make no sense are refused when the rules are made."""

import math
from collections.abc import Collection

__all__ = ["check_ranges"]


def check_ranges(rules: object, *, shares: Collection[str]) -> None:
    """Check that every number of some rules is 0 or more, and that shares are 1 or less.

    Raises:
        ValueError: If one is not.
    """
    for name, value in vars(rules).items():
        highest = 1 if name in shares else math.inf
        if not 0 <= value <= highest:
            msg = f"{name} must be in [0, {highest}], got {value!r}"
            raise ValueError(msg)
