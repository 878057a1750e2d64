"""Grade retrieved chunks with a chat model, many in one call or one by one."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import BaseModel, Field

from langchain_feedback.documents import chunk_key
from langchain_feedback.judges.asking import Asker, Prompt, Reply, Steps
from langchain_feedback.judges.base import DocumentGrader, Grade, GradingRequest
from langchain_feedback.judges.prompts import GRADE_DOCUMENT, GRADE_DOCUMENTS, Fences, prompt
from langchain_feedback.judges.verdict import Verdict, parse_verdict

__all__ = ["GROUP_SIZE", "LLMDocumentGrader", "make_grade"]

GROUP_SIZE = 8
"""Chunks in one grading call, at most."""


class SlotGrade(BaseModel):
    """The grade of one slot."""

    slot: str = Field(description="The slot's exact name")
    reason: str = Field(description="Why, in one short sentence")
    relevant: bool = Field(description="Whether the chunk helps to answer the question")


class Grades(BaseModel):
    """One entry for each slot."""

    grades: list[SlotGrade]


class OneGrade(BaseModel):
    """The grade of one chunk."""

    reason: str = Field(description="Why, in one short sentence")
    relevant: bool = Field(description="Whether the chunk helps to answer the question")


class LLMDocumentGrader(DocumentGrader):
    """Grades chunks by a chat model: `ceil(n / 8)` calls for n chunks, or n.

    In `batch` mode chunks stand in slots named by a random token of the call, so
    that one chunk cannot answer for another. Every slot must come back exactly
    once; a chunk whose slot is missing, repeated or unreadable is asked alone.
    A refusal or a content filter costs the chunk that caused it its verdict
    (`unknown`, with the error's class) and no other. In an outage nothing is
    asked twice.

    Args:
        model: A chat model. Structured output is used where it has it.
        mode: `batch`, groups of 8 at most in one call, or `each`, one call a chunk.
        structured: False where the server rejects tools and JSON schemas.
        max_concurrency: How many calls may be under way at once.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        ValueError: If `mode` is neither `batch` nor `each`.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> grader = LLMDocumentGrader(FakeListChatModel(responses=["Yes."]), mode="each")
        >>> chunk = Document("Refunds take 14 days.", id="refunds")
        >>> grader.invoke({"question": "How long is a refund?", "documents": [chunk]})
        [{'chunk_id': 'refunds', 'verdict': 'yes', 'reason': '', 'error': None}]
    """

    def __init__(
        self,
        model: Runnable[Any, Any],
        *,
        mode: Literal["batch", "each"] = "batch",
        structured: bool = True,
        max_concurrency: int = 8,
        id_field: str | None = None,
    ) -> None:
        if mode not in ("batch", "each"):
            msg = f"mode must be 'batch' or 'each', got {mode!r}"
            raise ValueError(msg)
        self.mode = mode
        self.id_field = id_field
        options: dict[str, Any] = {"structured": structured, "max_concurrency": max_concurrency}
        self._ask_groups = Asker(model, Grades, **options)
        self._ask_each = Asker(model, OneGrade, **options)

    def judge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:
        """Grade all chunks, groups first, then alone what the groups left open."""
        grades: dict[int, Grade] = {}
        if self.mode == "batch":
            grades = self._ask_groups.run(self._group_steps(request), config)
        return self._ask_each.run(self._each_steps(request, grades), config)

    async def ajudge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:
        """Do the same without blocking."""
        grades: dict[int, Grade] = {}
        if self.mode == "batch":
            grades = await self._ask_groups.arun(self._group_steps(request), config)
        return await self._ask_each.arun(self._each_steps(request, grades), config)

    def _group_steps(self, request: GradingRequest) -> Steps[dict[int, Grade]]:
        documents = request["documents"]
        starts = range(0, len(documents), GROUP_SIZE)
        fences = [Fences() for _ in starts]
        groups = [documents[start : start + GROUP_SIZE] for start in starts]
        if not groups:
            return {}
        replies = yield [
            _group_prompt(request["question"], group, fence)
            for group, fence in zip(groups, fences, strict=True)
        ]
        grades: dict[int, Grade] = {}
        for start, group, fence, reply in zip(starts, groups, fences, replies, strict=True):
            for i, (verdict, reason) in _read_slots(reply, fence, len(group)).items():
                grades[start + i] = make_grade(self._key(group[i]), verdict, reason)
            if reply.retryable:
                lost = {
                    start + i: make_grade(self._key(document), Verdict.UNKNOWN, error=reply.error)
                    for i, document in enumerate(group)
                }
                grades |= lost
        return grades

    def _each_steps(self, request: GradingRequest, grades: dict[int, Grade]) -> Steps[list[Grade]]:
        documents = request["documents"]
        rest = [i for i in range(len(documents)) if i not in grades]
        if rest:
            replies = yield [_single_prompt(request["question"], documents[i]) for i in rest]
            for i, reply in zip(rest, replies, strict=True):
                grades[i] = _read_single(self._key(documents[i]), reply)
        return [grades[i] for i in range(len(documents))]

    def _key(self, document: Document) -> str:
        return chunk_key(document, self.id_field)


def make_grade(
    chunk_id: str, verdict: str, reason: str = "", *, error: str | None = None
) -> Grade:
    """Make a `Grade` whose values are plain strings."""
    return Grade(chunk_id=chunk_id, verdict=str(verdict), reason=reason, error=error)


def _group_prompt(question: str, documents: Sequence[Document], fences: Fences) -> Prompt:
    return prompt(GRADE_DOCUMENTS, fences.around("question", question), fences.chunks(documents))


def _single_prompt(question: str, document: Document) -> Prompt:
    fences = Fences()
    return prompt(GRADE_DOCUMENT, fences.around("question", question), fences.chunks([document]))


def _read_slots(reply: Reply, fences: Fences, size: int) -> dict[int, tuple[str, str]]:
    """Return the verdict of every slot that came back exactly once, by its index."""
    if isinstance(reply.parsed, Grades):
        entries = [
            (entry.slot.strip(), Verdict.YES if entry.relevant else Verdict.NO, entry.reason)
            for entry in reply.parsed.grades
        ]
    else:
        entries = [(slot, parse_verdict(rest), "") for slot, rest in _named(reply.text, fences)]
    times = Counter(slot for slot, _, _ in entries)
    slots = {fences.slot(i): i for i in range(size)}
    return {
        slots[slot]: (verdict.value, reason)
        for slot, verdict, reason in entries
        if slot in slots and times[slot] == 1 and verdict is not Verdict.UNKNOWN
    }


def _named(text: str, fences: Fences) -> list[tuple[str, str]]:
    """Split prose at the slots' names; a slot's words end where the next one's begin.

    Names that stand behind their words ("yes t-1, no t-2") would be read one off: where
    anything but a bullet or the word "slot" stands before a name, nothing is read.
    """
    lines = [line for line in text.splitlines() if fences.token in line]
    leads = (line.partition(fences.token)[0] for line in lines)
    if any(re.search(r"\w", re.sub(r"(?i)\bslot\b|^\s*\d+[.)]", "", lead)) for lead in leads):
        return []
    named = rf"({fences.token}-\d+)[^\w\n]+((?:(?!{fences.token}-\d).)*)"
    return [pair for line in lines for pair in re.findall(named, line)]


def _read_single(chunk_id: str, reply: Reply) -> Grade:
    if isinstance(reply.parsed, OneGrade):
        verdict = Verdict.YES if reply.parsed.relevant else Verdict.NO
        return make_grade(chunk_id, verdict.value, reply.parsed.reason)
    verdict = parse_verdict(reply.text)
    unread = verdict is Verdict.UNKNOWN
    error = (reply.error or "UnreadableReply") if unread else None
    return make_grade(chunk_id, verdict.value, error=error)
