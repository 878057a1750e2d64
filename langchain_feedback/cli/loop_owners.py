"""What follows a verdict: owners are told, and their fixes are tested."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from langchain_feedback.cli.loading import load
from langchain_feedback.cli.shared import (
    DATABASE,
    Database,
    Json,
    Namespace,
    opened,
    owners_of,
    print_json,
    print_table,
    say,
    told,
)

__all__ = ["deliver", "retest"]


def deliver(
    owners: Annotated[
        Path, typer.Option(envvar="LANGCHAIN_FEEDBACK_OWNERS", help="Who owns what: owners.toml.")
    ],
    folder: Annotated[Path, typer.Option(help="Where the files of the outbox go.")] = Path(
        "outbox"
    ),
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Tell the owners of documents what to correct or write: once a week each."""
    from langchain_feedback.loop.outbox import deliver as send  # noqa: PLC0415
    from langchain_feedback.loop.outbox import write_digests  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        known = owners_of(owners)
        new = write_digests(store, known) if known else 0
        done = send(store, known, folder=folder) if known else None
    if as_json:
        print_json({"new": new, **(asdict(done) if done else {})})
        return
    if done:
        say(f"Digests: {new} new, {done.sent} sent, {done.failed} failed, {done.waiting} waiting.")


def retest(
    asked: Annotated[
        str, typer.Option("--app", help="module:factory, which makes a graph or a retriever.")
    ],
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Ask again what was corrected or missing, and close what is answered now."""
    from langchain_feedback.loop.corrections import Corrections  # noqa: PLC0415
    from langchain_feedback.loop.retesting import retest as ask_again  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        made = load(asked)
        Corrections(store).check_fixed()
        found = ask_again(store, made)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (one.question, one.kind, one.state_before, one.state, " ".join(one.why) or "answered")
        for one in found
    ]
    head = ("question", "kind", "was", "is", "why")
    print_table(head, rows, "Nothing waits for a retest.")
