"""The graph issues a token with the trace: what a browser rates the answer with."""

import json
import logging

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver

from langchain_feedback import (
    FeedbackRetriever,
    FeedbackStore,
    FeedbackTokens,
    create_reliable_rag,
    new_trace_id,
    reliable_rag_builder,
)
from tests.fakes import ListRetriever

QUESTION = "How long does a refund take?"
REFUND = Document("Refunds take 14 days.", id="refund", metadata={"source": "faq.md"})
tokens = FeedbackTokens(["a secret of the server: 32 or more"])
ANN = {"metadata": {"user_id": "ann"}}


def base():
    return ListRetriever(documents=[REFUND])


def graph(**options):
    return create_reliable_rag(base(), "offline", tokens=tokens, **options)


def test_the_first_update_holds_the_trace_id_and_its_token():
    first = next(iter(graph().stream({"question": QUESTION}, ANN, stream_mode="updates")))
    claims = tokens.read(first["begin"]["feedback_token"])
    assert claims.subject == first["begin"]["trace_id"]
    assert tokens.is_actor(claims, "ann")


@pytest.mark.parametrize("question", [QUESTION, "Who won the cup?"])
def test_the_output_holds_it_whether_answered_or_not(question):
    result = graph().invoke({"question": question}, ANN)
    assert tokens.read(result["feedback_token"]).subject == result["trace_id"]
    json.dumps(result["feedback_token"])  # plain text, as any client can hold it


async def test_async_issues_the_same_and_never_blocks(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store:
        retriever = FeedbackRetriever(base_retriever=base(), store=store)
        made = create_reliable_rag(retriever, "offline", tokens=tokens)
        with blockbuster_ctx("langchain_feedback"):
            result = await made.ainvoke({"question": QUESTION}, ANN)
        claims = tokens.read(result["feedback_token"])
        trace = store.trace(claims.subject)
    assert (trace.question, trace.actor) == (QUESTION, "ann")
    assert tokens.is_actor(claims, trace.actor)


def test_each_question_of_a_thread_has_its_own_token():
    made = graph(messages=True, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    results = [made.invoke({"messages": [("user", QUESTION)]}, config) for _ in range(2)]
    claims = [tokens.read(result["feedback_token"]) for result in results]
    assert [one.subject for one in claims] == [result["trace_id"] for result in results]
    assert claims[0].subject != claims[1].subject
    assert all(tokens.is_actor(one, "session:t1") for one in claims)


def test_a_question_without_a_token_does_not_keep_the_last_ones(caplog):
    made = graph(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    assert made.invoke({"question": QUESTION}, config)["feedback_token"]
    with caplog.at_level(logging.WARNING):
        result = made.invoke(
            {"question": QUESTION}, config | {"metadata": {"feedback_trace_id": "mine"}}
        )
    assert (result["trace_id"], result["feedback_token"]) == ("mine", "")
    assert len(caplog.records) == 1
    assert result["status"] == "answered"


def test_an_id_of_the_callers_has_its_token():
    trace_id = new_trace_id()
    config = {"metadata": {"feedback_trace_id": trace_id}}
    result = graph().invoke({"question": QUESTION}, config)
    assert tokens.read(result["feedback_token"]).subject == trace_id


def test_a_used_id_is_replaced_and_the_token_is_the_new_ones(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store:
        made = graph(store=store)
        config = {"metadata": {"feedback_trace_id": new_trace_id()}}
        first, second = (made.invoke({"question": q}, config) for q in (QUESTION, "And where?"))
    assert first["trace_id"] != second["trace_id"]
    for result in (first, second):
        assert tokens.read(result["feedback_token"]).subject == result["trace_id"]


def test_the_schemas_name_the_token_only_where_tokens_are_given():
    without = create_reliable_rag(base(), "offline")
    wanted = set(without.get_output_jsonschema()["properties"]) | {"feedback_token"}
    assert set(graph().get_output_jsonschema()["properties"]) == wanted
    assert set(graph().get_input_jsonschema()["properties"]) == {"question"}
    assert "feedback_token" not in without.channels
    assert "feedback_token" not in without.get_output_jsonschema()["properties"]
    for event in without.stream({"question": QUESTION}, stream_mode="updates"):
        assert all("feedback_token" not in update for update in event.values())


def test_the_builder_takes_tokens_too():
    made = reliable_rag_builder(base(), "offline", tokens=tokens).compile()
    assert tokens.read(made.invoke({"question": QUESTION})["feedback_token"]).actor is None
