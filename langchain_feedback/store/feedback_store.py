"""The feedback store: one class over SQLite or PostgreSQL, with a sync and an async side."""

from langchain_core.embeddings import Embeddings

from langchain_feedback.store.parts.base import KEPT
from langchain_feedback.store.parts.evidence import Evidence
from langchain_feedback.store.parts.inbox import Inbox
from langchain_feedback.store.parts.log import Log
from langchain_feedback.store.parts.traces import Traces
from langchain_feedback.store.parts.upkeep import Upkeep
from langchain_feedback.store.parts.votes import Votes

__all__ = ["FeedbackStore"]


class FeedbackStore(Traces, Votes, Inbox, Evidence, Log, Upkeep):
    """Keeps each retrieval, what people said about it, and the evidence that follows.

    Safe to share between threads and event loops; a file or a PostgreSQL database may be
    shared between processes. The tables are made or migrated on first use. Every method
    has a twin with an `a` before its name (`arate`, `arecord_trace`, ...).

    A process that forks should use a SQLite file after the fork only: SQLite's own locks are
    copied as they stand. Each vote adds up all votes on its question's answers and on its chunks
    anew, so a question with 10,000 voters makes a vote a tenth of a second slower.

    Args:
        url: `sqlite:///feedback.db`, `sqlite://` (in memory: one database for all threads), or
            `postgresql+psycopg://user:password@host/name`.
        embeddings: Finds similar past questions. None: only identical questions share
            feedback.
        namespace: Feedback of different namespaces never mixes; see `scoped`.
        half_life_days: After how many days a vote counts half; None: votes do not age.
            Without it the database keeps its own, 90 days at first. A change recomputes the
            evidence of every namespace.
        timeout_s: How long an answer may wait for the store: then a retriever goes on without
            it.

    Raises:
        ValueError: If the URL is none, or a number is out of range.
        MissingExtraError: If PostgreSQL's driver is not installed.

    Example:
        >>> from langchain_core.documents import Document
        >>> store = FeedbackStore("sqlite://")
        >>> found = [Document("A refund takes 14 days.", id="refunds")]
        >>> store.record_trace("t1", "How long does a refund take?", found)
        >>> event_id = store.rate("t1", 5, target=found[0], actor="ann")
        >>> [cell.positive for cell in store.evidence_for("how long does a refund take").cells]
        [1.0]
        >>> store.retract(event_id)
        >>> store.evidence_for("How long does a refund take?").cells
        ()
    """

    def __init__(
        self,
        url: str = "sqlite:///feedback.db",
        *,
        embeddings: Embeddings | None = None,
        namespace: str = "default",
        half_life_days: float | str | None = KEPT,
        timeout_s: float = 0.25,
    ) -> None:
        super().__init__(
            url,
            embeddings=embeddings,
            namespace=namespace,
            half_life_days=half_life_days,
            timeout_s=timeout_s,
        )
