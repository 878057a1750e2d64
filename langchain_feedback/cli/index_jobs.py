"""`langchain-feedback index health`, `nightly`, `export`, `rebuild`: jobs, and the warehouse."""

import shlex
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import Do, next_step, with_place
from langchain_feedback.cli.index_scoring import Sharding, Workers, shard_of
from langchain_feedback.cli.index_shared import Index, index_of, watched
from langchain_feedback.cli.progress import counted, waiting
from langchain_feedback.cli.shared import (
    DATABASE,
    Actor,
    Database,
    Json,
    Namespace,
    name_of,
    opened,
    print_json,
    say,
)
from langchain_feedback.errors import StoreError

if TYPE_CHECKING:
    from langchain_feedback.index.health import IndexHealth
    from langchain_feedback.index.jobs import NightlyReport, Shard
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["export", "health", "nightly", "rebuild"]

Folder = Annotated[Path, typer.Argument(file_okay=False, help="Of the export.")]

_STYLES = {
    "failed": "bold red",
    "ALARM": "bold red",
    "finding": "yellow",
    "findings": "bold yellow",
    "planned": "bold yellow",
    "skipped": "dim",
    "clean": "green",
    "done": "bold green",
}


def nightly(  # noqa: PLR0917  each is an option
    context: typer.Context,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    apply: Do = False,
    shard: Sharding = None,
    workers: Workers = 1,
    by: Actor = "",
    as_json: Json = False,
) -> None:
    """Do a night's work: judge new texts, fold back, retire, look at the health.

    A step that fails keeps no other one from running. Ends with 0, with 1 if
    there is something to look at, with 2 if a step failed or another process
    is at it.

    Example: langchain-feedback index nightly --index my_app:index --apply
    """
    from langchain_feedback.index.health import check_health  # noqa: PLC0415
    from langchain_feedback.index.jobs import nightly as night  # noqa: PLC0415

    looked: list[IndexHealth] = []

    def looked_at() -> "IndexHealth":
        looked.append(_with_place(context, check_health(store, managed)))
        return looked[-1]

    with watched(), opened(database, namespace) as store:
        managed, share = index_of(index), shard_of(shard)
        report = night(
            store,
            score=lambda: _scored(store, share, workers),
            foldback=managed.folded(store) if managed.foldback else None,
            retirement=managed.retirement(store) if managed.vector_store is not None else None,
            health=looked_at,
            apply=apply,
            actor=name_of(by),
        )
    if as_json:
        print_json(report.as_dict() | {"health": looked[0].as_dict() if looked else None})
    else:
        _show_night(report)
        if any(step.status == "planned" for step in report.steps):
            next_step(context, "--apply")
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def health(
    context: typer.Context,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    as_json: Json = False,
) -> None:
    """Show whether the index is still what it was: its chunks, writes, sources and answers.

    What the index gives no data for is skipped; an index of which nothing is
    known is a finding. Ends with 1 if something was found, with 2 if a check
    could not be done.

    Example: langchain-feedback index health --index my_app:index --json
    """
    from langchain_feedback.index.health import check_health  # noqa: PLC0415

    with watched(), opened(database, namespace) as store:
        managed = index_of(index)
        with waiting("Looking at the index"):
            found = check_health(store, managed)
    found = _with_place(context, found)
    if as_json:
        print_json(found.as_dict())
    else:
        _show_health(found)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def export(
    folder: Folder,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Write signals, traces and candidates as Parquet files, one of each month.

    Again into the same folder, it writes what changed; a folder with other
    files in it is refused.

    Example: langchain-feedback index export warehouse
    """
    from langchain_feedback.store.warehouse import export_parquet  # noqa: PLC0415

    with watched(), opened(database, namespace) as store, waiting("Writing Parquet files"):
        _check_own(folder)
        done = export_parquet(store, folder)
    if as_json:
        print_json(vars(done))
        return
    words = f"{done.signals:,} signals, {done.traces:,} traces, {done.candidates:,} candidates"
    say(f"{words}: {done.files} files, {done.written} of them written now.", "bold green")


def rebuild(
    folder: Folder,
    out: Annotated[
        Path, typer.Option(dir_okay=False, help="The Parquet file to write, in place of another.")
    ],
    half_life: Annotated[
        float | None, typer.Option(help="In days; without it, that of the store.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Work the evidence out anew from an export, by DuckDB; no store is opened or changed.

    It equals what the store holds, unless the votes age at another half-life.

    Example: langchain-feedback index rebuild warehouse --out evidence.parquet
    """
    with watched():
        if out.resolve().is_relative_to(folder.resolve()):
            msg = f"{out} lies in the export, which is read as a whole: write it elsewhere."
            raise ValueError(msg)
        with waiting("Adding votes up"):
            table = _rebuilt(folder, half_life)
        # It is there: the table is one of its own.
        import_module("pyarrow.parquet").write_table(table, out)
    if as_json:
        print_json({"rows": table.num_rows, "file": str(out)})
    else:
        say(f"{table.num_rows:,} rows of evidence are in {out}.", "bold green")


def _with_place(context: typer.Context, found: "IndexHealth") -> "IndexHealth":
    """Return what was found with commands that can be copied."""
    checks = tuple(replace(one, todo=with_place(context, one.todo)) for one in found.checks)
    return replace(found, checks=checks)


def _check_own(folder: Path) -> None:
    """Make sure that a folder holds nothing but an export.

    Raises:
        ValueError: If it does.
    """
    for one in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_table = one.is_dir() and all(of.name.startswith("month=") for of in one.iterdir())
        # What begins with a dot is hidden, or a file of an export that died.
        if not (is_table or one.name == "manifest.json" or one.name.startswith(".")):
            msg = f"{folder} holds other files, such as {one.name!r}: give the export its own."
            raise ValueError(msg)


def _rebuilt(folder: Path, half_life: float | None) -> Any:
    from langchain_feedback.store.warehouse import (  # noqa: PLC0415
        rebuild_evidence_with_duckdb,
    )

    try:
        if half_life is None:
            return rebuild_evidence_with_duckdb(folder)
        return rebuild_evidence_with_duckdb(folder, half_life_days=half_life)
    except StoreError as error:
        command = f"`langchain-feedback index export {shlex.quote(str(folder))}`"
        told = str(error).replace("export_parquet", command)
        raise StoreError(told) from error


def _scored(store: "FeedbackStore", shard: "Shard | None", workers: int) -> str:
    from langchain_feedback.index.jobs import catalog_documents, score_corpus  # noqa: PLC0415

    with counted("Judging chunks") as on_more:
        known = catalog_documents(store, shard=shard)
        done = score_corpus(store, known, workers=workers, progress=on_more)
    words = f"{done.seen:,} chunks, {done.scored:,} texts judged now"
    return f"{words}, {done.gated:,} of those are junk"


def _show_night(report: "NightlyReport") -> None:
    for step in report.steps:
        style = _STYLES.get(step.status, "")
        say(f"{step.name}: {step.status}, {step.seconds:.1f} s", style)
        for line in step.said.splitlines():
            say(f"  {line}")


def _show_health(found: "IndexHealth") -> None:
    first, *lines = str(found).splitlines()
    say(f"{first}.", "bold")
    say("")
    for line in lines:
        kind = line.partition(" ")[0]
        say(line, _STYLES.get(kind, ""))
