"""Publish the answer: the one place where text reaches the user."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_feedback.nodes._node import Node, tagged
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.abstention import READS, WRITES, abstention, why
from langchain_feedback.nodes.generation import withdraw_draft
from langchain_feedback.nodes.keys import StateKeys

__all__ = ["ANSWER_TAG", "record_answer"]

ANSWER_TAG = "answer"
"""The tag of the tokens that the user may see."""


def record_answer(*, keys: StateKeys | None = None) -> Node:
    """Make the node that publishes a verified draft, or the abstention.

    It replays the text as tokens tagged `answer`, whose metadata hold the trace id,
    so that `stream_mode="messages"` shows it exactly once. Then it writes `answer`,
    and in a chat graph the `AIMessage` of the same id. A draft that was found not
    grounded, or an empty one, is never published: it abstains instead.

    Args:
        keys: Your graph's names of the keys.

    Example:
        >>> update = record_answer()({"question": "How long?", "draft": "14 days.",
        ...                           "grounded": True})
        >>> update["answer"], update["status"]
        ('14 days.', 'answered')
    """
    keys = keys or StateKeys()

    def outcome(view: StateView) -> Update:
        if view.get("status") == "abstained":
            return Update(answer=view.get("answer"), status="abstained")
        if view.get("grounded") is False or not view.get("draft").strip():
            return abstention(view, why(view))
        answered = Update(answer=view.get("draft"), status="answered", reason="")
        return Update(answered | {"draft": "", "draft_id": ""})

    def prepare(view: StateView) -> Any:
        update, draft_id = outcome(view), view.get("draft_id")
        if update["status"] == "abstained":
            withdraw_draft(view)
        elif draft_id and all(message.id != draft_id for message in view.get("messages")):
            # Its tokens were streamed already: the same id keeps it from showing twice.
            return finish(view, AIMessage(update["answer"], id=draft_id))
        return [AIMessage(update["answer"], id=str(uuid4()))]

    def finish(view: StateView, message: AIMessage) -> Update:
        return Update(outcome(view) | {"messages": [message]})

    return Node(
        "record_answer",
        keys=keys,
        reads=[*READS, "draft", "status", "answer"],
        writes=[*WRITES, "messages"],
        prepare=prepare,
        # A cached reply would come without tokens, and under an earlier answer's id.
        step=_Replay(cache=False),
        finish=finish,
        config=lambda view: tagged(view, ANSWER_TAG),
    )


class _Replay(BaseChatModel):
    """A chat model that says its input's last message, in pieces: no model is called."""

    @property
    def _llm_type(self) -> str:
        return "replay"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **_: Any,
    ) -> ChatResult:
        message = AIMessage(messages[-1].text, id=messages[-1].id)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        pieces = re.findall(r"\s*\S+|\s+", str(messages[-1].text))
        for i, piece in enumerate(pieces):
            last = "last" if i == len(pieces) - 1 else None
            message = AIMessageChunk(content=piece, id=messages[-1].id, chunk_position=last)
            chunk = ChatGenerationChunk(message=message)
            if run_manager is not None:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
