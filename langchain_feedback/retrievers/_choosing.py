"""What the Dartboard retriever and the compressor share: settings, distances, the choice."""

import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SkipValidation, model_validator

from langchain_feedback.documents import chunk_key, copy_document, is_derived
from langchain_feedback.ranking.dartboard import cosine_distances, select
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._vectors import VectorSource
from langchain_feedback.traces import MARKS_KEY, marks_of

__all__ = ["Chooser", "CrossEncoder", "checked_k"]

logger = logging.getLogger(__name__)


@runtime_checkable
class CrossEncoder(Protocol):
    """Scores pairs of question and text, as LangChain's `BaseCrossEncoder` does."""

    def score(self, text_pairs: list[tuple[str, str]]) -> Sequence[float]:
        """Return one score for each pair, larger for a better answer."""


class _Pool(NamedTuple):
    """The distinct texts of some documents."""

    documents: Sequence[Document]
    firsts: list[Document]
    """The first document of each text, in order."""
    place: list[int]
    """For each document, which of these it is a copy of."""


class Chooser(BaseModel):
    """Settings of a Dartboard selection, and the selection itself."""

    k: int = Field(default=4, ge=0)
    """The most documents that a call returns."""
    embeddings: SkipValidation[Embeddings | None] = Field(default=None, repr=False)
    """Makes the vectors that the vector store does not give. Default: the store's own. Others
    than the store's own are used for everything, since vectors of two models do not compare."""
    vector_store: SkipValidation[VectorStore | None] = Field(default=None, repr=False)
    """Where the documents' vectors are read from: InMemoryVectorStore, FAISS, PGVector,
    PGVectorStore, QdrantVectorStore. Of any other, texts are embedded."""
    cross_encoder: SkipValidation[CrossEncoder | None] = Field(default=None, repr=False)
    """Scores how near each text is to the question, in place of the question's vector."""
    score_scale: Literal["probability", "logit"] = "probability"
    """What the cross-encoder's scores are: from 0 to 1, or logits."""
    sigma: float = Field(default=0.1, ge=1e-9, le=1e9)
    """How far apart texts may be (in 1 - cosine) and still say the same."""
    relevance_weight: float = Field(default=1.0, ge=0, le=1e9)
    """Multiplies the squared distances to the question."""
    diversity_weight: float = Field(default=1.0, ge=0, le=1e9)
    """Multiplies the squared distances between texts."""
    deduplicate: bool = True
    """Keep the first document of each text; its copies count as its weight."""
    near_duplicate: float = Field(default=0.98, ge=-1, le=1)
    """Documents of the pool with a cosine above this are reported as duplicates."""
    id_field: str | None = None
    """A metadata field that holds a stable id, for the report of duplicates."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    _once: Once = PrivateAttr(default_factory=lambda: Once(logger))

    @model_validator(mode="after")
    def _has_vectors(self) -> Self:
        source = self._source()
        if source.embeddings is None and (source.store is None or self.cross_encoder is None):
            msg = (
                f"{type(self).__name__} needs vectors: pass `embeddings`, or a `vector_store` "
                "that has embeddings (or one without, together with a `cross_encoder`)."
            )
            raise ValueError(msg)
        return self

    def _vector_store(self) -> VectorStore | None:
        return self.vector_store

    def _source(self) -> VectorSource:
        return VectorSource.of(self._vector_store(), self.embeddings)

    def _chosen(self, question: str, documents: Sequence[Document], k: int) -> list[Document]:
        pool, source = _pool(documents), self._source()
        if not pool.documents or not k:
            return []
        vectors = source.documents(pool.firsts)
        if self.cross_encoder is None:
            return self._choice(pool, vectors, source.question(question), None, k)
        return self._choice(pool, vectors, None, self._scores(question, pool), k)

    async def _achosen(
        self, question: str, documents: Sequence[Document], k: int
    ) -> list[Document]:
        pool, source = _pool(documents), self._source()
        if not pool.documents or not k:
            return []
        vectors = await source.adocuments(pool.firsts)
        asked, scores = None, None
        if self.cross_encoder is None:
            asked = await source.aquestion(question)
        else:
            scores = await run_in_executor(None, self._scores, question, pool)
        return await run_in_executor(None, self._choice, pool, vectors, asked, scores, k)

    def _scores(self, question: str, pool: _Pool) -> Sequence[float]:
        if self.cross_encoder is None:
            return []
        return self.cross_encoder.score([(question, text.page_content) for text in pool.firsts])

    def _choice(
        self,
        pool: _Pool,
        vectors: Sequence[Sequence[float]],
        asked: Sequence[float] | None,
        scores: Sequence[float] | None,
        k: int,
    ) -> list[Document]:
        """Select, and return copies of what was selected, marked."""
        rows = np.array(vectors, dtype=np.float64)
        question = np.array([0.0] * rows.shape[1] if asked is None else asked, dtype=np.float64)
        to_query, between = cosine_distances(question, rows)
        if scores is not None:
            to_query = self._distances_of(scores, len(pool.firsts))
        elif not (np.isfinite(question).all() and question.any()):
            self._once.warn(
                "question",
                "The question's vector of %s is missing, zero, or holds what is no number: "
                "documents keep the pool's order, with a relevance_score of 0.",
                type(self._source().embeddings).__name__,
            )
        place = np.array(pool.place, dtype=np.intp)
        documents = pool.documents
        copies: NDArray[np.intp] | None = None
        if self.deduplicate:
            documents, copies = pool.firsts, np.bincount(place)
        else:
            to_query, between = to_query[place], between[np.ix_(place, place)]
        selection = select(
            to_query,
            between,
            k,
            sigma=self.sigma,
            relevance_weight=self.relevance_weight,
            diversity_weight=self.diversity_weight,
            multiplicity=copies,
        )
        near = 1.0 - (between[:, place] if self.deduplicate else between)
        return [
            self._marked(documents[at], gain, pool.documents, near[at])
            for at, gain in zip(selection.indices.tolist(), selection.gains.tolist(), strict=True)
        ]

    def _distances_of(self, scores: Sequence[float], size: int) -> NDArray[np.float64]:
        distances = np.array(scores, dtype=np.float64).reshape(-1)
        if distances.size != size:
            msg = f"The cross-encoder gave {distances.size} scores for {size} texts."
            raise ValueError(msg)
        if self.score_scale == "logit":
            with np.errstate(over="ignore"):
                return 1.0 - 1.0 / (1.0 + np.exp(-distances))
        if ((distances < 0) | (distances > 1)).any():
            msg = (
                "The cross-encoder's scores are not all from 0 to 1 "
                f"({distances.min():g} to {distances.max():g}): set score_scale='logit', or give "
                "it an activation that makes probabilities."
            )
            raise ValueError(msg)
        return 1.0 - distances

    def _marked(
        self,
        document: Document,
        gain: float,
        others: Sequence[Document],
        cosines: NDArray[np.float64],
    ) -> Document:
        copied = copy_document(document)
        marks = marks_of(copied)
        marks["duplicates"] = [
            {"chunk_id": chunk_key(others[at], self.id_field), "similarity": float(cosines[at])}
            for at in np.flatnonzero(cosines > self.near_duplicate).tolist()
            if others[at] is not document
        ]
        copied.metadata |= {"relevance_score": gain, MARKS_KEY: marks}
        return copied


def checked_k(k: int) -> int:
    """Return a number of documents that a call asked for.

    Raises:
        ValueError: It is negative, or no whole number.
    """
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 0:
        msg = f"k must be a whole number, 0 or more, got {k!r}"
        raise ValueError(msg)
    return int(k)


def _pool(documents: Sequence[Document]) -> _Pool:
    # An answer that was folded back is no source: it takes no place of one.
    documents = [document for document in documents if not is_derived(document)]
    first: dict[str, int] = {}
    place = [first.setdefault(document.page_content, len(first)) for document in documents]
    firsts = dict(zip(reversed(place), reversed(documents), strict=True))
    return _Pool(documents, [firsts[at] for at in range(len(first))], place)
