"""`langchain-feedback index sync`: what belongs in an index, and what is in it."""

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import (
    Apply,
    again,
    digest_option,
    is_reviewed,
    next_step,
)
from langchain_feedback.cli.index_shared import (
    FINDINGS,
    Index,
    Rows,
    index_of,
    say_when_loaded,
    watched,
)
from langchain_feedback.cli.progress import waiting
from langchain_feedback.cli.shared import (
    DATABASE,
    Database,
    Json,
    Namespace,
    opened,
    print_json,
    print_table,
    say,
    say_more,
)

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langchain_feedback.index._managed.wanted import Wanted
    from langchain_feedback.index.catalog import Changes
    from langchain_feedback.index.managed import ManagedIndex
    from langchain_feedback.index.writer import Applied, IndexWriter, Plan
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["sync"]

_WRITING = ("add", "replace", "repair", "remove")
_NOTING = ("new", "changed", "missing", "returned")


@dataclass(frozen=True)
class _Sync:
    """What an index lacks, and what the catalog does not know."""

    managed: "ManagedIndex"
    writer: "IndexWriter"
    wanted: "Wanted"
    plan: "Plan"
    changes: "Changes"
    gone: dict[str, str]
    """The sources of chunks that the loader does not bring any more."""

    def __bool__(self) -> bool:
        return bool(self.plan or self.changes)

    def __str__(self) -> str:
        return f"{self.counts}; digest {self.digest[:12]}"

    @property
    def counts(self) -> str:
        """How much would be done, in a line."""
        doing = [
            f"{n:,} to {name}" for name, n in self.plan.counts.items() if n and name != "keep"
        ]
        doing.append(f"{len(self.plan.keep):,} stay")
        noting = [f"{n:,} {name}" for name in _NOTING if (n := len(getattr(self.changes, name)))]
        told = f"{self.plan.index}: {', '.join(doing)}"
        return f"{told}; catalog: {', '.join(noting)}" if noting else told

    @property
    def digest(self) -> str:
        """Of what would be written, and of what would be taken down."""
        told = [self.plan.digest, *(sorted(getattr(self.changes, name)) for name in _NOTING)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    @property
    def needs_force(self) -> bool:
        """Whether more would go than goes without being forced."""
        share = self.plan.removed_share
        return bool(self.plan.lost) and (share > self.writer.max_remove_share or share == 1)

    @property
    def names(self) -> dict[str, str]:
        """The ids that the catalog has of documents, by those that the index has."""
        from langchain_feedback.documents import unique_documents  # noqa: PLC0415

        documents = unique_documents(self.wanted.documents, self.managed.id_field)
        return dict(zip(self.plan.request.documents, map(self.key_of, documents), strict=True))

    def key_of(self, document: "Document") -> str:
        """Return the id that the catalog has of a document."""
        from langchain_feedback.documents import chunk_key  # noqa: PLC0415

        return chunk_key(document, self.managed.id_field)

    def apply(self, store: "FeedbackStore", *, force: bool) -> "Applied":
        """Write the index, then the catalog: after a crash between them, a further run goes on."""
        from langchain_feedback.index.errors import TooManyRemovalsError  # noqa: PLC0415

        try:
            done = self.writer.apply(self.plan, force=force)
        except TooManyRemovalsError as error:
            msg = str(error).replace("apply it with force=True", "add --force")
            raise TooManyRemovalsError(msg) from error
        self.managed.take_down(store, self.wanted)
        return done

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "digest": self.digest,
            "index": {name: getattr(self.plan, name) for name in _WRITING}
            | {"keep": len(self.plan.keep)},
            "catalog": {name: getattr(self.changes, name) for name in _NOTING}
            | {"unchanged": self.changes.unchanged},
            "stay_out": [self.key_of(document) for document in self.wanted.retired],
            "junk": [
                {"chunk": self.key_of(document), "reasons": reasons}
                for document, reasons in self.wanted.junk
            ],
            "copies": [
                {"chunk": self.key_of(document), "of": of} for document, of in self.wanted.copies
            ],
            "needs_force": self.needs_force,
        }


def sync(  # noqa: PLR0917  each is an option
    context: typer.Context,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    drop_junk: Annotated[
        bool | None,
        typer.Option(
            "--drop-junk/--keep-junk",
            show_default=False,
            help="Leave out what the quality gate finds wanting; without it, as the index says.",
        ),
    ] = None,
    drop_copies: Annotated[
        bool | None,
        typer.Option(
            "--drop-copies/--keep-copies",
            show_default=False,
            help="Of exact copies, leave out all but the first; without it, as the index says.",
        ),
    ] = None,
    apply: Apply = None,
    force: Annotated[
        bool, typer.Option("--force", help="Although it removes more than a fifth of the index.")
    ] = False,
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Show what differs between the documents, the catalog and the index; --apply writes it.

    What a retirement took out stays out, although the loader still brings it.
    Ends with 1 if something differs.

    Example: langchain-feedback index sync --index my_app:index --apply 3f0a9c81d2e4
    """
    with watched(), opened(database, namespace) as store:
        found = _compared(store, index_of(index), drop_junk=drop_junk, drop_copies=drop_copies)
        done = None
        if found and is_reviewed(apply, found.digest, found, context):
            with waiting(f"Writing {len(found.plan.written):,} chunks"):
                done = found.apply(store, force=force)
    applied = None if done is None else vars(done)
    if as_json:
        command = again(context, *digest_option(found.digest)) if found and not done else None
        print_json(found.as_json() | {"applied": applied, "command": command})
    elif done:
        say(f"{done.written:,} written, {done.removed:,} removed.", "bold green")
        if found.managed.persist is not None:
            say_when_loaded()
    else:
        _show(found, limit)
    if found and not done:
        if not as_json:
            next_step(context, *digest_option(found.digest))
        raise typer.Exit(FINDINGS)


def _compared(store: "FeedbackStore", managed: "ManagedIndex", **dropping: bool | None) -> _Sync:
    from langchain_feedback.index._managed.known import documents_of  # noqa: PLC0415

    with waiting("Loading documents"):
        documents = list(managed.load())
    if not documents:
        msg = (
            "The loader of the index returned no documents at all: nothing is compared, or "
            "everything would be removed. Look at it first."
        )
        raise ValueError(msg)
    with waiting(f"Comparing {len(documents):,} documents"):
        writer = managed.writer(store)
        wanted = managed.wanted(store, documents, **dropping)
        plan = writer.plan(wanted.documents)
        changes = managed.differences(store, wanted)
        known = documents_of(store, {*plan.remove, *changes.missing})
        gone = {key: one.metadata["source"] for key, one in known.items()}
    return _Sync(managed, writer, wanted, plan, changes, gone)


def _show(found: _Sync, limit: int) -> None:
    say(f"{found.counts}.", "bold")
    if out := found.wanted.retired:
        say(f"Loaded, but to stay out since a retirement took them out: {len(out):,}.", "dim")
    if junk := found.wanted.junk:
        say(f"Left out as junk: {len(junk):,}.", "dim")
    if copies := found.wanted.copies:
        say(f"Left out as copies: {len(copies):,}.", "dim")
    if not found:
        say("Documents, catalog and index agree.", "green")
        return
    say("")
    rows = _rows(found)
    head = ("index", "catalog", "source", "chunk", "because")
    width = len(head) if junk or copies else len(head) - 1
    print_table(head[:width], [row[:width] for row in rows[:limit]], "")
    say_more(len(rows), limit)
    if found.needs_force:
        words = f"It removes {found.plan.lost:,} of {found.plan.known:,} documents"
        say(f"{words}: without --force it is refused.", "bold yellow")


def _rows(found: _Sync) -> list[tuple[str, ...]]:
    """Return what would be done about each chunk, in the index and in the catalog, and why."""
    # Where documents have no ids, the index has other ones than the catalog.
    names = found.names
    doing = {names.get(key, key): name for name in _WRITING for key in getattr(found.plan, name)}
    noting = {key: name for name in _NOTING for key in getattr(found.changes, name)}
    out = {found.key_of(one): ", ".join(reasons) for one, reasons in found.wanted.junk}
    out |= {found.key_of(one): f"copy of {of}" for one, of in found.wanted.copies}
    sources = found.gone | {
        found.key_of(one): str(one.metadata.get("source") or "") for one in found.wanted.loaded
    }
    return [
        (doing.get(key, ""), noting.get(key, ""), sources.get(key, ""), key, out.get(key, ""))
        for key in doing | noting | out
    ]
