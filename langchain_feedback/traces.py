"""The id that binds an answer to its retrieval."""

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.utils.uuid import uuid7

__all__ = [
    "ATTEMPT_KEY",
    "SEARCHED_FOR_KEY",
    "TRACE_ID_KEY",
    "asker_of",
    "new_trace_id",
    "trace_id_of",
]

TRACE_ID_KEY = "feedback_trace_id"
"""The key of a run's `config["metadata"]` under which a trace id travels."""

ATTEMPT_KEY = "feedback_attempt"
"""The key beside it for the number of the search: 1, then 2 after a rewritten question."""

SEARCHED_FOR_KEY = "feedback_searched_for"
"""The key under which runs below a `FeedbackRetriever` name its trace id, so that the run of an
answer is found by it. It is no request to join that trace, as `TRACE_ID_KEY` is."""


def new_trace_id() -> str:
    """Make an id for one question asked: a UUIDv7, so that ids sort by time.

    It is made before retrieval starts and is not a LangChain run id: inside a
    graph node neither the run id nor its parent is the caller's.

    Example:
        >>> len(new_trace_id())
        36
    """
    return str(uuid7())


def trace_id_of(documents: Iterable[Document | Mapping[str, Any]] | Document) -> str:
    """Return the id of the retrieval that returned these documents.

    Args:
        documents: What a `FeedbackRetriever` returned, or one of them; or the artifact of a
            retrieval tool's message, in which a checkpointer has made them dicts.

    Raises:
        ValueError: If there are no documents, they carry no trace id, or they come from
            more than one retrieval.

    Example:
        >>> found = [Document("A refund.", metadata={"feedback": {"trace_id": "t1"}})]
        >>> trace_id_of(found)
        't1'
    """
    documents = [documents] if isinstance(documents, Document) else [*documents]
    if not documents:
        msg = (
            "An empty result carries no trace id. Make one with `new_trace_id()` before you "
            'retrieve, and pass it as config["metadata"]["feedback_trace_id"].'
        )
        raise ValueError(msg)
    metadata = (one["metadata"] if isinstance(one, Mapping) else one.metadata for one in documents)
    feedback = [(given or {}).get("feedback") or {} for given in metadata]
    found = {marks.get("trace_id") for marks in feedback}
    if None in found or len(found) > 1:
        what = "no trace id" if found == {None} else f"more than one trace id: {found!r}"
        msg = f"These documents carry {what}. Pass what one call of a FeedbackRetriever returned."
        raise ValueError(msg)
    return str(found.pop())


def asker_of(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return who asks and in which session, by a run's metadata.

    They are `user_id`, and `session_id` or else LangGraph's `thread_id`.

    Example:
        >>> asker_of({"user_id": 7, "thread_id": "chat-1"})
        ('7', 'chat-1')
    """
    user, session, thread = (
        None if metadata.get(key) in (None, "") else str(metadata[key])
        for key in ("user_id", "session_id", "thread_id")
    )
    return user, session or thread
