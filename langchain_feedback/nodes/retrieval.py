"""Begin a question, and retrieve chunks for it."""

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.base import RunnableBindingBase
from langgraph.constants import TAG_NOSTREAM

from langchain_feedback.claims import RESERVED, Asked, Claim, claims_of
from langchain_feedback.documents import copy_document
from langchain_feedback.nodes._node import Node
from langchain_feedback.nodes._tokens import issuer
from langchain_feedback.nodes._view import StateView, Update
from langchain_feedback.nodes.keys import DEFAULTS, StateKeys
from langchain_feedback.traces import ATTEMPT_KEY, TRACE_ID_KEY, new_trace_id, trace_id_of

if TYPE_CHECKING:
    # Importing it takes a database library along, which graphs without a store do not need.
    from langchain_feedback.store.feedback_store import FeedbackStore
    from langchain_feedback.store.records import TraceRecord
    from langchain_feedback.tokens import FeedbackTokens

__all__ = ["begin", "retrieve", "store_of"]

_KEPT = ("question", "documents", "messages", "feedback_token")
_PER_QUESTION = [key for key in DEFAULTS if key not in _KEPT]


def begin(
    *,
    store: "FeedbackStore | None" = None,
    tokens: "FeedbackTokens | None" = None,
    keys: StateKeys | None = None,
) -> Node:
    """Make the node that opens a question: a fresh trace id, and budgets at zero.

    It resets every per-question key, so that the second question on a thread has
    its own budgets. The trace id is `config["metadata"]["feedback_trace_id"]` where
    the caller hands one over. In a chat graph it takes the last human message as
    the question.

    With a `store`, an id that was used before (in a batch, for another question of a
    thread, for one that is answered) is replaced by a fresh one, with a line in the log.
    Give it the store that `record_answer` has; else that one refuses to mix two questions
    and keeps nothing of the second.

    With `tokens`, it writes `feedback_token` beside the trace id, for whoever asks: the
    metadata's `user_id`, or else the session. A trace id that is no UUID has none.

    Args:
        store: Knows which ids were used. It is read only where the caller hands one over.
        tokens: Issue the token that a client rates the answer with; None: there is none.
        keys: Your graph's names of the keys.

    Raises:
        ValueError: When it runs on a state without a question.

    Example:
        >>> begin()({"question": "How long does a refund take?"})["generations"]
        0
    """
    keys = keys or StateKeys()
    token_for = issuer(tokens)

    def prepare(view: StateView) -> Asked | Update:
        metadata = view.config.get("metadata") or {}
        asked = Asked.from_run(_asked(view), metadata, attempt=RESERVED)
        if store is None or asked.trace_id is None:
            return opened(view, asked.trace_id or new_trace_id())
        return asked

    def opened(view: StateView, trace_id: str) -> Update:
        reset = {key: StateView({}, keys).get(key) for key in _PER_QUESTION}
        update = Update(reset | {"trace_id": trace_id} | token_for(trace_id, view.config))
        if keys.messages is not None:
            update["question"] = _asked(view)
        return update

    return Node(
        "begin",
        keys=keys,
        reads=["question", "messages"],
        writes=[*_PER_QUESTION, *(["feedback_token"] if tokens else [])],
        prepare=prepare,
        # A Runnable: async graphs run it beside the event loop, since it may read.
        step=RunnableLambda(partial(_reserved, store), name="reserve_trace_id") if store else None,
        finish=lambda view, claim: opened(view, claim.trace_id),
    )


def _asked(view: StateView) -> str:
    """Return the question of this turn: in a chat the state still holds the one before."""
    last = view.last_human
    return view.question if last is None else view.checked(last)


def _reserved(store: "FeedbackStore", asked: Asked) -> Claim:
    """Take the id for this question; a retriever over the same store joins it."""

    def read_trace(trace_id: str) -> "TraceRecord | None":
        return store.try_read(lambda: store.trace(trace_id), None)

    return claims_of(store).claim(asked, read_trace)


def retrieve(
    retriever: Runnable[str, list[Document]],
    *,
    tokens: "FeedbackTokens | None" = None,
    keys: StateKeys | None = None,
    **search_kwargs: Any,
) -> Node:
    """Make the node that retrieves chunks, by the rewritten question where there is one.

    The chunks are copies: the retriever's own objects are never touched. The trace
    id and the attempt (1, then 2 after a rewrite) reach the retriever in
    `config["metadata"]`. A `FeedbackRetriever` that goes by a fresh id, since this one was
    used before, changes it in the state, too, whether it finds anything or not. An error of
    the retriever is raised.

    Args:
        retriever: Any retriever: a Runnable from a string to documents.
        tokens: Those that `begin` has: an id that changes here needs another token.
        keys: Your graph's names of the keys.
        search_kwargs: Passed to each call of the retriever, for example `k=4`.

    Raises:
        TypeError: If `retriever` is not a Runnable.

    Example:
        >>> from langchain_core.runnables import RunnableLambda
        >>> search = RunnableLambda(lambda question: [Document(f"About: {question}")])
        >>> retrieve(search)({"question": "refunds"})["documents"][0].page_content
        'About: refunds'
    """
    if not isinstance(retriever, Runnable):
        msg = (
            f"retriever must be a Runnable from a string to documents, got {retriever!r}; use "
            "`as_retriever()` of a vector store, or wrap a function in `RunnableLambda`"
        )
        raise TypeError(msg)
    keys = keys or StateKeys()

    def config(view: StateView) -> RunnableConfig:
        metadata: dict[str, Any] = {ATTEMPT_KEY: view.get("rewrites") + 1}
        if trace_id := view.get("trace_id"):
            metadata[TRACE_ID_KEY] = trace_id
        # A retriever that asks a model of its own does not speak to the user.
        return {"metadata": metadata, "tags": [TAG_NOSTREAM]}

    learns = store_of(retriever) is not None
    token_for = issuer(tokens)

    def finish(view: StateView, found: list[Document] | None) -> Update:
        update = Update(documents=[copy_document(document) for document in found or []])
        recorded = _recorded_as(found) if learns else None
        if recorded and recorded != view.get("trace_id"):
            # The id was used before: a rating must name the retrieval that it is about.
            update |= {"trace_id": recorded} | token_for(recorded, view.config)
        return update

    return Node(
        "retrieve",
        keys=keys,
        reads=["question", "search_question", "messages", "rewrites", "trace_id"],
        writes=["documents", "trace_id", *(["feedback_token"] if tokens else [])],
        prepare=lambda view: view.get("search_question") or view.question,
        step=retriever,
        finish=finish,
        config=config,
        step_kwargs=search_kwargs,
    )


def _recorded_as(found: list[Document] | None) -> str | None:
    """Return the trace id of what a `FeedbackRetriever` returned; None where others stood in."""
    try:
        return trace_id_of([] if found is None else found)
    except ValueError:
        return None


def store_of(retriever: Any) -> "FeedbackStore | None":
    """Return the store that a retriever learns from, also where it is bound; None: it has none."""
    while isinstance(retriever, RunnableBindingBase):
        retriever = retriever.bound
    store = getattr(retriever, "store", None)
    return store if hasattr(store, "record_soon") else None
