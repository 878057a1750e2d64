"""Check with a chat model whether an answer rests on its chunks."""

from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import BaseModel, Field, field_validator

from langchain_feedback.judges.asking import Asker, Reply, Steps
from langchain_feedback.judges.base import (
    CheckingRequest,
    Groundedness,
    GroundednessChecker,
)
from langchain_feedback.judges.prompts import CHECK_GROUNDEDNESS, Fences, prompt
from langchain_feedback.judges.verdict import Verdict, parse_verdict
from langchain_feedback.quotes.figures import missing_figures
from langchain_feedback.words import sentence_spans

__all__ = ["LLMGroundednessChecker", "make_groundedness"]


_NOTHING = frozenset(("", "none", "n/a", "null", "nothing"))


class Check(BaseModel):
    """Whether the answer rests on the chunks."""

    reason: str = Field(default="", description="Why, in one or two sentences")
    unsupported: list[str] = Field(description="Statements of the answer that no chunk supports")
    computed: list[str] = Field(
        default_factory=list,
        description="Values in the answer that were worked out from the chunks, such as a sum",
    )
    grounded: bool = Field(description="Whether the chunks support the whole answer")

    @field_validator("unsupported", "computed", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> list[str]:
        """Take any shape for a list of texts: what is listed must not be lost."""
        items = value if isinstance(value, list) else [] if value is None else [value]
        texts = (" ".join(map(str, i.values())) if isinstance(i, dict) else str(i) for i in items)
        return [text for text in texts if text.strip(" .-").casefold() not in _NOTHING]


class LLMGroundednessChecker(GroundednessChecker):
    """Asks a chat model, in one call, whether every statement follows from the chunks.

    The judge's yes is not enough: every number of the answer must stand in a chunk, but
    for values that the judge names as computed (see `missing_figures`).
    Anything but a clear yes is not grounded: a failed call, a refusal, a reply
    without a verdict (`unknown`, with the error's class), and a yes that lists
    unsupported statements. Without an answer or without chunks it says no and
    asks nobody.

    Args:
        model: A chat model. Structured output is used where it has it.
        structured: False where the server rejects tools and JSON schemas.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.language_models import FakeListChatModel
        >>> checker = LLMGroundednessChecker(FakeListChatModel(responses=["No."]))
        >>> checker.invoke({"question": "How long?", "answer": "41 days.",
        ...                 "documents": [Document("Refunds take 14 days.")]})["verdict"]
        'no'
    """

    def __init__(self, model: Runnable[Any, Any], *, structured: bool = True) -> None:
        self._asker = Asker(model, Check, structured=structured)

    def judge(self, request: CheckingRequest, config: RunnableConfig) -> Groundedness:
        """Check one answer."""
        return self._asker.run(self._steps(request), config)

    async def ajudge(self, request: CheckingRequest, config: RunnableConfig) -> Groundedness:
        """Do the same without blocking."""
        return await self._asker.arun(self._steps(request), config)

    def _steps(self, request: CheckingRequest) -> Steps[Groundedness]:
        if not request["answer"].strip():
            return make_groundedness("no", reason="The answer is empty.")
        if not any(document.page_content.strip() for document in request["documents"]):
            return make_groundedness("no", reason="There are no chunks to rest on.")
        fences = Fences()
        (reply,) = yield [
            prompt(
                CHECK_GROUNDEDNESS,
                fences.around("question", request["question"]),
                fences.chunks(request["documents"]),
                fences.around("answer", request["answer"]),
            )
        ]
        return _with_figures(_read(reply), request, reply)


def make_groundedness(
    verdict: str,
    *,
    reason: str = "",
    unsupported: list[str] | None = None,
    error: str | None = None,
) -> Groundedness:
    """Make a `Groundedness` of plain values."""
    return Groundedness(
        verdict=str(verdict), reason=reason, unsupported=unsupported or [], error=error
    )


def _read(reply: Reply) -> Groundedness:
    if isinstance(reply.parsed, Check):
        unsupported = [text for text in reply.parsed.unsupported if text.strip()]
        grounded = reply.parsed.grounded and not unsupported
        return make_groundedness(
            "yes" if grounded else "no", reason=reply.parsed.reason, unsupported=unsupported
        )
    verdict = parse_verdict(reply.text)
    error = (reply.error or "UnreadableReply") if verdict is Verdict.UNKNOWN else None
    return make_groundedness(verdict.value, error=error)


def _with_figures(result: Groundedness, request: CheckingRequest, reply: Reply) -> Groundedness:
    """Overrule a yes where the answer has a number that no chunk has."""
    if result["verdict"] != Verdict.YES:
        return result
    sources = [document.page_content for document in request["documents"]]
    computed = reply.parsed.computed if isinstance(reply.parsed, Check) else []
    answer = request["answer"]
    sentences = (answer[start:end] for start, end in sentence_spans(answer))
    wrong = [text for text in sentences if missing_figures(text, sources, computed)]
    if not wrong and not missing_figures(answer, sources, computed):
        return result
    reason = "A number of the answer stands in no chunk."
    return make_groundedness(Verdict.NO, reason=reason, unsupported=wrong)
