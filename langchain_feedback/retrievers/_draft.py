"""What two retrievers found, as one list: which chunks are the same, and whose each is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, copy_document, text_key, unique_documents
from langchain_feedback.ranking.interleave import Team, team_draft
from langchain_feedback.retrievers._once import Once
from langchain_feedback.store.records import Origin, TracedChunk
from langchain_feedback.traces import MARKS_KEY, marks_of

__all__ = ["Placed", "drafted", "marked_copy", "recorded", "undrafted"]


@dataclass(frozen=True)
class Placed:
    """One chunk of a list, and what is known of it."""

    document: Document
    """The retriever's own object: to be read, never changed."""
    chunk_id: str
    team: Team | None
    base_rank: int | None
    """From 0: where a base retriever had it, as a `FeedbackRetriever` below says; else in what
    `a` returned. None where neither is known."""
    origin: Origin
    belief: float
    multiplier: float | None
    ranker_rank: int | None

    @classmethod
    def of(
        cls, document: Document, chunk_id: str, rank: int | None, team: Team | None
    ) -> "Placed":
        """Make one of what a retriever returned, which may be a `FeedbackRetriever`."""
        marks = marks_of(document)
        is_marked = "trace_id" in marks or "belief" in marks
        plain: Origin = "widened" if rank is None else "base"
        origin = marks.get("origin") if is_marked else plain
        return cls(
            document=document,
            chunk_id=chunk_id,
            team=team,
            base_rank=_whole(marks.get("base_rank")) if is_marked else rank,
            origin=cast("Origin", origin) if origin in get_args(Origin) else plain,
            belief=_number(marks.get("belief")) or 0.0,
            multiplier=_number(marks.get("multiplier")),
            ranker_rank=_whole(marks.get("ranker_rank")),
        )


def drafted(
    a: Iterable[Document], b: Iterable[Document], *, seed: str, id_field: str | None, once: Once
) -> list[Placed]:
    """Return all that two retrievers found, in the order of their team draft.

    What has one id and text, or one text and source, is one chunk: another index may name it
    otherwise. What has the id of a chunk of `a` and another text gets a key of its own.
    """
    mine = {chunk_key(one, id_field): one for one in unique_documents(a, id_field)}
    theirs = _named_as(mine, unique_documents(b, id_field), id_field, once)
    order = team_draft([*mine], [*theirs], len(mine) + len(theirs), seed=seed)
    ranks = {key: rank for rank, key in enumerate(mine)}
    return [
        Placed.of(
            theirs[one.key] if one.team == "b" or one.key not in mine else mine[one.key],
            one.key,
            ranks.get(one.key),
            one.team,
        )
        for one in order
    ]


def _named_as(
    mine: Mapping[str, Document], found: Iterable[Document], id_field: str | None, once: Once
) -> dict[str, Document]:
    """Return what `b` found, by the keys that `a` has for it."""
    by_text: dict[str, str] = {}
    for key, one in mine.items():
        by_text.setdefault(text_key(one), key)
    theirs: dict[str, Document] = {}
    for one in found:
        key, named = chunk_key(one, id_field), one
        if key not in mine:
            key = by_text.get(text_key(one), key)
        elif mine[key].page_content != one.page_content:
            once.warn(
                "ids",
                "`a` and `b` give the id %r to different texts: they count as different chunks, "
                "and that of `b` goes by a digest of its text.",
                key,
            )
            own = text_key(one)
            key = by_text.get(own, own)
            named = _renamed(one, own, id_field) if key == own else one
        theirs.setdefault(key, named)
    return theirs


def _renamed(one: Document, key: str, id_field: str | None) -> Document:
    """Return a copy with another key, by which the store and all that reads it go, too."""
    metadata = {**one.metadata, id_field: key} if id_field else dict(one.metadata)
    return one.model_copy(update={"id": key, "metadata": metadata})


def undrafted(found: Iterable[Document], *, id_field: str | None) -> list[Placed]:
    """Return what one retriever found, in its own order."""
    return [
        Placed.of(one, chunk_key(one, id_field), rank, None)
        for rank, one in enumerate(unique_documents(found, id_field))
    ]


def marked_copy(one: Placed, trace_id: str) -> Document:
    """Return a copy of a chunk that says where it comes from; others' notes there are kept."""
    copied = copy_document(one.document)
    copied.metadata[MARKS_KEY] = marks_of(copied) | {
        "trace_id": trace_id,
        "chunk_id": one.chunk_id,
        "base_rank": one.base_rank,
        "origin": one.origin,
        "belief": one.belief,
        "multiplier": 1.0 if one.multiplier is None else one.multiplier,
        "team": one.team,
    }
    return copied


def recorded(placed: Sequence[Placed], k: int) -> list[TracedChunk]:
    """Return them as the store keeps them: the first `k` were returned, and have a team."""
    return [
        TracedChunk(
            document=one.document,
            final_rank=rank,
            base_rank=one.base_rank,
            origin=one.origin,
            returned=rank < k,
            belief=one.belief,
            multiplier=one.multiplier,
            ranker_rank=one.ranker_rank,
            team=one.team if rank < k else None,
        )
        for rank, one in enumerate(placed)
    ]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
