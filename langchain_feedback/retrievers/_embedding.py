"""The question's embedding: one call at most, and the answer stands without it."""

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_feedback.retrievers._once import Once

__all__ = ["aembed", "embed"]


def embed(embeddings: Embeddings | None, question: str, once: Once) -> list[float] | None:
    """Embed a question; None where that fails: then only the identical question counts."""
    if embeddings is None:
        return None
    try:
        return _checked(embeddings.embed_query(question))
    except Exception as error:  # noqa: BLE001  any client's error; the answer goes on
        _warn(once, error)
        return None


async def aembed(embeddings: Embeddings | None, question: str, once: Once) -> list[float] | None:
    """Do as `embed`, without blocking the event loop."""
    if embeddings is None:
        return None
    try:
        return _checked(await embeddings.aembed_query(question))
    except Exception as error:  # noqa: BLE001
        _warn(once, error)
        return None


def _checked(vector: list[float]) -> list[float]:
    row = np.asarray(vector, dtype=np.float64)
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        msg = f"not one row of finite numbers, but an array of shape {row.shape}"
        raise ValueError(msg)
    return vector


def _warn(once: Once, error: Exception) -> None:
    once.warn(
        "embedding",
        "The question could not be embedded, so only the identical question's feedback counts: %r",
        error,
    )
