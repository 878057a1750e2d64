"""Chunks as they were last seen, and the cells that their feedback belongs to."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from langchain_core.documents import Document
from sqlalchemy import Connection, Row, bindparam, select, update

from langchain_feedback.documents import chunk_key, content_hash, plain, text_key
from langchain_feedback.store.database import upsert
from langchain_feedback.store.records import CellKey, Snapshot
from langchain_feedback.store.schema import chunks
from langchain_feedback.traces import storable

__all__ = ["cells_of", "heading_of", "headings_of", "snapshots_of", "take_snapshots"]

_OURS = ("feedback", "relevance_score")
"""Metadata that this package writes itself: not the chunk's own."""

_HEADINGS = ("heading", "title", "section", *(f"Header {level}" for level in range(1, 7)))
"""Where loaders and splitters say what a chunk is about."""

_KNOWN = select(
    chunks.c.chunk_id,
    chunks.c.content_hash,
    chunks.c.cell_id,
    chunks.c.metadata,
    chunks.c.last_seen,
).where(
    chunks.c.namespace == bindparam("of"), chunks.c.chunk_id.in_(bindparam("ids", expanding=True))
)

_PAGE = 500

_SEEN_AGAIN = timedelta(hours=1)
"""How long a snapshot goes unwritten although its chunk was seen again."""


def cells_of(
    connection: Connection,
    namespace: str,
    documents: Sequence[Document],
    id_field: str | None = None,
) -> list[CellKey]:
    """Return the cell of each document.

    It is named by text and source, so that feedback survives an index that is rebuilt with
    new random ids; a chunk whose id and text are known keeps its cell when its source moves.
    A changed text has a cell of its own.
    """
    ids = [chunk_key(document, id_field) for document in documents]
    known = {row.chunk_id: row for row in _rows(connection, namespace, ids)}
    return [
        _cell(document, known.get(chunk_id))
        for document, chunk_id in zip(documents, ids, strict=True)
    ]


def take_snapshots(
    connection: Connection,
    namespace: str,
    documents: Sequence[Document],
    now: datetime,
    id_field: str | None = None,
    *,
    unseen: Collection[int] = (),
) -> list[CellKey]:
    """Keep the documents as they are now, and return their cells.

    Args:
        connection: A transaction for writing.
        namespace: Whose.
        documents: Chunks.
        now: When they were seen.
        id_field: The metadata field that holds a chunk's id, if any.
        unseen: Positions of those that come from a snapshot themselves: it is not renewed, or
            what is shown often would never be old.
    """
    ids = [chunk_key(document, id_field) for document in documents]
    known = {row.chunk_id: row for row in _rows(connection, namespace, ids)}
    cells, changed = [], {}
    for at, (document, chunk_id) in enumerate(zip(documents, ids, strict=True)):
        row = known.get(chunk_id)
        cell = _cell(document, row)
        cells.append(cell)
        if at in unseen:
            continue
        seen = _snapshot(document, namespace, chunk_id, cell, now)
        # Other metadata too: they may say who is allowed to see the chunk.
        known_as = row and (row.content_hash, row.metadata)
        if (
            row is None
            or known_as != (cell[1], seen["metadata"])
            or now - row.last_seen > _SEEN_AGAIN
        ):
            changed[chunk_id] = seen
    # In one order everywhere: two writers never wait for each other's rows.
    rows = [changed[chunk_id] for chunk_id in sorted(changed)]
    upsert(connection, chunks, rows, key=["namespace", "chunk_id"])
    edited = [
        row["chunk_id"]
        for row in rows
        if row["chunk_id"] in known and known[row["chunk_id"]].content_hash != row["content_hash"]
    ]
    if edited:
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(edited)
        # What was said of the former text is not said of this one.
        connection.execute(update(chunks).where(mine).values(status="live", changed_at=now))
    return cells


def snapshots_of(
    connection: Connection,
    namespace: str,
    cells: Iterable[CellKey],
    seen_since: datetime | None = None,
) -> dict[CellKey, list[Snapshot]]:
    """Return what is known of the chunks of some cells, newest first."""
    wanted = set(cells)
    statement = (
        select(chunks)
        .where(chunks.c.namespace == namespace)
        .where(chunks.c.cell_id.in_({cell[0] for cell in wanted}))
        .order_by(chunks.c.last_seen.desc(), chunks.c.chunk_id)
    )
    if seen_since is not None:
        statement = statement.where(chunks.c.last_seen >= seen_since)
    found: dict[CellKey, list[Snapshot]] = {cell: [] for cell in wanted}
    for row in connection.execute(statement):
        if (cell := (row.cell_id, row.content_hash)) in wanted:
            found[cell].append(_read(row))
    return found


def headings_of(
    connection: Connection, namespace: str, chunk_ids: Sequence[str]
) -> dict[str, str]:
    """Return the heading of each chunk that has one, as last seen."""
    found: dict[str, str] = {}
    for start in range(0, len(chunk_ids), _PAGE):
        for row in _rows(connection, namespace, chunk_ids[start : start + _PAGE]):
            if heading := heading_of(json.loads(row.metadata)):
                found[row.chunk_id] = heading
    return found


def heading_of(metadata: Mapping[str, Any]) -> str:
    """Return what a chunk's metadata say that it is about; empty where they do not."""
    said = (metadata.get(key) for key in _HEADINGS)
    return next((text for text in said if isinstance(text, str) and text.strip()), "")


def _rows(connection: Connection, namespace: str, ids: Sequence[str]) -> Iterable[Row[Any]]:
    return connection.execute(_KNOWN, {"of": namespace, "ids": list(ids)}) if ids else ()


def _cell(document: Document, row: Row[Any] | None) -> CellKey:
    text_hash = content_hash(document)
    known = row is not None and row.content_hash == text_hash
    return (row.cell_id if known and row else text_key(document)), text_hash


def _snapshot(
    document: Document, namespace: str, chunk_id: str, cell: CellKey, now: datetime
) -> dict[str, Any]:
    kept, dropped = {}, {}
    for key, value in plain(document.metadata).items():
        if key in _OURS:
            continue
        try:
            kept[str(key)] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            dropped[str(key)] = type(value).__name__
    return {
        "namespace": namespace,
        "chunk_id": chunk_id,
        "document_id": None if document.id is None else storable(str(document.id)),
        "content_hash": cell[1],
        "cell_id": cell[0],
        "text": storable(document.page_content),
        "metadata": json.dumps(kept),
        "dropped": json.dumps(dropped),
        "source": storable(str(document.metadata.get("source") or "")),
        "last_seen": now,
    }


def _read(row: Row[Any]) -> Snapshot:
    document = Document(row.text, id=row.document_id, metadata=json.loads(row.metadata))
    return Snapshot(row.chunk_id, document, row.last_seen, json.loads(row.dropped))
