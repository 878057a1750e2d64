"""Evaluations as they were: what was tried on which cases, and what came of each."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.learning_schema import eval_runs, eval_scores

__all__ = ["EvalRun", "EvalScore", "add_run", "newest_run", "read_runs", "read_scores"]


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
    mine = (eval_runs.c.namespace == namespace) & eval_runs.c.ranker_id.is_not_distinct_from(
        ranker_id
    )
    against = eval_runs.c.baseline_id.is_not_distinct_from(baseline_id)
    newest = (
        select(eval_runs)
        .where(mine, against)
        .order_by(eval_runs.c.at.desc(), eval_runs.c.version.desc())
    )
    row = connection.execute(newest.limit(1)).one_or_none()
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


def _run(row: Row[Any]) -> EvalRun:
    names = set(EvalRun.__dataclass_fields__) - {"report"}
    fields = {name: getattr(row, name) for name in names}
    return EvalRun(report=json.loads(row.report), **fields)
