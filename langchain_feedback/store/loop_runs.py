"""Runs of the loop: one at a time in a namespace, by a lease that ends when its holder dies."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from langchain_feedback.store.learning_schema import loop_runs

__all__ = [
    "RESUMED_FOR",
    "LoopRun",
    "claim_run",
    "finish_run",
    "note_step",
    "read_runs",
    "release_run",
    "renew_run",
]

RESUMED_FOR = timedelta(days=1)
"""How long after its lease ran out an interrupted run is still resumed, and not begun anew."""


@dataclass(frozen=True)
class LoopRun:
    """One run, as its row says."""

    run_id: str
    namespace: str
    state: str
    """`running`, `done` or `failed`."""
    holder: str
    """The process that has the lease, or had it last."""
    lease_until: datetime
    """UTC, as the other times. A run that is `running` after it was interrupted."""
    step: str
    """The last step that is done; empty before one."""
    report: Mapping[str, Any]
    """`asked`: the steps that it is to take; `options`: a digest of what else it was called with;
    `steps`: what each one did that is over; `resumed`: how often another process went on."""
    promotes: bool
    """Whether it may promote a ranker."""
    started_at: datetime
    finished_at: datetime | None

    def is_held(self, now: datetime) -> bool:
        """Return whether a process works on it, as far as anybody can know."""
        return self.state == "running" and self.lease_until > now


def claim_run(
    connection: Connection,
    namespace: str,
    *,
    holder: str,
    asked: Sequence[str],
    options: str,
    promotes: bool,
    now: datetime,
    until: datetime,
) -> LoopRun | None:
    """Take the lease of a namespace; None: another process has it.

    A run that was interrupted is resumed if it was to do the same, and is not older than
    `RESUMED_FOR`; otherwise it ends as failed, and a new one begins.

    Args:
        connection: A transaction that excludes other writers of votes: two that claim at
            once would both get it.
        namespace: Whose loop.
        holder: A name that no other run of any process has.
        asked: The steps, in their order.
        options: A digest of what else decides what they do.
        promotes: Whether it may promote.
        now: When, by the clock that all processes share.
        until: When the lease ends, unless it is renewed.
    """
    row = loop_runs.c
    open_ = select(loop_runs).where(row.namespace == namespace, row.state == "running")
    resumed = None
    told = {"asked": list(asked), "options": options}
    for found in map(_as_run, connection.execute(open_.order_by(row.started_at)).mappings()):
        if found.is_held(now):
            return None
        same = {name: found.report.get(name) for name in told} == told
        same = same and found.promotes == promotes
        if same and now - found.lease_until < RESUMED_FOR:
            resumed = found
            continue
        ended = {"state": "failed", "finished_at": found.lease_until}
        connection.execute(update(loop_runs).where(row.run_id == found.run_id).values(**ended))
    if resumed is not None:
        report = dict(resumed.report) | {"resumed": int(resumed.report.get("resumed", 0)) + 1}
        changed = {"holder": holder, "lease_until": until, "report": json.dumps(report)}
        connection.execute(update(loop_runs).where(row.run_id == resumed.run_id).values(**changed))
        return read_runs(connection, namespace, run_id=resumed.run_id)[0]
    run_id = uuid4().hex
    values = {
        "run_id": run_id,
        "namespace": namespace,
        "state": "running",
        "holder": holder,
        "lease_until": until,
        "step": "",
        "report": json.dumps(told | {"steps": [], "resumed": 0}),
        "promotes": promotes,
        "started_at": now,
    }
    connection.execute(insert(loop_runs).values(**values))
    return read_runs(connection, namespace, run_id=run_id)[0]


def renew_run(connection: Connection, run: LoopRun, *, until: datetime) -> bool:
    """Keep the lease for longer; return whether it is still the holder's."""
    return _changed(connection, run, lease_until=until)


def note_step(
    connection: Connection,
    run: LoopRun,
    step: str,
    report: Mapping[str, Any],
    *,
    until: datetime,
) -> bool:
    """Keep what a step did, and the lease; return whether it is still the holder's."""
    return _changed(
        connection, run, step=step, report=json.dumps(report, default=str), lease_until=until
    )


def finish_run(connection: Connection, run: LoopRun, state: str, *, now: datetime) -> bool:
    """End a run as `done` or `failed`; return whether it was still the holder's."""
    return _changed(connection, run, state=state, finished_at=now, lease_until=now)


def release_run(connection: Connection, run: LoopRun, *, now: datetime) -> bool:
    """Give the lease back before the end, so that the next run goes on with it at once."""
    return _changed(connection, run, lease_until=now)


def read_runs(
    connection: Connection, namespace: str, *, run_id: str | None = None, limit: int = 50
) -> list[LoopRun]:
    """Return runs, newest first."""
    row = loop_runs.c
    wanted = [row.namespace == namespace] + ([] if run_id is None else [row.run_id == run_id])
    newest = select(loop_runs).where(*wanted).order_by(row.started_at.desc(), row.run_id)
    return [_as_run(found) for found in connection.execute(newest.limit(limit)).mappings()]


def _changed(connection: Connection, run: LoopRun, **values: Any) -> bool:
    row = loop_runs.c
    # Whoever lost the lease changes nothing: each claim has a name of its own.
    mine = (row.run_id == run.run_id) & (row.holder == run.holder) & (row.state == "running")
    return bool(connection.execute(update(loop_runs).where(mine).values(**values)).rowcount)


def _as_run(found: Mapping[Any, Any]) -> LoopRun:
    fields = {name: found[name] for name in LoopRun.__dataclass_fields__}
    return LoopRun(**(fields | {"report": json.loads(found["report"])}))
