"""The reliable RAG graph: it answers, or abstains for a good reason, and always ends."""

import itertools
import math
import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.exceptions import (
    ModelAuthenticationError,
    ModelInvalidRequestError,
    ModelRefusalError,
    ModelTimeoutError,
)
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph, add_messages

from langchain_feedback.graph import create_reliable_rag, reliable_rag_builder
from langchain_feedback.judges.base import AnswerGenerator, DocumentGrader, GroundednessChecker
from langchain_feedback.judges.offline import LexicalGrader, LexicalGroundednessChecker
from langchain_feedback.judges.staging import StagedChecker
from tests.fakes import (
    FakeChatModel,
    ListRetriever,
    Recorder,
    StatusError,
    claims,
    good,
    replies,
)

QUESTION = "How long does a refund take?"
ASK = {"question": QUESTION}
REFUNDS = Document("Refunds take 14 days.", id="a", metadata={"source": "faq.md"})
ROTATE = Document("Keys rotate.", id="b", metadata={"source": "keys.md"})
REASONS = {"no_documents", "none_relevant", "not_grounded", "empty_answer", "judge_failed"}
REASONS |= {"step_limit"}

# begin, retrieve, grade_documents, abstain, record_answer; LangGraph wants one more.
SMALLEST_LIMIT = 6
# begin, retrieve, grade_documents, generate, verify_answer, record_answer; and one that the
# routers keep back, which also serve graphs that check and highlight in two nodes.
SPARE = 1
SMALLEST_LIMIT_TO_ANSWER = 7 + SPARE


def chunks(number: int) -> list[Document]:
    return [
        Document(f"Chunk {i}. {REFUNDS.page_content}", id=f"c{i}", metadata={"source": "x.md"})
        for i in range(number)
    ]


def model(structured: str | None = "class", **by_role: Any) -> FakeChatModel:
    return FakeChatModel(reply=replies(**by_role), structured=structured)


def rag(fake: Any = None, documents: list[Document] | None = None, **options: Any) -> Any:
    documents = [REFUNDS, ROTATE] if documents is None else documents
    return create_reliable_rag(ListRetriever(documents=documents), fake or model(), **options)


def no_grades(asked: Any) -> dict[str, Any]:
    return {"grades": [{"slot": s, "reason": "", "relevant": False} for s in asked.slots]}


GROUNDED = {"reason": "", "unsupported": [], "grounded": True}
CHECKED_NO = {"reason": "", "unsupported": ["x"], "grounded": False}


def not_grounded(asked: Any) -> dict[str, Any]:
    return claims(asked.answer, asked.slots[0], "Refunds take 14 days", supported=False)


def in_turn(*values: Any) -> Callable[[Any], Any]:
    """Reply with one value after the other, over and over."""
    turn = itertools.cycle(values)

    def reply(asked: Any) -> Any:
        value = next(turn)
        return value(asked) if callable(value) else value

    return reply


def bound(k: int, rewrites: int, regenerations: int, *, in_two_steps: bool = False) -> int:
    """The documented bound on model calls, and what is added where claims cannot be read."""
    grading = math.ceil(k / 8) + k
    calls = (rewrites + 1) * grading + rewrites + 2 * (regenerations + 1)
    return calls + (regenerations + 1 + 1 if in_two_steps else 0)


REFUSED = ModelRefusalError("I cannot help with that.")
BAD_REQUEST = ModelInvalidRequestError("content filter")
STUBBORN: dict[str, Callable[[], dict[str, Any]]] = {
    "all_good": dict,
    "grader_always_no": lambda: {"grade": no_grades},
    "verifier_always_no": lambda: {"verify": not_grounded},
    "grader_alternates": lambda: {"grade": in_turn(no_grades, good)},
    "verifier_alternates": lambda: {"verify": in_turn(not_grounded, good)},
    "both_alternate": lambda: {
        "grade": in_turn(no_grades, good),
        "verify": in_turn(not_grounded, good),
    },
    "grader_fails": lambda: {"grade": BAD_REQUEST, "grade_one": BAD_REQUEST},
    "verifier_fails": lambda: {"verify": BAD_REQUEST},
    "no_claims_and_checker_always_no": lambda: {"verify": "It depends.", "check": CHECKED_NO},
    "no_claims_and_checker_alternates": lambda: {
        "verify": "It depends.",
        "check": in_turn(CHECKED_NO, GROUNDED),
    },
    "own_words": lambda: {"generate": "I could not find that in the documents."},
    "no_answer": lambda: {"generate": "NO_ANSWER"},
    "all_fails": lambda: {
        **dict.fromkeys(("grade", "grade_one", "verify", "rewrite"), BAD_REQUEST),
        "generate": REFUSED,
    },
}
stubborn = pytest.mark.parametrize("behaviour", STUBBORN.values(), ids=STUBBORN)
both_modes = pytest.mark.parametrize("mode", ["invoke", "ainvoke"])


async def run(graph: Any, asked: Any, mode: str = "invoke", config: Any = None) -> dict[str, Any]:
    if mode == "invoke":
        return graph.invoke(asked, config)
    return await graph.ainvoke(asked, config)


# The happy path.


@both_modes
async def test_the_happy_path_makes_three_model_calls(mode):
    fake = model()

    result = await run(rag(fake), ASK, mode)

    assert [asked.role for asked in fake.calls] == ["grade", "generate", "verify"]
    assert (result["answer"], result["status"]) == ("Refunds take 14 days.", "answered")
    assert (result["reason"], result["grounded"], result["errors"]) == ("", True, [])
    assert (result["generations"], result["rewrites"]) == (1, 0)
    assert [citation["quote"] for citation in result["citations"]] == ["Refunds take 14 days"]
    assert [grade["verdict"] for grade in result["grades"]] == ["yes", "yes"]
    assert [document.id for document in result["documents"]] == ["a", "b"]


@pytest.mark.parametrize(("k", "calls"), [(1, 3), (4, 3), (8, 3), (9, 4), (16, 4), (17, 5)])
def test_grading_costs_one_call_for_eight_chunks(k, calls):
    fake = model()

    result = rag(fake, chunks(k)).invoke(ASK)

    assert result["status"] == "answered"
    assert fake.count() == calls


def test_callbacks_see_each_of_the_models_calls_once():
    fake, recorder = model(), Recorder()

    rag(fake).invoke(
        ASK, {"callbacks": [recorder], "tags": ["mine"], "metadata": {"user_id": "u"}}
    )

    asked = [run for run in recorder.named("model") if "answer" not in run[1]]
    assert len(asked) == fake.count() == 3
    for _, tags, metadata in asked + recorder.named("retriever"):
        assert "mine" in tags
        assert metadata["user_id"] == "u"


# It always ends.


@stubborn
@pytest.mark.parametrize("limit", [None, 25], ids=["default_limit", "limit_25"])
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "batch", "abatch"])
async def test_a05_it_ends_within_its_budgets(behaviour, way, limit):
    fake = model(**behaviour())
    graph = rag(fake, max_rewrites=2, max_regenerations=2)
    config: Any = {"recursion_limit": limit} if limit else {}
    asked = [{"question": f"Question {i}?"} for i in range(4)]
    match way:
        case "invoke":
            results = [graph.invoke(asked[0], config)]
        case "ainvoke":
            results = [await graph.ainvoke(asked[0], config)]
        case "batch":
            results = graph.batch(asked, config)
        case "abatch":
            results = await graph.abatch(asked, config)

    assert fake.count() <= len(results) * bound(2, 2, 2, in_two_steps=fake.count("check") > 0)
    for result in results:
        assert result["generations"] <= 3
        assert result["rewrites"] <= 2
        assert result["status"] in ("answered", "abstained")
        assert result["answer"].strip()
        # There were steps enough, so it is never their fault.
        assert result["reason"] in (REASONS | {""}) - {"step_limit"}


@pytest.mark.parametrize(("rewrites", "regenerations"), [(0, 0), (1, 1), (3, 2), (0, 3)])
@both_modes
async def test_a05_stubborn_judges_spend_each_budget_exactly(rewrites, regenerations, mode):
    budgets = {"max_rewrites": rewrites, "max_regenerations": regenerations}

    fake = model(grade=no_grades)
    result = await run(rag(fake, **budgets), ASK, mode, {"recursion_limit": 25})
    assert (result["reason"], result["rewrites"]) == ("none_relevant", rewrites)
    assert fake.count("grade") == rewrites + 1
    assert fake.count("rewrite") == rewrites
    assert fake.count() == 2 * rewrites + 1

    fake = model(verify=not_grounded)
    result = await run(rag(fake, **budgets), ASK, mode, {"recursion_limit": 25})
    assert (result["reason"], result["generations"]) == ("not_grounded", regenerations + 1)
    assert fake.count("generate") == fake.count("verify") == regenerations + 1
    assert fake.count() == 1 + 2 * (regenerations + 1)


def outcome(result: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(result[key] for key in ("status", "reason", "rewrites", "generations", "answer"))


@stubborn
@pytest.mark.parametrize(("rewrites", "regenerations"), [(0, 0), (1, 1), (2, 2), (2, 0), (0, 2)])
def test_a05_no_recursion_limit_is_an_error(behaviour, rewrites, regenerations):
    """With steps enough the limit changes nothing; with fewer it is the reason, never an error."""
    budgets = {"max_rewrites": rewrites, "max_regenerations": regenerations}
    fake = model()
    graph = rag(fake, **budgets)

    def ask(**config: Any) -> list[dict[str, Any]]:
        fake.reply = replies(**behaviour())
        return list(graph.stream(ASK, config, stream_mode="values"))

    # The first part is the input's.
    *before, last = ask()
    steps, expected = len(before), outcome(last)

    for limit in range(SMALLEST_LIMIT, 26):
        result = ask(recursion_limit=limit)[-1]
        if limit > steps + SPARE or (limit > steps and outcome(result) == expected):
            assert outcome(result) == expected, limit
        else:
            assert (result["status"], result["reason"]) == ("abstained", "step_limit"), limit
            assert "ran out of steps" in result["answer"]
            assert result["citations"] == []


async def test_a05_no_recursion_limit_is_an_error_under_ainvoke_and_batch_either():
    for limit in range(SMALLEST_LIMIT, 26):
        config: Any = {"recursion_limit": limit}
        fake = model(grade=in_turn(no_grades, good), verify=not_grounded)
        graph = rag(fake, max_rewrites=2, max_regenerations=2)
        results = [await graph.ainvoke(ASK, config), *graph.batch([ASK, ASK], config)]
        assert {result["status"] for result in results} == {"abstained"}


def test_a05_the_smallest_limits():
    assert rag(model()).invoke(ASK, {"recursion_limit": SMALLEST_LIMIT})["reason"] == "step_limit"
    # Nothing was to be tried again: that the steps were just enough is no reason.
    spent = rag(model(grade=no_grades), max_rewrites=0)
    assert spent.invoke(ASK, {"recursion_limit": SMALLEST_LIMIT})["reason"] == "none_relevant"
    with pytest.raises(GraphRecursionError):
        rag(model()).invoke(ASK, {"recursion_limit": SMALLEST_LIMIT - 1})
    enough = {"recursion_limit": SMALLEST_LIMIT_TO_ANSWER}
    assert rag(model()).invoke(ASK, enough)["status"] == "answered"
    too_few = {"recursion_limit": SMALLEST_LIMIT_TO_ANSWER - 1}
    assert rag(model()).invoke(ASK, too_few)["reason"] == "step_limit"


def test_a05_a_model_is_not_asked_for_a_draft_that_could_not_be_checked():
    fake = model()

    rag(fake).invoke(ASK, {"recursion_limit": SMALLEST_LIMIT_TO_ANSWER - 1})

    assert [asked.role for asked in fake.calls] == ["grade"]


THINKING_ONLY = AIMessage([{"type": "thinking", "thinking": "Hm."}])
GRADES = {
    "yes": good,
    "no": no_grades,
    "half": lambda a: {"grades": replies()(a)["grades"][: len(a.slots) // 2]},
    "twice": lambda a: {"grades": replies()(a)["grades"] * 2},
    "of_another_call": {"grades": [{"slot": "0000-1", "reason": "", "relevant": True}]},
    "wrong_fields": {"grades": [{"slot": 1}]},
}
FAILURES = {
    "prose": "It depends.",
    "empty": "",
    "thinking": THINKING_ONLY,
    "refused": REFUSED,
    "filtered": BAD_REQUEST,
    "outage": ModelTimeoutError("slow"),
}
ONE = {"one_yes": {"reason": "", "relevant": True}, "one_no": {"reason": "", "relevant": False}}
BEHAVIOURS: dict[str, dict[str, Any]] = {
    "grade": GRADES | FAILURES,
    "grade_one": ONE | FAILURES,
    "rewrite": {"again": "In other words?"} | FAILURES,
    "generate": {"good": "Refunds take 14 days.", "bad": "41 days.", "none": "NO_ANSWER"}
    | {name: FAILURES[name] for name in ("empty", "thinking", "refused")},
    "verify": {
        "yes": good,
        "no": not_grounded,
        "other": lambda a: claims(a.answer, a.slots[0], "x", kind="other"),
        "nowhere": lambda a: claims(a.answer, a.slots[0], "It takes 41 days"),
        "of_another_call": lambda a: claims(a.answer, "0000-1", "It takes 41 days"),
        "none": {"claims": []},
        "wrong_fields": {"claims": [{"claim": 1}]},
    }
    | FAILURES,
    "check": {"yes": GROUNDED, "no": CHECKED_NO, "both": GROUNDED | {"unsupported": ["x"]}}
    | FAILURES,
    "highlight": {"none": {"quotes": []}, "lost": {"quotes": [{"slot": "1", "quote": "x"}]}}
    | FAILURES,
}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    k=st.integers(0, 20),
    rewrites=st.integers(0, 3),
    regenerations=st.integers(0, 3),
    structured=st.sampled_from(["class", "dict", "none", None]),
    on_unknown=st.sampled_from(["keep", "drop"]),
    turns=st.fixed_dictionaries(
        {
            role: st.lists(st.sampled_from(sorted(options)), min_size=1, max_size=5)
            for role, options in BEHAVIOURS.items()
        }
    ),
)
def test_a05_whatever_the_model_does_the_calls_stay_within_the_documented_bound(**drawn):
    k, rewrites, regenerations = drawn["k"], drawn["rewrites"], drawn["regenerations"]
    scripted = {
        role: in_turn(*(BEHAVIOURS[role][name] for name in names))
        for role, names in drawn["turns"].items()
    }
    fake = model(drawn["structured"], **scripted)
    budgets = {"max_rewrites": rewrites, "max_regenerations": regenerations}
    graph = rag(fake, chunks(k), on_unknown=drawn["on_unknown"], **budgets)

    result = graph.invoke(ASK, {"recursion_limit": 60})

    # Only a reply that cannot be read as claims is followed by the two steps.
    in_two_steps = bool({"prose", "wrong_fields"} & set(drawn["turns"]["verify"]))
    assert in_two_steps or fake.count("check", "highlight") == 0
    assert fake.count() <= bound(k, rewrites, regenerations, in_two_steps=in_two_steps)
    assert result["rewrites"] <= rewrites
    assert result["generations"] <= regenerations + 1
    assert result["answer"].strip()
    if result["status"] == "answered":
        assert result["grounded"] is True
        assert result["reason"] == ""
        assert result["answer"] in ("Refunds take 14 days.", "41 days.")
    else:
        assert result["status"] == "abstained"
        assert result["grounded"] is not True
        assert result["reason"] in REASONS - {"step_limit"}
        assert result["citations"] == []
        assert "14 days" not in result["answer"]
        assert "41 days" not in result["answer"]


@pytest.mark.parametrize(("k", "rewrites", "regenerations"), [(1, 0, 0), (9, 2, 1), (8, 1, 3)])
def test_a05_the_documented_bound_is_reached_and_no_more(k, rewrites, regenerations):
    singles = [{"reason": "", "relevant": i == rewrites} for i in range(rewrites + 1)]
    fake = model(
        grade="No slots here.",
        grade_one=in_turn(*(single for single in singles for _ in range(k))),
        verify=in_turn(*[not_grounded] * regenerations, good),
    )
    budgets = {"max_rewrites": rewrites, "max_regenerations": regenerations}

    result = rag(fake, chunks(k), **budgets).invoke(ASK)

    assert result["status"] == "answered"
    assert fake.count() == bound(k, rewrites, regenerations)

    two = model(
        verify="It depends.", check=in_turn(*[CHECKED_NO] * regenerations, GROUNDED), grade=good
    )
    assert rag(two, **budgets).invoke(ASK)["status"] == "answered"
    # The extra calls: a check for each draft, and the highlights.
    assert two.count("check", "highlight") == regenerations + 1 + 1
    assert two.count() == 1 + 2 * (regenerations + 1) + regenerations + 2


def test_a05_the_bound_stands_in_the_documentation():
    formula = "`(R + 1)(ceil(k / 8) + k) + R + 2(G + 1)`"
    assert formula in " ".join((create_reliable_rag.__doc__ or "").split())


# Nothing retrieved.


@both_modes
@pytest.mark.parametrize(
    ("documents", "grade", "reason"),
    [
        ([], None, "no_documents"),
        ([Document(" \n"), Document("\n\n\t")], None, "no_documents"),
        ([REFUNDS, ROTATE], no_grades, "none_relevant"),
    ],
    ids=["nothing", "blank", "all_graded_no"],
)
async def test_a06_nothing_to_rest_on_is_never_answered(documents, grade, reason, mode):
    fake = model(**({"grade": grade} if grade else {}))

    result = await run(rag(fake, documents), ASK, mode)

    assert (result["status"], result["reason"]) == ("abstained", reason)
    assert result["grounded"] is not True
    assert result["citations"] == []
    assert fake.count("generate", "verify", "check", "highlight") == 0
    # The question was asked in other words before it gave up.
    assert fake.count("rewrite") == 1


def test_a06_the_second_search_uses_the_rewritten_question():
    fake, retriever = model(), ListRetriever(documents=[])
    retriever.by_query["When is money returned?"] = [REFUNDS]

    result = create_reliable_rag(retriever, fake).invoke(ASK)

    assert [query for query, *_ in retriever.queries] == [QUESTION, "When is money returned?"]
    assert [meta["feedback_attempt"] for _, _, meta, _ in retriever.queries] == [1, 2]
    assert {meta["feedback_trace_id"] for _, _, meta, _ in retriever.queries} == {
        result["trace_id"]
    }
    assert (result["status"], result["rewrites"]) == ("answered", 1)
    # The answer is to the user's own question.
    assert QUESTION in next(asked.text for asked in fake.calls if asked.role == "generate")


# Reasons.

GOOD_CAUSE: dict[str, list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]] = {
    "no_documents": [({}, {"documents": []}, {})],
    "none_relevant": [({"grade": no_grades}, {}, {})],
    "not_grounded": [
        ({"verify": not_grounded}, {}, {}),
        ({"verify": {"claims": []}}, {}, {}),
        ({"verify": "It depends.", "check": CHECKED_NO}, {}, {}),
    ],
    "empty_answer": [
        ({"generate": "NO_ANSWER"}, {}, {}),
        ({"generate": ""}, {}, {}),
        ({"generate": THINKING_ONLY}, {}, {}),
        ({"generate": REFUSED}, {}, {}),
        ({"generate": "I could not find that in the documents."}, {}, {}),
    ],
    "judge_failed": [
        ({"verify": BAD_REQUEST}, {}, {}),
        ({"verify": ""}, {}, {}),
        ({"verify": "It depends.", "check": BAD_REQUEST}, {}, {}),
        ({"verify": "It depends.", "check": "It depends."}, {}, {}),
        ({"grade": REFUSED, "grade_one": REFUSED}, {"on_unknown": "drop"}, {}),
    ],
    "step_limit": [({}, {}, {"recursion_limit": 7})],
}


@pytest.mark.parametrize(
    ("reason", "scripted", "options", "config"),
    [(reason, *cause) for reason, causes in GOOD_CAUSE.items() for cause in causes],
)
@both_modes
async def test_each_reason_is_given_for_a_good_cause(reason, scripted, options, config, mode):
    result = await run(rag(model(**scripted), **options), ASK, mode, config)

    assert (result["status"], result["reason"]) == ("abstained", reason)
    assert result["answer"].strip()
    assert "14 days" not in result["answer"]


def test_the_causes_cover_every_reason():
    assert set(GOOD_CAUSE) == REASONS


def test_an_empty_draft_is_written_again_and_never_checked():
    fake = model(generate=in_turn("", "Refunds take 14 days."))

    result = rag(fake).invoke(ASK)

    assert (result["status"], result["generations"]) == ("answered", 2)
    assert fake.count("verify") == 1


def test_when_the_verifier_fails_no_second_draft_is_written_and_nobody_else_is_asked():
    fake = model(verify=BAD_REQUEST)

    result = rag(fake, max_regenerations=3).invoke(ASK)

    assert fake.count("generate") == 1
    assert fake.count("check", "highlight") == 0
    assert result["errors"] == [
        {
            "node": "verify_answer",
            "error": "ModelInvalidRequestError",
            "chunk_id": None,
        }
    ]


@pytest.mark.parametrize(("on_unknown", "status"), [("keep", "answered"), ("drop", "abstained")])
def test_chunks_without_a_verdict_are_kept_or_dropped_and_recorded(on_unknown, status):
    fake = model(grade=REFUSED, grade_one=REFUSED)

    result = rag(fake, on_unknown=on_unknown, max_rewrites=0).invoke(ASK)

    assert result["status"] == status
    assert [grade["verdict"] for grade in result["grades"]] == ["unknown", "unknown"]
    assert [error["chunk_id"] for error in result["errors"]] == ["a", "b"]
    assert {error["error"] for error in result["errors"]} == {"ModelRefusalError"}


def test_the_message_of_an_abstention_can_be_replaced():
    fake = model(grade=no_grades)

    def say(**options: Any) -> str:
        return rag(fake, **options).invoke(ASK)["answer"]

    named = " The nearest sources I looked at: faq.md; keys.md."
    assert say().endswith(named)
    assert say(abstention="Sorry.") == "Sorry." + named
    assert say(abstention={"none_relevant": "Nothing fits."}) == "Nothing fits." + named
    assert say(abstention={"not_grounded": "Not proved."}).startswith("I looked, but")
    told = say(abstention=lambda facts: "|".join([facts["reason"], *facts["sources"]]))
    assert told == "none_relevant|faq.md|keys.md"


def test_an_abstention_names_the_nearest_sources_with_page_and_heading():
    documents = [
        Document("x", metadata={"source": "guide.pdf", "page": 3}),
        Document("y", metadata={"source": "faq.md", "heading": "Fees"}),
        Document("z", metadata={"source": "faq.md", "heading": "Fees"}),
    ]

    answer = rag(model(grade=no_grades), documents).invoke(ASK)["answer"]

    assert answer.endswith("guide.pdf, page 3; faq.md > Fees.")


# Regeneration.


@both_modes
async def test_a_regeneration_is_told_what_was_unsupported(mode):
    fake = model(
        generate=in_turn("It takes 41 days.", "Refunds take 14 days."),
        verify=in_turn(not_grounded, good),
    )

    result = await run(rag(fake), ASK, mode)

    first, second = [asked.text for asked in fake.calls if asked.role == "generate"]
    assert "41 days" not in first
    assert "- It takes 41 days." in second
    assert (result["answer"], result["generations"]) == ("Refunds take 14 days.", 2)
    assert "41 days" not in repr(result)


WRONG = "Refunds take 41 days."


def sure(asked: Any) -> dict[str, Any]:
    """Call any answer supported, by an honest-looking quote."""
    return claims(asked.answer, asked.slots[0], "Refunds take 14 days")


@both_modes
@pytest.mark.parametrize("messages", [False, True])
async def test_a13_a_wrong_figure_is_written_again_and_then_abstained_from(messages, mode):
    fake = model(generate=WRONG, verify=sure)
    asked = {"messages": [("user", QUESTION)]} if messages else ASK

    result = await run(rag(fake, messages=messages), asked, mode)

    first, second = [asked.text for asked in fake.calls if asked.role == "generate"]
    assert "41 days" not in first
    assert f"- {WRONG}" in second
    roles = ["grade", "generate", "verify", "generate", "verify"]
    assert [asked.role for asked in fake.calls] == roles
    assert (result["status"], result["reason"]) == ("abstained", "not_grounded")
    assert (result["grounded"], result["generations"]) == (False, 2)
    assert result["citations"] == result["claims"] == []
    assert "41 days" not in repr(result)


@both_modes
async def test_an_abstention_in_the_models_own_words_is_published_as_one(mode):
    for text, verified in (
        ("I could not find that in the documents.", 0),
        ("Leider steht dazu nichts in den Texten.", 1),
    ):
        fake = model(
            generate=text, verify=lambda a: claims(a.answer, a.slots[0], "", kind="no_answer")
        )
        result = await run(rag(fake), ASK, mode)

        assert (result["status"], result["reason"]) == ("abstained", "empty_answer")
        assert (result["answer"], result["grounded"]) == (text, False)
        assert (result["generations"], result["citations"]) == (1, [])
        assert fake.count("verify") == verified


def test_with_a_checker_or_a_highlighter_of_ones_own_it_verifies_in_two_steps():
    for part in ("groundedness", "highlighter"):
        fake, other = model(), model()
        assert rag(fake, **{part: other}).invoke(ASK)["status"] == "answered"
        assert fake.count("verify") == other.count() - 1 == 0
        assert fake.count() == 3
    other = model()
    assert rag(model(), verifier=other).invoke(ASK)["status"] == "answered"
    assert [asked.role for asked in other.calls] == ["verify"]


# A thread with several questions.


@both_modes
async def test_a05_the_second_question_of_a_thread_has_its_own_budgets(mode):
    def stubborn_at_first(asked: Any) -> dict[str, Any]:
        return not_grounded(asked) if "first" in asked.text else good(asked)

    fake = model(verify=stubborn_at_first)
    graph = rag(fake, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}

    first = await run(graph, {"question": "The first?"}, mode, config)
    second = await run(graph, {"question": "The second?"}, mode, config)
    third = await run(graph, {"question": "The first, again?"}, mode, config)

    assert [result["status"] for result in (first, second, third)] == [
        "abstained",
        "answered",
        "abstained",
    ]
    assert [result["generations"] for result in (first, second, third)] == [2, 1, 2]
    assert (second["reason"], second["errors"]) == ("", [])
    assert len({result["trace_id"] for result in (first, second, third)}) == 3


@both_modes
async def test_a_second_question_does_not_inherit_an_abstention_or_its_errors(mode):
    fake = model(verify=in_turn(BAD_REQUEST, good))
    graph = rag(fake, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}

    first = await run(graph, ASK, mode, config)
    second = await run(graph, ASK, mode, config)

    assert (first["reason"], len(first["errors"])) == ("judge_failed", 1)
    assert (second["status"], second["reason"], second["errors"]) == ("answered", "", [])


# Chat.


@both_modes
async def test_a_chat_appends_one_message_and_keeps_the_others_as_they_were(mode):
    fake = model()
    call = {"name": "search", "args": {"q": "SECRET-ARGS"}, "id": "1"}
    earlier: list[AnyMessage] = [
        SystemMessage("SECRET-SYSTEM", id="m0"),
        HumanMessage("Hello", id="m1"),
        AIMessage(
            [{"type": "thinking", "thinking": "SECRET-THOUGHT"}, {"type": "text", "text": "Hi."}],
            tool_calls=[call],
            id="m2",
        ),
        ToolMessage("SECRET-TOOL", tool_call_id="1", id="m3"),
        HumanMessage(QUESTION, id="m4"),
    ]

    result = await run(rag(fake, messages=True), {"messages": earlier}, mode)

    *before, answer = result["messages"]
    assert before == earlier
    assert isinstance(answer, AIMessage)
    assert answer.content == result["answer"] == "Refunds take 14 days."
    assert answer.id
    assert answer.id not in {message.id for message in earlier}
    for asked in fake.calls:
        assert QUESTION in asked.text
        assert "SECRET" not in asked.text
        assert {message.type for message in asked.messages} == {"system", "human"}
    written = next(asked.text for asked in fake.calls if asked.role == "generate")
    assert "user: Hello\nassistant: Hi.\n" in written


@both_modes
async def test_each_turn_of_a_chat_is_about_its_own_question(mode):
    fake, retriever = model(), ListRetriever(documents=[REFUNDS])
    graph = create_reliable_rag(retriever, fake, messages=True, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}

    for question in ("First?", "Second?", "Third?"):
        result = await run(graph, {"messages": [("user", question)]}, mode, config)

    assert [query for query, *_ in retriever.queries] == ["First?", "Second?", "Third?"]
    types = [message.type for message in result["messages"]]
    assert types == ["human", "ai"] * 3
    assert len({message.id for message in result["messages"]}) == 6
    last = [asked.text for asked in fake.calls if asked.role == "generate"][-1]
    assert "user: First?\nassistant: Refunds take 14 days.\nuser: Second?\n" in last
    assert last.count("Third?") == 1


def test_a_chats_question_is_the_last_human_message_whatever_follows_it():
    retriever = ListRetriever(documents=[REFUNDS])
    messages = [("user", "Old?"), ("ai", "Yes."), ("user", QUESTION), ("ai", "Let me look.")]

    create_reliable_rag(retriever, model(), messages=True).invoke({"messages": messages})

    assert [query for query, *_ in retriever.queries] == [QUESTION]


def test_a_chat_without_a_question_is_a_clear_error():
    with pytest.raises(ValueError, match="'messages'"):
        rag(messages=True).invoke({"messages": [AIMessage("Hello.")]})
    with pytest.raises(ValueError, match="question"):
        rag().invoke({"question": " "})


def test_an_abstention_in_a_chat_is_a_message_too():
    result = rag(model(grade=no_grades), messages=True).invoke({"messages": [("user", QUESTION)]})

    assert [message.type for message in result["messages"]] == ["human", "ai"]
    assert result["messages"][-1].text == result["answer"]
    assert result["answer"].startswith("I looked, but")


# Models.


@both_modes
async def test_offline_needs_no_model(mode):
    documents = [
        Document("Plans are billed monthly. A refund takes 14 days.", metadata={"source": "a.md"}),
        Document("Elephants are grey.", metadata={"source": "b.md"}),
    ]
    recorder = Recorder()
    graph = rag("offline", documents)

    result = await run(graph, ASK, mode, {"callbacks": [recorder]})
    unknown = await run(graph, {"question": "Who won the cup?"}, mode)

    assert "A refund takes 14 days." in result["answer"]
    assert {citation["source"] for citation in result["citations"]} == {"a.md"}
    assert all(citation["verified"] for citation in result["citations"])
    assert [run for run in recorder.named("model") if "answer" not in run[1]] == []
    assert (unknown["status"], unknown["reason"]) == ("abstained", "none_relevant")
    # Nobody can rewrite a question without a model.
    assert unknown["rewrites"] == 0
    assert "rewrite_question" not in graph.get_graph().nodes


WRONG_MODELS = ["gpt-5", "", None, 3, object(), "Offline", lambda prompt: "yes", FakeChatModel]


@pytest.mark.parametrize("wrong", WRONG_MODELS, ids=lambda wrong: type(wrong).__name__)
def test_a_wrong_model_is_a_type_error_that_says_what_to_pass(wrong):
    with pytest.raises(TypeError, match=r"chat model.*'offline'"):
        create_reliable_rag(ListRetriever(documents=[]), wrong)


def test_a_wrong_part_is_an_error_when_the_graph_is_made():
    with pytest.raises(TypeError, match="retriever"):
        create_reliable_rag([REFUNDS], model())
    with pytest.raises(TypeError, match="grader"):
        rag(grader=LexicalGroundednessChecker())
    with pytest.raises(TypeError, match="groundedness"):
        rag(groundedness="gpt-5")
    with pytest.raises(TypeError, match="highlighter"):
        rag(highlighter=LexicalGroundednessChecker())
    with pytest.raises(TypeError, match="verifier"):
        rag(verifier=LexicalGroundednessChecker())
    for part in ("groundedness", "highlighter"):
        with pytest.raises(ValueError, match="not both"):
            rag(verifier=model(), **{part: model()})
    with pytest.raises(TypeError, match="AnswerGenerator"):
        rag(LexicalGrader())
    with pytest.raises(TypeError, match="max_rewrite"):
        rag(max_rewrite=1)
    with pytest.raises(ValueError, match="max_rewrites"):
        rag(max_rewrites=-1)
    with pytest.raises(ValueError, match="max_rewrites"):
        rag("offline", max_rewrites=-1)
    with pytest.raises(ValueError, match="max_regenerations"):
        rag(max_regenerations=-1)
    with pytest.raises(ValueError, match="'maybe'"):
        rag(on_unknown="maybe")


class OwnGrader(DocumentGrader):
    def judge(self, request, config):
        return [
            {"chunk_id": str(doc.id), "verdict": "yes", "reason": "", "error": None}
            for doc in request["documents"]
        ]


class OwnChecker(GroundednessChecker):
    def judge(self, request, config):
        raise OSError


class OwnWriter(AnswerGenerator):
    def judge(self, request, config):
        return request["documents"][0].page_content


def test_each_judge_can_be_swapped_for_ones_own_or_for_another_model():
    fake, other = model(), model()

    result = rag(fake, grader=OwnGrader(), groundedness=other, highlighter=other).invoke(ASK)

    assert result["status"] == "answered"
    assert [asked.role for asked in fake.calls] == ["generate"]
    assert [asked.role for asked in other.calls] == ["check", "highlight"]
    assert rag(groundedness=OwnChecker()).invoke(ASK)["reason"] == "judge_failed"
    offline = rag(OwnWriter().with_retry(), grader=OwnGrader()).invoke(ASK)
    assert offline["answer"] == "Refunds take 14 days."


@both_modes
@pytest.mark.parametrize("role", ["grade", "rewrite", "generate", "verify", "check", "highlight"])
async def test_a_bad_key_is_raised_wherever_it_shows(role, mode):
    scripted: dict[str, Any] = {role: StatusError(401)}
    if role == "rewrite":
        scripted["grade"] = no_grades
    if role in ("check", "highlight"):
        scripted["verify"] = "It depends."
    with pytest.raises(StatusError, match="401"):
        await run(rag(model(**scripted)), ASK, mode)
    scripted[role] = ModelAuthenticationError("bad key")
    with pytest.raises(ModelAuthenticationError):
        await run(rag(model(**scripted)), ASK, mode)


@both_modes
async def test_an_error_of_the_retriever_is_raised(mode):
    def search(query: str) -> list[Document]:
        raise OSError(query)

    with pytest.raises(OSError, match="refund"):
        await run(create_reliable_rag(RunnableLambda(search), model()), ASK, mode)


@both_modes
async def test_a22_search_options_reach_the_retriever(mode):
    retriever = ListRetriever(documents=chunks(5))
    graph = create_reliable_rag(retriever, model(), search_kwargs={"k": 2})

    result = await run(graph, ASK, mode)

    assert [k for _, k, *_ in retriever.queries] == [2]
    assert [document.id for document in result["documents"]] == ["c0", "c1"]


async def test_a22_all_six_ways_agree():
    graph = rag()
    config = {"metadata": {"feedback_trace_id": "t-1"}}

    def plain(result: dict[str, Any]) -> dict[str, Any]:
        return {key: result[key] for key in graph.get_output_jsonschema()["properties"]}

    expected = plain(graph.invoke(ASK, config))

    assert expected["answer"] == "Refunds take 14 days."
    assert plain(await graph.ainvoke(ASK, config)) == expected
    assert [plain(result) for result in graph.batch([ASK, ASK], config)] == [expected] * 2
    assert [plain(result) for result in await graph.abatch([ASK], config)] == [expected]
    assert plain(list(graph.stream(ASK, config, stream_mode="values"))[-1]) == expected
    parts = [part async for part in graph.astream(ASK, config, stream_mode="values")]
    assert plain(parts[-1]) == expected


# The trace id.


@both_modes
async def test_the_trace_id_is_in_the_first_updates_event(mode):
    retriever = ListRetriever(documents=[REFUNDS])
    graph = create_reliable_rag(retriever, model(), checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    if mode == "invoke":
        first, *_ = list(graph.stream(ASK, config, stream_mode="updates"))
    else:
        first, *_ = [part async for part in graph.astream(ASK, config, stream_mode="updates")]

    trace_id = first["begin"]["trace_id"]
    assert trace_id
    assert graph.get_state(config).values["trace_id"] == trace_id
    assert [meta["feedback_trace_id"] for _, _, meta, _ in retriever.queries] == [trace_id]


@both_modes
@pytest.mark.parametrize("messages", [False, True])
async def test_a_callers_trace_id_is_used(messages, mode):
    asked = {"messages": [("user", QUESTION)]} if messages else ASK
    config = {"metadata": {"feedback_trace_id": "mine"}}

    assert (await run(rag(messages=messages), asked, mode, config))["trace_id"] == "mine"


def test_each_question_of_a_batch_has_a_trace_id_of_its_own():
    assert len({result["trace_id"] for result in rag().batch([ASK] * 5)}) == 5


# Inside other graphs.


class HostState(TypedDict, total=False):
    question: str
    answer: str
    status: str
    shout: str


@both_modes
async def test_it_can_be_a_node_of_another_graph(mode):
    retriever = ListRetriever(documents=[REFUNDS])
    host = StateGraph(HostState)
    host.add_node("rag", create_reliable_rag(retriever, model()))
    host.add_node("shout", lambda state: {"shout": state["answer"].upper()})
    host.add_edge(START, "rag")
    host.add_edge("rag", "shout")
    host.add_edge("shout", END)
    graph = host.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}, "metadata": {"feedback_trace_id": "mine"}}

    result = await run(graph, ASK, mode, config)

    assert (result["shout"], result["status"]) == ("REFUNDS TAKE 14 DAYS.", "answered")
    assert [meta["feedback_trace_id"] for _, _, meta, _ in retriever.queries] == ["mine"]
    assert "draft" not in graph.get_state(config).values


class ChatHost(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@both_modes
async def test_a_chat_graph_can_be_a_node_of_another_chat(mode):
    host = StateGraph(ChatHost)
    host.add_node("rag", rag(messages=True))
    host.add_edge(START, "rag")
    graph = host.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}

    for question in ("First?", "Second?"):
        result = await run(graph, {"messages": [("user", question)]}, mode, config)

    types = [message.type for message in result["messages"]]
    assert types == ["human", "ai", "human", "ai"]


def test_a05_a_mounted_graph_counts_its_own_steps():
    host = StateGraph(HostState)
    host.add_node("rag", rag(model(verify=not_grounded)))
    host.add_edge(START, "rag")

    for limit in range(SMALLEST_LIMIT, 26):
        assert host.compile().invoke(ASK, {"recursion_limit": limit})["status"] == "abstained"


def test_the_builder_takes_steps_of_ones_own():
    builder = reliable_rag_builder(ListRetriever(documents=[REFUNDS]), model())
    seen = []

    def audit(state: HostState) -> dict[str, Any]:
        seen.append(state["answer"])
        return {}

    builder.add_node("audit", audit)
    builder.add_edge("record_answer", "audit")
    builder.compile().invoke(ASK)

    assert seen == ["Refunds take 14 days."]


def test_the_schemas_of_input_and_output_are_narrow():
    graph, chat = rag(), rag(messages=True)

    assert list(graph.get_input_jsonschema()["properties"]) == ["question"]
    assert list(chat.get_input_jsonschema()["properties"]) == ["messages"]
    output = set(graph.get_output_jsonschema()["properties"])
    wanted = {
        "answer",
        "status",
        "reason",
        "grounded",
        "citations",
        "claims",
        "checks",
        "documents",
    }
    wanted |= {"grades", "generations", "rewrites", "trace_id", "errors"}
    assert output == wanted
    assert set(chat.get_output_jsonschema()["properties"]) == wanted | {"messages"}
    assert set(graph.invoke(ASK)) == wanted


def test_the_drawing_shows_every_step():
    graph = rag()
    steps = ["begin", "retrieve", "grade_documents", "rewrite_question", "generate"]
    steps += ["verify_answer", "abstain", "record_answer"]
    drawn = graph.get_graph()

    assert set(drawn.nodes) == {*steps, "__start__", "__end__"}
    edges = {(edge.source, edge.target) for edge in drawn.edges}
    assert {target for source, target in edges if source == "grade_documents"} == {
        "generate",
        "rewrite_question",
        "abstain",
    }
    assert {target for source, target in edges if source == "verify_answer"} == {
        "record_answer",
        "generate",
        "abstain",
    }
    for step in steps:
        assert step in drawn.draw_mermaid()


# Without blocking.


def _vector_store() -> Any:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents([REFUNDS, ROTATE])
    return store.as_retriever(search_kwargs={"k": 2})


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize("offline", [False, True], ids=["model", "offline"])
async def test_a22_async_never_blocks_the_event_loop(offline, messages):
    retriever = _vector_store()
    failing = {"grade": in_turn(REFUSED, no_grades, good)}
    failing |= {"verify": in_turn(not_grounded, "It depends.", good)}
    asked = {"messages": [("user", QUESTION)]} if messages else ASK
    graph = create_reliable_rag(
        retriever,
        "offline" if offline else model(**failing),
        messages=messages,
        checkpointer=InMemorySaver(),
        stream_drafts=True,
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    with blockbuster_ctx():
        await graph.ainvoke(asked, config)
        for mode in ("values", "updates", "messages", "custom"):
            [part async for part in graph.astream(asked, config, stream_mode=mode)]
        results = await graph.abatch([asked] * 3, config)

    assert {result["status"] for result in results} <= {"answered", "abstained"}


async def test_a22_blocking_would_have_been_noticed():
    class Blocking(OwnGrader):
        async def ajudge(self, request, config):
            time.sleep(0.001)  # noqa: ASYNC251  what must not be done
            return self.judge(request, config)

    with blockbuster_ctx():
        result = await rag(grader=Blocking()).ainvoke(ASK)

    assert {error["error"] for error in result["errors"]} == {"BlockingError"}


def test_a_follow_up_is_searched_for_as_a_question_that_stands_on_its_own():
    model = FakeChatModel(reply=replies(condense="How long does a laptop's refund take?"))
    retriever = ListRetriever(documents=[REFUNDS])
    graph = create_reliable_rag(retriever, model, messages=True, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "follow-up"}}
    graph.invoke({"messages": [("user", "How long does a refund take?")]}, thread)
    graph.invoke({"messages": [("user", "And for laptops?")]}, thread)
    assert [query for query, *_ in retriever.queries] == [
        "How long does a refund take?",
        "How long does a laptop's refund take?",
    ]
    [condensed] = [asked for asked in model.calls if asked.role == "condense"]
    assert "user: How long does a refund take?" in condensed.text
    assert model.count("rewrite") == 0


def test_a_follow_up_without_a_budget_of_rewrites_is_searched_for_as_it_stands():
    model = FakeChatModel(reply=replies())
    retriever = ListRetriever(documents=[REFUNDS])
    graph = create_reliable_rag(retriever, model, messages=True, max_rewrites=0)
    turns = [("user", "Refunds?"), ("assistant", "14 days."), ("user", "And for laptops?")]
    graph.invoke({"messages": turns})
    assert [query for query, *_ in retriever.queries] == ["And for laptops?"]


@pytest.mark.parametrize("shadow", [True, False])
def test_what_a_first_stage_said_of_a_draft_is_in_the_output(shadow):
    staged = StagedChecker(
        LexicalGroundednessChecker(), FakeChatModel(reply=replies()), shadow=shadow
    )
    graph = create_reliable_rag(
        ListRetriever(documents=[REFUNDS]), FakeChatModel(reply=replies()), groundedness=staged
    )
    [check] = graph.invoke({"question": "How long does a refund take?"})["checks"]
    assert check["verdict"] == "yes"
    assert check["first_stage"]["verdict"] == "yes"
    assert check["first_stage"]["shadow"] is shadow


def test_a_fork_by_update_state_goes_on_where_it_would_have():
    graph = rag(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "fork"}}
    graph.invoke(ASK, thread)
    forked = graph.update_state(thread, {"kept": [REFUNDS]}, as_node="grade_documents")
    assert graph.get_state(forked).next == ("generate",)
