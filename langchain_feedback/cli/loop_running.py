"""`langchain-feedback loop run`: the week in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from langchain_feedback.cli.loading import load
from langchain_feedback.cli.shared import (
    DATABASE,
    Database,
    Days,
    Json,
    Namespace,
    Owning,
    opened,
    owners_of,
    print_json,
    say,
    told,
)
from langchain_feedback.errors import LoopBusyError
from langchain_feedback.quotes.plain import plain_text

if TYPE_CHECKING:
    from langchain_feedback.loop.job import LoopReport, StepReport

__all__ = ["Estimating", "run"]

Estimating = Annotated[
    str | None,
    typer.Option(help="module:factory of an estimator; without it, the linear ranker."),
]

_STEPS = "derive, alarms, missing, mine, freeze, train, evaluate, promote, digest"
"""As `run_loop` has them, which takes half a second to load."""

_FAILED, _BUSY = 1, 3
"""What the command ends with, so that a scheduler can tell."""

_STYLES = {"done": "green", "skipped": "dim", "failed": "bold red"}


def run(  # noqa: PLR0917  each is an option
    database: Database = DATABASE,
    namespace: Namespace = "default",
    auto_promote: Annotated[
        bool,
        typer.Option(
            "--auto-promote", help="Let a ranker that passes the gate order what people get."
        ),
    ] = False,
    step: Annotated[
        list[str] | None, typer.Option(help=f"Only this one; may be repeated: {_STEPS}.")
    ] = None,
    owners: Owning = None,
    outbox: Annotated[
        Path, typer.Option(help="Where the messages to owners go that are files.")
    ] = Path("outbox"),
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write what happened into this Markdown file, too.",
            dir_okay=False,
            writable=True,
        ),
    ] = None,
    estimator: Estimating = None,
    days: Days = 7,
    limit: Annotated[int, typer.Option(min=1, help="The most items that may wait.")] = 40,
    ordinary: Annotated[
        int, typer.Option(min=0, help="Ordinary questions that are drawn for review.")
    ] = 8,
    double: Annotated[
        float, typer.Option(min=0, max=1, help="The share that two people see; alone: 0.")
    ] = 0.1,
    as_json: Json = False,
) -> None:
    """Do what a week needs, in one go; twice is harmless.

    Ends with 0, with 1 if a step failed, with 2 if it could not begin, and with 3 if another
    process does it already.
    """
    from langchain_feedback.loop.digest import week_as_markdown  # noqa: PLC0415
    from langchain_feedback.loop.job import STEPS, run_loop  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        _check_folder(report)
        try:
            done = run_loop(
                store,
                auto_promote=auto_promote,
                estimator=None if estimator is None else load(estimator, "--estimator"),
                owners=owners_of(owners),
                outbox=outbox,
                days=days,
                limit=limit,
                ordinary=ordinary,
                double=double,
                steps=step or STEPS,  # type: ignore[arg-type]  # it checks
                on_step=None if as_json else _show,
            )
        except LoopBusyError as error:
            line = Text(plain_text(str(error)), "yellow")
            Console(stderr=True).print(line, soft_wrap=True)  # one line, also in a log
            raise typer.Exit(_BUSY) from error
        if report is not None:
            report.write_text(week_as_markdown(store, done), encoding="utf-8")
    if as_json:
        print_json(done.as_json())
    else:
        _conclude(done)
    if done.state != "done":
        raise typer.Exit(_FAILED)


def _check_folder(report: Path | None) -> None:
    """See that a report can be written, before a week's work is done."""
    if report is not None and not report.absolute().parent.is_dir():
        msg = f"There is no folder {report.absolute().parent} for the report."
        raise ValueError(msg)


def _show(step: "StepReport") -> None:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=max(map(len, _STEPS.split(", "))))
    line.add_column(width=len("skipped"))
    line.add_column(overflow="fold")
    style = _STYLES[step.state]
    words = Text(plain_text(step.words), "dim" if step.state == "skipped" else "")
    line.add_row(Text(step.name, "bold"), Text(step.state, style), words)
    Console().print(line)


def _conclude(done: "LoopReport") -> None:
    failed = ", ".join(step.name for step in done.failed)
    if failed:
        say(f"Failed: {failed}. The other steps ran; the log says more.", "bold red")
        return
    promotion = done.step("promote")
    if promotion is not None and (waits := promotion.facts.get("waits")):
        say(f"Next: langchain-feedback loop promote --to {waits}", "bold")
    mined = done.step("mine")
    if mined is not None and mined.facts.get("waiting"):
        say(f"Next: langchain-feedback loop review ({mined.facts['waiting']} wait)", "bold")
