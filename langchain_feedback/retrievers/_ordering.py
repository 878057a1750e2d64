"""The learned ranker of a retriever: which one, and the order that it gives a pool."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from langchain_feedback.ranking.features import PairScorer, Scorer
from langchain_feedback.ranking.linear import Ranker
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._pool import Candidate, as_candidates
from langchain_feedback.store.rankers import RankerRecord, newest_activation, read_ranker
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Chosen", "LoadRanker", "Rankers", "ordered", "ranked_by"]

LoadRanker: TypeAlias = Callable[[RankerRecord], Ranker | None]
"""Makes a ranker of what the store holds of it; None: one of the kinds of this package."""

_POLL_S, _RETRY_S = 30.0, 1.0
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
    """Follows what a store says is active and watched, or keeps to a given ranker.

    Args:
        store: Whose activations count.
        ranker: `active`, a ranker, or None.
        features: Features of one's own that stored rankers were trained with.
        load: Makes a ranker of a record; None, or where it gives None: `load_ranker`.
        once: Hears of those that cannot be loaded.
    """

    def __init__(
        self,
        store: "FeedbackStore",
        ranker: Ranker | Literal["active"] | None,
        features: Mapping[str, Scorer | PairScorer],
        load: LoadRanker | None,
        once: Once,
    ) -> None:
        self.poll_s = _POLL_S
        self._made_of = (store, ranker, features, load)
        self._store, self._features, self._load, self._once = store, features, load, once
        self._follows = ranker == "active"
        self._chosen = Chosen() if self._follows else Chosen(active=ranker)  # type: ignore[arg-type]
        self._looked, self._next_look = False, 0.0
        self._known: dict[str, str | None] = dict.fromkeys(_ROLES)
        """By role: the id that counts, as far as it could be loaded."""

    def is_made_of(self, *parts: object) -> bool:
        """Tell whether it was made of these very objects: a copy of a retriever may differ."""
        return all(one is other for one, other in zip(self._made_of, parts, strict=True))

    def chosen(self, read: Callable[[Callable[[], Any]], Any]) -> Chosen:
        """Return the rankers to go by; asks the store at most every 30 seconds.

        Args:
            read: Reads the store; None where that fails: then the last ones go on.
        """
        now = time.monotonic()
        if not self._follows or (self._looked and now < self._next_look):
            return self._chosen
        # Of several threads one asks again; before the first answer each has to.
        self._next_look = now + self.poll_s
        found = read(lambda: _newest(self._store, self._known))
        if found is None:
            self._next_look = now + min(self.poll_s, _RETRY_S)
            return self._chosen
        for newest, record in found:
            self._follow(newest, record)
        self._looked = True
        return self._chosen

    def _follow(self, newest: "Newest", record: RankerRecord | None) -> None:
        ranker = None if record is None else self._loaded(record)
        if record is not None and ranker is None:
            if newest.action != "rollback":
                return  # the one before goes on, and this one is tried again
            # What somebody took back must not go on; the base's own order is always there.
            newest = newest._replace(ranker_id=None)
        self._known[newest.role] = newest.ranker_id
        if newest.role == "active":
            self._chosen = replace(self._chosen, active=ranker, active_id=newest.ranker_id)
        else:
            self._chosen = replace(self._chosen, shadow=ranker, shadow_id=newest.ranker_id)

    def _loaded(self, record: RankerRecord) -> Ranker | None:
        try:
            record.check()
            ranker = None if self._load is None else self._load(record)
            if ranker is not None:
                return ranker
            # It is needed once a ranker was promoted only.
            from langchain_feedback.ranking.loading import load_ranker  # noqa: PLC0415

            return load_ranker(record.kind, record.artifact, extra_features=self._features)
        except Exception as error:  # noqa: BLE001  whatever a loader raises: the answer goes out
            self._once.warn(
                f"load {record.ranker_id}",
                "The ranker %s cannot be loaded, so it orders nothing: %s",
                record.ranker_id,
                error,
            )
            return None


class Newest(NamedTuple):
    """What counts now."""

    role: str
    ranker_id: str | None
    action: str


def _newest(
    store: "FeedbackStore", known: Mapping[str, str | None]
) -> list[tuple[Newest, RankerRecord | None]]:
    """Return what counts now, of each role where that is another one than is known."""
    found = []
    with reading(store) as connection:
        for role in _ROLES:
            row = newest_activation(connection, store.namespace, role)
            newest = Newest(role, row.ranker_id, row.action) if row else Newest(role, None, "")
            if newest.ranker_id != known[role]:
                record = None
                if newest.ranker_id is not None:
                    record = read_ranker(connection, store.namespace, newest.ranker_id)
                found.append((newest, record))
    return found


def ordered(
    pool: Sequence[Candidate], question: str, chosen: Chosen, once: Once
) -> list[Candidate]:
    """Return the pool in the ranker's order; in its own where there is none, or it fails."""
    shadow = chosen.shadow if chosen.shadow_id != chosen.active_id else None
    watched = _ranks(pool, question, shadow, chosen.shadow_id, once)
    if watched is not None:
        pool = [replace(one, shadow_rank=at) for one, at in zip(pool, watched, strict=True)]
    ranks = _ranks(pool, question, chosen.active, chosen.active_id, once)
    if ranks is None:
        return list(pool)
    moved = [
        replace(one, pool_rank=at, ranker_rank=at) for one, at in zip(pool, ranks, strict=True)
    ]
    return sorted(moved, key=lambda one: one.pool_rank)


def ranked_by(pool: Sequence[Candidate], chosen: Chosen) -> dict[str, str | None]:
    """Return the stored rankers that gave a pool an order, as a trace keeps them."""
    ranked = any(chunk.ranker_rank is not None for chunk in pool)
    watched = any(chunk.shadow_rank is not None for chunk in pool)
    return {
        "ranker_id": chosen.active_id if ranked else None,
        "shadow_id": chosen.shadow_id if watched else None,
    }


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
