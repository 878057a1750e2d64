"""What the catalog knows of chunks."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from sqlalchemy import Row, bindparam, func, select

from langchain_feedback.documents import chunk_key, unique_documents
from langchain_feedback.index.duplicates import Chunk
from langchain_feedback.index.ledger import in_batches
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "as_chunks",
    "catalog_chunks",
    "catalog_size",
    "demoted",
    "documents_of",
    "read_known",
]

_PAGE = 500

_KNOWN = select(
    chunks.c.chunk_id, chunks.c.content_hash, chunks.c.status, chunks.c.first_seen
).where(
    chunks.c.namespace == bindparam("of"), chunks.c.chunk_id.in_(bindparam("ids", expanding=True))
)


def read_known(
    store: "FeedbackStore", keys: Sequence[str]
) -> tuple[dict[str, Row[Any]], set[str]]:
    """Return what the catalog has of some chunks, and the ids of all live ones."""
    known: dict[str, Row[Any]] = {}
    row = chunks.c
    live = (row.namespace == store.namespace) & (row.status == "live")
    with reading(store) as connection:
        for page in in_batches(keys, _PAGE):
            found = connection.execute(_KNOWN, {"of": store.namespace, "ids": list(page)})
            # What only answers have shown is new to the catalog.
            known |= {one.chunk_id: one for one in found if one.first_seen is not None}
        cataloged = select(row.chunk_id).where(live, row.first_seen.is_not(None))
        return known, set(connection.scalars(cataloged))


def demoted(store: "FeedbackStore") -> set[str]:
    """Return the chunks that a retirement hides now, as the text that they have.

    Raises:
        StoreError: If the database cannot be read.
    """
    mine = (chunks.c.namespace == store.namespace) & (chunks.c.status == "demoted")
    with reading(store) as connection:
        return set(connection.scalars(select(chunks.c.chunk_id).where(mine)))


def documents_of(store: "FeedbackStore", keys: Iterable[str]) -> dict[str, Document]:
    """Return chunks as the catalog knows them, by their ids: text and source.

    Raises:
        StoreError: If the database cannot be read.
    """
    row, found = chunks.c, dict[str, Document]()
    with reading(store) as connection:
        for page in in_batches(sorted(keys), _PAGE):
            mine = (row.namespace == store.namespace) & row.chunk_id.in_(page)
            for one in connection.execute(select(row.chunk_id, row.text, row.source).where(mine)):
                source = {"source": one.source or ""}
                found[one.chunk_id] = Document(one.text, id=one.chunk_id, metadata=source)
    return found


def as_chunks(
    documents: Iterable[Document], id_field: str | None = None, scope_field: str | None = None
) -> list[Chunk]:
    """Return documents as they are compared with each other, in order, each once."""
    return [
        Chunk(
            chunk_key(document, id_field),
            document.page_content,
            str(document.metadata.get("source") or ""),
            str(document.metadata.get(scope_field) or "") if scope_field else "",
        )
        for document in unique_documents(documents, id_field)
    ]


def catalog_size(store: "FeedbackStore") -> int:
    """Return how many chunks of a namespace are not retired.

    Raises:
        StoreError: If the database cannot be read.
    """
    mine = (chunks.c.namespace == store.namespace) & (chunks.c.status != "retired")
    with reading(store) as connection:
        return connection.scalar(select(func.count()).select_from(chunks).where(mine)) or 0


def catalog_chunks(store: "FeedbackStore") -> list[Chunk]:
    """Return the live chunks that a namespace knows, those first that came first.

    Raises:
        StoreError: If the database cannot be read.
    """
    row = chunks.c
    statement = (
        select(row.chunk_id, row.text, row.source, row.scope)
        .where(row.namespace == store.namespace, row.status == "live")
        .order_by(row.first_seen.is_(None), row.first_seen, row.chunk_id)
    )
    with reading(store) as connection:
        return [Chunk(*found[:3], found.scope or "") for found in connection.execute(statement)]
