"""What a suggestion says, and how much is enough for one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Suggestion", "SuggestionRules"]

_SHARES = ("least_overlap", "least_cited")


@dataclass(frozen=True)
class SuggestionRules:
    """How much is enough to suggest something."""

    days: float = 180
    """How far back answers count."""
    least_traces: int = 10
    """Merge: in so many prompts both stood."""
    least_questions: int = 5
    least_actors: int = 3
    """Merge: so many people asked. Who has no name is known by the session; all that have
    neither are one."""
    least_overlap: float = 0.7
    """Merge: the share of the prompts with either that had both, in [0, 1]."""
    least_cited: float = 0.5
    """Merge: the share of those whose answer quotes both, in [0, 1]."""
    most_units: float = 600
    """Merge: the longest that one chunk may become, in words."""
    long_units: float = 400
    """Split: what is shorter stays whole, in words."""
    least_credited: int = 8
    """Split: under so many questions it was found good."""
    least_gap: int = 150
    """Split: in code points between what is quoted for some questions and for others."""
    least_each: int = 2
    """Split: so many questions each part must be quoted for."""

    def __post_init__(self) -> None:
        """Refuse numbers that are out of range."""
        for name, value in vars(self).items():
            highest = 1 if name in _SHARES else math.inf
            if not 0 <= value <= highest:
                msg = f"{name} must be in [0, {highest}], got {value!r}"
                raise ValueError(msg)


@dataclass(frozen=True)
class Suggestion:
    """That two chunks should be one, or one should be several."""

    kind: Literal["merge", "split"]
    reason: str
    """`used_together`, or what is wrong with the second: `cut_start`, `no_statement`; of a
    split, `separate_questions`."""
    source: str
    scope: str
    chunks: tuple[str, ...]
    """The two neighbors in order, or the one."""
    content_hashes: tuple[str, ...]
    """Of the texts that it is about: of others it says nothing."""
    confidence: float
    """In [0, 1]. Of chunks used together, the lower end of the share of answers that quote
    both; of a split, that of the questions that need one part only (both Wilson, 95 %); of a
    cut or empty chunk, how sure its check is."""
    texts: tuple[str, ...]
    """What would come of it: one text, or the parts."""
    offsets: tuple[int, ...]
    """Of a split, where the parts but the first begin, in code points of the chunk's text."""
    evidence: Mapping[str, Any]
    """Counts, `traces` and `questions` (20 of each at most), and of a split the `spans`."""
