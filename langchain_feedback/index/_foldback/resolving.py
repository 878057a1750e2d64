"""What the index itself says of sources: where it can be asked, its word alone counts.

The catalog holds each chunk as it was last seen, by whomever. A process that has an older state
of an index in memory leaves that state's text there with each question, so another text in the
catalog is a reason to ask the index, and none to believe that a source changed. What the catalog
says of the chunk itself (retired, missing, demoted) holds all the same.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from langchain_core.documents import Document
from sqlalchemy import Connection, select

from langchain_feedback.documents import chunk_key, content_hash
from langchain_feedback.index.ledger import in_batches
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._reach import Resolve
from langchain_feedback.store.derived_rows import Source, Standing
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks

__all__ = ["Said", "ask_index", "doubted_in", "held_in", "ids_of", "judged"]

_MOST_IDS = 8
_FEW = 5
_PAGE = 200

_once = Once(logging.getLogger(__name__))


@dataclass(frozen=True)
class Said:
    """What an index said of some sources; of those in neither, nothing."""

    held: Mapping[Source, Document] = field(default_factory=dict)
    """Those that have the approved text, as the index has them."""
    lacks: frozenset[Source] = frozenset()
    """Those that it does not hold, or with another text."""
    doubted: frozenset[Source] = frozenset()
    """Those that it was asked about because of the catalog; see `doubted_in`."""


def doubted_in(
    connection: Connection, namespace: str, standing: Mapping[Source, Standing]
) -> frozenset[Source]:
    """Return the sources in use whose chunk was last seen with another text.

    Args:
        connection: A transaction.
        namespace: Whose.
        standing: How they are, by the catalog.
    """
    changed = [source for source, one in standing.items() if one.state == "changed"]
    live: set[str] = set()
    for page in batched(sorted({chunk_id for chunk_id, _ in changed})):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        used = select(chunks.c.chunk_id).where(mine, chunks.c.status == "live")
        live.update(connection.scalars(used))
    return frozenset(source for source in changed if source[0] in live)


def ids_of(source: Source, stands: Standing, doubted: Collection[Source]) -> list[str]:
    """Return the ids under which an index may hold a source, the newest first."""
    if source in doubted:
        return [source[0]]
    known = [chunk_id for chunk_id, _, _ in stands.known if chunk_id is not None]
    return known[:_MOST_IDS] if stands.state == "current" else []


def held_in(
    ids: Mapping[Source, Collection[str]], found: Sequence[Document], id_field: str | None
) -> dict[Source, Document]:
    """Return the sources that are among documents, under one of their ids, with their text.

    Example:
        >>> found = [Document("A refund takes 14 days.", id="refund")]
        >>> same = content_hash(found[0])
        >>> [*held_in({("refund", same): ["refund"], ("refund", "x"): ["refund"]}, found, None)]
        [('refund', '...')]
    """
    # Of two of one id and text the first.
    by_key = {(chunk_key(one, id_field), content_hash(one)): one for one in reversed(found)}
    held = {}
    for source, of in ids.items():
        there = (by_key[key, source[1]] for key in of if (key, source[1]) in by_key)
        if (document := next(there, None)) is not None:
            held[source] = document
    return held


def ask_index(
    resolve: Resolve | None,
    standing: Mapping[Source, Standing],
    doubted: frozenset[Source],
    id_field: str | None,
) -> Said:
    """Ask an index whether it holds sources, as far as it can be asked.

    Where it fails, or has none at all of several, it is held to be away, and says nothing.
    """
    ids = {source: ids_of(source, one, doubted) for source, one in standing.items()}
    ids = {source: of for source, of in ids.items() if of}
    nothing = Said(doubted=doubted)
    if resolve is None or not ids:
        return nothing
    found: list[Document] = []
    try:
        # Vector stores take so many ids at a time.
        for page in in_batches(sorted({one for of in ids.values() for one in of}), _PAGE):
            found += [one for one in resolve(list(page)) or () if isinstance(one, Document)]
    except Exception as error:  # noqa: BLE001  an index that is away has lost nothing
        _once.warn("absent", "`resolve` failed, so no source is held to be gone: %r", error)
        return nothing
    if not found and len(ids) >= _FEW:
        _once.warn("none", "The index has none of %d sources: is it the right one?", len(ids))
        return nothing
    held = held_in(ids, found, id_field)
    return Said(held, frozenset(ids.keys() - held.keys()), doubted)


def judged(
    standing: Mapping[Source, Standing], doubted: Collection[Source], said: Said, now: datetime
) -> dict[Source, Standing]:
    """Return how sources are, by the catalog and by the index.

    Args:
        standing: By the catalog.
        doubted: Those that the index decides about: none where it cannot be asked at all.
        said: By the index.
        now: When it said so.
    """
    told = dict(standing)
    for source, one in standing.items():
        if source in doubted:
            told[source] = _decided(source, one, said, now)
        elif one.state == "current" and source in said.lacks:
            told[source] = Standing("gone")
    return told


def _decided(source: Source, one: Standing, said: Said, now: datetime) -> Standing:
    if source in said.lacks:
        return one
    document = said.held.get(source)
    if document is None:
        # Nobody knows: it waits, as what is demoted does.
        return replace(one, state="hidden")
    return Standing("current", ((source[0], document, now),))
