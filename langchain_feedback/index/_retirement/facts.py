"""What a retirement goes by, read from the store: junk, votes, pins, and what people restored."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from langchain_core.documents import Document
from sqlalchemy import Connection, Row, and_, exists, func, select

from langchain_feedback.index._gating.overrides import verdicts_of
from langchain_feedback.index._retirement.rules import RetirementRules, Tally
from langchain_feedback.index._retirement.said import JOB, said_of
from langchain_feedback.index.quality import SCORING_VERSION
from langchain_feedback.store.care_schema import (
    care_actions,
    care_runs,
    chunk_quality,
    quality_overrides,
)
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.records import CellKey
from langchain_feedback.store.schema import (
    ANSWER,
    chunks,
    credits_,
    questions,
)

__all__ = ["Found", "Hidden", "Known", "known_chunks"]


class Hidden(NamedTuple):
    """That a run hid a chunk."""

    at: datetime
    document: Document
    """As it stood in the index then."""


_Hidden = Mapping[tuple[str, str], Hidden]
"""By id and content hash."""


@dataclass(frozen=True)
class Known:
    """A chunk of the namespace, as the store knows it."""

    chunk_id: str
    document: Document
    content_hash: str
    source: str
    scope: str
    status: str
    gated: tuple[str, ...]
    said: Tally = field(default_factory=Tally)
    kept_by: str = ""
    hidden: Hidden | None = None
    """None: no run hid it."""


@dataclass(frozen=True)
class Found:
    """Chunks that something speaks against, and all those of their sources."""

    chunks: int
    """How many are live in the namespace."""
    candidates: tuple[Known, ...]
    siblings: tuple[Known, ...]


def known_chunks(
    connection: Connection,
    namespace: str,
    rules: RetirementRules,
    now: datetime,
    only: Sequence[str] | None = None,
) -> Found:
    """Return the chunks in question, by id.

    Args:
        connection: A transaction.
        namespace: Whose.
        rules: How much is enough; here only what can be asked of a database.
        now: When.
        only: Only these chunks, by id, whether something speaks against them or not.
    """
    hidden = _hidden(connection, namespace)
    asked = [chunk_id for chunk_id, _ in hidden] if only is None else only
    rows = {row.chunk_id: row for row in _by_id(connection, namespace, asked, hidden)}
    if only is None:
        rows |= {row.chunk_id: row for row in _gated(connection, namespace)}
        rows |= {row.chunk_id: row for row in _blamed(connection, namespace, rules)}
    facts = said_of(connection, namespace, rules, now, list(rows.values()))
    gated = verdicts_of(connection, namespace, (row.content_hash for row in rows.values()))
    candidates = tuple(
        _known(row, gated, said=facts.said[_cell(row)], kept_by=facts.kept_by(row), hidden=hidden)
        for _, row in sorted(rows.items())
    )
    mine = (chunks.c.namespace == namespace) & (chunks.c.status == "live")
    number = connection.execute(select(func.count()).select_from(chunks).where(mine)).scalar_one()
    sources = {one.source for one in candidates if one.source}
    return Found(number, candidates, _siblings(connection, namespace, sources))


def _gated(connection: Connection, namespace: str) -> Iterable[Row[Any]]:
    """Return the live chunks that the gate finds wanting, and nobody allowed."""
    bad = and_(
        chunk_quality.c.content_hash == chunks.c.content_hash,
        chunk_quality.c.scoring_version == SCORING_VERSION,
        chunk_quality.c.gated,
    )
    allowed = exists(
        select(1)
        .where(quality_overrides.c.namespace == namespace)
        .where(quality_overrides.c.content_hash == chunks.c.content_hash)
    )
    mine = (chunks.c.namespace == namespace) & (chunks.c.status == "live")
    return connection.execute(select(chunks).join(chunk_quality, bad).where(mine, ~allowed)).all()


def _blamed(connection: Connection, namespace: str, rules: RetirementRules) -> Iterable[Row[Any]]:
    """Return the live chunks that enough people, questions and votes speak against."""
    row = credits_.c
    against = (
        select(row.chunk_id, row.content_hash)
        .join(questions, questions.c.question_id == row.question_id)
        .where(questions.c.namespace == namespace, row.chunk_id != ANSWER, row.polarity == -1)
        .group_by(row.chunk_id, row.content_hash)
        # Necessary, not sufficient: a share of them may be good, at the most.
        .having(func.count() >= rules.least_votes * (1 - rules.most_upper))
    ).subquery()
    same = and_(
        against.c.chunk_id == chunks.c.cell_id, against.c.content_hash == chunks.c.content_hash
    )
    mine = (chunks.c.namespace == namespace) & (chunks.c.status == "live")
    return connection.execute(select(chunks).join(against, same).where(mine)).all()


def _by_id(
    connection: Connection, namespace: str, ids: Iterable[str], hidden: _Hidden
) -> list[Row[Any]]:
    """Return some chunks as far as they are shown, or were hidden by a run."""
    rows: list[Row[Any]] = []
    for page in batched(sorted(set(ids))):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        for row in connection.execute(select(chunks).where(mine)):
            by_us = row.status == "demoted" and (row.chunk_id, row.content_hash) in hidden
            rows += [row] if row.status == "live" or by_us else []
    return rows


def _hidden(connection: Connection, namespace: str) -> _Hidden:
    """Return the chunks that runs hid, as far as they are hidden still."""
    done = care_actions.c
    statement = (
        select(done.target, done.before, done.at)
        .join(care_runs, care_runs.c.run_id == done.run_id)
        .join(chunks, and_(chunks.c.chunk_id == done.target, chunks.c.namespace == namespace))
        .where(care_runs.c.namespace == namespace, care_runs.c.job == JOB)
        .where(done.action == "demote", done.undone_by.is_(None), chunks.c.status == "demoted")
        .order_by(done.at)
    )
    found = {}
    for row in connection.execute(statement):
        before = json.loads(row.before)
        document = Document(before["text"], id=before["id"], metadata=before["metadata"])
        found[row.target, before["content_hash"]] = Hidden(row.at, document)
    return found


def _siblings(connection: Connection, namespace: str, sources: set[str]) -> tuple[Known, ...]:
    rows: list[Row[Any]] = []
    for page in batched(sorted(sources)):
        mine = (chunks.c.namespace == namespace) & chunks.c.source.in_(page)
        of_index = chunks.c.status.in_(("live", "demoted", "retired"))
        rows += connection.execute(select(chunks).where(mine, of_index)).all()
    gated = verdicts_of(connection, namespace, (row.content_hash for row in rows))
    return tuple(_known(row, gated) for row in rows)


def _known(
    row: Row[Any],
    gated: Mapping[str, tuple[str, ...]],
    *,
    said: Tally | None = None,
    kept_by: str = "",
    hidden: _Hidden | None = None,
) -> Known:
    return Known(
        chunk_id=row.chunk_id,
        document=Document(row.text, id=row.document_id, metadata=json.loads(row.metadata)),
        content_hash=row.content_hash,
        source=row.source,
        scope=row.scope or "",
        status=row.status,
        gated=gated.get(row.content_hash, ()),
        said=said or Tally(),
        kept_by=kept_by,
        hidden=(hidden or {}).get((row.chunk_id, row.content_hash)),
    )


def _cell(row: Row[Any]) -> CellKey:
    return row.cell_id, row.content_hash
