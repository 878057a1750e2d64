"""Experiments: how each was set up before it began, and what was read at its end."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Row, func, select, update

from langchain_feedback.errors import ExperimentError
from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.incoming import TraceUpdate
from langchain_feedback.store.learning_schema import experiments
from langchain_feedback.store.schema import trace_chunks, traces

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "ExperimentRecord",
    "add_experiment",
    "count_members",
    "count_peek",
    "end_experiment",
    "is_awaited",
    "label_soon",
    "read_experiment",
    "read_experiments",
    "read_members",
    "read_teams",
]


@dataclass(frozen=True)
class ExperimentRecord:
    """An experiment as the store holds it."""

    experiment_id: str
    name: str
    kind: str
    """`interleave` or `ab`."""
    settings: Mapping[str, Any]
    """What was decided before it began; see `loop.experiments.start_experiment`."""
    horizon: int
    """How many questions it waits for: what comes after them does not count."""
    peeks: int
    """How often it was looked at before its end."""
    result: Mapping[str, Any] | None
    """As read at the end; None before, and where it was stopped."""
    started_at: datetime
    """UTC, as `ended_at`."""
    ended_at: datetime | None
    """None while it runs."""

    @property
    def is_running(self) -> bool:
        """Whether questions are still part of it."""
        return self.ended_at is None


def add_experiment(
    connection: Connection,
    namespace: str,
    name: str,
    *,
    kind: str,
    settings: Mapping[str, Any],
    horizon: int,
    at: datetime,
) -> ExperimentRecord:
    """Begin an experiment.

    Raises:
        ExperimentError: If there is one of this name, running or over.
    """
    row = {
        "experiment_id": str(uuid4()),
        "namespace": namespace,
        "name": name,
        "kind": kind,
        "settings": json.dumps(dict(settings), sort_keys=True),
        "horizon": horizon,
        "peeks": 0,
        "started_at": at,
    }
    insert_or_ignore(connection, experiments, [row])
    made = read_experiment(connection, namespace, name)
    if made is None or made.experiment_id != row["experiment_id"]:
        msg = (
            f"There is an experiment {name!r} in namespace {namespace!r} already. Give each a "
            "name of its own: what was read of one stays what it was."
        )
        raise ExperimentError(msg)
    return made


def read_experiment(connection: Connection, namespace: str, name: str) -> ExperimentRecord | None:
    """Return the experiment of this name, or None."""
    mine = (experiments.c.namespace == namespace) & (experiments.c.name == name)
    row = connection.execute(select(experiments).where(mine)).one_or_none()
    return None if row is None else _record(row)


def read_experiments(connection: Connection, namespace: str) -> list[ExperimentRecord]:
    """Return the experiments of a namespace, newest first."""
    mine = select(experiments).where(experiments.c.namespace == namespace)
    order = (experiments.c.started_at.desc(), experiments.c.name)
    return [_record(row) for row in connection.execute(mine.order_by(*order))]


def count_peek(connection: Connection, experiment_id: str) -> None:
    """Note that somebody looked before the end."""
    this = update(experiments).where(experiments.c.experiment_id == experiment_id)
    connection.execute(this.values(peeks=experiments.c.peeks + 1))


def end_experiment(
    connection: Connection, experiment_id: str, at: datetime, result: Mapping[str, Any] | None
) -> bool:
    """Close an experiment for good; False where somebody else had done so before.

    Args:
        connection: A transaction.
        experiment_id: Which.
        at: When.
        result: What was read; None: it was stopped, and nothing may be read any more.
    """
    this = update(experiments).where(experiments.c.experiment_id == experiment_id)
    read = None if result is None else json.dumps(dict(result))
    done = connection.execute(
        this.where(experiments.c.ended_at.is_(None)).values(ended_at=at, result=read)
    )
    return bool(done.rowcount)


def read_members(
    connection: Connection, namespace: str, experiment_id: str, limit: int
) -> list[tuple[str, datetime]]:
    """Return the first questions of an experiment: trace id and when it was asked.

    Traffic of evaluations and playgrounds is nobody's, and does not count.
    """
    rows = connection.execute(
        select(traces.c.trace_id, traces.c.created_at)
        .where(_is_member(namespace, experiment_id))
        .order_by(traces.c.created_at, traces.c.trace_id)
        .limit(limit)
    )
    return [(row.trace_id, row.created_at) for row in rows]


def count_members(connection: Connection, namespace: str, experiment_id: str, limit: int) -> int:
    """Return how many questions `read_members` would return."""
    members = select(traces.c.trace_id).where(_is_member(namespace, experiment_id)).limit(limit)
    counted = select(func.count()).select_from(members.subquery())
    return int(connection.execute(counted).scalar_one())


def _is_member(namespace: str, experiment_id: str) -> ColumnElement[bool]:
    mine = (traces.c.namespace == namespace) & (traces.c.experiment == experiment_id)
    return mine & traces.c.traffic.is_(None)


def is_awaited(namespace: str) -> ColumnElement[bool]:
    """Say that a trace is part of an experiment that was neither read nor stopped yet."""
    running = select(experiments.c.experiment_id).where(
        experiments.c.namespace == namespace, experiments.c.ended_at.is_(None)
    )
    # Of most traces the column is empty, and a comparison would be neither true nor false.
    return traces.c.experiment.is_not(None) & traces.c.experiment.in_(running)


def read_teams(connection: Connection, trace_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return by trace which chunk was whose, as of its last search; neutral ones are left out."""
    last: dict[str, int] = {}
    teams: dict[str, dict[str, str]] = defaultdict(dict)
    columns = (trace_chunks.c.trace_id, trace_chunks.c.attempt, trace_chunks.c.chunk_id)
    for page in batched(list(trace_ids)):
        rows = connection.execute(
            select(*columns, trace_chunks.c.team)
            .where(trace_chunks.c.trace_id.in_(page))
            .order_by(trace_chunks.c.attempt)
        )
        for row in rows:
            if last.get(row.trace_id) != row.attempt:
                last[row.trace_id] = row.attempt
                teams[row.trace_id] = {}
            if row.team is not None:
                teams[row.trace_id][row.chunk_id] = row.team
    return teams


def label_soon(store: "FeedbackStore", trace_id: str, experiment_id: str) -> None:
    """Say that a trace is part of an experiment, without keeping an answer waiting.

    It is written after the trace itself, also where that still waits.
    """
    store._send(TraceUpdate(trace_id, {"experiment": experiment_id}))  # noqa: SLF001  ours


def _record(row: Row[Any]) -> ExperimentRecord:
    return ExperimentRecord(
        experiment_id=row.experiment_id,
        name=row.name,
        kind=row.kind,
        settings=json.loads(row.settings),
        horizon=row.horizon,
        peeks=row.peeks,
        result=None if row.result is None else json.loads(row.result),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
