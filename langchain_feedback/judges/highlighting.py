"""Find the passages of the chunks that support an answer."""

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import BaseModel, Field

from langchain_feedback.documents import chunk_key, source_of
from langchain_feedback.judges.asking import Asker, Reply, Steps
from langchain_feedback.judges.base import CheckingRequest, Citation, Highlighter
from langchain_feedback.judges.prompts import HIGHLIGHT_SOURCES, Fences, prompt
from langchain_feedback.quotes.locate import locate_quote

__all__ = ["LLMHighlighter", "cite"]


class Quote(BaseModel):
    """One passage."""

    slot: str = Field(description="The exact name of the slot that the passage comes from")
    quote: str = Field(description="The passage, word for word")


class Quotes(BaseModel):
    """The passages that support the answer."""

    quotes: list[Quote]


class LLMHighlighter(Highlighter):
    """Asks a chat model for supporting passages; code then finds each in its chunk.

    A quote is verified when code found it, and then carries the source's own
    wording and span. One that stands in another chunk than the model said is
    cited there. One that stands nowhere is kept as unverified and cites the
    whole chunk; it never counts as proof. A failed call gives no citations.

    Args:
        model: A chat model. Structured output is used where it has it.
        structured: False where the server rejects tools and JSON schemas.
        id_field: The metadata field that holds a chunk's id, if any.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> reply = '{"quotes": [{"slot": "1", "quote": "take 14 days"}]}'
        >>> highlighter = LLMHighlighter(FakeListChatModel(responses=[reply]))
        >>> chunk = Document("Refunds take 14 days.", id="refunds")
        >>> [citation] = highlighter.invoke(
        ...     {"question": "How long?", "answer": "14 days.", "documents": [chunk]})
        >>> citation["chunk_id"], citation["start"], citation["end"], citation["verified"]
        ('refunds', 8, 20, True)
    """

    def __init__(
        self, model: Runnable[Any, Any], *, structured: bool = True, id_field: str | None = None
    ) -> None:
        self.id_field = id_field
        self._asker = Asker(model, Quotes, structured=structured)

    def judge(self, request: CheckingRequest, config: RunnableConfig) -> list[Citation]:
        """Find the passages that support one answer."""
        return self._asker.run(self._steps(request), config)

    async def ajudge(self, request: CheckingRequest, config: RunnableConfig) -> list[Citation]:
        """Do the same without blocking."""
        return await self._asker.arun(self._steps(request), config)

    def _steps(self, request: CheckingRequest) -> Steps[list[Citation]]:
        documents = request["documents"]
        if not documents or not request["answer"].strip():
            return []
        fences = Fences()
        (reply,) = yield [
            prompt(
                HIGHLIGHT_SOURCES,
                fences.around("question", request["question"]),
                fences.chunks(documents),
                fences.around("answer", request["answer"]),
            )
        ]
        return self._read(reply, documents, fences)

    def _read(self, reply: Reply, documents: list[Document], fences: Fences) -> list[Citation]:
        if not isinstance(reply.parsed, Quotes):
            return []
        slots = {fences.slot(i): document for i, document in enumerate(documents)}
        found = [
            cite(quote.quote, slots.get(quote.slot.strip()), documents, self.id_field)
            for quote in reply.parsed.quotes
        ]
        distinct = {(c["chunk_id"], c["start"], c["end"], c["quote"]): c for c in found if c}
        return list(distinct.values())


def cite(
    quote: str,
    named: Document | None,
    documents: Sequence[Document],
    id_field: str | None = None,
) -> Citation | None:
    """Make the citation of a quote: proved in a chunk, or unverified on the named one.

    Args:
        quote: The quote as the judge wrote it.
        named: The chunk that it is said to come from.
        documents: All chunks that it may stand in.
        id_field: The metadata field that holds a chunk's id, if any.

    Returns:
        The citation, or None for an unproved quote of no known chunk.
    """
    first = [named] if named is not None else []
    for document in [*first, *(doc for doc in documents if doc is not named)]:
        if match := locate_quote(document.page_content, quote):
            span = (match.start, match.end)
            return _citation(document, match.text, span, match.occurrences, id_field)
    if named is None or not quote.strip():
        return None
    return _citation(named, quote, (0, len(named.page_content)), 0, id_field)


def _citation(
    document: Document, quote: str, span: tuple[int, int], occurrences: int, id_field: str | None
) -> Citation:
    return Citation(
        chunk_id=chunk_key(document, id_field),
        source=source_of(document),
        quote=quote,
        start=span[0],
        end=span[1],
        verified=occurrences > 0,
        occurrences=occurrences,
    )
