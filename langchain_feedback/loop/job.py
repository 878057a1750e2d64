"""The week in one call: derive, look after the sources, mine, train, evaluate, promote, tell."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_feedback.errors import (
    EvaluationError,
    LangChainFeedbackError,
    LoopBusyError,
    NotEnoughFeedbackError,
    PromotionRefusedError,
    StoreRejectedError,
)
from langchain_feedback.loop._gating.trying import Loader
from langchain_feedback.loop._week.lease import Lease, leased
from langchain_feedback.loop._week.ranker import loader_of
from langchain_feedback.loop._week.reports import STEPS, LoopReport, Step, StepReport
from langchain_feedback.loop._week.steps import DOING, NEEDS, Week
from langchain_feedback.store.loop_runs import read_runs
from langchain_feedback.store.transactions import clock, reading

if TYPE_CHECKING:
    from langchain_feedback.loop.owners import Owners
    from langchain_feedback.ranking.estimating import Estimator
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["STEPS", "LoopReport", "Step", "StepReport", "last_runs", "loader_of", "run_loop"]

logger = logging.getLogger(__name__)

_CANNOT = (NotEnoughFeedbackError, EvaluationError, PromotionRefusedError)
"""What says that there is too little to go by: no failure."""
_LONGEST = 300


def run_loop(
    store: "FeedbackStore",
    *,
    auto_promote: bool = False,
    estimator: "Estimator | None" = None,
    load: Loader | None = None,
    owners: "Owners | None" = None,
    outbox: Path | None = None,
    days: float = 7,
    limit: int = 40,
    ordinary: int = 8,
    double: float = 0.1,
    steps: Sequence[Step] = STEPS,
    now: datetime | None = None,
    lease: timedelta = timedelta(minutes=1),
    on_step: Callable[[StepReport], None] | None = None,
) -> LoopReport:
    """Do what a week needs, and say what was done; doing it twice changes nothing.

    - `derive`: signals that follow from what people asked next (`derive_signals`);
    - `alarms`: which documents went stale, and which were corrected (`check_sources`,
      `Corrections.check_fixed`);
    - `missing`: what people ask for and find nothing (`missing_documents`);
    - `mine`: fills the review queue (`mine`);
    - `freeze`: keeps reviewed and ordinary questions as evaluation cases (`freeze_cases`);
    - `train`: a ranker from what reviewers named (`train_ranker`);
    - `evaluate`: tries it against the active one, once for each set of cases; after a rejection
      once more only when a quarter more cases are there (`evaluate`);
    - `promote`: makes it active if it earned that, with `auto_promote` only, and never one
      that was rolled back (`promote`);
    - `digest`: tells owners what to correct or write (`write_digests`, `deliver`).

    A step that cannot do anything yet says so, and is no failure. One that raises fails, and
    the run with it; the later steps run all the same, unless they need it.

    One process at a time works in a namespace. It holds a lease, renewed while it works; when
    it dies, the lease runs out, and the next call with the same options goes on after the last
    step that was done.

    Args:
        store: Where, and whose namespace.
        auto_promote: Whether a ranker that passes the gate becomes active without a person.
        estimator: How to train; None: a `LinearEstimator`.
        load: Makes a ranker of what the estimator wrote; None: `load_ranker`, with the features
            of a `LinearEstimator`.
        owners: Who owns which document; None: nobody is told.
        outbox: The folder for messages to owners that are files; None: those wait.
        days: How far back mining looks.
        limit: The most items that may wait in the queue.
        ordinary: How many ordinary questions are drawn for review, besides those that failed.
        double: The share of the items that two people review.
        steps: Which ones, in any order; they run in the order above.
        now: When, for tests and simulations; None: at this moment. The lease ignores it.
        lease: How long a lease lasts without being renewed.
        on_step: Is told of each step when it is over; not of those before a resumption.

    Raises:
        LoopBusyError: If another process runs the loop of this namespace, or took it over.
        StoreError: If the database cannot be read or written between steps.
        ValueError: If there is no such step, or a number is out of range.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> report = run_loop(FeedbackStore("sqlite://"), steps=["derive", "train"])
        >>> report.state, [(step.name, step.state) for step in report.steps]
        ('done', [('derive', 'done'), ('train', 'skipped')])
    """
    asked = _checked(steps, days=days, lease=lease)
    week = Week(
        store=store,
        auto_promote=auto_promote,
        estimator=estimator,
        load=load,
        owners=owners,
        outbox=outbox,
        days=days,
        limit=limit,
        ordinary=ordinary,
        double=double,
        now=now,
    )
    with leased(
        store, asked=asked, options=week.options, promotes=auto_promote, length=lease
    ) as held:
        return _work(week, held, asked, on_step)


def last_runs(store: "FeedbackStore", *, limit: int = 10) -> list[LoopReport]:
    """Return what the last runs did, newest first.

    Raises:
        StoreError: If the database cannot be read.
    """
    with reading(store) as connection:
        now = clock(store, connection)
        runs = read_runs(connection, store.namespace, limit=limit)
    return [LoopReport.of(run, now=now) for run in runs]


def _checked(steps: Sequence[str], *, days: float, lease: timedelta) -> list[Step]:
    if unknown := sorted(set(steps) - set(STEPS)):
        msg = f"There is no step {unknown[0]!r}. The steps are {', '.join(STEPS)}."
        raise ValueError(msg)
    if not steps or not days > 0 or lease <= timedelta():
        msg = (
            "There must be a step, and days and lease must be above 0; got "
            f"{steps!r}, {days!r}, {lease!r}"
        )
        raise ValueError(msg)
    return [step for step in STEPS if step in steps]


def _work(
    week: Week,
    lease: Lease,
    asked: Sequence[Step],
    on_step: Callable[[StepReport], None] | None,
) -> LoopReport:
    """Take the steps that are not done yet."""
    done = {step.name: step for step in LoopReport.of(lease.run).steps}
    for name in asked:
        if name in done:
            continue
        lease.renew()
        done[name] = _taken(week, name, done)
        report = dict(lease.run.report) | {"steps": [asdict(step) for step in done.values()]}
        lease.note(name, report)
        if on_step is not None:
            on_step(done[name])
    failed = any(step.state == "failed" for step in done.values())
    return LoopReport.of(lease.finish("failed" if failed else "done"))


def _taken(week: Week, name: Step, done: dict[str, StepReport]) -> StepReport:
    """Take one step, and say how it went."""
    lacking = [need for need in NEEDS.get(name, ()) if need in done]
    lacking = [need for need in lacking if done[need].state == "failed"]
    if lacking:
        return StepReport(name, "skipped", f"It needs the step {lacking[0]!r}, which failed.")
    started = time.perf_counter()
    state, words, facts = _tried(week, name, done)
    return StepReport(name, state, words, facts, round(time.perf_counter() - started, 3))


def _tried(week: Week, name: Step, done: dict[str, StepReport]) -> tuple[Any, str, dict[str, Any]]:
    try:
        outcome = DOING[name](week, done)
    except _CANNOT as error:
        return "skipped", str(error), {"refused": type(error).__name__}
    except LoopBusyError:
        raise
    except Exception as error:
        logger.exception("The step %r of the loop failed", name)
        return "failed", _brief(error), {"error": type(error).__name__}
    return ("done" if outcome.done else "skipped"), outcome.words, dict(outcome.facts)


def _brief(error: Exception) -> str:
    """Return what an error says; what is not the package's own may quote what people wrote."""
    # So may a database that refuses a value.
    if isinstance(error, StoreRejectedError) or not isinstance(error, LangChainFeedbackError):
        return f"{type(error).__name__}: the log says more."
    # The lines after the first are a database's details.
    return next(iter(str(error).splitlines()), "")[:_LONGEST]
