"""What the store knows of a question's candidates, as the policies read it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from langchain_feedback.ranking.policies import RankingPolicy
from langchain_feedback.ranking.views import RatingsView, View, VotesView
from langchain_feedback.retrievers._pool import evidence_view
from langchain_feedback.store.records import CellKey, QuestionEvidence

if TYPE_CHECKING:
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
