"""What a judge is: a Runnable with one request, one result, and both of sync and async.

To write your own, subclass `DocumentGrader`, `GroundednessChecker`, `Highlighter`
or `AnswerGenerator` and implement `judge` (and `ajudge`, where there is something
to await). Results are plain data, so that graph state can hold them.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, NotRequired, TypedDict, TypeVar, cast

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import run_in_executor

from langchain_feedback.documents import is_derived

__all__ = [
    "AnswerGenerator",
    "AnswerVerifier",
    "CheckingRequest",
    "Citation",
    "ClaimVerdict",
    "DocumentGrader",
    "FirstStage",
    "GenerationRequest",
    "Grade",
    "GradingRequest",
    "Groundedness",
    "GroundednessChecker",
    "Highlighter",
    "Judge",
    "Verification",
    "chat_model",
    "is_judge",
]

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


class GradingRequest(TypedDict):
    """A question and the retrieved chunks, in order."""

    question: str
    documents: list[Document]


class FirstStage(TypedDict):
    """What a first stage without a model said (see `judges.staging`)."""

    verdict: str
    """`yes`, `no` or `unknown`."""
    reason: str
    error: str | None
    """The class name of the error that left it without a verdict."""
    shadow: bool
    """Whether it decided nothing, and is kept to be compared with the model's verdict."""


class Grade(TypedDict):
    """Whether one chunk helps to answer the question."""

    chunk_id: str
    """The chunk's key (see `chunk_key`)."""
    verdict: str
    """`yes`, `no`, or `unknown`: no clear answer, or a failed call; it is never stored as `no`."""
    reason: str
    """The judge's words, possibly empty."""
    error: str | None
    """The class name of the error that left this chunk without a verdict."""
    first_stage: NotRequired[FirstStage]
    """What a first stage said about the chunk, where there was one."""


class CheckingRequest(TypedDict):
    """An answer and the chunks that it must rest on."""

    question: str
    answer: str
    documents: list[Document]


class Groundedness(TypedDict):
    """Whether the chunks support the whole answer."""

    verdict: str
    """`yes`, `no` or `unknown`; only `yes` counts as grounded."""
    reason: str
    unsupported: list[str]
    """The statements of the answer that no chunk supports."""
    error: str | None
    """The class name of the error that left the answer unchecked."""
    first_stage: NotRequired[FirstStage]
    """What a first stage said about the answer, where there was one."""


class Citation(TypedDict):
    """A passage of a chunk that supports a part of the answer."""

    claim: str
    """The part of the answer that the passage supports; empty for the answer as a whole."""
    answer_start: int
    """Offset of that part in the answer, in code points."""
    answer_end: int
    chunk_id: str
    source: str
    """Where the chunk comes from, for people: file, page or heading."""
    quote: str
    """The source's own wording; of an unverified quote, the judge's wording."""
    start: int
    """Offset of the passage in the chunk's text, in code points."""
    end: int
    """Offset behind the passage. An unverified quote spans the whole chunk."""
    verified: bool
    """Whether the quote was found in the chunk by code."""
    occurrences: int
    """How often the passage stands in the chunk; 0 where unverified."""


class ClaimVerdict(TypedDict):
    """What was found out about one claim of the answer."""

    claim: str
    """The claim, as it stands in the answer where it was found there."""
    answer_start: int
    answer_end: int
    verdict: str
    """`supported`, `unsupported`, or `no_support_needed` (a greeting, "I could not find ...")."""
    reason: str
    """Why, in words for developers."""
    names_missing: list[str]
    """Names in the claim that no chunk holds: a warning, unless the verifier is strict."""


class Verification(TypedDict):
    """Whether each claim of an answer rests on passages that code has found."""

    verdict: str
    """`yes`, `no` or `unknown`; only `yes` counts as grounded."""
    abstained: bool
    """Whether the answer says, in its own words, that there is no answer."""
    claims: list[ClaimVerdict]
    unsupported: list[str]
    """The claims that nothing proves, for the next draft."""
    citations: list[Citation]
    error: str | None
    """The class name of the error that left the answer unchecked."""
    first_stage: NotRequired[FirstStage]
    """What a first stage said (see `StagedChecker`)."""


class GenerationRequest(TypedDict):
    """What an answer is written from."""

    question: str
    documents: list[Document]
    history: str
    """The earlier turns of the conversation as text, or an empty string."""
    unsupported: list[str]
    """Statements of a rejected draft that the chunks do not support."""


class Judge(Runnable[RequestT, ResultT], ABC, Generic[RequestT, ResultT]):
    """A Runnable that turns a request into a result; see the module's docstring."""

    def invoke(self, input: RequestT, config: RunnableConfig | None = None, **_: Any) -> ResultT:  # noqa: A002
        """Judge one request."""
        return self._call_with_config(cast("Any", self.judge), self._offered(input), config)

    async def ainvoke(
        self,
        input: RequestT,  # noqa: A002
        config: RunnableConfig | None = None,
        **_: Any,
    ) -> ResultT:
        """Judge one request without blocking the event loop."""
        judge = cast("Any", self.ajudge)
        return await self._acall_with_config(judge, self._offered(input), config)

    def _offered(self, request: RequestT) -> RequestT:
        """Return what is judged."""
        return request

    @abstractmethod
    def judge(self, request: RequestT, config: RunnableConfig) -> ResultT:
        """Return the result; pass `config` on to whatever is called."""

    async def ajudge(self, request: RequestT, config: RunnableConfig) -> ResultT:
        """Do the same without blocking the event loop; by default in a thread."""
        return await run_in_executor(config, self.judge, request, config)


class DocumentGrader(Judge[GradingRequest, list[Grade]]):
    """Grades each chunk: one `Grade` for each document, in order."""


class _Proof(Judge[CheckingRequest, ResultT]):
    """Judges what answers rest on: no answer rests on an earlier one that was folded back."""

    def _offered(self, request: CheckingRequest) -> CheckingRequest:
        sources = [document for document in request["documents"] if not is_derived(document)]
        same = len(sources) == len(request["documents"])
        return request if same else CheckingRequest(**{**request, "documents": sources})


class GroundednessChecker(_Proof[Groundedness]):
    """Says whether an answer rests on the chunks."""


class Highlighter(_Proof[list[Citation]]):
    """Finds the passages that support an answer."""


class AnswerVerifier(_Proof[Verification]):
    """Checks an answer and cites what proves it, in one go."""


class AnswerGenerator(Judge[GenerationRequest, str]):
    """Writes an answer without a chat model; an empty string means that it has none."""


def is_judge(value: Any, kind: type[Any]) -> bool:
    """Whether `value` is a judge of that kind, also behind `with_retry` or `with_config`."""
    while isinstance(value, RunnableBindingBase | RunnableWithFallbacks):
        value = value.bound if isinstance(value, RunnableBindingBase) else value.runnable
    return isinstance(value, kind)


def chat_model(value: Any, name: str, *, kind: str = "") -> Runnable[Any, Any]:
    """Return a chat model, or any Runnable that may be a chain around one.

    Raises:
        TypeError: If it is no Runnable, or a judge of another kind than `kind`.
    """
    if isinstance(value, Runnable) and not is_judge(value, Judge):
        return value
    wanted = f"of type {kind}, or a chat model" if kind else "a chat model"
    msg = f"{name} must be {wanted}, got {value!r}"
    raise TypeError(msg)
