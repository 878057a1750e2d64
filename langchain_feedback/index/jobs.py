"""Jobs on a whole corpus: in shards, on several processors, one process at a time, at night.

Whatever is done here twice is done once: rows are kept by content hash, and a run that died is
finished by the next one. So any scheduler will do, from cron to a cluster's.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.runnables.config import run_in_executor
from sqlalchemy import select

from langchain_feedback.documents import chunk_key, content_hash
from langchain_feedback.index._gating.scores import keep_scores, scores_of
from langchain_feedback.index._jobs.lease import JobBusyError, JobLease, Shard
from langchain_feedback.index._jobs.nightly import NightlyReport, Step, anightly, nightly
from langchain_feedback.index.quality import ChunkQuality, score_batch
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "CorpusScores",
    "JobBusyError",
    "JobLease",
    "NightlyReport",
    "Shard",
    "Step",
    "anightly",
    "ascore_corpus",
    "catalog_documents",
    "nightly",
    "score_corpus",
]

_PAGE = 1_000
_AHEAD = 2
"""Batches that wait for each process: enough to keep it busy, few enough to hold."""


@dataclass(frozen=True)
class CorpusScores:
    """What a run over a corpus did."""

    seen: int
    """Chunks of the shard."""
    scored: int
    """Texts that nobody had judged yet."""
    gated: int
    """How many of those texts are junk."""


def catalog_documents(store: "FeedbackStore", *, shard: Shard | None = None) -> Iterator[Document]:
    """Yield the chunks that a namespace knows, by ranges of ids, a page at a time.

    Each page is a short transaction of its own; what comes in behind it is for the next run.
    Retired chunks are left out: they are in no index.

    Args:
        store: Whose database, and whose namespace.
        shard: Only sources of this share; chunks without a source go by their id.

    Raises:
        StoreError: If the database cannot be read.
    """
    row, last = chunks.c, ""
    while True:
        page = (
            select(row.chunk_id, row.text, row.source)
            .where(row.namespace == store.namespace, row.chunk_id > last, row.status != "retired")
            .order_by(row.chunk_id)
            .limit(_PAGE)
        )
        with reading(store) as connection:
            found = connection.execute(page).all()
        if not found:
            return
        last = found[-1].chunk_id
        for chunk_id, text, source in found:
            if shard is None or shard.holds(source or chunk_id):
                yield Document(text, id=chunk_id, metadata={"source": source})


def score_corpus(
    store: "FeedbackStore",
    documents: Iterable[Document],
    *,
    shard: Shard | None = None,
    workers: int = 1,
    batch_size: int = 500,
    progress: Callable[[int], object] | None = None,
) -> CorpusScores:
    """Judge the texts of a corpus that are not judged yet, and keep what came out.

    Documents are read as they are needed, so that they may come from a generator. Results are
    kept batch by batch, by content hash: after a crash, or beside another run over the same
    texts, no text is kept twice, and a further run does the rest.

    Args:
        store: Keeps the results, for every namespace.
        documents: The chunks; `catalog_documents(store)` for those that the store knows.
        shard: Only sources (`metadata["source"]`) of this share; chunks without one go by
            their id.
        workers: Processes beside this one; 1: none, it does the work itself. They are started
            anew, so a script that asks for them needs `if __name__ == "__main__":`.
        batch_size: Texts of one task and one transaction.
        progress: Told how many chunks a batch had, when it is done.

    Raises:
        ValueError: If `workers` or `batch_size` is below 1.
        StoreError: If the database cannot be read or written.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> corpus = [Document("Refunds take 14 days."), Document("Contents")]
        >>> score_corpus(store, corpus)
        CorpusScores(seen=2, scored=2, gated=1)
        >>> score_corpus(store, corpus).scored
        0
    """
    if workers < 1 or batch_size < 1:
        msg = f"workers and batch_size must be above 0, got {workers!r} and {batch_size!r}"
        raise ValueError(msg)
    mine = (one for one in documents if shard is None or shard.holds(_source_of(one)))
    seen = scored = gated = 0
    with closing(_judged(store, mine, batch_size, workers)) as batches:
        for size, judged in batches:
            with writing(store, lock="traces", durable=False) as (connection, _):
                keep_scores(connection, judged, clock(store, connection))
            seen, scored = seen + size, scored + len(judged)
            gated += sum(quality.gated for quality in judged.values())
            if progress is not None:
                progress(size)
    return CorpusScores(seen, scored, gated)


async def ascore_corpus(
    store: "FeedbackStore", documents: Iterable[Document], **options: Any
) -> CorpusScores:
    """Do as `score_corpus`, without blocking the event loop; documents are read in a thread."""
    return await run_in_executor(None, partial(score_corpus, store, documents, **options))


def _judged(
    store: "FeedbackStore", documents: Iterable[Document], size: int, workers: int
) -> Generator[tuple[int, dict[str, ChunkQuality]]]:
    """Yield how many chunks each batch had, and the results of its new texts by hash."""
    batches = (_unknown(store, batch) for batch in _batches(documents, size))
    if workers == 1:
        for number, texts in batches:
            yield number, dict(zip(texts, score_batch(texts.values()), strict=True))
        return
    # A fork would copy the store's threads and locks as they stand.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        waiting: deque[tuple[int, list[str], Future[list[ChunkQuality]]]] = deque()
        for number, texts in batches:
            waiting.append((number, list(texts), pool.submit(score_batch, [*texts.values()])))
            if len(waiting) > workers * _AHEAD:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(
    number: int, hashes: Sequence[str], future: "Future[list[ChunkQuality]]"
) -> tuple[int, dict[str, ChunkQuality]]:
    return number, dict(zip(hashes, future.result(), strict=True))


def _unknown(store: "FeedbackStore", batch: Sequence[Document]) -> tuple[int, dict[str, str]]:
    """Return the size of a batch, and the texts by hash that nobody has judged."""
    texts = {content_hash(document): document.page_content for document in batch}
    with reading(store) as connection:
        known = scores_of(connection, texts)
    return len(batch), {of: text for of, text in texts.items() if of not in known}


def _batches(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    iterator = iter(documents)
    while batch := list(islice(iterator, size)):
        yield batch


def _source_of(document: Document) -> str:
    return str(document.metadata.get("source") or chunk_key(document))
