"""Where cases come from: what reviewers decided, and what people credited in ordinary traffic."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from sqlalchemy import Connection, select

from langchain_feedback.loop._gating.strata import FAILING, ORDINARY
from langchain_feedback.loop.labels import PoolChunk, ReviewedQuestion
from langchain_feedback.ranking.features import title_of
from langchain_feedback.store.asking import Ask, AskedChunk, Said
from langchain_feedback.store.eval_cases import chunk_rows, still_asked
from langchain_feedback.store.eval_records import CaseChunk, CaseDraft, RightChunk
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.schema import ANSWER

__all__ = ["credited", "reviewed_drafts", "sampled_drafts"]

_CREDITS = frozenset({"click", "copy", "judgement"})
_FEWEST = 2
"""A pool of one chunk has one order only."""

Rows = Mapping[str, Mapping[Any, Any]]


def reviewed_drafts(
    connection: Connection, namespace: str, reviewed: Sequence[ReviewedQuestion]
) -> list[CaseDraft]:
    """Make cases of reviewed questions; those whose right chunk has lost its text make none.

    One that mining drew by chance is ordinary traffic; all others failed. One of which retention
    has removed all traces makes none either: nobody could forget it any more.
    """
    reviewed = still_asked(connection, namespace, reviewed)
    ids = {chunk_id for one in reviewed for chunk_id in (*one.right, *_ids(one.pool))}
    rows = chunk_rows(connection, namespace, ids)
    drawn = _drawn(connection, [one.item_id for one in reviewed])
    drafts = []
    for one in reviewed:
        known = {chunk.chunk_id: chunk for chunk in one.pool}
        draft = CaseDraft(
            question=one.question,
            relevant=tuple(_right(chunk_id, known, rows) for chunk_id in one.right),
            pool=_pool(one.pool, rows),
            origin="reviewed",
            stratum=ORDINARY if one.item_id in drawn else FAILING,
            question_id=one.question_id,
            item_id=one.item_id,
            trace_id=one.trace_id,
        )
        lost = any(known[name].text == "" for name in one.right if name in known)
        drafts += [] if lost or not _is_fit(draft) else [draft]
    return drafts


def sampled_drafts(connection: Connection, namespace: str, asks: Iterable[Ask]) -> list[CaseDraft]:
    """Make a case of each question of which people credited a chunk, and said nothing against.

    Its newest such ask makes it. What people click is what they were shown: such a case knows
    no better chunk far down, and so favors what is active, which is the safe side to err on.
    A chunk that has another text by now is no right one: nobody said so of that text.

    Args:
        connection: A transaction.
        namespace: Whose.
        asks: What was asked, oldest first.
    """
    listed = list(asks)
    bad = {ask.question_id for ask in listed if ask.against}
    newest = {ask.question_id: ask for ask in listed if credited(ask)}
    chosen = [ask for question_id, ask in newest.items() if question_id not in bad]
    ids = {chunk.chunk_id for ask in chosen for chunk in ask.last_search}
    rows = chunk_rows(connection, namespace, ids)
    drafts = [
        CaseDraft(
            question=ask.question,
            relevant=tuple(
                RightChunk(one.chunk_id, one.cell_id, one.content_hash)
                for one in credited(ask)
                if not _is_changed(one, rows)
            ),
            pool=_pool((_as_pool(chunk, rows) for chunk in ask.last_search), rows),
            origin="sampled",
            stratum=ORDINARY,
            question_id=ask.question_id,
            trace_id=ask.trace_id,
        )
        for ask in chosen
    ]
    return [one for one in drafts if _is_fit(one) and one.right & {c.name for c in one.pool}]


def credited(ask: Ask) -> list[AskedChunk]:
    """Return the chunks of an answer that people credited: opened, copied from, or rated good.

    Praise of the whole answer credits the chunks that it provably quotes.
    """
    names = {said.target for said in ask.said if _credits(said)}
    found = [chunk for chunk in ask.last_search if chunk.chunk_id in names]
    if any(said.is_for for said in ask.said):
        found += [chunk for chunk in ask.prompt if chunk.cited]
    return sorted(
        {chunk.chunk_id: chunk for chunk in found}.values(), key=lambda one: one.chunk_id
    )


def _is_changed(chunk: AskedChunk, rows: Rows) -> bool:
    row = rows.get(chunk.chunk_id)
    return row is not None and row["content_hash"] != chunk.content_hash


def _credits(said: Said) -> bool:
    return said.target != ANSWER and said.polarity > 0 and said.family in _CREDITS


def _is_fit(draft: CaseDraft) -> bool:
    return bool(draft.relevant) and len(draft.pool) >= _FEWEST


def _ids(pool: Iterable[PoolChunk]) -> Iterable[str]:
    return (chunk.chunk_id for chunk in pool)


def _right(chunk_id: str, known: Mapping[str, PoolChunk], rows: Rows) -> RightChunk:
    if chunk_id in known:
        chunk = known[chunk_id]
        return RightChunk(chunk_id, chunk.cell_id, chunk.content_hash)
    row = rows.get(chunk_id)  # a reviewer found it by words
    return RightChunk(chunk_id, *((row["cell_id"], row["content_hash"]) if row else ("", "")))


def _pool(pool: Iterable[PoolChunk], rows: Rows) -> tuple[CaseChunk, ...]:
    """Return what the base itself found, in its order; lost texts are left out."""
    ordered = sorted((one for one in pool if one.base_rank is not None), key=_base_rank)
    return tuple(_named(one, rows) for one in ordered if one.text)


def _base_rank(chunk: PoolChunk) -> int:
    return chunk.base_rank or 0


def _named(chunk: PoolChunk, rows: Rows | None = None) -> CaseChunk:
    row = (rows or {}).get(chunk.chunk_id)
    same = row and row["content_hash"] == chunk.content_hash
    heading = title_of(Document("", metadata=json.loads(row["metadata"]))) if same and row else ""
    return CaseChunk(
        chunk.chunk_id, chunk.cell_id, chunk.content_hash, chunk.text, chunk.source,
        heading or chunk.heading, _base_rank(chunk),
    )  # fmt: skip


def _as_pool(chunk: AskedChunk, rows: Rows) -> PoolChunk:
    row = rows.get(chunk.chunk_id)
    same = row and row["content_hash"] == chunk.content_hash
    return PoolChunk(
        chunk_id=chunk.chunk_id,
        cell_id=chunk.cell_id,
        content_hash=chunk.content_hash,
        text=str(row["text"]) if same and row else "",
        source=chunk.source,
        heading="",
        base_rank=chunk.base_rank,
        final_rank=chunk.final_rank,
    )


def _drawn(connection: Connection, item_ids: Sequence[str]) -> set[str]:
    """Return the items that mining drew by chance from ordinary traffic."""
    drawn: set[str] = set()
    marked = review_items.c.snapshot.contains('"sampled": true', autoescape=True)
    for page in batched(item_ids):
        wanted = review_items.c.item_id.in_(page) & marked
        for row in connection.execute(
            select(review_items.c.item_id, review_items.c.snapshot).where(wanted)
        ):
            if json.loads(row.snapshot).get("sampled") is True:  # not a text that says so
                drawn.add(row.item_id)
    return drawn
