"""Experiments on live questions: decided how long before they begin, and read once."""

from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from langchain_feedback.errors import ExperimentError, PeekError
from langchain_feedback.loop._experiments.outcomes import rates_so_far
from langchain_feedback.loop._experiments.reports import (
    Counted,
    ExperimentReport,
    Side,
    as_report,
    counted,
    report_of,
    said_of,
)
from langchain_feedback.loop._experiments.sizes import Credit, Kind, needed_questions
from langchain_feedback.store.experiments import (
    ExperimentRecord,
    add_experiment,
    count_peek,
    end_experiment,
    read_experiment,
    read_experiments,
    read_members,
)
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "ExperimentReport",
    "Side",
    "experiment_report",
    "list_experiments",
    "needed_questions",
    "start_experiment",
    "stop_experiment",
]

_SETTLES = timedelta(minutes=30)
"""So long after the last question clicks may still come: then its session is over."""


def start_experiment(
    store: "FeedbackStore",
    name: str,
    kind: Kind = "interleave",
    *,
    credit: Credit = "clicks",
    effect: float = 5.0,
    engaged: float | None = None,
    base_rate: float | None = None,
    share: float = 0.5,
    alpha: float = 0.05,
    power: float = 0.8,
    horizon: int | None = None,
    now: datetime | None = None,
) -> ExperimentRecord:
    """Begin an experiment, for an `InterleavedRetriever` or `SplitRetriever` of this name.

    What it needs is worked out first: `horizon` of the record says how many questions it waits
    for. See `needed_questions` for what the numbers mean. Those that are not given are taken
    from the last 28 days of the log, for `ab` with how alike one person's questions are. Below
    100 questions there, they are those of `needed_questions`.

    With the question that its horizon names the retriever gives everybody `a` again, within its
    `poll_s`. What was asked and clicked until then is kept from `prune` until the experiment is
    read or stopped.

    Args:
        store: Where, and whose namespace.
        name: A name of its own.
        kind: `interleave` or `ab`.
        credit: What tells.
        effect: What is to be found, in points.
        engaged: The share of questions that tell something.
        base_rate: The success rate of `a`.
        share: The share of people who get `b`.
        alpha: The chance to find a difference that is none.
        power: The chance to find one that is there.
        horizon: How many questions it waits for, instead of what is worked out.
        now: When; None: by the database's clock.

    Raises:
        ExperimentError: If there is one of this name already.
        ValueError: If a number is out of its range; see `needed_questions`.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> start_experiment(store, "candidate-7", effect=5).horizon
        1355
    """
    if not name.strip():
        msg = "An experiment needs a name."
        raise ValueError(msg)
    if horizon is not None and horizon < 1:
        msg = f"horizon must be at least 1, got {horizon!r}"
        raise ValueError(msg)
    given = {"engaged": engaged, "base_rate": base_rate}
    told = {key: value for key, value in given.items() if value is not None}
    fixed: dict[str, Any] = {"effect": effect, "share": share, "alpha": alpha, "power": power}
    needed_questions(kind, credit=credit, **fixed, **told)  # checks them
    with reading(store) as connection:
        at = now or clock(store, connection)
        known = rates_so_far(connection, store.namespace, kind, credit, at) | told
    needed = needed_questions(kind, credit=credit, **fixed, **known)
    settings = {"credit": credit, "needed": needed, **fixed, **known}
    with writing(store) as (connection, _):
        return add_experiment(
            connection, store.namespace, name, kind=kind, horizon=horizon or needed, at=at,
            settings=settings,
        )  # fmt: skip


def experiment_report(
    store: "FeedbackStore", name: str, *, peek: bool = False, now: datetime | None = None
) -> ExperimentReport:
    """Read an experiment at its end: the first look closes it, later ones show the same.

    It ends with the question that its horizon names, and half an hour for the clicks on it. Who
    looks before and stops when he likes what he sees finds a difference that is none far more
    often than `alpha` says; so nothing is tested before the end.

    Args:
        store: Where, and whose namespace.
        name: The experiment's.
        peek: Before the end: show the counts, without a verdict, and note that somebody looked.
        now: When; None: by the database's clock.

    Raises:
        PeekError: If it is not over and `peek` was not asked for.
        ExperimentError: If there is none of this name, or it was stopped.
    """
    with reading(store) as connection:
        record = _known(connection, store.namespace, name)
        if record.result is not None:
            return as_report(record.result)
        if not record.is_running:
            raise _stopped(name)
        at = now or clock(store, connection)
        members = read_members(connection, store.namespace, record.experiment_id, record.horizon)
        missing = _missing(record, members, at)
        if missing and not peek:
            msg = (
                f"Experiment {name!r} is not over: {missing}. Read it then; `peek=True` shows the "
                "counts so far, without a verdict."
            )
            raise PeekError(msg)
        found = counted(connection, store.namespace, record, [one for one, _ in members])
    if missing:
        return _peeked(store, record, found, missing)
    return _closed(store, record, found, at)


def stop_experiment(
    store: "FeedbackStore", name: str, *, now: datetime | None = None
) -> ExperimentRecord:
    """Give an experiment up: `a` answers alone again, and it has no verdict.

    Stopping one that is over is harmless, and changes nothing of what was read.

    Raises:
        ExperimentError: If there is none of this name.
    """
    with writing(store) as (connection, _):
        record = _known(connection, store.namespace, name)
        end_experiment(connection, record.experiment_id, now or clock(store, connection), None)
        return _known(connection, store.namespace, name)


def list_experiments(store: "FeedbackStore") -> list[ExperimentRecord]:
    """Return the experiments of the namespace, newest first."""
    with reading(store) as connection:
        return read_experiments(connection, store.namespace)


def _known(connection: Connection, namespace: str, name: str) -> ExperimentRecord:
    record = read_experiment(connection, namespace, name)
    if record is None:
        there = [repr(one.name) for one in read_experiments(connection, namespace)]
        names = f"There are: {', '.join(there)}." if there else "`start_experiment` begins one."
        msg = f"There is no experiment {name!r} in namespace {namespace!r}. {names}"
        raise ExperimentError(msg)
    return record


def _missing(record: ExperimentRecord, members: list[tuple[str, datetime]], now: datetime) -> str:
    """Say what is missing to the end; empty: nothing."""
    if len(members) < record.horizon:
        return f"{len(members):,} of {record.horizon:,} questions were asked"
    ends = members[-1][1] + _SETTLES
    if now < ends:
        return f"clicks on its last questions may come until {ends:%Y-%m-%d %H:%M} UTC"
    return ""


def _peeked(
    store: "FeedbackStore", record: ExperimentRecord, found: Counted, missing: str
) -> ExperimentReport:
    with writing(store) as (connection, _):
        count_peek(connection, record.experiment_id)
    why = f"Not over: {missing}. These are counts, and no verdict."
    return replace(report_of(record, found), peeks=record.peeks + 1, why=why)


def _closed(
    store: "FeedbackStore", record: ExperimentRecord, found: Counted, now: datetime
) -> ExperimentReport:
    winner = found.difference.winner(record.settings["alpha"])
    report = replace(
        report_of(record, found),
        is_final=True,
        verdict=winner or "no preference",
        difference=found.difference,
        why=said_of(record, found, winner),
    )
    with writing(store) as (connection, _):
        end_experiment(connection, record.experiment_id, now, asdict(report))
        # Somebody else may have been first; what he read is what was found, if he read it.
        ended = _known(connection, store.namespace, record.name)
    if ended.result is None:
        raise _stopped(record.name)
    return as_report(ended.result)


def _stopped(name: str) -> ExperimentError:
    msg = f"Experiment {name!r} was stopped before its end: nothing may be read from it."
    return ExperimentError(msg)
