"""Which embedder made an index: a fingerprint that another model of equal size does not have.

An alias or a view switches the documents and not the embedder of the questions. A vector of
another model of the same size is searched for without any error, and finds nonsense.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

__all__ = ["PROBES", "EmbedderFingerprint", "embeddings_of", "fingerprint_of"]

PROBES = (
    "How long does a refund take?",
    "The server restarts every night at 02:00 UTC.",
    "naïve Grüße 東京 नमस्ते",  # a tokenizer that differs in any script shows here
)
"""The three texts whose vectors tell one embedder from another. They never change."""

_STEPS = 1_000
"""Vectors of unit length are rounded to thousandths."""

_KEPT = 64
"""So many of each vector's numbers are kept, rounded to tenths of thousandths."""
_KEPT_DIGITS = 4

_ALIKE = 0.999
"""The least cosine of what is kept. Hosted models answer the same text with vectors that differ
in the fourth digit, so a digest alone would call a model another one from day to day."""

_NAMES = ("model", "model_name", "model_id", "deployment")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EmbedderFingerprint:
    """What an embedder is known by.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> one = fingerprint_of(DeterministicFakeEmbedding(size=8))
        >>> one.dimension, one.differs_from(one)
        (8, None)
        >>> one.differs_from(fingerprint_of(DeterministicFakeEmbedding(size=16)))
        'its vectors have 8 numbers, not 16'
        >>> EmbedderFingerprint.from_json(one.to_json()) == one
        True
    """

    kind: str
    """The name of its class; that of a cache is the class of what it caches."""
    model: str
    """The model's name, as far as the class tells it."""
    dimension: int
    """How many numbers a vector has."""
    sha256: str
    """Of the vectors of `PROBES`, at unit length, rounded to thousandths."""
    probes: tuple[tuple[float, ...], ...]
    """The first 64 numbers of each of these vectors, for embedders that are not quite exact."""

    @property
    def name(self) -> str:
        """Its model, or else its class, for people."""
        return self.model or self.kind

    def differs_from(self, other: "EmbedderFingerprint") -> str | None:
        """Say in what way it is not the same embedder as another; None: it is the same.

        The vectors decide: one model may be reached by many classes, and lie in many folders.
        Where the digests differ, it is still the same if it has the same name, and a cosine of
        .999 or more for each probe.

        Args:
            other: What it should be.
        """
        if self.dimension != other.dimension:
            return f"its vectors have {self.dimension} numbers, not {other.dimension}"
        if self.sha256 == other.sha256:
            return None
        if self.name != other.name:
            return f"it is {self.name}, not {other.name}"
        least = min(_cosines(self.probes, other.probes), default=0.0)
        if least >= _ALIKE:
            return None
        return f"it gives other vectors for the same texts (a cosine of {least:.3f})"

    def to_json(self) -> str:
        """Return it as text, the same for the same fingerprint."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Make it from its text."""
        read = json.loads(text)
        return cls(**read | {"probes": tuple(map(tuple, read["probes"]))})


def fingerprint_of(embeddings: Embeddings) -> EmbedderFingerprint:
    """Return the fingerprint of an embedder; it embeds three short questions.

    Raises:
        ValueError: If what it returns are no vectors of finite numbers of one length.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> fingerprint_of(DeterministicFakeEmbedding(size=8)).kind
        'DeterministicFakeEmbedding'
    """
    # As questions: they are what is embedded while a version is active.
    vectors = _units([embeddings.embed_query(text) for text in PROBES])
    # Whole numbers have no negative zero.
    rounded = np.rint(vectors * _STEPS).astype("<i4")
    # LangChain's cache is no model of its own.
    model = getattr(embeddings, "underlying_embeddings", embeddings)
    named = (getattr(model, name, None) for name in _NAMES)
    return EmbedderFingerprint(
        kind=type(model).__name__,
        model=next((name for name in named if isinstance(name, str) and name), ""),
        dimension=vectors.shape[1],
        sha256=hashlib.sha256(rounded.tobytes()).hexdigest(),
        probes=tuple(tuple(row) for row in vectors[:, :_KEPT].round(_KEPT_DIGITS).tolist()),
    )


def embeddings_of(retriever: Any) -> Embeddings | None:
    """Return the embedder with which a retriever searches; None where it does not tell.

    It is that of a vector store's retriever, or of the one that a retriever wraps.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> embeddings = DeterministicFakeEmbedding(size=8)
        >>> embeddings_of(InMemoryVectorStore(embeddings).as_retriever()) is embeddings
        True
    """
    for part in _parts(retriever):
        found = getattr(getattr(part, "vectorstore", None), "embeddings", None)
        if isinstance(found, Embeddings):
            return found
    return None


def _parts(retriever: Any) -> list[Any]:
    """Return a retriever and what it wraps, outermost first."""
    parts: list[Any] = []
    while retriever is not None and all(retriever is not part for part in parts):
        parts.append(retriever)
        inner = (getattr(retriever, name, None) for name in ("base_retriever", "bound", "first"))
        retriever = next((part for part in inner if part is not None), None)
    return parts


def _units(vectors: Sequence[Sequence[float]]) -> Floats:
    try:
        rows = np.array(vectors, dtype=np.float64)
    except ValueError:
        rows = np.array([np.nan])
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():  # noqa: PLR2004
        msg = "The embedder returned something else than vectors of finite numbers of one length."
        raise ValueError(msg)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: Floats = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return units


def _cosines(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[float]:
    found = []
    for one, other in zip(map(np.array, ours), map(np.array, theirs), strict=True):
        lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
        same = float(np.array_equal(one, other))
        found.append(float(one @ other) / lengths if lengths else same)
    return found
