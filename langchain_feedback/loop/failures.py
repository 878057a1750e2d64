"""What kind of failure an answer was: retrieval's, generation's, or the document's."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from langchain_feedback.documents import chunk_key
from langchain_feedback.errors import UnknownTraceError
from langchain_feedback.judges.offline import LexicalGrader
from langchain_feedback.loop._triage.failure_facts import facts_of
from langchain_feedback.loop._triage.failure_rules import Case, FailureClass
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.transactions import clock, reading

if TYPE_CHECKING:
    from langchain_core.retrievers import RetrieverLike

    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Failure", "FailureClass", "classify_failure", "classify_failures"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """What went wrong with an answer, and what shows it."""

    trace_id: str
    failure_class: FailureClass
    evidence: tuple[str, ...]
    """Sentences, each a stored fact."""
    chunk_id: str | None
    """The suspect: the chunk that a reviewer is asked about. None where no chunk is at fault:
    a missing document, and an answer that was badly written from a good one."""


def classify_failure(
    store: "FeedbackStore",
    trace_id: str,
    *,
    fallback: "RetrieverLike | None" = None,
    now: datetime | None = None,
) -> Failure:
    """Say of one bad answer what went wrong; see `classify_failures`.

    Raises:
        UnknownTraceError: If there is no such trace.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> store.record_trace("t1", "Is there a phone number?", [])
        >>> classify_failure(store, "t1").failure_class
        'missing_document'
    """
    with reading(store) as connection:
        asks = read_asks(connection, store.namespace, trace_ids=[trace_id], with_tests=True)
    if not asks:
        msg = f"No trace {trace_id!r} in namespace {store.namespace!r}"
        raise UnknownTraceError(msg)
    return classify_failures(store, asks, fallback=fallback, now=now)[0]


def classify_failures(
    store: "FeedbackStore",
    asks: Sequence[Ask],
    *,
    fallback: "RetrieverLike | None" = None,
    now: datetime | None = None,
) -> list[Failure]:
    """Say of each bad answer what went wrong, from stored facts alone; no model is called.

    A chunk answers a question if it is pinned for it, if its belief is at least .1, or if it was
    graded yes; where people's word and a grade disagree, people's counts. The first class that
    fits:

    1. `retrieval`: a chunk that answers it stands below the prompt or outside the pool, and
       none that is as well attested is in the prompt; or nothing that was found fits (next
       rule), and `fallback` finds a chunk that does, by its words.
    2. `missing_document`: nothing was found, or all of it was graded no.
    3. `generation`: a chunk that answers it was in the prompt, and the answer is not grounded,
       was withheld for that, or quotes nothing.
    4. `stale_document`: the answer rests on its sources, and one of them has an open alarm
       (complaints, gone, a reviewer's), has another text by now, or was corrected with another
       number or date.
    5. `retrieval` again: a second chunk that answers it was left out of the prompt.
    6. `disputed`: the answer is grounded and its quotes are proved: people dislike what the
       documents say. Nothing is ever trained on it.
    7. `unclear`.

    The rules are this package's own design (section 4); the order puts what a person said about
    the right chunk before what a model graded, and a fact about the document before a guess.

    Args:
        store: Where the facts are.
        asks: Answers, as `read_asks` returns them.
        fallback: Another retriever, asked once for each question of which nothing that was
            found fits.
        now: When; None: at this moment, by the database's clock.

    Returns:
        One failure for each answer, in their order.
    """
    with reading(store) as connection:
        facts = facts_of(store, connection, asks, now or clock(store, connection))
    elsewhere = _Elsewhere(fallback)
    return [Failure(ask.trace_id, *Case(ask, facts, elsewhere.find).decide()) for ask in asks]


class _Elsewhere:
    """Asks the fallback, once for each question."""

    def __init__(self, fallback: "RetrieverLike | None") -> None:
        self._fallback = fallback
        self._grader = LexicalGrader()
        self._found: dict[int, list[str]] = {}

    def find(self, ask: Ask) -> str | None:
        """Return a chunk that holds the question's words, and was not graded no."""
        if self._fallback is None:
            return None
        if ask.question_id not in self._found:
            self._found[ask.question_id] = self._search(self._fallback, ask.question)
        refused = {chunk.chunk_id for chunk in ask.chunks if chunk.grade == "no"}
        return next((one for one in self._found[ask.question_id] if one not in refused), None)

    def _search(self, fallback: "RetrieverLike", question: str) -> list[str]:
        try:
            found = list(fallback.invoke(question) or ())
        except Exception as error:  # noqa: BLE001  one search must not cost the others' classes
            logger.warning("The fallback failed: %s: %s", type(error).__name__, error)
            return []
        grades = self._grader.invoke({"question": question, "documents": found})
        pairs = zip(found, grades, strict=True)
        return [chunk_key(document) for document, grade in pairs if grade["verdict"] == "yes"]
