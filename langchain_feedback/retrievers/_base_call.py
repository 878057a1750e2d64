"""Call any retriever with the options that it takes, found by reading its signature."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import run_in_executor
from langchain_core.runnables.configurable import (
    DynamicRunnable,
    RunnableConfigurableAlternatives,
)
from langchain_core.vectorstores import VectorStoreRetriever

__all__ = ["aask", "ask", "is_configured", "takes"]

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def takes(runnable: Any, name: str) -> bool:
    """Tell whether a retriever takes an option of this name in a call.

    A parameter of that name says so, and a vector store's retriever hands every option to
    its search. A bare `**kwargs` does not: what it is handed on to may refuse the option.
    Bindings, sequences, fallbacks and wrappers are read through to whom the option reaches.

    Example:
        >>> takes(RunnableLambda(lambda query, k=4: [query] * k), "k")
        True
        >>> takes(RunnableLambda(lambda query: [query]), "k")
        False
    """
    return all(_leaf_takes(leaf, name) for leaf in _leaves(runnable))


def ask(
    runnable: Runnable[str, list[Document]],
    query: str,
    config: RunnableConfig,
    options: Mapping[str, Any],
) -> list[Document]:
    """Call a retriever; None counts as nothing found."""
    return list(runnable.invoke(query, config, **options) or ())


async def aask(
    runnable: Runnable[str, list[Document]],
    query: str,
    config: RunnableConfig,
    options: Mapping[str, Any],
) -> list[Document]:
    """Call a retriever without blocking the event loop; the same as `ask` otherwise."""
    if options and any(_is_sync_only(leaf) for leaf in _leaves(runnable)):
        # LangChain's own async hook runs the sync one in a thread, but takes no options.
        found = await run_in_executor(config, runnable.invoke, query, config, **options)
    else:
        found = await runnable.ainvoke(query, config, **options)
    return list(found or ())


def is_configured(runnable: Runnable[Any, Any], config: RunnableConfig) -> bool:
    """Tell whether `config["configurable"]` changes how a retriever searches."""
    given = config.get("configurable") or {}
    return bool(given) and any(spec.id in given for spec in runnable.config_specs)


def _leaves(runnable: Any) -> Iterator[Any]:
    """Yield the parts that a call's options reach."""
    inner: list[Any]
    if isinstance(runnable, RunnableBindingBase):
        inner = [runnable.bound]
    elif isinstance(runnable, RunnableSequence):
        inner = [runnable.first]
    elif isinstance(runnable, RunnableWithFallbacks):
        inner = [*runnable.runnables]
    elif isinstance(runnable, DynamicRunnable):
        inner = [runnable.default, *_alternatives(runnable)]
    elif _hands_on(runnable):
        inner = [runnable.base_retriever]
    else:
        yield runnable
        return
    for part in inner:
        yield from _leaves(part)


def _alternatives(runnable: Any) -> list[Any]:
    if not isinstance(runnable, RunnableConfigurableAlternatives):
        return []
    return list(runnable.alternatives.values())


def _hands_on(runnable: Any) -> bool:
    """Tell whether it is a wrapper that hands its options on, as compression retrievers do."""
    inner = getattr(runnable, "base_retriever", None)
    return (
        isinstance(runnable, BaseRetriever)
        and isinstance(inner, Runnable)
        and _takes_any(runnable._get_relevant_documents)  # noqa: SLF001  the hook of a subclass
    )


def _leaf_takes(leaf: Any, name: str) -> bool:
    if isinstance(leaf, BaseRetriever):
        hook = leaf._get_relevant_documents  # noqa: SLF001
        return _names(hook, name) or (isinstance(leaf, VectorStoreRetriever) and _takes_any(hook))
    if isinstance(leaf, RunnableLambda):
        return _names(leaf.func if hasattr(leaf, "func") else leaf.afunc, name)
    return isinstance(leaf, Runnable) and _names(leaf.invoke, name)


def _is_sync_only(leaf: Any) -> bool:
    own = getattr(type(leaf), "_aget_relevant_documents", None)
    return own is BaseRetriever._aget_relevant_documents  # noqa: SLF001


def _names(function: Callable[..., Any], name: str) -> bool:
    # The first parameter is the question, whatever it is called.
    parameters = _parameters(function)[1:]
    return any(p.name == name and p.kind in _NAMED for p in parameters)


def _takes_any(function: Callable[..., Any]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in _parameters(function))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some functions written in C tell nothing.
        return []
