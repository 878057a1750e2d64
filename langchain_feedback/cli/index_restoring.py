"""`langchain-feedback index restore`: what a retirement took out, and how it comes back."""

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import Do, next_step, other
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
    from langchain_feedback.index.retirement import Action
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["restore"]

_LISTED = ("hidden", "removed", "restored")
_DOING = {"demote": "hide", "remove": "remove"}


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
        if any(one.reason.startswith("gated") for one in standing):
            say("What the gate had a reason against is allowed by you now. To take that back:")
            say_on_one_line(f"{other(context, 'allow CHUNK')} --undo", "dim")
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
