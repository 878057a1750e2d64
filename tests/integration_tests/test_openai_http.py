"""The judges on the real OpenAI client over real HTTP, against a server of this machine."""

import re
from collections.abc import Callable
from typing import Any, TypedDict

import openai
import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

from langchain_feedback import LLMDocumentGrader, LLMGroundednessChecker, LLMHighlighter
from tests.openai_server import (
    ChatRequest,
    ContentFilter,
    Empty,
    Failure,
    Json,
    OpenAIServer,
    Refusal,
    Reply,
    Text,
    ToolCalls,
)

# The client says so itself when a model has no structured output and it calls a function instead.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot use method='json_schema':UserWarning")

SCHEMA, FUNCTION = "gpt-4o-mini", "gpt-4"
MODELS = (SCHEMA, FUNCTION)
MODES = ("batch", "each")
QUESTION = "How long does a refund take?"
CHUNKS = [
    Document("Refunds take 14 days.", id="refunds"),
    Document("Keys rotate every ninety days.", id="keys"),
    Document("Fees stay with us.", id="fees"),
]
GRADING = {"question": QUESTION, "documents": CHUNKS}
CHECKING = {"question": QUESTION, "answer": "It takes 14 days.", "documents": CHUNKS}
GROUNDED = {"reason": "it is there", "unsupported": [], "grounded": True}


def chat(server: OpenAIServer, model: str = SCHEMA, **settings: Any) -> ChatOpenAI:
    settings = {"max_retries": 0, **settings}
    return ChatOpenAI(model=model, base_url=server.base_url, api_key="test", **settings)


def slots(request: ChatRequest) -> dict[str, str]:
    """The chunks' texts in a request, by slot."""
    [token] = set(re.findall(r"^<question-(\w+)>$", request.text, re.MULTILINE))
    fenced = rf"^<chunk-(\d+)-{token}>\n(.*?)\n</chunk-\1-{token}>$"
    found = re.findall(fenced, request.text, re.MULTILINE | re.DOTALL)
    return {f"{token}-{number}": text for number, text in found}


def graded(request: ChatRequest) -> dict[str, Any]:
    """What a good model returns: the chunk about refunds alone is relevant."""
    entries = [
        {"slot": slot, "reason": "I read it", "relevant": "Refunds" in text}
        for slot, text in slots(request).items()
    ]
    if "one retrieved chunk" in request.text:
        return {"reason": "I read it", "relevant": entries[0]["relevant"]}
    return {"grades": entries}


def quoted(request: ChatRequest) -> dict[str, Any]:
    first, second, *_ = slots(request)
    pairs = [(first, "Refunds take 14 days"), (second, "Keys rotate every 41 days")]
    return {"quotes": [{"slot": slot, "quote": quote} for slot, quote in pairs]}


async def both(judge: Any, ask: Any) -> Any:
    """The result of a judge, which sync and async must agree on."""
    result = judge.invoke(ask)
    assert await judge.ainvoke(ask) == result
    return result


def verdicts(grades: list[dict[str, Any]]) -> list[str]:
    return [grade["verdict"] for grade in grades]


# -- structured replies


@pytest.mark.parametrize("model", MODELS)
async def test_structured_replies_cost_one_request_a_judge(model):
    with OpenAIServer(lambda request: Json(graded(request))) as server:
        grades = await both(LLMDocumentGrader(chat(server, model)), GRADING)
        assert verdicts(grades) == ["yes", "no", "no"]
        assert {grade["reason"] for grade in grades} == {"I read it"}
        assert len(server.requests) == 2
        assert {request.schema_name for request in server.chats} == {"Grades"}
    with OpenAIServer(lambda request: Json(GROUNDED)) as server:
        result = await both(LLMGroundednessChecker(chat(server, model)), CHECKING)
        assert (result["verdict"], result["reason"]) == ("yes", "it is there")
        assert len(server.requests) == 2
    with OpenAIServer(lambda request: Json(quoted(request))) as server:
        citations = await both(LLMHighlighter(chat(server, model)), CHECKING)
        assert [(c["chunk_id"], c["verified"]) for c in citations] == [
            ("refunds", True),
            ("keys", False),
        ]
        assert len(server.requests) == 2
        expected = "function" if model == FUNCTION else "json_schema"
        assert {request.mode for request in server.chats} == {expected}


@pytest.mark.parametrize("model", MODELS)
async def test_each_asks_once_a_chunk(model):
    with OpenAIServer(lambda request: Json(graded(request))) as server:
        grades = await both(LLMDocumentGrader(chat(server, model), mode="each"), GRADING)
        assert verdicts(grades) == ["yes", "no", "no"]
        assert len(server.requests) == 2 * 3
        assert all(len(slots(request)) == 1 for request in server.chats)


def test_the_schema_is_strict_and_the_reason_comes_before_the_verdict():
    with OpenAIServer(lambda request: Json(graded(request))) as server:
        LLMDocumentGrader(chat(server), mode="each").invoke(GRADING)
    form = server.requests[0]["response_format"]["json_schema"]
    assert form["strict"] is True
    assert list(form["schema"]["properties"]) == ["reason", "relevant"]
    assert form["schema"]["additionalProperties"] is False


@pytest.mark.parametrize("model", MODELS)
async def test_a02_a_tool_call_is_read_whether_it_was_asked_for_or_not(model):
    def reply(request: ChatRequest) -> Reply:
        return ToolCalls([("OneGrade", graded(request))])

    with OpenAIServer(reply) as server:
        grades = await both(LLMDocumentGrader(chat(server, model), mode="each"), GRADING)
    assert verdicts(grades) == ["yes", "no", "no"]


async def test_structured_output_can_be_switched_off():
    def reply(request: ChatRequest) -> Reply:
        assert request.mode == "text"
        return Json(graded(request))

    with OpenAIServer(reply) as server:
        grader = LLMDocumentGrader(chat(server), structured=False)
        assert verdicts(await both(grader, GRADING)) == ["yes", "no", "no"]
        assert len(server.requests) == 2


# -- prose


def prose(request: ChatRequest) -> Reply:
    [text] = slots(request).values()
    return Text("**Yes.**" if "Refunds" in text else "No, it is about something else.")


@pytest.mark.parametrize("model", MODELS)
async def test_a02_prose_is_read_from_the_same_reply(model):
    with OpenAIServer(prose) as server:
        grades = await both(LLMDocumentGrader(chat(server, model), mode="each"), GRADING)
        assert verdicts(grades) == ["yes", "no", "no"]
        assert [grade["error"] for grade in grades] == [None] * 3
        assert len(server.requests) == 2 * 3
    with OpenAIServer(lambda request: Text("No.")) as server:
        result = await both(LLMGroundednessChecker(chat(server, model)), CHECKING)
        assert (result["verdict"], result["error"]) == ("no", None)
        assert len(server.requests) == 2
    with OpenAIServer(lambda request: Text("Refunds take 14 days.")) as server:
        assert await both(LLMHighlighter(chat(server, model)), CHECKING) == []
        assert len(server.requests) == 2


@pytest.mark.parametrize("model", MODELS)
def test_a_groups_prose_is_read_by_slots(model):
    def reply(request: ChatRequest) -> Reply:
        lines = [
            f"{slot}: {'yes' if 'R' in text else 'no'}" for slot, text in slots(request).items()
        ]
        return Text("\n".join(lines))

    with OpenAIServer(reply) as server:
        grades = LLMDocumentGrader(chat(server, model)).invoke(GRADING)
        assert verdicts(grades) == ["yes", "no", "no"]
        assert len(server.requests) == 1


class State(TypedDict, total=False):
    result: Any


def in_graph(judge: Any, ask: Any) -> Any:
    """A compiled graph of one node that calls a judge, sync and async."""
    builder = StateGraph(State)

    def node(state: State, config: RunnableConfig) -> State:
        return {"result": judge.invoke(ask, config)}

    builder.add_node("judge", node)
    builder.add_edge(START, "judge")
    builder.add_edge("judge", END)
    return builder.compile()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("structured", [True, False])
async def test_a02_a23_the_same_inside_a_run_that_streams_messages(model, structured):
    """The client streams there, and parses a Pydantic class so early that prose is lost."""
    with OpenAIServer(prose) as server:
        grader = LLMDocumentGrader(chat(server, model), mode="each", structured=structured)
        graph = in_graph(grader, GRADING)
        streamed = list(graph.stream({}, stream_mode=["messages", "values"]))
        streamed += [part async for part in graph.astream({}, stream_mode=["messages", "values"])]
    states = [part for kind, part in streamed if kind == "values" and part]
    assert [verdicts(state["result"]) for state in states] == [["yes", "no", "no"]] * 2
    assert [part for kind, part in streamed if kind == "messages"] == []


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("judge_class", "ask", "reply", "read"),
    [
        (LLMDocumentGrader, GRADING, graded, verdicts),
        (LLMGroundednessChecker, CHECKING, lambda request: GROUNDED, lambda r: r["verdict"]),
        (LLMHighlighter, CHECKING, quoted, lambda found: [c["quote"] for c in found]),
    ],
)
async def test_a23_structured_replies_inside_a_run_that_streams_messages(
    model, judge_class, ask, reply, read
):
    with OpenAIServer(lambda request: Json(reply(request))) as server:
        judge = judge_class(chat(server, model))
        graph = in_graph(judge, ask)
        streamed = list(graph.stream({}, stream_mode=["messages", "values"]))
        streamed += [part async for part in graph.astream({}, stream_mode=["messages", "values"])]
        alone = judge.invoke(ask)
        assert len(server.requests) == 3
    states = [part for kind, part in streamed if kind == "values" and part]
    assert [read(state["result"]) for state in states] == [read(alone)] * 2
    assert [part for kind, part in streamed if kind == "messages"] == []


# -- replies that hold nothing

Check = Callable[[ChatRequest], Reply]
UNREADABLE: dict[str, Check] = {
    "refusal": lambda request: Refusal("I will not."),
    "filtered prompt": lambda request: ContentFilter(),
    "filtered answer": lambda request: Text("", "content_filter"),
    "bad request": lambda request: Failure(400, "no"),
    "too long": lambda request: Failure(413, "no"),
    "empty": lambda request: Empty(),
    "broken arguments": lambda request: ToolCalls([("Grades", '{"grades": [')]),
    "cut off": lambda request: Text('{"reason": "Yes, it names', "length"),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", UNREADABLE)
async def test_a04_what_holds_no_verdict_is_unknown_and_costs_a_bounded_number(model, name):
    with OpenAIServer(UNREADABLE[name]) as server:
        for mode, requests in (("batch", 1 + 3), ("each", 3)):
            before = len(server.requests)
            grades = await both(LLMDocumentGrader(chat(server, model), mode=mode), GRADING)
            assert verdicts(grades) == ["unknown"] * 3
            assert all(grade["error"] for grade in grades)
            assert len(server.requests) - before == 2 * requests
        before = len(server.requests)
        result = await both(LLMGroundednessChecker(chat(server, model)), CHECKING)
        assert result["verdict"] == "unknown"
        assert result["error"]
        assert await both(LLMHighlighter(chat(server, model)), CHECKING) == []
        assert len(server.requests) - before == 4


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Refusal("I will not."), "OpenAIRefusalError"),
        (ContentFilter(), "OpenAIInvalidRequestError"),
    ],
)
async def test_a04_the_chunk_that_caused_it_pays_alone(model, mode, failure, error):
    def reply(request: ChatRequest) -> Reply:
        return failure if "Keys" in request.text else Json(graded(request))

    with OpenAIServer(reply) as server:
        grades = await both(LLMDocumentGrader(chat(server, model), mode=mode), GRADING)
    assert verdicts(grades) == ["yes", "unknown", "no"]
    assert [grade["error"] for grade in grades] == [None, error, None]


def test_a_cut_off_verdict_in_prose_is_unknown_or_what_it_says():
    with OpenAIServer(lambda request: Text("No, because it", "length")) as server:
        for model in MODELS:
            result = LLMGroundednessChecker(chat(server, model)).invoke(CHECKING)
            assert result["verdict"] in ("no", "unknown")
            assert (result["error"] is None) == (result["verdict"] == "no")


# -- failures of the server


@pytest.mark.parametrize("model", MODELS)
async def test_a04_429_then_success_is_the_clients_own_retry(model):
    def reply(request: ChatRequest) -> Reply:
        is_first = request.index % 2 == 0
        return Failure(429, "slow down", 0.001) if is_first else Json(graded(request))

    with OpenAIServer(reply) as server:
        grades = await both(LLMDocumentGrader(chat(server, model, max_retries=2)), GRADING)
        assert verdicts(grades) == ["yes", "no", "no"]
        assert len(server.requests) == 2 * 2


@pytest.mark.parametrize(
    ("status", "error"), [(429, "OpenAIRateLimitError"), (500, "OpenAIAPIError"), (503, None)]
)
async def test_a04_an_outage_that_lasts_is_not_asked_twice(status, error):
    many = {"question": QUESTION, "documents": CHUNKS * 6}
    with OpenAIServer(lambda request: Failure(status, "later", 0.001)) as server:
        grades = await both(LLMDocumentGrader(chat(server)), many)
        assert verdicts(grades) == ["unknown"] * 18
        assert error is None or {grade["error"] for grade in grades} == {error}
        assert len(server.requests) == 2 * 3
        await both(LLMDocumentGrader(chat(server), mode="each"), GRADING)
        assert len(server.requests) == 2 * 3 + 2 * 3
        result = await both(LLMGroundednessChecker(chat(server)), CHECKING)
        assert result["verdict"] == "unknown"
        assert await both(LLMHighlighter(chat(server)), CHECKING) == []
        assert len(server.requests) == 2 * 3 + 2 * 3 + 4


def test_a04_the_clients_retries_are_the_only_ones():
    with OpenAIServer(lambda request: Failure(500, "later", 0.001)) as server:
        grades = LLMDocumentGrader(chat(server, max_retries=2)).invoke(GRADING)
        assert verdicts(grades) == ["unknown"] * 3
        assert len(server.requests) == 3


async def test_a04_a_server_that_is_gone_is_an_outage():
    with OpenAIServer() as server:
        model = chat(server)
    grades = await both(LLMDocumentGrader(model), GRADING)
    assert verdicts(grades) == ["unknown"] * 3
    assert {grade["error"] for grade in grades} == {"OpenAIConnectionError"}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
    ],
)
async def test_a04_a_bad_key_and_an_unknown_model_are_raised(model, status, error):
    with OpenAIServer(lambda request: Failure(status, "no")) as server:
        judges = [
            (LLMDocumentGrader(chat(server, model)), GRADING),
            (LLMDocumentGrader(chat(server, model), mode="each"), GRADING),
            (LLMGroundednessChecker(chat(server, model)), CHECKING),
            (LLMHighlighter(chat(server, model)), CHECKING),
        ]
        for judge, ask in judges:
            with pytest.raises(error):
                judge.invoke(ask)
            with pytest.raises(error):
                await judge.ainvoke(ask)
        assert len(server.requests) == 2 * (1 + 3 + 1 + 1)
