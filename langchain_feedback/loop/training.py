"""From verdicts to a ranker: reviewed questions, their whole pools, and what is right there."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from langchain_feedback.errors import NotEnoughFeedbackError, RankerError
from langchain_feedback.loop.labels import PoolChunk, ReviewedQuestion, reviewed_questions
from langchain_feedback.loop.splitting import Splittable, question_sides
from langchain_feedback.ranking.estimating import Estimator, LinearEstimator, TrainedRanker
from langchain_feedback.ranking.features import WordWeights
from langchain_feedback.ranking.linear import TrainingGroup
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.store.eval_cases import question_vectors
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.learning_schema import eval_cases
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.rankers import (
    RankerRecord,
    add_ranker,
    digest_of,
    read_ranker,
    read_rankers,
)
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Taught", "splittable", "train_ranker", "training_groups"]

_MOST_TEXTS = 20_000
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Taught:
    """What a ranker may learn from."""

    groups: tuple[TrainingGroup, ...]
    keys: tuple[str, ...]
    """The key of each group's question: see `question_key`."""
    held_out: int
    """Reviewed questions that are kept for evaluation."""
    outside: int
    """Reviewed questions whose right chunk the base did not find: no ranker can bring it up."""


def train_ranker(
    store: "FeedbackStore", *, estimator: Estimator | None = None, now: datetime | None = None
) -> RankerRecord:
    """Train a ranker on what reviewers decided, and keep it; it orders nothing until promoted.

    Questions that are kept for evaluation, and near-duplicates of them, teach it nothing. The
    same labels make the same ranker: then the one that is there is returned.

    Args:
        store: Where, and whose namespace.
        estimator: What learns; None: `LinearEstimator()`.
        now: When; None: at this moment.

    Raises:
        NotEnoughFeedbackError: If fewer reviewed questions teach something than it needs.
        RankerError: If what the estimator makes cannot order a pool, or cannot be kept.
    """
    estimator = estimator or LinearEstimator()
    taught = training_groups(store)
    if len(taught.groups) < estimator.least:
        msg = (
            f"{estimator.least} reviewed questions with a right chunk in their pool are needed, "
            f"and there are {len(taught.groups)} (beside {taught.held_out} that are kept for "
            f"evaluation). Keep collecting: langchain-feedback loop review"
        )
        raise NotEnoughFeedbackError(msg)
    labels = _labels(taught)
    ranker_id = _ranker_id(store.namespace, estimator, labels)
    with reading(store) as connection:
        known = read_ranker(connection, store.namespace, ranker_id)
        texts = [] if known else _texts(connection, store.namespace)
    if known is not None:
        return known
    artifact = _artifact(estimator.fit(taught.groups, WordWeights.of(texts)), taught.groups)
    with writing(store) as (connection, _):
        at = now or clock(store, connection)
        record = RankerRecord(
            ranker_id, estimator.kind, artifact, digest_of(artifact), labels,
            taught.keys, len(taught.groups), at,
        )  # fmt: skip
        add_ranker(connection, store.namespace, record)
        # Another process may have been faster.
        return read_ranker(connection, store.namespace, ranker_id) or record


def _artifact(ranker: TrainedRanker, groups: Sequence[TrainingGroup]) -> str:
    """Return what is kept of a ranker that orders a pool as one must."""
    name = type(ranker).__name__
    try:
        for group in groups[:1]:
            pool = Candidates(np.asarray(group.base_rank), group.documents)
            scores = np.asarray(ranker.score(group.question, pool), dtype=np.float64)
            if scores.shape != (len(pool),) or not np.isfinite(scores).all():
                msg = f"{name}.score must give one finite number for each of {len(pool)} chunks"
                raise RankerError(msg)
        artifact = ranker.to_json()
    except (TypeError, AttributeError) as error:
        msg = f"{name} is no ranker: it needs score(question, candidates) and to_json(): {error}"
        raise RankerError(msg) from error
    if not isinstance(artifact, str):
        msg = f"{name}.to_json must return a text, and gave {type(artifact).__name__}"
        raise RankerError(msg)
    return artifact


def training_groups(store: "FeedbackStore") -> Taught:
    """Return the reviewed questions that teach a ranker something, oldest first."""
    decided = sorted(reviewed_questions(store), key=_decided_at)
    newest = {question_key(one.question): one for one in decided}
    reviewed = [one for one in newest.values() if one.right]
    with reading(store) as connection:
        frozen = _frozen(connection, store.namespace)
        keys = [question_key(text) for text in _texts_of(reviewed, frozen)]
        vectors = question_vectors(connection, store.namespace, keys)
        asked, cases = splittable(reviewed, vectors), _cases(frozen, vectors)
        learned = {key for one in read_rankers(connection, store.namespace) for key in one.taught}
        known = _metadata(connection, store.namespace, reviewed)
    held = {case.key for case in cases}
    sides = question_sides([*asked, *cases], held, learned)
    teaching = [one for one in reviewed if sides[question_key(one.question)] == "train"]
    groups = {question_key(one.question): _group(one, known) for one in teaching}
    taught = {key: group for key, group in groups.items() if group.teaches}
    return Taught(
        groups=tuple(taught.values()),
        keys=tuple(taught),
        held_out=len(reviewed) - len(teaching),
        outside=len(groups) - len(taught),
    )


def splittable(
    reviewed: Sequence[ReviewedQuestion], vectors: Mapping[str, NDArray[np.float32]]
) -> list[Splittable]:
    """Return reviewed questions as what is split, with vectors of one model by key."""
    keys = [question_key(one.question) for one in reviewed]
    return [
        Splittable(key, one.question, frozenset(_cells(one)), vectors.get(key))
        for key, one in zip(keys, reviewed, strict=True)
    ]


def _decided_at(one: ReviewedQuestion) -> datetime:
    return one.decided_at or _LONG_AGO


def _cells(one: ReviewedQuestion) -> Iterable[str]:
    cells = {chunk.chunk_id: chunk.cell_id for chunk in one.pool}
    return (cells.get(chunk_id) or chunk_id for chunk_id in one.right)


def _texts_of(reviewed: Iterable[ReviewedQuestion], frozen: Iterable[Row[Any, Any]]) -> list[str]:
    return [*(one.question for one in reviewed), *(row.question for row in frozen)]


def _frozen(connection: Connection, namespace: str) -> Sequence[Row[Any, Any]]:
    there = select(eval_cases.c.question, eval_cases.c.relevant)
    mine = (eval_cases.c.namespace == namespace) & eval_cases.c.retired_at.is_(None)
    return connection.execute(there.where(mine).order_by(eval_cases.c.case_id)).all()


def _cases(
    rows: Iterable[Row[Any, Any]], vectors: Mapping[str, NDArray[np.float32]]
) -> list[Splittable]:
    found = []
    for row in rows:
        key = question_key(row.question)
        named = json.loads(row.relevant)
        right = frozenset(str(one["cell_id"] or one["chunk_id"]) for one in named)
        found.append(Splittable(key, row.question, right, vectors.get(key)))
    return found


def _group(
    one: ReviewedQuestion, known: Mapping[tuple[str, str], dict[str, Any]]
) -> TrainingGroup:
    """Return what the base found, in its order: that is what a ranker orders in use, too.

    What was added to the pool has no place in that order, and a lost text has no words.
    """
    found = [(chunk.base_rank, chunk) for chunk in one.pool if chunk.text]
    pool = sorted(((rank, chunk) for rank, chunk in found if rank is not None), key=_rank)
    documents = [_document(chunk, known) for _, chunk in pool]
    right = frozenset(at for at, (_, chunk) in enumerate(pool) if chunk.chunk_id in one.right)
    return TrainingGroup(one.question, documents, [rank for rank, _ in pool], right)


def _rank(ranked: tuple[int, PoolChunk]) -> int:
    return ranked[0]


def _document(chunk: PoolChunk, known: Mapping[tuple[str, str], dict[str, Any]]) -> Document:
    metadata = known.get((chunk.chunk_id, chunk.content_hash))
    if metadata is None:
        metadata = {"heading": chunk.heading, "source": chunk.source}
    return Document(chunk.text, id=chunk.chunk_id, metadata=metadata)


def _metadata(
    connection: Connection, namespace: str, reviewed: Sequence[ReviewedQuestion]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the metadata of the pools' chunks, as a retriever gives them: titles count."""
    ids = sorted({chunk.chunk_id for one in reviewed for chunk in one.pool})
    columns = (chunks.c.chunk_id, chunks.c.content_hash, chunks.c.metadata)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for page in batched(ids):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        for row in connection.execute(select(*columns).where(mine)):
            found[row.chunk_id, row.content_hash] = json.loads(row.metadata)
    return found


def _texts(connection: Connection, namespace: str) -> list[str]:
    """Return the texts of the chunks seen last: what words are worth is counted there."""
    newest = (
        select(chunks.c.text)
        .where(chunks.c.namespace == namespace)
        .order_by(chunks.c.last_seen.desc(), chunks.c.chunk_id)
        .limit(_MOST_TEXTS)
    )
    return list(connection.execute(newest).scalars())


def _labels(taught: Taught) -> str:
    said = [
        [key, sorted(str(group.documents[at].id) for at in group.right), _pool_digest(group)]
        for key, group in zip(taught.keys, taught.groups, strict=True)
    ]
    return hashlib.sha256(json.dumps(sorted(said)).encode()).hexdigest()


def _pool_digest(group: TrainingGroup) -> str:
    pool = [[document.id, document.page_content] for document in group.documents]
    return hashlib.sha256(json.dumps([pool, list(group.base_rank)]).encode()).hexdigest()


def _ranker_id(namespace: str, estimator: Estimator, labels: str) -> str:
    made = [namespace, estimator.kind, dict(estimator.settings), labels]
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]
