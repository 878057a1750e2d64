"""Team draft: two rankings in one list, so that whoever reads it compares them."""

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Generic, Literal, TypeVar

__all__ = ["Drafted", "Team", "arm_of", "coins", "team_draft"]

Key = TypeVar("Key", bound=Hashable)
Team = Literal["a", "b", "both"]

_WHOLE = 2**64


@dataclass(frozen=True)
class Drafted(Generic[Key]):
    """One place of a drafted list."""

    key: Key
    team: Team | None
    """Whose pick it is. `both`: the two offered it at once, and it says nothing of either. None:
    the other one had nothing left to offer."""


def team_draft(a: Sequence[Key], b: Sequence[Key], k: int, *, seed: str) -> list[Drafted[Key]]:
    """Draw one list from two rankings, round by round, so that neither is favored.

    In each round both name the best item that is not in the list yet. If it is the same one, it
    is added once, for both: whoever likes it says nothing of the two rankings. Otherwise a coin
    decides whose item comes first, and the other one's comes next. Once a ranking has nothing
    left to offer, the rest of the other one follows as nobody's: a list may be longer, and
    somebody who clicks at random must not favor the longer one.

    This is Radlinski, Kurup and Joachims, "How does clickthrough data reflect retrieval
    quality?" (CIKM 2008), but for neutral picks: there a coin gives the item that both offer to
    one of them, which adds noise where the rankings agree (`benchmarks/interleaving.py`).

    Args:
        a: Keys, best first. Of equal keys the first counts.
        b: Keys, best first.
        k: The most places, at least 0.
        seed: The same seed gives the same list.

    Raises:
        ValueError: If `k` is below 0.

    Example:
        >>> drawn = team_draft(["x", "y", "z"], ["x", "z", "y"], 3, seed="t1")
        >>> [(one.key, one.team) for one in drawn]
        [('x', 'both'), ('z', 'b'), ('y', 'a')]
    """
    if k < 0:
        msg = f"k must be at least 0, got {k!r}"
        raise ValueError(msg)
    # A dict for its order: what is in the list, and whose it is.
    taken: dict[Key, Team | None] = {}
    flips = coins(seed)
    while len(taken) < k:
        mine, theirs = (next((one for one in side if one not in taken), None) for side in (a, b))
        if mine is None or theirs is None:
            taken |= {one: None for one in (*a, *b) if one not in taken}
            break
        if mine == theirs:
            taken[mine] = "both"
        elif next(flips):
            taken |= {mine: "a", theirs: "b"}
        else:
            taken |= {theirs: "b", mine: "a"}
    return [Drafted(key, team) for key, team in taken.items()][:k]


def coins(seed: str) -> Iterator[bool]:
    """Toss a fair coin without end: the same seed gives the same throws, in every process.

    Example:
        >>> flips = coins("t1")
        >>> [next(flips) for _ in range(6)]
        [False, False, True, True, False, False]
    """
    for block in count():
        for byte in _digest(f"{seed}/{block}"):
            yield from (bool(byte >> bit & 1) for bit in range(8))


def arm_of(experiment: str, unit: str, share: float = 0.5) -> Literal["a", "b"]:
    """Return which of two policies somebody gets: the same one for as long as it lasts.

    Args:
        experiment: Its id: another experiment divides the same people differently.
        unit: Whom it is about, such as a user id.
        share: How many of all get `b`, from 0 to 1.

    Raises:
        ValueError: If `share` is not from 0 to 1.

    Example:
        >>> [arm_of("e1", f"user-{at}") for at in range(6)]
        ['b', 'b', 'a', 'b', 'b', 'a']
    """
    if not 0 <= share <= 1:
        msg = f"share must be from 0 to 1, got {share!r}"
        raise ValueError(msg)
    # Length first: no choice of the two can imitate another pair.
    drawn = int.from_bytes(_digest(f"{len(experiment)}:{experiment}{unit}")[:8], "big")
    return "b" if drawn < share * _WHOLE else "a"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
