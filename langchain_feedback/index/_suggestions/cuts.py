"""Join two neighbors into one text, and find where one text falls into two: pure functions."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from langchain_feedback.words import sentence_spans

__all__ = ["Span", "cuts", "joined"]

_LEAST_OVERLAP = 20
_MOST_OVERLAP = 2_000


class Span(NamedTuple):
    """A passage that an answer to a question proves, in code points of the chunk's text."""

    start: int
    end: int
    question: int


def joined(one: str, two: str, apart: int | None = None) -> tuple[str, int]:
    r"""Return two neighbors as one text, what both have only once, and the length of that.

    Args:
        one: The first.
        two: The one behind it.
        apart: How far behind the beginning of the first the second begins in the source; None:
            not known. Then 20 characters that end one and begin the other are held for common.

    Example:
        >>> joined("Refunds take 14 days.", "Ask by mail.")
        ('Refunds take 14 days.\nAsk by mail.', 0)
        >>> joined("Refunds take 14 days.", "14 days. Ask by mail.", apart=13)
        ('Refunds take 14 days. Ask by mail.', 8)
    """
    if apart is not None:
        common = len(one) - apart
        if 0 < common <= len(two) and one.endswith(two[:common]):
            return one + two[common:], common
        if common == 0:
            return one + two, 0
    else:
        for common in range(min(len(one), len(two), _MOST_OVERLAP), _LEAST_OVERLAP - 1, -1):
            if one.endswith(two[:common]):
                return one + two[common:], common
    return f"{one.rstrip()}\n{two.lstrip()}", 0


def cuts(
    text: str, spans: Iterable[Span], *, least_gap: int = 150, least_questions: int = 2
) -> list[int]:
    """Return where a text falls into parts that no question needs together, in order.

    A cut lies in a gap of more than `least_gap` characters between proved passages. No question
    has passages on both sides of it, and in each part at least `least_questions` have theirs.
    Within the gap it lies where a sentence begins, the nearest to the middle; where none does
    there is no cut.

    Args:
        text: The chunk's.
        spans: The passages.
        least_gap: In code points.
        least_questions: In each part.

    Example:
        >>> text = "Refunds take 14 days. " * 10 + "Keys rotate every 30 days. " * 10
        >>> spans = [Span(0, 20, 1), Span(0, 20, 2), Span(400, 425, 3), Span(427, 450, 4)]
        >>> [text[cut:cut + 4] for cut in cuts(text, spans)]
        ['Keys']
        >>> cuts(text, [*spans, Span(0, 20, 4)])
        []
    """
    ordered = sorted(spans)
    found: list[int] = []
    begun = 0
    for at in range(1, len(ordered)):
        left, right = ordered[:at], ordered[at:]
        low, high = max(span.end for span in left), right[0].start
        if high - low <= least_gap or _asked(left) & _asked(right):
            continue
        enough = min(len(_asked(ordered[begun:at])), len(_asked(right))) >= least_questions
        cut = _beginning(text, low, high) if enough else None
        if cut is not None:
            found.append(cut)
            begun = at
    return found


def _asked(spans: Sequence[Span]) -> set[int]:
    return {span.question for span in spans}


def _beginning(text: str, low: int, high: int) -> int | None:
    """Return the beginning of a sentence in a gap, the nearest to its middle, if there is one."""
    starts = (start for start, _ in sentence_spans(text) if low <= start <= high)
    return min(starts, key=lambda start: (abs(2 * start - low - high), start), default=None)
