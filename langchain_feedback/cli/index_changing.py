"""`langchain-feedback index retire`, `restore`: out of the index, and back."""

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import (
    Apply,
    Do,
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
    index_option,
    say_when_loaded,
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
    from langchain_feedback.index.retirement import Action, Retired, RetirementPlan
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["restore", "retire"]

_LISTED = ("hidden", "removed", "restored")
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
        done = None
        if plan and is_reviewed(apply, plan.digest, plan, context):
            with waiting("Changing the index"):
                done = retirement.apply(plan, actor=name_of(by))
    if as_json:
        command = again(context, *digest_option(plan.digest)) if plan and not done else None
        applied = None if done is None else vars(done)
        print_json(_as_json(plan) | {"applied": applied, "command": command})
    elif done:
        _show_done(done, again(context))
    else:
        _show(plan, limit)
        if plan:
            next_step(context, *digest_option(plan.digest))
    if (plan or plan.held) and not done:
        raise typer.Exit(FINDINGS)


def restore(  # noqa: PLR0917  each is an option
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(help="A run, or one action of it; without it, what there is.")
    ] = "",
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    apply: Do = False,
    by: Actor = "",
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Show what a retirement took out, and would come back; --apply brings it back.

    Each chunk gets the id, text and metadata that it had, and is looked up in
    the index; to look needs none. Ends with 1 if something would come back.

    Example: langchain-feedback index restore RUN --index my_app:index --apply
    """
    with watched(), opened(database, namespace) as store:
        name, found = _named(store, run)
        standing = [one for one in found if _stands(one)]
        done, is_saved = None, False
        if run and apply and standing:
            managed = index_of(index)
            is_saved = managed.persist is not None
            with waiting("Writing to the index"):
                done = managed.retirement(store).restore(name, actor=name_of(by))
    if not run:
        _list(found, limit, as_json=as_json)
        return
    if as_json:
        applied = None if done is None else vars(done)
        told = [_action(one) for one in standing]
        print_json({"run": name, "chunks": told, "applied": applied})
    elif done:
        say(f"Back, and looked up in the index: {len(done.chunks):,}.", "bold green")
        if is_saved:
            say_when_loaded()
    else:
        _show_standing(standing, limit)
        if standing:
            next_step(context, "--apply", *index_option(index))
    if standing and not done:
        raise typer.Exit(FINDINGS)


def _named(store: "FeedbackStore", given: str) -> "tuple[str, list[Action]]":
    """Return the id of the run or action that is named, or begins so, and what it did.

    Raises:
        ValueError: If there is none, or several begin so.
    """
    from langchain_feedback.index._retirement.audit import actions_of  # noqa: PLC0415
    from langchain_feedback.store.transactions import reading  # noqa: PLC0415

    with reading(store) as connection:
        if given and (found := actions_of(connection, store.namespace, named=given)):
            return given, found
        actions = actions_of(connection, store.namespace)
    if not given:
        return "", actions
    for of in ("run_id", "action_id"):
        alike = {name for one in actions if (name := getattr(one, of)).startswith(given)}
        if len(alike) > 1:
            msg = f"The ids of {len(alike)} begin with {given!r}: give more of it."
            raise ValueError(msg)
        if alike:
            name = alike.pop()
            return name, [one for one in actions if getattr(one, of) == name]
    msg = f"There is no run and no action {given!r}; `index restore` alone lists them."
    raise ValueError(msg)


def _show_standing(standing: "list[Action]", limit: int) -> None:
    rows = [
        (_DOING[one.action], str(one.before["metadata"].get("source") or ""), one.target,
         one.reason)
        for one in standing
    ]  # fmt: skip
    nothing = "All of it is back already."
    print_table(("what was done", "source", "chunk", "because"), rows[:limit], nothing)
    say_more(len(rows), limit)


def _stands(one: "Action") -> bool:
    return one.undone_by is None and one.action in _DOING


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


def _list(actions: "list[Action]", limit: int, *, as_json: bool) -> None:
    """Show the runs of retirements, the newest first."""
    runs: dict[str, list[Action]] = defaultdict(list)
    for one in actions:
        runs[one.run_id].append(one)
    found = [
        {
            "run": run_id,
            "at": of[0].at,
            "actor": of[0].actor,
            "hidden": sum(one.action == "demote" for one in of),
            "removed": sum(one.action == "remove" for one in of),
            "restored": sum(one.action == "restore" for one in of),
            "standing": sum(_stands(one) for one in of),
        }
        for run_id, of in reversed(runs.items())
    ]
    if as_json:
        print_json(found)
        return
    for told in found[:limit]:
        counts = {name: told[name] for name in _LISTED if told[name]}
        done = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        back = f"; to take back: {told['standing']:,}" if told["standing"] else ""
        say_on_one_line(str(told["run"]), "bold")
        say(f"  {told['at']:%Y-%m-%d %H:%M} UTC, by {told['actor']}: {done}{back}")
    say_more(len(found), limit)
    if not found:
        say("No retirement has changed anything yet.", "dim")


def _action(one: "Action") -> dict[str, Any]:
    return {
        "action": one.action_id,
        "done": one.action,
        "chunk": one.target,
        "source": str(one.before["metadata"].get("source") or ""),
        "reason": one.reason,
        "actor": one.actor,
        "at": one.at,
    }
