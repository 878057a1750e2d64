"""One night's work on an index: what exists, in its order, under one lease."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from langchain_core.runnables.config import run_in_executor
from sqlalchemy import insert, update

from langchain_feedback.index._jobs.lease import JobBusyError, JobLease
from langchain_feedback.store.care_schema import care_runs
from langchain_feedback.store.transactions import clock, writing

if TYPE_CHECKING:
    from datetime import datetime

    from langchain_feedback.index.foldback import FoldBack
    from langchain_feedback.index.retirement import Retirement
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["NightlyReport", "Step", "anightly", "nightly"]

_JOB = "nightly"

Status = Literal["done", "planned", "findings", "failed"]


@dataclass(frozen=True)
class Step:
    """What one step of a night came to."""

    name: str
    status: Status
    """`planned`: it would change something, and nothing was applied."""
    said: str
    """Of a result its text; of a failure its kind and message."""
    seconds: float


@dataclass(frozen=True)
class NightlyReport:
    """What a night did."""

    run_id: str
    steps: tuple[Step, ...]

    @property
    def exit_code(self) -> int:
        """0: clean; 1: there are findings or plans to look at; 2: a step failed."""
        found = {step.status for step in self.steps}
        return 2 if "failed" in found else int(bool(found & {"planned", "findings"}))

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "run_id": self.run_id,
            "exit_code": self.exit_code,
            "steps": [vars(step) for step in self.steps],
        }


@dataclass(frozen=True)
class _Night:
    actor: str
    apply: bool


def nightly(
    store: "FeedbackStore",
    *,
    score: Callable[[], object] | None = None,
    foldback: "FoldBack | None" = None,
    retirement: "Retirement | None" = None,
    health: Callable[[], object] | None = None,
    apply: bool = False,
    actor: str = _JOB,
    lease_s: float = 900,
) -> NightlyReport:
    """Do a night's work: score what is new, fold back, retire, and look at the health.

    A step that fails is reported, and the next ones run all the same. What changes the index is
    planned only, unless `apply` is given. The run is on record in `lcf_care_runs`; one that a
    crash left there as running is called failed by the next night.

    Args:
        store: Whose namespace; one night at a time works on it.
        score: Such as `lambda: score_corpus(store, catalog_documents(store), workers=4)`.
        foldback: Of this store.
        retirement: Of this store.
        health: Such as `lambda: check_health(store, index)`. Findings are told from a clean
            result by its `exit_code` of 1, a failure by one above, as far as it has one.
        apply: Carry out what fold-back and retirement plan.
        actor: Who answers for what is retired.
        lease_s: After how many seconds another process may take over from one that died.

    Raises:
        JobBusyError: If another process is at it, or took over.
        StoreError: If the run cannot be put on record.
        ValueError: If `lease_s` is not above 0.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> report = nightly(FeedbackStore("sqlite://"), score=lambda: "2 scored")
        >>> [(step.name, step.status, step.said) for step in report.steps], report.exit_code
        ([('score', 'done', '2 scored')], 0)
    """
    night = _Night(actor, apply)
    work: dict[str, Callable[[], tuple[Status, str]]] = {}
    if score is not None:
        work["score"] = lambda: ("done", str(score()))
    if foldback is not None:
        work["foldback"] = lambda: _folded(foldback, night)
    if retirement is not None:
        work["retirement"] = lambda: _retired(retirement, night)
    if health is not None:
        work["health"] = lambda: _looked(health)
    with JobLease(store, _JOB, seconds=lease_s) as lease:
        run_id = _begun(store, dry=not apply)
        try:
            steps = tuple(_taken(lease, name, step) for name, step in work.items())
        except BaseException:
            _ended(store, run_id, "failed", {})
            raise
        report = NightlyReport(run_id, steps)
        _ended(store, run_id, "failed" if report.exit_code > 1 else "done", report.as_dict())
    return report


async def anightly(store: "FeedbackStore", **options: Any) -> NightlyReport:
    """Do as `nightly`, without blocking the event loop."""
    return await run_in_executor(None, partial(nightly, store, **options))


def _taken(lease: JobLease, name: str, step: Callable[[], tuple[Status, str]]) -> Step:
    lease.check()
    began = time.perf_counter()
    taken = Step(name, "failed", "", 0.0)
    try:
        status, said = step()
        taken = replace(taken, status=status, said=said)
    except JobBusyError:
        raise
    except Exception as error:  # noqa: BLE001  the other steps are no worse for it
        taken = replace(taken, said=f"{type(error).__name__}: {error}")
    return replace(taken, seconds=round(time.perf_counter() - began, 3))


def _folded(foldback: "FoldBack", night: _Night) -> tuple[Status, str]:
    plan = foldback.plan()
    if plan and night.apply:
        foldback.apply(plan)
    return _changed(bool(plan), night), str(plan)


def _retired(retirement: "Retirement", night: _Night) -> tuple[Status, str]:
    plan = retirement.plan()
    if plan and night.apply:
        retirement.apply(plan, actor=night.actor)
    if plan.held and (night.apply or not plan):
        return "findings", str(plan)
    return _changed(bool(plan), night), str(plan)


def _changed(some: bool, night: _Night) -> Status:  # noqa: FBT001  a fact of a plan
    return "planned" if some and not night.apply else "done"


def _looked(health: Callable[[], object]) -> tuple[Status, str]:
    found = health()
    code = getattr(found, "exit_code", 0)
    # Above 1 it could not look.
    status: Status = "failed" if code > 1 else "findings" if code else "done"
    return status, str(found)


def _begun(store: "FeedbackStore", *, dry: bool) -> str:
    run_id = uuid4().hex
    with writing(store, lock="traces") as (connection, _):
        now = clock(store, connection)
        mine = (care_runs.c.namespace == store.namespace) & (care_runs.c.job == _JOB)
        # The lease is ours, so whatever is called running has died.
        died = update(care_runs).where(mine, care_runs.c.status == "running")
        connection.execute(died.values(status="failed", finished_at=now))
        row: dict[str, str | bool | datetime] = {
            "run_id": run_id,
            "namespace": store.namespace,
            "job": _JOB,
            "dry_run": dry,
            "counts": "{}",
            "status": "running",
            "started_at": now,
        }
        connection.execute(insert(care_runs), row)
    return run_id


def _ended(store: "FeedbackStore", run_id: str, status: str, report: Mapping[str, Any]) -> None:
    with writing(store, lock="traces") as (connection, _):
        done = {"status": status, "finished_at": clock(store, connection)}
        mine = update(care_runs).where(care_runs.c.run_id == run_id)
        connection.execute(mine.values(counts=json.dumps(report), **done))
