"""Publish the answer: the one place where text reaches the user."""

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import uuid4

from langchain_core.messages import AIMessage

from langchain_feedback.nodes._node import Node, tagged
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.abstention import READS, WRITES, abstention, why
from langchain_feedback.nodes.generation import withdraw_draft
from langchain_feedback.nodes.keys import StateKeys
from langchain_feedback.nodes.outcomes import keep_outcome
from langchain_feedback.nodes.publishing import ANSWER_TAG, Replay, annotated

if TYPE_CHECKING:
    # Importing it takes a database library along, which graphs without a store do not need.
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["CitationForm", "record_answer"]

CitationForm = Literal["state", "annotations"]
"""Whether citations are in the state only, or on the `AIMessage` of a chat graph too."""


def record_answer(
    *,
    citations: CitationForm = "state",
    store: "FeedbackStore | None" = None,
    keys: StateKeys | None = None,
    id_field: str | None = None,
) -> Node:
    """Make the node that publishes a verified draft, or the abstention.

    It replays the text as tokens tagged `answer`, whose metadata hold the trace id,
    so that `stream_mode="messages"` shows it exactly once. Then it writes `answer`,
    and in a chat graph the `AIMessage` of the same id. A draft that was found not
    grounded, or an empty one, is never published: it abstains instead.

    With `citations="annotations"` that message is one text block with a langchain-core
    `Citation` for each verified citation, or for each one if none is verified: `url`
    (of an http(s) source), `title`, the span in the answer, `cited_text`, and in
    `extras` the chunk's key, the span in it, `verified` and `occurrences`. Its `.text`
    is the answer, and so are the tokens. `ChatOpenAI` accepts it in the next turn's
    messages; for its Responses API, which would get the annotations, send `.text`.

    With a `store` it keeps, under the state's trace id, the answer and its status, whether
    it is grounded, the grades, which chunks were kept (the prompt) and which are cited: those
    with a verified citation. A retrieval that no `FeedbackRetriever` recorded is recorded
    here. That takes at most the store's `timeout_s`, and a store that is away costs nothing
    more: what could not be written is written later.

    Args:
        citations: `"state"` for the dicts of the state alone, or `"annotations"`.
        store: Where to keep the outcome; None: nowhere.
        keys: Your graph's names of the keys.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        ValueError: If `citations` is neither, or the keys name no `messages` to annotate.

    Example:
        >>> update = record_answer()({"question": "How long?", "draft": "14 days.",
        ...                           "grounded": True})
        >>> update["answer"], update["status"]
        ('14 days.', 'answered')
    """
    keys = keys or StateKeys()
    _check_form(citations, keys)

    def outcome(view: StateView) -> Update:
        if view.get("status") == "abstained":
            cleared = {"draft": "", "draft_id": "", "unsupported": [], "claims": []}
            return Update(cleared, answer=view.get("answer"), status="abstained")
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
        update = outcome(view)
        if citations == "annotations" and update["status"] == "answered":
            message = annotated(message, view.get("citations"))
        return Update(update | {"messages": [message]})

    reads = [*READS, "draft", "status", "answer", "citations"]
    reads += ["search_question", "grades"] if store else []
    return Node(
        "record_answer",
        keys=keys,
        reads=reads,
        writes=[*WRITES, "messages"],
        prepare=prepare,
        # A cached reply would come without tokens, and under an earlier answer's id.
        step=Replay(cache=False),
        finish=finish,
        config=lambda view: tagged(view, ANSWER_TAG),
        record=partial(keep_outcome, store, id_field) if store else None,
    )


def _check_form(citations: str, keys: StateKeys) -> None:
    if citations not in get_args(CitationForm):
        msg = f"citations must be 'state' or 'annotations', got {citations!r}"
        raise ValueError(msg)
    if citations == "annotations" and keys.messages is None:
        msg = (
            "citations='annotations' needs a message to annotate: pass messages=True to the "
            "graph, or StateKeys(messages=...) to the node."
        )
        raise ValueError(msg)
