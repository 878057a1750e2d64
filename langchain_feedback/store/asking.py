"""Questions asked, with what was found and what was said: what triage reads."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, select

from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import (
    ANSWER,
    chunks,
    questions,
    signals,
    trace_chunks,
    traces,
)

__all__ = ["Ask", "AskedChunk", "Said", "read_asks"]

_AGAINST = frozenset({"judgement", "reformulation", "correction"})
_FOR = frozenset({"judgement", "copy"})
_ASKED = (
    "trace_id", "question_id", "session_id", "created_at", "answer", "status", "reason",
    "grounded", "model",
)  # fmt: skip
_CHUNK = (
    "chunk_id", "cell_id", "content_hash", "attempt", "base_rank", "final_rank", "returned",
    "in_prompt", "cited", "grade", "origin",
)  # fmt: skip


@dataclass(frozen=True)
class Said:
    """A signal in force: the newest of a person, about one thing, of one family."""

    event_id: str
    signal: str
    family: str
    polarity: int
    weight: float
    target: str
    """A chunk id; empty for the answer."""
    rating: int | None
    value: float | None
    actor: str
    """Who says it: the one named, else who asked, else the session or the trace."""
    reviewer: bool
    comment: str | None
    correction: str | None
    received_at: datetime

    @property
    def is_against(self) -> bool:
        """Whether it says that the answer, or one of its sources, was wrong."""
        said = self.polarity < 0 or self.family == "correction"
        return said and self.family in _AGAINST

    @property
    def is_for(self) -> bool:
        """Whether it says that the answer was good."""
        return self.polarity > 0 and self.family in _FOR and self.target == ANSWER


@dataclass(frozen=True)
class AskedChunk:
    """One candidate of a search; see `TraceChunk`."""

    chunk_id: str
    cell_id: str
    content_hash: str
    attempt: int
    base_rank: int | None
    final_rank: int
    returned: bool
    in_prompt: bool
    cited: bool | None
    grade: str | None
    origin: str
    source: str
    """Its document, as last seen; empty where it names none."""


@dataclass(frozen=True)
class Ask:
    """One question asked once, and all that is known of it."""

    trace_id: str
    question_id: int
    question: str
    asker: str
    """Who asked: the actor, else `session:...`, else `trace:...`."""
    session_id: str | None
    created_at: datetime
    answer: str | None
    status: str | None
    reason: str | None
    grounded: bool | None
    model: str | None
    chunks: tuple[AskedChunk, ...]
    """All attempts, each in final order."""
    said: tuple[Said, ...]
    """In order of arrival."""

    @property
    def last_search(self) -> tuple[AskedChunk, ...]:
        """The candidates of the last attempt, in final order."""
        last = max((chunk.attempt for chunk in self.chunks), default=0)
        return tuple(chunk for chunk in self.chunks if chunk.attempt == last)

    @property
    def prompt(self) -> tuple[AskedChunk, ...]:
        """What the answer could rest on."""
        return tuple(chunk for chunk in self.last_search if chunk.in_prompt)

    @property
    def found_nothing(self) -> bool:
        """Whether nothing was there to answer from: no candidates, or none that fits."""
        if self.reason in ("no_documents", "none_relevant") or not self.chunks:
            return True
        graded = [chunk.grade for chunk in self.last_search if chunk.grade is not None]
        return bool(graded) and all(grade == "no" for grade in graded)

    @property
    def against(self) -> tuple[Said, ...]:
        """The signals that say it was wrong."""
        return tuple(said for said in self.said if said.is_against)

    @property
    def is_failure(self) -> bool:
        """Whether more people say that it was wrong than that it was good."""
        bad = {said.actor for said in self.against}
        good = {said.actor for said in self.said if said.is_for}
        return len(bad) > len(good - bad)


def read_asks(
    connection: Connection,
    namespace: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    trace_ids: Sequence[str] | None = None,
    question_ids: Sequence[int] | None = None,
    sessions: Sequence[str] | None = None,
    with_tests: bool = False,
    only_cited: bool = False,
) -> list[Ask]:
    """Return questions asked, oldest first, with what was found and said.

    Args:
        connection: A transaction.
        namespace: Whose.
        since: Only those asked then or later.
        until: Only those asked before.
        trace_ids: Only these.
        question_ids: Only those of these questions.
        sessions: Only those of these sessions.
        with_tests: Whether traffic of evaluations and playgrounds counts too.
        only_cited: Whether of the chunks those are enough that an answer quotes: most are not,
            and reading them is most of the work.
    """
    wanted = [traces.c.namespace == namespace]
    wanted += [traces.c.created_at >= since] if since is not None else []
    wanted += [traces.c.created_at < until] if until is not None else []
    wanted += [] if with_tests else [traces.c.traffic.is_(None)]
    named = (
        (traces.c.trace_id, trace_ids),
        (traces.c.question_id, question_ids),
        (traces.c.session_id, sessions),
    )
    pages: list[ColumnElement[bool] | None] = [None]
    for column, among in named:
        if among is not None:
            pages = [column.in_(page) for page in batched(list(among))]
            break
    found: list[Row[Any]] = []
    for page in pages:
        statement = (
            select(traces, questions.c.text)
            .join(questions, questions.c.question_id == traces.c.question_id)
            .where(*wanted, *([] if page is None else [page]))
        )
        found += connection.execute(statement)
    found.sort(key=lambda row: (row.created_at, row.trace_id))
    cited = [trace_chunks.c.cited] if only_cited else []
    return [ask for page in batched(found) for ask in _asks(connection, namespace, page, cited)]


def _asks(
    connection: Connection,
    namespace: str,
    page: Sequence[Row[Any]],
    among: Sequence[ColumnElement[bool]],
) -> list[Ask]:
    ids = [row.trace_id for row in page]
    searched = _searched(connection, namespace, ids, among)
    said = _said(connection, namespace, page)
    return [
        Ask(
            question=row.text,
            asker=_asker(row),
            chunks=tuple(searched[row.trace_id]),
            said=tuple(said[row.trace_id]),
            **{name: getattr(row, name) for name in _ASKED},
        )
        for row in page
    ]


def _searched(
    connection: Connection,
    namespace: str,
    trace_ids: Sequence[str],
    among: Sequence[ColumnElement[bool]],
) -> dict[str, list[AskedChunk]]:
    mine = (chunks.c.chunk_id == trace_chunks.c.chunk_id) & (chunks.c.namespace == namespace)
    rows = connection.execute(
        select(
            trace_chunks.c.trace_id,
            chunks.c.source,
            *(trace_chunks.c[name] for name in _CHUNK),
        )
        .select_from(trace_chunks)
        .outerjoin(chunks, mine)
        .where(trace_chunks.c.trace_id.in_(trace_ids), *among)
        .order_by(trace_chunks.c.attempt, trace_chunks.c.final_rank)
    )
    found: dict[str, list[AskedChunk]] = defaultdict(list)
    for trace_id, source, *values in rows:
        fields = dict(zip(_CHUNK, values, strict=True))
        found[trace_id].append(AskedChunk(source=source or "", **fields))
    return found


def _said(
    connection: Connection, namespace: str, page: Sequence[Row[Any]]
) -> dict[str, list[Said]]:
    asked = {row.trace_id: row for row in page}
    rows = connection.execute(
        select(signals)
        .where(signals.c.namespace == namespace, signals.c.trace_id.in_(list(asked)))
        .where(signals.c.attached, signals.c.state.is_(None))
        .order_by(signals.c.seq)
    )
    newest: dict[tuple[str, str, str, str], Said | None] = {}
    for row in rows:
        actor = row.actor or _asker(asked[row.trace_id])
        fields = {name: getattr(row, name) for name in Said.__dataclass_fields__}
        key = (row.trace_id, actor, row.family, row.target)
        one = None if row.retracted_at is not None else Said(**(fields | {"actor": actor}))
        before = newest.pop(key, None)
        newest[key] = _stronger(before, one)
    said: dict[str, list[Said]] = defaultdict(list)
    for (trace_id, *_), one in newest.items():
        if one is not None:
            said[trace_id].append(one)
    return said


def _stronger(before: Said | None, one: Said | None) -> Said | None:
    """Return the newer one; of two ways to reformulate a question, the one that weighs more."""
    if before and one and one.family == "reformulation" and before.weight > one.weight:
        return replace(before, received_at=one.received_at)
    return one


def _asker(trace: Row[Any]) -> str:
    if trace.actor:
        return str(trace.actor)
    return f"session:{trace.session_id}" if trace.session_id else f"trace:{trace.trace_id}"
