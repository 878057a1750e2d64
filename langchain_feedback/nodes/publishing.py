"""How text reaches the user: replayed as tokens, and with citations on the message."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel

# Private, and the only way to name a message in the newest streaming protocol.
from langchain_core.language_models._compat_bridge import achunks_to_events, chunks_to_events
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.content import (
    Annotation,
    Citation,
    TextContentBlock,
    create_citation,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_feedback.quotes.plain import link_of

__all__ = ["ANSWER_TAG", "Replay", "annotated", "with_text"]

ANSWER_TAG = "answer"
"""The tag of the tokens that the user may see."""


def annotated(message: AIMessage, citations: Sequence[Mapping[str, Any]]) -> AIMessage:
    """Make the same message with annotations; where there are none, leave it as it is.

    Its text becomes one block; other blocks, such as a model's reasoning, stay before it.
    """
    cited = [citation for citation in citations if citation["verified"]] or citations
    if not cited:
        return message
    annotations: list[Annotation] = [_annotation(citation) for citation in cited]
    # Without an id of its own: to OpenAI's Responses API that names a stored message.
    block = TextContentBlock(type="text", text=str(message.text), annotations=annotations)
    return message.model_copy(update={"content": [*_other_blocks(message), block]})


def with_text(message: AIMessage, text: str) -> AIMessage:
    """Make the same message with this text; what is not text stays as it is.

    Example:
        >>> with_text(AIMessage("<think>Hm.</think> 14 days."), "14 days.").content
        '14 days.'
    """
    if str(message.text) == text:
        return message
    if isinstance(message.content, str):
        return message.model_copy(update={"content": text})
    block = {"type": "text", "text": text}
    return message.model_copy(update={"content": [*_other_blocks(message), block]})


def _other_blocks(message: AIMessage) -> list[Any]:
    blocks = message.content if isinstance(message.content, list) else []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") != "text"]


def _annotation(citation: Mapping[str, Any]) -> Citation:
    extras = ("chunk_id", "start", "end", "verified", "occurrences")
    return create_citation(
        url=link_of(citation["source"]),
        title=citation["source"] or None,
        start_index=citation["answer_start"],
        end_index=citation["answer_end"],
        cited_text=citation["quote"],
        **{key: citation[key] for key in extras},
    )


class Replay(BaseChatModel):
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

    def _stream_chat_model_events(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[Any]:
        """Stream by `version="v3"`, which would give the message the run's id by itself."""
        chunks = self._stream(messages, stop, run_manager)
        yield from chunks_to_events(chunks, message_id=messages[-1].id)

    async def _astream_chat_model_events(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> AsyncIterator[Any]:
        chunks = self._astream(messages, stop, run_manager)
        async for event in achunks_to_events(chunks, message_id=messages[-1].id):
            yield event
