"""A feature for learned rankers: how near a chunk is to the question, by their vectors."""

from collections.abc import Sequence
from typing import cast

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from langchain_feedback.documents import content_hash
from langchain_feedback.retrievers._vectors import VectorSource

__all__ = ["CosineFeature"]

_KEPT = 10_000


class CosineFeature:
    """Gives each chunk's cosine to the question, in [-1, 1]: a feature that pays on hybrid bases.

    The vectors of chunks are read from the vector store, else made from their texts; the last
    10,000 are remembered, and 1,000 questions. It is one embedding a question more, unless the
    embeddings are cached.

    Args:
        vector_store: Where the chunks' vectors are: see `DartboardRetriever.vector_store`.
        embeddings: Makes those that it does not give; None: the store's own.
        version: What tells these embeddings from others: a ranker that was trained with another
            version is refused. None: the name of their model, where they have one.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> feature = CosineFeature(embeddings=DeterministicFakeEmbedding(size=8))
        >>> same, other = feature("How long?", [Document("How long?"), Document("Refunds.")])
        >>> round(same, 6), other < 1
        (1.0, True)
        >>> from langchain_feedback.ranking.estimating import LinearEstimator
        >>> estimator = LinearEstimator(extra_features={"cosine": feature})
    """

    def __init__(
        self,
        vector_store: VectorStore | None = None,
        *,
        embeddings: Embeddings | None = None,
        version: str | None = None,
    ) -> None:
        self._source = VectorSource.of(vector_store, embeddings)
        if self._source.embeddings is None:
            msg = "CosineFeature needs `embeddings`, or a `vector_store` that has its own."
            raise ValueError(msg)
        self.version = version or _model_of(self._source.embeddings)
        self._chunks: dict[str, np.ndarray] = {}
        self._questions: dict[str, np.ndarray] = {}

    def __call__(self, question: str, documents: Sequence[Document]) -> list[float]:
        """Return one cosine for each document."""
        by_key = {content_hash(document): document for document in documents}
        # Another thread may forget some meanwhile: what this call needs it holds itself.
        rows = {key: row for key in by_key if (row := self._chunks.get(key)) is not None}
        missing = [key for key in by_key if key not in rows]
        if missing:
            made = self._source.documents([by_key[key] for key in missing])
            new = dict(zip(missing, map(_unit, made), strict=True))
            _keep(self._chunks, new, _KEPT)
            rows |= new
        asked = self._questions.get(question)
        if asked is None:
            found = cast("Sequence[float]", self._source.question(question))
            asked = _unit(found)
            _keep(self._questions, {question: asked}, _KEPT // 10)
        return [float(rows[content_hash(document)] @ asked) for document in documents]


def _keep(kept: dict[str, np.ndarray], new: dict[str, np.ndarray], most: int) -> None:
    if len(kept) + len(new) > most:
        for key in list(kept)[: len(kept) // 2]:
            kept.pop(key, None)
    kept.update(new)


def _unit(vector: Sequence[float]) -> np.ndarray:
    row = np.asarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(row))
    return row / length if length else row


def _model_of(embeddings: Embeddings) -> str | None:
    found = (getattr(embeddings, name, None) for name in ("model", "model_name"))
    name = next((one for one in found if isinstance(one, str) and one), None)
    return None if name is None else f"{type(embeddings).__name__}:{name}"
