"""How many chunks have been scored at all: of the others nobody knows whether they are junk."""

from sqlalchemy import ColumnElement, Connection, FromClause, and_, case, exists, func, select

from langchain_feedback.index._health.base import Look, clean, found, skipped
from langchain_feedback.index._health.gated import NO_CATALOG, in_catalog
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.index.quality import SCORING_VERSION
from langchain_feedback.store.care_schema import chunk_quality, index_entries
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading

__all__ = ["check_coverage"]

LEAST_COVERAGE = 0.95

_TODO = (
    "Score them: `langchain-feedback index score`, or `score_corpus(store, documents)` with "
    "`catalog_documents(store)` or what your loader gives."
)


def check_coverage(look: Look) -> HealthCheck:
    """Tell how many chunks of the index have been scored: no junk was found in the others.

    The chunks are the catalog's, or where it is empty those that the ledger calls present.
    """
    name, of = "coverage", "catalog"
    with reading(look.store) as connection:
        counts = _cataloged(connection, look)
        if not counts[0]:
            of, counts = "ledger", _present(connection, look)
    total, scored, gated, before = counts
    if not total:
        return skipped(name, f"{NO_CATALOG}, or write with `IndexWriter`")
    share = scored / total
    figures = {"of": of, "chunks": total, "scored": scored, "share": round(share, 4)}
    figures |= {"gated": gated, "scored_by_other_rules_only": before}
    figures["scoring_version"] = SCORING_VERSION
    said = f"{scored:,} of {total:,} chunks are scored, {gated:,} of them gated"
    if share >= LEAST_COVERAGE:
        return clean(name, said, figures)
    said += "; nobody knows about the others"
    if before:
        said += f" ({before:,} were scored by the rules of another version)"
    return found(name, "finding", said, _TODO, figures)


def _cataloged(connection: Connection, look: Look) -> tuple[int, ...]:
    there = chunks.c.status.in_(("live", "demoted"))
    return _covered(connection, chunks, chunks.c.content_hash, and_(*in_catalog(look), there))


def _present(connection: Connection, look: Look) -> tuple[int, ...]:
    row = index_entries.c
    mine = (row.namespace == look.namespace) & (row.index_name == look.index.name)
    # A forgotten text has no hash: `leftovers` tells of it.
    there = mine & (row.state == "present") & (row.content_hash != "")
    return _covered(connection, index_entries, row.content_hash, there)


def _covered(
    connection: Connection,
    table: FromClause,
    content_hash: ColumnElement[str],
    mine: ColumnElement[bool],
) -> tuple[int, ...]:
    """Count chunks, those scored, those gated, and those that only other rules have scored."""
    quality, other = chunk_quality.alias(), chunk_quality.alias()
    scored = (quality.c.content_hash == content_hash) & (
        quality.c.scoring_version == SCORING_VERSION
    )
    unscored = quality.c.content_hash.is_(None)
    by_others = exists(select(1).where(other.c.content_hash == content_hash))
    counted = select(
        func.count(),
        func.count(quality.c.content_hash),
        func.coalesce(func.sum(case((quality.c.gated, 1), else_=0)), 0),
        func.coalesce(func.sum(case((unscored & by_others, 1), else_=0)), 0),
    )
    joined = counted.select_from(table.outerjoin(quality, scored)).where(mine)
    return tuple(map(int, connection.execute(joined).one()))
