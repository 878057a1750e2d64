"""What goes into the store and comes out of it, as plain frozen records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from langchain_core.documents import Document

__all__ = [
    "CellKey",
    "EvidenceCell",
    "Origin",
    "PastQuestion",
    "Pin",
    "QuestionEvidence",
    "SignalRecord",
    "Snapshot",
    "TraceChunk",
    "TraceRecord",
    "TracedChunk",
    "VoteRow",
]

CellKey = tuple[str, str]
"""The chunk of an evidence cell: an id of its text and source, and the hash of its text. The
id is not that of the chunk in an index, which may be another one tomorrow."""

Origin = Literal["base", "injected", "widened", "pinned", "foldback"]
"""Why a chunk is among the candidates."""


@dataclass(frozen=True)
class TracedChunk:
    """One candidate of a retrieval, on its way into the store."""

    document: Document
    final_rank: int
    """From 0, over all candidates."""
    base_rank: int | None = None
    """From 0; None where the base retriever did not return it."""
    origin: Origin = "base"
    returned: bool = True
    """Whether the caller got it; the others were only considered."""
    base_score: float | None = None
    belief: float = 0.0
    multiplier: float | None = None
    final_score: float | None = None
    ranker_rank: int | None = None
    """From 0 in the pool as a learned ranker ordered it."""
    shadow_rank: int | None = None
    """As the one that is only watched would have."""
    team: str | None = None
    """Which retriever of an experiment it came from: `a`, `b` or `both`."""


@dataclass(frozen=True)
class TraceChunk:
    """One candidate of a retrieval, as the store holds it."""

    chunk_id: str
    content_hash: str
    cell_id: str
    """The id of its evidence: see `CellKey`."""
    attempt: int
    final_rank: int
    base_rank: int | None
    origin: str
    returned: bool
    in_prompt: bool
    """Whether the answer could rest on it; the returned chunks until `update_trace` says more."""
    cited: bool | None
    """Whether a proved quote of the answer stands in it; None while no citations are known."""
    grade: str | None
    """`yes`, `no` or `unknown`; None where nobody graded it."""
    base_score: float | None
    belief: float
    multiplier: float | None
    final_score: float | None
    ranker_rank: int | None
    """From 0 in the pool as a learned ranker ordered it; None where there was none."""
    shadow_rank: int | None
    team: str | None
    """Which retriever of an experiment it came from."""


@dataclass(frozen=True)
class TraceRecord:
    """One question asked, and what became of it."""

    trace_id: str
    question: str
    actor: str | None
    session_id: str | None
    answer: str | None
    status: str | None
    reason: str | None
    """Why it abstained."""
    grounded: bool | None
    model: str | None
    traffic: str | None
    """`eval` or `playground` where nobody in earnest asked."""
    ranker_id: str | None
    """Which learned ranker ordered the pool."""
    shadow_id: str | None
    experiment: str | None
    created_at: datetime
    """UTC."""
    searches: Mapping[int, str]
    """The text that was searched for, by attempt."""
    chunks: tuple[TraceChunk, ...]
    """All attempts, each in final order."""


@dataclass(frozen=True)
class PastQuestion:
    """A question that was asked before and has feedback."""

    question_id: int
    text: str
    similarity: float
    """Cosine to the question at hand; 1 for the identical one."""
    exact: bool
    """Whether it is the identical question, but for case, white space and closing marks."""
    positive: float
    """Good ratings of its answers, decayed to now."""
    negative: float


@dataclass(frozen=True)
class EvidenceCell:
    """What people said about one chunk under one question, decayed to now."""

    question_id: int
    chunk_id: str
    """See `CellKey`."""
    content_hash: str
    positive: float
    """At least 0. A pin counts 3 and does not decay."""
    negative: float

    @property
    def key(self) -> CellKey:
        """The chunk of the cell."""
        return self.chunk_id, self.content_hash


@dataclass(frozen=True)
class Pin:
    """A chunk that a reviewer named as the right one for a question."""

    pin_id: str
    chunk_id: str
    """See `CellKey`."""
    content_hash: str

    @property
    def key(self) -> CellKey:
        """The pinned chunk."""
        return self.chunk_id, self.content_hash


@dataclass(frozen=True)
class QuestionEvidence:
    """All that is known for a question: what queries read."""

    questions: tuple[PastQuestion, ...] = ()
    """The identical question first, then the nearest ones."""
    cells: tuple[EvidenceCell, ...] = ()
    pins: tuple[Pin, ...] = ()
    """Pins of the identical question, oldest first."""
    vector: tuple[float, ...] | None = field(default=None, repr=False)
    """The question's embedding, where the store has embeddings."""


@dataclass(frozen=True)
class Snapshot:
    """A chunk as it was last seen in a retrieval or named by a pin."""

    chunk_id: str
    document: Document
    last_seen: datetime
    dropped: Mapping[str, Any] = field(default_factory=dict)
    """Metadata that JSON could not hold: key and type name."""


@dataclass(frozen=True)
class VoteRow:
    """One vote, or pin, that counts for a chunk under a question."""

    question_id: int
    chunk_id: str
    content_hash: str
    signal: str
    rating: int | None
    polarity: int
    weight: float
    """Its share of the vote's weight, before it ages."""
    actor: str
    received_at: datetime


@dataclass(frozen=True)
class SignalRecord:
    """One signal as the store holds it, for whoever passes it on."""

    seq: int
    """Its number: later signals of a namespace have higher ones."""
    event_id: str
    trace_id: str
    signal: str
    family: str
    target: str
    """A chunk id; empty for the whole answer."""
    rating: int | None
    polarity: int
    actor: str | None
    """As given; None: whoever asked."""
    reviewer: bool
    comment: str | None
    correction: str | None
    attached: bool
    """Whether its trace has arrived."""
    received_at: datetime
    """UTC."""
    retracted_at: datetime | None
    asked_at: datetime | None
    """When the trace began; None while it is awaited."""
    repeats: bool
    """Whether the same person said something of the same kind about it before."""
    superseded: bool
    """Whether he said something newer since."""
