"""What a `FeedbackRetriever` is checked for when it is made."""

import inspect
from typing import TYPE_CHECKING, Any, get_args

from langchain_core.runnables import Runnable

from langchain_feedback.ranking.linear import Ranker
from langchain_feedback.ranking.policies import Needs
from langchain_feedback.retrievers._pool import kernel_of

if TYPE_CHECKING:
    from langchain_feedback.retrievers.feedback import FeedbackRetriever

__all__ = ["check_parts", "plain_function", "ranker_like", "runnable"]


def runnable(value: Any) -> Any:
    """Return a Runnable, or None.

    Raises:
        ValueError: If it is something else.
    """
    if value is not None and not isinstance(value, Runnable):
        msg = (
            f"expected a Runnable from a string to documents, got {value!r}; use "
            "`as_retriever()` of a vector store, or wrap a function in `RunnableLambda`"
        )
        raise ValueError(msg)
    return value


def plain_function(value: Any) -> Any:
    """Return a function that is no coroutine function.

    Raises:
        ValueError: If it is one.
    """
    if inspect.iscoroutinefunction(value):
        msg = f"expected a plain function, which runs in a thread in async calls: {value!r}"
        raise ValueError(msg)
    return value


def ranker_like(value: Any) -> Any:
    """Return a ranker, None, or the word for the one that the store says is active.

    Raises:
        ValueError: If it is something else.
    """
    if value is None or value == "active" or _ranks(value):
        return value
    msg = (
        f'ranker is "active", None, or has `score(question, candidates)`: got {value!r}. A '
        "cross-encoder is a feature: see `extra_features` of `LinearRanker.fit`"
    )
    raise ValueError(msg)


def _ranks(value: Any) -> bool:
    if isinstance(value, type) or not isinstance(value, Ranker):
        return False
    try:
        inspect.signature(value.score).bind("question", "candidates")
    except TypeError:
        return False
    except ValueError:  # written in C, and tells nothing
        return True
    return True


def check_parts(settings: "FeedbackRetriever") -> None:
    """Make sure that the parts fit each other.

    Raises:
        ValueError: If they do not.
    """
    policy, store = settings.policy, settings.store
    if settings.base_retriever is None:
        msg = "base_retriever is missing: any Runnable from a string to documents"
        raise ValueError(msg)
    if policy.needs not in get_args(Needs):
        msg = f"policy.needs must be one of {get_args(Needs)}, got {policy.needs!r}"
        raise ValueError(msg)
    if settings.foldback is not None:
        for primary in (settings.base_retriever, settings.fallback_retriever, settings.resolve):
            settings.foldback.refuse(primary)
    fitted_for = getattr(kernel_of(policy), "embedder", None)
    if fitted_for is not None and fitted_for != store.embedder:
        msg = (
            f"The policy's kernel was fitted for the embedder {fitted_for!r}, and the store "
            f"has {store.embedder!r}: fit it anew with `store.fit_kernel()`"
        )
        raise ValueError(msg)
