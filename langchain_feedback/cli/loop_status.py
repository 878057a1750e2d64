"""`langchain-feedback loop status`: whether the loop closes, and the numbers that say so."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

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
from langchain_feedback.quotes.plain import plain_text

if TYPE_CHECKING:
    from langchain_feedback.loop.health import LoopHealth, QueueHealth

__all__ = ["status"]

_STYLES = {"closing": "bold green", "collecting": "bold yellow"}
_MOST_RANKERS, _MOST_WEEKS, _MOST_SIGNALS = 8, 6, 4
_RATES = {
    "zero_result": "nothing found",
    "abstained": "abstained",
    "not_grounded": "not grounded",
    "rephrased": "rephrased",
    "complained": "complained of",
}


def status(
    database: Database = DATABASE,
    namespace: Namespace = "default",
    days: Days = 28,
    as_json: Json = False,
) -> None:
    """Whether the loop closes, and where it is stuck."""
    from langchain_feedback.loop.health import loop_health  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        health = loop_health(store, days=days)
    if as_json:
        print_json(asdict(health))
        return
    say(health.verdict, _STYLES.get(health.verdict, "bold red"))
    say(health.why)
    say("")
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column()
    lines.add_column(overflow="fold")
    for name, words in _lines(health).items():
        lines.add_row(Text(name, "bold"), Text(plain_text(words)))
    Console().print(lines)
    say("")
    _show_weeks(health)
    _show_rankers(health)


def _lines(health: "LoopHealth") -> dict[str, str]:
    """Return what is said of each part of the loop, by its name."""
    mended, rankers = health.corrections, health.rankers
    lines = {
        "last run": _run(health),
        "queue": _queue(health.queue),
        "verdicts": _verdicts(health.queue),
        "labels": f"{health.queue.named} questions with a right chunk, {rankers.cases} cases",
        "signals": _signals(health),
        "corrections": (
            f"{mended.answered} of {mended.failing} questions that failed are answered well now; "
            f"asked of owners and open: {mended.owner_open}; alarms: {mended.alarms}"
        ),
        "rankers": (
            f"active: {rankers.active or 'the base order'}; {_trained(health)}, "
            f"{rankers.promoted} promoted, {rankers.rejected} rejected, "
            f"{rankers.rolled_back} rolled back"
        ),
    }
    return {name: words for name, words in lines.items() if words}


def _run(health: "LoopHealth") -> str:
    run = health.run
    if run is None:
        return "none yet: langchain-feedback loop run"
    after = f" after {run.step}" if run.step and run.state != "done" else ""
    return (
        f"{run.state}{after}, {run.started_at:%Y-%m-%d %H:%M} UTC; "
        f"{run.runs} in {health.days:g} days, {run.failed} failed"
    )


def _trained(health: "LoopHealth") -> str:
    runs = health.run.trainings if health.run else 0
    in_runs = f" in {runs} run{'' if runs == 1 else 's'} that were to" if runs else ""
    return f"{health.rankers.trained} trained{in_runs}"


def _queue(queue: "QueueHealth") -> str:
    oldest, each = queue.oldest_days or 0, queue.median_seconds or 0
    since = f", the oldest for {oldest:.0f} days" if oldest >= 1 else ""
    took = f", {each:.0f} s each" if each >= 1 else ""
    return f"{queue.waiting} wait{since}; {queue.cleared_a_week:.0f} decided a week{took}"


def _verdicts(queue: "QueueHealth") -> str:
    shares = ", ".join(f"{share:.0%} {name}" for name, share in queue.verdicts.items() if share)
    if queue.agreement is None:
        return shares
    return f"{shares}; agreement {queue.agreement:.2f} on {queue.double_reviewed} seen twice"


def _signals(health: "LoopHealth") -> str:
    said = health.signals
    if not said.received:
        return "none"
    named = [f"{rate:.1f} {name}" for name, rate in list(said.per_100.items())[:_MOST_SIGNALS]]
    words = f"{said.received} received; for 100 questions {', '.join(named) or 'none in force'}"
    return words + (f"; {said.held:.0%} held back" if said.held else "")


def _show_weeks(health: "LoopHealth") -> None:
    """Print a column for each of the last weeks."""
    weeks = health.weeks[-_MOST_WEEKS:]
    rows: list[tuple[Any, ...]] = [("asked", *(week.rates.asks for week in weeks))]
    rows += [
        (name, *(_percent(getattr(week.rates, field)) for week in weeks))
        for field, name in _RATES.items()
    ]
    rows += [
        ("items decided", *(week.cleared for week in weeks)),
        ("items waiting", *(week.waiting for week in weeks)),
    ]
    head = ("week to", *(f"{week.until:%b %d}" for week in weeks))
    print_table(head, rows, "")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _show_rankers(health: "LoopHealth") -> None:
    rows = [
        (
            one.number,
            one.ranker_id,
            one.state,
            one.groups,
            one.cases or "",
            "" if one.baseline_score is None else f"{one.baseline_score:.3f}",
            "" if one.score is None else f"{one.score:.3f}",
            "" if one.gain is None else f"{100 * one.gain:+.1f}",
        )
        for one in health.rankers.versions[:_MOST_RANKERS]
    ]
    if rows:
        say("")
        head = ("#", "ranker", "state", "labels", "cases", "before", "nDCG", "points")
        print_table(head, rows, "")
