"""Which sources nobody has seen for long."""

from typing import Any

from sqlalchemy import func, select

from langchain_feedback.index._health.base import NAMED, Look, clean, days_of, found, skipped
from langchain_feedback.index._health.gated import NO_CATALOG, in_catalog
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading

__all__ = ["check_sources"]

_TODO = (
    "Look at the loaders of these sources, or sync with `complete=True`, which marks what is gone."
)
_TODO_ALL = "Look at the job that calls `ChunkCatalog.sync`: it seems to have stopped."


def check_sources(look: Look) -> HealthCheck:
    """Look for sources of which no chunk was seen for `look.max_silence`.

    A chunk is seen when a sync brings it or an answer shows it, so a source that answers still
    show is not silent, whatever its loader does; a complete sync marks it as missing, and
    `leftovers` tells when it is in the index all the same. A sync within the hour after another
    moves nothing.
    """
    name, row = "silent_sources", chunks.c
    last = func.max(row.last_seen)
    mine = select(row.source, last, func.count()).where(*in_catalog(look))
    there = mine.where(row.status.in_(("live", "demoted"))).group_by(row.source)
    with reading(look.store) as connection:
        rows = connection.execute(there.order_by(last, row.source)).all()
    named = [one for one in rows if one[0]]
    figures: dict[str, Any] = {"sources": len(named)}
    figures |= {"chunks_without_source": sum(n for source, _, n in rows if not source)}
    if not named:
        why = "no chunk of the catalog has a `source` in its metadata" if rows else NO_CATALOG
        return skipped(name, why, figures)
    silent = [one for one in named if look.now - one[1] > look.max_silence]
    figures |= {"silent": len(silent), "last_seen": max(at for _, at, _ in named).isoformat()}
    figures["longest"] = [
        {"source": source, "last_seen": at.isoformat(), "chunks": n}
        for source, at, n in silent[:NAMED]
    ]
    time = days_of(look.max_silence)
    if not silent:
        return clean(name, f"each of {len(named):,} sources was seen in the last {time}", figures)
    if len(silent) == len(named):
        said = f"none of {len(named):,} sources was seen in the last {time}"
        return found(name, "alarm", said, _TODO_ALL, figures)
    first = ", ".join(source for source, _, _ in silent[:NAMED])
    said = f"sources not seen for {time}: {len(silent):,} of {len(named):,} ({first})"
    return found(name, "finding", said, _TODO, figures)
