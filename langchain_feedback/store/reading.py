"""What queries read: evidence, pins, raw ratings, and votes in a window."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BindParameter, Connection, and_, bindparam, case, func, or_, select

from langchain_feedback.store.evidence import aged
from langchain_feedback.store.questions import known_question
from langchain_feedback.store.records import (
    CellKey,
    EvidenceCell,
    PastQuestion,
    Pin,
    QuestionEvidence,
    VoteRow,
)
from langchain_feedback.store.schema import (
    ANSWER,
    credits_,
    evidence,
    pins,
    questions,
    signals,
    trace_chunks,
    traces,
)

__all__ = [
    "PIN_WEIGHT",
    "Sums",
    "Window",
    "read_evidence",
    "read_ratings",
    "read_votes",
    "read_window",
]

PIN_WEIGHT = 3.0
"""What a pin counts as evidence for a similar question."""

_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_EVIDENCE = select(evidence).where(evidence.c.question_id.in_(_IDS))
_PINS = (
    select(pins)
    .where(pins.c.question_id.in_(_IDS), pins.c.retracted_at.is_(None))
    .order_by(pins.c.created_at, pins.c.pin_id)
)
_TEXTS = select(questions.c.question_id, questions.c.text).where(questions.c.question_id.in_(_IDS))

Floats = NDArray[np.float64]
Sums = tuple[Floats, Floats]
Window = tuple[Floats, Floats, Floats]


def read_evidence(
    connection: Connection,
    namespace: str,
    question: str,
    similar: Sequence[tuple[int, float]],
    *,
    now: datetime,
    half_life: float | None,
) -> QuestionEvidence:
    """Read what is known for a question: the identical one first, then similar ones.

    Args:
        connection: An open transaction.
        namespace: Whose feedback.
        question: Its text.
        similar: Ids and cosines of similar questions, nearest first.
        now: When; older votes count less.
        half_life: In days; None: votes do not age.
    """
    same = known_question(connection, namespace, question)
    cosines = ({} if same is None else {same: 1.0}) | {
        question_id: cosine for question_id, cosine in similar if question_id != same
    }
    if not cosines:
        return QuestionEvidence()
    ids = {"ids": list(cosines)}
    rows = connection.execute(_EVIDENCE, ids).all()
    pinned = connection.execute(_PINS, ids).all()
    sums: dict[int, dict[CellKey, tuple[float, float]]] = {key: {} for key in cosines}
    for row, kept in zip(rows, aged([row.as_of for row in rows], now, half_life), strict=True):
        counted = row.positive * kept, row.negative * kept
        sums[row.question_id][row.chunk_id, row.content_hash] = counted
    for pin in pinned:
        cells = sums[pin.question_id]
        positive, negative = cells.get((pin.chunk_id, pin.content_hash), (0.0, 0.0))
        cells[pin.chunk_id, pin.content_hash] = positive + PIN_WEIGHT, negative
    texts = _texts(connection, [key for key in cosines if sums[key]])
    return QuestionEvidence(
        questions=tuple(
            PastQuestion(key, texts[key], cosine, key == same, *outcome)
            for key, cosine in cosines.items()
            if key in texts
            for outcome in [sums[key].get((ANSWER, ""), (0.0, 0.0))]
        ),
        cells=tuple(
            EvidenceCell(key, *cell, *counted)
            for key, cells in sums.items()
            for cell, counted in cells.items()
            if cell[0] != ANSWER
        ),
        pins=tuple(
            Pin(pin.pin_id, pin.chunk_id, pin.content_hash)
            for pin in pinned
            if pin.question_id == same
        ),
    )


def read_ratings(
    connection: Connection, namespace: str, cells: Sequence[CellKey], question: str | None
) -> Sums:
    """Return the sum and the number of the raw ratings of each cell's chunk.

    A rating of an answer counts for every chunk that the answer was written from. Thumbs
    count as 5 and 1. Nothing decays, and one person may count many times.

    Args:
        connection: An open transaction.
        namespace: Whose feedback.
        cells: The chunks.
        question: Whose ratings; None: those of every question.
    """
    score = case(
        (signals.c.signal == "thumbs_up", 5),
        (signals.c.signal.in_(("thumbs_down", "wrong_source")), 1),
        else_=signals.c.rating,
    )
    newest = func.row_number().over(
        partition_by=(
            signals.c.trace_id,
            func.coalesce(signals.c.actor, traces.c.actor, ""),
            signals.c.family,
            signals.c.target,
        ),
        order_by=signals.c.seq.desc(),
    )
    votes = (
        select(signals, score.label("score"), newest.label("age"))
        .join(traces, traces.c.trace_id == signals.c.trace_id)
        .where(signals.c.namespace == namespace, signals.c.attached, signals.c.state.is_(None))
        .where(signals.c.family == "judgement")
    )
    last = select(trace_chunks.c.trace_id, func.max(trace_chunks.c.attempt).label("attempt"))
    if question is not None:
        question_id = known_question(connection, namespace, question)
        asked = select(traces.c.trace_id).where(traces.c.question_id == question_id)
        votes = votes.where(traces.c.question_id == question_id)
        last = last.where(trace_chunks.c.trace_id.in_(asked))
    vote = votes.subquery()
    prompt = last.where(trace_chunks.c.in_prompt).group_by(trace_chunks.c.trace_id).subquery()
    of_answer = and_(
        vote.c.target == ANSWER,
        trace_chunks.c.in_prompt,
        trace_chunks.c.attempt == prompt.c.attempt,
    )
    # Distinct: a chunk that two searches of one trace found was still rated once.
    rated = (
        select(trace_chunks.c.cell_id, trace_chunks.c.content_hash, vote.c.seq, vote.c.score)
        .join(vote, vote.c.trace_id == trace_chunks.c.trace_id)
        .join(prompt, prompt.c.trace_id == trace_chunks.c.trace_id)
        .where(vote.c.age == 1, vote.c.retracted_at.is_(None), vote.c.score.is_not(None))
        .where(or_(of_answer, vote.c.target == trace_chunks.c.chunk_id))
        .where(trace_chunks.c.cell_id.in_([cell[0] for cell in cells]))
        .distinct()
        .subquery()
    )
    added_up = select(
        rated.c.cell_id,
        rated.c.content_hash,
        func.sum(rated.c.score).label("total"),
        func.count().label("number"),
    ).group_by(rated.c.cell_id, rated.c.content_hash)
    found = {(row.cell_id, row.content_hash): row for row in connection.execute(added_up)}
    return _column(cells, found, "total"), _column(cells, found, "number")


def read_window(
    connection: Connection, namespace: str, cells: Sequence[CellKey], since: datetime
) -> Window:
    """Return weights for and against each cell's chunk, and votes, under any question."""
    good = case((credits_.c.polarity == 1, credits_.c.weight), else_=0.0)
    bad = case((credits_.c.polarity == -1, credits_.c.weight), else_=0.0)
    mine = select(questions.c.question_id).where(questions.c.namespace == namespace)
    counted = (
        select(
            credits_.c.chunk_id,
            credits_.c.content_hash,
            func.sum(good).label("positive"),
            func.sum(bad).label("negative"),
            func.count().label("votes"),
        )
        .where(credits_.c.chunk_id.in_([cell[0] for cell in cells]))
        .where(credits_.c.voted_at >= since, credits_.c.polarity != 0)
        .where(credits_.c.question_id.in_(mine))
        .group_by(credits_.c.chunk_id, credits_.c.content_hash)
    )
    found = {(row.chunk_id, row.content_hash): row for row in connection.execute(counted)}
    return (
        _column(cells, found, "positive"),
        _column(cells, found, "negative"),
        _column(cells, found, "votes"),
    )


def read_votes(
    connection: Connection,
    namespace: str,
    question_ids: Sequence[int],
    cells: Sequence[CellKey],
) -> list[VoteRow]:
    """Return each vote and pin that counts for some chunks under some questions."""
    wanted, ids = set(cells), [cell[0] for cell in cells]
    columns = [credits_.c[name] for name in ("question_id", "chunk_id", "content_hash")]
    columns += [signals.c.signal, signals.c.rating, credits_.c.polarity, credits_.c.weight]
    voted = (
        select(*columns, credits_.c.actor, signals.c.received_at)
        .join(signals, signals.c.seq == credits_.c.seq)
        .where(credits_.c.question_id.in_(question_ids), credits_.c.chunk_id.in_(ids))
        .where(signals.c.namespace == namespace)
        .order_by(credits_.c.seq)
    )
    pinned = select(pins).where(
        pins.c.namespace == namespace,
        pins.c.question_id.in_(question_ids),
        pins.c.chunk_id.in_(ids),
        pins.c.retracted_at.is_(None),
    )
    rows = [VoteRow(**row) for row in connection.execute(voted).mappings()]
    for pin in connection.execute(pinned):
        cell = pin.question_id, pin.chunk_id, pin.content_hash
        rows.append(VoteRow(*cell, "pin", None, 1, PIN_WEIGHT, pin.actor or "", pin.created_at))
    return [row for row in rows if (row.chunk_id, row.content_hash) in wanted]


def _texts(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    rows = connection.execute(_TEXTS, {"ids": list(ids)})
    return {row.question_id: row.text for row in rows}


def _column(cells: Sequence[CellKey], found: Mapping[CellKey, Any], name: str) -> Floats:
    values = [float(getattr(found[cell], name)) if cell in found else 0.0 for cell in cells]
    return np.array(values, dtype=np.float64)
