"""Which accepted question is asked again, and what is served for it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from langchain_feedback.documents import DERIVED_KEY, chunk_key, content_hash, copy_document
from langchain_feedback.index._foldback.resolving import doubted_in, held_in, ids_of
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

__all__ = ["Asked", "Known", "known_of", "nearest", "question_document", "slot_of"]

_NEAREST = 5
_FRESH = timedelta(days=30)

_once = Once(logging.getLogger(__name__))


@dataclass(frozen=True)
class Known:
    """What the store knows of some entries."""

    entries: Mapping[str, Derived]
    """By id."""
    standing: Mapping[Source, Standing]
    """How their sources are, by the catalog."""
    doubted: frozenset[Source]
    """Sources that only the index can tell of; see `doubted_in`."""
    now: datetime


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


def known_of(store: "FeedbackStore", ids: Sequence[str], *, can_ask: bool) -> Known:
    """Return what is known of the active ones among some entries.

    Args:
        store: Where they are.
        ids: Of entries.
        can_ask: Whether the index can be asked what it holds.
    """
    with reading(store) as connection:
        entries = read_derived(connection, store.namespace, ids=ids, status="active")
        sources = {source for entry in entries for source in entry.sources}
        standing = standing_of(connection, store.namespace, sources)
        doubted = doubted_in(connection, store.namespace, standing) if can_ask else frozenset()
        now = clock(store, connection)
    return Known({entry.derived_id: entry for entry in entries}, standing, doubted, now)


def slot_of(entry: Derived, known: Known, asked: Asked, *, answers: bool) -> list[Document] | None:
    """Return what an entry adds, possibly nothing; None where it must not be served.

    Args:
        entry: An active one.
        known: How its sources are, and when.
        asked: What the slot is filled for.
        answers: Whether the answer itself is served, after all of its sources.
    """
    if not _is_alive(entry, known) or _is_contradicted(entry, asked):
        return None
    there = {content_hash(document) for document in asked.shown}
    # An answer that somebody had forgotten leaves its sources.
    answers = answers and bool(entry.text)
    if not answers and all(text_hash in there for _, text_hash in entry.sources):
        return []
    copies = _copies(entry, known, asked)
    if len(copies) < len(entry.sources):
        return None
    missing = [copies[source] for source in entry.sources if source[1] not in there]
    allowed = [copy for copy in missing if asked.allow(copy)]
    if not answers:
        return allowed[:1]
    if len(allowed) < len(missing):
        return None
    return [*allowed, _answer(entry)]


def _is_alive(entry: Derived, known: Known) -> bool:
    is_over = entry.expires_at is not None and entry.expires_at <= known.now
    if entry.status != "active" or is_over or entry.question is None or not entry.sources:
        return False
    return all(
        source in known.doubted or known.standing[source].state == "current"
        for source in entry.sources
    )


def _is_contradicted(entry: Derived, asked: Asked) -> bool:
    """Whether the primary index just returned another text under the id of a source."""
    known = dict(entry.sources)
    return any(
        content_hash(document) != known[key]
        for document in (*asked.pool, *asked.shown)
        if (key := chunk_key(document, asked.id_field)) in known
    )


def _copies(entry: Derived, known: Known, asked: Asked) -> dict[Source, Document]:
    """Return the sources as they are now, without those of which that cannot be told."""
    returned = {content_hash(one): one for one in reversed((*asked.shown, *asked.pool))}
    if asked.resolve is None:
        found = {
            source: returned.get(source[1]) or _fresh(known.standing[source], known.now)
            for source in entry.sources
        }
        return {source: copy for source, copy in found.items() if copy is not None}
    ids = {
        source: ids_of(source, known.standing[source], known.doubted) for source in entry.sources
    }
    wanted = sorted({one for of in ids.values() for one in of})
    held = held_in(ids, _resolved(asked.resolve, wanted) if wanted else (), asked.id_field)
    # A chunk without an id of its own cannot be asked for: that it was just returned must do.
    there = [one for one in entry.sources if one in held or (not ids[one] and one[1] in returned)]
    return {source: returned.get(source[1]) or held[source] for source in there}


def _fresh(one: Standing, now: datetime) -> Document | None:
    newest = one.known[0]
    return copy_document(newest[1]) if now - newest[2] <= _FRESH else None


def _resolved(resolve: Resolve, ids: list[str]) -> Sequence[Document]:
    try:
        return [one for one in resolve(ids) or () if isinstance(one, Document)]
    except Exception as error:  # noqa: BLE001  the primary's chunks stand without these
        _once.warn("resolve", "`resolve` failed, so the extra slot stays empty: %r", error)
        return ()


def _answer(entry: Derived) -> Document:
    marks = question_document(entry).metadata
    marks |= {"source": "an earlier answer", "chunks": [chunk_id for chunk_id, _ in entry.sources]}
    approved = entry.approved_at or datetime.now(UTC)
    marks["approved_at"] = approved.isoformat()
    return Document(f"{entry.question}\n{entry.text}", id=entry.derived_id, metadata=marks)
