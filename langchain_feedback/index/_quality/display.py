"""Figures for people: density, sufficiency, and one number out of both. They gate nothing."""

import math

from langchain_feedback.index._quality.kinds import Chunk

__all__ = ["composite", "surface"]

LONG = 400
"""Units above which a chunk holds more than one thing to find."""
_WEIGHTS = {"density": 0.6, "sufficiency": 0.4, "answerability": 0.4, "uniqueness": 0.2}


def composite(
    density: float,
    sufficiency: float,
    *,
    answerability: float | None = None,
    uniqueness: float | None = None,
) -> float:
    """Return the weighted geometric mean of what is known, in [0, 1]; for display only.

    Geometric, so that one fatal fault sinks it; an unknown dimension is left out, never
    filled in. With the two that are always known it is `density^0.6 x sufficiency^0.4`. The
    weights of the other two are guesses.

    Args:
        density: In [0, 1].
        sufficiency: In [0, 1].
        answerability: In [0, 1]; None where no model was asked, or did not know.
        uniqueness: 1 minus redundancy, in [0, 1]; None where nothing was compared.

    Example:
        >>> composite(1.0, 0.25), composite(0.0, 1.0), composite(1.0, 1.0, answerability=None)
        (0.574..., 0.0, 1.0)
    """
    known = {
        "density": density,
        "sufficiency": sufficiency,
        "answerability": answerability,
        "uniqueness": uniqueness,
    }
    product, weight = 1.0, 0.0
    for name, value in known.items():
        if value is not None:
            product *= math.pow(value, _WEIGHTS[name])
            weight += _WEIGHTS[name]
    return math.pow(product, 1 / weight)


def surface(chunk: Chunk) -> list[str]:
    """Return what the text's outside shows: broken fences and tables, bare headings, length."""
    found = []
    if chunk.fences % 2:
        found.append("broken_fence")
    if chunk.kind == "table" and _headless(chunk):
        found.append("broken_table")
    if (
        chunk.lines
        and all(line.lstrip().startswith("#") for line in chunk.lines)
        and (chunk.kind != "code")
    ):
        found.append("heading_only")
    if chunk.units > LONG:
        found.append("too_long")
    return found


def _headless(chunk: Chunk) -> bool:
    """A Markdown table whose ruled second line is missing was cut from its header."""
    rows = [line.strip() for line in chunk.lines if line.strip().startswith("|")]
    if len(rows) < 2:  # noqa: PLR2004  a header and its rule
        return False
    return not any(set(row) <= set("|-: ") and "-" in row for row in rows)
