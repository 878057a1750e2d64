"""What is in the vector store and should not be there, as far as anybody can tell."""

from typing import Any

from sqlalchemy import select

from langchain_feedback.index._health.base import NAMED, Look, clean, found, skipped
from langchain_feedback.index._health.counting import count_in
from langchain_feedback.index._health.gated import in_catalog
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.index._health.writes import BUSY, TODO, is_busy, of_ledger, unreadable
from langchain_feedback.index._writer.stores import found_in
from langchain_feedback.store.care_schema import index_entries
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading

__all__ = ["check_leftovers"]

_MOST_ASKED = 5_000
_TODO_UNKNOWN = "What others wrote into this store, delete there, or give it a store of its own."
_GONE = {
    "removed": "still there although removed",
    "forgotten": "still there although the store forgot them",
}


def check_leftovers(look: Look) -> HealthCheck:
    """Look for chunks in the vector store that the ledger or the catalog says are gone.

    Most vector stores cannot list their ids, so this is what can be told: which of the last
    5,000 that were removed, and of those that `forget_chunks` forgot, are still there; which
    present ones have a text that the catalog has only as missing or retired; and, for the stores
    that say how many chunks they hold, whether they hold more than the ledger knows.
    """
    name = "leftovers"
    if why := unreadable(look):
        return skipped(name, why)
    if is_busy(look):
        return skipped(name, BUSY)
    known = _read(look)
    asked = {what: ids for what, ids in known.items() if what in _GONE}
    there = found_in(_vectors(look), [of for ids in asked.values() for of in ids])
    wrong = {_GONE[what]: [of for of in ids if of in there] for what, ids in asked.items()}
    wrong["still there although gone at their source"] = known["stale"]
    told = [f"{what}: {len(ids):,} ({', '.join(ids[:NAMED])})"
            for what, ids in wrong.items() if ids]  # fmt: skip
    held = count_in(_vectors(look))
    expected = len(known["present"]) + len(wrong[_GONE["removed"]])
    more = 0 if held is None else max(0, held - expected)
    figures: dict[str, Any] = {
        "removed_there": len(wrong[_GONE["removed"]]),
        "forgotten_there": len(wrong[_GONE["forgotten"]]),
        "gone_at_the_source": len(known["stale"]),
        "present": len(known["present"]),
        "held": held,
        "unknown_to_the_ledger": None if held is None else more,
    }
    if more:
        told.append(f"not in the ledger: {more:,}")
    if told:
        todo = TODO if not more else f"{TODO} {_TODO_UNKNOWN}"
        return found(name, "finding", "; ".join(told), todo, figures)
    said = "nothing is there that the ledger or the catalog calls gone"
    if held is None:
        kind = type(_vectors(look)).__name__
        said += f"; what others put into {kind} is not known, for it does not tell its count"
    return clean(name, said, figures)


def _vectors(look: Look) -> Any:
    return look.index.vector_store


def _read(look: Look) -> dict[str, list[str]]:
    """Return the ids of what is present, was removed, was forgotten, or has lost its source."""
    row, mine = index_entries.c, of_ledger(look)
    there = mine & (row.state == "present")
    gone = chunks.c.status.in_(("missing", "retired"))
    texts = select(chunks.c.content_hash).where(*in_catalog(look))
    ids = select(row.chunk_id).order_by(row.chunk_id)
    newest = select(row.chunk_id).where(mine, row.state == "removed")
    # By text: a chunk without an id of its own has another name in the catalog.
    stale = ids.where(there, row.content_hash.in_(texts.where(gone)))
    asked = {
        "present": ids.where(there),
        "removed": newest.order_by(row.updated_at.desc(), row.chunk_id).limit(_MOST_ASKED),
        "forgotten": ids.where(there, row.content_hash == ""),
        "stale": stale.where(row.content_hash.not_in(texts.where(~gone))),
    }
    with reading(look.store) as connection:
        return {name: list(connection.scalars(one)) for name, one in asked.items()}
