"""What the care of an index refuses; each message says what to do next."""

from langchain_feedback.errors import LangChainFeedbackError

__all__ = [
    "EmbedderMismatchError",
    "IndexBusyError",
    "IndexWriteError",
    "NoActiveVersionError",
    "PlanChangedError",
    "TooManyRemovalsError",
    "UnknownVersionError",
    "UnsupportedIndexError",
    "VersionConflictError",
    "VersionError",
    "VersionRefusedError",
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
    """Another writer works on the index, or did since it was loaded."""


class VersionError(LangChainFeedbackError):
    """A version of an index cannot be kept, opened or made active."""


class UnknownVersionError(VersionError, LookupError):
    """A version is not in the registry."""


class NoActiveVersionError(VersionError, LookupError):
    """No version of this namespace is active, so there is nothing to search."""


class VersionConflictError(VersionError):
    """Another version is active than was expected: somebody was faster. Nothing was changed."""


class VersionRefusedError(VersionError):
    """A version did not pass its checks, or is not in a state to do this with it."""


class EmbedderMismatchError(VersionError, ValueError):
    """A version would be searched with another embedder than it was made with."""
