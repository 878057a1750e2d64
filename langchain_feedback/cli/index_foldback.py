"""`langchain-feedback index foldback`: accepted questions, and what serves their sources."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import (
    Apply,
    Applying,
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
)
from langchain_feedback.index.errors import IndexBusyError

if TYPE_CHECKING:
    from langchain_feedback.index.foldback import Derived, FoldBack, Plan

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Accepted questions, whose sources get an extra slot when they are asked again.",
)

Entry = Annotated[str, typer.Argument(help="The id of an entry, or how it begins.")]

_REPAIR = "The next `index foldback run` writes it."
_SHORT = 8
_STATES = ("candidate", "active", "expired", "rejected")


@app.command("list")
def list_(  # noqa: PLR0917  each is an option
    status: Annotated[str | None, typer.Option(help=f"Only those: {', '.join(_STATES)}.")] = None,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Show the entries, those first that wait for somebody's word.

    Example: langchain-feedback index foldback list --index my_app:index --status candidate
    """
    with watched(), opened(database, namespace) as store:
        if status is not None and status not in _STATES:
            msg = f"--status is one of {', '.join(_STATES)}; got {status!r}"
            raise ValueError(msg)
        found = index_of(index).folded(store).list(status)  # type: ignore[arg-type]  # checked
    found.sort(key=lambda one: (_STATES.index(one.status), one.derived_id))
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    rows = [
        (one.derived_id[:_SHORT], one.status, one.question or "(removed)",
         one.votes.get("positive", ""), one.votes.get("negative", ""),
         ", ".join(key for key, _ in one.sources))
        for one in found[:limit]
    ]  # fmt: skip
    head = ("entry", "state", "question", "for", "against", "sources")
    print_table(head, rows, "There are no entries.")
    say_more(len(found), limit)


@app.command()
def approve(  # noqa: PLR0917  each is an option
    entry: Entry,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    by: Actor = "",
    as_json: Json = False,
) -> None:
    """Let an entry serve, whatever its votes; its review item is closed.

    It is written into the index of questions at once. A process that has that
    index in memory serves it once it loads the index anew.

    Example: langchain-feedback index foldback approve 5d2c91e0 --index my_app:index
    """
    _decide(entry, database, namespace, index, by, serve=True, as_json=as_json)


@app.command()
def reject(  # noqa: PLR0917  each is an option
    entry: Entry,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    by: Actor = "",
    as_json: Json = False,
) -> None:
    """Keep an entry from serving for good, in any process, at once; its review item is closed.

    Example: langchain-feedback index foldback reject 5d2c91e0 --index my_app:index
    """
    _decide(entry, database, namespace, index, by, serve=False, as_json=as_json)


@app.command(cls=Applying)
def run(  # noqa: PLR0917  each is an option
    context: typer.Context,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    apply: Apply = None,
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Show which entries would come, serve or go; --apply does it.

    Ends with 1 if there are any.

    Example: langchain-feedback index foldback run --index my_app:index --apply 3f0a9c81d2e4
    """
    with watched(), opened(database, namespace) as store:
        foldback = index_of(index).folded(store)
        with waiting("Looking at answers and votes"):
            plan = foldback.plan()
        done = None
        if plan and is_reviewed(apply, plan.digest, _line(plan), context):
            with waiting("Writing the index of questions"):
                done = foldback.apply(plan)
    if as_json:
        command = again(context, *digest_option(plan.digest)) if plan and not done else None
        applied = None if done is None else vars(done)
        print_json(_plan_as_json(plan) | {"applied": applied, "command": command})
    elif done:
        told = ", ".join(f"{count} {kind}" for kind, count in done.counts.items()) or "no entries"
        words = f"Changed: {told}; {done.written} questions written, {done.removed} removed."
        say(words, "bold green")
        if done.written:
            say_when_loaded()
    else:
        _show(plan, limit)
        if plan:
            next_step(context, *digest_option(plan.digest))
    if plan and not done:
        raise typer.Exit(FINDINGS)


def _decide(
    entry: str,
    database: str,
    namespace: str,
    index: str | None,
    by: str,
    *,
    serve: bool,
    as_json: bool,
) -> None:
    with watched(), opened(database, namespace) as store:
        foldback = index_of(index).folded(store)
        derived_id = _named(foldback, entry)
        decide = foldback.approve if serve else foldback.reject
        try:
            done = decide(derived_id, name_of(by))
        except IndexBusyError as error:
            said = "active" if serve else "rejected"
            now = next(one.status for one in foldback.list() if one.derived_id == derived_id)
            if now != said:
                raise  # it was seen in time, and nothing was done
            msg = f"It is {said}, but the index of questions is not written yet: {error} {_REPAIR}"
            raise IndexBusyError(msg) from error
    if as_json:
        print_json(_as_json(done))
        return
    said = "is active" if serve else "does not serve in any process, now or later"
    say(f"{done.question or done.derived_id}: {said}.", "bold green")
    if serve:
        say_when_loaded()


def _named(foldback: "FoldBack", given: str) -> str:
    """Return the id of the entry that is named, or whose id begins so.

    Raises:
        ValueError: If several ids begin so.
    """
    known = [one.derived_id for one in foldback.list()]
    alike = [derived_id for derived_id in known if given and derived_id.startswith(given)]
    if len(alike) > 1 and given not in alike:
        msg = f"The ids of {len(alike)} entries begin with {given!r}: give more of it."
        raise ValueError(msg)
    return alike[0] if len(alike) == 1 else given


def _as_json(one: "Derived") -> dict[str, Any]:
    told = {name: value for name, value in vars(one).items() if name != "sources"}
    sources = [{"chunk": key, "content_hash": of} for key, of in one.sources]
    return {**told, "sources": sources}


def _plan_as_json(plan: "Plan") -> dict[str, Any]:
    changes = [
        {"kind": one.kind, "entry": one.entry.derived_id, "question": one.entry.question}
        | {"status": one.entry.status, "reason": one.reason}
        for one in plan.changes
    ]
    index = {name: count for name, count in plan.index.counts.items() if name != "keep"}
    return {"digest": plan.digest, "changes": changes, "index": index}


def _counts(plan: "Plan") -> str:
    counts = ", ".join(f"{count:,} to {kind}" for kind, count in plan.counts.items())
    writes = f"{len(plan.index.written):,} to write, {len(plan.index.remove):,} to remove"
    return f"{counts or 'No entry to change'}; of the index of questions, {writes}"


def _line(plan: "Plan") -> str:
    """Return a plan in a line, with the one digest that `--apply` takes."""
    return f"{_counts(plan)}; digest {plan.digest[:12]}"


def _show(plan: "Plan", limit: int) -> None:
    say(f"{_counts(plan)}.", "bold")
    say("")
    rows = [
        (one.kind, one.entry.derived_id[:_SHORT], one.entry.question or "(removed)", one.reason)
        for one in plan.changes[:limit]
    ]
    if rows or not plan.index:
        print_table(("do", "entry", "question", "because"), rows, "No entry is to be changed.")
    say_more(len(plan.changes), limit)
