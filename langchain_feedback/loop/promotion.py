"""Promotion and rollback: which ranker orders the pools, one row each, and never without proof.

The newest row of the namespace counts. Retrievers of all processes follow it within 30 seconds.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from langchain_feedback.errors import PromotionRefusedError, UnknownRankerError
from langchain_feedback.loop.evaluation import EvalReport, report_of
from langchain_feedback.store.eval_runs import newest_run
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

_FIGURES = ("run_id", "version", "n", "gain", "p", "score", "baseline_score", "verdict")
_WORST = ("worst_case", "worst_drop")


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
    is active at this moment. Promoting what is active already changes nothing.

    Args:
        store: Where, and whose namespace.
        ranker_id: Which.
        report: What `evaluate` found; None: the newest such report of the store.
        actor: Who promotes it.
        force: Whether a person wants it all the same; the row then says so.
        after: The number of the row that the caller saw as the newest, 0 for none: a newer one
            refuses it. None: whatever counts now.

    Returns:
        The row that counts now.

    Raises:
        UnknownRankerError: If there is no such ranker.
        ArtifactError: If its artifact is damaged.
        PromotionRefusedError: If the report is missing, is of something else, or says no.
    """
    with writing(store) as (connection, _):
        _sound(connection, store.namespace, ranker_id).check()
        newest = newest_activation(connection, store.namespace)
        _none_since(newest, after)
        if newest is not None and newest.ranker_id == ranker_id:
            return newest
        active_id = newest.ranker_id if newest else None
        report = report or _found(connection, store.namespace, ranker_id, active_id)
        against = _objection(report, ranker_id, active_id)
        if against and not force:
            raise PromotionRefusedError(against)
        return _activated(
            store, connection, ranker_id,
            action="promote", actor=actor, reason=_figures(report, against),
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
        PromotionRefusedError: If the base's own order stands already, or a row is newer than
            `after`.
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
        raise PromotionRefusedError(msg)


def _sound(connection: Connection, namespace: str, ranker_id: str) -> RankerRecord:
    record = read_ranker(connection, namespace, ranker_id)
    if record is None:
        msg = f"There is no ranker {ranker_id!r} in namespace {namespace!r}: see `loop status`."
        raise UnknownRankerError(msg)
    return record


def _found(
    connection: Connection, namespace: str, ranker_id: str, active_id: str | None
) -> EvalReport | None:
    run = newest_run(connection, namespace, ranker_id, active_id)
    return None if run is None else report_of(run, {})


def _objection(report: EvalReport | None, ranker_id: str, active_id: str | None) -> str | None:
    """Return what speaks against a promotion; None: nothing."""
    now = f"ranker {active_id!r}" if active_id else "the base's own order"
    if report is None:
        return (
            f"Ranker {ranker_id!r} was not tried against {now}, which is active: evaluate it "
            f"first: langchain-feedback loop evaluate {ranker_id}"
        )
    if report.ranker_id != ranker_id:
        return f"The report is of ranker {report.ranker_id!r}, not of {ranker_id!r}."
    if report.baseline_id != active_id:
        return f"The report is not against {now}, which is active: evaluate it again."
    if report.verdict != "promote":
        return f"The verdict is {report.verdict!r}. " + " ".join(report.reasons)
    return None


def _figures(report: EvalReport | None, against: str | None) -> dict[str, Any]:
    """Return what the row says: figures, and no text of a question."""
    figures = {name: getattr(report, name) for name in (*_FIGURES, *_WORST)} if report else {}
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
