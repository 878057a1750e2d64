"""`langchain-feedback index allow`: a person's word against the gate's."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import other
from langchain_feedback.cli.index_shared import (
    Index,
    Rows,
    index_option,
    some_index_of,
    watched,
)
from langchain_feedback.cli.progress import waiting
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
    say_more,
    say_on_one_line,
)

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langchain_feedback.index.gate import Allowed
    from langchain_feedback.index.managed import ManagedIndex
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["allow"]

_DIGITS = 12


def allow(  # noqa: PLR0917  each is an option
    context: typer.Context,
    chunks: Annotated[
        list[str] | None, typer.Argument(help="Chunks by their ids; none: what is allowed.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    reason: Annotated[str, typer.Option(help="Why, for whoever asks later.")] = "",
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    by: Actor = "",
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Let chunks pass the gate although it finds them wanting, at once; or list those.

    It holds for a text: its copies pass too, and once it is edited it is
    judged anew. What a retirement took out needs `restore`.

    Example: langchain-feedback index allow manual-17 --by rita --reason "a benchmark's result"
    """
    with watched(), opened(database, namespace) as store:
        managed = some_index_of(index)
        gate = _gate(store, managed)
        if not chunks:
            _list(gate.allowed(), limit, as_json=as_json)
            return
        documents, actor = _named(store, managed, chunks), name_of(by)
        if undo:
            changed = gate.disallow(documents, actor=actor)
        else:
            changed = gate.allow(documents, actor=actor, reason=reason)
    if as_json:
        print_json({"chunks": chunks, "allowed": not undo, "changed": changed})
        return
    done = "allowed no more" if undo else "allowed"
    say(f"Texts that are {done}: {changed:,}, of {len(chunks):,} chunks.", "bold green")
    if changed:
        say("To see what that changes in the index:", "dim")
        say_on_one_line(other(context, "sync", *index_option(index)))


def _gate(store: "FeedbackStore", managed: "ManagedIndex | None") -> Any:
    from langchain_feedback.index.gate import QualityGate  # noqa: PLC0415

    return managed.gate(store) if managed else QualityGate(store)


def _named(
    store: "FeedbackStore", managed: "ManagedIndex | None", chunks: list[str]
) -> "list[Document]":
    """Return the chunks that are named: as the loader brings them, else as the store has them.

    Raises:
        ValueError: If nobody has one of them.
    """
    from langchain_feedback.documents import chunk_key  # noqa: PLC0415
    from langchain_feedback.index._managed.known import documents_of  # noqa: PLC0415

    wanted = set(chunks)
    found: dict[str, Document] = {}
    if managed is not None and managed.documents is not None:
        with waiting("Loading documents"):
            for document in managed.load():
                if (key := chunk_key(document, managed.id_field)) in wanted:
                    found.setdefault(key, document)
    if missing := sorted(wanted - found.keys()):
        found |= documents_of(store, missing)
    if missing := sorted(wanted - found.keys()):
        msg = f"There is no chunk {missing[0]!r}: neither the loader nor the store has it."
        raise ValueError(msg)
    return list(found.values())


def _list(allowed: "list[Allowed]", limit: int, *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(one) for one in allowed])
        return
    rows = [
        (f"{one.at:%Y-%m-%d}", one.actor or "", _chunks(one), one.reason)
        for one in allowed[:limit]
    ]
    print_table(("since", "by", "chunks", "because"), rows, "Nobody has allowed anything.")
    say_more(len(allowed), limit)


def _chunks(one: "Allowed") -> str:
    return ", ".join(one.chunks) or f"text {one.content_hash[:_DIGITS]}"
