r"""Is a chunk junk, and why: a gate with reasons, without a model, in any script.

The kind of a text comes first (prose, list, table or code), then its checks. Four of them
gate: legibility, repetition, navigation and statement. The others only advise. What no
check here does is rank: on a clean corpus no such score predicts what people find helpful
(partial rank correlation within 0.12 of none, given the length), so a score orders nothing.

`density` and `sufficiency` are shown beside, with answerability and redundancy where
somebody measured them, because people know these four; nothing is decided by them.

All of it is a pure function of the text: same text, same version, same result, so results
can be kept by content hash, and chunks can be scored anywhere. Time is linear in the length.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import Final

from langchain_feedback.index._quality import display, sentences
from langchain_feedback.index._quality.kinds import Chunk, Kind
from langchain_feedback.index._quality.legibility import legibility
from langchain_feedback.index._quality.navigation import navigation
from langchain_feedback.index._quality.repetition import repetition

__all__ = ["GATING", "SCORING_VERSION", "ChunkQuality", "score_batch", "score_chunk"]

SCORING_VERSION: Final = "1"
"""Changes whenever a text may get another result; scores of two versions never mix."""

GATING: Final = {
    "legibility": "garbled",
    "repetition": "repeated",
    "navigation": "navigation",
    "statement": "no_statement",
}
"""The checks that gate, and the reason that each gives below 0.5."""

_ADVICE: Final = {"start": "cut_start", "end": "cut_end"}
_THRESHOLD = 0.5


@dataclass(frozen=True)
class ChunkQuality:
    """What the checks say of one text: in [0, 1] each, 1 is good, below 0.5 is a reason."""

    kind: Kind
    """What the text was taken for; some checks are milder with tables and code."""
    legibility: float
    """Can it be read: encodings, scanning faults, encoded data."""
    repetition: float
    """Does it go on saying new things."""
    navigation: float
    """Does it say something itself, or only point elsewhere."""
    statement: float
    """0 if it is too short to state anything, else 1."""
    start: float
    """Does it begin where a sentence or block begins."""
    end: float
    """Does it end where one ends."""
    units: float
    """Length in words; a letter of a script without spaces counts 0.6."""
    reasons: tuple[str, ...]
    """Of every check below 0.5, gating ones first, and of the surface."""
    gated: bool
    """True if a gating check is below 0.5: keep it out of the index, or hide it."""
    scoring_version: str = SCORING_VERSION
    """The version of the rules that gave this result."""

    @property
    def checks(self) -> dict[str, float]:
        """The checks by name."""
        return {name: getattr(self, name) for name in (*GATING, *_ADVICE)}

    @property
    def density(self) -> float:
        """For display: how much of the text carries something; the gating checks' product."""
        return self.legibility * self.repetition * self.navigation * self.statement

    @property
    def sufficiency(self) -> float:
        """For display: is the text whole, the geometric mean of `start` and `end`."""
        return sqrt(self.start * self.end)

    @property
    def composite(self) -> float:
        """For display: `density^0.6 x sufficiency^0.4`. Never a weight in a ranking."""
        return display.composite(self.density, self.sufficiency)


def score_chunk(text: str, *, before: str | None = None, after: str | None = None) -> ChunkQuality:
    r"""Judge one text.

    Args:
        text: The chunk.
        before: What stands before the chunk in its source, or the end of it; "" if the chunk
            begins its source. With it the start is judged exactly, without it by looks.
        after: What stands behind the chunk in its source, or the beginning of it; "" if the
            chunk ends its source.

    Returns:
        The kind, the checks, the reasons, and whether it is gated.

    Example:
        >>> score_chunk("Refunds take 14 days. Ask for one by mail.").reasons
        ()
        >>> junk = score_chunk("RmVlZGJhY2sgaXMgYSBnaWZ0IQoxMjM0NTY3ODkwYWJjZGVmZ2hpamtsbW5v")
        >>> junk.gated, junk.reasons
        (True, ('garbled', 'cut_end'))
        >>> score_chunk("refunds take", before="All ", after=" 14 days.").reasons
        ('no_statement', 'cut_start', 'cut_end')
    """
    chunk = Chunk(text)
    checks = {
        "legibility": legibility(chunk),
        "repetition": repetition(chunk),
        "navigation": navigation(chunk),
        "statement": sentences.statement(chunk),
        "start": sentences.start(chunk, before),
        "end": sentences.end(chunk, after),
    }
    low = [reason for name, reason in (GATING | _ADVICE).items() if checks[name] < _THRESHOLD]
    return ChunkQuality(
        kind=chunk.kind,
        legibility=checks["legibility"],
        repetition=checks["repetition"],
        navigation=checks["navigation"],
        statement=checks["statement"],
        start=checks["start"],
        end=checks["end"],
        units=chunk.units,
        reasons=(*low, *display.surface(chunk)),
        gated=any(reason in low for reason in GATING.values()),
    )


def score_batch(texts: Iterable[str]) -> list[ChunkQuality]:
    """Judge many texts, in order, without hints; what process pools and clusters call.

    Importable by name, so it can be pickled, and so can what it returns.

    Example:
        >>> [quality.gated for quality in score_batch(["Open 9 to 5.", "Contents"])]
        [False, True]
    """
    return [score_chunk(text) for text in texts]
