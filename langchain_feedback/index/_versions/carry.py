"""Evidence across versions: what people said of a chunk stays with its text.

Evidence belongs to a text and its source, not to an id in an index, so a rebuilt index keeps it
by itself. What is lost without help is the evidence of a text whose source has got another name:
the file was moved, or the loader writes paths another way.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from langchain_core.documents import Document
from sqlalchemy import Connection, select, update

from langchain_feedback.documents import chunk_key, unique_documents
from langchain_feedback.index._versions.replay import is_contained
from langchain_feedback.store.chunks import cells_of, take_snapshots
from langchain_feedback.store.records import CellKey
from langchain_feedback.store.schema import ANSWER, chunks, credits_, pins, questions
from langchain_feedback.store.transactions import clock, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Carried", "carry_evidence"]


@dataclass(frozen=True)
class Carried:
    """What became of the evidence of a version's chunks in the next one."""

    kept: int
    """Chunks with evidence that are in the new version with the same text and source."""
    moved: tuple[tuple[str, str], ...]
    """Keys of an old and a new chunk of the same text, whose evidence is one now."""
    contained: tuple[tuple[str, str], ...]
    """Keys of an old chunk with evidence, and of a new one of its source that holds its text and
    more: for people to look at. Its evidence is not carried: the votes were not about the rest."""
    lost: tuple[str, ...]
    """Keys of old chunks with evidence that the new version has nothing of."""


def carry_evidence(
    store: "FeedbackStore",
    old: Iterable[Document],
    new: Iterable[Document],
    *,
    id_field: str | None = None,
) -> Carried:
    """Let the chunks of a new version have the evidence of the old ones with equal texts.

    The new chunk is made another name of the old evidence; no vote is copied, so nothing counts
    twice, later votes on either count for both, and `rebuild_evidence` gives the same. Where the
    old text is still in the new version under its old source, a copy of it under another source
    is a chunk of its own and begins without evidence. Doing it twice changes nothing.

    Args:
        store: A `FeedbackStore`.
        old: The documents of the version before.
        new: The documents of the version to come.
        id_field: The metadata field that holds a chunk's id, if any.

    Returns:
        What was kept, moved and lost, of the chunks with evidence.

    Raises:
        StoreError: If the store cannot be written; nothing is half written.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> page = Document("Refunds take 14 days.", id="1", metadata={"source": "faq.md"})
        >>> moved = Document("Refunds take 14 days.", id="2", metadata={"source": "help/faq.md"})
        >>> store.record_trace("t1", "How long?", [page])
        >>> event_id = store.rate("t1", 5, target=page)
        >>> carry_evidence(store, [page], [moved]).moved
        (('1', '2'),)
        >>> store.cells_of([moved]) == store.cells_of([page])
        True
    """
    before, after = unique_documents(old, id_field), unique_documents(new, id_field)
    with writing(store) as (connection, _):
        namespace = store.namespace
        voted = _voted(connection, namespace)
        cells = cells_of(connection, namespace, before, id_field)
        olds = {cell: one for cell, one in zip(cells, before, strict=True) if cell in voted}
        there = cells_of(connection, namespace, after, id_field)
        pairs = _moves(olds, dict(zip(there, after, strict=True)))
        _point(connection, namespace, pairs, clock(store, connection), id_field)
    kept, moved = olds.keys() & set(there), {old for old, _ in pairs}
    rest = {cell: one for cell, one in olds.items() if cell not in kept | moved}
    contained, lost = _contained(list(rest.values()), after)
    return Carried(
        kept=len(kept),
        moved=_named([(olds[cell], one) for cell, one in pairs], id_field),
        contained=_named(contained, id_field),
        lost=tuple(sorted(chunk_key(one, id_field) for one in lost)),
    )


def _voted(connection: Connection, namespace: str) -> set[CellKey]:
    """Return the cells of which anybody said anything."""
    mine = select(questions.c.question_id).where(questions.c.namespace == namespace)
    voted = select(credits_.c.chunk_id, credits_.c.content_hash).where(
        credits_.c.question_id.in_(mine), credits_.c.chunk_id != ANSWER
    )
    pinned = select(pins.c.chunk_id, pins.c.content_hash).where(pins.c.namespace == namespace)
    return {(row[0], row[1]) for row in connection.execute(voted.union(pinned))}


def _moves(
    olds: dict[CellKey, Document], news: dict[CellKey, Document]
) -> list[tuple[CellKey, Document]]:
    """Pair old cells that are gone with new chunks of the same text, each at most once."""
    free: dict[str, list[CellKey]] = defaultdict(list)
    for cell in sorted(news.keys() - olds.keys()):
        free[cell[1]].append(cell)
    gone = sorted(olds.keys() - news.keys())
    return [(cell, news[free[cell[1]].pop(0)]) for cell in gone if free[cell[1]]]


def _point(
    connection: Connection,
    namespace: str,
    pairs: Sequence[tuple[CellKey, Document]],
    now: datetime,
    id_field: str | None,
) -> None:
    take_snapshots(connection, namespace, [one for _, one in pairs], now, id_field)
    for (cell_id, text_hash), document in pairs:
        mine = (chunks.c.namespace == namespace) & (chunks.c.content_hash == text_hash)
        mine &= chunks.c.chunk_id == chunk_key(document, id_field)
        connection.execute(update(chunks).where(mine).values(cell_id=cell_id))


def _contained(
    olds: Sequence[Document], news: Sequence[Document]
) -> tuple[list[tuple[Document, Document]], list[Document]]:
    by_source: dict[str, list[Document]] = defaultdict(list)
    for one in news:
        by_source[str(one.metadata.get("source") or "")].append(one)
    found, lost = [], []
    for one in olds:
        among = by_source[str(one.metadata.get("source") or "")]
        held = (new for new in among if is_contained(one.page_content, new.page_content))
        holder = next(held, None)
        if holder is None:
            lost.append(one)
        else:
            found.append((one, holder))
    return found, lost


def _named(
    pairs: Iterable[tuple[Document, Document]], id_field: str | None
) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted((chunk_key(old, id_field), chunk_key(new, id_field)) for old, new in pairs)
    )
