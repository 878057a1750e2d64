"""`langchain-feedback index duplicates`, `suggest`, `verify`: what is in an index, looked at."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import other
from langchain_feedback.cli.index_scoring import Catalog, corpus_of
from langchain_feedback.cli.index_shared import (
    FINDINGS,
    Index,
    Rows,
    index_of,
    index_option,
    watched,
)
from langchain_feedback.cli.progress import waiting
from langchain_feedback.cli.shared import (
    DATABASE,
    Database,
    Json,
    Namespace,
    excerpt,
    opened,
    print_json,
    print_table,
    say,
    say_more,
    say_on_one_line,
)

if TYPE_CHECKING:
    from langchain_feedback.index.duplicates import Chunk, Duplicate

__all__ = ["duplicates", "suggest", "verify"]

_SHOWN = 200


def duplicates(  # noqa: PLR0917  each is an option
    context: typer.Context,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    catalog: Catalog = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Only those that differ in case or spaces at most.")
    ] = False,
    threshold: Annotated[
        float, typer.Option(min=0.8, max=1, help="Near: the least share of common 3-grams.")
    ] = 0.9,
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Show which chunks say what another one says: advice, nothing is changed.

    Near ones were compared in full, and have the same numbers and negations.
    Copies can be left out: see `sync --drop-copies`. Ends with 1 if there
    are any.

    Example: langchain-feedback index duplicates --index my_app:index --threshold 0.95
    """
    from langchain_feedback.index.duplicates import (  # noqa: PLC0415
        exact_duplicates,
        near_duplicates,
    )

    with watched(), opened(database, namespace) as store:
        with waiting("Reading chunks"):
            chunks = corpus_of(index, catalog=catalog).chunks(store)
        with waiting(f"Comparing {len(chunks):,} chunks"):
            found = exact_duplicates(chunks)
            found += [] if exact else near_duplicates(chunks, threshold=threshold)
    if as_json:
        kinds = Counter(one.kind for one in found)
        counts = {"chunks": len(chunks), "exact": kinds["exact"], "near": kinds["near"]}
        print_json({**counts, "duplicates": list(_told(found, chunks))})
    else:
        _show_duplicates(found, chunks, limit)
        if any(one.kind == "exact" for one in found):
            say("")
            say("To see what leaving the copies out would change:", "dim")
            say_on_one_line(other(context, "sync", *index_option(index), "--drop-copies"))
    if found:
        raise typer.Exit(FINDINGS)


def suggest(  # noqa: PLR0917  each is an option
    database: Database = DATABASE,
    namespace: Namespace = "default",
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write all of it into this JSONL file.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Show which neighbors should be one chunk, and which chunk should be two: advice.

    It goes by how chunks were used in answers, and is for whoever owns the
    splitter. What rests on the text alone comes last: of 30 such a reader
    judged 6 right. Ends with 1 if there is any.

    Example: langchain-feedback index suggest --out suggestions.jsonl
    """
    from langchain_feedback.index.suggestions import (  # noqa: PLC0415
        Suggestions,
        export_suggestions,
    )

    with watched(), opened(database, namespace) as store:
        if out is not None and out.exists() and not overwrite:
            msg = f"{out} is there already: --overwrite replaces it."
            raise ValueError(msg)
        with waiting("Looking at how chunks were used"):
            found = Suggestions(store).find()
        if out is not None:
            export_suggestions(found, out)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        rows = [
            (one.kind, one.reason.replace("_", " "), one.source, " + ".join(one.chunks),
             one.rests_on, f"{one.confidence:.0%}")
            for one in found[:limit]
        ]  # fmt: skip
        head = ("do", "because", "source", "chunks", "rests on", "sure")
        print_table(head, rows, "Nothing should be merged or split.")
        say_more(len(found), limit)
        if out is not None:
            say(f"{len(found)} suggestions, with their evidence, are in {out}.", "dim")
    if found:
        raise typer.Exit(FINDINGS)


def verify(
    context: typer.Context,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    as_json: Json = False,
) -> None:
    """Show whether the index holds what the ledger says that was written to it.

    Ends with 1 if it does not, or if nothing was ever written.

    Example: langchain-feedback index verify --index my_app:index
    """
    from langchain_feedback.index._health.known import unwritten  # noqa: PLC0415
    from langchain_feedback.index._versions.checks import Check, check_ledger  # noqa: PLC0415

    with watched(), opened(database, namespace) as store:
        writer = index_of(index).writer(store)
        with waiting("Looking chunks up"):
            check = check_ledger(writer.ledger, writer.vector_store)
            if why := unwritten(store, writer.ledger.name):
                check = Check(ok=False, why=why, figures=check.figures)
    if as_json:
        print_json({"index": writer.ledger.name, **check.as_json()})
    else:
        why = check.why.removesuffix(": plan and apply again")
        say(f"{why[0].upper()}{why[1:]}.", "bold green" if check.ok else "bold red")
        if not check.ok:
            say("Next:", "dim")
            say_on_one_line(other(context, "sync"))
    if not check.ok:
        raise typer.Exit(FINDINGS)


def _show_duplicates(found: "list[Duplicate]", chunks: "list[Chunk]", limit: int) -> None:
    kinds = Counter(one.kind for one in found)
    words = f"{len(chunks):,} chunks; copies: {kinds['exact']:,}, near copies: {kinds['near']:,}"
    say(words if found else f"{words}. No chunk says what another one says.", "bold")
    for one in _told(found[:limit], chunks):
        say("")
        say(f"{one['kind']}, {one['similarity']:.0%}: {_named(one['chunk'], one['source'])}")
        say(f"  says what this one says: {_named(one['of'], one['of_source'])}")
        say(f"  {excerpt(one['text'], _SHOWN)}", "dim")
    say_more(len(found), limit)


def _told(found: "list[Duplicate]", chunks: "list[Chunk]") -> Iterator[dict[str, Any]]:
    by_id = {chunk.id: chunk for chunk in chunks} if found else {}
    for one in found:
        yield {
            "kind": one.kind,
            "similarity": one.similarity,
            "chunk": one.id,
            "source": by_id[one.id].source,
            "of": one.of,
            "of_source": by_id[one.of].source,
            "text": by_id[one.id].text,
        }


def _named(chunk: str, source: str) -> str:
    return f"{chunk} ({source})" if source else chunk
