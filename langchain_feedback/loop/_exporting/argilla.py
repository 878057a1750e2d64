"""Reviewed questions as a dataset of Argilla 2, in the layout of `rg.Dataset.from_disk`.

What a reviewer decided are suggestions: a response would need the id of one of Argilla's users.
Reviewers are not named. Metadata are text, as Argilla's terms are.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_feedback.loop._exporting.files import as_line
from langchain_feedback.loop._exporting.labels import Labeled

__all__ = ["argilla_files"]

_NONE = "none"
_AGENT = "langchain-feedback"
_VERDICTS = ("confirm", "reject", "unclear")
_TERMS = ("needs_review", "failure_class", "trace_id")
_GUIDELINES = (
    "Which passages answer the question? Name them by their numbers, or `none`. "
    "The verdict is about the passage that the system held to be wrong."
)


def argilla_files(questions: Sequence[Labeled], *, name: str) -> dict[str, Iterable[str]]:
    """Return the files by their names below the dataset's folder."""
    # Only the first byte of a file and its last are lines of their own: it is one JSON value.
    records = [as_line(_record(question)).rstrip("\n") for question in questions]
    most = max((len(question.passages) for question in questions), default=0)
    return {
        "records.json": ["[\n", ",\n".join(records), "\n]\n"],
        ".argilla/settings.json": [as_line(_settings(most))],
        ".argilla/dataset.json": [as_line({"name": name, "guidelines": _GUIDELINES})],
    }


def _record(question: Labeled) -> dict[str, Any]:
    of = question.of
    terms = {
        "needs_review": str(of.needs_review).lower(),
        "failure_class": of.failure_class,
        "trace_id": of.trace_id,
    }
    return {
        "id": of.item_id,
        "fields": {
            "question": of.question,
            "answer": of.answer or "",
            "passages": "\n\n".join(_shown(question)) or "(none was found)",
        },
        "metadata": {key: value for key, value in terms.items() if value},
        "suggestions": _suggestions(question),
        "responses": {},
        "vectors": {},
    }


def _shown(question: Labeled) -> Iterable[str]:
    for number, passage in enumerate(question.passages, 1):
        where = " > ".join(part for part in (passage.source, passage.heading) if part)
        yield f"[{number}] {where or passage.chunk_id}\n{passage.text}"


def _suggestions(question: Labeled) -> dict[str, Any]:
    of = question.of
    right = [str(at) for at, passage in enumerate(question.passages, 1) if passage.is_right]
    said = {
        "right_passages": right or ([_NONE] if of.none_exists else None),
        "verdict": of.verdict if of.verdict in _VERDICTS else None,
        "correction": of.correction,
    }
    return {
        name: {"value": value, "agent": _AGENT, "type": "human"}
        for name, value in said.items()
        if value
    }


def _settings(most: int) -> dict[str, Any]:
    numbers = [_NONE, *(str(number) for number in range(1, most + 1))]
    # A choice among less than two is none.
    numbers += ["1"] if most == 0 else []
    multiple = {"type": "multi_label_selection", "options": _options(numbers)}
    single = {"type": "label_selection", "options": _options(_VERDICTS)}
    text = {"type": "text", "use_markdown": False}
    return {
        "guidelines": _GUIDELINES,
        "allow_extra_metadata": True,
        "distribution": {"strategy": "overlap", "min_submitted": 1},
        "fields": [
            {"name": name, "title": name.title(), "required": name != "answer", "settings": text}
            for name in ("question", "answer", "passages")
        ],
        "questions": [
            _question("right_passages", "Which passages answer it?", multiple, required=True),
            _question("verdict", "Is the suspected passage wrong?", single),
            _question("correction", "What would be the right answer?", text),
        ],
        "metadata": [
            {"name": name, "title": name, "settings": {"type": "terms", "values": None}}
            for name in _TERMS
        ],
        "vectors": [],
    }


def _question(
    name: str, title: str, settings: dict[str, Any], *, required: bool = False
) -> dict[str, Any]:
    return {"name": name, "title": title, "required": required, "settings": settings}


def _options(values: Iterable[str]) -> list[dict[str, str]]:
    return [{"value": value, "text": value} for value in values]
