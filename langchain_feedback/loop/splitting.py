"""Which reviewed questions teach a ranker, and which ones it is tried on: never alike ones."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_feedback.words import content_words

__all__ = [
    "Side",
    "Splittable",
    "alike",
    "is_held_out",
    "near_duplicate_groups",
    "question_sides",
]

Side: TypeAlias = Literal["train", "evaluation"]

_COSINE, _OVERLAP = 0.9, 0.7
_HELD_OUT = 0.3


@dataclass(frozen=True, eq=False)
class Splittable:
    """A question whose right chunks are known."""

    key: str
    """See `question_key`."""
    question: str
    right: frozenset[str]
    """The cells of the chunks that answer it."""
    vector: NDArray[np.float32] | None = None
    """Of unit length, all of one model; None where the store has none of it."""


def alike(one: Splittable, other: Splittable) -> bool:
    """Tell whether two questions are near-duplicates: the same right chunk, in like words.

    In like words means a cosine of .9 or more; where a vector is missing, .7 of all their
    content words in common.

    Example:
        >>> first = Splittable("1", "How long does a refund take?", frozenset({"refunds"}))
        >>> again = Splittable("2", "How long do refunds take", frozenset({"refunds"}))
        >>> alike(first, again)
        True
    """
    if one.key == other.key:
        return True
    if not one.right & other.right:
        return False
    if one.vector is not None and other.vector is not None:
        return float(one.vector @ other.vector) >= _COSINE
    words, others = set(content_words(one.question)), set(content_words(other.question))
    either = words | others
    return bool(either) and len(words & others) / len(either) >= _OVERLAP


def near_duplicate_groups(questions: Sequence[Splittable]) -> list[list[Splittable]]:
    """Put near-duplicates together, and theirs: no two groups hold questions that are alike."""
    parents = list(range(len(questions)))

    def root(at: int) -> int:
        while parents[at] != at:
            parents[at] = parents[parents[at]]
            at = parents[at]
        return at

    for one, other in _pairs(questions):
        if root(one) != root(other) and alike(questions[one], questions[other]):
            parents[root(one)] = root(other)
    groups: dict[int, list[Splittable]] = defaultdict(list)
    for at, question in enumerate(questions):
        groups[root(at)].append(question)
    return list(groups.values())


def question_sides(
    questions: Sequence[Splittable],
    held: Collection[str] = (),
    taught: Collection[str] = (),
    share: float = _HELD_OUT,
) -> dict[str, Side]:
    """Decide of each question whether it teaches or is held out, by its whole group.

    A group with a question that is held out already stays held out; one that some ranker
    learned from goes on teaching; of the others a digest decides, so that it is the same in
    every process and on every day.

    Args:
        questions: All whose right chunks are known, also those of the cases that are frozen.
        held: The keys of frozen cases.
        taught: The keys that rankers learned from.
        share: How much is held out, in [0, 1].

    Example:
        >>> asked = [Splittable(str(at), f"Question {at}?", frozenset()) for at in range(1000)]
        >>> sides = question_sides(asked)
        >>> 0.25 < list(sides.values()).count("evaluation") / 1000 < 0.35
        True
    """
    sides: dict[str, Side] = {}
    held, taught = set(held), set(taught)
    for group in near_duplicate_groups(questions):
        keys = {question.key for question in group}
        if keys & held:
            side: Side = "evaluation"
        elif keys & taught:
            side = "train"
        else:
            side = "evaluation" if is_held_out(keys, share) else "train"
        sides |= dict.fromkeys(sorted(keys), side)
    return sides


def is_held_out(keys: Collection[str], share: float = _HELD_OUT) -> bool:
    """Tell what a digest decides for a group that nothing is known of yet.

    Args:
        keys: Of all its questions.
        share: How much is held out, in [0, 1].
    """
    return _chance(min(keys)) < share


def _pairs(questions: Sequence[Splittable]) -> Iterable[tuple[int, int]]:
    """Yield the pairs that may be alike: they share a right chunk, or are the same question."""
    by_right: dict[str, list[int]] = defaultdict(list)
    for at, question in enumerate(questions):
        for name in (*question.right, f"key {question.key}"):
            by_right[name].append(at)
    for places in by_right.values():
        yield from combinations(places, 2)


def _chance(key: str) -> float:
    """Return a number in [0, 1) that a key always has."""
    return int.from_bytes(hashlib.sha256(f"side:{key}".encode()).digest()[:8]) / 2**64
