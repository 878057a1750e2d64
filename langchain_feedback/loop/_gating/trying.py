"""Trying a ranker on cases: which one, in which order it puts a pool, and how that scores."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from sqlalchemy import Connection

from langchain_feedback.errors import RankerError, UnknownRankerError
from langchain_feedback.loop.metrics import scores_of
from langchain_feedback.ranking.linear import Ranker
from langchain_feedback.ranking.loading import load_ranker
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.store.eval_cases import chunk_rows
from langchain_feedback.store.eval_records import CaseChunk, EvalCase
from langchain_feedback.store.rankers import RankerRecord, newest_activation, read_ranker

__all__ = ["Known", "Loader", "Side", "Tried", "known_metadata", "order_of", "side_of", "tried_on"]

Loader: TypeAlias = Callable[[RankerRecord], Ranker]
"""Makes a ranker of its record: for kinds, or features, of one's own."""
Known: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""The metadata of chunks, by id and hash of the text."""


@dataclass(frozen=True)
class Side:
    """One of the two that are compared."""

    ranker: Ranker | None
    """None: the base's own order."""
    ranker_id: str | None
    """None: the base's own order, or a ranker that is not in the store."""
    taught: frozenset[str] = frozenset()
    """The keys of the questions that it learned from."""
    is_stored: bool = True


def side_of(
    connection: Connection,
    namespace: str,
    which: Ranker | RankerRecord | str | None,
    load: Loader | None = None,
) -> Side:
    """Return what is to be tried.

    Args:
        connection: A transaction.
        namespace: Whose.
        which: A ranker, its record, its id, `"active"`, or None for the base's own order.
        load: Makes a ranker of a record; None: `load_ranker`.

    Raises:
        UnknownRankerError: If there is no ranker of that id.
        ArtifactError: If it cannot be loaded.
    """
    if which == "active":
        newest = newest_activation(connection, namespace)
        which = newest.ranker_id if newest else None
    if which is None:
        return Side(None, None)
    if isinstance(which, str):
        record = read_ranker(connection, namespace, which)
        if record is None:
            msg = f"There is no ranker {which!r} in namespace {namespace!r}: see `loop status`."
            raise UnknownRankerError(msg)
        which = record
    if not isinstance(which, RankerRecord):
        return Side(which, None, is_stored=False)
    which.check()
    ranker = load(which) if load else load_ranker(which.kind, which.artifact)
    return Side(ranker, which.ranker_id, frozenset(which.taught))


@dataclass(frozen=True)
class Tried:
    """How a case came out."""

    scores: dict[str, float]
    """By metric."""
    baselines: dict[str, float]


def tried_on(case: EvalCase, side: Side, baseline: Side, k: int, known: Known) -> Tried:
    """Order a case's pool both ways, and score the orders."""
    return Tried(
        scores_of(order_of(case, side.ranker, known), case.right, k),
        scores_of(order_of(case, baseline.ranker, known), case.right, k),
    )


def order_of(case: EvalCase, ranker: Ranker | None, known: Known) -> Sequence[str]:
    """Return the names of a pool's chunks, best first; copies of a text share a name.

    Args:
        case: What is asked.
        ranker: What orders; None: the base.
        known: See `known_metadata`.

    Raises:
        RankerError: If the ranker does not give one finite score for each.
    """
    names = [chunk.name for chunk in case.pool]
    if ranker is None or not names:
        return names
    ranks = np.array([chunk.base_rank for chunk in case.pool])
    pool = Candidates(ranks, [_document(chunk, known) for chunk in case.pool])
    scores = np.asarray(ranker.score(case.question, pool), dtype=np.float64)
    if scores.shape != (len(names),) or not np.isfinite(scores).all():
        msg = (
            f"The ranker must give one finite score for each of {len(names)} chunks, got "
            f"{scores!r} for the case {case.case_id!r}"
        )
        raise RankerError(msg)
    return [names[at] for at in np.argsort(-scores, kind="stable")]


def known_metadata(connection: Connection, namespace: str, cases: Iterable[EvalCase]) -> Known:
    """Return the metadata of the pools' chunks, as last seen with the text of the case.

    Cases hold none: they are taken from where forgetting reaches them, as for training.
    """
    ids = {chunk.chunk_id for case in cases for chunk in case.pool}
    rows = chunk_rows(connection, namespace, ids)
    return {
        (chunk_id, row["content_hash"]): json.loads(row["metadata"])
        for chunk_id, row in rows.items()
    }


def _document(chunk: CaseChunk, known: Known) -> Document:
    """Return a chunk as a retriever gives it, as far as that is known."""
    metadata = known.get((chunk.chunk_id, chunk.content_hash))
    if metadata is None:
        return chunk.document
    return Document(chunk.text, id=chunk.chunk_id, metadata=dict(metadata))
