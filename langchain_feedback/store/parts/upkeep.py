"""Keeping the store in order: rebuilding, pruning, forgetting, moving it in and out."""

import logging
import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import Runnable

from langchain_feedback.errors import NotEnoughFeedbackError, StoreError
from langchain_feedback.ranking.kernels import CalibratedKernel
from langchain_feedback.store.evidence import rebuild
from langchain_feedback.store.half_life import read_half_life
from langchain_feedback.store.parts.base import StoreBase, now, twin
from langchain_feedback.store.upkeep import calibrating, embedding, forgetting, pruning
from langchain_feedback.store.upkeep.calibrating import Pairs
from langchain_feedback.store.upkeep.forgetting import Forgotten
from langchain_feedback.store.upkeep.pruning import Pruned
from langchain_feedback.store.upkeep.removing import Access

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

    # Its models take 10 ms to make, which nobody's retriever should wait for.
    from langchain_feedback.store.jsonlines.importing import Imported
    from langchain_feedback.store.record_manager import StoreRecordManager

__all__ = ["Upkeep"]

logger = logging.getLogger(__name__)


class Upkeep(StoreBase):
    """The part of the store that nobody's answer waits for."""

    def rebuild_evidence(self) -> None:
        """Work out all evidence of the namespace anew from its votes; it is the same again."""
        with self._writing() as (connection, half_life):
            rebuild(connection, self.namespace, half_life)

    # -- removing

    def prune(self, older_than: datetime | timedelta) -> Pruned:
        """Remove what is old, of this namespace.

        Signals that were received before go, with what they credit; then traces that were
        made before and have no signal left, pins that were taken back before, snapshots that
        were not seen since, and questions, as far as nothing that is kept refers to them.
        Pins in force stay, and questions of an experiment with what was said of them, until it
        is read or stopped. So do snapshots of chunks that are demoted or retired, or they
        would be shown again, and the record of what index care did, without which nothing
        could be restored. It works in short transactions, each complete in itself, so that
        others hardly wait for it; one that was interrupted goes on when it is called again.

        Args:
            older_than: A time with a zone, or an age.

        Raises:
            ValueError: If the time has no zone, or the age is negative.
        """
        before = pruning.instant_of(older_than, now())
        self._settle()
        return pruning.prune(self._access, before)

    def forget(self, actor: str) -> Forgotten:
        """Remove a person: signals, traces, and questions that nobody else asked.

        Other people's signals on the person's traces go as well: without the trace nothing
        says what they credit. Pins in force stay, without the name, and so does what the person
        decided: verdicts, what was retired, what passes the gate (not why), which version of an
        index was active. Afterwards the evidence is as if the person had never been there, and
        other processes forget, too (traces that wait in another process's memory for a store
        that is away are still to come). A question that was folded back is served no longer, and
        leaves its own index with the next run of the fold-back.

        Args:
            actor: A user id; `session:<id>` for what somebody said in a session without one;
                `trace:<id>` for one anonymous trace.

        Raises:
            ValueError: If `actor` is blank.
        """
        if not actor.strip():
            msg = "Whom to forget? `actor` is blank."
            raise ValueError(msg)
        self._settle()
        return forgetting.forget(self._access, actor)

    def forget_chunks(self, ids: Iterable[str]) -> int:
        """Remove some chunks: snapshots, candidates in traces, votes on them, and evidence.

        Evidence and pins go unless another chunk id has the same text and source: then they
        are that chunk's, too. `snapshots(cells_of([document]))` names all ids of a text.
        Votes on whole answers stay, and credit the chunks that are left. Review items and owners'
        items keep the ids, and lose the texts, as does the record of index care: what was
        retired cannot be restored then. The ledger of an `IndexWriter` keeps the ids, so that
        its next complete plan removes what is in the index still. Take the chunks out
        of the index first, or the next retrieval brings them back.

        Returns:
            How many of the ids the store knew.
        """
        self._settle()
        return forgetting.forget_chunks(self._access, list(ids))

    # -- moving in and out

    def export_jsonl(self, path: str | os.PathLike[str]) -> int:
        """Write the feedback of this namespace to a file; `jsonl` describes the lines.

        Returns:
            The number of lines.

        Raises:
            StoreError: If the file cannot be written. An older one is then still there.
        """
        from langchain_feedback.store.jsonlines import exporting  # noqa: PLC0415

        self._settle()
        return exporting.export_jsonl(self._access, path)

    def import_jsonl(
        self,
        path: str | os.PathLike[str],
        retriever: Runnable[str, Any] | None = None,
        *,
        id_field: str | None = None,
    ) -> "Imported":
        """Read the classic recipe's `feedback_data.json`, or an export; see `jsonl`.

        Each line is imported as a whole or not at all, and importing it again adds nothing.
        An imported vote counts as newer than those of the same person in the store. If the
        store has embeddings, it embeds the questions at the end.

        Args:
            path: A file with one JSON object a line.
            retriever: Answers each query of the recipe's log once: its results are taken for
                what the rated answer was written from. Pass the base retriever, not a
                `FeedbackRetriever`. Without it the log says how answers fared, not which
                chunks are good; that cannot be made up for by a second import.
            id_field: The metadata field that holds a chunk's id, if any.

        Returns:
            How many lines were imported and were there already, and what is wrong with others.

        Raises:
            StoreError: If the file cannot be read, or the database not be written.
        """
        from langchain_feedback.store.jsonlines.importing import Importer  # noqa: PLC0415

        self._settle()
        done = Importer(self._access, now(), retriever, id_field).run(path)
        if done.imported and self.embeddings is not None:
            try:
                self.embed_questions()
            except Exception as error:  # noqa: BLE001  the lines are in
                logger.warning("Call embed_questions() once more, it failed: %s", error)
        return done

    def record_manager(self, name: str) -> "StoreRecordManager":
        """Return LangChain's record manager on this store, for your own calls of `index(...)`.

        Args:
            name: Of the index, such as its collection's; LangChain calls it a namespace. Each
                namespace of the store has its own.

        Raises:
            ValueError: If the name is blank.
        """
        from langchain_feedback.store.record_manager import StoreRecordManager  # noqa: PLC0415

        return StoreRecordManager(cast("FeedbackStore", self), name)

    # -- learning from the log

    def embed_questions(self, batch_size: int = 256) -> int:
        """Embed the questions with feedback that the store's embeddings have not read yet.

        After a change of the embedder, similar questions find their feedback again.

        Returns:
            How many questions were embedded.

        Raises:
            StoreError: If the store has no embeddings.
            ValueError: If `batch_size` is below 1.
        """
        if batch_size < 1:
            msg = f"batch_size must be at least 1, got {batch_size!r}"
            raise ValueError(msg)
        if self.embeddings is None:
            msg = "This store has no embeddings. Open it with FeedbackStore(..., embeddings=...)."
            raise StoreError(msg)
        return embedding.embed_questions(self._access, self.embeddings, self._question, batch_size)

    def calibration_pairs(self, limit: int = 200_000, seed: int = 0) -> Pairs:
        """Return pairs of past questions with votes on one chunk, to fit a kernel to.

        Args:
            limit: The most pairs; at most 200 of one chunk.
            seed: Which ones are drawn where there are more. The same database and seed give
                the same pairs.

        Returns:
            Cosine, and what the votes under either question say of the chunk (`conviction`):
            three arrays of one length.

        Raises:
            ValueError: If `limit` is below 1.
        """
        if limit < 1:
            msg = f"limit must be at least 1, got {limit!r}"
            raise ValueError(msg)
        with self._access.snapshot() as connection:
            embedder = calibrating.vectors_of(connection, self.namespace, self._embedder)
            return calibrating.calibration_pairs(
                connection, self.namespace, embedder or "", read_half_life(connection),
                limit=limit, seed=seed,
            )  # fmt: skip

    def fit_kernel(
        self, *, minimum_events: int = 500, minimum_pairs: int = 100
    ) -> CalibratedKernel:
        """Learn from the log how far feedback holds for similar questions.

        Args:
            minimum_events: The fewest votes on chunks that there must be.
            minimum_pairs: The fewest pairs of questions with votes on one chunk.

        Raises:
            NotEnoughFeedbackError: If there are fewer, or all votes say the same.
        """
        with self._access.snapshot() as connection:
            events = calibrating.credited_events(connection, self.namespace)
        if events < minimum_events:
            msg = (
                f"{minimum_events} votes on chunks are needed, and there are {events}. Until "
                "then use a LinearKernel."
            )
            raise NotEnoughFeedbackError(msg)
        pairs = self.calibration_pairs()
        if not len(pairs.similarity):
            msg = (
                "No two rated questions with vectors of this store's embedder share a chunk. "
                "Until then use a LinearKernel; `embed_questions()` makes missing vectors."
            )
            raise NotEnoughFeedbackError(msg)
        return CalibratedKernel.fit(*pairs, embedder=self.embedder, minimum_pairs=minimum_pairs)

    @property
    def _access(self) -> Access:
        return Access(self.namespace, self._reading, self._writing)

    arebuild_evidence = twin(rebuild_evidence)
    aprune = twin(prune)
    aforget = twin(forget)
    aforget_chunks = twin(forget_chunks)
    aexport_jsonl = twin(export_jsonl)
    aimport_jsonl = twin(import_jsonl)
    aembed_questions = twin(embed_questions)
    acalibration_pairs = twin(calibration_pairs)
    afit_kernel = twin(fit_kernel)
