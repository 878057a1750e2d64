"""The id that binds an answer to its retrieval, and where it travels."""

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.utils.uuid import uuid7

__all__ = [
    "ATTEMPT_KEY",
    "INDEX_VERSION_KEY",
    "MARKS_KEY",
    "SEARCHED_FOR_KEY",
    "TRACE_ID_KEY",
    "UNRECORDED_KEY",
    "Retrieved",
    "asker_of",
    "index_version_of",
    "marks_of",
    "new_trace_id",
    "storable",
    "trace_id_of",
    "traffic_of",
]

TRACE_ID_KEY = "feedback_trace_id"
"""The key of a run's `config["metadata"]` under which a trace id travels."""

ATTEMPT_KEY = "feedback_attempt"
"""The key beside it for the number of the search: 1, then 2 after a rewritten question."""

MARKS_KEY = "feedback"
"""The key of a document's metadata under which a `FeedbackRetriever` says where it stood."""

SEARCHED_FOR_KEY = "feedback_searched_for"
"""The key under which runs below a `FeedbackRetriever` name its trace id, so that the run of an
answer is found by it. It is no request to join that trace, as `TRACE_ID_KEY` is."""

UNRECORDED_KEY = "feedback_unrecorded"
"""The key under which a retriever that keeps the trace itself tells those below it to keep none:
they rank as ever."""

INDEX_VERSION_KEY = "feedback_index_version"
"""The key under which a retriever over versions of an index tells those below it which one is
searched; those above it read it in the marks of documents."""


def new_trace_id() -> str:
    """Make an id for one question asked: a UUIDv7, so that ids sort by time.

    It is made before retrieval starts and is not a LangChain run id: inside a
    graph node neither the run id nor its parent is the caller's.

    Example:
        >>> len(new_trace_id())
        36
    """
    return str(uuid7())


class Retrieved(list[Document]):
    """What one retrieval returned: a list that knows its trace id, also where it is empty.

    Example:
        >>> Retrieved([], "t1") == [], trace_id_of(Retrieved([], "t1"))
        (True, 't1')
    """

    def __init__(self, documents: Iterable[Document], trace_id: str) -> None:
        super().__init__(documents)
        self.trace_id = trace_id


def marks_of(document: Document | Mapping[str, Any]) -> dict[str, Any]:
    """Return what a `FeedbackRetriever` wrote into a document, as a new dict.

    The key is a common word: whatever else an index keeps under it counts as no marks.

    Example:
        >>> marks_of(Document("A refund.", metadata={"feedback": {"trace_id": "t1"}}))
        {'trace_id': 't1'}
        >>> marks_of(Document("A refund.", metadata={"feedback": "good"}))
        {}
    """
    metadata = document["metadata"] if isinstance(document, Mapping) else document.metadata
    marks = (metadata or {}).get(MARKS_KEY)
    return dict(marks) if isinstance(marks, Mapping) else {}


def trace_id_of(
    documents: Iterable[Document | Mapping[str, Any]] | Document | Mapping[str, Any],
) -> str:
    """Return the id of the retrieval that returned these documents.

    Args:
        documents: What a `FeedbackRetriever` returned, or one of them. Its own empty list
            will do, a copy of it will not. Or the artifact of a retrieval tool's message, in
            which a checkpointer has made them dicts, and which knows its trace id also where
            nothing was found.

    Raises:
        ValueError: If there are no documents, they carry no trace id, or they come from
            more than one retrieval.

    Example:
        >>> found = [Document("A refund.", metadata={"feedback": {"trace_id": "t1"}})]
        >>> trace_id_of(found)
        't1'
        >>> trace_id_of({"documents": [], "trace_id": "t2"})
        't2'
    """
    if isinstance(documents, Retrieved) and not documents:
        return documents.trace_id
    if isinstance(documents, Mapping) and "page_content" not in documents:
        found_nothing = not documents.get("documents") and documents.get("trace_id")
        if isinstance(found_nothing, str) and found_nothing:
            return found_nothing
        documents = documents.get("documents") or []
    documents = [documents] if isinstance(documents, Document | Mapping) else [*documents]
    if not documents:
        msg = (
            "An empty result carries no trace id. Make one with `new_trace_id()` before you "
            'retrieve, and pass it as config["metadata"]["feedback_trace_id"].'
        )
        raise ValueError(msg)
    ids = [marks_of(document).get("trace_id") for document in documents]
    # Another program's mark under this name may be anything, even unhashable.
    found = {trace_id if isinstance(trace_id, str) else None for trace_id in ids}
    trace_id = found.pop()
    if found or not trace_id:
        what = f"more than one trace id: {found | {trace_id}!r}" if found else "no trace id"
        msg = f"These documents carry {what}. Pass what one call of a FeedbackRetriever returned."
        raise ValueError(msg)
    return trace_id


def index_version_of(run: Mapping[str, Any], documents: Iterable[Document]) -> str | None:
    """Return the version of the index that is searched: by a run's metadata, else by marks.

    Example:
        >>> found = Document("A refund.", metadata={"feedback": {"index_version": "v2"}})
        >>> index_version_of({}, [found]), index_version_of({"feedback_index_version": "v1"}, [])
        ('v2', 'v1')
    """
    told = (run.get(INDEX_VERSION_KEY), *(marks_of(one).get("index_version") for one in documents))
    return next((version for version in told if isinstance(version, str)), None)


def asker_of(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return who asks and in which session, by a run's metadata.

    They are `user_id`, and `session_id` or else LangGraph's `thread_id`. A client may have
    sent them: they are returned as any database can hold them.

    Example:
        >>> asker_of({"user_id": 7, "thread_id": "chat-1"})
        ('7', 'chat-1')
    """
    given = (metadata.get(key) for key in ("user_id", "session_id", "thread_id"))
    user, session, thread = (None if one is None else storable(str(one)) for one in given)
    return user or None, session or thread or None


def traffic_of(metadata: Mapping[str, Any]) -> str | None:
    """Return `eval` or `playground` where a run's metadata name one of them as its `source`.

    Example:
        >>> traffic_of({"source": "eval"}), traffic_of({"source": "handbook.md"})
        ('eval', None)
    """
    source = metadata.get("source")
    return source if isinstance(source, str) and source in ("eval", "playground") else None


def storable(text: str) -> str:
    r"""Return a text that every database can hold: without NUL and lone surrogates.

    Example:
        >>> storable("a\0b\ud800")
        'a\ufffdb?'
    """
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
