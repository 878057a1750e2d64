"""Cases as records: a question, what answers it, and the candidates to put in order."""

from dataclasses import dataclass, field
from datetime import datetime

from langchain_core.documents import Document

from langchain_feedback.store.questions import question_key

__all__ = ["CaseChunk", "CaseDraft", "EvalCase", "RightChunk"]


@dataclass(frozen=True)
class RightChunk:
    """A chunk that answers the question, as it was when the case was frozen."""

    chunk_id: str
    cell_id: str
    """See `CellKey`; empty where it is unknown."""
    content_hash: str
    """Empty where it is unknown."""

    @property
    def name(self) -> str:
        """What copies of one text share: its cell, else its id."""
        return self.cell_id or self.chunk_id


@dataclass(frozen=True)
class CaseChunk:
    """A candidate of a case."""

    chunk_id: str
    cell_id: str
    content_hash: str
    text: str = field(repr=False)
    """Empty where it was lost: changed before it was frozen, or forgotten."""
    source: str
    heading: str
    base_rank: int
    """From 0 in the base retriever's order."""

    @property
    def name(self) -> str:
        """See `RightChunk.name`."""
        return self.cell_id or self.chunk_id

    @property
    def document(self) -> Document:
        """The chunk as a ranker reads it."""
        metadata = {"heading": self.heading, "source": self.source}
        return Document(self.text, id=self.chunk_id, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class CaseDraft:
    """A case on its way into the store."""

    question: str
    relevant: tuple[RightChunk, ...]
    """What answers it; some of it may be outside the pool."""
    pool: tuple[CaseChunk, ...] = field(repr=False)
    """What the base retriever found, in its order."""
    origin: str
    """`reviewed`, `sampled` from ordinary traffic, or `imported`."""
    stratum: str
    """`failing`, `ordinary` or one's own."""
    question_id: int | None = None
    item_id: str | None = None
    """The review item whose verdict it is."""
    trace_id: str | None = None

    @property
    def key(self) -> str:
        """See `question_key`."""
        return question_key(self.question)

    @property
    def right(self) -> frozenset[str]:
        """The names of what answers it: see `RightChunk.name`."""
        return frozenset(one.name for one in self.relevant)

    @property
    def source(self) -> str:
        """The document of the first right chunk of the pool; empty where there is none."""
        return next((one.source for one in self.pool if one.name in self.right), "")


@dataclass(frozen=True, kw_only=True)
class EvalCase(CaseDraft):
    """A frozen case."""

    case_id: str
    version: int
    """Of the set that it came in with."""
    frozen_at: datetime
    """UTC."""
    changed: bool = False
    """Whether the text of a right chunk is another one by now: then it is set aside."""
