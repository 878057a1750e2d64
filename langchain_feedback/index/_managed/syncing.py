"""What the catalog is told of what a loader brings, and what that would change."""

from typing import TYPE_CHECKING

from sqlalchemy import update

from langchain_feedback.documents import chunk_key, content_hash, unique_documents
from langchain_feedback.index._managed.known import read_known
from langchain_feedback.index.catalog import Changes, ChunkCatalog
from langchain_feedback.index.ledger import in_batches
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import writing

if TYPE_CHECKING:
    from langchain_feedback.index._managed.wanted import Wanted
    from langchain_feedback.index.gate import QualityGate
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["differences", "take_down"]

_PAGE = 500


def differences(store: "FeedbackStore", wanted: "Wanted", id_field: str | None = None) -> Changes:
    """Return what `take_down` would tell; nothing is written.

    Raises:
        StoreError: If the database cannot be read.
    """
    documents = unique_documents(wanted.loaded, id_field)
    hashes = {chunk_key(document, id_field): content_hash(document) for document in documents}
    known, live = read_known(store, list(hashes))
    out = _left_out(wanted, id_field)
    found: dict[str, list[str]] = {name: [] for name in ("new", "changed", "missing", "returned")}
    for key, text_hash in hashes.items():
        row = known.get(key)
        if row is None:
            found["new"].append(key)
        elif row.content_hash != text_hash:
            found["changed"].append(key)
        elif row.status == ("live" if key in out else "missing"):
            found["missing" if key in out else "returned"].append(key)
    found["missing"] += sorted(live - hashes.keys())
    touched = sum(key in hashes for keys in found.values() for key in keys)
    told = {name: tuple(keys) for name, keys in found.items()}
    return Changes(**told, unchanged=len(hashes) - touched)


def take_down(catalog: ChunkCatalog, gate: "QualityGate", wanted: "Wanted") -> None:
    """Let the catalog know all that a loader brought; junk and copies left out are missing.

    So an alarm about more junk among new chunks sees it although no index holds it.

    Raises:
        StoreError: If the database cannot be read or written.
    """
    catalog.sync(wanted.loaded, complete=True)
    if wanted.junk:
        gate.score(wanted.loaded)
    out = _left_out(wanted, catalog.id_field)
    store, row = catalog.store, chunks.c
    with writing(store, lock="traces") as (connection, _):
        for page in in_batches(sorted(out), _PAGE):
            mine = (row.namespace == store.namespace) & (row.status == "live")
            left_out = mine & row.chunk_id.in_(page)
            connection.execute(update(chunks).where(left_out).values(status="missing"))


def _left_out(wanted: "Wanted", id_field: str | None) -> set[str]:
    return {chunk_key(document, id_field) for document, _ in (*wanted.junk, *wanted.copies)}
