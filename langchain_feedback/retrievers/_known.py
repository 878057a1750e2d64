"""What the store knows of a question's candidates: whose evidence is theirs, and what it says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from langchain_feedback.ranking.policies import RankingPolicy
from langchain_feedback.ranking.views import RatingsView, View, VotesView
from langchain_feedback.retrievers._pool import Candidate, evidence_view
from langchain_feedback.retrievers._reach import Wanted, wanted_of
from langchain_feedback.store.records import CellKey, QuestionEvidence

if TYPE_CHECKING:
    from langchain_feedback.retrievers.feedback import FeedbackRetriever
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Known"]

_WINDOW_DAYS = 30


class Known(NamedTuple):
    """Where to look for it."""

    store: "FeedbackStore"
    read: Callable[[Callable[[], Any]], Any]
    """Calls a function that reads the store; None where that fails."""
    evidence: QuestionEvidence
    """What was read before the base was asked."""
    question: str

    def view(self, policy: RankingPolicy, cells: Sequence[CellKey]) -> View:
        """Return what a policy reads, for these chunks; nothing where the store failed."""
        nothing = np.zeros(len(cells))
        if policy.needs == "ratings":
            question = None if getattr(policy, "scope", "") == "all" else self.question
            ratings = self.read(lambda: self.store.ratings_for(cells, question=question))
            return RatingsView(*(ratings or (nothing, nothing)))
        if policy.needs == "votes":
            days = timedelta(days=getattr(policy, "window_days", _WINDOW_DAYS))
            since = datetime.now(UTC) - days
            votes = self.read(lambda: self.store.votes_for(cells, since=since))
            return VotesView(*(votes or (nothing, nothing, nothing)))
        return evidence_view(self.evidence, cells)

    def credited(
        self,
        pool: list[Candidate],
        settings: "FeedbackRetriever",
        *,
        k: int,
        may_add: bool,
        seen_since: datetime | None,
    ) -> tuple[list[Candidate], Wanted]:
        """Find out whose evidence each chunk has, and what the pool lacks.

        Args:
            pool: The candidates.
            settings: The retriever.
            k: How many chunks are returned.
            may_add: Whether chunks may be shown that the base did not return.
            seen_since: Chunks that no retrieval saw since are not added; None: any is.
        """
        evidence, policy = self.evidence, settings.policy
        if not (evidence.cells or evidence.pins or policy.needs != "evidence"):
            return pool, Wanted()
        documents = [chunk.document for chunk in pool]

        def read() -> tuple[list[CellKey], Wanted]:
            cells = self.store.cells_of(documents, id_field=settings.id_field)
            if not may_add:
                return cells, Wanted()
            origins = wanted_of(evidence, policy, set(cells), k=k, inject=settings.inject)
            seen = self.store.snapshots(origins, seen_since=seen_since) if origins else {}
            return cells, Wanted(origins, seen)

        known: tuple[list[CellKey], Wanted] | None = self.read(read)
        if known is None:
            return pool, Wanted()
        return _of_cells(pool, *known, pinned={pin.key for pin in evidence.pins})


def _of_cells(
    pool: Sequence[Candidate], cells: Sequence[CellKey], wanted: Wanted, pinned: set[CellKey]
) -> tuple[list[Candidate], Wanted]:
    found = []
    for chunk, cell in zip(pool, cells, strict=True):
        # Of several copies of a pinned text the first one is enough.
        origin = "pinned" if cell in pinned else chunk.origin
        pinned.discard(cell)
        found.append(replace(chunk, cell=cell, origin=origin))
    return found, wanted
