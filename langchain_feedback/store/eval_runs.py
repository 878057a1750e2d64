"""Evaluations as they were: what was tried on which cases, and what came of each."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.eval_cases import newest_version
from langchain_feedback.store.learning_schema import eval_runs, eval_scores

__all__ = [
    "DECIDING_K",
    "EvalRun",
    "EvalScore",
    "add_run",
    "deciding_run",
    "newest_run",
    "read_run",
    "read_runs",
    "read_scores",
]

DECIDING_K = 10
"""How far down an evaluation must have looked to decide; at another depth it is a look only."""


@dataclass(frozen=True)
class EvalRun:
    """An evaluation as the store holds it."""

    run_id: str
    """A digest of what was found: the same again is the same run."""
    version: int
    """Of the cases."""
    ranker_id: str | None
    """None: the base's own order."""
    baseline_id: str | None
    verdict: str
    """`promote`, `reject` or `advice`."""
    report: Mapping[str, Any]
    """As JSON holds it; cases are named by their ids, so that forgetting reaches their texts."""
    at: datetime
    """UTC."""

    @property
    def k(self) -> int:
        """How far down it looked."""
        return int(self.report["k"])


@dataclass(frozen=True)
class EvalScore:
    """How a case fared."""

    case_id: str
    metric: str
    value: float
    baseline: float


def add_run(
    connection: Connection, namespace: str, run: EvalRun, scores: Iterable[EvalScore]
) -> bool:
    """Keep an evaluation; return whether it is new.

    The same again is not kept twice. Where another one of the two rankers came in between, it
    is the newest again.
    """
    fields = ("run_id", "version", "ranker_id", "baseline_id", "verdict", "at")
    row = {name: getattr(run, name) for name in fields}
    row |= {"namespace": namespace, "report": json.dumps(dict(run.report))}
    if not insert_or_ignore(connection, eval_runs, [row]):
        newest = newest_run(connection, namespace, run.ranker_id, run.baseline_id)
        if newest is not None and newest.run_id != run.run_id:
            this = eval_runs.c.run_id == run.run_id
            connection.execute(update(eval_runs).where(this).values(at=run.at))
        return False
    rows = [{"run_id": run.run_id} | dict(vars(score)) for score in scores]
    if rows:
        connection.execute(insert(eval_scores), rows)
    return True


def read_runs(connection: Connection, namespace: str) -> list[EvalRun]:
    """Return all evaluations, oldest first."""
    mine = eval_runs.c.namespace == namespace
    rows = select(eval_runs).where(mine).order_by(eval_runs.c.at, eval_runs.c.run_id)
    return [_run(row) for row in connection.execute(rows)]


def newest_run(
    connection: Connection, namespace: str, ranker_id: str | None, baseline_id: str | None
) -> EvalRun | None:
    """Return the newest evaluation of a ranker against another one, or None."""
    return next(_between(connection, namespace, ranker_id, baseline_id), None)


def deciding_run(
    connection: Connection, namespace: str, ranker_id: str | None, baseline_id: str | None
) -> EvalRun | None:
    """Return the evaluation of a ranker against another one that says whether it may be promoted.

    It is the newest one on the newest set of cases, at the depth that decides. Whoever tries
    an older set, or another depth, looks at something else, and decides nothing by it.
    """
    version = newest_version(connection, namespace)
    runs = _between(connection, namespace, ranker_id, baseline_id)
    return next((run for run in runs if run.version == version and run.k == DECIDING_K), None)


def read_run(connection: Connection, namespace: str, run_id: str) -> EvalRun | None:
    """Return an evaluation as the store holds it; None: it holds none of that id."""
    this = (eval_runs.c.namespace == namespace) & (eval_runs.c.run_id == run_id)
    row = connection.execute(select(eval_runs).where(this)).one_or_none()
    return None if row is None else _run(row)


def read_scores(connection: Connection, run_id: str) -> list[EvalScore]:
    """Return how each case of an evaluation fared."""
    rows = select(eval_scores).where(eval_scores.c.run_id == run_id)
    ordered = rows.order_by(eval_scores.c.case_id, eval_scores.c.metric)
    names = EvalScore.__dataclass_fields__
    return [
        EvalScore(**{name: getattr(row, name) for name in names})
        for row in connection.execute(ordered)
    ]


def _between(
    connection: Connection, namespace: str, ranker_id: str | None, baseline_id: str | None
) -> Iterator[EvalRun]:
    """Yield the evaluations of a ranker against another one, newest first."""
    mine = eval_runs.c.namespace == namespace
    of = eval_runs.c.ranker_id.is_not_distinct_from(ranker_id)
    against = eval_runs.c.baseline_id.is_not_distinct_from(baseline_id)
    newest = (eval_runs.c.at.desc(), eval_runs.c.version.desc())
    rows = connection.execute(select(eval_runs).where(mine, of, against).order_by(*newest))
    yield from map(_run, rows)


def _run(row: Row[Any]) -> EvalRun:
    names = set(EvalRun.__dataclass_fields__) - {"report"}
    fields = {name: getattr(row, name) for name in names}
    return EvalRun(report=json.loads(row.report), **fields)
