"""Verify an answer in one call: claims with their quotes, which code then proves."""

from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import BaseModel, Field, model_validator

from langchain_feedback.judges.asking import Asker, Reply, Steps
from langchain_feedback.judges.base import (
    AnswerVerifier,
    CheckingRequest,
    Citation,
    ClaimVerdict,
    Verification,
)
from langchain_feedback.judges.citing import AnswerSpan, cite
from langchain_feedback.judges.declining import says_no_answer
from langchain_feedback.judges.groundedness import LLMGroundednessChecker
from langchain_feedback.judges.highlighting import LLMHighlighter
from langchain_feedback.judges.prompts import VERIFY_ANSWER, Fences, prompt
from langchain_feedback.judges.two_steps import CheckAndHighlight, make_verification
from langchain_feedback.judges.verdict import Verdict
from langchain_feedback.quotes.figures import missing_figures, missing_names
from langchain_feedback.quotes.locate import locate_quote
from langchain_feedback.words import content_words, sentence_spans

__all__ = ["LLMVerifier"]


class ClaimQuote(BaseModel):
    """A passage that supports a claim."""

    slot: str = Field(description="The exact name of the slot that the passage comes from")
    quote: str = Field(description="The passage, word for word")


class Claim(BaseModel):
    """One claim of the answer."""

    claim: str = Field(description="The part of the answer that makes the claim, word for word")
    kind: Literal["fact", "no_answer", "other"] = Field(
        description="fact: it must be supported. no_answer: it says that the chunks hold no "
        "answer. other: a greeting or an offer, which needs no support"
    )
    quotes: list[ClaimQuote] = Field(description="The passages that support it; may be empty")
    computed: list[str] = Field(
        description="Values in the claim that were worked out from the quotes, such as a sum"
    )
    reason: str = Field(description="Why the quotes do or do not support the claim, briefly")
    supported: bool = Field(description="Whether the quotes support the whole claim")

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, data: Any) -> Any:
        """Fill in what a small model leaves out; the schema still asks for it."""
        given = (
            {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data
        )
        defaults = {"kind": "fact", "quotes": [], "computed": [], "reason": ""}
        return defaults | given if isinstance(given, dict) else given


class Claims(BaseModel):
    """Every claim of the answer, in order."""

    claims: list[Claim]


class LLMVerifier(AnswerVerifier):
    """Asks a chat model once for the answer's claims and the passages behind each.

    The model says what supports what; code decides. A claim is supported when the
    model says so, at least one of its quotes stands in a chunk (see `locate_quote`),
    and every number of that part of the answer stands in its proved quotes, but for
    values that the claim marks as computed. A sentence of the answer that no claim
    speaks of is unsupported. The answer is grounded when every claim is supported
    and there is at least one. Names that no chunk holds are reported, and count as
    unsupported with `strict`.

    An answer that says in its own words that there is no answer is `abstained`, and
    never grounded. Where a reply cannot be read as claims, the answer is checked and
    highlighted by `fallback`, in one or two more calls; where the call fails it is
    `unknown`, with the error's class.

    Args:
        model: A chat model. Structured output is used where it has it.
        strict: Whether a name that no chunk holds makes its claim unsupported.
        structured: False where the server rejects tools and JSON schemas.
        fallback: What to use where a reply cannot be read; None: `check_groundedness`
            and `highlight_sources` by the same model.
        id_field: The metadata field that holds a chunk's id, if any.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> reply = '''{"claims": [{"claim": "Within 14 days.", "kind": "fact", "quotes":
        ...   [{"slot": "1", "quote": "Refunds take 14 days"}], "computed": [],
        ...   "reason": "stated", "supported": true}]}'''
        >>> verifier = LLMVerifier(FakeListChatModel(responses=[reply]))
        >>> chunk = Document("Refunds take 14 days.", id="refunds")
        >>> result = verifier.invoke({"question": "How long?", "answer": "Within 14 days.",
        ...                           "documents": [chunk]})
        >>> result["verdict"], result["citations"][0]["quote"]
        ('yes', 'Refunds take 14 days')
        >>> verifier.invoke({"question": "How long?", "answer": "Within 41 days.",
        ...                  "documents": [chunk]})["unsupported"]
        ['Within 41 days.']
    """

    def __init__(
        self,
        model: Runnable[Any, Any],
        *,
        strict: bool = False,
        structured: bool = True,
        fallback: AnswerVerifier | None = None,
        id_field: str | None = None,
    ) -> None:
        self.strict = strict
        self.id_field = id_field
        self._asker = Asker(model, Claims, structured=structured)
        self._fallback = fallback or CheckAndHighlight(
            LLMGroundednessChecker(model, structured=structured),
            LLMHighlighter(model, structured=structured, id_field=id_field),
        )

    def judge(self, request: CheckingRequest, config: RunnableConfig) -> Verification:
        """Verify one answer."""
        result = self._asker.run(self._steps(request), config)
        return result or self._fallback.invoke(request, config)

    async def ajudge(self, request: CheckingRequest, config: RunnableConfig) -> Verification:
        """Do the same without blocking."""
        result = await self._asker.arun(self._steps(request), config)
        return result or await self._fallback.ainvoke(request, config)

    def _steps(self, request: CheckingRequest) -> Steps[Verification | None]:
        answer, documents = request["answer"], request["documents"]
        if not any(document.page_content.strip() for document in documents) or not answer.strip():
            return make_verification(Verdict.NO)
        if says_no_answer(answer):
            return make_verification(Verdict.NO, abstained=True)
        fences = Fences()
        (reply,) = yield [
            prompt(
                VERIFY_ANSWER,
                fences.around("question", request["question"]),
                fences.chunks(documents),
                fences.around("answer", answer),
            )
        ]
        return self._read(reply, request, fences)

    def _read(self, reply: Reply, request: CheckingRequest, fences: Fences) -> Verification | None:
        if isinstance(reply.parsed, Claims):
            slots = {fences.slot(i): doc for i, doc in enumerate(request["documents"])}
            return self._decided(reply.parsed.claims, request, slots)
        # A call that failed is not repeated under another name.
        return None if reply.text else make_verification(Verdict.UNKNOWN, error=_name(reply))

    def _decided(
        self, claims: list[Claim], request: CheckingRequest, slots: dict[str, Document]
    ) -> Verification:
        answer, verdicts, citations = request["answer"], [], []
        for claim in claims:
            span = _place(claim.claim, answer)
            verdict, cited = self._claim(claim, span, request["documents"], slots)
            verdicts.append(verdict)
            citations.extend(cited)
        verdicts.extend(_uncovered(answer, claims, verdicts))
        unsupported = [v["claim"] for v in verdicts if v["verdict"] == "unsupported"]
        supported = any(v["verdict"] == "supported" for v in verdicts)
        declines = any(claim.kind == "no_answer" for claim in claims)
        return make_verification(
            Verdict.YES if supported and not unsupported else Verdict.NO,
            abstained=declines and not supported and not unsupported,
            claims=verdicts,
            unsupported=unsupported,
            citations=citations,
        )

    def _claim(
        self,
        claim: Claim,
        span: AnswerSpan,
        documents: list[Document],
        slots: dict[str, Document],
    ) -> tuple[ClaimVerdict, list[Citation]]:
        if claim.kind != "fact" and not missing_figures(span.text, ()):
            return _verdict(span, "no_support_needed", claim.reason), []
        cited = [
            citation
            for quote in claim.quotes
            for citation in cite(
                quote.quote,
                slots.get(quote.slot.strip()),
                documents,
                claim=span,
                id_field=self.id_field,
            )
        ]
        proved = [citation["quote"] for citation in cited if citation["verified"]]
        figures = missing_figures(span.text, proved, claim.computed)
        names = missing_names(span.text, [document.page_content for document in documents])
        problem = (
            "the judge finds it unsupported: " + claim.reason
            if not claim.supported
            else "none of its quotes stands in a chunk"
            if not proved
            else f"in none of its proved quotes: {', '.join(figures)}"
            if figures
            else f"in no chunk: {', '.join(names)}"
            if names and self.strict
            else ""
        )
        verdict = "unsupported" if problem else "supported"
        return _verdict(span, verdict, problem or claim.reason, names), cited


def _place(claim: str, answer: str) -> AnswerSpan:
    """Find the part of the answer that a claim is about; at worst the likest sentence."""
    if match := locate_quote(answer, claim):
        return AnswerSpan(match.text, match.start, match.end)
    wanted = set(content_words(claim))
    spans = sentence_spans(answer) or [(0, len(answer))]
    start, end = max(spans, key=lambda s: len(wanted & set(content_words(answer[s[0] : s[1]]))))
    return AnswerSpan(answer[start:end], start, end)


def _uncovered(answer: str, claims: list[Claim], placed: list[ClaimVerdict]) -> list[ClaimVerdict]:
    """Make unsupported claims of the sentences that no claim speaks of, or not of a number."""
    spoken = {word for claim in claims for word in content_words(claim.claim)}
    texts = [verdict["claim"] for verdict in placed]
    rest = answer
    for verdict in placed:
        start, end = verdict["answer_start"], verdict["answer_end"]
        rest = rest[:start] + " " * (end - start) + rest[end:]
    verdicts = []
    for start, end in sentence_spans(answer):
        words = set(content_words(answer[start:end]))
        left = rest[start:end]
        unspoken = left.strip() and len(words) > 1 and len(words & spoken) < len(words) / 2
        if unspoken or missing_figures(left, texts):
            span = AnswerSpan(answer[start:end], start, end)
            verdicts.append(_verdict(span, "unsupported", "the judge left it out"))
    return verdicts


def _verdict(
    span: AnswerSpan, verdict: str, reason: str, names: list[str] | None = None
) -> ClaimVerdict:
    return ClaimVerdict(
        claim=span.text,
        answer_start=span.start,
        answer_end=span.end,
        verdict=verdict,
        reason=reason,
        names_missing=names or [],
    )


def _name(reply: Reply) -> str:
    return reply.error or "UnreadableReply"
