"""Pairs of past questions that were asked to judge one chunk: what a kernel is fitted to."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from langchain_feedback.ranking.belief import conviction
from langchain_feedback.store.evidence import aged, batched
from langchain_feedback.store.schema import ANSWER, credits_, evidence, questions

__all__ = ["Pairs", "calibration_pairs", "credited_events", "vectors_of"]

_OF_A_CHUNK = 200
"""The most pairs of one chunk: a popular one must not speak for all."""
_BLOCK = 4_096

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Pairs(NamedTuple):
    """Pairs of questions with votes on one chunk, as `CalibratedKernel.fit` takes them."""

    similarity: Floats
    """(N,) cosines of the questions, in [-1, 1]."""
    first: Floats
    """(N,) what the votes under one question say of the chunk, in [-1, 1], never 0."""
    second: Floats
    """(N,) the same under the other question."""


def vectors_of(connection: Connection, namespace: str, prefix: str) -> str | None:
    """Return the embedder whose vectors most questions with feedback have, among some.

    Args:
        connection: An open transaction.
        namespace: Whose questions.
        prefix: How its name begins, before the length of its vectors.
    """
    number = func.count()
    rows = connection.execute(
        select(questions.c.embedder, number)
        .where(questions.c.namespace == namespace, questions.c.memory_seq.is_not(None))
        .where(questions.c.embedder.is_not(None))
        .group_by(questions.c.embedder)
        .order_by(number.desc(), questions.c.embedder)
    )
    names = [str(row.embedder) for row in rows]
    return next((name for name in names if name.rpartition(":")[0] == prefix), None)


def credited_events(connection: Connection, namespace: str) -> int:
    """Return how many votes in force say something of a chunk."""
    mine = select(questions.c.question_id).where(questions.c.namespace == namespace)
    votes = (
        select(func.count(credits_.c.seq.distinct()))
        .where(credits_.c.question_id.in_(mine))
        .where(credits_.c.chunk_id != ANSWER, credits_.c.polarity != 0)
    )
    return int(connection.execute(votes).scalar() or 0)


def calibration_pairs(
    connection: Connection,
    namespace: str,
    embedder: str,
    half_life: float | None,
    *,
    limit: int,
    seed: int,
) -> Pairs:
    """Draw pairs of questions with votes on one chunk and vectors of one embedder.

    Votes are aged to the newest one of the namespace, so that the pairs depend on nothing
    but the database and the seed.
    """
    random = np.random.default_rng(seed)
    drawn = _Drawn(limit, random)
    for question_ids, convictions in _by_chunk(connection, namespace, embedder, half_life):
        one, other = _some_pairs(len(question_ids), random)
        drawn.add(question_ids[one], question_ids[other], convictions[one], convictions[other])
    ids, says = drawn.rows()
    similarity = _cosines(connection, ids)
    return Pairs(similarity, says[:, 0].copy(), says[:, 1].copy())


def _by_chunk(
    connection: Connection, namespace: str, embedder: str, half_life: float | None
) -> Iterator[tuple[Ints, Floats]]:
    """Yield, for each chunk that several questions judge, their ids and convictions."""
    mine = questions.c.question_id == evidence.c.question_id
    judged = (
        select(evidence)
        .join(questions, mine)
        .where(questions.c.namespace == namespace, questions.c.embedder == embedder)
        .where(evidence.c.chunk_id != ANSWER, evidence.c.positive != evidence.c.negative)
    )
    newest = connection.execute(select(func.max(judged.subquery().c.as_of))).scalar()
    if newest is None:
        return
    order = evidence.c.chunk_id, evidence.c.content_hash, evidence.c.question_id
    rows = connection.execute(judged.order_by(*order).execution_options(yield_per=_BLOCK))
    for _, group in groupby(rows, key=lambda row: (row.chunk_id, row.content_hash)):
        votes: list[Any] = list(group)
        if len(votes) > 1:
            times = [vote.as_of for vote in votes]
            kept = np.array(aged(times, newest, half_life), dtype=np.float64)
            sums = np.array([(vote.positive, vote.negative) for vote in votes])
            ids = np.array([vote.question_id for vote in votes], np.int64)
            yield ids, conviction(*(sums.T * kept))


def _some_pairs(number: int, random: "np.random.Generator") -> tuple[Ints, Ints]:
    """Draw pairs of distinct numbers below `number`: all of them where they are few."""
    pairs = number * (number - 1) // 2
    ranks = list(range(min(pairs, _OF_A_CHUNK)))
    if pairs > _OF_A_CHUNK:
        ranks = sorted(random.choice(pairs, _OF_A_CHUNK, replace=False).tolist())
    # Pair (i, j), i < j, has the rank j (j - 1) / 2 + i.
    high = [(1 + isqrt(1 + 8 * rank)) // 2 for rank in ranks]
    low = [rank - j * (j - 1) // 2 for rank, j in zip(ranks, high, strict=True)]
    return np.array(low, np.int64), np.array(high, np.int64)


class _Drawn:
    """A uniform sample of at most `limit` pairs out of a stream: the ones of the lowest lots."""

    def __init__(self, limit: int, random: "np.random.Generator") -> None:
        self._limit, self._random = limit, random
        self._ids: list[Ints] = []
        self._says: list[Floats] = []
        self._lots: list[Floats] = []
        self._held = 0

    def add(self, one: Ints, other: Ints, first: Floats, second: Floats) -> None:
        self._ids.append(np.stack([one, other], axis=1))
        self._says.append(np.stack([first, second], axis=1))
        self._lots.append(self._random.random(len(one)))
        self._held += len(one)
        if self._held > 2 * self._limit + _BLOCK:
            self._thin_out()

    def rows(self) -> tuple[Ints, Floats]:
        """Return (N, 2) question ids and (N, 2) convictions."""
        if not self._ids:
            return np.zeros((0, 2), np.int64), np.zeros((0, 2))
        self._thin_out()
        return self._ids[0], self._says[0]

    def _thin_out(self) -> None:
        ids, says = np.concatenate(self._ids), np.concatenate(self._says)
        lots = np.concatenate(self._lots)
        kept = np.sort(np.argsort(lots, kind="stable")[: self._limit])
        self._ids, self._says, self._lots = [ids[kept]], [says[kept]], [lots[kept]]
        self._held = len(kept)


def _cosines(connection: Connection, pairs: Ints) -> Floats:
    """Return (N,) cosines of (N, 2) questions."""
    ids = np.unique(pairs)
    if not len(ids):
        return np.zeros(0)
    units = np.stack([row for part in batched(ids.tolist()) for row in _units(connection, part)])
    first, second = np.searchsorted(ids, pairs[:, 0]), np.searchsorted(ids, pairs[:, 1])
    cosines = [
        np.einsum("ij,ij->i", units[first[at : at + _BLOCK]], units[second[at : at + _BLOCK]])
        for at in range(0, len(pairs), _BLOCK)
    ]
    return np.clip(np.concatenate(cosines).astype(np.float64), -1.0, 1.0)


def _units(connection: Connection, ids: Sequence[int]) -> list[NDArray[np.float32]]:
    rows = connection.execute(
        select(questions.c.vector)
        .where(questions.c.question_id.in_(ids))
        .order_by(questions.c.question_id)
    )
    return [np.frombuffer(row.vector, dtype="<f4") for row in rows]
