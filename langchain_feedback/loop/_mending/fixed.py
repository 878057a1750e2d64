"""Whether a document was changed or written since it was complained of: from what was seen."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.owner_items import OwnerItem
from langchain_feedback.store.questions import known_question
from langchain_feedback.store.schema import chunks, trace_chunks, traces
from langchain_feedback.words import content_words

__all__ = ["Suspect", "suspects_of", "was_answered", "why_fixed"]

_LIKE = 0.5
"""The share of a text's words that the text in its place has, too."""


class Suspect(NamedTuple):
    """A chunk as it was wrong."""

    chunk_id: str
    content_hash: str
    text: str
    """Empty where nobody kept it."""


def suspects_of(item: OwnerItem) -> list[Suspect]:
    """Return the chunk that is wrong, or, where none is named, those of the source."""
    shown = item.snapshot.get("chunks")
    seen = [one for one in shown if isinstance(one, Mapping)] if isinstance(shown, list) else []
    if item.chunk_id is not None and item.content_hash is not None:
        same = [one for one in seen if one.get("content_hash") == item.content_hash]
        text = next((str(one["text"]) for one in same if one.get("text")), "")
        return [Suspect(item.chunk_id, item.content_hash, text)]
    found = {
        Suspect(str(one["chunk_id"]), str(one["content_hash"]), str(one.get("text") or "")): None
        for one in seen
        if item.source and one.get("source") == item.source and one.get("content_hash")
    }
    return list(found)


def was_answered(ask: Ask) -> bool:
    """Whether it got an answer that nobody found to be without ground."""
    return ask.status == "answered" and ask.grounded is not False and not ask.found_nothing


def why_fixed(connection: Connection, namespace: str, item: OwnerItem) -> str | None:
    """Say why an item seems to be fixed, in one sentence; None: it does not."""
    asks = _asked_for(connection, namespace, item)
    if item.kind == "missing_document":
        return _why_written(item, asks)
    for suspect in suspects_of(item):
        if _has_another_text(connection, namespace, suspect):
            return f"Chunk {suspect.chunk_id} has another text since."
        if _is_no_longer_found(item, suspect, asks):
            return "Its question was searched for again and no longer finds the wrong text."
        if other := _in_its_place(connection, namespace, item, suspect):
            return f"Chunk {other} of the same source came up in place of the wrong text."
    return None


def _asked_for(connection: Connection, namespace: str, item: OwnerItem) -> list[Ask]:
    """Return when its question was asked, by anybody, tests included."""
    question_id = known_question(connection, namespace, item.question)
    if question_id is None:
        return []
    return read_asks(connection, namespace, question_ids=[question_id], with_tests=True)


def _why_written(item: OwnerItem, asks: list[Ask]) -> str | None:
    since = [ask for ask in asks if ask.created_at > item.opened_at]
    if not since or not was_answered(since[-1]):
        return None
    if item.opened_by is not None:
        # A reviewer found an answer wrong that was given: it must rest on something new.
        before = {
            chunk.content_hash
            for ask in asks
            if ask.created_at <= item.opened_at
            for chunk in ask.chunks
        }
        if all(chunk.content_hash in before for chunk in since[-1].prompt):
            return None
    return "Its question was answered since."


def _has_another_text(connection: Connection, namespace: str, suspect: Suspect) -> bool:
    mine = (chunks.c.namespace == namespace) & (chunks.c.chunk_id == suspect.chunk_id)
    seen = connection.execute(select(chunks.c.content_hash).where(mine)).scalar()
    return seen is not None and seen != suspect.content_hash


def _is_no_longer_found(item: OwnerItem, suspect: Suspect, asks: list[Ask]) -> bool:
    def holds(ask: Ask) -> bool:
        return any(chunk.content_hash == suspect.content_hash for chunk in ask.chunks)

    before = [ask for ask in asks if ask.created_at <= item.opened_at]
    since = [ask for ask in asks if ask.created_at > item.opened_at]
    # An empty search says that something is broken, not that something was corrected.
    found = bool(since) and bool(since[-1].chunks)
    return found and any(map(holds, before)) and not holds(since[-1])


def _in_its_place(
    connection: Connection, namespace: str, item: OwnerItem, suspect: Suspect
) -> str | None:
    """Return a new chunk of the source that is much like the wrong one, which came up no more.

    This is how a text changes whose chunks are named by digests of their texts.
    """
    words = set(content_words(suspect.text))
    if not words or not item.source:
        return None
    seen = list(_texts_of(connection, namespace, item.source))
    last = max((one.last for one in seen if one.hash == suspect.content_hash), default=None)
    for one in seen:
        is_new = one.first > item.opened_at and (last is None or last < one.first)
        shared = words & set(content_words(one.text)) if is_new else set()
        if one.hash != suspect.content_hash and len(shared) >= _LIKE * len(words):
            return one.chunk_id
    return None


class _Text(NamedTuple):
    chunk_id: str
    hash: str
    text: str
    first: Any
    last: Any


def _texts_of(connection: Connection, namespace: str, source: str) -> Iterator[_Text]:
    """Yield the texts of a source with when they were first and last retrieved."""
    same = (trace_chunks.c.chunk_id == chunks.c.chunk_id) & (
        trace_chunks.c.content_hash == chunks.c.content_hash
    )
    rows = connection.execute(
        select(
            chunks.c.chunk_id,
            chunks.c.content_hash,
            chunks.c.text,
            func.min(traces.c.created_at),
            func.max(traces.c.created_at),
        )
        .join(trace_chunks, same)
        .join(traces, traces.c.trace_id == trace_chunks.c.trace_id)
        .where(chunks.c.namespace == namespace, traces.c.namespace == namespace)
        .where(chunks.c.source == source)
        .group_by(chunks.c.chunk_id, chunks.c.content_hash, chunks.c.text)
        .order_by(chunks.c.chunk_id)
    )
    yield from (_Text(*row) for row in rows)
