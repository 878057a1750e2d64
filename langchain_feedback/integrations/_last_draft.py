"""What a turn came to: its last draft, what was found out about it, and how that is told."""

from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage

from langchain_feedback.integrations._checking import Finding
from langchain_feedback.integrations._langchain import ModelRequest, ModelResponse
from langchain_feedback.integrations._retriever_tool import FeedbackRetrieverTool
from langchain_feedback.integrations._turn import Turn

__all__ = ["LastDraft", "documents_of", "own_tools", "told"]


@dataclass(frozen=True)
class LastDraft:
    """The last draft of a turn, and what was found out about it."""

    response: ModelResponse[Any]
    draft: AIMessage
    text: str
    finding: Finding
    regenerations: int


def told(
    finding: Finding,
    *,
    trace_id: str = "",
    trace_ids: list[str] | None = None,
    regenerations: int = 0,
    errors: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return what `grounding_of` reads off a message."""
    return {
        "status": "abstained" if finding.status == "rejected" else finding.status,
        "reason": finding.reason,
        "grounded": finding.grounded,
        "citations": finding.citations,
        "trace_id": trace_id,
        "trace_ids": trace_ids or [],
        "regenerations": regenerations,
        "errors": errors or [],
    }


def documents_of(turn: Turn) -> list[Document]:
    """Return what this turn's searches found, and earlier ones where they count."""
    return [
        document for search in [*turn.searches, *turn.earlier] for document in search.documents
    ]


def own_tools(request: ModelRequest[Any]) -> list[FeedbackRetrieverTool]:
    """Return the agent's tools that were made by `create_feedback_retriever_tool`."""
    return [tool for tool in request.tools if isinstance(tool, FeedbackRetrieverTool)]
