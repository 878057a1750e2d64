"""The flywheel lab in the terminal."""

from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from langchain_feedback.demo.flywheel import run_flywheel
from langchain_feedback.demo.flywheel_plot import check_plot, compared_settings, plot_runs
from langchain_feedback.demo.flywheel_records import FlywheelRun, FlywheelSettings, Policy, Signal
from langchain_feedback.demo.handbook import golden_questions

__all__ = ["run_lab", "show_run"]

_MOST_BARS = 20
_TEN = 10
_RULES = {
    Policy.AVERAGE: "the classic rule (mean rating / 3)",
    Policy.DEFAULT: "this library's defaults",
}
_SIGNALS = {
    Signal.THUMBS: "each answer as a whole",
    Signal.CLICKS: "each source of an answer by itself",
    Signal.CITED: "each answer, where it is known which sources it quotes",
}


def run_lab(
    settings: FlywheelSettings, *, plot: Path | None, database: Path | None
) -> FlywheelRun:
    """Run the lab, and draw it beside the other rules where a picture is asked for.

    Raises:
        ValueError: If `database` exists, or a file cannot be written where it should.
        MissingExtraError: If a picture is asked for, and the `plot` extra is not installed.
    """
    if plot is not None:
        check_plot(plot)
    with Console(stderr=True).status("Asking, rating, asking again ..."):
        run = run_flywheel(settings, database=database)
        if plot is not None:
            others = compared_settings(settings.events)
            runs = {
                name: run if other == settings else run_flywheel(other)
                for name, other in others.items()
            }
            plot_runs(runs, plot)
    return run


def show_run(console: Console, run: FlywheelRun) -> None:
    """Print what a run did to each question, its wrong answers over time, and what that shows."""
    settings = run.settings
    body: list[RenderableType] = [
        Text(f"Rated: {_SIGNALS[settings.signal]}. Ranked by {_RULES[settings.policy]}."),
        Text("recall@2: the share of the evidence that is among an answer's two chunks.", "dim"),
        Padding(_questions(run), (1, 0)),
    ]
    if settings.events:
        body += [Text("Wrong answers over time", "bold"), _bars(run), Text()]
    body.append(Text(_summary(run), "bold"))
    body += [Text(line) for line in _remarks(run)]
    title = f"The flywheel lab: {settings.events} events"
    console.print(Panel(Group(*body), title=title, title_align="left", border_style="cyan"))


def _questions(run: FlywheelRun) -> Table:
    first, last = run.moments[0], run.moments[-1]
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column("question", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in ("before", "after", "asked", "wrong"):
        table.add_column(name, justify="right", no_wrap=True)
    asked = [_asked(run, at) for at in range(len(last.wrong))]
    rows = zip(golden_questions(), first.recall, last.recall, asked, last.wrong, strict=True)
    for golden, before, after, times, wrong in rows:
        style = "green" if after > before else "red" if after < before else ""
        table.add_row(
            golden.question, f"{before:.2f}", Text(f"{after:.2f}", style), str(times), str(wrong)
        )
    table.add_section()
    table.add_row(
        Text("mean recall@2, and all answers", "bold"),
        Text(f"{first.mean_recall:.2f}", "bold"),
        Text(f"{last.mean_recall:.2f}", "bold"),
        Text(str(run.settings.events), "bold"),
        Text(str(sum(last.wrong)), "bold"),
    )
    return table


def _bars(run: FlywheelRun) -> Table:
    """One bar for each ten events; for more where there would be too many bars."""
    events = run.settings.events
    step = _TEN * max(1, -(-events // (_TEN * _MOST_BARS)))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    table.add_column(width=_TEN)
    table.add_column(justify="right")
    for start in range(0, events, step):
        end = min(start + step, events)
        wrong = sum(run.moments[end].wrong) - sum(run.moments[start].wrong)
        # Rounded up: an empty bar means that nothing was wrong.
        tenths = -(-wrong * _TEN // step)
        table.add_row(f"{start + 1}-{end}", Text("█" * tenths, "red"), f"{wrong} of {end - start}")
    return table


def _summary(run: FlywheelRun) -> str:
    """One line that says what the run shows."""
    before, after = run.moments[0].mean_recall, run.moments[-1].mean_recall
    wrong, events = sum(run.moments[-1].wrong), run.settings.events
    moved = "stayed at" if before == after else f"went from {before:.2f} to"
    return f"Mean recall@2 {moved} {after:.2f}; {wrong} of {events} answers were wrong."


def _remarks(run: FlywheelRun) -> Iterator[str]:
    last = run.moments[-1]
    if run.settings.reviewer:
        chunks = "chunk" if last.pins == 1 else "chunks"
        yield f"A reviewer pinned {last.pins} {chunks} that answers lacked; others only rated."
        return
    found = zip(golden_questions(), run.moments[0].orders, strict=True)
    missed = [
        [chunk for chunk in golden.evidence if chunk not in order] for golden, order in found
    ]
    out_of_reach = sum(wrong for wrong, chunks in zip(last.wrong, missed, strict=True) if chunks)
    yield (
        f"{out_of_reach} of these are out of reach of any order: retrieval never finds "
        f"{', '.join(chunk for chunks in missed for chunk in chunks)} for a question that needs "
        "it. A reviewer's pin does it (--reviewer)."
    )


def _asked(run: FlywheelRun, at: int) -> int:
    questions = len(run.moments[0].wrong)
    return (run.settings.events + questions - 1 - at) // questions
