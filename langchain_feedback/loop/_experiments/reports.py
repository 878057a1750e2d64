"""An experiment as it is read: what was counted, and what that says."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from langchain_feedback.loop._experiments.outcomes import arm_outcomes, draft_outcomes
from langchain_feedback.loop._experiments.tests_of import Difference, preference, two_rates
from langchain_feedback.store.experiments import ExperimentRecord

__all__ = ["Counted", "ExperimentReport", "Side", "as_report", "counted", "report_of", "said_of"]


@dataclass(frozen=True)
class Side:
    """What is counted of one of the two."""

    questions: int
    """`ab`: that it answered and that tell something; `interleave`: all, for both answer each."""
    successes: int
    """`ab`: of these; `interleave`: questions in which it has more credit than the other one."""


@dataclass(frozen=True)
class ExperimentReport:
    """An experiment as it stands, or as it was read at its end."""

    name: str
    kind: str
    credit: str
    horizon: int
    """How many questions it waits for."""
    questions: int
    """How many there are so far; never more than `horizon`, for later ones do not count."""
    a: Side
    b: Side
    peeks: int
    """How often it was looked at before its end, this time included."""
    is_final: bool
    """Whether this is the one look at the end; it stays what it is."""
    verdict: str | None
    """`a`, `b` or `no preference`; None before the end."""
    difference: Difference | None
    """The difference that was found, `b` less `a`: for `interleave` in questions won less lost,
    for `ab` in success rates. None before the end."""
    why: str
    """The verdict in a sentence, for people."""


@dataclass(frozen=True)
class Counted:
    """What was counted so far."""

    questions: int
    a: Side
    b: Side
    difference: Difference


def counted(
    connection: Connection, namespace: str, record: ExperimentRecord, trace_ids: Sequence[str]
) -> Counted:
    """Count what the questions of an experiment say."""
    alpha = record.settings["alpha"]
    if record.kind == "interleave":
        signs = list(draft_outcomes(connection, namespace, record, trace_ids))
        won = [sum(sign == way for _, sign in signs) for way in (-1, 1)]
        a, b = (Side(len(signs), count) for count in won)
        return Counted(len(trace_ids), a, b, preference(signs, alpha=alpha))
    arms: dict[str, list[tuple[str, bool]]] = {"a": [], "b": []}
    for person, arm, success in arm_outcomes(connection, namespace, record, trace_ids):
        if success is not None:
            arms[arm].append((person, success))
    difference = two_rates(arms["a"], arms["b"], alpha=alpha)
    return Counted(len(trace_ids), _side(arms["a"]), _side(arms["b"]), difference)


def _side(outcomes: Iterable[tuple[str, bool]]) -> Side:
    successes = [success for _, success in outcomes]
    return Side(len(successes), sum(successes))


def report_of(record: ExperimentRecord, found: Counted) -> ExperimentReport:
    """Return the counts, without a verdict."""
    return ExperimentReport(
        name=record.name,
        kind=record.kind,
        credit=record.settings["credit"],
        horizon=record.horizon,
        questions=found.questions,
        a=found.a,
        b=found.b,
        peeks=record.peeks,
        is_final=False,
        verdict=None,
        difference=None,
        why="",
    )


def said_of(record: ExperimentRecord, found: Counted, winner: str | None) -> str:
    """Say the verdict in a sentence."""
    difference, a, b = found.difference, found.a, found.b
    if record.kind == "interleave":
        counts = (
            f"{b.successes:,} of {found.questions:,} questions went to b, {a.successes:,} to a"
        )
    else:
        counts = f"b {b.successes:,} of {b.questions:,}, a {a.successes:,} of {a.questions:,}"
    points = (
        f"{100 * difference.value:+.1f} points, from {100 * difference.low:.1f} to "
        f"{100 * difference.high:.1f}; p = {difference.p:.3f}, {difference.people:,} people"
    )
    if not difference.enough:
        return f"Too few people to tell: {counts} ({points})."
    if winner is None:
        return f"No preference was found: {counts} ({points})."
    return f"{winner} is better: {counts} ({points})."


def as_report(result: Mapping[str, Any]) -> ExperimentReport:
    """Return what was kept of a report."""
    parts = {"a": Side(**result["a"]), "b": Side(**result["b"])}
    difference = result["difference"]
    return ExperimentReport(
        **{**result, **parts, "difference": difference and Difference(**difference)}
    )
