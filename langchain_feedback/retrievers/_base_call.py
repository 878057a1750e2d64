"""Call any retriever with the options that it takes, found by reading its signature."""

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

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

from langchain_feedback.traces import Retrieved

__all__ = ["aask", "ask", "checked_k", "filtered_faiss", "is_configured"]
__all__ += ["names", "takes"]

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def takes(runnable: Any, name: str) -> bool:
    """Tell whether a retriever takes an option of this name in a call.

    A parameter of that name says so, and a vector store's retriever hands every option to
    its search. A bare `**kwargs` does not: what it is handed on to may refuse the option.
    Bindings, sequences, fallbacks and wrappers that do not name it themselves are read
    through to whom the option reaches.

    Example:
        >>> takes(RunnableLambda(lambda query, k=4: [query] * k), "k")
        True
        >>> takes(RunnableLambda(lambda query: [query]), "k")
        False
    """
    return all(
        _takes(part, name) for part in _reached(runnable, name) if not _hands_on(part, name)
    )


def names(runnable: Any, name: str) -> bool:
    """Tell whether whoever an option reaches has a parameter of that name.

    A vector store's retriever, which `takes` any, does not: it is for options that mean
    nothing to others.

    Example:
        >>> names(RunnableLambda(lambda query, k=4: [query] * k), "k")
        True
    """
    return all(
        _names_it(part, name) for part in _reached(runnable, name) if not _hands_on(part, name)
    )


def filtered_faiss(base: Any, options: Mapping[str, Any]) -> int | None:
    """Return the size of a FAISS index that is to filter what a search found, else None.

    It searches for `fetch_k` documents, 20 unless told, and drops what the filter does not
    let through. None also where somebody has said how many: in the call, or in the settings
    of the vector store's retriever.
    """
    if not isinstance(base, VectorStoreRetriever) or base.search_type != "similarity":
        return None
    given = base.search_kwargs | dict(options)
    if given.get("filter") is None or "fetch_k" in given:
        return None
    if not any(kind.__name__ == "FAISS" for kind in type(base.vectorstore).__mro__):
        return None
    size: int = cast("Any", base.vectorstore).index.ntotal
    return size


def ask(
    runnable: Runnable[str, list[Document]],
    query: str,
    config: RunnableConfig,
    options: Mapping[str, Any],
) -> list[Document]:
    """Call a retriever; None counts as nothing found."""
    return _found(runnable.invoke(query, config, **options))


async def aask(
    runnable: Runnable[str, list[Document]],
    query: str,
    config: RunnableConfig,
    options: Mapping[str, Any],
) -> list[Document]:
    """Call a retriever without blocking the event loop; the same as `ask` otherwise."""
    if any(_is_sync_only(part) for name in options for part in _reached(runnable, name)):
        # LangChain's own async hook runs the sync one in a thread, but takes no options.
        found = await run_in_executor(config, runnable.invoke, query, config, **options)
    else:
        found = await runnable.ainvoke(query, config, **options)
    return _found(found)


def _found(documents: Iterable[Document] | None) -> list[Document]:
    # An empty result of ours knows its trace id.
    return documents if isinstance(documents, Retrieved) else list(documents or ())


def is_configured(runnable: Runnable[Any, Any], config: RunnableConfig) -> bool:
    """Tell whether `config["configurable"]` changes how a retriever searches."""
    given = config.get("configurable") or {}
    return bool(given) and any(spec.id in given for spec in runnable.config_specs)


def _reached(runnable: Any, name: str) -> Iterator[Any]:
    """Yield the parts that an option of a call reaches, wrappers before what they wrap."""
    inner: list[Any]
    if isinstance(runnable, RunnableBindingBase):
        inner = [runnable.bound]
    elif isinstance(runnable, RunnableSequence):
        inner = [runnable.first]
    elif isinstance(runnable, RunnableWithFallbacks):
        inner = [*runnable.runnables]
    elif isinstance(runnable, DynamicRunnable):
        inner = [runnable.default, *_alternatives(runnable)]
    else:
        yield runnable
        inner = [runnable.base_retriever] if _hands_on(runnable, name) else []
    for part in inner:
        yield from _reached(part, name)


def _alternatives(runnable: Any) -> list[Any]:
    if not isinstance(runnable, RunnableConfigurableAlternatives):
        return []
    return list(runnable.alternatives.values())


def _hands_on(runnable: Any, name: str) -> bool:
    """Tell whether it is a wrapper that hands an option on, as compression retrievers do."""
    inner = getattr(runnable, "base_retriever", None)
    if not isinstance(runnable, BaseRetriever) or not isinstance(inner, Runnable):
        return False
    hook = runnable._get_relevant_documents  # noqa: SLF001  the hook of a subclass
    return _takes_any(hook) and not _names(hook, name)


def _takes(leaf: Any, name: str) -> bool:
    if isinstance(leaf, VectorStoreRetriever) and _takes_any(leaf._get_relevant_documents):  # noqa: SLF001
        return True
    return _names_it(leaf, name)


def _names_it(leaf: Any, name: str) -> bool:
    if isinstance(leaf, BaseRetriever):
        return _names(leaf._get_relevant_documents, name)  # noqa: SLF001
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


def checked_k(k: Any) -> int:
    """Return the number of documents that a call asks for.

    Raises:
        ValueError: If it is below 1.
    """
    if isinstance(k, bool) or operator.index(k) < 1:
        msg = f"k must be at least 1, not {k!r}"
        raise ValueError(msg)
    return operator.index(k)
