"""Search by words that count as much as they are rare: no key, no network, no model."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables.config import run_in_executor
from pydantic import ConfigDict, Field, SkipValidation

from langchain_feedback.local._extra import local_extra
from langchain_feedback.words import content_words

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

__all__ = ["TfidfRetriever"]

_HEADING_WEIGHT = 3
_SLOPE = 0.5


class TfidfRetriever(BaseRetriever):
    """Retrieve the documents whose words weigh most for a question, by TF-IDF.

    Build it with `from_documents`, plain scikit-learn TF-IDF and cosine, or with `for_files`,
    tuned for questions about a folder of documentation in other words than the documentation's.

    Documents without a word of the question are never returned, so that a result may be shorter
    than `k` or empty. Equal scores keep the order of the documents. Results are deep copies.
    `k` may also be given in a call, `retriever.invoke(question, k=2)`, and so for `ainvoke`,
    `batch`, `abatch`, `stream` and `bind`.

    Example:
        >>> retriever = TfidfRetriever.from_documents(
        ...     [Document("Refunds take five days."), Document("Servers reboot in two minutes.")]
        ... )
        >>> [document.page_content for document in retriever.invoke("How long do refunds take?")]
        ['Refunds take five days.']
        >>> retriever.invoke("Is there a phone number?")
        []
    """

    documents: SkipValidation[list[Document]] = Field(repr=False)
    """Copies of the documents, in the order that breaks ties."""
    vectorizer: Any = Field(repr=False)
    """The fitted scikit-learn vectorizer."""
    weights: Any = Field(repr=False)
    """Sparse matrix, documents by terms; a score is a row's product with the question's."""
    k: int = Field(default=4, ge=1)
    """The most documents that a call returns."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[Document],
        *,
        k: int = 4,
        stop_words: Literal["english"] | Sequence[str] | None = "english",
    ) -> Self:
        """Index documents with scikit-learn's defaults: words of two letters or more, cosine.

        Args:
            documents: What to search.
            k: The most documents that a call returns.
            stop_words: Words that do not count: scikit-learn's English list, your own, or none.

        Raises:
            ValueError: There are no documents, or no words in them.
            MissingExtraError: The `local` extra is not installed.
        """
        with local_extra():
            from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415
        stops = stop_words if stop_words is None or stop_words == "english" else list(stop_words)
        vectorizer = TfidfVectorizer(stop_words=stops)
        weights = _fit(vectorizer, [document.page_content for document in documents])
        return cls(documents=_copies(documents), vectorizer=vectorizer, weights=weights, k=k)

    @classmethod
    def for_files(cls, chunks: Sequence[Document], *, k: int = 4) -> Self:
        """Index chunks of files so that questions in other words find them.

        Against `from_documents`: words are stemmed and accents do not count, words that every
        question has are left out, the second occurrence of a word counts less than the first, the
        words of the heading count three times and those of the file's name once with the text, and
        chunks are not preferred for being short (A. Singhal, C. Buckley and M. Mitra, "Pivoted
        document length normalization", SIGIR 1996, with a slope of one half).

        Raises:
            ValueError: There are no chunks, or no words in them.
            MissingExtraError: The `local` extra is not installed.

        Example:
            >>> chunks = [Document("Cancel at any time.", metadata={"source": "plans.md"})]
            >>> len(TfidfRetriever.for_files(chunks).invoke("How does cancelling a plan work?"))
            1
        """
        with local_extra():
            from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415
        vectorizer = TfidfVectorizer(analyzer=content_words, sublinear_tf=True, norm=None)
        weights = _fit(vectorizer, [_with_heading(chunk) for chunk in chunks])
        weights = _pivoted(weights)
        return cls(documents=_copies(chunks), vectorizer=vectorizer, weights=weights, k=k)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        del run_manager
        return self._search(query, self.k if k is None else k)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        del run_manager
        return await run_in_executor(None, self._search, query, self.k if k is None else k)

    def _search(self, query: str, k: int) -> list[Document]:
        if k < 1:
            msg = f"k must be at least 1, not {k!r}"
            raise ValueError(msg)
        scores = (self.weights @ self.vectorizer.transform([query]).T).toarray().ravel()
        best = (-scores).argsort(kind="stable")[:k]
        return _copies([self.documents[at] for at in best if scores[at] > 0])


def _copies(documents: Sequence[Document]) -> list[Document]:
    return [document.model_copy(deep=True) for document in documents]


def _with_heading(document: Document) -> str:
    heading = str(document.metadata.get("heading") or "")
    file_name = re.sub(r"\.\w+$", "", str(document.metadata.get("source") or ""))
    return "\n".join([document.page_content, *[heading] * _HEADING_WEIGHT, file_name])


def _fit(vectorizer: "TfidfVectorizer", texts: list[str]) -> Any:
    """Fit the vectorizer and return the documents' rows, or say what is missing."""
    if not texts:
        msg = "There are no documents to search. Give at least one."
        raise ValueError(msg)
    try:
        return vectorizer.fit_transform(texts)
    except ValueError as error:
        if "empty vocabulary" not in str(error):
            raise
        msg = (
            f"None of the {len(texts)} documents has a word that counts (stop words do not)."
            " Check that their `page_content` holds text, or pass fewer `stop_words`."
        )
        raise ValueError(msg) from error


def _pivoted(weights: Any) -> Any:
    """Divide each row by the mean of its own length and the average length."""
    lengths = np.sqrt(np.asarray(weights.multiply(weights).sum(axis=1)))
    divisors = (1 - _SLOPE) * lengths.mean() + _SLOPE * lengths
    return weights.multiply(1 / divisors).tocsr()
