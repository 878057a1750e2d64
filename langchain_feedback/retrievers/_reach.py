"""Chunks that the base retriever did not return: which are wanted, and which may be shown."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, content_hash, copy_document
from langchain_feedback.ranking.policies import RankingPolicy
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.retrievers._gating import Sieve
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._pool import Candidate, evidence_view
from langchain_feedback.store.records import CellKey, Origin, QuestionEvidence, Snapshot

__all__ = ["Allow", "Reach", "Resolve", "Wanted", "wanted_of"]

Resolve = Callable[[list[str]], Sequence[Document]]
"""Returns the documents of some ids as they are now, in any order; missing ones are left out.
The ids are those that documents had when they were retrieved."""

Allow = Callable[[Document, dict[str, Any]], bool]
"""Tells whether a run with these metadata may see a document."""

_LEAST_BELIEF = 0.1
_TRIED_PER_INJECTED = 4
"""Chunks that are looked for in place of each that may be added: some may be gone."""

_FRESH = timedelta(days=30)
"""How old a snapshot may be that is shown without asking the index."""

_MOST_IDS = 8
"""Ids that are tried for one chunk: an index that is rebuilt gives it a new one each time."""


@dataclass(frozen=True)
class Wanted:
    """Chunks that the pool lacks."""

    origins: Mapping[CellKey, Origin] = field(default_factory=dict)
    """Pinned ones, oldest pin first, then liked ones, best first."""
    seen: Mapping[CellKey, Sequence[Snapshot]] = field(default_factory=dict)
    """How they looked, newest first."""


def wanted_of(
    evidence: QuestionEvidence,
    policy: RankingPolicy,
    there: Collection[CellKey],
    *,
    k: int,
    inject: int,
) -> dict[CellKey, Origin]:
    """Return the chunks to look for: pinned ones, and more liked ones than may be added.

    Args:
        evidence: What is known for the question.
        policy: Says how much a chunk is liked.
        there: The chunks of the pool.
        k: The most pinned ones: more could not be returned.
        inject: How many liked ones may be added.
    """
    pinned = [pin.key for pin in evidence.pins if pin.key not in there][:k]
    origins: dict[CellKey, Origin] = dict.fromkeys(pinned, "pinned")
    cells = list(dict.fromkeys(cell.key for cell in evidence.cells))
    cells = [cell for cell in cells if cell not in there and cell not in origins]
    if inject and cells and policy.needs == "evidence":
        outside = Candidates(np.full(len(cells), -1))
        said = np.asarray(policy.score(outside, evidence_view(evidence, cells)).belief)
        best = np.argsort(-said, kind="stable")[: inject * _TRIED_PER_INJECTED]
        liked = [cells[at] for at in best.tolist() if said[at] >= _LEAST_BELIEF]
        origins |= dict.fromkeys(liked, "injected")
    return origins


class Reach:
    """Reads wanted chunks, and leaves out those that are gone, edited or not allowed.

    Args:
        resolve: Says what the index holds; a chunk without an id cannot be asked for.
            Without it a snapshot counts that was seen in the last 30 days.
        allow: Says what a run may see.
        id_field: The metadata field that holds a chunk's id, if any.
        once: Hears of their failures.
        sieve: Hides liked chunks that a gate does not let through; a pin outranks it.
    """

    def __init__(
        self,
        resolve: Resolve | None,
        allow: Allow | None,
        id_field: str | None,
        once: Once,
        sieve: Sieve,
    ) -> None:
        self._resolve, self._allow, self._sieve = resolve, allow, sieve
        self._id_field, self._once = id_field, once

    @property
    def seen_since(self) -> datetime | None:
        """How far back snapshots are of use; None: all of them, since each tells an id."""
        return None if self._resolve else datetime.now(UTC) - _FRESH

    def read(
        self, wanted: Wanted, there: Collection[str], run: Mapping[str, Any], inject: int
    ) -> list[Candidate]:
        """Return the pinned chunks that may be shown, and at most `inject` of the liked ones.

        Args:
            wanted: The chunks to look for.
            there: The ids of the pool. A wanted chunk of such an id was edited since.
            run: The run's metadata.
            inject: How many liked ones may be added.
        """
        found, added = self._passed(wanted) if wanted.origins else {}, 0
        candidates = []
        for cell, origin in wanted.origins.items():
            if cell not in found or (origin == "injected" and added == inject):
                continue
            document = found[cell]
            key = chunk_key(document, self._id_field)
            if key not in there and self.allows(document, run):
                added += origin == "injected"
                candidates.append(Candidate(document, key, None, -1, origin, cell))
        return candidates

    def allows(self, document: Document, run: Mapping[str, Any]) -> bool:
        """Ask whether a run with these metadata may see a document; an error means no."""
        if self._allow is None:
            return True
        try:
            # Copies: a check that changes what it is shown must change nothing else.
            return bool(self._allow(copy_document(document), dict(run)))
        except Exception as error:  # noqa: BLE001  whatever went wrong: it is not allowed
            self._once.warn("allow", "`allow` failed, which counts as a refusal: %r", error)
            return False

    def _passed(self, wanted: Wanted) -> Mapping[CellKey, Document]:
        found = self._found(wanted)
        liked = [cell for cell in found if wanted.origins[cell] == "injected"]
        hidden = self._sieve.hidden([found[cell] for cell in liked])
        dropped = {liked[at] for at in hidden}
        return {cell: document for cell, document in found.items() if cell not in dropped}

    def _found(self, wanted: Wanted) -> Mapping[CellKey, Document]:
        if self._resolve is None:
            newest = {cell: seen[0].document for cell, seen in wanted.seen.items() if seen}
            return {cell: one for cell, one in newest.items() if content_hash(one) == cell[1]}
        ids = {cell: _ids(cell, wanted.seen.get(cell, ())) for cell in wanted.origins}
        asked = list(dict.fromkeys(one for of_cell in ids.values() for one in of_cell))
        found = self._resolved(self._resolve, asked) if asked else []
        by_id = {chunk_key(document, self._id_field): document for document in reversed(found)}
        matched = {}
        for cell, of_cell in ids.items():
            there = (by_id[one] for one in of_cell if one in by_id)
            if same := next((one for one in there if content_hash(one) == cell[1]), None):
                matched[cell] = same
        return matched

    def _resolved(self, resolve: Resolve, ids: list[str]) -> list[Document]:
        try:
            found = resolve(ids) or ()
            return [document for document in found if isinstance(document, Document)]
        except Exception as error:  # noqa: BLE001  the base's answer stands without these chunks
            self._once.warn("resolve", "`resolve` failed, so no chunk is added: %r", error)
            return []


def _ids(cell: CellKey, seen: Sequence[Snapshot]) -> list[str]:
    """Return the ids under which an index may hold a chunk, the newest first.

    A chunk without an id of its own goes by the cell's: no index knows that one, and some
    refuse the whole request over it.
    """
    return [one.chunk_id for one in seen if one.chunk_id != cell[0]][:_MOST_IDS]
