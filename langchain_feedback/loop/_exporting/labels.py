"""Reviewed questions with the text of every passage and what is known about it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import select

from langchain_feedback.store.chunks import heading_of
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.loop.labels import ReviewedQuestion
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Labeled", "Passage", "labeled"]


@dataclass(frozen=True)
class Passage:
    """A chunk as the reviewer saw it, or as it is now where he found it with the search box."""

    chunk_id: str
    content_hash: str
    text: str
    source: str
    heading: str
    is_right: bool
    """Whether a reviewer named it, or one with the very same text."""
    is_wrong: bool
    """Whether a reviewer said that it is wrong. Where both are false, nobody knows."""


@dataclass(frozen=True)
class Labeled:
    """A reviewed question with its passages.

    They are the whole pool in the order in which it was ranked, and then the right chunks that
    were not in it.
    """

    of: "ReviewedQuestion"
    passages: tuple[Passage, ...]

    @property
    def right(self) -> tuple[Passage, ...]:
        """What answers it; each text once."""
        return _once(passage for passage in self.passages if passage.is_right)

    @property
    def wrong(self) -> tuple[Passage, ...]:
        """What a reviewer rejected; each text once."""
        return _once(passage for passage in self.passages if passage.is_wrong)

    @property
    def others(self) -> tuple[Passage, ...]:
        """What nobody named; each text once. The right ones would have been named, probably."""
        return _once(one for one in self.passages if not one.is_right and not one.is_wrong)


def labeled(store: "FeedbackStore", reviewed: Sequence["ReviewedQuestion"]) -> list[Labeled]:
    """Return the questions with all that they name; a chunk that is gone is left out."""
    named = {
        chunk_id
        for question in reviewed
        for chunk_id in {*question.right, *question.wrong} - _in_pool(question)
    }
    found = _found(store, sorted(named)) if named else {}
    return [_label(question, found) for question in reviewed]


def _label(question: "ReviewedQuestion", found: dict[str, Passage]) -> Labeled:
    pool = [
        _passage(chunk.chunk_id, chunk.content_hash, chunk.text, chunk.source, chunk.heading)
        for chunk in question.pool
        if chunk.text  # empty where it had changed before anybody looked: nothing to learn from
    ]
    in_pool = _in_pool(question)
    outside = [one for one in (*question.right, *question.wrong) if one not in in_pool]
    pool += [found[chunk_id] for chunk_id in dict.fromkeys(outside) if chunk_id in found]
    right = {one.content_hash for one in pool if one.chunk_id in question.right}
    wrong = {one.content_hash for one in pool if one.chunk_id in question.wrong} - right
    marked = (
        replace(one, is_right=one.content_hash in right, is_wrong=one.content_hash in wrong)
        for one in pool
    )
    return Labeled(question, tuple(marked))


def _found(store: "FeedbackStore", chunk_ids: Sequence[str]) -> dict[str, Passage]:
    found = {}
    with reading(store) as connection:
        for page in batched(chunk_ids):
            statement = select(chunks).where(chunks.c.namespace == store.namespace)
            for row in connection.execute(statement.where(chunks.c.chunk_id.in_(page))):
                heading = heading_of(json.loads(row.metadata))
                fields = (row.chunk_id, row.content_hash, row.text, row.source, heading)
                found[row.chunk_id] = _passage(*fields)
    return found


def _passage(chunk_id: str, content_hash: str, text: str, source: str, heading: str) -> Passage:
    fields = (chunk_id, content_hash, text, source, heading)
    return Passage(*fields, is_right=False, is_wrong=False)


def _in_pool(question: "ReviewedQuestion") -> set[str]:
    return {chunk.chunk_id for chunk in question.pool}


def _once(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    first: dict[str, Passage] = {}
    for passage in passages:
        first.setdefault(passage.content_hash, passage)
    return tuple(first.values())
