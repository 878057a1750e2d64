"""How many chunks a vector store holds, for those that tell.

The stores are told apart by the name of their class: none of their packages is needed here.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["count_in"]

_COUNTS: dict[str, Callable[[Any], int]] = {
    "InMemoryVectorStore": lambda store: len(store.store),
    "FAISS": lambda store: len(store.index_to_docstore_id),
    "Chroma": lambda store: len(store.get(include=[])["ids"]),
    "QdrantVectorStore": lambda store: store.client.count(store.collection_name).count,
}


def count_in(vector_store: Any) -> int | None:
    """Return how many chunks a vector store holds, or None where it does not tell.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> vectors = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
        >>> ids = vectors.add_texts(["Refunds take 14 days."])
        >>> count_in(vectors), count_in(object())
        (1, None)
    """
    kinds = (kind.__name__ for kind in type(vector_store).__mro__)
    count = next((_COUNTS[name] for name in kinds if name in _COUNTS), None)
    return None if count is None else int(count(vector_store))
