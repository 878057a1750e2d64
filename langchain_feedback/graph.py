"""The graph that answers from your documents, checks its answer, or abstains.

    begin -> retrieve -> grade_documents -> generate -> verify_answer -> record_answer

Where no chunk is kept, the question is rewritten and searched again; where a draft
is not grounded, it is written again with what was unsupported in it; where a budget
is spent, the graph abstains. It always ends.
"""

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage
from langchain_core.runnables import Runnable
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from langchain_feedback import nodes
from langchain_feedback.judges.base import (
    AnswerGenerator,
    AnswerVerifier,
    DocumentGrader,
    GroundednessChecker,
    Highlighter,
    chat_model,
    is_judge,
)
from langchain_feedback.judges.groundedness import LLMGroundednessChecker
from langchain_feedback.judges.highlighting import LLMHighlighter
from langchain_feedback.judges.offline import (
    ExtractiveGenerator,
    LexicalGrader,
    LexicalGroundednessChecker,
    SentenceHighlighter,
)
from langchain_feedback.judges.two_steps import CheckAndHighlight
from langchain_feedback.nodes.abstention import AbstentionMessage
from langchain_feedback.nodes.keys import StateKeys, state_schema
from langchain_feedback.nodes.recording import CitationForm
from langchain_feedback.nodes.retrieval import store_of

if TYPE_CHECKING:
    # Importing it takes a database library along, which graphs without a store do not need.
    from langchain_feedback.store.feedback_store import FeedbackStore
    from langchain_feedback.tokens import FeedbackTokens

__all__ = ["create_reliable_rag", "reliable_rag_builder"]

Model = BaseChatModel | Runnable[Any, Any] | AnswerGenerator | Literal["offline"]

_OUTPUT = ["answer", "status", "reason", "grounded", "citations", "claims", "checks"]
_OUTPUT += ["documents", "grades", "generations", "rewrites", "trace_id", "errors", "messages"]


def create_reliable_rag(
    retriever: Runnable[str, list[Document]],
    model: Model,
    *,
    grader: DocumentGrader | Runnable[Any, Any] | None = None,
    groundedness: GroundednessChecker | Runnable[Any, Any] | None = None,
    highlighter: Highlighter | Runnable[Any, Any] | None = None,
    verifier: AnswerVerifier | Runnable[Any, Any] | None = None,
    max_rewrites: int = 1,
    max_regenerations: int = 1,
    messages: bool = False,
    citations: CitationForm = "state",
    on_unknown: Literal["keep", "drop"] = "keep",
    abstention: AbstentionMessage | None = None,
    stream_drafts: bool = False,
    search_kwargs: Mapping[str, Any] | None = None,
    id_field: str | None = None,
    store: "FeedbackStore | None" = None,
    tokens: "FeedbackTokens | None" = None,
    checkpointer: Checkpointer = None,
    name: str = "reliable_rag",
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Make the whole graph: a question in, a verified answer or an abstention out.

    With k chunks, R rewrites and G regenerations allowed, one question makes at most
    `(R + 1)(ceil(k / 8) + k) + R + 2(G + 1)` model calls, and 3 where all goes well
    (grade, generate, verify; k up to 8). A model that cannot list claims costs one call
    more for each draft and one for the highlights; see `LLMVerifier`.

    Args:
        retriever: Any retriever: a Runnable from a string to documents.
        model: A chat model, an `AnswerGenerator`, or the word `"offline"` for the
            parts that need no model (see `judges.offline`).
        grader: A grader, or a chat model that grades; None: `model`.
        groundedness: A checker, or a chat model that checks; with it the answer is
            checked and highlighted in two steps.
        highlighter: A highlighter, or a chat model that quotes; likewise.
        verifier: A verifier, or a chat model that verifies; None: `model`, in one step.
        max_rewrites: How often the question may be rewritten. Without a chat model
            nobody can rewrite it, and this counts as 0.
        max_regenerations: How often a draft may be written again.
        messages: Whether the graph chats: `messages` in and out, the question being
            the last human message.
        citations: With `"annotations"`, the `AIMessage` of a chat graph carries its
            citations as langchain-core annotations; see `nodes.record_answer`.
        on_unknown: Whether chunks that got no verdict are kept or dropped.
        abstention: Replaces the text of an abstention (see `nodes.abstain`).
        stream_drafts: Whether drafts are streamed before they are verified.
        search_kwargs: Passed to the retriever, for example `{"k": 4}`.
        id_field: The metadata field that holds a chunk's id, if any.
        store: Where to keep each retrieval and its outcome, so that it can be rated; None:
            the retriever's own, if it is a `FeedbackRetriever`.
        tokens: Issue the token that lets the asker's browser rate the answer; None: there
            is none.
        checkpointer: As in `StateGraph.compile`.
        name: The graph's name.

    Returns:
        A compiled graph. Its output holds `answer`, `status` (`answered` or
        `abstained`), `reason`, `grounded`, `citations`, `documents`, `grades`,
        `generations`, `rewrites`, `trace_id` and `errors`; with `tokens` also
        `feedback_token`, which the first `updates` event has, too.

    Raises:
        TypeError: If `model` is none of what it may be.
        ValueError: If a budget is negative, `on_unknown` or `citations` is not a word it
            knows, there are annotations but no messages, or `store` is not the one that the
            retriever learns from.

    Example:
        >>> from langchain_core.runnables import RunnableLambda
        >>> chunks = [Document("A refund takes 14 days.", metadata={"source": "faq.md"})]
        >>> graph = create_reliable_rag(RunnableLambda(lambda question: chunks), "offline")
        >>> result = graph.invoke({"question": "How long does a refund take?"})
        >>> result["answer"], result["citations"][0]["source"]
        ('A refund takes 14 days.', 'faq.md')
        >>> graph.invoke({"question": "Who won the cup?"})["reason"]
        'none_relevant'
    """
    builder = reliable_rag_builder(
        retriever,
        model,
        grader=grader,
        groundedness=groundedness,
        highlighter=highlighter,
        verifier=verifier,
        max_rewrites=max_rewrites,
        max_regenerations=max_regenerations,
        messages=messages,
        citations=citations,
        on_unknown=on_unknown,
        abstention=abstention,
        stream_drafts=stream_drafts,
        search_kwargs=search_kwargs,
        id_field=id_field,
        store=store,
        tokens=tokens,
    )
    return builder.compile(checkpointer=checkpointer, name=name)


def reliable_rag_builder(
    retriever: Runnable[str, list[Document]],
    model: Model,
    *,
    grader: DocumentGrader | Runnable[Any, Any] | None = None,
    groundedness: GroundednessChecker | Runnable[Any, Any] | None = None,
    highlighter: Highlighter | Runnable[Any, Any] | None = None,
    verifier: AnswerVerifier | Runnable[Any, Any] | None = None,
    max_rewrites: int = 1,
    max_regenerations: int = 1,
    messages: bool = False,
    citations: CitationForm = "state",
    on_unknown: Literal["keep", "drop"] = "keep",
    abstention: AbstentionMessage | None = None,
    stream_drafts: bool = False,
    search_kwargs: Mapping[str, Any] | None = None,
    id_field: str | None = None,
    store: "FeedbackStore | None" = None,
    tokens: "FeedbackTokens | None" = None,
) -> StateGraph[Any, Any, Any, Any]:
    """Make the graph's builder, to add steps of your own before compiling it.

    It takes the arguments of `create_reliable_rag`, but for `checkpointer` and `name`,
    and raises the same errors.
    """
    _check_model(model)
    store = _one_store(retriever, store)
    writer = ExtractiveGenerator() if isinstance(model, str) else model
    can_chat = not is_judge(writer, AnswerGenerator)
    grader = grader or (writer if can_chat else LexicalGrader(id_field=id_field))
    verifier = _verifier(
        writer if can_chat else None, verifier, groundedness, highlighter, id_field
    )
    keys = StateKeys(messages="messages" if messages else None)
    rewrites = max_rewrites if can_chat else min(max_rewrites, 0)

    builder = _Builder(**_schemas(keys, with_tokens=tokens is not None))
    builder.add_node(nodes.begin(keys=keys, store=store, tokens=tokens))
    builder.add_node(nodes.retrieve(retriever, keys=keys, tokens=tokens, **(search_kwargs or {})))
    builder.add_node(
        nodes.grade_documents(grader, on_unknown=on_unknown, keys=keys, id_field=id_field)
    )
    builder.add_node(nodes.generate(writer, stream_drafts=stream_drafts, keys=keys))
    builder.add_node(nodes.verify_answer(verifier, keys=keys, id_field=id_field))
    budgets = {"max_rewrites": rewrites, "max_regenerations": max_regenerations}
    builder.add_node(nodes.abstain(abstention, keys=keys, **budgets))
    builder.add_node(
        nodes.record_answer(citations=citations, store=store, keys=keys, id_field=id_field)
    )
    after_grading: dict[Hashable, str] = {"generate": "generate", "abstain": "abstain"}
    if rewrites > 0:
        builder.add_node(nodes.rewrite_question(writer, keys=keys))
        builder.add_edge("rewrite_question", "retrieve")
        after_grading["rewrite_question"] = "rewrite_question"

    builder.add_edge(START, "begin")
    if messages and rewrites > 0:
        route = nodes.route_after_begin(max_rewrites=rewrites, keys=keys)
        builder.add_conditional_edges("begin", route)
    else:
        builder.add_edge("begin", "retrieve")
    builder.add_edge("retrieve", "grade_documents")
    builder.add_conditional_edges(
        "grade_documents",
        nodes.route_after_grading(max_rewrites=rewrites, keys=keys),
        after_grading,
    )
    builder.add_edge("generate", "verify_answer")
    builder.add_conditional_edges(
        "verify_answer",
        nodes.route_after_verification(max_regenerations=max_regenerations, keys=keys),
    )
    builder.add_edge("abstain", "record_answer")
    builder.add_edge("record_answer", END)
    return builder


def _verifier(
    model: Runnable[Any, Any] | None,
    verifier: AnswerVerifier | Runnable[Any, Any] | None,
    groundedness: GroundednessChecker | Runnable[Any, Any] | None,
    highlighter: Highlighter | Runnable[Any, Any] | None,
    id_field: str | None,
) -> AnswerVerifier | Runnable[Any, Any]:
    """Choose one step or two, by what was handed over."""
    in_two = groundedness is not None or highlighter is not None
    if verifier is not None and in_two:
        msg = "Pass a verifier, or groundedness and highlighter, not both."
        raise ValueError(msg)
    if verifier is not None or (model is not None and not in_two):
        return verifier or model  # type: ignore[return-value]
    checker = groundedness or model or LexicalGroundednessChecker()
    quoter = highlighter or model or SentenceHighlighter(id_field=id_field)
    if not is_judge(checker, GroundednessChecker):
        checker = LLMGroundednessChecker(chat_model(checker, "groundedness"))
    if not is_judge(quoter, Highlighter):
        quoter = LLMHighlighter(chat_model(quoter, "highlighter"), id_field=id_field)
    return CheckAndHighlight(checker, quoter)  # type: ignore[arg-type]


class _Builder(StateGraph[Any, Any, Any, Any]):
    """A builder whose graphs hold drafts back from every stream of state."""

    def compile(self, *args: Any, **kwargs: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
        return nodes.hold_back_drafts(super().compile(*args, **kwargs))


def _schemas(keys: StateKeys, *, with_tokens: bool) -> dict[str, type[Any]]:
    chat = {"messages": Annotated[list[AnyMessage], add_messages]}
    token = ["feedback_token"] if with_tokens else []
    names = [name for name in keys.names() if name != "feedback_token"] + token
    asked = ["question"] if keys.messages is None else ["messages"]
    return {
        "state_schema": state_schema("ReliableRAGState", keys, names, annotations=chat),
        "input_schema": state_schema("ReliableRAGInput", keys, asked, annotations=chat),
        "output_schema": state_schema(
            "ReliableRAGOutput", keys, _OUTPUT + token, annotations=chat
        ),
    }


def _one_store(retriever: Any, store: "FeedbackStore | None") -> "FeedbackStore | None":
    learned_from = store_of(retriever)
    if store is not None and learned_from is not None and store is not learned_from:
        msg = "store must be the store of the FeedbackRetriever; leave it out."
        raise ValueError(msg)
    return store or learned_from


def _check_model(model: Any) -> None:
    if model == "offline" or isinstance(model, Runnable):
        return
    msg = (
        "model must be a chat model, an AnswerGenerator, or the word 'offline' for the parts "
        f"that need no model; got {model!r} (a model's name: init_chat_model(name))"
    )
    raise TypeError(msg)
