"""Evidence: what a query reads."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from langchain_core.documents import Document
from sqlalchemy import Connection

from langchain_feedback.store import reading
from langchain_feedback.store.chunks import cells_of, snapshots_of
from langchain_feedback.store.half_life import read_half_life
from langchain_feedback.store.memory.question_memory import QuestionMemory
from langchain_feedback.store.parts.base import StoreBase, Vector, now, twin
from langchain_feedback.store.questions import Question, known_embedders, memory_changes
from langchain_feedback.store.records import (
    CellKey,
    QuestionEvidence,
    Snapshot,
    VoteRow,
)

__all__ = ["Evidence"]

logger = logging.getLogger(__name__)


class Evidence(StoreBase):
    """The part of the store that answers what is known."""

    def evidence_for(
        self,
        question: str,
        *,
        vector: Vector | None = None,
        min_similarity: float = 0.0,
        limit: int = 32,
    ) -> QuestionEvidence:
        """Return what is known for a question and the ones most similar to it.

        Args:
            question: Its text.
            vector: Its embedding. Without it the store makes one, in at most one call, if it
                has embeddings and `min_similarity` is below 1.
            min_similarity: The least cosine of a similar question.
            limit: The most questions.
        """
        asked = self._question(question, vector, embed=min_similarity < 1)
        if asked.vector is None and min_similarity < 1:
            self._say_exact_only()
        with self._reading() as connection:
            similar = self._similar(connection, asked, limit, min_similarity)
            found = reading.read_evidence(
                connection, self.namespace, question, similar,
                now=_this_hour(), half_life=read_half_life(connection),
            )  # fmt: skip
        vector = None if asked.vector is None else tuple(asked.vector.tolist())
        return QuestionEvidence(found.questions, found.cells, found.pins, vector)

    def _say_exact_only(self) -> None:
        if not self._told_exact:
            self._told_exact = True
            logger.warning("The store has no embeddings: only identical questions share feedback.")

    def warm_up(self, timeout: float | None = None) -> bool:
        """Read past questions into memory before the first retrieval needs them.

        Past 50,000 questions it also waits for the index that finds them faster; until that
        is there, searches are exact. A server may call it before it takes traffic.

        Args:
            timeout: How long to wait for the index, in seconds; None: as long as it takes.

        Returns:
            Whether everything is ready.
        """
        with self._reading() as connection:
            memories = [
                self._memory(connection, embedder)
                for embedder in known_embedders(connection, self.namespace)
                if embedder.rpartition(":")[0] == self._embedder
            ]
        return all(memory.wait_for_index(timeout) for memory in memories)

    def _memory(self, connection: Connection, embedder: str) -> QuestionMemory:
        """Return the memory of one model's vectors, up to date; two models' do not compare."""
        memory = self._memories.setdefault(embedder, QuestionMemory())
        memory.refresh(lambda seq: memory_changes(connection, self.namespace, embedder, seq))
        return memory

    def _similar(
        self, connection: Connection, asked: Question, limit: int, minimum: float
    ) -> list[tuple[int, float]]:
        if asked.vector is None or asked.embedder is None or minimum >= 1:
            return []
        memory = self._memory(connection, asked.embedder)
        return memory.search(asked.vector, limit=limit, minimum=minimum)

    def cells_of(
        self, documents: Sequence[Document], *, id_field: str | None = None
    ) -> list[CellKey]:
        """Return under which key each document's feedback is kept."""
        with self._reading() as connection:
            return cells_of(connection, self.namespace, documents, id_field)

    def snapshots(
        self, cells: Iterable[CellKey], *, seen_since: datetime | None = None
    ) -> dict[CellKey, list[Snapshot]]:
        """Return the chunks of some cells as they were last seen, newest first."""
        with self._reading() as connection:
            return snapshots_of(connection, self.namespace, cells, seen_since)

    def ratings_for(
        self, cells: Sequence[CellKey], *, question: str | None = None
    ) -> reading.Sums:
        """Return the sum and the number of raw ratings of some chunks: see `AverageRating`.

        Args:
            cells: See `cells_of`.
            question: Whose ratings; None: those of every question.
        """
        with self._reading() as connection:
            return reading.read_ratings(connection, self.namespace, cells, question)

    def votes_for(self, cells: Sequence[CellKey], *, since: datetime) -> reading.Window:
        """Return weights for and against some chunks and votes, under any question."""
        with self._reading() as connection:
            return reading.read_window(connection, self.namespace, cells, since)

    def votes_on(self, question_ids: Sequence[int], cells: Sequence[CellKey]) -> list[VoteRow]:
        """Return each vote and pin that counts for some chunks under some questions."""
        with self._reading() as connection:
            return reading.read_votes(connection, self.namespace, question_ids, cells)

    awarm_up = twin(warm_up)
    aevidence_for = twin(evidence_for)
    acells_of = twin(cells_of)
    asnapshots = twin(snapshots)
    aratings_for = twin(ratings_for)
    avotes_for = twin(votes_for)
    avotes_on = twin(votes_on)


def _this_hour() -> datetime:
    """Return when this hour began: votes age in steps, so that two calls say the same."""
    return now().replace(minute=0, second=0, microsecond=0)
