"""Grounded answers for an agent that you have, as middleware of `create_agent`.

    agent = create_agent(model, tools=[create_feedback_retriever_tool(retriever, ...)],
                         middleware=[GroundedAnswerMiddleware(model)])

Needs the extra `agents`: `pip install "langchain-feedback[agents]"`.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import Runnable, ensure_config

from langchain_feedback.integrations._checking import Checker, Finding
from langchain_feedback.integrations._driving import CallModel, Keep, Show, Step, adrive, drive
from langchain_feedback.integrations._langchain import (
    AgentMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain_feedback.integrations._last_draft import LastDraft, documents_of, own_tools, told
from langchain_feedback.integrations._memory import GroundedState, Memory
from langchain_feedback.integrations._options import (
    abstention_texts,
    check_budget,
    check_word,
    tool_names,
    verifier_of,
)
from langchain_feedback.integrations._outcome import Place, Traces, declined, grounding_of, marked
from langchain_feedback.integrations._responses import (
    asked_again,
    draft_of,
    lines_of,
    passed_on,
    with_abstention,
    with_answer,
    with_update,
    without_asides,
)
from langchain_feedback.integrations._retriever_tool import create_feedback_retriever_tool
from langchain_feedback.integrations._turn import Turn, calls_of, read_turn
from langchain_feedback.judges.base import AnswerVerifier, DocumentGrader
from langchain_feedback.judges.verdict import reply_text
from langchain_feedback.nodes.abstention import AbstentionMessage, abstention_text
from langchain_feedback.nodes.grading import grade_documents
from langchain_feedback.nodes.publishing import annotated, with_text
from langchain_feedback.nodes.retrieval import store_of

if TYPE_CHECKING:
    # Importing it takes a database library along, which agents without a store do not need.
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["GroundedAnswerMiddleware", "create_feedback_retriever_tool", "grounding_of"]

WhenNoDocuments = Literal["pass", "abstain"]
Scope = Literal["turn", "thread"]
CitationForm = Literal["metadata", "annotations"]
_Result = ModelResponse[Any] | ExtendedModelResponse[Any]
_Steps = Generator[Step, Any, _Result]
_Answered = Generator[Step, Any, tuple[_Result, int]]

logger = logging.getLogger(__name__)


class GroundedAnswerMiddleware(AgentMiddleware[GroundedState, Any, Any]):
    """Lets an agent answer only what its retrieval tools' documents support.

    An answer is a model message without tool calls. It is verified against the documents that
    tool messages of this turn hold in their `artifact` (see `create_feedback_retriever_tool`;
    any tool with `response_format="content_and_artifact"` will do). A rejected draft is told
    what is unsupported in it and written again, or the agent searches again; where the budget
    is spent, the agent abstains. All of it happens inside the model node, so that no rejected
    draft is ever in the state or in a stream; a verified answer is replayed as tokens tagged
    `answer`, whose metadata hold the trace id as `feedback_trace_id`.

    What it makes of each model message:

    | the message | becomes |
    | --- | --- |
    | calls tools | passes as it is, **with the prose beside the calls, which nobody checks** |
    | rests on what was found | the answer, under its own id, `grounded` |
    | says that there is no answer | passes, as an abstention |
    | claims nothing and asks back | passes, `unverified` |
    | anything else, after a search | is written again, then an abstention |
    | anything, in a turn without a search | see `when_no_documents` |

    Where a draft is checked, no other message of text alone goes out that middleware inside
    returns beside it. How it went stands in the message's `response_metadata`: see `grounding_of`.

    **A turn** is a run of the agent, with what no answer has ended before it. Its question, what
    was found in it and the rejected drafts are kept in a private key of the agent's state
    (`grounded_answers`; no input and output has it), so that they count whatever other
    middleware does to the messages, and in an interrupted run, too. A search whose result was
    taken away before the next call of the model counts as one that found nothing. It is known by
    its call: where the tool is none of `create_feedback_retriever_tool`, name it in
    `retrieval_tools`.

    **Calls.** A turn makes at most G = `max_regenerations` model calls more than without it,
    and checks at most G + 1 drafts, with one call each (with a model that cannot list claims,
    three), and with a grader `ceil(k / 8)` more (at worst `k` more than that) for k documents.
    Where other middleware jumps back to the model, it is one call and one check each time.
    The agent's own tool calls are bounded by the agent: see LangChain's
    `ModelCallLimitMiddleware`, which does not count drafts.

    **Order.** Put it first: then retries, fallbacks and limits stand inside, and nothing
    changes an answer after it was verified. `after_model` hooks run later than its tokens.

    Args:
        verifier: An `AnswerVerifier`; a chat model or its name (`"openai:gpt-4.1-mini"`) for
            an `LLMVerifier`; or the word `"offline"` for word rules that need no model, and
            pass little but copied sentences.
        grader: A grader, or a chat model that grades: only documents found relevant may
            support an answer. None: all that were found.
        max_regenerations: How many drafts of one turn may be written again.
        abstention: Replaces the texts of an abstention (see `nodes.abstain`); a further
            reason here is `no_retrieval`.
        nearest: How many sources an abstention names; 0 for none.
        when_no_documents: What becomes of an answer when no retrieval tool was called in the
            turn. `"pass"`: it streams at once and passes, marked `unverified`. So greetings
            pass, **and so does whatever the model claims without looking it up**.
            `"abstain"`: the model is told to search first (once, by `max_regenerations`),
            then the agent abstains, also from greetings. A search that found nothing is
            no such case: there it always abstains.
        scope: Whether documents of this turn only may support an answer, or those of the
            whole `"thread"`. Then answers from what was found earlier are verified, too.
        retrieval_tools: The names of the tools whose results count; None: every tool message
            with documents in its artifact, or with an empty list, which is a search that
            found nothing.
        citations: `"metadata"`: in `response_metadata` alone. `"annotations"`: on the message,
            too, as LangChain's `Citation` annotations (see `nodes.record_answer`).
        structured_text: Returns the text of a structured response that must be verified;
            None: every value in it, a line each. A structured response that is not grounded
            becomes None, and the message an abstention.
        store: Where to keep each retrieval and its outcome; None: the store of each tool's own
            `FeedbackRetriever`.
        on_unknown: Whether documents that got no verdict from the grader are kept.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        TypeError: If `verifier` or `grader` is neither of what it may be.
        ValueError: If a budget is negative, or a word is not one that it knows.

    Example:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.documents import Document
        >>> from langchain_core.language_models import GenericFakeChatModel
        >>> from langchain_core.runnables import RunnableLambda
        >>> class Scripted(GenericFakeChatModel):
        ...     def bind_tools(self, tools, **options):
        ...         return self
        >>> call = {"name": "search", "args": {"query": "refund"}, "id": "1"}
        >>> model = Scripted(messages=iter([AIMessage("", tool_calls=[call]),
        ...     AIMessage("It takes 41 days."), AIMessage("A refund takes 14 days.")]))
        >>> retriever = RunnableLambda(lambda query: [Document("A refund takes 14 days.")])
        >>> search = create_feedback_retriever_tool(retriever, "search", "Searches the FAQ.")
        >>> agent = create_agent(model, [search], middleware=[GroundedAnswerMiddleware("offline")])
        >>> state = agent.invoke({"messages": [("user", "How long does a refund take?")]})
        >>> state["messages"][-1].text, grounding_of(state["messages"][-1])["regenerations"]
        ('A refund takes 14 days.', 1)
    """

    state_schema = GroundedState

    def __init__(
        self,
        verifier: AnswerVerifier | Runnable[Any, Any] | str,
        *,
        grader: DocumentGrader | Runnable[Any, Any] | None = None,
        max_regenerations: int = 1,
        abstention: AbstentionMessage | None = None,
        nearest: int = 3,
        when_no_documents: WhenNoDocuments = "pass",
        scope: Scope = "turn",
        retrieval_tools: Collection[str] | None = None,
        citations: CitationForm = "metadata",
        structured_text: Callable[[Any], str] | None = None,
        store: "FeedbackStore | None" = None,
        on_unknown: Literal["keep", "drop"] = "keep",
        id_field: str | None = None,
    ) -> None:
        super().__init__()
        check_budget(max_regenerations=max_regenerations, nearest=nearest)
        check_word("when_no_documents", when_no_documents, WhenNoDocuments)
        check_word("scope", scope, Scope)
        check_word("citations", citations, CitationForm)
        self.verifier = verifier_of(verifier, id_field)
        self.max_regenerations = max_regenerations
        self.when_no_documents = when_no_documents
        self.scope = scope
        self.retrieval_tools = tool_names(retrieval_tools)
        self.store = store
        self._grade = (
            None
            if grader is None
            else grade_documents(grader, on_unknown=on_unknown, id_field=id_field)
        )
        self._abstention, self._nearest = abstention_texts(abstention), nearest
        self._citations, self._id_field = citations, id_field
        self._structured_text = structured_text or lines_of
        self._warned = False

    def before_agent(self, state: GroundedState, runtime: Any) -> dict[str, Any]:  # noqa: ARG002
        """Begin a run: with its own question, budget and searches."""
        return Memory.of_run(state["messages"]).to_state(self.name)

    async def abefore_agent(self, state: GroundedState, runtime: Any) -> dict[str, Any]:
        """Do the same."""
        return self.before_agent(state, runtime)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> _Result:
        """Call the model, and let out only what may go out."""
        return drive(self._steps(request), handler)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> _Result:
        """Do the same without blocking the event loop."""
        return await adrive(self._steps(request), handler)

    def _steps(self, request: ModelRequest[Any]) -> _Steps:
        state = cast("Mapping[str, Any]", request.state)
        known = Memory.of_state(state, self.name)
        tools = self._tools(request)
        # Other middleware may shorten what the model sees; the state holds every document.
        messages: list[AnyMessage] = state.get("messages") or request.messages
        turn = read_turn(
            messages,
            tools,
            memory=known or Memory.of_run(messages),
            named=self.retrieval_tools is not None,
            earlier=self.scope == "thread",
        )
        result, rejected = yield from self._answered(request, turn)
        response = result.model_response if isinstance(result, ExtendedModelResponse) else result
        called = [*turn.lost, *calls_of(response.result, tools)]
        memory = replace(turn.memory, called=called, rejected=rejected)
        if known is not None and memory.is_like(known):
            return result
        return with_update(result, memory.to_state(self.name))

    def _answered(self, request: ModelRequest[Any], turn: Turn) -> _Answered:
        """Return what goes out, and how many drafts of the run were written again by then."""
        documents, written = documents_of(turn), turn.memory.rejected
        if not (turn.searches or documents) and self.when_no_documents == "pass":
            self._warn_of_text(turn)
            response = yield CallModel(request, live=True)
            return passed_on(response, told(Finding("unverified", "no_retrieval"))), written
        checker = Checker(
            turn, documents, grade=self._grade, verifier=self.verifier, id_field=self._id_field
        )
        asked = request
        while True:
            response = without_asides((yield CallModel(asked)))
            draft = draft_of(response)
            if draft is None:
                return response, written
            text = self._text(response, draft)
            finding = yield from checker.check(text)
            if not finding.may_improve or written >= self.max_regenerations:
                break
            written += 1
            asked = asked_again(request, text, finding)
        outcome = LastDraft(response, draft, text, finding, written)
        return (yield from self._published(request, turn, checker, outcome)), written

    def _published(
        self, request: ModelRequest[Any], turn: Turn, checker: Checker, outcome: LastDraft
    ) -> _Steps:
        finding, response = outcome.finding, outcome.response
        traces = Traces(turn, self._places(request, turn), ensure_config(), self._id_field)
        marks = told(
            finding,
            trace_id=traces.first(finding),
            trace_ids=traces.ids,
            regenerations=outcome.regenerations,
            errors=checker.errors,
        )
        message = marked(self._message(turn, checker, outcome), marks)
        is_text = finding.status == "rejected" or response.structured_response is None
        if is_text:
            yield Show(message, marks["trace_id"])
        answer = str(message.text) if is_text else outcome.text
        yield Keep(lambda config: traces.keep(answer, finding, checker, config))
        if finding.status == "rejected":
            return with_abstention(response, message)
        if is_text and self._citations == "annotations":
            message = annotated(message, finding.citations)
        return with_answer(response, outcome.draft, message)

    def _message(self, turn: Turn, checker: Checker, outcome: LastDraft) -> AIMessage:
        """Return the draft, or the abstention in its place."""
        if outcome.finding.status == "rejected":
            text = abstention_text(
                outcome.finding.reason,
                turn.question,
                checker.documents,
                message=self._abstention,
                nearest=self._nearest,
            )
            return declined(outcome.draft, text)
        if outcome.response.structured_response is not None:
            return outcome.draft
        return with_text(outcome.draft, outcome.text)

    def _tools(self, request: ModelRequest[Any]) -> Collection[str]:
        """Return the names of the tools that are known to search."""
        if self.retrieval_tools is not None:
            return self.retrieval_tools
        return {tool.name for tool in own_tools(request)}

    def _warn_of_text(self, turn: Turn) -> None:
        """Say once that a retrieval tool which returns text alone leaves nothing to verify by."""
        if turn.without_documents and self.retrieval_tools is None and not self._warned:
            self._warned = True
            logger.warning(
                "No tool of this turn (%s) returned documents, so its answer passes unverified. "
                "A retrieval tool needs response_format='content_and_artifact'; see "
                "create_feedback_retriever_tool. Where none of them retrieves, name those that "
                "do in retrieval_tools.",
                ", ".join(turn.without_documents),
            )

    def _places(self, request: ModelRequest[Any], turn: Turn) -> list[Place]:
        own = {tool.name: store_of(tool.retriever) for tool in own_tools(request)}
        stores = [(self.store or own.get(one.tool), own.get(one.tool)) for one in turn.found]
        return [Place(store, is_own=store is not None and store is its) for store, its in stores]

    def _text(self, response: ModelResponse[Any], draft: AIMessage) -> str:
        if response.structured_response is None:
            return reply_text(draft)
        return self._structured_text(response.structured_response)
