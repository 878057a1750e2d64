"""A run of the loop as Markdown: for a mail, an issue, or a file beside the log."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_feedback.loop._week.reports import LoopReport
from langchain_feedback.loop.health import LoopHealth, loop_health
from langchain_feedback.loop.staleness import open_alarms
from langchain_feedback.loop.worst import worst_questions
from langchain_feedback.store.owner_items import read_items
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["run_as_markdown", "week_as_markdown"]

_MOST_ROWS = 10
_WAITING = ("open", "acknowledged")
_MARKS = {"done": "done", "skipped": "not now", "failed": "**failed**"}
_TITLES = {
    "derive": "Signals",
    "alarms": "Stale documents",
    "missing": "Missing documents",
    "mine": "Review queue",
    "freeze": "Evaluation cases",
    "train": "Training",
    "evaluate": "Evaluation",
    "promote": "Promotion",
    "digest": "Owners",
}
_SPECIAL = str.maketrans({one: f"\\{one}" for one in r"\`*_{}[]<>|~&"})
# Escaped, these would still call a person, name an issue or be a link where they are rendered.
_CALLS = re.compile(r"@|#(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE)


def run_as_markdown(report: LoopReport) -> str:
    """Return what the steps of a run did; no text of a question is in it.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> from langchain_feedback.loop.job import run_loop
        >>> report = run_loop(FeedbackStore("sqlite://"), steps=["derive"])
        >>> print(run_as_markdown(report).splitlines()[-1])
        | Signals | done | Derived no signals from 0 questions. |
    """
    rows = [
        (_TITLES.get(step.name, step.name), _MARKS[step.state], _plain(step.words))
        for step in report.steps
    ]
    return "\n".join([_title(report), "", _summary(report), "", *_table(_STEPS, rows)]) + "\n"


def week_as_markdown(store: "FeedbackStore", report: LoopReport) -> str:
    """Return what a run did, how the loop stands, and what needs somebody now.

    Nobody's words are markup or mentions in it. It quotes questions that people asked, and
    `forget` does not reach a file: keep it no longer than you may keep those.

    Args:
        store: Whose loop it is.
        report: What the run did.

    Raises:
        StoreError: If the database cannot be read.
    """
    health = loop_health(store)
    verdict = f"**{_plain(health.verdict)}.** {_plain(health.why)}"
    parts = [run_as_markdown(report).rstrip(), "## How the loop stands", verdict]
    if wanted := [f"- {line}" for line in _wanted(report, health)]:
        parts += ["## What needs somebody", "\n".join(wanted)]
    for title, head, rows in _lists(store):
        if rows:
            parts += [f"## {title}", "\n".join(_table(head, rows))]
    return "\n\n".join(parts) + "\n"


_STEPS = ("step", "", "what happened")


def _title(report: LoopReport) -> str:
    name = report.namespace
    return f"# The loop of {_plain(name)}, {report.started_at:%Y-%m-%d %H:%M} UTC"


def _summary(report: LoopReport) -> str:
    words = {"done": "All steps ran.", "failed": "The run failed."}.get(
        report.state, f"The run is {report.state}."
    )
    failed = ", ".join(_TITLES.get(step.name, step.name) for step in report.failed)
    words += f" What failed: {failed}." if failed else ""
    words += " It was interrupted and resumed." if report.resumed else ""
    may = "may promote a ranker" if report.auto_promote else "promotes nothing by itself"
    return f"{words} It {may}."


def _wanted(report: LoopReport, health: LoopHealth) -> Iterable[str]:
    """Yield what a person has to do."""
    if health.queue.waiting:
        yield f"Review, {health.queue.waiting} waiting: `langchain-feedback loop review`"
    promotion = report.step("promote")
    if promotion is not None and (waits := promotion.facts.get("waits")):
        yield f"Decide on a ranker: `langchain-feedback loop promote --to {waits}`"
    if health.corrections.owner_open:
        yield f"Correct or write documents, {health.corrections.owner_open} asked for"


def _lists(
    store: "FeedbackStore",
) -> Iterable[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]:
    worst = [
        (_plain(one.question), one.asks, one.negative, f"{one.failure_rate:.0%}")
        for one in worst_questions(store, limit=_MOST_ROWS)
    ]
    yield "Questions that go wrong most", ("question", "asked", "bad", "failure rate"), worst
    with reading(store) as connection:
        items = read_items(
            connection, store.namespace, kinds=["missing_document"], states=_WAITING
        )
    missing = sorted(items, key=lambda item: -int(item.snapshot.get("asks") or 0))[:_MOST_ROWS]
    yield (
        "Documents that are missing",
        ("question", "asked", "owner", "state"),
        [
            (_plain(one.question), one.snapshot.get("asks") or "", _plain(one.owner), one.state)
            for one in missing
        ],
    )
    alarms = [
        (_plain(one.source), one.kind, f"{one.raised_at:%Y-%m-%d}")
        for one in open_alarms(store)[:_MOST_ROWS]
    ]
    yield "Open alarms", ("document", "why", "since"), alarms


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [
        f"| {' | '.join(str(cell) for cell in line)} |".replace("|  |", "| |") for line in lines
    ]


def _plain(text: str) -> str:
    """Return text on one line, each sign that Markdown or HTML would read made plain."""
    return _CALLS.sub("\\g<0>\u200b", " ".join(text.split()).translate(_SPECIAL))
