"""Is anything known of the index at all: a wrong name looks like a clean bill of health."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, FromClause, func, select

from langchain_feedback.index._health.base import NAMED, Look, clean, found
from langchain_feedback.index._health.gated import in_catalog
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.store.care_schema import derived, index_entries, index_versions
from langchain_feedback.store.schema import chunks, traces
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["check_known", "unwritten"]

_TODO = (
    "See whether the name in `ManagedIndex(name=...)` and the namespace are right. A new index is "
    "written by `langchain-feedback index sync`."
)


def check_known(look: Look) -> HealthCheck:
    """Look whether the store knows the index: else the other checks have nothing to look at.

    It is known by what `IndexWriter` wrote under its name; where that wrote nothing under any
    name, by the catalog; without a vector store also by versions and questions.
    """
    name = "known"
    with reading(look.store) as connection:
        written = _written(connection, look.namespace)
        cataloged = _count(connection, chunks, *in_catalog(look))
        by_others = look.index.vector_store is None and any(
            _has(connection, table, look.namespace) for table in (index_versions, traces)
        )
    figures = {"written": written.get(look.index.name, 0), "cataloged": cataloged}
    said = f"{figures['written']:,} chunks are in the ledger, {cataloged:,} in the catalog"
    is_misnamed = bool(written) and look.index.vector_store is not None
    if look.index.name in written or (not is_misnamed and (cataloged or by_others)):
        return clean(name, said, figures)
    why = unwritten(look.store, look.index.name, known=cataloged > 0)
    return found(name, "finding", why, _TODO, figures)


def unwritten(store: "FeedbackStore", name: str, *, known: bool = True) -> str:
    """Return that nothing was ever written under a name, and what there is; empty if it was.

    Args:
        store: Whose namespace.
        name: Of the index.
        known: Whether anything else is known of the namespace's chunks.

    Raises:
        StoreError: If the store cannot be read.
    """
    with reading(store) as connection:
        written = _written(connection, store.namespace)
        held = select(chunks.c.namespace).union(select(index_entries.c.namespace))
        places = sorted({*connection.scalars(held)} - {store.namespace})
    if name in written:
        return ""
    index = f"index {name!r} in namespace {store.namespace!r}"
    if written:
        others = [f"{of!r} ({number:,})" for of, number in sorted(written.items())]
        return f"nothing was written to {index}, but to {_listed(others)}"
    why = f"nothing was written to {index}"
    if not known:
        why = f"nothing is known of {index}: no write, no catalog"
    named = _listed([repr(one) for one in places])
    return f"{why}; other namespaces that hold chunks: {named}" if places else why


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - NAMED:,} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def _written(connection: Connection, namespace: str) -> Mapping[str, int]:
    """Return how many chunks each index of a namespace holds.

    That of accepted questions is none of them, whatever its name.
    """
    row = index_entries.c
    questions = select(derived.c.derived_id).where(derived.c.namespace == namespace)
    mine = (row.namespace == namespace) & row.chunk_id.not_in(questions)
    there = func.count().filter(row.state == "present")
    counted = select(row.index_name, there).where(mine).group_by(row.index_name)
    return {of: int(number) for of, number in connection.execute(counted)}


def _has(connection: Connection, table: FromClause, namespace: str) -> bool:
    some = select(table.c.namespace).where(table.c.namespace == namespace).limit(1)
    return connection.execute(some).first() is not None


def _count(connection: Connection, table: FromClause, *where: Any) -> int:
    return int(connection.scalar(select(func.count()).select_from(table).where(*where)) or 0)
