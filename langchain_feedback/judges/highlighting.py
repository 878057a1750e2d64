"""Find the passages of the chunks that support an answer."""

from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import BaseModel, Field

from langchain_feedback.judges.asking import Asker, Reply, Steps
from langchain_feedback.judges.base import CheckingRequest, Citation, Highlighter
from langchain_feedback.judges.citing import AnswerSpan, cite
from langchain_feedback.judges.prompts import HIGHLIGHT_SOURCES, Fences, prompt

__all__ = ["LLMHighlighter"]


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
        return self._read(reply, documents, fences, request["answer"])

    def _read(
        self, reply: Reply, documents: list[Document], fences: Fences, answer: str
    ) -> list[Citation]:
        if not isinstance(reply.parsed, Quotes):
            return []
        slots = {fences.slot(i): document for i, document in enumerate(documents)}
        whole = AnswerSpan("", 0, len(answer))
        found = (
            citation
            for quote in reply.parsed.quotes
            for citation in cite(
                quote.quote,
                slots.get(quote.slot.strip()),
                documents,
                claim=whole,
                id_field=self.id_field,
            )
        )
        return list({(c["chunk_id"], c["start"], c["end"], c["quote"]): c for c in found}.values())
