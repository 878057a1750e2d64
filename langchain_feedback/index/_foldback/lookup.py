"""Which accepted question is asked again, and what is served for it."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from langchain_feedback.documents import DERIVED_KEY, chunk_key, content_hash, copy_document
from langchain_feedback.index.ledger import in_batches
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._reach import Resolve
from langchain_feedback.retrievers._vectors import VectorSource
from langchain_feedback.store.derived_rows import (
    Derived,
    Source,
    Standing,
    read_derived,
    standing_of,
)
from langchain_feedback.store.transactions import clock, reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Asked", "Known", "absent_from", "known_of", "nearest", "question_document", "slot_of"]

Known = tuple[Mapping[str, Derived], Mapping[Source, Standing], datetime]
"""Entries by id, how their sources are, and what time it is."""

_NEAREST = 5
_FRESH = timedelta(days=30)
_MOST_IDS = 8
_FEW = 5
_PAGE = 200

_once = Once(logging.getLogger(__name__))


@dataclass(frozen=True)
class Asked:
    """What a slot is filled for."""

    shown: Sequence[Document]
    """The chunks that it comes after."""
    pool: Sequence[Document]
    """All that the primary index returned: it tells which texts are others now."""
    allow: Callable[[Document], bool]
    resolve: Resolve | None
    id_field: str | None


def question_document(entry: Derived) -> Document:
    """Return what stands for an entry in the index of accepted questions."""
    marks = {DERIVED_KEY: True, "derived_id": entry.derived_id}
    return Document(entry.question or "", id=entry.derived_id, metadata=marks)


def nearest(
    index: VectorStore, question: str, vector: Sequence[float] | None, least: float
) -> list[tuple[str, float]]:
    """Return the ids and cosines of the accepted questions like this one, the nearest first.

    Scores of vector stores are not comparable, so the cosines are made of vectors.

    Args:
        index: The index of accepted questions.
        question: What is asked.
        vector: Its vector in that index, if it is known already.
        least: The least cosine.
    """
    source = VectorSource.of(index, None)
    asked = source.question(question) if vector is None else vector
    if asked is None:
        return []
    found = index.similarity_search_by_vector(list(asked), k=_NEAREST)
    found = [one for one in found if one.metadata.get("derived_id")]
    if not found:
        return []
    rows = np.array(source.documents(found), dtype=np.float64)
    sought = np.array(asked, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(sought)
    cosines = np.divide(rows @ sought, lengths, out=np.zeros(len(found)), where=lengths > 0)
    order = np.argsort(-cosines, kind="stable").tolist()
    # Rounding may leave the same question a little below 1.
    kept = [at for at in order if cosines[at] >= least - 1e-6]
    return [(str(found[at].metadata["derived_id"]), float(cosines[at])) for at in kept]


def known_of(store: "FeedbackStore", ids: Sequence[str]) -> Known:
    """Return the active ones among some entries, how their sources are, and what time it is."""
    with reading(store) as connection:
        entries = read_derived(connection, store.namespace, ids=ids, status="active")
        sources = {source for entry in entries for source in entry.sources}
        standing = standing_of(connection, store.namespace, sources)
        now = clock(store, connection)
    return {entry.derived_id: entry for entry in entries}, standing, now


def slot_of(
    entry: Derived,
    standing: Mapping[Source, Standing],
    asked: Asked,
    now: datetime,
    *,
    answers: bool,
) -> list[Document] | None:
    """Return what an entry adds, possibly nothing; None where it must not be served.

    Args:
        entry: An active one.
        standing: How its sources are.
        asked: What the slot is filled for.
        now: When.
        answers: Whether the answer itself is served, after all of its sources.
    """
    if not _is_alive(entry, standing, now) or _is_contradicted(entry, asked):
        return None
    copies = {source: _copy(standing[source], source[1], asked, now) for source in entry.sources}
    if any(copy is None for copy in copies.values()):
        return None
    there = {content_hash(document) for document in asked.shown}
    missing = [copy for source, copy in copies.items() if copy and source[1] not in there]
    allowed = [copy for copy in missing if asked.allow(copy)]
    # An answer that somebody had forgotten leaves its sources.
    if not answers or not entry.text:
        return allowed[:1]
    if len(allowed) < len(missing):
        return None
    return [*allowed, _answer(entry)]


def absent_from(
    resolve: Resolve | None,
    standing: Mapping[Source, Standing],
    id_field: str | None,
) -> frozenset[Source]:
    """Return the sources that an index does not hold any more, as far as it can be asked.

    Where it has none at all of several, it is held to be away, and nothing is said to be gone.
    """
    asked = {source: _ids(one) for source, one in standing.items() if one.state == "current"}
    asked = {source: ids for source, ids in asked.items() if ids}
    if resolve is None or not asked:
        return frozenset()
    wanted = sorted({one for ids in asked.values() for one in ids})
    held: set[tuple[str, str]] = set()
    try:
        # Vector stores take so many ids at a time.
        for page in in_batches(wanted, _PAGE):
            held |= _hashes(resolve(list(page)), id_field)
    except Exception as error:  # noqa: BLE001  an index that is away has lost nothing
        _once.warn("absent", "`resolve` failed, so no source is held to be gone: %r", error)
        return frozenset()
    if not held and len(asked) >= _FEW:
        _once.warn("none", "The index has none of %d sources: is it the right one?", len(asked))
        return frozenset()
    return frozenset(
        source for source, ids in asked.items() if not any((one, source[1]) in held for one in ids)
    )


def _is_alive(entry: Derived, standing: Mapping[Source, Standing], now: datetime) -> bool:
    is_over = entry.expires_at is not None and entry.expires_at <= now
    if entry.status != "active" or is_over or entry.question is None or not entry.sources:
        return False
    return all(standing[source].state == "current" for source in entry.sources)


def _is_contradicted(entry: Derived, asked: Asked) -> bool:
    """Whether the primary index just returned another text under the id of a source."""
    known = dict(entry.sources)
    return any(
        content_hash(document) != known[key]
        for document in (*asked.pool, *asked.shown)
        if (key := chunk_key(document, asked.id_field)) in known
    )


def _copy(one: Standing, text_hash: str, asked: Asked, now: datetime) -> Document | None:
    """Return a source as it is now; None where that cannot be told."""
    for document in (*asked.shown, *asked.pool):
        if content_hash(document) == text_hash:
            return document
    if asked.resolve is None:
        newest = one.known[0]
        return copy_document(newest[1]) if now - newest[2] <= _FRESH else None
    ids = _ids(one)
    found = _resolved(asked.resolve, ids) if ids else []
    same = (document for document in found if content_hash(document) == text_hash)
    return next((document for document in same if _named(document, ids, asked.id_field)), None)


def _named(document: Document, ids: Collection[str], id_field: str | None) -> bool:
    return chunk_key(document, id_field) in ids


def _resolved(resolve: Resolve, ids: list[str]) -> Sequence[Document]:
    try:
        return [one for one in resolve(ids) or () if isinstance(one, Document)]
    except Exception as error:  # noqa: BLE001  the primary's chunks stand without these
        _once.warn("resolve", "`resolve` failed, so the extra slot stays empty: %r", error)
        return ()


def _ids(one: Standing) -> list[str]:
    return [known for known, _, _ in one.known if known is not None][:_MOST_IDS]


def _hashes(found: Any, id_field: str | None) -> set[tuple[str, str]]:
    documents = [one for one in found or () if isinstance(one, Document)]
    return {(chunk_key(one, id_field), content_hash(one)) for one in documents}


def _answer(entry: Derived) -> Document:
    marks = question_document(entry).metadata
    marks |= {"source": "an earlier answer", "chunks": [chunk_id for chunk_id, _ in entry.sources]}
    approved = entry.approved_at or datetime.now(UTC)
    marks["approved_at"] = approved.isoformat()
    return Document(f"{entry.question}\n{entry.text}", id=entry.derived_id, metadata=marks)
