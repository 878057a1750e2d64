"""Which ranker a run is about, and what stands in its way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_feedback.loop._job_report import StepReport
from langchain_feedback.loop._trying import Loader
from langchain_feedback.loop.promotion import rolled_back
from langchain_feedback.ranking.estimating import Estimator, LinearEstimator
from langchain_feedback.ranking.linear import Ranker
from langchain_feedback.ranking.loading import load_ranker
from langchain_feedback.store.eval_runs import newest_run
from langchain_feedback.store.rankers import RankerRecord, newest_activation, read_rankers
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["CandidateRanker", "candidate_of", "loader_of"]


@dataclass(frozen=True)
class CandidateRanker:
    """The ranker that may become active."""

    ranker_id: str
    is_active: bool
    is_rolled_back: bool
    verdict: str | None
    """Of its newest evaluation against the active one; None: there is none."""

    @property
    def out(self) -> str:
        """Why it is no candidate; empty where it is one."""
        if self.is_active:
            return f"Ranker {self.ranker_id} is active already."
        if self.is_rolled_back:
            return f"Ranker {self.ranker_id} was rolled back, and stays so."
        return ""


def candidate_of(
    store: "FeedbackStore", before: Mapping[str, StepReport]
) -> CandidateRanker | None:
    """Return the ranker that this run trained, else the newest, and how it stands.

    Raises:
        StoreError: If the database cannot be read.
    """
    trained = before["train"].facts.get("ranker_id") if "train" in before else None
    with reading(store) as connection:
        if trained is None:
            newest = read_rankers(connection, store.namespace)
            if not newest:
                return None
            trained = newest[0].ranker_id
        activation = newest_activation(connection, store.namespace)
        active = activation.ranker_id if activation else None
        run = newest_run(connection, store.namespace, trained, active)
    verdict = run.verdict if run else None
    return CandidateRanker(trained, trained == active, trained in rolled_back(store), verdict)


def loader_of(estimator: Estimator | None) -> Loader | None:
    """Return what loads an estimator's rankers; None: what loads the package's own."""
    if not isinstance(estimator, LinearEstimator) or not estimator.extra_features:
        return None

    def load(record: RankerRecord) -> Ranker:
        features = estimator.extra_features
        return load_ranker(record.kind, record.artifact, extra_features=features)

    return load
