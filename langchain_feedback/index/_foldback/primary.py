"""Whether what documents are retrieved from is a given index, as far as can be seen."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["rests_on"]

_INSIDE = (
    "__self__", "vectorstore", "vector_store", "base_retriever", "fallback_retriever", "retriever",
    "retrievers", "bound", "runnable", "fallbacks", "first", "middle", "last", "steps__",
    "default", "deps",
)  # fmt: skip
_MOST = 200
"""Parts that are looked at: a retriever has some ten."""


def rests_on(primary: Any, index: Any) -> bool:
    """Tell whether a vector store, a retriever or a method of one is on this index.

    Two objects are the same index where they share a collection or a table over one client, or
    the data themselves.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> index = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        >>> rests_on(index.as_retriever(), index), rests_on(index.get_by_ids, index)
        (True, True)
    """
    place = _place(index)
    return any(
        one is index or (type(one) is type(index) and place is not None and _place(one) == place)
        for one in _parts(primary)
    )


def _parts(whole: Any) -> Iterator[Any]:
    """Yield a retriever and what is in it, the outermost first, each once."""
    waiting, seen = [whole], dict[int, Any]()
    while waiting and len(seen) < _MOST:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        # Kept, so that no other object gets its number meanwhile.
        seen[id(one)] = one
        yield one
        for name in _INSIDE:
            waiting += _listed(_part(one, name))


def _listed(inside: Any) -> Iterable[Any]:
    if isinstance(inside, Mapping):
        return list(inside.values())
    return inside if isinstance(inside, list | tuple) else [inside]


def _place(index: Any) -> tuple[Any, ...] | None:
    """Return what tells where an index has its data; None: it does not say."""
    table = _part(index, "_PGVectorStore__vs")
    if table is not None:
        names = _part(table, "schema_name"), _part(table, "table_name")
        return id(_part(table, "engine")), *names
    collection = _part(index, "_collection")  # Chroma
    if collection is not None:
        return (_part(collection, "id"),)
    if name := _part(index, "collection_name"):  # Qdrant
        return id(_part(index, "client")), name
    data = _part(index, "index") or _part(index, "store")  # FAISS, in memory
    return None if data is None else (id(data),)


def _part(whole: Any, name: str) -> Any:
    try:
        return getattr(whole, name, None)
    except Exception:  # noqa: BLE001  somebody's property: what cannot be seen is not told
        return None
