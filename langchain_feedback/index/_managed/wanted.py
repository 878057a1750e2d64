"""What an index is to hold: what its loader brings, without what was taken out of the index."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, content_hash
from langchain_feedback.index._gating.overrides import among_allowed
from langchain_feedback.index._gating.scores import scored_as, scores_of
from langchain_feedback.index._managed.copies import copies_of
from langchain_feedback.index._writer.stores import identified
from langchain_feedback.index.quality import score_chunk
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.index.gate import QualityGate
    from langchain_feedback.index.writer import IndexWriter

__all__ = ["Wanted", "wanted"]

Dropped = tuple[Document, tuple[str, ...]]


@dataclass(frozen=True)
class Wanted:
    """What an index is to hold, and what its loader brings beside that."""

    loaded: tuple[Document, ...]
    """All that the loader brings, in its order."""
    documents: tuple[Document, ...]
    """What is to be in the index of it, in the same order."""
    retired: tuple[Document, ...]
    """Taken out by a retirement, or hidden by one and not in the index: they stay out."""
    junk: tuple[Dropped, ...]
    """Left out for what the gate says, with the reasons; empty unless it was asked."""
    copies: tuple[tuple[Document, str], ...] = ()
    """Left out, each with the id of the chunk that it copies; empty unless it was asked."""


def wanted(
    gate: "QualityGate",
    writer: "IndexWriter",
    documents: Iterable[Document],
    *,
    drop_junk: bool,
    drop_copies: bool = False,
    scope_field: str | None = None,
) -> Wanted:
    """Part what a loader brings; nothing is written, no score either.

    A chunk that a retirement only hides stays in the index as long as it is there, so that it
    is back at once if it is restored.

    Args:
        gate: Knows what was retired.
        writer: Of the index.
        documents: All that the loader brings.
        drop_junk: Whether what the gate finds wanting is left out, but for what somebody
            allowed.
        drop_copies: Whether of the same text only the chunk that came first is to be there. One
            that is hidden stands for no other one, and no other one for it.
        scope_field: Texts of two scopes are no copies.

    Raises:
        StoreError: If the store cannot be read.
    """
    documents = list(documents)
    hidden = gate.hidden(documents)
    junk = _junk(gate, documents) if drop_junk else {}
    held = _held(writer) if any("demoted" in reasons for reasons in hidden.values()) else set()
    kept: list[Document] = []
    retired: list[Document] = []
    dropped: list[Dropped] = []
    alike: dict[bool, list[Document]] = {True: [], False: []}
    for at, document in enumerate(documents):
        reasons = hidden.get(at, ())
        if "retired" in reasons:
            retired.append(document)
        elif "demoted" in reasons:
            is_there = held.issuperset(identified([document], writer.vector_store, gate.id_field))
            (kept if is_there else retired).append(document)
        elif at in junk:
            dropped.append((document, junk[at]))
        else:
            kept.append(document)
            # What a gate hides at query time must not stand for what it shows.
            alike[bool(reasons)].append(document)
    of: dict[str, str] = {}
    for some in alike.values() if drop_copies else ():
        of |= copies_of(gate.store, some, gate.id_field, scope_field)
    keys = [chunk_key(document, gate.id_field) for document in kept] if of else []
    copies = tuple((one, of[key]) for one, key in zip(kept, keys, strict=False) if key in of)
    if copies:
        kept = [one for one, key in zip(kept, keys, strict=True) if key not in of]
    return Wanted(tuple(documents), tuple(kept), tuple(retired), tuple(dropped), copies)


def _held(writer: "IndexWriter") -> set[str]:
    """Return what the ledger has in the index; what a crash left on its way out is not."""
    entries = writer.ledger.entries().values()
    return {entry.id for entry in entries if entry.state in ("writing", "present")}


def _junk(gate: "QualityGate", documents: list[Document]) -> Mapping[int, tuple[str, ...]]:
    """Return the reasons of each document that the gate drops, by its position."""
    hashes = [content_hash(document) for document in documents]
    with reading(gate.store) as connection:
        known = scores_of(connection, hashes)
    for of, document in zip(hashes, documents, strict=True):
        # Kept, a score hides a chunk at query time: that is more than to look.
        known[of] = known.get(of) or scored_as(score_chunk(document.page_content))
    gated = {of for of in hashes if known[of].gated}
    # A person's word stands against the rules': allowed by itself, or with a restore.
    with reading(gate.store) as connection:
        gated -= among_allowed(connection, gate.store.namespace, gated)
    return {at: known[of].gating for at, of in enumerate(hashes) if of in gated}
