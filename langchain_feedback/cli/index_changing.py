"""`langchain-feedback index retire`: out of the index."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import typer

from langchain_feedback.cli.index_applying import (
    Apply,
    again,
    digest_option,
    is_reviewed,
    next_step,
)
from langchain_feedback.cli.index_shared import (
    FINDINGS,
    Index,
    Rows,
    index_of,
    watched,
)
from langchain_feedback.cli.progress import waiting
from langchain_feedback.cli.shared import (
    DATABASE,
    Actor,
    Database,
    Json,
    Namespace,
    name_of,
    opened,
    print_json,
    print_table,
    say,
    say_more,
    say_on_one_line,
)

if TYPE_CHECKING:
    from langchain_feedback.index.retirement import (
        Retired,
        Retirement,
        RetirementPlan,
    )

__all__ = ["retire"]

_DOING = {"demote": "hide", "remove": "remove"}


def retire(  # noqa: PLR0917  each is an option
    context: typer.Context,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    apply: Apply = None,
    by: Actor = "",
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Show which chunks would be hidden, or removed after two weeks; --apply does it.

    Those that are junk or that people find wrong; what is held is for people
    to look at. Ends with 1 if there are any.

    Example: langchain-feedback index retire --index my_app:index --apply 3f0a9c81d2e4
    """
    with watched(), opened(database, namespace) as store:
        retirement = index_of(index).retirement(store)
        with waiting("Looking at chunks and votes"):
            plan = retirement.plan()
            hidden = _hidden(retirement)
        done = None
        if plan and is_reviewed(apply, plan.digest, plan, context):
            with waiting("Changing the index"):
                done = retirement.apply(plan, actor=name_of(by))
    if as_json:
        command = again(context, *digest_option(plan.digest)) if plan and not done else None
        applied = None if done is None else vars(done)
        told = {"hidden": hidden, "applied": applied, "command": command}
        print_json(_as_json(plan) | told)
    elif done:
        _show_done(done, again(context))
    else:
        _show(plan, limit)
        if hidden:
            first = min(one["until"] for one in hidden)
            words = f"Hidden now: {len(hidden):,}, the first of them until {first:%Y-%m-%d}"
            say(f"{words}, when a run may remove it.", "dim")
        if plan:
            next_step(context, *digest_option(plan.digest))
    if (plan or plan.held) and not done:
        raise typer.Exit(FINDINGS)


def _hidden(retirement: "Retirement") -> list[dict[str, Any]]:
    """Return what is only hidden, and from when on it may be removed, that first."""
    from langchain_feedback.index._managed.known import demoted  # noqa: PLC0415

    last, there = {one.target: one for one in retirement.actions()}, demoted(retirement.store)
    time = timedelta(days=retirement.rules.hidden_days)
    found = [
        {"chunk": one.target, "source": str(one.before["metadata"].get("source") or "")}
        | {"reason": one.reason, "since": one.at, "until": one.at + time}
        for one in last.values()
        if one.action == "demote" and one.undone_by is None and one.target in there
    ]
    return sorted(found, key=lambda one: (one["until"], one["chunk"]))


def _as_json(plan: "RetirementPlan") -> dict[str, Any]:
    changed = {
        name: [
            {"chunk": one.chunk_id, "source": one.source, "reason": one.reason}
            | {"statistics": one.statistics}
            for one in getattr(plan, name)
        ]
        for name in _DOING
    }
    held = [
        {"chunk": one.chunk_id, "source": one.source, "reason": one.reason, "because": one.because}
        for one in plan.held
    ]
    return {"index": plan.index, "digest": plan.digest, "run_id": plan.run_id, **changed} | {
        "held": held,
        "waiting": plan.waiting,
    }


def _show(plan: "RetirementPlan", limit: int) -> None:
    words = f"{plan.index}: {len(plan.demote):,} to hide, {len(plan.remove):,} to remove"
    say(f"{words}, {len(plan.held):,} held for people to look at.", "bold")
    if plan.waiting:
        say(f"{plan.waiting:,} more wait: so many are too many for one run.", "dim")
    say("")
    rows = [
        (_DOING[name], one.source, one.chunk_id, one.reason)
        for name in _DOING
        for one in getattr(plan, name)
    ]
    rows += [
        ("held", one.source, one.chunk_id, f"{one.because.replace('_', ' ')}; {one.reason}")
        for one in plan.held
    ]
    head = ("do", "source", "chunk", "because")
    print_table(head, rows[:limit], "Nothing is to be retired.")
    say_more(len(rows), limit)


def _show_done(done: "Retired", command: str) -> None:
    words = f"{len(done.demoted):,} hidden, {len(done.removed):,} removed; run {done.run_id}."
    say(words, "bold green")
    back = command.replace("index retire", f"index restore {done.run_id}", 1)
    say("To take it back:", "dim")
    say_on_one_line(f"{back} --apply")
