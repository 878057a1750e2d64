"""The id that binds an answer to its retrieval."""

from langchain_core.utils.uuid import uuid7

__all__ = ["ATTEMPT_KEY", "TRACE_ID_KEY", "new_trace_id"]

TRACE_ID_KEY = "feedback_trace_id"
"""The key of a run's `config["metadata"]` under which a trace id travels."""

ATTEMPT_KEY = "feedback_attempt"
"""The key beside it for the number of the search: 1, then 2 after a rewritten question."""


def new_trace_id() -> str:
    """Make an id for one question asked: a UUIDv7, so that ids sort by time.

    It is made before retrieval starts and is not a LangChain run id: inside a
    graph node neither the run id nor its parent is the caller's.

    Example:
        >>> len(new_trace_id())
        36
    """
    return str(uuid7())
