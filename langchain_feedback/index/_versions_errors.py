"""What versions of an index refuse; each message says what to do next."""

from langchain_feedback.errors import LangChainFeedbackError

__all__ = [
    "EmbedderMismatchError",
    "NoActiveVersionError",
    "UnknownVersionError",
    "VersionConflictError",
    "VersionError",
    "VersionRefusedError",
]


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
