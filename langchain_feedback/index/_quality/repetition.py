"""Does the text say the same over and over: repeated lines, and what compresses too well."""

import zlib

from langchain_feedback.index._quality.kinds import Chunk

__all__ = ["compression_ratio", "repetition"]

_SHORT = 4
_ENOUGH = 300
_REPEATS = {"prose": 0.7, "list": 0.7, "table": 0.7, "code": 0.6}
"""By kind: how much a repeated character counts; lines of code do come again."""
_RATIOS = {
    "prose": (0.26, 0.14),
    "list": (0.22, 0.17),
    "table": (0.15, 0.14),
    "code": (0.15, 0.14),
}
"""By kind: the ratio that is still normal, and how far below it everything is repeated."""


def repetition(chunk: Chunk) -> float:
    """Return 1 for a text that goes on saying new things, falling to 0; below 0.5 it repeats.

    One minus the larger of two: the share of characters in lines that were there before (times
    0.7, in code 0.6), and how far the compression ratio is below what its kind has (looked at
    from 300 characters on).
    """
    normal, width = _RATIOS[chunk.kind]
    ratio = compression_ratio(chunk.text) if len(chunk.text) > _ENOUGH else 1.0
    repeats = _REPEATS[chunk.kind] * _repeated_share(chunk)
    squeezed = (normal - ratio) / width
    return min(1.0, max(0.0, 1.0 - max(squeezed, repeats)))


def compression_ratio(text: str) -> float:
    """Return compressed by plain size, one byte a character, so that scripts compare.

    UTF-8 would make Hindi look repetitive: its three bytes a letter share the first two. Of
    each character only the low byte is kept, which keeps every alphabet apart.

    Example:
        >>> compression_ratio("again and " * 100) < 0.05
        True
    """
    low = " ".join(text.split()).encode("utf-16-le", "surrogatepass")[::2]
    return len(zlib.compress(low, 6)) / max(1, len(low))


def _repeated_share(chunk: Chunk) -> float:
    seen: set[str] = set()
    repeated = total = 0
    for line in chunk.lines:
        bare = line.strip()
        total += len(bare)
        if len(bare) >= _SHORT and any(map(str.isalnum, bare)):
            repeated += len(bare) if bare in seen else 0
            seen.add(bare)
    return repeated / total if total else 0.0
