"""Promotion and rollback: which ranker orders the pools, one row each, and never without proof.

The newest row of the namespace counts. Retrievers of all processes follow it within 30 seconds.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from langchain_feedback.errors import OutdatedError, PromotionRefusedError, UnknownRankerError
from langchain_feedback.loop.evaluation import EvalReport
from langchain_feedback.store.eval_cases import newest_version
from langchain_feedback.store.eval_runs import DECIDING_K, EvalRun, deciding_run, read_run
from langchain_feedback.store.rankers import (
    Activation,
    RankerRecord,
    activate,
    before_active,
    newest_activation,
    read_activations,
    read_ranker,
)
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["active_ranker", "promote", "rollback", "rolled_back", "shadow"]

_OF_THE_RUN = ("run_id", "version", "verdict")
_FIGURES = ("n", "gain", "p", "score", "baseline_score", "worst_case", "worst_drop")


def promote(
    store: "FeedbackStore",
    ranker_id: str,
    report: EvalReport | None = None,
    *,
    actor: str | None = None,
    force: bool = False,
    after: int | None = None,
) -> Activation:
    """Let a ranker order the pools from now on.

    It must have earned it: by a report with the verdict `promote`, of this ranker against what
    is active at this moment, on the newest set of cases, at nDCG@10. The store's own copy of
    the report counts. Promoting what is active already changes nothing.

    Args:
        store: Where, and whose namespace.
        ranker_id: Which.
        report: What `evaluate` found, and kept; None: the newest such report of the store.
        actor: Who promotes it.
        force: Whether a person wants it all the same; the row then says so.
        after: The number of the row that the caller saw as the newest, 0 for none: a newer one
            refuses it. None: whatever counts now.

    Returns:
        The row that counts now.

    Raises:
        UnknownRankerError: If there is no such ranker.
        ArtifactError: If its artifact is damaged.
        OutdatedError: If a row is newer than `after`.
        PromotionRefusedError: If the report is missing, is of something else, or says no.
    """
    with writing(store) as (connection, _):
        _sound(connection, store.namespace, ranker_id).check()
        newest = newest_activation(connection, store.namespace)
        _none_since(newest, after)
        if newest is not None and newest.ranker_id == ranker_id:
            return newest
        active_id = newest.ranker_id if newest else None
        decides = deciding_run(connection, store.namespace, ranker_id, active_id)
        run = decides if report is None else _kept(connection, store.namespace, report)
        version = newest_version(connection, store.namespace)
        against = _objection(report, run, ranker_id, active_id, version)
        against = against or _outweighed(run, decides)
        if against and not force:
            raise PromotionRefusedError(against)
        return _activated(
            store, connection, ranker_id,
            action="promote", actor=actor, reason=_figures(run, against),
        )  # fmt: skip


def rollback(
    store: "FeedbackStore", *, actor: str | None = None, after: int | None = None
) -> Activation:
    """Go back to what ordered the pools before the last promotion that still stands.

    Args:
        store: Where, and whose namespace.
        actor: Who takes it back.
        after: See `promote`: of two who take back the same one, one goes one step.

    Raises:
        OutdatedError: If a row is newer than `after`.
        PromotionRefusedError: If the base's own order stands already.
    """
    with writing(store) as (connection, _):
        history = read_activations(connection, store.namespace)
        _none_since(history[-1] if history else None, after)
        if not history or history[-1].ranker_id is None:
            msg = "There is nothing to roll back: the base retriever's own order stands."
            raise PromotionRefusedError(msg)
        reason = {"from": history[-1].ranker_id}
        return _activated(
            store, connection, before_active(history),
            action="rollback", actor=actor, reason=reason,
        )  # fmt: skip


def shadow(
    store: "FeedbackStore", ranker_id: str | None, *, actor: str | None = None
) -> Activation:
    """Let a ranker order the pools for comparison only; None: none does any more.

    Args:
        store: Where, and whose namespace.
        ranker_id: Which.
        actor: Who wants it.

    Raises:
        UnknownRankerError: If there is no such ranker.
        ArtifactError: If its artifact is damaged.
    """
    with writing(store) as (connection, _):
        if ranker_id is not None:
            _sound(connection, store.namespace, ranker_id).check()
        newest = newest_activation(connection, store.namespace, "shadow")
        if newest is not None and newest.ranker_id == ranker_id:
            return newest
        return _activated(
            store, connection, ranker_id, role="shadow", action="shadow", actor=actor, reason={}
        )


def active_ranker(store: "FeedbackStore") -> RankerRecord | None:
    """Return the ranker that orders the pools now; None: the base's own order."""
    with reading(store) as connection:
        newest = newest_activation(connection, store.namespace)
        if newest is None or newest.ranker_id is None:
            return None
        return read_ranker(connection, store.namespace, newest.ranker_id)


def rolled_back(store: "FeedbackStore") -> set[str]:
    """Return the rankers that somebody took back, and nobody promoted since.

    A schedule must not promote them again.
    """
    with reading(store) as connection:
        history = read_activations(connection, store.namespace)
    found: set[str] = set()
    active: str | None = None
    for one in history:
        if one.action == "rollback" and active is not None:
            found.add(active)
        elif one.action == "promote" and one.ranker_id is not None:
            found.discard(one.ranker_id)
        active = one.ranker_id
    return found


def _none_since(newest: Activation | None, after: int | None) -> None:
    if after is not None and after != (newest.seq if newest else 0):
        msg = (
            "Another ranker was made active since: somebody was faster, or the schedule was. "
            "Nothing was changed; look again."
        )
        raise OutdatedError(msg)


def _sound(connection: Connection, namespace: str, ranker_id: str) -> RankerRecord:
    record = read_ranker(connection, namespace, ranker_id)
    if record is None:
        msg = f"There is no ranker {ranker_id!r} in namespace {namespace!r}: see `loop status`."
        raise UnknownRankerError(msg)
    return record


def _kept(connection: Connection, namespace: str, report: EvalReport) -> EvalRun | None:
    """Return the store's own copy of a report; None: it has none."""
    return read_run(connection, namespace, report.run_id) if report.run_id else None


def _objection(
    report: EvalReport | None,
    run: EvalRun | None,
    ranker_id: str,
    active_id: str | None,
    version: int,
) -> str | None:
    """Return what speaks against a promotion; None: nothing."""
    now = f"ranker {active_id!r}" if active_id else "the base's own order"
    again = f"langchain-feedback loop evaluate {ranker_id}"
    if run is not None:
        return _against(run, ranker_id, active_id, version, now)
    if report is None:
        return (
            f"Ranker {ranker_id!r} was not tried against {now}, which is active, on the newest "
            f"cases: evaluate it first: {again}"
        )
    return (
        "The store does not hold the report: it is of a ranker, or against one, that is not in "
        f"the store. Evaluate it: {again}"
    )


def _against(
    run: EvalRun, ranker_id: str, active_id: str | None, version: int, now: str
) -> str | None:
    if run.ranker_id != ranker_id:
        return f"The report is of ranker {run.ranker_id!r}, not of {ranker_id!r}."
    if run.baseline_id != active_id:
        return f"The report is not against {now}, which is active: evaluate it again."
    if run.version != version or run.k != DECIDING_K:
        return (
            f"The report is on version {run.version} of the cases at nDCG@{run.k}; version "
            f"{version} at nDCG@{DECIDING_K} decides: evaluate it again."
        )
    if run.verdict != "promote":
        return f"The verdict is {run.verdict!r}. " + " ".join(run.report["reasons"])
    return None


def _outweighed(run: EvalRun | None, decides: EvalRun | None) -> str | None:
    """Return what a newer report of the same two says against it, such as of other traffic."""
    if decides is None or run == decides or decides.verdict == "promote":
        return None
    said = " ".join(decides.report["reasons"])
    return f"A newer report of the same two says {decides.verdict!r}. {said}"


def _figures(run: EvalRun | None, against: str | None) -> dict[str, Any]:
    """Return what the row says: figures, and no text of a question."""
    figures: dict[str, Any] = {}
    if run is not None:
        figures = {name: getattr(run, name) for name in _OF_THE_RUN}
        figures |= {name: run.report.get(name) for name in _FIGURES}
    return figures | ({"forced": True, "against": against} if against else {})


def _activated(
    store: "FeedbackStore",
    connection: Connection,
    ranker_id: str | None,
    *,
    action: str,
    actor: str | None,
    reason: Mapping[str, Any],
    role: str = "active",
) -> Activation:
    at = clock(store, connection)
    seq = activate(
        connection, store.namespace, ranker_id,
        role=role, action=action, actor=actor, reason=reason, at=at,
    )  # fmt: skip
    return Activation(seq, role, ranker_id, action, actor, reason, at)
