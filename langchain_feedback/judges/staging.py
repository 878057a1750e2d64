"""Put a first stage before a model, or beside it, to see first how often it is right.

With `shadow=True` the first stage decides nothing: the model is asked about everything
and what the first stage said is kept in the output as `first_stage`, which
`calibration.agreement` counts over many outputs. A first stage that raises never decides either.
"""

import logging
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp

from langchain_feedback.judges.base import (
    CheckingRequest,
    DocumentGrader,
    FirstStage,
    Grade,
    GradingRequest,
    Groundedness,
    GroundednessChecker,
    Judge,
    is_judge,
)
from langchain_feedback.judges.grading import LLMDocumentGrader
from langchain_feedback.judges.groundedness import LLMGroundednessChecker
from langchain_feedback.judges.verdict import Verdict

__all__ = ["StagedChecker", "StagedGrader"]

logger = logging.getLogger(__name__)

_DECIDED = (Verdict.YES, Verdict.NO)


class StagedGrader(DocumentGrader):
    """Asks the model only about the chunks that a first stage leaves `unknown`.

    Each grade says in `first_stage` what the first stage said. Where that fails, or
    says `no` to every chunk, the model is asked about all of them.

    Args:
        first: A grader without a model, such as `CrossEncoderGrader`.
        then: A grader, or a chat model for an `LLMDocumentGrader`.
        shadow: Whether the model is asked about every chunk and alone decides. The first
            stage runs before it, and its time is added.
        id_field: The metadata field that holds a chunk's id, for an `LLMDocumentGrader`.

    Raises:
        TypeError: If `first` or `then` is not what it may be.
        ValueError: When `then` returns another number of grades than it was given chunks.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.language_models import FakeListChatModel
        >>> class Shared:
        ...     def score(self, text_pairs):
        ...         return [0.0 if "refund" in text else -11.0 for _, text in text_pairs]
        >>> from langchain_feedback.judges.first_stage import CrossEncoderGrader
        >>> model = LLMDocumentGrader(FakeListChatModel(responses=["Yes."]), mode="each")
        >>> chunks = [Document("A refund takes 14 days."), Document("Keys rotate.")]
        >>> ask = {"question": "How long does it take?", "documents": chunks}
        >>> first = CrossEncoderGrader(Shared())
        >>> [grade["verdict"] for grade in StagedGrader(first, model).invoke(ask)]
        ['yes', 'no']
        >>> grades = StagedGrader(first, model, shadow=True).invoke(ask)
        >>> [(grade["verdict"], grade["first_stage"]["verdict"]) for grade in grades]
        [('yes', 'unknown'), ('yes', 'no')]
    """

    def __init__(
        self,
        first: DocumentGrader | Runnable[Any, Any],
        then: DocumentGrader | Runnable[Any, Any],
        *,
        shadow: bool = False,
        id_field: str | None = None,
    ) -> None:
        self.first = _judge(first, "first", DocumentGrader)
        self.then = _judge(
            then, "then", DocumentGrader, lambda model: LLMDocumentGrader(model, id_field=id_field)
        )
        self.shadow = shadow

    def judge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:
        """Grade by the first stage, then by the model what is left open."""
        try:
            first = self.first.invoke(request, config)
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            first = _survived(self.first, error)
        decided, rest, said = self._split(request, first)
        grades = self.then.invoke(rest, config) if rest["documents"] else []
        return self._join(rest, decided, grades, said)

    async def ajudge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:
        """Do the same without blocking."""
        try:
            first = await self.first.ainvoke(request, config)
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            first = _survived(self.first, error)
        decided, rest, said = self._split(request, first)
        grades = await self.then.ainvoke(rest, config) if rest["documents"] else []
        return self._join(rest, decided, grades, said)

    def _split(
        self, request: GradingRequest, first: list[Grade] | str
    ) -> tuple[dict[int, Grade], GradingRequest, list[FirstStage]]:
        """Return what the first stage decided, what is left to ask, and all that it said."""
        documents = request["documents"]
        if not isinstance(first, str) and len(first) != len(documents):
            first = "ValueError"
        if isinstance(first, str):
            return {}, request, [_said(first, shadow=self.shadow) for _ in documents]
        shadow = self.shadow or all(grade["verdict"] == Verdict.NO for grade in first)
        said = [_said(grade, shadow=shadow) for grade in first]
        if shadow:
            return {}, request, said
        decided = {i: grade for i, grade in enumerate(first) if grade["verdict"] in _DECIDED}
        rest = [document for i, document in enumerate(documents) if i not in decided]
        return decided, GradingRequest(question=request["question"], documents=rest), said

    def _join(
        self,
        rest: GradingRequest,
        decided: dict[int, Grade],
        grades: list[Grade],
        said: list[FirstStage],
    ) -> list[Grade]:
        if len(grades) != len(rest["documents"]):
            msg = (
                f"{self.then!r} returned {len(grades)} grades for {len(rest['documents'])} chunks"
            )
            raise ValueError(msg)
        asked = iter(grades)
        joined = []
        for i, first_stage in enumerate(said):
            grade = decided[i].copy() if i in decided else next(asked).copy()
            grade["first_stage"] = first_stage
            joined.append(grade)
        return joined


class StagedChecker(GroundednessChecker):
    """Asks the model about an answer only where a first stage leaves it `unknown`.

    The first stage is meant to be `LexicalGroundednessChecker`, whose two rules were
    right in 158 of the 159 pairs that they decided of the 430 of BEGIN. They compare
    words: an answer in another language than the chunks is far from them and gets a
    wrong `no`, so leave them out there. The result says in `first_stage` what the first
    stage said. Where that fails, the model is asked.

    Args:
        first: A checker without a model.
        then: A checker, or a chat model for an `LLMGroundednessChecker`.
        shadow: Whether the model is asked about every answer and alone decides. The
            first stage runs before it, and its time is added.

    Raises:
        TypeError: If `first` or `then` is not what it may be.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.language_models import FakeListChatModel
        >>> from langchain_feedback.judges.offline import LexicalGroundednessChecker
        >>> model = FakeListChatModel(responses=["Yes."])
        >>> ask = {"question": "Colors?", "answer": "Elephants are grey.",
        ...        "documents": [Document("A refund takes 14 days after approval.")]}
        >>> StagedChecker(LexicalGroundednessChecker(), model).invoke(ask)["verdict"]
        'no'
        >>> checked = StagedChecker(LexicalGroundednessChecker(), model, shadow=True).invoke(ask)
        >>> checked["verdict"], checked["first_stage"]["verdict"]
        ('yes', 'no')
    """

    def __init__(
        self,
        first: GroundednessChecker | Runnable[Any, Any],
        then: GroundednessChecker | Runnable[Any, Any],
        *,
        shadow: bool = False,
    ) -> None:
        self.first = _judge(first, "first", GroundednessChecker)
        self.then = _judge(then, "then", GroundednessChecker, LLMGroundednessChecker)
        self.shadow = shadow

    def judge(self, request: CheckingRequest, config: RunnableConfig) -> Groundedness:
        """Check by the first stage, then by the model what is left open."""
        try:
            first = self.first.invoke(request, config)
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            first = _survived(self.first, error)
        checked = first if self._decides(first) else self.then.invoke(request, config)
        return self._with(checked, first)

    async def ajudge(self, request: CheckingRequest, config: RunnableConfig) -> Groundedness:
        """Do the same without blocking."""
        try:
            first = await self.first.ainvoke(request, config)
        except Exception as error:  # noqa: BLE001  raised again unless it may be survived
            first = _survived(self.first, error)
        checked = first if self._decides(first) else await self.then.ainvoke(request, config)
        return self._with(checked, first)

    def _decides(self, first: Groundedness | str) -> bool:
        return not self.shadow and not isinstance(first, str) and first["verdict"] in _DECIDED

    def _with(self, checked: Groundedness, first: Groundedness | str) -> Groundedness:
        checked = checked.copy()
        checked["first_stage"] = _said(first, shadow=self.shadow)
        return checked


def _judge(
    value: Any,
    name: str,
    kind: type[Any],
    make: Callable[[Runnable[Any, Any]], Any] | None = None,
) -> Any:
    """Return the judge, also behind `with_retry` or `with_config`, or one made of a model."""
    if is_judge(value, kind):
        return value
    if make and isinstance(value, Runnable) and not is_judge(value, Judge):
        return make(value)
    wanted = f"a {kind.__name__}" + (" or a chat model" if make else "")
    msg = f"{name} must be {wanted}, got {value!r}"
    raise TypeError(msg)


def _survived(first: Any, error: Exception) -> str:
    """Return the name of the error: the model is there to answer all the same."""
    if isinstance(error, GraphBubbleUp):
        raise error
    logger.warning("First stage %r failed: %s: %s", first, type(error).__name__, error)
    return type(error).__name__


def _said(first: Grade | Groundedness | str, *, shadow: bool) -> FirstStage:
    """Make the record of what a first stage said; a string names its error."""
    if isinstance(first, str):
        return FirstStage(verdict=Verdict.UNKNOWN.value, reason="", error=first, shadow=shadow)
    verdict, reason, error = str(first["verdict"]), first["reason"], first["error"]
    return FirstStage(verdict=verdict, reason=reason, error=error, shadow=shadow)
