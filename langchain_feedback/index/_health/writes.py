"""Does the vector store hold what the ledger of its writes says."""

from typing import Any

from sqlalchemy import ColumnElement, func, select

from langchain_feedback.index._health.base import Look, clean, days_of, found, skipped
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.index._versions.checks import check_ledger
from langchain_feedback.index._writer.stores import checked_store
from langchain_feedback.index.errors import UnsupportedIndexError
from langchain_feedback.index.ledger import Entry, TableLedger
from langchain_feedback.store.care_schema import index_entries, job_leases
from langchain_feedback.store.transactions import clock, reading

__all__ = [
    "BUSY",
    "TODO",
    "check_unfinished",
    "check_written",
    "is_busy",
    "of_ledger",
    "unreadable",
]

TODO = (
    "Plan with all documents and apply: `langchain-feedback index sync` shows what would change, "
    "and puts it right with `--apply`."
)
BUSY = "a writer is at work on the index now: look again when it is done"


class _Remembered(TableLedger):
    """The ledger without forgotten texts: they have no hash, and `leftovers` tells of them."""

    def entries(self) -> dict[str, Entry]:
        known = super().entries()
        return {of: entry for of, entry in known.items() if entry.fingerprint.content_hash}


def check_written(look: Look) -> HealthCheck:
    """Ask the vector store, in hundreds, for all that the ledger calls present."""
    name = "ledger"
    if why := unreadable(look):
        return skipped(name, why)
    if is_busy(look):
        return skipped(name, BUSY)
    check = check_ledger(_Remembered(look.store, look.index.name), look.index.vector_store)
    figures = dict(check.figures)
    if is_busy(look):
        return skipped(name, BUSY, figures)
    if figures["missing"] or figures["changed"]:
        return found(name, "alarm", check.why.partition(": plan and apply")[0], TODO, figures)
    return clean(
        name, f"the {figures['present']:,} chunks that the ledger names are there", figures
    )


def check_unfinished(look: Look) -> HealthCheck:
    """Tell what a write began and did not end, and how long ago."""
    name, row = "unfinished_writes", index_entries.c
    with reading(look.store) as connection:
        total = connection.execute(select(func.count()).where(of_ledger(look))).scalar_one()
        doubtful = of_ledger(look) & row.state.in_(("writing", "removing"))
        counted = select(row.state, func.count(), func.min(row.updated_at)).where(doubtful)
        rows = connection.execute(counted.group_by(row.state).order_by(row.state)).all()
    if not total:
        return skipped(name, _unwritten(look))
    figures: dict[str, Any] = {state: n for state, n, _ in rows}
    if not rows:
        return clean(name, f"nothing of {total:,} entries is in doubt", figures)
    figures["oldest"] = (oldest := min(at for _, _, at in rows)).isoformat()
    told = ", ".join(f"still {state}: {n:,}" for state, n, _ in rows)
    told += f", the oldest for {days_of(look.now - oldest)}"
    if is_busy(look):
        return clean(name, f"{told}: a writer is at work", figures)
    return found(name, "finding", f"{told}, and no writer is at work", TODO, figures)


def of_ledger(look: Look) -> ColumnElement[bool]:
    """Select the entries of the index."""
    row = index_entries.c
    return (row.namespace == look.namespace) & (row.index_name == look.index.name)


def unreadable(look: Look) -> str:
    """Return why ledger and vector store cannot be compared; empty where they can."""
    if look.index.vector_store is None:
        return "the index gives no vector store: `ManagedIndex(vector_store=...)`"
    try:
        checked_store(look.index.vector_store)
    except UnsupportedIndexError as error:
        return str(error).rstrip(".")
    with reading(look.store) as connection:
        some = connection.execute(select(index_entries.c.chunk_id).where(of_ledger(look)).limit(1))
        return "" if some.first() else _unwritten(look)


def is_busy(look: Look) -> bool:
    """Tell whether a writer has the lease of the index."""
    ledger = TableLedger(look.store, look.index.name)
    mine = job_leases.c.name == ledger._lease  # noqa: SLF001  ours
    with reading(look.store) as connection:
        until = connection.execute(select(job_leases.c.expires_at).where(mine)).scalar()
        return until is not None and until > clock(look.store, connection)


def _unwritten(look: Look) -> str:
    return f"`IndexWriter` wrote nothing under the name {look.index.name!r}"
