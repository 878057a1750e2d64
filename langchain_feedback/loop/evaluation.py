"""Evaluation: is a ranker better than what orders the pools now, and does it harm anybody?"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_feedback.loop._cases.counting import counted_of
from langchain_feedback.loop._cases.splits import learned_from
from langchain_feedback.loop._gating.gate import CHANCE, LEAST_CASES, Verdict, decide
from langchain_feedback.loop._gating.sign_flip import chance_of
from langchain_feedback.loop._gating.strata import Stratum, shares_of, strata_of, traffic
from langchain_feedback.loop._gating.trying import (
    Loader,
    Side,
    Tried,
    known_metadata,
    side_of,
    tried_on,
)
from langchain_feedback.loop.labels import reviewed_questions
from langchain_feedback.ranking.linear import Ranker
from langchain_feedback.store.eval_cases import case_questions, newest_version, read_cases
from langchain_feedback.store.eval_records import EvalCase
from langchain_feedback.store.eval_runs import (
    DECIDING_K,
    EvalRun,
    EvalScore,
    add_run,
    read_runs,
)
from langchain_feedback.store.rankers import RankerRecord
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["CHANCE", "LEAST_CASES", "EvalReport", "Stratum", "evaluate", "read_reports"]

_COLUMNS = ("run_id", "version", "ranker_id", "baseline_id", "verdict", "at")
"""What a run has in columns of its own."""
_LISTS = ("reasons", "set_aside", "known", "out_of_reach", "surplus")


@dataclass(frozen=True)
class EvalReport:
    """What an evaluation found; all scores are in [0, 1]."""

    run_id: str | None
    """None: the ranker is not in the store, and so the report is not either."""
    ranker_id: str | None
    """None: the base's own order, or a ranker that is not in the store."""
    baseline_id: str | None
    version: int
    """Of the cases."""
    n: int
    """How many cases decided."""
    gain: float
    """The mean difference of nDCG, each kind of question weighed by its share of the traffic."""
    p: float
    """How likely as large a gain is by chance: a one-sided sign-flip test."""
    score: float
    """The weighted mean nDCG of the ranker."""
    baseline_score: float
    verdict: Verdict
    """`promote`; `reject`; or `advice`, where there are too few cases to decide."""
    reasons: tuple[str, ...]
    """Sentences."""
    strata: tuple[Stratum, ...]
    weights: Mapping[str, float]
    """The shares of the traffic when it was evaluated."""
    metrics: Mapping[str, tuple[float, float]]
    """By name: the ranker's weighted mean, and the baseline's."""
    worst_case: str | None
    """The id of the case that loses most; None where none loses."""
    worst_drop: float
    """How much it loses, at least 0."""
    worst_question: str | None = field(repr=False)
    """Its question; None where none loses, or its person was forgotten."""
    set_aside: tuple[str, ...]
    """Ids of the cases whose right chunk has another text by now: review them anew."""
    known: tuple[str, ...]
    """Ids of the cases that one of the two learned from, or from their like."""
    k: int
    at: datetime
    """UTC."""
    out_of_reach: tuple[str, ...] = ()
    """Ids of the cases without a right chunk in their pool: no order brings it up."""
    surplus: tuple[str, ...] = ()
    """Ids of the failing cases beyond half of all: see `counted`."""


def evaluate(
    store: "FeedbackStore",
    ranker: Ranker | RankerRecord | str | None,
    *,
    baseline: Ranker | RankerRecord | str | None = "active",
    version: int | None = None,
    k: int = DECIDING_K,
    load: Loader | None = None,
    now: datetime | None = None,
) -> EvalReport:
    """Try a ranker on the frozen cases, against another one.

    Failing and ordinary questions weigh as much as they are of the traffic of the last 28
    days; where more than half of the cases are failing ones, some of those are set aside. The
    verdict is `promote` if 100 cases or more gain, by a margin that chance gives one time in
    ten at most (see `chance_of`), and no stratum and no document with 30 cases or more loses
    more than chance explains (one time in twenty, whatever the number of documents). The same
    facts evaluated twice are one report in the store.

    Args:
        store: Where, and whose namespace.
        ranker: A ranker, its record, its id, or None for the base's own order.
        baseline: What it is compared with; `"active"`: what orders the pools now.
        version: Of which set of cases; None: the newest, on which alone somebody is promoted.
        k: How far down nDCG and recall look; at another depth nobody is promoted.
        load: Makes a ranker of a record; None: `load_ranker`.
        now: When; None: at this moment.

    Raises:
        EvaluationError: If there are no cases, or all are failing questions: a ranker that
            shuffles the first five would gain on those, and ruin everybody else's.
        UnknownRankerError: If there is no ranker of that id.
        ArtifactError: If a ranker cannot be loaded.
        RankerError: If a ranker does not give one finite score for each chunk.
        ValueError: If k is below 1.
    """
    reviewed = [one for one in reviewed_questions(store) if one.right]
    with reading(store) as connection:
        at = now or clock(store, connection)
        version = newest_version(connection, store.namespace) if version is None else version
        frozen = read_cases(connection, store.namespace, version)
        sides = [side_of(connection, store.namespace, one, load) for one in (ranker, baseline)]
        weights = traffic(connection, store.namespace, at)
        whole = [case for case in frozen if not case.changed]
        taught = sides[0].taught | sides[1].taught
        known = learned_from(connection, store.namespace, whole, reviewed, taught)
        counted = counted_of(frozen, {case.case_id for case in known})
        metadata = known_metadata(connection, store.namespace, counted.cases)
    cases = counted.cases
    tried = [tried_on(case, sides[0], sides[1], k, metadata) for case in cases]
    report = _report(cases, tried, weights, k=k, version=version, at=at, sides=sides)
    report["reasons"] += counted.words
    report |= {name: tuple(ids) for name, ids in counted.left_out.items()}
    if not sides[0].is_stored or not sides[1].is_stored:
        return EvalReport(run_id=None, **report)
    run = _run(store.namespace, report, cases)
    with writing(store, lock="traces") as (connection, _):
        add_run(connection, store.namespace, run, _scores(cases, tried))
    return EvalReport(run_id=run.run_id, **report)


def read_reports(store: "FeedbackStore") -> list[EvalReport]:
    """Return what was found so far, oldest first."""
    with reading(store) as connection:
        runs = read_runs(connection, store.namespace)
        questions = case_questions(connection, store.namespace)
    return [report_of(run, questions) for run in runs]


def report_of(run: EvalRun, questions: Mapping[str, str]) -> EvalReport:
    """Read a report as it was stored; the cases have their questions, as far as they are there."""
    found: dict[str, Any] = dict(run.report)
    found |= {name: tuple(found.get(name) or ()) for name in _LISTS}
    found["strata"] = tuple(Stratum(**one) for one in found["strata"])
    found["metrics"] = {name: (one, two) for name, (one, two) in found["metrics"].items()}
    found |= {name: getattr(run, name) for name in _COLUMNS}
    return EvalReport(worst_question=questions.get(found["worst_case"] or ""), **found)


def _report(
    cases: Sequence[EvalCase],
    tried: Sequence[Tried],
    traffic_shares: Mapping[str, float],
    *,
    k: int,
    version: int,
    at: datetime,
    sides: Sequence[Side],
) -> dict[str, Any]:
    shares = shares_of(cases, traffic_shares)
    names = list(tried[0].scores)
    metrics = {
        name: (
            float(shares @ [one.scores[name] for one in tried]),
            float(shares @ [one.baselines[name] for one in tried]),
        )
        for name in names
    }
    main = f"ndcg@{k}"
    scores = np.array([one.scores[main] for one in tried])
    baselines = np.array([one.baselines[main] for one in tried])
    differences = scores - baselines
    gain, p = float(shares @ differences), chance_of(shares * differences)
    strata = strata_of(cases, shares, scores, baselines)
    verdict, reasons = decide(len(cases), gain, p, strata, metric=f"nDCG@{k}")
    worst = int(differences.argmin())
    loses = bool(differences[worst] < 0)
    return {
        "ranker_id": sides[0].ranker_id,
        "baseline_id": sides[1].ranker_id,
        "version": version,
        "n": len(cases),
        "gain": gain,
        "p": p,
        "score": metrics[main][0],
        "baseline_score": metrics[main][1],
        "verdict": verdict,
        "reasons": reasons,
        "strata": strata,
        "weights": dict(traffic_shares),
        "metrics": metrics,
        "worst_case": cases[worst].case_id if loses else None,
        "worst_drop": float(-differences[worst]) if loses else 0.0,
        "worst_question": cases[worst].question if loses else None,
        "k": k,
        "at": at,
    }


def _run(namespace: str, report: Mapping[str, Any], cases: Sequence[EvalCase]) -> EvalRun:
    left_out = {*_COLUMNS, "worst_question"}  # forgetting reaches the cases' texts, not these
    kept = {name: value for name, value in report.items() if name not in left_out}
    kept["strata"] = [asdict(one) for one in report["strata"]]
    columns = {name: report[name] for name in _COLUMNS if name != "run_id"}
    told = [namespace, *(columns[name] for name in columns if name != "at"), kept]
    told.append(sorted(case.case_id for case in cases))
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return EvalRun(run_id=digest[:32], report=kept, **columns)


def _scores(cases: Sequence[EvalCase], tried: Sequence[Tried]) -> list[EvalScore]:
    return [
        EvalScore(case.case_id, name, one.scores[name], one.baselines[name])
        for case, one in zip(cases, tried, strict=True)
        for name in one.scores
    ]
