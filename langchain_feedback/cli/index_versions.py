"""`langchain-feedback index versions`: which build of an index is searched."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import Do, again, next_step, other
from langchain_feedback.cli.index_shared import FINDINGS, Index, some_index_of, watched
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
    say_on_one_line,
)

if TYPE_CHECKING:
    from langchain_feedback.index.managed import ManagedIndex
    from langchain_feedback.index.versions import IndexRegistry, IndexVersion, Switched
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Builds of an index, side by side, one of which is searched.",
)

Force = Annotated[
    bool, typer.Option("--force", help="Although it cannot be opened here, or differs.")
]

_UNTOLD = "0: index"
_READY = ("ready", "retired")


@app.command("list")
def list_(
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Show the versions, oldest first, and what spoke against those that are not ready.

    Example: langchain-feedback index versions list
    """
    with watched(), opened(database, namespace) as store:
        found = _registry(store).versions()
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    rows = [
        (one.version, one.status, one.chunk_count or "",
         f"{one.activated_at:%Y-%m-%d %H:%M}" if one.activated_at else "")
        for one in found
    ]  # fmt: skip
    print_table(
        ("version", "state", "chunks", "active since, UTC"), rows, "There are no versions."
    )
    for one in found:
        if against := _against(one):
            say(f"{one.version}: {against}", "yellow")


@app.command()
def activate(  # noqa: PLR0917  each is an option
    context: typer.Context,
    version: Annotated[str, typer.Argument(help="One that is ready, or was active before.")],
    expect: Annotated[
        str | None, typer.Option(help="Which one is active now, as you know it.")
    ] = None,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    apply: Do = False,
    force: Force = False,
    by: Actor = "",
    as_json: Json = False,
) -> None:
    """Show what searching another version would mean; --apply switches to it.

    It does so only if the version that is active is the one that you expect,
    and where the index gives `open_version`, only if it can be opened. Hooks
    of the index, if it has any, are told. Ends with 1 if it would switch, or
    a hook was not told.

    Example: langchain-feedback index versions activate v2 --expect v1 --apply
    """
    with watched(), opened(database, namespace) as store:
        managed = some_index_of(index)
        registry = managed.registry(store) if managed else _registry(store)
        new, active = registry.get(version), registry.active()
        done = None
        if apply:
            _check_expect(expect, new, active, context)
            _check_opens(managed, new, force=force)
            expected = active.version if active and expect is None else expect
            done = registry.activate(version, expected=expected, actor=name_of(by))
        elif new.status not in (*_READY, "active"):
            msg = f"Version {version!r} is {new.status}: {_against(new) or 'check it first'}."
            raise ValueError(msg)
        else:
            _check_opens(managed, new, force=force)
    if done:
        _switched(context, done, as_json=as_json)
        return
    _show_switch(context, new, active, expect, as_json=as_json)


@app.command()
def rollback(  # noqa: PLR0917  each is an option
    context: typer.Context,
    expect: Annotated[
        str | None, typer.Option(help="Only if this one is active: the one to be taken back.")
    ] = None,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    force: Force = False,
    by: Actor = "",
    as_json: Json = False,
) -> None:
    """Search at once what was searched before: this needs no --apply.

    Whoever needs it is in a hurry, and `activate` takes it back. It is
    refused if the index gives `open_version`, and that cannot open it. It
    also works where the index cannot be made: then nobody opens it first,
    its hooks are not told, and it ends with 1.

    Example: langchain-feedback index versions rollback
    """
    from langchain_feedback.index._versions.rows import before_active  # noqa: PLC0415

    with watched(), opened(database, namespace) as store:
        trouble = ""
        try:
            managed = some_index_of(index)
        except ValueError as error:
            managed, trouble = None, str(error)
        registry = managed.registry(store) if managed else _registry(store)
        active, before = registry.active(), before_active(registry.history())
        if before is not None and (expect is None or (active and active.version == expect)):
            _check_opens(managed, registry.get(before), force=force)
            expect = active.version if active else None  # so that it is the one that was opened
        done = registry.rollback(expected=expect, actor=name_of(by))
        if trouble:
            done = replace(done, untold={**done.untold, _UNTOLD: trouble})
    _switched(context, done, as_json=as_json)


def _registry(store: "FeedbackStore") -> "IndexRegistry":
    from langchain_feedback.index.versions import IndexRegistry  # noqa: PLC0415

    return IndexRegistry(store)


def _check_opens(managed: "ManagedIndex | None", version: "IndexVersion", *, force: bool) -> None:
    """Make sure that readers can open a version, where anything tells how they do.

    Raises:
        ValueError: If they cannot.
    """
    if force or managed is None or managed.open_version is None:
        return
    from langchain_feedback.index._managed.opening import unopened  # noqa: PLC0415

    if why := unopened(managed.open_version, version):
        msg = (
            f"Nothing was changed. Of version {version.version!r}: {why}. With --force it is "
            "activated all the same."
        )
        raise ValueError(msg)


def _check_expect(
    expect: str | None,
    new: "IndexVersion",
    active: "IndexVersion | None",
    context: typer.Context,
) -> None:
    """Make sure that somebody said which version is to be replaced.

    Raises:
        ValueError: If nobody did, and one is active.
    """
    if expect is not None or active is None or active.key == new.key:
        return
    msg = (
        f"{active.version!r} is active. If that is the one to replace: "
        f"{again(context, '--expect', active.version, '--apply')}"
    )
    raise ValueError(msg)


def _against(version: "IndexVersion") -> str:
    """Return what its checks found, for people."""
    forced = version.checks.get("judged", {}).get("forced", ())
    return "; ".join(
        f"{name}: {check['why']}" + (" (forced)" if name in forced else "")
        for name, check in version.checks.items()
        if check.get("ok") is False
    )


def _as_json(version: "IndexVersion") -> dict[str, Any]:
    embedder = version.embedder
    told = {name: value for name, value in vars(version).items() if name != "embedder"}
    if embedder is None:
        return {**told, "embedder": None}
    # The vectors that tell it from others are for programs that compare them, not for a list.
    shown = {name: of for name, of in vars(embedder).items() if name != "probes"}
    return {**told, "embedder": shown}


def _switched(context: typer.Context, done: "Switched", *, as_json: bool) -> None:
    """Say what is searched now."""
    if as_json:
        told = {"active": done.active.version, "before": done.before, "untold": dict(done.untold)}
        print_json(told)
    else:
        before = f", before {done.before}" if done.before != done.active.version else ""
        say(f"Version {done.active.version} is active{before}.", "bold green")
        for name, why in done.untold.items():
            say(f"Not told: {name.partition(': ')[2]}: {why}", "bold red")
        if done.untold:
            say("Readers that follow the registry have switched; others have not. Tell them:")
            command = f"versions activate {shlex.quote(done.active.version)}"
            say_on_one_line(other(context, command, "--apply"))
    if done.untold:
        raise typer.Exit(FINDINGS)


def _show_switch(
    context: typer.Context,
    new: "IndexVersion",
    active: "IndexVersion | None",
    expect: str | None,
    *,
    as_json: bool,
) -> None:
    """Say what activating a version would mean."""
    current = active.version if active else None
    is_same = active is not None and active.key == new.key
    more: list[str] = [] if expect is not None or current is None else ["--expect", current]
    if as_json:
        command = None if is_same else again(context, *more, "--apply")
        print_json({"version": _as_json(new), "active": current, "command": command})
    elif is_same:
        say(f"Version {new.version} is active already.", "green")
    else:
        say(f"{current or 'nothing'} -> {new.version}", "bold")
        before = f", and {active.chunk_count:,} before" if active else ""
        say(f"{new.chunk_count:,} chunks{before}.")
        rows = [
            (name, "yes" if check["ok"] else "no", check["why"])
            for name, check in new.checks.items()
            if "ok" in check
        ]
        print_table(("check", "passed", "found"), rows, "It was never checked.")
        if expect is not None and expect != current:
            say(f"You expect {expect!r}, and {current!r} is active: it would refuse.", "yellow")
        next_step(context, *more, "--apply")
    if not is_same:
        raise typer.Exit(FINDINGS)
