"""Whether what documents are retrieved from is a given index, as far as can be seen."""

from collections.abc import Iterator
from typing import Any

__all__ = ["rests_on"]

_INSIDE = (
    "__self__", "vectorstore", "vector_store", "base_retriever", "retriever", "retrievers",
    "bound", "runnable", "first", "last",
)  # fmt: skip
_DEPTH = 4


def rests_on(primary: Any, index: Any) -> bool:
    """Tell whether a vector store, a retriever or a method of one is on this index.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> index = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        >>> rests_on(index.as_retriever(), index), rests_on(index.get_by_ids, index)
        (True, True)
    """
    return any(one is index for one in _parts(primary, _DEPTH))


def _parts(whole: Any, depth: int) -> Iterator[Any]:
    if whole is None or not depth:
        return
    yield whole
    for name in _INSIDE:
        inside = _part(whole, name)
        for part in inside if isinstance(inside, list | tuple) else [inside]:
            yield from _parts(part, depth - 1)


def _part(whole: Any, name: str) -> Any:
    try:
        return getattr(whole, name, None)
    except Exception:  # noqa: BLE001  somebody's property: what cannot be seen is not told
        return None
