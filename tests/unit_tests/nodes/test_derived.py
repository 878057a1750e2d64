"""Whole graphs and agents over `FeedbackRetriever(gate=, foldback=)`: what may be quoted."""

import pytest
from langchain_core.documents import Document

from langchain_feedback import FeedbackStore, create_reliable_rag, nodes
from langchain_feedback.documents import is_derived
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.integrations.agents import (
    create_feedback_retriever_tool,
    grounding_of,
)
from tests.fakes import FakeChatModel, claims, replies
from tests.unit_tests.index.foldback_kit import MONEY, REFUND, RIGHT, Angles, World, ids
from tests.unit_tests.integrations.agents_kit import agent, calls, says

TOLD = "Ask Mister Quill in room 41."
JUNK = Document("Contents", id="junk", metadata={"source": "x"})


@pytest.fixture
def world(tmp_path):
    url = f"sqlite:///{tmp_path}/feedback.db"
    with FeedbackStore(url, embeddings=Angles(), timeout_s=20) as store:
        yield World(store)


@pytest.fixture
def retriever(world):
    """Hides junk, and serves, for MONEY, the chunk RIGHT and an answer that says more."""
    gate = QualityGate(world.store)
    gate.score([JUNK])
    world.primary.add_documents([JUNK])
    foldback = world.served(world.foldback(serve="answer"), text=f"It takes 14 days. {TOLD}")
    return world.retriever(gate=gate, foldback=foldback, k=6, fetch_k=20)


def chat(**by_role):
    """A model that writes what stands in RIGHT, and proves it by any slot that holds it."""
    usual = {
        "generate": RIGHT.page_content,
        "verify": lambda asked: claims(asked.answer, slot_of(asked), RIGHT.page_content),
        "highlight": lambda asked: {"quotes": quotes(asked)},
    }
    return FakeChatModel(reply=replies(**usual | by_role))


def slot_of(asked):
    return next(one for one in asked.slots if RIGHT.page_content in asked.chunk(one))


def quotes(asked):
    """Quote everything that it is shown, whole."""
    return [{"slot": slot, "quote": asked.chunk(slot).split("\n")[-1]} for slot in asked.slots]


def traced(store, trace_id):
    trace = store.trace(trace_id)
    return {one.chunk_id for one in trace.chunks}, {
        one.chunk_id for one in trace.chunks if one.cited
    }


def test_the_retriever_serves_an_answer_behind_its_source_and_no_junk(retriever):
    found = retriever.invoke(MONEY)
    assert ids(found)[6:7] == ["right"]
    assert [is_derived(one) for one in found] == [False] * 7 + [True]
    assert "junk" not in ids(found)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_graph_in_two_steps_quotes_the_source_and_never_the_answer(world, retriever, mode):
    model = chat()
    graph = create_reliable_rag(retriever, model, groundedness=model, highlighter=model)
    asked = {"question": MONEY}
    result = graph.invoke(asked) if mode == "sync" else await graph.ainvoke(asked)
    assert (result["status"], result["answer"]) == ("answered", RIGHT.page_content)
    cited = {one["chunk_id"] for one in result["citations"] if one["verified"]}
    assert "right" in cited
    assert not any(TOLD in one["quote"] for one in result["citations"])
    for call in model.calls:
        assert TOLD not in call.text or call.role in ("grade", "generate")
    chunks, of_trace = traced(world.store, result["trace_id"])
    assert of_trace == cited
    assert not {one.derived_id for one in retriever.foldback.list()} & chunks


def test_a_graph_abstains_where_only_the_answer_was_found_relevant(world, retriever):
    def graded(asked):
        kinds = {slot: TOLD in asked.chunk(slot) for slot in asked.slots}
        return {"grades": [{"slot": s, "reason": "", "relevant": v} for s, v in kinds.items()]}

    model = chat(grade=graded)
    graph = create_reliable_rag(retriever, model, max_rewrites=0)
    result = graph.invoke({"question": MONEY})
    assert (result["status"], result["reason"]) == ("abstained", "none_relevant")
    assert {one["verdict"] for one in result["grades"]} == {"yes", "no"}
    assert model.count("generate", "verify") == 0
    assert TOLD not in result["answer"]
    assert result["citations"] == []
    assert world.store.trace(result["trace_id"]).status == "abstained"


def test_alone_an_earlier_answer_is_no_document_and_nobody_grades_it(retriever):
    [derived] = [one for one in retriever.invoke(MONEY) if is_derived(one)]
    model = chat()
    update = nodes.grade_documents(model)({"question": MONEY, "documents": [derived]})
    assert update == {"kept": [], "grades": [], "reason": "no_documents"}
    assert not model.calls


def test_the_offline_writer_takes_its_passage_from_the_source(retriever):
    result = create_reliable_rag(retriever, "offline").invoke({"question": REFUND})
    assert (result["status"], result["answer"]) == ("answered", RIGHT.page_content)
    assert {one["chunk_id"] for one in result["citations"]} == {"right"}


class TestAgents:
    def asked(self, retriever, verifier, **options):
        tool = create_feedback_retriever_tool(retriever, "search", "Searches the terms.")
        graph = agent(says(calls(MONEY), options.pop("draft")), verifier, tools=[tool], **options)
        return graph.invoke({"messages": [("user", MONEY)]})["messages"][-1]

    def test_an_answer_cites_the_source(self, world, retriever):
        verifier = chat()
        answer = self.asked(retriever, verifier, draft=RIGHT.page_content)
        found = grounding_of(answer)
        assert (answer.text, found["status"]) == (RIGHT.page_content, "answered")
        assert {one["chunk_id"] for one in found["citations"]} == {"right"}
        assert not any(TOLD in call.text for call in verifier.calls)
        chunks, cited = traced(world.store, found["trace_id"])
        assert cited == {"right"}
        assert not {one.derived_id for one in retriever.foldback.list()} & chunks

    def test_what_only_the_earlier_answer_says_never_gets_out(self, world, retriever):
        def proves(asked):
            return claims(asked.answer, asked.slots[-1], TOLD)

        answer = self.asked(retriever, chat(verify=proves), draft=TOLD)
        assert TOLD not in answer.text
        found = grounding_of(answer)
        assert (found["status"], found["reason"]) == ("abstained", "not_grounded")
        assert world.store.trace(found["trace_id"]).status == "abstained"

    def test_a_grader_is_not_shown_it_and_cannot_keep_it(self, retriever):
        def graded(asked):
            assert TOLD not in asked.text
            return {
                "grades": [{"slot": one, "reason": "", "relevant": False} for one in asked.slots]
            }

        grader = chat(grade=graded)
        answer = self.asked(retriever, chat(), draft=TOLD, grader=grader)
        assert grader.count("grade")
        assert TOLD not in answer.text
        assert grounding_of(answer)["reason"] == "none_relevant"
