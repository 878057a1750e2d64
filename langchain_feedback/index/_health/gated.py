"""How many of the new chunks are junk, against those before."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from langchain_feedback.index._health.base import NAMED, Look, clean, days_of, found, skipped
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.index._health.statistics import Rise, binomial_tail, psi, rise, z_of_shares
from langchain_feedback.index._quality.display import composite
from langchain_feedback.index.quality import SCORING_VERSION
from langchain_feedback.store.care_schema import chunk_quality
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading

__all__ = ["NO_CATALOG", "check_gated_share", "in_catalog"]

ASSUMED = 0.03
"""What the gate may flag of good code and tables: it stands in for a base where there is none."""
LEAST_BASE = 100
LEAST_FOR_PSI = 200

NO_CATALOG = "the catalog holds no chunk: give all documents, junk too, to `ChunkCatalog.sync`"
_came = func.coalesce(chunks.c.changed_at, chunks.c.first_seen)
_SCORED = and_(
    chunk_quality.c.content_hash == chunks.c.content_hash,
    chunk_quality.c.scoring_version == SCORING_VERSION,
)
_GATED = func.coalesce(func.sum(case((chunk_quality.c.gated, 1), else_=0)), 0)


class _Count(NamedTuple):
    chunks: int
    scored: int
    gated: int


def check_gated_share(look: Look) -> HealthCheck:
    """Compare the junk among new chunks with that among those of the time before.

    New is a chunk whose text came, first or as an edit, within `look.window`; without an edit
    it counts where it first came. Only results of the present scoring version count. Days of
    work differ, so the base is many of them; where 28 days brought fewer than 100 chunks it is
    everything before, and where that is too few, the 3 % that the gate may flag of good code.
    """
    name, since = "gated_share", look.now - look.window
    with reading(look.store) as connection:
        if not _any(connection, look):
            return skipped(name, NO_CATALOG)
        new = _count(connection, look, since, None)
        base = _base(connection, look, since)
        figures: dict[str, Any] = {"scoring_version": SCORING_VERSION, "new": new.chunks}
        figures |= {"unscored": new.chunks - new.scored}
        if not new.chunks:
            return clean(name, f"no new chunk in the last {days_of(look.window)}", figures)
        if not new.scored:
            why = f"none of {new.chunks:,} new chunks is scored"
            return skipped(name, f"{why}: see `coverage`", figures)
        compared = _compared(new, base[1])
        figures |= {"n": new.scored, "gated": new.gated, "basis": base[0]}
        figures |= {"base_n": base[1].scored, "base_gated": base[1].gated}
        figures |= compared.as_figures() | _z(new, base[1])
        figures |= _shift(connection, look, since, base)
        said = _said(look, new, compared, base[0])
        if not compared.is_real:
            return clean(name, said, figures)
        figures["sources"] = worst = _sources(connection, look, since)
    told = ", ".join(f"{one['source'] or 'no source'} ({one['gated']:,})" for one in worst)
    todo = "Look at what these sources deliver now; `QualityGate.split` keeps it out of the index."
    return found(name, "alarm", f"{said}. Most of it comes from {told}", todo, figures)


def _any(connection: Connection, look: Look) -> bool:
    return (
        connection.execute(select(chunks.c.chunk_id).where(*in_catalog(look)).limit(1)).first()
        is not None
    )


def in_catalog(look: Look) -> tuple[ColumnElement[bool], ...]:
    """Select the chunks of the catalog."""
    # Those that only answers showed are not the catalog's: nobody knows when they came.
    return chunks.c.namespace == look.namespace, chunks.c.first_seen.is_not(None)


def _between(
    look: Look, since: datetime | None, until: datetime | None
) -> tuple[ColumnElement[bool], ...]:
    edges = [] if since is None else [_came >= since]
    return (*in_catalog(look), *edges, *([] if until is None else [_came < until]))


def _count(
    connection: Connection, look: Look, since: datetime | None, until: datetime | None
) -> _Count:
    counted = select(func.count(), func.count(chunk_quality.c.content_hash), _GATED)
    joined = counted.select_from(chunks.outerjoin(chunk_quality, _SCORED))
    return _Count(*map(int, connection.execute(joined.where(*_between(look, since, until))).one()))


_Base = tuple[str, _Count, datetime | None]


def _base(connection: Connection, look: Look, since: datetime) -> _Base:
    """Return what the new chunks are compared with, and from when on."""
    start = since - look.base
    count = _count(connection, look, start, since)
    if count.scored >= LEAST_BASE:
        return f"the {days_of(look.base)} before", count, start
    count = _count(connection, look, None, since)
    if count.scored >= LEAST_BASE:
        return "everything before", count, None
    return "assumed", count, None


def _compared(new: _Count, base: _Count) -> Rise:
    if base.scored >= LEAST_BASE:
        return rise(new.gated, new.scored, base.gated, base.scored)
    p = binomial_tail(new.gated, new.scored, ASSUMED)
    return Rise(new.gated / new.scored, ASSUMED, p)


def _z(new: _Count, base: _Count) -> dict[str, Any]:
    if base.scored < LEAST_BASE:
        return {}
    return {"z": round(z_of_shares(new.gated, new.scored, base.gated, base.scored), 2)}


def _said(look: Look, new: _Count, compared: Rise, basis: str) -> str:
    share = f"{new.gated:,} of {new.scored:,} ({compared.share:.1%})"
    said = f"{share} scored new chunks of {days_of(look.window)} are junk"
    if basis == "assumed":
        return (
            f"{said}; there are too few before to compare with, so at most {ASSUMED:.0%} was "
            "taken for usual"
        )
    return f"{said}, and {compared.before:.1%} in {basis}"


def _shift(connection: Connection, look: Look, since: datetime, base: _Base) -> dict[str, Any]:
    """Return the stability index of the composite, where there are enough for it to mean anything.

    Shown, and no reason for an alarm: of 200 chunks with 5 % junk it says less than the share.
    """
    if base[0] == "assumed":
        return {}
    new = _composites(connection, _between(look, since, None))
    if new.size < LEAST_FOR_PSI:
        return {}
    old = _composites(connection, _between(look, base[2], since))
    return {"psi": round(psi(old, new), 4)} if old.size >= LEAST_FOR_PSI else {}


def _composites(
    connection: Connection, where: Sequence[ColumnElement[bool]]
) -> NDArray[np.float64]:
    row = chunk_quality.c
    stated = case((row.reasons.contains('"no_statement"'), 0.0), else_=1.0)
    density = row.legibility * row.repetition * row.navigation * stated
    asked = select(density, row.sufficiency, func.count()).group_by(density, row.sufficiency)
    joined = asked.select_from(chunks.join(chunk_quality, _SCORED)).where(*where)
    # Most chunks have no fault, so there are few values.
    rows = connection.execute(joined).all()
    values = [composite(of, whole) for of, whole, _ in rows]
    return np.repeat(np.array(values, dtype=np.float64), [number for _, _, number in rows])


def _sources(connection: Connection, look: Look, since: datetime) -> list[dict[str, Any]]:
    number = func.count()
    worst = (
        select(chunks.c.source, number)
        .select_from(chunks.join(chunk_quality, _SCORED))
        .where(*_between(look, since, None), chunk_quality.c.gated)
        .group_by(chunks.c.source)
        .order_by(number.desc(), chunks.c.source)
        .limit(NAMED)
    )
    return [{"source": source, "gated": int(n)} for source, n in connection.execute(worst)]
