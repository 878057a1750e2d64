"""A base that is asked for more where what it found is too little."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from langchain_core.documents import Document

from langchain_feedback.retrievers._base_call import filtered_faiss, takes

__all__ = ["TEXTS", "Call", "texts_of"]

TEXTS = "_feedback_texts"
"""The option by which Dartboard tells a `FeedbackRetriever` below it how many different texts it
wants. That grows its own pool within one search: as searches of their own they would be further
attempts of the trace, whose numbers are the caller's, for rewritten questions."""

_UNFILTERED = 10
"""FAISS filters what a search found; it searches for so many times what is asked for."""
_STEP = 4
"""It searches for so many times more where the filter left too few."""


class Call(NamedTuple):
    """One call of a base."""

    given: Mapping[str, Any]
    """The options of the caller."""
    size: int
    """How many documents it is asked for."""
    name: str | None
    """The option that says so; None where there is none."""
    index_size: int | None
    """How many documents a FAISS index holds that filters what it found; None: no such index."""
    unfiltered: int
    """How many of these it searches for."""
    before: int = 0
    """How many documents the last call found."""

    @classmethod
    def first(cls, base: Any, given: Mapping[str, Any], size: int, k_arg: str | None) -> Self:
        """Make the first one, where `k_arg` may be an option that the base takes."""
        name = k_arg if k_arg and takes(base, k_arg) else None
        return cls(given, size, name, filtered_faiss(base, given), _UNFILTERED * size)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the call."""
        options = dict(self.given)
        if self.name is not None:
            options[self.name] = self.size
        if self.index_size is not None:
            options["fetch_k"] = self.unfiltered
        return options

    def after(self, found: Sequence[Document]) -> Self | None:
        """Make the next one, None where the base has no more than it found."""
        if self.name is None:
            return None
        if self.index_size is not None and len(found) < self.size:
            if self.unfiltered >= self.index_size:
                return None
            return self._replace(unfiltered=_STEP * self.unfiltered)
        if len(found) < self.size or len(found) <= self.before:
            return None
        size = 2 * self.size
        unfiltered = max(self.unfiltered, _UNFILTERED * size)
        return self._replace(size=size, unfiltered=unfiltered, before=len(found))


def texts_of(documents: Iterable[Document]) -> int:
    """Count the different texts."""
    return len({document.page_content for document in documents})
