"""What is known of retrieved chunks: are they gated, allowed, demoted or retired."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import (
    BindParameter,
    Connection,
    and_,
    bindparam,
    case,
    literal,
    select,
    union_all,
)

from langchain_feedback.index._gating.scores import gating
from langchain_feedback.index.quality import SCORING_VERSION
from langchain_feedback.store.care_schema import chunk_quality, quality_overrides
from langchain_feedback.store.schema import chunks

__all__ = ["HIDING", "Known", "Standing", "standings"]

HIDING = ("demoted", "retired")
"""The statuses of chunks that are not shown."""

_NOTHING = literal("")


def _in(name: str) -> BindParameter[str]:
    return bindparam(name, expanding=True)


# No EXISTS: PostgreSQL would read all that was ever allowed, for the sake of a few chunks.
_ALLOWED = (
    select(literal(1))
    .where(quality_overrides.c.namespace == bindparam("of"))
    .where(quality_overrides.c.content_hash == chunk_quality.c.content_hash)
    .scalar_subquery()
)

_CHUNK = select(
    chunks.c.chunk_id, chunks.c.cell_id, chunks.c.content_hash, chunks.c.status.label("said")
).where(chunks.c.namespace == bindparam("of"))

_KNOWN = union_all(
    # A chunk's id is never empty, so that tells the two kinds of rows apart.
    select(
        _NOTHING.label("chunk_id"),
        _NOTHING.label("cell_id"),
        chunk_quality.c.content_hash,
        # Only for what is gated it is looked up whether somebody allowed it.
        case(
            (and_(chunk_quality.c.gated, _ALLOWED.is_(None)), chunk_quality.c.reasons), else_="[]"
        ).label("said"),
    ).where(
        chunk_quality.c.scoring_version == SCORING_VERSION,
        chunk_quality.c.content_hash.in_(_in("hashes")),
    ),
    # One for each index: for both conditions in one, SQLite reads every chunk there is.
    _CHUNK.where(chunks.c.chunk_id.in_(_in("ids"))),
    _CHUNK.where(chunks.c.cell_id.in_(_in("cells"))),
)


class Standing(NamedTuple):
    """By which names a chunk may be known."""

    chunk_id: str
    cell_id: str
    """Of its text and source: an index that is rebuilt may have given it a new id."""
    content_hash: str


class Known(NamedTuple):
    """What is known of some chunks."""

    gated: dict[str, tuple[str, ...]]
    """The reasons that gate, by content hash; none of a good text, or one that was allowed."""
    status: dict[tuple[str, str], str]
    """By chunk id and content hash."""
    cells: dict[tuple[str, str], set[str]]
    """The statuses of all chunks of a cell, by its id and content hash."""

    def reasons(self, chunk: Standing) -> tuple[str, ...]:
        """Return why a chunk is hidden; empty: it is not."""
        status = self.status.get((chunk.chunk_id, chunk.content_hash))
        if status is None:
            # Under a new id it is hidden if under every other one it was.
            known = self.cells.get((chunk.cell_id, chunk.content_hash), set())
            status = min(known) if known and known <= set(HIDING) else ""
        gated = self.gated.get(chunk.content_hash, ())
        return (*gated, status) if status in HIDING else gated

    def is_unknown(self, chunk: Standing) -> bool:
        """Return whether nobody has scored its text."""
        return chunk.content_hash not in self.gated


def standings(connection: Connection, namespace: str, asked: Sequence[Standing]) -> Known:
    """Look chunks up, in one statement."""
    known = Known({}, {}, defaultdict(set))
    if not asked:
        return known
    ids, cells, hashes = (sorted(set(column)) for column in zip(*asked, strict=True))
    given = {"of": namespace, "ids": ids, "cells": cells, "hashes": hashes}
    for chunk_id, cell_id, text_hash, said in connection.execute(_KNOWN, given):
        if not chunk_id:
            known.gated[text_hash] = gating(json.loads(said))
            continue
        known.status[chunk_id, text_hash] = said
        known.cells[cell_id, text_hash].add(said)
    return known
