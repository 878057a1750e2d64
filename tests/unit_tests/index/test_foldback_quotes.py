"""An answer that was folded back is nobody's source: not checked against, not quoted, not kept."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from langchain_feedback import FeedbackStore, create_reliable_rag, nodes
from langchain_feedback.judges.base import (
    AnswerVerifier,
    GroundednessChecker,
    Highlighter,
)
from langchain_feedback.judges.groundedness import LLMGroundednessChecker
from langchain_feedback.judges.highlighting import LLMHighlighter
from langchain_feedback.judges.offline import LexicalGroundednessChecker, SentenceHighlighter
from langchain_feedback.judges.staging import StagedChecker
from langchain_feedback.judges.two_steps import CheckAndHighlight
from langchain_feedback.judges.verifying import LLMVerifier
from langchain_feedback.retrievers.dartboard import DartboardCompressor, DartboardRetriever
from tests.fakes import FakeChatModel, claims, replies
from tests.unit_tests.index.foldback_kit import MONEY, RIGHT, Angles, World, ids
from tests.unit_tests.integrations.agents_kit import agent, calls, judge, says, search_tool

TOLD = "Ask Mister Quill in room 41."
DERIVED = Document(
    f"When do I get it?\n{TOLD}",
    id="7a0b7f5e-0000-5000-8000-000000000000",
    metadata={"derived": True, "derived_id": "7a0b7f5e-0000-5000-8000-000000000000"},
)
DOCUMENTS = [RIGHT, DERIVED]
SHOWN = f"[terms.md]\n{RIGHT.page_content}"
REQUEST = {"question": MONEY, "answer": TOLD, "documents": DOCUMENTS}


def model():
    """A model that would prove the answer by whatever it is shown."""
    return FakeChatModel(
        reply=replies(
            verify=lambda asked: claims(asked.answer, asked.slots[-1], TOLD),
            highlight=lambda asked: {"quotes": [{"slot": asked.slots[-1], "quote": TOLD}]},
        )
    )


class Sees:
    """A judge of somebody's own: it keeps what it is shown."""

    def judge(self, request, config):
        self.seen = request["documents"]
        return {
            "verdict": "yes", "reason": "", "unsupported": [], "error": None,
            "abstained": False, "claims": [], "citations": [],
        }  # fmt: skip


class SeesChecks(Sees, GroundednessChecker):
    pass


class SeesVerifies(Sees, AnswerVerifier):
    pass


class SeesHighlights(Sees, Highlighter):
    def judge(self, request, config):
        super().judge(request, config)
        return []


class TestJudges:
    @pytest.mark.parametrize("kind", [SeesChecks, SeesVerifies, SeesHighlights])
    async def test_one_of_ones_own_is_not_shown_it(self, kind):
        own = kind()
        own.invoke(REQUEST)
        assert own.seen == [RIGHT]
        await own.ainvoke(REQUEST)
        assert own.seen == [RIGHT]

    @pytest.mark.parametrize("kind", [LLMGroundednessChecker, LLMHighlighter, LLMVerifier])
    async def test_no_prompt_holds_it_as_a_source(self, kind):
        asked = model()
        kind(asked).invoke(REQUEST)
        await kind(asked).ainvoke(REQUEST)
        assert len(asked.calls) >= 2
        for call in asked.calls:
            assert [call.chunk(slot) for slot in call.slots] == [SHOWN]

    def test_check6_nothing_is_quoted_from_it(self):
        assert LLMHighlighter(model()).invoke(REQUEST)[0]["verified"] is False
        assert LLMVerifier(model()).invoke(REQUEST)["verdict"] == "no"
        assert SentenceHighlighter().invoke(REQUEST) == []
        assert LexicalGroundednessChecker().invoke(REQUEST)["verdict"] != "yes"
        staged = StagedChecker(LexicalGroundednessChecker(), model(), shadow=True)
        assert staged.invoke(REQUEST)["first_stage"]["verdict"] != "yes"
        both = CheckAndHighlight(LexicalGroundednessChecker(), SentenceHighlighter())
        assert both.invoke(REQUEST)["verdict"] != "yes"

    def test_a_request_without_it_is_passed_on_as_it_is(self):
        own = SeesChecks()
        own.invoke(REQUEST | {"documents": [RIGHT], "more": 1})
        assert own.seen == [RIGHT]
        assert REQUEST["documents"] == DOCUMENTS

    def test_a_word_of_somebody_else_s_in_the_metadata_means_nothing(self):
        own = SeesChecks()
        table = Document("Sums.", metadata={"derived": True})
        own.invoke(REQUEST | {"documents": [table]})
        assert own.seen == [table]


class TestNodes:
    STATE = {"question": MONEY, "draft": TOLD, "kept": DOCUMENTS}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("node", "kind"),
        [
            (nodes.verify_answer, SeesVerifies),
            (nodes.check_groundedness, SeesChecks),
            (nodes.highlight_sources, SeesHighlights),
        ],
    )
    def test_none_shows_it_to_a_judge(self, node, kind):
        own = kind()
        node(own)(self.STATE)
        assert own.seen == [RIGHT]

    @pytest.mark.parametrize("node", [nodes.verify_answer, nodes.check_groundedness])
    def test_alone_it_is_nothing_that_an_answer_could_rest_on(self, node):
        asked = model()
        update = node(asked)(self.STATE | {"kept": [DERIVED]})
        assert (update["grounded"], update["reason"]) == (False, "no_documents")
        assert not asked.calls
        assert nodes.highlight_sources(asked)(self.STATE | {"kept": [DERIVED]})["citations"] == []


@pytest.fixture
def world(tmp_path):
    url = f"sqlite:///{tmp_path}/feedback.db"
    with FeedbackStore(url, embeddings=Angles(), timeout_s=20) as store:
        yield World(store)


@pytest.fixture
def retriever(world):
    """Serves, for MONEY, the chunk RIGHT and an answer that says something else, too."""
    foldback = world.served(world.foldback(serve="answer"), text=f"It takes 14 days. {TOLD}")
    return world.retriever(foldback=foldback)


class TestGraphs:
    def test_the_writer_may_read_it_and_its_source_is_what_is_quoted(self, world, retriever):
        def answered(asked):
            assert TOLD in asked.text
            return RIGHT.page_content

        def verified(asked):
            [slot] = [slot for slot in asked.slots if asked.chunk(slot) == SHOWN]
            assert TOLD not in asked.text
            return claims(asked.answer, slot, RIGHT.page_content)

        chat = FakeChatModel(reply=replies(other=answered, generate=answered, verify=verified))
        result = create_reliable_rag(retriever, chat).invoke({"question": MONEY})
        assert (result["status"], result["answer"]) == ("answered", RIGHT.page_content)
        assert [one["chunk_id"] for one in result["citations"]] == ["right"]
        trace = world.store.trace(result["trace_id"])
        known = {one.chunk_id: (one.in_prompt, one.cited) for one in trace.chunks if one.returned}
        assert known["right"] == (True, True)
        assert trace.answer == RIGHT.page_content

    def test_check6_what_only_it_says_never_gets_out(self, world, retriever):
        chat = FakeChatModel(
            reply=replies(
                other=TOLD,
                generate=TOLD,
                verify=lambda asked: claims(asked.answer, asked.slots[-1], TOLD),
            )
        )
        result = create_reliable_rag(retriever, chat).invoke({"question": MONEY})
        assert (result["status"], result["reason"]) == ("abstained", "not_grounded")
        assert TOLD not in result["answer"]
        assert "terms.md" in result["answer"]
        assert "earlier answer" not in result["answer"]
        assert world.store.trace(result["trace_id"]).status == "abstained"


class TestAgents:
    def test_a_draft_is_not_checked_against_it(self):
        verifier = judge()
        graph = agent(
            says(calls("money"), RIGHT.page_content),
            verifier,
            tools=[search_tool(RIGHT, DERIVED)],
        )
        answer = graph.invoke({"messages": [("user", MONEY)]})["messages"][-1]
        assert answer.text == RIGHT.page_content
        asked = [call for call in verifier.calls if call.role == "verify"]
        assert asked
        for call in asked:
            assert [call.chunk(slot) for slot in call.slots] == [SHOWN]

    def test_alone_it_is_nothing_that_a_draft_could_rest_on(self):
        verifier = judge()
        graph = agent(says(calls("money"), TOLD), verifier, tools=[search_tool(DERIVED)])
        answer = graph.invoke({"messages": [("user", MONEY)]})["messages"][-1]
        assert TOLD not in answer.text
        assert answer.response_metadata["grounding"]["reason"] == "no_documents"


class TestDartboard:
    def test_it_takes_no_place_in_a_selection(self, retriever):
        embeddings = DeterministicFakeEmbedding(size=4)
        compressor = DartboardCompressor(embeddings=embeddings, k=2)
        assert ids(compressor.compress_documents(DOCUMENTS, MONEY)) == ["right"]
        assert compressor.compress_documents([DERIVED], MONEY) == []
        inside = DartboardRetriever(base_retriever=retriever, embeddings=embeddings, k=10)
        found = inside.invoke(MONEY)
        assert "right" in ids(found)
        assert not [one for one in found if TOLD in one.page_content]
