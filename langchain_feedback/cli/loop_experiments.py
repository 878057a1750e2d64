"""`langchain-feedback loop experiment`: two ways of retrieving, compared on live questions."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_feedback.cli.shared import (
    DATABASE,
    Database,
    Days,
    Json,
    Namespace,
    opened,
    print_json,
    print_table,
    say,
    told,
)
from langchain_feedback.errors import PeekError

if TYPE_CHECKING:
    from langchain_feedback.loop.experiments import ExperimentReport
    from langchain_feedback.store.experiments import ExperimentRecord

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Compare two ways of retrieving on live questions; the end is fixed before the start.",
)

Name = Annotated[str, typer.Argument(help="The experiment's name.")]


@app.command()
def start(  # noqa: PLR0917  each is an option
    name: Name,
    kind: Annotated[
        str, typer.Option(help="interleave (both answer each question), or ab (by person).")
    ] = "interleave",
    credit: Annotated[
        str, typer.Option(help="What tells: clicks, citations, or for ab also ratings.")
    ] = "clicks",
    effect: Annotated[float, typer.Option(help="What is to be found, in points.")] = 5.0,
    share: Annotated[float, typer.Option(help="ab: the share of people who get b.")] = 0.5,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Questions to wait for; without it, worked out.")
    ] = None,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Begin one, and say how many questions it needs."""
    from langchain_feedback.loop.experiments import start_experiment  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        record = start_experiment(
            store,
            name,
            kind,  # type: ignore[arg-type]  # it checks
            credit=credit,  # type: ignore[arg-type]
            effect=effect,
            share=share,
            horizon=horizon,
        )
    if as_json:
        print_json(asdict(record))
        return
    needed = int(record.settings.get("needed", record.horizon))
    say(f"To find {effect:g} points it needs {needed:,} questions.", "bold")
    if record.horizon < needed:
        say(f"It ends after {record.horizon:,}: a difference may well be missed.", "yellow")
    wrapper = "InterleavedRetriever" if kind == "interleave" else "SplitRetriever"
    say(f"It begins with the first question to {wrapper}(..., experiment={name!r}).")


@app.command()
def report(
    name: Name,
    peek: Annotated[
        bool, typer.Option("--peek", help="Before its end: the counts, without a verdict.")
    ] = False,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Read one at its end; before it there is no verdict."""
    from langchain_feedback.loop.experiments import experiment_report  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        try:
            found = experiment_report(store, name, peek=peek)
        except PeekError as error:
            raise PeekError(str(error).replace("`peek=True`", "`--peek`")) from error
    if as_json:
        print_json(asdict(found))
    else:
        _show(found)


@app.command()
def stop(
    name: Name,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Give one up: a answers alone again, and there is no verdict."""
    from langchain_feedback.loop.experiments import stop_experiment  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        record = stop_experiment(store, name)
    if as_json:
        print_json(asdict(record))
    else:
        say(f"{name}: {_state(record)}.")


@app.command("list")
def list_(
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """What was compared, newest first."""
    from langchain_feedback.loop.experiments import list_experiments  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        found = list_experiments(store)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (one.name, one.kind, one.settings.get("credit", ""), one.horizon, one.peeks or "",
         f"{one.started_at:%Y-%m-%d}", _state(one))
        for one in found
    ]  # fmt: skip
    head = ("name", "kind", "by", "questions", "peeks", "since", "state")
    print_table(head, rows, "There are no experiments.")


@app.command()
def shadow(
    database: Database = DATABASE,
    namespace: Namespace = "default",
    days: Days = 28,
    as_json: Json = False,
) -> None:
    """Where the ranker in the shadow would have put what people credited."""
    from langchain_feedback.loop.shadowing import shadow_report  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        found = shadow_report(store, days=days)
    if as_json:
        print_json(asdict(found))
        return
    say(f"In the shadow: {found.shadow_id or 'nobody'}", "bold")
    say(found.why)


@app.command()
def repeats(
    since: Annotated[
        datetime | None,
        typer.Option(help="Compare before and after it, UTC; without it, the last activation."),
    ] = None,
    days: Days = 28,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Whether the same questions fare better since a ranker orders the pools."""
    from langchain_feedback.loop.repeats import repeat_win_rate  # noqa: PLC0415
    from langchain_feedback.store.rankers import newest_activation  # noqa: PLC0415
    from langchain_feedback.store.transactions import reading  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        if since is None:
            with reading(store) as connection:
                newest = newest_activation(connection, store.namespace)
            if newest is None:
                msg = "No ranker was activated yet. Name a moment with --since."
                raise ValueError(msg)
            since = newest.at
        found = repeat_win_rate(store, since.replace(tzinfo=since.tzinfo or UTC), days=days)
    if as_json:
        print_json(asdict(found))
        return
    rate = "not known yet" if found.win_rate is None else f"{found.win_rate:.0%}"
    say(f"Better since {since:%Y-%m-%d %H:%M} UTC: {rate}", "bold")
    say(found.why)


def _state(record: "ExperimentRecord") -> str:
    if record.result is not None:
        return str(record.result.get("verdict") or "ended")
    return "running" if record.is_running else "stopped"


def _show(found: "ExperimentReport") -> None:
    say(found.verdict or "no verdict yet", "bold green" if found.is_final else "bold yellow")
    say(found.why)
    say("")
    won = "with more credit" if found.kind == "interleave" else "went well"
    rows = [(side, one.questions, one.successes) for side, one in (("a", found.a), ("b", found.b))]
    print_table(("", "questions", won), rows, "")
    if found.peeks:
        times = "once" if found.peeks == 1 else f"{found.peeks} times"
        say(f"Somebody looked {times} before the end.", "dim")
