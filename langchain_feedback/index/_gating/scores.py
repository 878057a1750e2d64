"""What was found out about texts, kept by their hash: a text is never judged twice.

A text has no owner here: whoever brings the same text, in any namespace, gets the same result.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from langchain_feedback.index.ledger import in_batches
from langchain_feedback.index.quality import GATING, SCORING_VERSION, ChunkQuality
from langchain_feedback.store.care_schema import chunk_quality
from langchain_feedback.store.database import insert_or_ignore

__all__ = ["Scored", "gating", "keep_scores", "scored_as", "scores_of"]

_PAGE = 5_000
"""Hashes of one statement; both databases take six times as many."""

_KEPT = select(
    chunk_quality.c.content_hash,
    chunk_quality.c.kind,
    chunk_quality.c.gated,
    chunk_quality.c.reasons,
    chunk_quality.c.answerability,
    chunk_quality.c.judge,
).where(
    chunk_quality.c.scoring_version == SCORING_VERSION,
    chunk_quality.c.content_hash.in_(bindparam("hashes", expanding=True)),
)


class Scored(NamedTuple):
    """What is kept of a text that the gate goes by, or a model said."""

    kind: str
    gated: bool
    reasons: tuple[str, ...]
    """Of every check, those that gate first."""
    answerability: float | None = None
    """1: yes, 0: no; None: nobody asked, or nobody knows."""
    judge: str | None = None
    """Who was asked; None: nobody."""

    @property
    def gating(self) -> tuple[str, ...]:
        """The reasons for which it is gated; none where it is not."""
        return gating(self.reasons) if self.gated else ()


def gating(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the reasons that gate, without advice.

    Example:
        >>> gating(["garbled", "cut_end"])
        ('garbled',)
    """
    return tuple(reason for reason in reasons if reason in GATING.values())


def scored_as(quality: ChunkQuality) -> Scored:
    """Return what is kept of a fresh result."""
    return Scored(quality.kind, quality.gated, quality.reasons)


def scores_of(connection: Connection, hashes: Iterable[str]) -> dict[str, Scored]:
    """Return what is known of texts under these rules, by hash; of others nothing."""
    found = {}
    for page in in_batches(list(dict.fromkeys(hashes)), _PAGE):
        for row in connection.execute(_KEPT, {"hashes": page}):
            reasons = tuple(json.loads(row.reasons))
            found[row.content_hash] = Scored(
                row.kind, row.gated, reasons, row.answerability, row.judge
            )
    return found


def keep_scores(connection: Connection, scores: Mapping[str, ChunkQuality], now: datetime) -> None:
    """Keep results by hash; what is known already stays, with what a model said of it."""
    rows = [
        {
            "content_hash": of,
            "scoring_version": quality.scoring_version,
            "kind": quality.kind,
            "legibility": quality.legibility,
            "repetition": quality.repetition,
            "navigation": quality.navigation,
            "sufficiency": quality.sufficiency,
            "reasons": json.dumps(quality.reasons),
            "gated": quality.gated,
            "scored_at": now,
        }
        # In one order everywhere: two writers never wait for each other's rows.
        for of, quality in sorted(scores.items())
    ]
    for page in in_batches(rows, _PAGE):
        insert_or_ignore(connection, chunk_quality, page)
