"""What a writer refuses; each message says what to do next."""

from langchain_feedback.errors import LangChainFeedbackError

__all__ = [
    "IndexBusyError",
    "IndexWriteError",
    "PlanChangedError",
    "TooManyRemovalsError",
    "UnsupportedIndexError",
]


class IndexWriteError(LangChainFeedbackError):
    """An index is not written to; what was written before stays."""


class UnsupportedIndexError(IndexWriteError, ValueError):
    """A vector store, or an id, that cannot be written to safely."""


class TooManyRemovalsError(IndexWriteError):
    """A plan would remove more than it may without being forced; nothing was done."""


class PlanChangedError(IndexWriteError):
    """What would run now is not what was planned; nothing was done."""


class IndexBusyError(IndexWriteError):
    """Another writer works on the index."""
