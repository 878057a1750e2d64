"""Which chunks a vote speaks of, and how much it says of each."""

from collections.abc import Hashable, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from langchain_feedback.ranking._checks import not_negative

__all__ = ["PromptChunk", "attribute"]

_BYSTANDER = 0.3
"""What a bad answer says of a chunk that it had at hand and did not quote."""


class PromptChunk(NamedTuple):
    """A chunk that the answer was written from."""

    key: Hashable
    """Its name; chunks of one key are one chunk."""
    cited: bool | None
    """Whether a proved quote of the answer stands in it; None: no citations are known."""
    relevant: bool | None
    """Whether it was graded relevant; None: not graded, or unknown."""


def attribute(
    polarity: int,
    weight: float,
    chunks: Sequence[PromptChunk],
    *,
    target: Hashable | None = None,
    grounded: bool | None = None,
) -> dict[Hashable, float]:
    """Return the signed credit of each chunk that a vote speaks of.

    | event (w = weight) | cited chunk | other chunk |
    | --- | --- | --- |
    | a source rated or clicked (`target`) | its own vote | absent |
    | answer rated good | w | absent |
    | answer rated bad | -w | -0.3 w |
    | the same, not grounded though the chunk was graded relevant | absent | absent |
    | answer rated, no citations known | w / sqrt(chunks), or minus that | same |

    The table is this package's own (its design, section 6): a quote that was proved is the one
    link between a vote on an answer and a chunk that code can check; the square root lets n
    chunks share a vote as n independent doubts do, none of them losing all of it; an answer
    that its relevant source does not support is the writer's failure, not the source's. Once
    any chunk is known to be cited or not, the ones without a word count as not cited.

    Args:
        polarity: 1 for a good vote, -1 for a bad one, 0 for a neutral one. A neutral vote gives
            0.0 to the chunks that a good one would credit: it replaces an older vote of the
            same person.
        weight: What the vote counts, at least 0.
        chunks: The prompt's chunks.
        target: The one chunk that was voted on; None: the vote is on the whole answer.
        grounded: Whether the answer was found grounded; None: it was not checked.

    Returns:
        Credit by chunk key, each in [-weight, weight]. A chunk that the vote says nothing of
        is absent.

    Raises:
        ValueError: If the polarity is not -1, 0 or 1, or the weight is negative, NaN or
            infinite.

    Example:
        >>> quoted, other = PromptChunk("a", True, True), PromptChunk("b", False, None)
        >>> attribute(1, 1.0, [quoted, other])
        {'a': 1.0}
        >>> attribute(-1, 1.0, [quoted, other])
        {'a': -1.0, 'b': -0.3}
        >>> attribute(-1, 1.0, [quoted, other], grounded=False)
        {'b': -0.3}
        >>> attribute(1, 0.5, [quoted, other], target="b")
        {'b': 0.5}
    """
    if polarity not in (-1, 0, 1):
        msg = f"polarity must be -1, 0 or 1, got {polarity!r}"
        raise ValueError(msg)
    not_negative("weight", weight)
    shares = {target: 1.0} if target is not None else _shares(polarity, chunks, grounded=grounded)
    # Adding 0.0 keeps a minus sign off the zeros.
    return {key: polarity * weight * share + 0.0 for key, share in shares.items()}


def _shares(
    polarity: int, chunks: Sequence[PromptChunk], *, grounded: bool | None
) -> Mapping[Hashable, float]:
    distinct = _distinct(chunks)
    cited_known = any(chunk.cited is not None for chunk in distinct)
    if not cited_known:
        shares = {chunk.key: 1 / sqrt(len(distinct)) for chunk in distinct}
    elif polarity < 0:
        shares = {chunk.key: 1.0 if chunk.cited else _BYSTANDER for chunk in distinct}
    else:
        shares = {chunk.key: 1.0 for chunk in distinct if chunk.cited}
    if polarity < 0 and grounded is False:
        excused = {chunk.key for chunk in distinct if chunk.relevant}
        shares = {key: share for key, share in shares.items() if key not in excused}
    return shares


def _distinct(chunks: Sequence[PromptChunk]) -> list[PromptChunk]:
    merged: dict[Hashable, PromptChunk] = {}
    for chunk in chunks:
        seen = merged.get(chunk.key, PromptChunk(chunk.key, None, None))
        merged[chunk.key] = PromptChunk(
            chunk.key, _either(seen.cited, chunk.cited), _either(seen.relevant, chunk.relevant)
        )
    return list(merged.values())


def _either(one: bool | None, other: bool | None) -> bool | None:  # noqa: FBT001  a pair of facts
    return one or other if other is not None else one
