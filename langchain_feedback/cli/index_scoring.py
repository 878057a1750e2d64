"""`langchain-feedback index score`: what is junk in an index, and why."""

from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.index_applying import other
from langchain_feedback.cli.index_shared import FINDINGS, Index, Rows, some_index_of, watched
from langchain_feedback.cli.progress import counted
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
    from collections.abc import Iterable, Iterator

    from langchain_core.documents import Document

    from langchain_feedback.index.jobs import CorpusScores, Shard
    from langchain_feedback.index.managed import ManagedIndex
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Catalog", "Sharding", "Workers", "corpus_of", "score", "shard_of"]

Sharding = Annotated[
    str | None, typer.Option("--shard", metavar="I/N", help="Only this share of the sources: 2/8.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that judge texts.")]
Catalog = Annotated[
    bool,
    typer.Option("--catalog", help="The chunks that the store knows, not those of the loader."),
]


def score(  # noqa: PLR0917  each is an option
    context: typer.Context,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    index: Index = None,
    catalog: Catalog = False,
    shard: Sharding = None,
    workers: Workers = 1,
    limit: Rows = 40,
    as_json: Json = False,
) -> None:
    """Judge the texts that nobody has judged, and show what is junk, and why.

    The index is left alone; what came out is kept in the store by the hash of
    each text. Ends with 1 if there is junk that nobody allowed.

    Example: langchain-feedback index score --index my_app:index --shard 1/4 --workers 2
    """
    with watched(), opened(database, namespace) as store:
        share = shard_of(shard)
        found = _Junk(store, corpus_of(index, catalog=catalog), None if as_json else limit)
        done = found.score(share, workers)
    facts = {
        "seen": done.seen,
        "scored": done.scored,
        "gated": found.total,
        "allowed": found.allowed,
    }
    if as_json:
        print_json({**facts, "reasons": dict(found.reasons), "chunks": found.rows})
    else:
        _show_junk(done, found)
        if found.total > found.allowed:
            say("")
            say("Where that is wrong, somebody's word counts for a text:", "dim")
            say_on_one_line(f"{other(context, 'allow CHUNK')} --by NAME", "dim")
    if found.total > found.allowed:
        raise typer.Exit(FINDINGS)


def shard_of(given: str | None) -> "Shard | None":
    """Return the share that `--shard` names.

    Raises:
        ValueError: If it is not i/n.
    """
    from langchain_feedback.index.jobs import Shard  # noqa: PLC0415

    return None if given is None else Shard.parse(given)


def corpus_of(index: str | None, *, catalog: bool) -> "ManagedIndex":
    """Return what tells the chunks: an index with a loader, or one that knows the catalog."""
    from langchain_feedback.index.managed import ManagedIndex  # noqa: PLC0415

    if catalog and index is None:
        return ManagedIndex()
    managed = some_index_of(index) or ManagedIndex()
    return replace(managed, documents=None) if catalog else managed


class _Junk:
    """Judges a corpus, and notes what is junk as it passes."""

    def __init__(self, store: "FeedbackStore", managed: "ManagedIndex", limit: int | None) -> None:
        self.store, self.managed, self.limit = store, managed, limit
        self.rows: list[dict[str, Any]] = []
        self.reasons: Counter[str] = Counter()
        self.total = self.allowed = 0
        self._passing: deque[Document] = deque()
        self._gate = managed.gate(store)
        self._allowed = {one.content_hash for one in self._gate.allowed()}

    def score(self, shard: "Shard | None", workers: int) -> "CorpusScores":
        """Judge it; what waits in between are a few batches."""
        from langchain_feedback.index.jobs import score_corpus  # noqa: PLC0415

        total = self.managed.size(self.store) if shard is None else None
        with counted("Judging chunks", total) as on_more:

            def done(size: int) -> None:
                self._note([self._passing.popleft() for _ in range(size)])
                on_more(size)

            corpus = self._passed(self.managed.corpus(self.store, shard=shard))
            return score_corpus(self.store, corpus, workers=workers, progress=done)

    def _passed(self, documents: "Iterable[Document]") -> "Iterator[Document]":
        for document in documents:
            self._passing.append(document)
            yield document

    def _note(self, batch: "list[Document]") -> None:
        from langchain_feedback.documents import chunk_key, content_hash  # noqa: PLC0415

        # All of them were judged just now, so this only reads.
        for document, scored in zip(batch, self._gate.score(batch), strict=True):
            if not scored.gated:
                continue
            is_allowed = content_hash(document) in self._allowed
            self.total += 1
            self.allowed += is_allowed
            self.reasons.update(scored.gating)
            if self.limit is None or len(self.rows) < self.limit:
                self.rows.append(
                    {
                        "chunk": chunk_key(document, self.managed.id_field),
                        "source": str(document.metadata.get("source") or ""),
                        "kind": scored.kind,
                        "reasons": list(scored.gating),
                        "allowed": is_allowed,
                        "text": document.page_content,
                    }
                )


def _why(row: dict[str, Any]) -> str:
    return ", ".join(row["reasons"]) + (" (allowed)" if row["allowed"] else "")


def _show_junk(done: "CorpusScores", found: _Junk) -> None:
    say(
        f"{done.seen:,} chunks, {done.scored:,} texts judged now, {found.total:,} are junk.",
        "bold",
    )
    rows = [(_why(row), row["source"], row["chunk"], excerpt(row["text"])) for row in found.rows]
    if rows:
        say(", ".join(f"{count:,} {reason}" for reason, count in found.reasons.most_common()))
        say("")
    print_table(("why", "source", "chunk", "text"), rows, "Nothing is junk.")
    say_more(found.total, len(found.rows))
