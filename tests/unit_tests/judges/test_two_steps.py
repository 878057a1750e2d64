"""A checker, then a highlighter for what it approved."""

from typing import Any

import pytest
from langchain_core.documents import Document

from langchain_feedback import LLMGroundednessChecker, LLMHighlighter
from langchain_feedback.judges.base import Highlighter
from langchain_feedback.judges.offline import LexicalGroundednessChecker, SentenceHighlighter
from langchain_feedback.judges.two_steps import CheckAndHighlight, make_verification
from tests.fakes import FakeChatModel, StatusError, replies

REFUNDS = Document("Refunds take 14 days.", id="a", metadata={"source": "faq.md"})
ASK: Any = {"question": "How long?", "answer": "Refunds take 14 days.", "documents": [REFUNDS]}
NO = {"reason": "", "unsupported": ["14 days"], "grounded": False}


def two_steps(**by_role: Any) -> tuple[FakeChatModel, CheckAndHighlight]:
    model = FakeChatModel(reply=replies(**by_role))
    return model, CheckAndHighlight(LLMGroundednessChecker(model), LLMHighlighter(model))


async def both(verifier: CheckAndHighlight, asked: Any = ASK) -> Any:
    result = verifier.invoke(asked)
    assert await verifier.ainvoke(asked) == result
    assert verifier.batch([asked]) == await verifier.abatch([asked]) == [result]
    return result


async def test_a_grounded_answer_is_highlighted():
    model, verifier = two_steps()
    result = await both(verifier)
    assert (result["verdict"], result["error"], result["claims"]) == ("yes", None, [])
    assert [citation["quote"] for citation in result["citations"]] == ["Refunds take 14 days"]
    assert model.count("check") == model.count("highlight") == 4


async def test_what_is_not_grounded_is_not_highlighted():
    model, verifier = two_steps(check=NO)
    result = await both(verifier)
    assert (result["verdict"], result["unsupported"]) == ("no", ["14 days"])
    assert result["citations"] == []
    assert model.count("highlight") == 0


async def test_a_failed_check_is_unknown_with_its_error():
    model, verifier = two_steps(check=StatusError(429))
    result = await both(verifier)
    assert (result["verdict"], result["error"]) == ("unknown", "StatusError")
    assert model.count("highlight") == 0


async def test_an_abstention_in_common_words_asks_nobody():
    model, verifier = two_steps()
    result = await both(verifier, ASK | {"answer": "I could not find this."})
    assert (result["verdict"], result["abstained"]) == ("no", True)
    assert model.calls == []


@pytest.mark.parametrize(("error", "raised"), [(OSError("x"), False), (StatusError(401), True)])
async def test_a_highlighter_that_fails_costs_the_citations_only(error, raised):
    class Failing(Highlighter):
        def judge(self, request, config):
            raise error

    verifier = CheckAndHighlight(LexicalGroundednessChecker(), Failing())
    if raised:
        with pytest.raises(StatusError):
            verifier.invoke(ASK)
        with pytest.raises(StatusError):
            await verifier.ainvoke(ASK)
        return
    assert await both(verifier) == make_verification("yes", error="OSError")


async def test_it_works_without_a_model():
    verifier = CheckAndHighlight(LexicalGroundednessChecker(), SentenceHighlighter())
    result = await both(verifier)
    assert (result["verdict"], result["citations"][0]["verified"]) == ("yes", True)
    assert (await both(verifier, ASK | {"answer": "Elephants are grey."}))["verdict"] != "yes"
