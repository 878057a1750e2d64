"""What a ranker sees of a question and each candidate; any retriever's results have it."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from langchain_core.documents import Document

from langchain_feedback.ranking._checks import Floats
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.words import content_words, inverse_document_frequency

__all__ = [
    "FEATURES",
    "PairScorer",
    "Scorer",
    "WordWeights",
    "features_of",
    "title_of",
    "version_of",
]

FEATURES = ("rank", "words", "title")
"""The columns that every pool has: `1 / log2(2 + rank)` in the base's order (0 for a chunk that
the base lacks), and the share of the question's words that the text, or its title, holds."""

Scorer: TypeAlias = Callable[[str, Sequence[Document]], Sequence[float]]
"""A feature of one's own: a question and documents in, one number for each out."""

_TITLES = (
    "title",
    "heading",
    "headings",
    "section",
    *(f"Header {level}" for level in range(1, 7)),
)
_MOST_WORDS = 20_000
_KEPT_TEXTS = 2_048


@runtime_checkable
class PairScorer(Protocol):
    """Scores pairs of question and text, as LangChain's `BaseCrossEncoder` does."""

    def score(self, text_pairs: list[tuple[str, str]]) -> Sequence[float]:
        """Return one score for each pair, larger for a better answer."""


@dataclass(frozen=True)
class WordWeights:
    """How much each word says: inverse document frequency over the chunks that are known.

    Example:
        >>> words = WordWeights.of(["Refunds take 14 days.", "Refunds by card.", "Keys rotate."])
        >>> round(words.share("refunds for keys", "We make refunds."), 2)
        0.43
    """

    weights: Mapping[str, float]
    """Of the words that at least two chunks hold, the 20,000 commonest; by digests of them: an
    artifact outlives the chunks, and must not tell what stood there."""
    rare: float
    """Of every other word."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> "WordWeights":
        """Count the words of some texts; with none, every word weighs the same."""
        weights = inverse_document_frequency(texts)
        rare = max(weights.values(), default=1.0)
        common = sorted((weight, word) for word, weight in weights.items() if weight < rare)
        return cls({_digest_of(word): weight for weight, word in common[:_MOST_WORDS]}, rare)

    def share(self, question: str, text: str) -> float:
        """Return which part of the question's words a text holds, by weight, in [0, 1]."""
        return self._share(self._weighed(question), _words_of(text))

    def shares(self, question: str, texts: Iterable[str]) -> list[float]:
        """Return the share of each text."""
        asked = self._weighed(question)
        return [self._share(asked, _words_of(text)) for text in texts]

    def _weighed(self, question: str) -> dict[str, float]:
        # Sorted: a sum in another order is another number, and processes order sets differently.
        words = sorted(_words_asked(question))
        return {word: self.weights.get(_digest_of(word), self.rare) for word in words}

    @staticmethod
    def _share(asked: Mapping[str, float], words: frozenset[str]) -> float:
        total = sum(asked.values())
        held = sum(weight for word, weight in asked.items() if word in words)
        return held / total if total else 0.0


def features_of(
    question: str,
    candidates: Candidates,
    words: WordWeights,
    extra: Mapping[str, Scorer | PairScorer] | None = None,
) -> Floats:
    """Return (C, 3 + extra) features, in the order of `FEATURES` and then of `extra`.

    Args:
        question: What was asked.
        candidates: The pool, with its documents.
        words: How much each word says.
        extra: Features of one's own by name: functions, or cross-encoders.

    Raises:
        ValueError: If the candidates come without documents, or an extra feature is not one
            finite number for each.

    Example:
        >>> pool = Candidates([0, 1], [Document("Keys rotate."), Document("Refunds take days.")])
        >>> words = WordWeights.of(chunk.page_content for chunk in pool.documents)
        >>> features_of("How long do refunds take?", pool, words).round(2).tolist()
        [[1.0, 0.0, 0.0], [0.63, 1.0, 0.0]]
    """
    documents = candidates.documents
    if len(documents) != len(candidates):
        msg = "A ranker reads the documents: make Candidates(base_rank, documents)"
        raise ValueError(msg)
    ranks = candidates.base_rank
    columns = [
        np.where(candidates.pool, 1 / np.log2(2 + np.maximum(ranks, 0)), 0.0),
        words.shares(question, (document.page_content for document in documents)),
        words.shares(question, map(title_of, documents)),
    ]
    for name, scorer in (extra or {}).items():
        columns.append(_scored(name, scorer, question, documents))
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def title_of(document: Document) -> str:
    """Return a chunk's titles and headings, as splitters and loaders name them.

    Example:
        >>> title_of(Document("...", metadata={"title": "Refunds", "Header 2": "By card"}))
        'Refunds By card'
    """
    found = [document.metadata.get(key) for key in _TITLES]
    return " ".join(part for value in found for part in _texts(value))


def version_of(scorer: Scorer | PairScorer) -> str | None:
    """Return what tells a scorer from another one of its name: its `sha256`, or its `version`.

    A ranker's weights fit one scale only. Give a feature of your own a `version`, and a ranker
    that was trained with another one is refused; None: nobody can tell.
    """
    owner = getattr(scorer, "__self__", scorer)  # a method is as new as its object
    found = (getattr(owner, name, None) for name in ("sha256", "version"))
    return next((one for one in found if isinstance(one, str) and one), None)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    listed = isinstance(value, Sequence) and not isinstance(value, bytes)
    return [part for part in value if isinstance(part, str) and part] if listed else []


def _scored(
    name: str, scorer: Scorer | PairScorer, question: str, documents: Sequence[Document]
) -> Floats:
    if isinstance(scorer, PairScorer):
        found = scorer.score([(question, document.page_content) for document in documents])
    else:
        found = scorer(question, documents)
    scores = np.asarray(found, dtype=np.float64)
    if scores.shape != (len(documents),) or not np.isfinite(scores).all():
        msg = (
            f"The feature {name!r} must give one finite number for each of {len(documents)} chunks"
        )
        raise ValueError(msg)
    return scores


def _digest_of(word: str) -> str:
    return hashlib.blake2b(word.encode(), digest_size=6).hexdigest()


@lru_cache(maxsize=16)  # for the columns of one pool; questions are not kept
def _words_asked(text: str) -> frozenset[str]:
    return frozenset(content_words(text))


@lru_cache(maxsize=_KEPT_TEXTS)
def _words_of(text: str) -> frozenset[str]:
    # Interned: texts of one corpus share most of their words.
    return frozenset(map(sys.intern, content_words(text)))
