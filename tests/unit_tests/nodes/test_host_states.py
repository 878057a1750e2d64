"""A21: nodes in somebody else's graph, whose state does not declare their keys."""

import json
import operator
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import CachePolicy, RetryPolicy
from pydantic import BaseModel

from langchain_feedback import nodes
from langchain_feedback.nodes import StateKeys
from tests.fakes import FakeChatModel, ListRetriever, replies

QUESTION = "How long does a refund take?"
REFUNDS = Document("Refunds take 14 days.", id="a", metadata={"source": "faq.md"})
KEYS = Document("Keys rotate.", id="b", metadata={"source": "keys.md"})


class FewKeys(TypedDict):
    question: str
    documents: list
    generation: str


@dataclass
class DataclassState:
    question: str = ""


class PydanticState(BaseModel):
    question: str = ""


class AddReducers(TypedDict):
    question: str
    documents: Annotated[list, operator.add]
    grades: Annotated[list, operator.add]
    citations: Annotated[list, operator.add]
    unsupported: Annotated[list, operator.add]


@dataclass
class AddDocumentsDataclass:
    question: str = ""
    documents: Annotated[list, operator.add] = field(default_factory=list)


class AddDocumentsPydantic(BaseModel):
    question: str = ""
    documents: Annotated[list[Document], operator.add] = []


class AddCounters(TypedDict):
    question: str
    generations: Annotated[int, operator.add]
    rewrites: Annotated[int, operator.add]


class AddMessages(TypedDict):
    messages: Annotated[list, operator.add]


class Renamed(TypedDict):
    query: str
    found: list


class DeclaredAll(BaseModel):
    question: str = ""
    documents: list[Document] = []
    kept: list[Document] = []
    draft: str = ""
    answer: str = ""
    generations: int = 0
    rewrites: int = 0


RENAMED = StateKeys(
    **{f.name: f"my_{f.name}" for f in dataclass_fields(StateKeys) if f.name != "messages"}
    | {"question": "query", "documents": "found"}
)
IN_CHAT = StateKeys(messages="messages")


class Host(NamedTuple):
    state: type[Any]
    keys: StateKeys = StateKeys()

    def ask(self, question: str = QUESTION) -> dict[str, Any]:
        if self.keys.messages:
            return {"messages": [HumanMessage(question)]}
        return {self.keys.question: question}

    def named(self, values: dict[str, Any]) -> dict[str, Any]:
        names = self.keys.names()
        return {names[key]: value for key, value in values.items()}


HOSTS = {
    "few_keys": Host(FewKeys),
    "generation_is_the_draft": Host(FewKeys, StateKeys(draft="generation")),
    "dataclass": Host(DataclassState),
    "pydantic": Host(PydanticState),
    "messages_only": Host(MessagesState, IN_CHAT),
    "add_messages": Host(AddMessages, IN_CHAT),
    "add_reducers": Host(AddReducers),
    "add_documents_dataclass": Host(AddDocumentsDataclass),
    "add_documents_pydantic": Host(AddDocumentsPydantic),
    "renamed": Host(Renamed, RENAMED),
    "declared": Host(DeclaredAll),
}
budgets = pytest.mark.parametrize(
    ("budget", "begin"),
    [(0, True), (2, True), (2, False)],
    ids=["budget_0", "budget_2", "budget_2_without_begin"],
)
any_host = pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)

no_grades = {
    "grade": lambda asked: {
        "grades": [{"slot": s, "reason": "", "relevant": False} for s in asked.slots]
    }
}
never_grounded = {"check": {"reason": "", "unsupported": ["41 days"], "grounded": False}}


class Case(NamedTuple):
    make: Callable[[StateKeys], Any]
    before: dict[str, Any]
    after: dict[str, Any]


def _model(**by_role: Any) -> FakeChatModel:
    return FakeChatModel(reply=replies(**by_role))


def _kept(documents: list[Document]) -> list[str]:
    return [document.id for document in documents]


CASES = {
    "begin": Case(
        lambda keys: nodes.begin(keys=keys),
        {"generations": 7, "rewrites": 5, "status": "abstained", "draft": "old", "kept": [KEYS]},
        {"generations": 0, "rewrites": 0, "status": "", "draft": "", "kept": [], "grounded": None},
    ),
    "retrieve": Case(
        lambda keys: nodes.retrieve(
            ListRetriever(documents=[KEYS], by_query={"in other words": [REFUNDS]}), keys=keys
        ),
        {"search_question": "in other words", "rewrites": 1, "trace_id": "t-1"},
        {"documents": [REFUNDS], "trace_id": "t-1"},
    ),
    "grade_documents": Case(
        lambda keys: nodes.grade_documents(_model(), keys=keys),
        {"documents": [REFUNDS, Document(" \n", id="blank")]},
        {"kept": [REFUNDS], "reason": ""},
    ),
    "rewrite_question": Case(
        lambda keys: nodes.rewrite_question(_model(rewrite="When is money back?"), keys=keys),
        {"rewrites": 2},
        {"rewrites": 3, "search_question": "When is money back?"},
    ),
    "generate": Case(
        lambda keys: nodes.generate(_model(generate="14 days."), keys=keys),
        {"kept": [REFUNDS], "generations": 4},
        {"draft": "14 days.", "generations": 5},
    ),
    "check_groundedness": Case(
        lambda keys: nodes.check_groundedness(_model(**never_grounded), keys=keys),
        {"kept": [REFUNDS], "draft": "41 days."},
        {"grounded": False, "unsupported": ["41 days"], "reason": "not_grounded"},
    ),
    "highlight_sources": Case(
        lambda keys: nodes.highlight_sources(_model(), keys=keys),
        {"kept": [REFUNDS], "draft": "Refunds take 14 days.", "grounded": True},
        {
            "citations": [
                {
                    "claim": "",
                    "answer_start": 0,
                    "answer_end": 21,
                    "chunk_id": "a",
                    "source": "faq.md",
                    "quote": "Refunds take 14 days",
                    "start": 0,
                    "end": 20,
                    "verified": True,
                    "occurrences": 1,
                }
            ]
        },
    ),
    "verify_answer": Case(
        lambda keys: nodes.verify_answer(_model(), keys=keys),
        {"kept": [REFUNDS], "draft": "Refunds take 41 days."},
        {
            "grounded": False,
            "unsupported": ["Refunds take 41 days."],
            "reason": "not_grounded",
            "citations": [],
            # The claims of a rejected draft are nobody's to see.
            "claims": [],
        },
    ),
    "abstain": Case(
        lambda keys: nodes.abstain("No answer.", nearest=0, keys=keys),
        {"reason": "judge_failed", "documents": [REFUNDS], "draft": "41 days."},
        {"answer": "No answer.", "status": "abstained", "reason": "judge_failed", "draft": ""},
    ),
    "record_answer": Case(
        lambda keys: nodes.record_answer(keys=keys),
        {"draft": "14 days.", "grounded": True, "trace_id": "t-1"},
        {"answer": "14 days.", "status": "answered", "trace_id": "t-1"},
    ),
}


async def final_state(graph: Any, asked: dict[str, Any], how: str) -> dict[str, Any]:
    """Run a graph in one of four ways and return every channel that it has at the end."""
    options = {"recursion_limit": 100, "configurable": {"thread_id": "t"}}
    if how == "stream":
        return list(graph.stream(asked, options, stream_mode="values"))[-1]
    if how == "astream":
        return [part async for part in graph.astream(asked, options, stream_mode="values")][-1]
    if how == "invoke":
        graph.invoke(asked, options)
    else:
        await graph.ainvoke(asked, options)
    return graph.get_state(options).values


def _saver(how: str) -> InMemorySaver | None:
    # Strict: a value of a class that a checkpointer must be told about does not come back.
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    return InMemorySaver(serde=serde) if how in ("invoke", "ainvoke") else None


@pytest.mark.parametrize("how", ["ainvoke", "stream"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@any_host
async def test_a21_each_node_keeps_its_data_in_any_host_state(host, case, how):
    builder = StateGraph(host.state)
    builder.add_node("seed", lambda state: host.named(case.before))
    builder.add_node("node", case.make(host.keys))
    builder.add_node("later", lambda state: {})
    builder.add_edge(START, "seed")
    builder.add_edge("seed", "node")
    builder.add_edge("node", "later")
    graph = builder.compile(checkpointer=_saver(how))

    state = await final_state(graph, host.ask(), how)

    expected = host.named(case.after)
    assert {name: state.get(name) for name in expected} == expected


def test_a21_every_node_factory_is_a_case():
    factories = set(nodes.__all__) - {"StateKeys", "hold_back_drafts"}
    assert {name for name in factories if not name.startswith("route_")} == set(CASES)


def hand_built(
    host: Host,
    model: Any,
    retriever: Any,
    *,
    budget: int,
    begin: bool = True,
    saver: Any = None,
    in_one: bool = False,
) -> Any:
    """A whole loop in the host's state, each node added as the host would add its own."""
    keys = host.keys
    builder = StateGraph(host.state)
    builder.add_node("search", nodes.retrieve(retriever, keys=keys))
    builder.add_node("grade", nodes.grade_documents(model, keys=keys))
    builder.add_node("rephrase", nodes.rewrite_question(model, keys=keys))
    builder.add_node("write", nodes.generate(model, keys=keys))
    if in_one:
        builder.add_node("check", nodes.verify_answer(model, keys=keys))
    else:
        builder.add_node("check", nodes.check_groundedness(model, keys=keys))
        builder.add_node("quote", nodes.highlight_sources(model, keys=keys))
        builder.add_edge("quote", "publish")
    builder.add_node(
        "give_up", nodes.abstain(max_rewrites=budget, max_regenerations=budget, keys=keys)
    )
    builder.add_node("publish", nodes.record_answer(keys=keys))
    if begin:
        builder.add_node("open", nodes.begin(keys=keys))
        builder.add_edge("open", "search")
    builder.add_edge(START, "open" if begin else "search")
    builder.add_edge("search", "grade")
    builder.add_conditional_edges(
        "grade",
        nodes.route_after_grading(max_rewrites=budget, keys=keys),
        {"generate": "write", "rewrite_question": "rephrase", "abstain": "give_up"},
    )
    builder.add_edge("rephrase", "search")
    builder.add_edge("write", "check")
    builder.add_conditional_edges(
        "check",
        nodes.route_after_verification(max_regenerations=budget, keys=keys),
        {
            "record_answer": "publish" if in_one else "quote",
            "generate": "write",
            "abstain": "give_up",
        },
    )
    builder.add_edge("give_up", "publish")
    builder.add_edge("publish", END)
    return builder.compile(checkpointer=saver)


def _answer(host: Host, state: dict[str, Any]) -> str:
    if host.keys.messages:
        assert isinstance(state["messages"][-1], AIMessage)
        assert state["messages"][-1].text == state["answer"]
    return state[host.keys.answer]


async def _ran_out(
    host: Host,
    how: str,
    budget: int,
    *,
    begin: bool = True,
    in_one: bool = False,
    **stubborn: Any,
) -> Any:
    """Run a loop that never gets what it wants; a lost counter would hit the step limit."""
    model, retriever = _model(**stubborn), ListRetriever(documents=[REFUNDS, KEYS])
    options = {"budget": budget, "begin": begin, "saver": _saver(how), "in_one": in_one}
    graph = hand_built(host, model, retriever, **options)
    state = await final_state(graph, host.ask(), how)
    assert state[host.keys.status] == "abstained"
    return model, retriever, state


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
@budgets
@any_host
async def test_a21_rewrites_end_in_any_host_state(host, budget, how, begin):
    model, retriever, state = await _ran_out(host, how, budget, begin=begin, **no_grades)

    assert model.count("rewrite") == state[host.keys.rewrites] == budget
    assert len(retriever.queries) == model.count("grade") == budget + 1
    assert model.count("generate", "check", "highlight") == 0
    assert state[host.keys.reason] == "none_relevant"
    assert "none of the documents" in _answer(host, state)


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
@budgets
@any_host
async def test_a21_regenerations_end_in_any_host_state(host, budget, how, begin):
    model, retriever, state = await _ran_out(host, how, budget, begin=begin, **never_grounded)

    assert model.count("generate") == state[host.keys.generations] == budget + 1
    assert model.count("check") == budget + 1
    assert len(retriever.queries) == 1
    assert model.count("highlight", "rewrite") == 0
    assert state[host.keys.reason] == "not_grounded"
    assert "no answer that they support" in _answer(host, state)


@pytest.mark.parametrize("grounded", [True, False])
def test_a21_a_router_of_the_hosts_own_reads_a_nodes_keys(grounded):
    """Without an annotation it gets the node's own view of the state, by key or by `get`."""
    seen = []

    def route(state):
        assert "nothing" not in state
        assert state.get("nothing", "else") == "else"
        seen.append((state["grounded"], state.get("question")))
        return END

    check = {"check": {"reason": "", "unsupported": [], "grounded": grounded}}
    builder = StateGraph(Asking)
    builder.add_node("write", lambda _: {"draft": "Refunds take 14 days."})
    builder.add_node("check", nodes.check_groundedness(_model(**check)))
    builder.add_edge(START, "write")
    builder.add_edge("write", "check")
    builder.add_conditional_edges("check", route, [END])
    builder.compile().invoke({"question": QUESTION, "kept": [REFUNDS]})
    assert seen == [(grounded, QUESTION)]


class Asking(TypedDict):
    question: str
    kept: list
    status: str
    reason: str


@pytest.mark.parametrize("verify", [nodes.verify_answer, nodes.check_groundedness])
@pytest.mark.parametrize("budget", [0, 1, 2])
def test_a21_drafts_of_a_writer_that_counts_nothing_end_too(verify, budget):
    """A host's own generate node knows nothing of `generations`."""
    written = []

    def write(state):
        written.append(state)
        return {"draft": "Refunds take 41 days."}

    builder = StateGraph(Asking)
    builder.add_node("generate", write)
    builder.add_node("verify", verify(_model(**never_grounded)))
    builder.add_node(nodes.abstain(max_regenerations=budget))
    builder.add_node(nodes.record_answer())
    builder.add_edge(START, "generate")
    builder.add_edge("generate", "verify")
    builder.add_conditional_edges(
        "verify", nodes.route_after_verification(max_regenerations=budget)
    )
    builder.add_edge("abstain", "record_answer")
    state = builder.compile().invoke({"question": QUESTION, "kept": [REFUNDS]})
    assert len(written) == budget + 1
    assert (state["status"], state["reason"]) == ("abstained", "not_grounded")


@pytest.mark.parametrize("how", ["invoke", "astream"])
@budgets
@any_host
async def test_a21_unverified_drafts_end_in_any_host_state(host, budget, how, begin):
    wrong = {"generate": "Refunds take 41 days."}
    model, retriever, state = await _ran_out(host, how, budget, begin=begin, in_one=True, **wrong)

    assert model.count("generate") == state[host.keys.generations] == budget + 1
    assert model.count("verify") == budget + 1
    assert model.count("check", "highlight", "rewrite") == 0
    assert len(retriever.queries) == 1
    assert state[host.keys.reason] == "not_grounded"
    assert state[host.keys.claims] == state[host.keys.citations] == []
    assert "41 days" not in _answer(host, state)
    rewritten = [asked.text for asked in model.calls if asked.role == "generate"][1:]
    assert all("- Refunds take 41 days." in text for text in rewritten)


@pytest.mark.parametrize("how", ["invoke", "astream"])
@pytest.mark.parametrize(
    "text", ["NO_ANSWER", "I could not find that in the documents."], ids=["told", "own_words"]
)
@any_host
async def test_a21_an_abstention_of_the_model_is_not_written_again_in_any_host_state(
    host, text, how
):
    model, _, state = await _ran_out(host, how, 2, in_one=True, generate=text)

    assert model.count("generate") == 1
    assert model.count("verify") == 0
    assert state[host.keys.reason] == "empty_answer"
    assert state[host.keys.grounded] is False
    assert state[host.keys.draft] == ""
    assert (_answer(host, state) == text) == (text != "NO_ANSWER")
    assert "NO_ANSWER" not in _answer(host, state)


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
@any_host
async def test_a21_a_verified_answer_in_any_host_state(host, how):
    model, retriever = _model(), ListRetriever(documents=[REFUNDS, KEYS])
    graph = hand_built(host, model, retriever, budget=1, saver=_saver(how), in_one=True)

    state = await final_state(graph, host.ask(), how)

    names = host.keys
    assert _answer(host, state) == "Refunds take 14 days."
    assert (state[names.status], state[names.grounded]) == ("answered", True)
    assert [citation["chunk_id"] for citation in state[names.citations]] == ["a"]
    assert [claim["verdict"] for claim in state[names.claims]] == ["supported"]
    assert model.count() == 3


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize("stubborn", [no_grades, never_grounded], ids=["grader", "checker"])
async def test_a21_counters_behind_an_add_reducer_still_end_the_loop(stubborn, how):
    host = Host(AddCounters)
    model, _, _ = await _ran_out(host, how, 2, **stubborn)

    # The host's reducer adds up what the node has counted already: it ends sooner.
    assert 1 <= model.count("rewrite", "generate") <= 3


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
@any_host
async def test_a21_a_good_run_answers_in_any_host_state(host, how):
    model, retriever = _model(), ListRetriever(documents=[REFUNDS, KEYS])
    graph = hand_built(host, model, retriever, budget=1, saver=_saver(how))

    state = await final_state(graph, host.ask(), how)

    names = host.keys
    assert _answer(host, state) == "Refunds take 14 days."
    assert state[names.status] == "answered"
    assert state[names.grounded] is True
    assert [citation["chunk_id"] for citation in state[names.citations]] == ["a"]
    assert _kept(state[names.kept]) == ["a", "b"]
    # What is kept never comes on top of what was retrieved.
    assert _kept(state[names.documents]) == ["a", "b"]
    assert [grade["chunk_id"] for grade in state[names.grades]] == ["a", "b"]


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@any_host
async def test_a21_the_second_question_of_a_thread_has_its_own_budgets(host, how):
    def grounded(asked: Any) -> dict[str, Any]:
        return (
            never_grounded["check"]
            if "first" in asked.text
            else {"grounded": True} | {"reason": "", "unsupported": []}
        )

    model, retriever = _model(check=grounded), ListRetriever(documents=[REFUNDS, KEYS])
    graph = hand_built(host, model, retriever, budget=1, saver=_saver(how))

    first = await final_state(graph, host.ask("The first?"), how)
    second = await final_state(graph, host.ask("The second?"), how)

    names = host.keys
    assert (first[names.status], first[names.generations]) == ("abstained", 2)
    assert (second[names.status], second[names.generations]) == ("answered", 1)
    assert (second[names.reason], second[names.grounded]) == ("", True)
    assert [query for query, *_ in retriever.queries] == ["The first?", "The second?"]
    assert first[names.trace_id] != second[names.trace_id]
    if names.messages:
        said = [message.type for message in second["messages"]]
        assert said == ["human", "ai", "human", "ai"]


async def test_a21_a_second_question_that_fails_spends_its_own_budget_only():
    host = HOSTS["messages_only"]
    model, retriever = _model(**no_grades), ListRetriever(documents=[REFUNDS, KEYS])
    graph = hand_built(host, model, retriever, budget=2, saver=_saver("invoke"))

    for turn in (1, 2):
        state = await final_state(graph, host.ask(f"Question {turn}?"), "invoke")
        assert (state["rewrites"], state["reason"]) == (2, "none_relevant")
        assert model.count("rewrite") == 2 * turn


async def test_a21_documents_that_a_reducer_collects_twice_are_graded_once():
    host = HOSTS["add_reducers"]
    model, retriever = _model(**no_grades), ListRetriever(documents=[REFUNDS, KEYS])
    graph = hand_built(host, model, retriever, budget=1)

    state = await final_state(graph, host.ask(), "stream")

    assert _kept(state["documents"]) == ["a", "b", "a", "b"]
    assert [len(asked.slots) for asked in model.calls if asked.role == "grade"] == [2, 2]


async def test_a21_kept_may_take_the_place_of_the_documents():
    host = Host(FewKeys, StateKeys(kept="documents"))

    def only_the_first(asked: Any) -> Any:
        pairs = enumerate(asked.slots)
        return {"grades": [{"slot": s, "reason": "", "relevant": i == 0} for i, s in pairs]}

    model, retriever = _model(grade=only_the_first), ListRetriever(documents=[REFUNDS, KEYS])
    state = await final_state(hand_built(host, model, retriever, budget=1), host.ask(), "stream")

    assert _kept(state["documents"]) == ["a"]
    assert state["answer"] == "Refunds take 14 days."


def _score(document: Document) -> tuple[Any, ...]:
    metadata = document.metadata
    return metadata["score"], metadata["good"], metadata["nested"]["rank"], metadata["vector"]


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@any_host
async def test_a20_state_with_numpy_metadata_comes_back_equal_from_a_checkpointer(host, how):
    stored = Document(
        "Refunds take 14 days.",
        id="a",
        metadata={
            "source": "faq.md",
            "score": np.float32(0.5),
            "good": np.bool_(1),
            "nested": {"rank": np.int64(3)},
            "vector": np.array([1.0, 2.0], dtype=np.float32),
        },
    )
    graph = hand_built(
        host, _model(), ListRetriever(documents=[stored]), budget=1, saver=_saver(how)
    )
    config = {"configurable": {"thread_id": "other"}}
    last = list(graph.stream(host.ask(), config, stream_mode="values"))[-1]

    state = graph.get_state(config).values
    again = await final_state(graph, host.ask(), how)

    assert state == last
    names = host.keys
    for document in [*state[names.documents], *state[names.kept], *again[names.kept]]:
        assert _score(document) == (0.5, True, 3, [1.0, 2.0])
        assert [type(value) for value in _score(document)] == [float, bool, int, list]
    # The rest of the state is plain enough for JSON.
    rest = {k: v for k, v in state.items() if k not in (names.documents, names.kept, "messages")}
    assert json.loads(json.dumps(rest)) == rest
    # And the store's own object is as it was (A07).
    assert type(stored.metadata["score"]) is np.float32


def rewrite_loop(add, **compile_options):
    """A host that declares nothing of ours and rewrites while a router lets it."""

    class Host(TypedDict):
        question: str

    builder = StateGraph(Host)
    model = FakeChatModel(reply=replies())
    node = nodes.rewrite_question(model)
    add(builder, node)
    builder.add_edge(START, "rewrite")
    builder.add_conditional_edges(
        "rewrite",
        nodes.route_after_grading(max_rewrites=2),
        {"rewrite_question": "rewrite", "abstain": END, "generate": END},
    )
    builder.compile(**compile_options).invoke({"question": "?"}, {"recursion_limit": 12})
    return model.count("rewrite")


def test_a21_a_wrapped_node_warns_and_keeps_its_data_with_its_schema(caplog):
    lost = rewrite_loop(lambda builder, node: builder.add_node("rewrite", node.with_retry()))
    assert lost > 2
    assert "input_schema=node.state_schema" in caplog.text
    caplog.clear()
    kept = rewrite_loop(
        lambda builder, node: builder.add_node(
            "rewrite", node.with_retry(), input_schema=node.state_schema
        )
    )
    assert kept == 2
    assert not caplog.text


def test_a21_a_retry_policy_needs_no_wrapping(caplog):
    made = rewrite_loop(
        lambda builder, node: builder.add_node("rewrite", node, retry_policy=RetryPolicy())
    )
    assert made == 2
    assert not caplog.text


def test_a20_a_node_that_reads_a_draft_can_be_cached():
    model = FakeChatModel(reply=replies())
    builder = StateGraph(MessagesState)
    node = nodes.check_groundedness(model, keys=StateKeys(messages="messages"))
    builder.add_node(node, cache_policy=CachePolicy())
    builder.add_edge(START, "check_groundedness")
    graph = builder.compile(cache=InMemoryCache())
    asked = {
        "messages": [HumanMessage("How long?", id="1")],
        "draft": "14 days.",
        "kept": [Document("14 days.")],
    }
    for _ in range(2):
        graph.invoke(asked)
    state = node.state_schema(draft="14 days.", kept=[Document("14 days.")])
    assert pickle.loads(pickle.dumps(state)).draft == "14 days."  # noqa: S301
