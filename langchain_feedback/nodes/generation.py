"""Write a draft from the kept chunks."""

import re
from typing import Any

from langchain_core.exceptions import ModelRefusalError
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from langgraph.constants import TAG_NOSTREAM

from langchain_feedback.judges.base import AnswerGenerator, GenerationRequest, chat_model, is_judge
from langchain_feedback.judges.prompts import GENERATE_ANSWER, NO_ANSWER, Fences, prompt
from langchain_feedback.judges.verdict import reply_text
from langchain_feedback.nodes._node import Node, emit, failure, tagged
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.keys import StateKeys

__all__ = ["DRAFT_TAG", "generate", "withdraw_draft"]

DRAFT_TAG = "draft"
"""The tag of the model call that writes a draft."""

_DECLINED = re.compile(
    rf"(?:\W*(?:i'm |i am )?sorry\W+)?\W*{NO_ANSWER.replace('_', '[_ ]')}\b(?![^\S\n]*\w)",
    re.IGNORECASE,
)


def generate(
    model: Runnable[Any, Any],
    *,
    stream_drafts: bool = False,
    keys: StateKeys | None = None,
) -> Node:
    """Make the node that writes a draft; nothing of it is a message yet.

    A draft is held back from `stream_mode="messages"` until `record_answer`
    publishes it. The next draft is told which statements of the last one no chunk
    supports. Without a kept chunk nobody is asked, and the draft is empty. A reply
    without text and a refusal are empty drafts too. The model's word that the chunks
    hold no answer is an empty draft with `status="abstained"`, which nobody writes
    again. Other errors of the model are raised.

    Args:
        model: A chat model, or an `AnswerGenerator`.
        stream_drafts: Whether tokens are streamed at once, tagged `draft`. A draft
            that is rejected later is then withdrawn by a custom stream event
            `{"event": "draft_withdrawn", "message_id": ...}`.
        keys: Your graph's names of the keys.

    Raises:
        TypeError: If `model` is neither of what it may be.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.language_models import FakeListChatModel
        >>> node = generate(FakeListChatModel(responses=["Within 14 days."]))
        >>> node({"question": "How long?", "kept": [Document("Refunds take 14 days.")]})
        {'draft': 'Within 14 days.', 'draft_id': '', 'generations': 1, 'status': ''}
    """
    is_generator = is_judge(model, AnswerGenerator)
    if not is_generator:
        model = chat_model(model, "model", kind="AnswerGenerator")

    def prepare(view: StateView) -> Any:
        withdraw_draft(view)
        if not view.kept:
            return finish(view, "")
        request = GenerationRequest(
            question=view.question,
            documents=view.kept,
            history=view.history,
            unsupported=view.get("unsupported"),
        )
        return request if is_generator else _messages(request)

    def finish(view: StateView, reply: Any) -> Update:
        text = reply_text(reply)
        streamed = stream_drafts and isinstance(reply, BaseMessage)
        declined = _declines(text)
        update = Update(
            draft="" if declined else text,
            draft_id=str(reply.id or "") if streamed else "",
            generations=view.get("generations") + 1,
            status="abstained" if declined else "",
        )
        return Update(update | {"reason": "empty_answer", "answer": ""}) if declined else update

    def recover(view: StateView, error: Exception) -> Update:
        if not isinstance(error, ModelRefusalError):
            raise error
        entry = failure("generate", type(error).__name__)
        return Update(finish(view, "") | {"errors": [*view.get("errors"), entry]})

    tags = [DRAFT_TAG] if stream_drafts else [DRAFT_TAG, TAG_NOSTREAM]
    return Node(
        "generate",
        keys=keys or StateKeys(),
        reads=[
            "question",
            "messages",
            "kept",
            "unsupported",
            "generations",
            "trace_id",
            "errors",
        ],
        writes=["draft", "draft_id", "generations", "errors", "status", "reason", "answer"],
        prepare=prepare,
        step=model,
        finish=finish,
        recover=recover,
        config=lambda view: tagged(view, *tags),
    )


def withdraw_draft(view: StateView) -> None:
    """Tell the stream that a draft which it has shown was rejected."""
    if draft_id := view.get("draft_id"):
        event = {"event": "draft_withdrawn", "message_id": draft_id}
        emit(event | {"trace_id": view.get("trace_id")})


def _declines(text: str) -> bool:
    """Whether the model said what it was told to say when the chunks hold no answer.

    A mark or a line of reasons may follow it, but not a sentence about the word.
    """
    return _DECLINED.match(text) is not None


def _messages(request: GenerationRequest) -> list[BaseMessage]:
    fences = Fences()
    history = request["history"]
    rejected = "\n".join(f"- {statement}" for statement in request["unsupported"])
    return prompt(
        GENERATE_ANSWER,
        fences.around("conversation", history) if history else "",
        fences.chunks(request["documents"]),
        fences.around("question", request["question"]),
        "An earlier draft was rejected: no chunk supports these statements of it. Leave them "
        f"out or correct them from the chunks.\n{fences.around('unsupported', rejected)}"
        if rejected
        else "",
    )
