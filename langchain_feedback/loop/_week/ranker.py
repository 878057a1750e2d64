"""Which ranker a run is about, and what stands in its way."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select

from langchain_feedback.loop._gating.trying import Loader
from langchain_feedback.loop._week.reports import StepReport
from langchain_feedback.loop.promotion import rolled_back
from langchain_feedback.ranking.estimating import Estimator
from langchain_feedback.ranking.linear import Ranker
from langchain_feedback.ranking.loading import load_ranker
from langchain_feedback.store.eval_cases import newest_version
from langchain_feedback.store.eval_runs import DECIDING_K, EvalRun, read_runs
from langchain_feedback.store.learning_schema import eval_cases
from langchain_feedback.store.rankers import RankerRecord, newest_activation, read_rankers
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["FIGURES", "CandidateRanker", "candidate_of", "facts_of", "loader_of"]


_GROWN = 0.25
"""By how much a set must have grown before a rejected ranker is tried on it again. Each look is
another chance to pass by luck: of rankers that change nothing one in ten passes the first one."""
FIGURES = ("n", "gain", "p", "score", "baseline_score", "worst_case", "worst_drop")
"""What a run keeps of an evaluation."""


@dataclass(frozen=True)
class CandidateRanker:
    """The ranker that may become active."""

    ranker_id: str
    is_active: bool
    is_rolled_back: bool
    look: EvalRun | None
    """Its evaluation against the active one, on the newest set of those; None: there is none."""
    version: int
    """Of the newest set of cases."""
    added: int
    """How many cases came since that evaluation."""
    after: int
    """The number of the newest activation, 0 for none: see `promote`."""

    @property
    def out(self) -> str:
        """Why it is no candidate; empty where it is one."""
        if self.is_active:
            return f"Ranker {self.ranker_id} is active already."
        if self.is_rolled_back:
            return f"Ranker {self.ranker_id} was rolled back, and stays so."
        return ""

    @property
    def waits(self) -> str:
        """Why it is not to be tried now; empty where it is.

        A rejected one must not be tried until it passes by luck. What passed, or is below the
        least number of cases, may be tried on each new set: it gets no second chance by that.
        """
        look = self.look
        if look is None:
            return ""
        if look.version >= self.version:
            return f"Ranker {self.ranker_id} was tried on these cases already: {look.verdict}."
        cases = int(look.report["n"])
        wanted = math.ceil(_GROWN * cases)
        if look.verdict != "reject" or self.added >= wanted:
            return ""
        return (
            f"Ranker {self.ranker_id} was tried on {cases} cases: reject. It is tried again as "
            f"soon as {wanted} new ones are there; there are {self.added}."
        )

    @property
    def lacks(self) -> str:
        """Why it did not earn its promotion; empty where it did."""
        look = self.look
        if look is not None and look.verdict == "promote":
            return "" if look.version >= self.version else "tried on an older set of cases"
        return look.verdict if look else "not evaluated"

    @property
    def facts(self) -> dict[str, Any]:
        """What its evaluation found."""
        look = self.look
        if look is None:
            return {}
        found = {name: look.report.get(name) for name in FIGURES}
        return facts_of(look.ranker_id, look.run_id, look.verdict, found)


def facts_of(
    ranker_id: str | None, run_id: str | None, verdict: str, figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is told of an evaluation."""
    found = {"cases" if name == "n" else name: value for name, value in figures.items()}
    return {"ranker_id": ranker_id, "run_id": run_id, "verdict": verdict} | found


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
        look = _look(connection, store.namespace, trained, active)
        version = newest_version(connection, store.namespace)
        added = _added(connection, store.namespace, look.version) if look else 0
    return CandidateRanker(
        ranker_id=trained,
        is_active=trained == active,
        is_rolled_back=trained in rolled_back(store),
        look=look,
        version=version,
        added=added,
        after=activation.seq if activation else 0,
    )


def _look(
    connection: Connection, namespace: str, ranker_id: str, active: str | None
) -> EvalRun | None:
    """Return the evaluation that counts; what people tried otherwise does not."""
    runs = [
        run
        for run in read_runs(connection, namespace)
        if (run.ranker_id, run.baseline_id, run.report.get("k")) == (ranker_id, active, DECIDING_K)
    ]
    return max(runs, key=lambda run: (run.version, run.at), default=None)


def _added(connection: Connection, namespace: str, version: int) -> int:
    row = eval_cases.c
    newer = (row.namespace == namespace) & (row.version > version) & row.retired_at.is_(None)
    return int(connection.execute(select(func.count()).where(newer)).scalar_one())


def loader_of(estimator: Estimator | None) -> Loader | None:
    """Return what loads an estimator's rankers; None: what loads the package's own.

    An estimator of one's own has `load(artifact)` for that, beside what the protocol asks for.
    """
    own = getattr(estimator, "load", None)
    features = getattr(estimator, "extra_features", None) or {}
    if estimator is None or (own is None and not features):
        return None

    def load(record: RankerRecord) -> Ranker:
        if own is not None and record.kind == estimator.kind:
            ranker: Ranker = own(record.artifact)
            return ranker
        return load_ranker(record.kind, record.artifact, extra_features=features)

    return load
