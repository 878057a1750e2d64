"""The learned ranker of a retriever: which one, and the order that it gives a pool."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from langchain_feedback.ranking.features import PairScorer, Scorer
from langchain_feedback.ranking.linear import Ranker
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._pool import Candidate, as_candidates
from langchain_feedback.store.rankers import RankerRecord, newest_activation, read_ranker
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Chosen", "LoadRanker", "Rankers", "ordered"]

Read = TypeVar("Read")

LoadRanker: TypeAlias = Callable[[RankerRecord], Ranker]
"""Makes a ranker of what the store holds of it."""

_POLL_S = 30.0
_ROLES = ("active", "shadow")


@dataclass(frozen=True)
class Chosen:
    """The rankers of one retrieval; None: the base's own order, nothing is watched."""

    active: Ranker | None = None
    active_id: str | None = None
    """None also for a ranker that is not the store's."""
    shadow: Ranker | None = None
    shadow_id: str | None = None


class Rankers:
    """Follows what the store says is active and watched, or keeps to a given ranker.

    Args:
        ranker: `active`, a ranker, or None.
        features: Features of one's own that stored rankers were trained with.
        load: Makes a ranker of a record; None: `load_ranker`.
        once: Hears of those that cannot be loaded.
    """

    def __init__(
        self,
        ranker: Ranker | Literal["active"] | None,
        features: Mapping[str, Scorer | PairScorer],
        load: LoadRanker | None,
        once: Once,
    ) -> None:
        self.poll_s = _POLL_S
        self._follows = ranker == "active"
        self._chosen = Chosen() if self._follows else Chosen(active=ranker)  # type: ignore[arg-type]
        self._features, self._load, self._once = features, load, once
        self._looked_at: float | None = None
        self._tried: dict[str, str | None] = dict.fromkeys(_ROLES)
        """By role: the id that was loaded last, or failed to load."""

    def chosen(self, store: "FeedbackStore", read: Callable[[Callable[[], Any]], Any]) -> Chosen:
        """Return the rankers to go by; asks the store at most every 30 seconds.

        Args:
            store: Whose activations count.
            read: Reads it; None where that fails: then the last ones go on.
        """
        now = time.monotonic()
        if not self._follows or (
            self._looked_at is not None and now - self._looked_at < self.poll_s
        ):
            return self._chosen
        # Noted first: of several threads one asks, and a store that fails is not asked at once.
        self._looked_at = now
        found = read(lambda: _newest(store, self._tried))
        for role, (ranker_id, record) in (found or {}).items():
            self._follow(role, ranker_id, record)
        return self._chosen

    def _follow(self, role: str, ranker_id: str | None, record: RankerRecord | None) -> None:
        self._tried[role] = ranker_id
        ranker = None if record is None else self._loaded(record)
        if record is not None and ranker is None:
            return  # the one before goes on
        if role == "active":
            self._chosen = replace(self._chosen, active=ranker, active_id=ranker_id)
        else:
            self._chosen = replace(self._chosen, shadow=ranker, shadow_id=ranker_id)

    def _loaded(self, record: RankerRecord) -> Ranker | None:
        try:
            record.check()
            if self._load is not None:
                return self._load(record)
            from langchain_feedback.ranking.loading import load_ranker  # noqa: PLC0415

            return load_ranker(record.kind, record.artifact, extra_features=self._features)
        except Exception as error:  # noqa: BLE001  whatever a loader raises: the old one goes on
            self._once.warn(
                f"load {record.ranker_id}",
                "The ranker %s cannot be loaded, so the one before it goes on: %s",
                record.ranker_id,
                error,
            )
            return None


def _newest(
    store: "FeedbackStore", known: Mapping[str, str | None]
) -> dict[str, tuple[str | None, RankerRecord | None]]:
    """Return what counts now, by role, where that is another one than is known."""
    found: dict[str, tuple[str | None, RankerRecord | None]] = {}
    with reading(store) as connection:
        for role in _ROLES:
            newest = newest_activation(connection, store.namespace, role)
            ranker_id = newest.ranker_id if newest else None
            if ranker_id != known[role]:
                record = ranker_id and read_ranker(connection, store.namespace, ranker_id)
                found[role] = ranker_id, record or None
    return found


def ordered(
    pool: Sequence[Candidate], question: str, chosen: Chosen, once: Once
) -> list[Candidate]:
    """Return the pool in the ranker's order; in its own where there is none, or it fails."""
    watched = _ranks(pool, question, chosen.shadow, chosen.shadow_id, once)
    if watched is not None:
        pool = [replace(one, shadow_rank=at) for one, at in zip(pool, watched, strict=True)]
    ranks = _ranks(pool, question, chosen.active, chosen.active_id, once)
    if ranks is None:
        return list(pool)
    moved = [
        replace(one, pool_rank=at, ranker_rank=at) for one, at in zip(pool, ranks, strict=True)
    ]
    return sorted(moved, key=lambda one: one.pool_rank)


def _ranks(
    pool: Sequence[Candidate],
    question: str,
    ranker: Ranker | None,
    ranker_id: str | None,
    once: Once,
) -> list[int] | None:
    if ranker is None or not pool:
        return None
    try:
        scores = np.asarray(ranker.score(question, as_candidates(pool)), dtype=np.float64)
        if scores.shape != (len(pool),) or not np.isfinite(scores).all():
            msg = f"it gave no finite number for each of {len(pool)} chunks"
            raise ValueError(msg)  # noqa: TRY301  told with the rest
    except Exception as error:  # noqa: BLE001  the answer goes on in the base's order
        name = ranker_id or type(ranker).__name__
        once.warn(
            f"rank {name}", "The ranker %s failed, so its order does not count: %r", name, error
        )
        return None
    ranks = np.empty(len(pool), dtype=np.intp)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(pool))
    return list(map(int, ranks))
