"""Typed errors; each message says what to do next."""

__all__ = [
    "ArtifactError",
    "ClaimLostError",
    "EmptyFolderError",
    "EvaluationError",
    "EventReusedError",
    "ExperimentError",
    "ExpiredTokenError",
    "InvalidTokenError",
    "LangChainFeedbackError",
    "LoopBusyError",
    "MissingExtraError",
    "MissingKeyError",
    "NoTextError",
    "NotEnoughFeedbackError",
    "OutdatedError",
    "PeekError",
    "PromotionRefusedError",
    "RankerError",
    "ReviewError",
    "StoreError",
    "StoreRejectedError",
    "StoreVersionError",
    "TokenError",
    "TooManySignalsError",
    "TraceReusedError",
    "UnknownChunkError",
    "UnknownEventError",
    "UnknownItemError",
    "UnknownModelError",
    "UnknownRankerError",
    "UnknownTraceError",
    "UnreadableFileError",
]


class LangChainFeedbackError(RuntimeError):
    """Base of every error of this package's own.

    A `RuntimeError`, since a LangGraph server passes on the message of those only.
    """


class MissingExtraError(LangChainFeedbackError, ImportError):
    """An optional package is needed; the message names the extra to install."""


class MissingKeyError(LangChainFeedbackError):
    """A hosted model was asked for, and no key for it is set."""


class UnknownModelError(LangChainFeedbackError):
    """A model was named that the command line does not know how to make."""


class EmptyFolderError(LangChainFeedbackError):
    """A folder holds no file of a kind that can be read."""


class UnreadableFileError(LangChainFeedbackError):
    """A file could not be opened, decoded or parsed."""


class NoTextError(UnreadableFileError):
    """A file was read and holds no text, such as a scanned PDF."""


class StoreError(LangChainFeedbackError):
    """The feedback store could not be opened, read or written; nothing is half written."""


class StoreRejectedError(StoreError):
    """The database refuses these values, and will again."""


class StoreVersionError(StoreError):
    """The database was made by a newer release than this one."""


class UnknownTraceError(StoreError, LookupError):
    """A trace id is not in the store."""


class TraceReusedError(StoreError, ValueError):
    """A trace id was used for another question; make one for each with `new_trace_id()`."""


class EventReusedError(StoreError, ValueError):
    """An event id was used for another trace or target; make one for each submission."""


class UnknownEventError(StoreError, LookupError):
    """An event or pin id is not in the store."""


class UnknownChunkError(StoreError, LookupError):
    """A rating names a chunk that its retrieval did not return, or a pin one never seen."""


class TooManySignalsError(StoreError):
    """Somebody sends more than the limits allow; nothing of the batch was kept.

    `retry_after_s` says in how many seconds it may be sent again.
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotEnoughFeedbackError(LangChainFeedbackError):
    """There is too little feedback to learn this from; the message says how much is needed."""


class ReviewError(LangChainFeedbackError):
    """The review queue refuses something; nothing of it was kept."""


class ClaimLostError(ReviewError):
    """An item is no longer the reviewer's; the message says who has it, or what became of it."""


class UnknownItemError(ReviewError, LookupError):
    """An item id is not in the store."""


class TokenError(LangChainFeedbackError, ValueError):
    """A feedback token does not let its bearer do this; the sender can do nothing but reload."""


class InvalidTokenError(TokenError):
    """A feedback token was not signed with these keys, was changed, or has another scope."""


class ExpiredTokenError(TokenError):
    """A feedback token was good, and is past its lifetime."""


class RankerError(LangChainFeedbackError):
    """A learned ranker cannot be made, loaded or promoted."""


class ArtifactError(RankerError, ValueError):
    """A ranker's artifact is damaged, or of a kind that this process cannot read."""


class PromotionRefusedError(RankerError):
    """A ranker did not earn its promotion; the message says what is missing."""


class OutdatedError(PromotionRefusedError):
    """Another ranker was made active since; nothing speaks against it but that: look again."""


class UnknownRankerError(RankerError, LookupError):
    """A ranker id is not in the store."""


class EvaluationError(LangChainFeedbackError):
    """The cases cannot say whether a ranker is better; the message says why."""


class ExperimentError(LangChainFeedbackError):
    """An experiment cannot be started or read."""


class PeekError(ExperimentError):
    """An experiment is read before its end; the message says how much is missing."""


class LoopBusyError(LangChainFeedbackError):
    """Another process runs the loop of this namespace now."""
