"""`langchain-feedback loop`: from signals to a reviewed fix, in the terminal."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer
from rich.console import Console

from langchain_feedback.cli.loop_experiments import app as experiment_app
from langchain_feedback.cli.loop_learning import COMMANDS
from langchain_feedback.cli.loop_owners import deliver, retest
from langchain_feedback.cli.loop_running import run
from langchain_feedback.cli.loop_status import status
from langchain_feedback.cli.shared import (
    DATABASE,
    Database,
    Days,
    Json,
    Limit,
    Namespace,
    Owning,
    name_of,
    opened,
    owners_of,
    print_json,
    print_table,
    say,
    say_more,
    told,
)
from langchain_feedback.tokens import FeedbackTokens

__all__ = ["app"]

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, help="From signals to a reviewed fix."
)

_LONGEST_NAME = 80


@app.command()
def worst(
    database: Database = DATABASE,
    namespace: Namespace = "default",
    days: Days = 7,
    limit: Limit = 40,
    as_json: Json = False,
) -> None:
    """Which questions go wrong most."""
    from langchain_feedback.loop.worst import worst_questions  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        found = worst_questions(store, days=days, limit=limit)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (one.question, one.asks, one.negative, one.positive, f"{one.failure_rate:.0%}",
         f"{one.score:.1f}")
        for one in found
    ]  # fmt: skip
    head = ("question", "asked", "bad", "good", "failure rate", "excess answers")
    print_table(head, rows, "Nothing stands out: no question has two signals that agree.")


@app.command()
def sources(
    database: Database = DATABASE,
    namespace: Namespace = "default",
    days: Days = 28,
    limit: Limit = 40,
    as_json: Json = False,
) -> None:
    """Which documents do the damage, with their open alarms."""
    from langchain_feedback.loop.sources import source_reports  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        found = source_reports(store, days=days)
    if as_json:
        print_json([asdict(one) for one in found[:limit]])
        return
    rows = [
        (one.source, one.answers, one.failures, f"{one.damage:.0f}", f"{one.cited_rate:.0%}",
         ", ".join(alarm.kind for alarm in one.alarms), one.open_items or "")
        for one in found[:limit]
    ]  # fmt: skip
    head = ("source", "answers", "failed", "damage", "cited", "alarms", "open items")
    print_table(head, rows, "No answer rested on a source. Name it in metadata as `source`.")
    say_more(len(found), limit)


@app.command()
def mine(  # noqa: PLR0917  each is an option
    database: Database = DATABASE,
    namespace: Namespace = "default",
    days: Days = 7,
    limit: Annotated[int, typer.Option(min=1, help="The most items that may wait.")] = 40,
    owners: Owning = None,
    double: Annotated[
        float, typer.Option(min=0, max=1, help="The share that two people see; alone: 0.")
    ] = 0.1,
    as_json: Json = False,
) -> None:
    """Derive signals, check the sources, and fill the review queue; twice is harmless."""
    from langchain_feedback.loop.derive import derive_signals  # noqa: PLC0415
    from langchain_feedback.loop.mining import mine as fill  # noqa: PLC0415
    from langchain_feedback.loop.missing import missing_documents  # noqa: PLC0415
    from langchain_feedback.loop.review import ReviewQueue  # noqa: PLC0415
    from langchain_feedback.loop.staleness import check_sources  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        derived = derive_signals(store)
        alarms = check_sources(store)
        missing = missing_documents(store, owners=owners_of(owners))
        mined = fill(store, days=days, limit=limit, queue=ReviewQueue(store, double=double))
    if as_json:
        print_json(
            {
                "derived": derived.added,
                "alarms": [asdict(alarm) for alarm in alarms],
                "missing_documents": len(missing),
                "items": asdict(mined),
            }
        )
        return
    signals = ", ".join(f"{count} {name}" for name, count in derived.added.items()) or "none"
    say(f"Signals derived: {signals}.")
    say(f"New alarms: {', '.join(f'{one.kind} {one.source}' for one in alarms) or 'none'}.")
    say(f"Documents that are missing: {len(missing)}.")
    say(f"Items added to the queue: {mined.added}. Waiting: {mined.waiting}.", "bold")
    if mined.waiting:
        say("Next: langchain-feedback loop review", "dim")


@app.command()
def review(  # noqa: PLR0917  each is an option
    database: Database = DATABASE,
    namespace: Namespace = "default",
    reviewer: Annotated[str, typer.Option(help="Your name; without it, the login name.")] = "",
    owners: Owning = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take your last verdict back.")] = False,
    as_json: Json = False,
) -> None:
    """Work through the queue; with --json, show how it stands and take nothing."""
    from langchain_feedback.cli.loop_review import work_through  # noqa: PLC0415
    from langchain_feedback.loop.review import ReviewQueue  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        queue = ReviewQueue(store, owners=owners_of(owners))
        if as_json:
            waiting = [asdict(item) for item in queue.items(state="open")]
            for item in waiting:
                del item["claim_token"]
            print_json({"progress": asdict(queue.progress()), "waiting": waiting})
            return
        if undo:
            undone = queue.undo(name_of(reviewer, "--reviewer"))
            say(f"Taken back: {undone.question}" if undone else "There is nothing to take back.")
            return
        work_through(queue, name_of(reviewer, "--reviewer"), Console())


@app.command()
def export(  # noqa: PLR0917  each is an option
    to: Annotated[
        str, typer.Option(help="jsonl, pairs, triplets, lists, beir, langsmith or argilla.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file; a folder for beir and argilla.")
    ] = None,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    include_unreviewed: Annotated[
        bool, typer.Option("--include-unreviewed", help="Open items too, marked needs_review.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    dataset: Annotated[str | None, typer.Option(help="The LangSmith dataset.")] = None,
    negatives: Annotated[
        str, typer.Option(help="Of triplets: pool (all that nobody named right), or confirmed.")
    ] = "pool",
    as_json: Json = False,
) -> None:
    """Write what reviewers decided, for other tools."""
    from langsmith.utils import LangSmithError  # noqa: PLC0415

    from langchain_feedback.loop.exports import export as write  # noqa: PLC0415

    with told(LangSmithError), opened(database, namespace) as store:
        done = write(
            store,
            to,  # type: ignore[arg-type]  # it checks
            out,
            include_unreviewed=include_unreviewed,
            overwrite=overwrite,
            dataset=dataset,
            negatives=negatives,  # type: ignore[arg-type]
        )
    if as_json:
        print_json(asdict(done))
        return
    where = ", ".join(map(str, done.files)) or dataset or ""
    say(f"{done.rows} rows of {done.questions} reviewed questions: {where}")
    if done.left_out:
        say(f"{done.left_out} questions have nothing to say in this form.", "dim")


app.command()(run)
app.command()(status)
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
app.add_typer(experiment_app, name="experiment")
app.command()(deliver)
app.command()(retest)


@app.command()
def find(
    text: Annotated[str, typer.Argument(help="Words of a question, answer or comment, or an id.")],
    database: Database = DATABASE,
    namespace: Namespace = "default",
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Find a conversation that somebody complains about."""
    from langchain_feedback.loop.finding import find_traces  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        found = find_traces(store, text, limit=limit)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        say(f"{one.created_at:%Y-%m-%d %H:%M}  {one.trace_id}", "cyan")
        say(f"  {one.question}", "bold")
        say(f"  {one.answer or 'No answer was kept.'}")
        for line in one.said:
            say(f"  {line}", "yellow")
    if not found:
        say("Nothing was found.", "dim")


@app.command()
def invite(
    name: Annotated[str, typer.Argument(help="The reviewer.")],
    url: Annotated[str, typer.Option(help="Where the pages are.")] = "http://127.0.0.1:8970",
    as_json: Json = False,
) -> None:
    """Print a signed link that lets somebody review for eight hours after opening it."""
    with told():
        tokens = FeedbackTokens.from_env()
        if tokens is None:
            msg = (
                "LANGCHAIN_FEEDBACK_KEYS is not set. Make a key, and give it to the server too: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
            raise ValueError(msg)
        name = " ".join(name.split())
        if not name or not name.isprintable() or len(name) > _LONGEST_NAME:
            msg = f"A reviewer needs a name of at most {_LONGEST_NAME} characters."
            raise ValueError(msg)
        token = tokens.issue(f"reviewer:{name}", scope="review")
    link = f"{url.rstrip('/')}/login?{urlencode({'reviewer': name, 'token': token})}"
    typer.echo(json.dumps({"reviewer": name, "url": link}) if as_json else link)
