"""What became of each trained ranker: tried, promoted, replaced, rolled back."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, case, func, select

from langchain_feedback.loop._health.records import RankerHealth, RankersHealth, ScorePoint
from langchain_feedback.store.eval_runs import EvalRun, read_runs
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.learning_schema import eval_cases, rankers
from langchain_feedback.store.rankers import (
    Activation,
    before_active,
    newest_activation,
    read_activations,
)
from langchain_feedback.store.schema import traces

__all__ = ["rankers_health"]

_FOLLOWED = timedelta(minutes=1)
"""By then all processes have looked."""

_TRIED = {"promote": "recommended", "reject": "rejected", "advice": "advice"}


def rankers_health(
    connection: Connection, namespace: str, *, since: datetime, now: datetime
) -> RankersHealth:
    """Return all rankers, and what happened to them since then."""
    made = _made(connection, namespace)
    number = {row.ranker_id: at + 1 for at, row in enumerate(made)}
    runs = [_Tried(run) for run in read_runs(connection, namespace) if run.at <= now]
    activations = read_activations(connection, namespace)
    watched = newest_activation(connection, namespace, role="shadow")
    active = activations[-1].ranker_id if activations else None
    shadow = watched.ranker_id if watched else None
    # What is active gains nothing over itself, however often it is tried again.
    tried = [run for run in runs if not run.is_against_itself]
    states = _States(active, shadow, activations, tried)
    newest = {run.ranker_id: run for run in tried}
    earned = _earned(active, activations, runs)
    # Whatever it was compared with since, this is what it was promoted for.
    newest |= {active: earned} if earned else {}
    asked = _questions(connection, namespace, [run.worst_case for run in newest.values()])
    lately = [run for run in tried if run.at >= since]
    asks = _asks_since(connection, namespace, activations[-1], now) if active else (0, 0)
    actions = [one.action for one in activations if one.at >= since]
    return RankersHealth(
        active=active,
        shadow=shadow,
        before=before_active(activations),
        versions=tuple(
            _version(
                row,
                number[row.ranker_id],
                states,
                newest.get(row.ranker_id),
                asked,
                is_earned=earned is not None and row.ranker_id == active,
            )
            for row in reversed(made)
        ),
        scores=tuple(run.point(number) for run in runs if run.score is not None),
        trained=sum(row.trained_at >= since for row in made),
        promoted=actions.count("promote"),
        rejected=len({run.ranker_id for run in lately if run.verdict == "reject"}),
        rolled_back=actions.count("rollback"),
        cases=_cases(connection, namespace),
        asked=asks[0],
        ordered=asks[1],
    )


def _asks_since(
    connection: Connection, namespace: str, active: Activation, now: datetime
) -> tuple[int, int]:
    """Return how many questions people asked since, and how many of them it ordered."""
    mine = (traces.c.namespace == namespace) & traces.c.traffic.is_(None)
    # What is part of an experiment is ordered as that wants.
    mine &= traces.c.experiment.is_(None)
    mine &= (traces.c.created_at >= active.at + _FOLLOWED) & (traces.c.created_at <= now)
    ordered = case((traces.c.ranker_id == active.ranker_id, 1), else_=0)
    counted = select(func.count(), func.coalesce(func.sum(ordered), 0)).where(mine)
    asked, by_it = connection.execute(counted).one()
    return int(asked), int(by_it)


class _Tried:
    """One evaluation, as it was stored; what its report lacks is None."""

    def __init__(self, run: EvalRun) -> None:
        self.run_id, self.report, self.at = run.run_id, run.report, run.at
        self.ranker_id, self.version, self.verdict = run.ranker_id, run.version, run.verdict
        self.is_against_itself = run.ranker_id == run.baseline_id
        self.cases = int(self.figure("n") or 0)
        self.score = self.figure("score")
        self.worst_case = str(self.report.get("worst_case") or "")

    def figure(self, name: str) -> float | None:
        """Return a number of the report."""
        value = self.report.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None  # type: ignore[arg-type]

    def point(self, number: Mapping[str, int]) -> ScorePoint:
        """Return what a plot shows of it."""
        return ScorePoint(
            at=self.at,
            ranker_id=self.ranker_id,
            number=number.get(self.ranker_id or ""),
            version=self.version,
            cases=self.cases,
            score=self.score or 0.0,
            baseline_score=self.figure("baseline_score"),
            verdict=self.verdict,
        )


class _States:
    """Tells what became of a ranker."""

    def __init__(
        self,
        active: str | None,
        shadow: str | None,
        activations: Sequence[Activation],
        runs: Iterable[_Tried],
    ) -> None:
        self._active, self._shadow = active, shadow
        self._promoted = {one.ranker_id for one in activations if one.action == "promote"}
        self._taken_back: set[str | None] = set()
        before: str | None = None
        for one in activations:
            if one.action == "rollback":
                self._taken_back.add(before)
            else:
                self._taken_back.discard(one.ranker_id)
            before = one.ranker_id
        self._tried = {run.ranker_id: _TRIED.get(run.verdict, run.verdict) for run in runs}

    def of(self, ranker_id: str) -> str:
        """Return the state of a ranker: see `RankerHealth.state`."""
        if ranker_id == self._active:
            return "active"
        if ranker_id in self._taken_back:
            return "rolled back"
        if ranker_id in self._promoted:
            return "replaced"
        if ranker_id == self._shadow:
            return "shadow"
        return self._tried.get(ranker_id, "untested")


def _earned(
    active: str | None, activations: Sequence[Activation], runs: Iterable[_Tried]
) -> _Tried | None:
    """Return the evaluation that the active ranker was promoted by; None: it was by force."""
    promoted = [one for one in activations if one.action == "promote" and one.ranker_id == active]
    if active is None or not promoted or promoted[-1].reason.get("forced"):
        return None
    named = promoted[-1].reason.get("run_id")
    found = (run for run in runs if run.run_id == named and run.ranker_id == active)
    return next((run for run in found if run.verdict == "promote"), None)


def _version(
    row: Row[Any],
    number: int,
    states: _States,
    run: _Tried | None,
    asked: Mapping[str, str],
    *,
    is_earned: bool,
) -> RankerHealth:
    return RankerHealth(
        ranker_id=row.ranker_id,
        number=number,
        kind=row.kind,
        groups=row.groups,
        trained_at=row.trained_at,
        state=states.of(row.ranker_id),
        cases=run.cases if run else 0,
        score=run.score if run else None,
        baseline_score=run.figure("baseline_score") if run else None,
        gain=run.figure("gain") if run else None,
        p=run.figure("p") if run else None,
        verdict=run.verdict if run else None,
        is_earned=is_earned,
        reasons=tuple(str(one) for one in run.report.get("reasons") or ()) if run else (),
        worst_question=asked.get(run.worst_case) if run else None,
        worst_drop=(run.figure("worst_drop") if run else None) or 0.0,
        evaluated_at=run.at if run else None,
    )


def _made(connection: Connection, namespace: str) -> list[Row[Any]]:
    """Return the rankers, oldest first, without what they are made of."""
    row = rankers.c
    columns = (row.ranker_id, row.kind, row.groups, row.trained_at)
    mine = select(*columns).where(row.namespace == namespace)
    return list(connection.execute(mine.order_by(row.trained_at, row.ranker_id)))


def _questions(connection: Connection, namespace: str, case_ids: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for page in batched(sorted(set(case_ids))):
        mine = (eval_cases.c.namespace == namespace) & eval_cases.c.case_id.in_(page)
        rows = connection.execute(select(eval_cases.c.case_id, eval_cases.c.question).where(mine))
        found |= {row.case_id: row.question for row in rows}
    return found


def _cases(connection: Connection, namespace: str) -> int:
    row = eval_cases.c
    mine = select(func.count()).where(row.namespace == namespace, row.retired_at.is_(None))
    return int(connection.execute(mine).scalar_one())
