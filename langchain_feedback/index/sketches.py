"""What two texts have in common: word 3-grams, MinHash sketches, and a guard for what differs.

Wording alone calls "within 14 days" and "within 41 days" the same: of two long texts that
differ in one number, MinHash says so every time. So nothing here is a duplicate before the
guard has compared what turns a statement into another one: numbers with their units, signs,
negations, and words such as "always", "before" or "at least". Texts in scripts without spaces
are read as pairs of characters.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_feedback.errors import MissingExtraError
from langchain_feedback.index._guard import difference, telling
from langchain_feedback.words import tokens

__all__ = [
    "PERMUTATIONS",
    "SKETCH_SCHEME",
    "difference",
    "jaccard",
    "shingles",
    "sketch",
    "telling",
]

PERMUTATIONS = 128
"""Values of a sketch. Of a similarity s, two sketches show a share that deviates from it by
sqrt(s (1 - s) / 128): .027 at .9, .044 at most."""

_SEED = 1

SKETCH_SCHEME = f"affine32:{PERMUTATIONS}:{_SEED}:words3"
"""How sketches are made; those of another scheme cannot be compared with them. datasketch
changed its values in version 2, so whoever keeps sketches keeps this beside them."""

_WIDTH = 3
_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
"""Odd numbers, one for each place in a 3-gram: multiplied by one, no two words meet."""

_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)?")


def shingles(text: str) -> NDArray[np.uint64]:
    r"""Return the distinct word 3-grams of a text as numbers, the same in every process.

    Case, width, punctuation and white space do not count. A text of one or two words is one
    3-gram, and a text without words has none.

    Returns:
        Shape `(n,)`, in ascending order.

    Example:
        >>> len(shingles("A refund takes 14 days.")), len(shingles("refund")), len(shingles("--"))
        (3, 1, 0)
        >>> bool((shingles("A refund takes time") == shingles("a REFUND,\n takes time.")).all())
        True
    """
    words = _words(text)
    if not words:
        return np.empty(0, np.uint64)
    numbers = np.fromiter(map(_number_of, words), np.uint64, len(words))
    width = min(_WIDTH, len(words))
    n = len(words) - width + 1
    mixed = np.zeros(n, np.uint64)
    for place in range(width):
        mixed = (mixed ^ (mixed >> np.uint64(29))) + numbers[place : place + n] * np.uint64(
            _ODD[place]
        )
    return np.unique(mixed)


def jaccard(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> float:
    """Return the share of two texts' 3-grams that both have, in [0, 1]; 0 if neither has any.

    Source: P. Jaccard, "The distribution of the flora in the alpine zone", 1912.

    Example:
        >>> jaccard(shingles("one two three four"), shingles("one two three five"))
        0.3333333333333333
    """
    common = len(np.intersect1d(one, other, assume_unique=True))
    union = len(one) + len(other) - common
    return common / union if union else 0.0


def sketch(texts: Iterable[NDArray[np.uint64]]) -> NDArray[np.uint32]:
    """Return MinHash sketches: two agree in about the share of values that `jaccard` says.

    Source: A. Broder, "On the resemblance and containment of documents", 1997; the values
    are datasketch's, by `SKETCH_SCHEME`.

    Args:
        texts: The `shingles` of each text.

    Returns:
        Shape `(n, PERMUTATIONS)`. Without 3-grams all values are the largest one.

    Raises:
        MissingExtraError: If datasketch is not installed.

    Example:
        >>> pair = [shingles("one two three four"), shingles("one two three five")]
        >>> one, other = sketch(pair)
        >>> 0.15 < float((one == other).mean()) < 0.55
        True
    """
    empty = _minhash()
    rows = [_sketched(empty, grams) for grams in texts]
    return np.stack(rows) if rows else np.empty((0, PERMUTATIONS), np.uint32)


def _words(text: str) -> list[str]:
    # The same words as `tokens` finds, in a third of the time.
    return _ASCII_WORD.findall(text.lower()) if text.isascii() else tokens(text)


@lru_cache(maxsize=200_000)
def _number_of(word: str) -> int:
    # Python's own hash differs in each process.
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


@lru_cache(maxsize=1)
def _minhash() -> Any:
    """Make the empty sketch once: its permutations take longer than a sketch."""
    try:
        from datasketch import MinHash  # noqa: PLC0415  an extra
    except ImportError as error:
        msg = 'Near duplicates need datasketch. Run: pip install "langchain-feedback[care]"'
        raise MissingExtraError(msg) from error
    return MinHash(num_perm=PERMUTATIONS, seed=_SEED, hashfunc=int, scheme="affine32")


def _sketched(empty: Any, grams: NDArray[np.uint64]) -> NDArray[np.uint32]:
    made = empty.copy()
    # The upper half of a product is mixed better than the lower.
    made.update_batch((grams >> np.uint64(32)).tolist())
    values: NDArray[np.uint32] = made.hashvalues
    return values
