"""What becomes of a checked draft: the message for the user, and the store's record of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from langchain_feedback.documents import chunk_key
from langchain_feedback.integrations._checking import Checker, Finding
from langchain_feedback.integrations._memory import Search
from langchain_feedback.integrations._turn import GROUNDING_KEY, Turn
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.keys import StateKeys
from langchain_feedback.nodes.outcomes import keep_outcome
from langchain_feedback.traces import TRACE_ID_KEY, marks_of, new_trace_id

if TYPE_CHECKING:
    # Importing it takes a database library along, which agents without a store do not need.
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Place", "Traces", "declined", "grounding_of", "marked"]

_OF_THE_MODEL = ("model_name", "model_provider")


def grounding_of(message: AIMessage) -> dict[str, Any]:
    """Return what `GroundedAnswerMiddleware` found out about an agent's message.

    It is a dict of plain values: `status` (`answered`: verified; `abstained`; `unverified`:
    passed on unchecked), `reason`, `grounded`, `citations`, `trace_id` (of the retrieval that
    the answer rests on first), `trace_ids` (of each retrieval of the turn), `regenerations`
    (rejected drafts), and `errors` that were survived. An empty dict: the message is no answer.

    Example:
        >>> grounding_of(AIMessage("Hello!"))
        {}
    """
    found = message.response_metadata.get(GROUNDING_KEY) or {}
    return dict(found) if "status" in found else {}


def marked(message: AIMessage, marks: Mapping[str, Any]) -> AIMessage:
    """Make the same message with these marks, and with an id."""
    metadata = {**message.response_metadata, GROUNDING_KEY: dict(marks)}
    return message.model_copy(
        update={"response_metadata": metadata, "id": message.id or str(uuid4())}
    )


def declined(draft: AIMessage, text: str) -> AIMessage:
    """Make the message of an abstention in place of a draft.

    It has what the draft cost, and nothing of what it said: no id, no log probabilities.
    """
    known = draft.response_metadata
    return AIMessage(
        text,
        name=draft.name,
        id=str(uuid4()),
        usage_metadata=draft.usage_metadata,
        response_metadata={key: known[key] for key in _OF_THE_MODEL if key in known},
    )


@dataclass(frozen=True)
class Place:
    """Where a search is kept."""

    store: "FeedbackStore | None"
    """None: nobody keeps it."""
    is_own: bool = False
    """Whether it is the store of the `FeedbackRetriever` that searched, and has recorded it."""


class Traces:
    """The retrievals of a turn, by trace.

    Args:
        turn: The turn.
        places: Where each search is kept that was seen, by its position.
        config: The run's config. A trace id that the caller hands over in its metadata names
            what no retriever has given an id to.
    """

    def __init__(
        self,
        turn: Turn,
        places: Sequence[Place],
        config: RunnableConfig,
        id_field: str | None,
    ) -> None:
        self._turn, self._id_field = turn, id_field
        self.documents: dict[str, list[Document]] = {}
        self._stores: dict[str, FeedbackStore] = {}
        self._queries: dict[str, str] = {}
        self._questions: dict[str, str] = {}
        unmarked = self._unused((config.get("metadata") or {}).get(TRACE_ID_KEY))
        for search, place in zip(turn.found, places, strict=True):
            for trace_id, documents in _by_trace(search).items():
                if trace_id or place.store is not None:
                    self._add(trace_id or unmarked, search.query, documents, place)

    def _add(
        self,
        trace_id: str,
        query: str,
        documents: list[Document],
        place: Place,
    ) -> None:
        self._queries.setdefault(trace_id, query)
        if place.is_own and not documents:
            # No document says that its retriever has recorded it, under what it was asked.
            self._questions.setdefault(trace_id, query)
        self.documents.setdefault(trace_id, []).extend(documents)
        if place.store is not None:
            self._stores.setdefault(trace_id, place.store)

    def _unused(self, given: Any) -> str:
        """Return the caller's trace id, or a fresh one where a retriever has taken it."""
        taken = {trace_id for search in self._turn.found for trace_id in _by_trace(search)}
        return str(given) if given and str(given) not in taken else new_trace_id()

    @property
    def ids(self) -> list[str]:
        """Every trace id of the turn, in order."""
        return list(self.documents)

    def first(self, finding: Finding) -> str:
        """Return the trace that the answer cites first; else the last one of the turn."""
        for citation in finding.citations:
            for trace_id, documents in self.documents.items():
                keys = {chunk_key(document, self._id_field) for document in documents}
                if citation["verified"] and citation["chunk_id"] in keys:
                    return trace_id
        return self.ids[-1] if self.ids else ""

    def keep(
        self, answer: str, finding: Finding, checker: Checker, config: RunnableConfig
    ) -> None:
        """Tell the stores how each retrieval of the turn went."""
        kept = {chunk_key(document, self._id_field) for document in checker.kept or []}
        status = "abstained" if finding.status in ("rejected", "abstained") else "answered"
        for trace_id, store in self._stores.items():
            documents = self.documents[trace_id]
            state = {
                "trace_id": trace_id,
                "question": self._questions.get(trace_id, self._turn.question),
                "search_question": self._queries[trace_id],
                "documents": documents,
                "kept": [one for one in documents if chunk_key(one, self._id_field) in kept],
                "grounded": finding.grounded,
                "citations": finding.citations,
                "grades": checker.grades,
            }
            view = StateView(state, StateKeys(), config)
            keep_outcome(store, self._id_field, view, Update(answer=answer, status=status))


def _by_trace(search: Search) -> dict[str, list[Document]]:
    """Group what was found by its trace id; what no known retriever found has an empty one."""
    found: dict[str, list[Document]] = {} if search.documents else {search.trace_id: []}
    for document in search.documents:
        found.setdefault(_trace_id(document), []).append(document)
    return found


def _trace_id(document: Document) -> str:
    return str(marks_of(document).get("trace_id") or "")
