"""What a suggestion says, and how much is enough for one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langchain_feedback.index._ranges import check_ranges

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
        check_ranges(self, shares=_SHARES)


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
    """In [0, 1], the lower end of a share (Wilson, 95 %). Of chunks used together: of the answers
    that quote both. Of a split: of the questions that need one part only. Of what rests on the
    text alone, .095 for all: 6 of 30 such were right, as a reader judged them in an index of
    2,277 chunks in some 30 languages; `checks` in the evidence tells one from another."""
    texts: tuple[str, ...]
    """What would come of it: one text, or the parts."""
    offsets: tuple[int, ...]
    """Of a split, where the parts but the first begin, in code points of the chunk's text."""
    evidence: Mapping[str, Any]
    """Counts, `traces` and `questions` (20 of each at most), and of a split the `spans`. Of what
    rests on the text alone, `checks`: what was found low, in [0, 1]; 0 is the worst."""
    rests_on: Literal["use", "text"] = "use"
    """`text`: on how the second chunk looks, and nobody needed to use the two together. Read it
    before you change a splitter for it."""
