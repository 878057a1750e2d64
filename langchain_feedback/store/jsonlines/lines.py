r"""Feedback as lines of JSON, in UTF-8: what can be imported, and what an export writes.

**The classic recipe's log** (`feedback_data.json`), one object a line:

    {"query": "How long does a refund take?", "response": "14 days.",
     "relevance": 5, "quality": 4, "comments": "clear"}

`query` is the question and `relevance` the rating, a whole number from 1 to 5 (also `"5"`).
`response` becomes the trace's answer; `quality` and `comments` are kept as the rating's comment.
Each line is another person's, since the log names nobody. Equal lines are told apart by their
number, so that importing the log again, or when it has grown, adds only what is new.

**An export** holds objects with a `type`, each complete in itself:

| type | fields |
| --- | --- |
| `chunk` | `chunk_id`, `document_id`, `cell_id`, `content_hash`, `text`, `metadata`, `dropped`, `source`, `last_seen` |
| `signal` | `event_id`, `trace_id`, `signal`, `rating`, `value` (milliseconds of a dwell), `target` (a chunk id; empty: the answer), `actor`, `reviewer`, `comment`, `correction`, `client_time`, `received_at`, `retracted_at`, `state` (`held` or `dropped` with its burst), `burst_id`, `trace` |
| `pin` | `pin_id`, `question`, `chunk_id` (the cell's), `content_hash`, `actor`, `created_at`, `retracted_at` |

`trace` is null while the trace is awaited, else an object of `question`, `actor`, `session_id`,
`answer`, `status`, `reason`, `grounded`, `model`, `index_version`, `traffic`, `created_at`,
`searches` (text by attempt) and `chunks`: of each candidate `chunk_id`, `cell_id`,
`content_hash`, `attempt`,
`base_rank`, `final_rank`, `base_score`, `belief`, `multiplier`, `final_score`, `origin`,
`returned`, `in_prompt`, `cited`, `grade` (see `records.TraceChunk`). Times are ISO 8601 in UTC; an import
takes any zone and no time without one. What a signal counts follows from its name.

Traces that nobody voted on, vectors, evidence and settings are not exported: evidence
follows from the signals, and `embed_questions` makes the vectors again.
"""  # noqa: E501  a table row is one line

import json
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from langchain_feedback.store.records import Origin
from langchain_feedback.traces import storable

__all__ = ["CandidateLine", "ChunkLine", "Line", "PinLine", "RecipeLine", "SignalLine"]
__all__ += ["TraceLine"]


def _whole(value: object) -> object:
    """Take a whole number that was written as text or with a point; leave the rest to fail."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _only_text(value: object) -> object:
    if not isinstance(value, str):
        msg = "a time is a text in ISO 8601 with a zone"
        raise ValueError(msg)  # noqa: TRY004  pydantic reports this kind only
    return value


def _stored(value: object) -> object:
    return storable(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_stored)]
Name = Annotated[Text, StringConstraints(min_length=1)]
Question = Annotated[Text, StringConstraints(pattern=r"\S")]
Time = Annotated[AwareDatetime, BeforeValidator(_only_text)]
Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Attempt = Annotated[int, Field(ge=1, le=2**31 - 1)]
Score = Annotated[float, Field(allow_inf_nan=False)]
Rating = Annotated[int, Field(strict=True, ge=1, le=5), BeforeValidator(_whole)]


class _Line(BaseModel):
    """What stands in a line; other fields are ignored."""

    model_config = ConfigDict(frozen=True)


class RecipeLine(_Line):
    """A line of the recipe's log."""

    query: Question
    relevance: Rating
    response: Text | None = None
    quality: Any = None
    comments: Any = None

    @property
    def comment(self) -> str | None:
        """What else was said, as text."""
        said = [] if self.quality is None else [f"quality: {_as_text(self.quality)}"]
        said += [_as_text(self.comments)] if self.comments else []
        return storable("\n".join(said)) or None


class ChunkLine(_Line):
    """A chunk as it was last seen."""

    type: Literal["chunk"]
    chunk_id: Name
    document_id: Name | None = None
    cell_id: Name
    content_hash: Name
    text: Text
    metadata: dict[str, Any] = {}
    dropped: dict[str, Any] = {}
    source: Text = ""
    last_seen: Time


class CandidateLine(_Line):
    """A candidate of a trace."""

    chunk_id: Name
    cell_id: Name
    content_hash: Name
    attempt: Attempt = 1
    base_rank: Number | None = None
    final_rank: Number
    base_score: Score | None = None
    belief: Score = 0.0
    multiplier: Score | None = None
    final_score: Score | None = None
    origin: Origin = "base"
    returned: Flag
    in_prompt: Flag
    cited: Flag | None = None
    grade: Literal["yes", "no", "unknown"] | None = None
    ranker_rank: Number | None = None
    shadow_rank: Number | None = None
    team: Text | None = None


class TraceLine(_Line):
    """The trace that a signal is about."""

    question: Question
    actor: Text | None = None
    session_id: Text | None = None
    answer: Text | None = None
    status: Text | None = None
    reason: Text | None = None
    grounded: Flag | None = None
    model: Text | None = None
    index_version: Text | None = None
    traffic: Text | None = None
    ranker_id: Text | None = None
    shadow_id: Text | None = None
    experiment: Text | None = None
    created_at: Time
    searches: dict[Attempt, Text] = {}
    chunks: list[CandidateLine] = []


class SignalLine(_Line):
    """A signal with its trace."""

    type: Literal["signal"]
    event_id: Name
    trace_id: Name
    signal: Text
    rating: Number | None = None
    value: Score | None = None
    target: Text = ""
    actor: Text | None = None
    reviewer: Flag = False
    comment: Text | None = None
    correction: Text | None = None
    client_time: Time | None = None
    received_at: Time
    retracted_at: Time | None = None
    state: Literal["held", "dropped"] | None = None
    burst_id: Name | None = None
    trace: TraceLine | None


class PinLine(_Line):
    """A pin."""

    type: Literal["pin"]
    pin_id: Name
    question: Question
    chunk_id: Name
    content_hash: Name
    actor: Text | None = None
    created_at: Time
    retracted_at: Time | None = None


Line = RecipeLine | ChunkLine | SignalLine | PinLine


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
