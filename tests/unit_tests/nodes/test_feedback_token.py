"""The token that `begin` writes beside the trace id."""

import logging
from itertools import pairwise
from typing import TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from langchain_feedback import (
    FeedbackRetriever,
    FeedbackStore,
    FeedbackTokens,
    new_trace_id,
    nodes,
)
from langchain_feedback.nodes import StateKeys
from tests.fakes import ListRetriever

QUESTION = "How long does a refund take?"
REFUND = Document("Refunds take 14 days.", id="refund", metadata={"source": "faq.md"})
tokens = FeedbackTokens(["a secret of the server: 32 or more"])


def asked_by(**metadata):
    return {"metadata": metadata}


def test_the_token_is_of_the_trace_and_of_who_asked():
    update = nodes.begin(tokens=tokens)({"question": QUESTION}, asked_by(user_id="ann"))
    claims = tokens.read(update["feedback_token"])
    assert claims.subject == update["trace_id"]
    assert tokens.is_actor(claims, "ann")


@pytest.mark.parametrize(
    ("metadata", "asker"),
    [
        ({"user_id": 7, "session_id": "s1"}, "7"),
        ({"session_id": "s1", "thread_id": "t1"}, "session:s1"),
        ({"thread_id": "t1"}, "session:t1"),
    ],
)
def test_who_asks_is_the_user_or_else_the_session(metadata, asker):
    update = nodes.begin(tokens=tokens)({"question": QUESTION}, asked_by(**metadata))
    assert tokens.is_actor(tokens.read(update["feedback_token"]), asker)


def test_a_session_is_no_user_of_that_name():
    begin = nodes.begin(tokens=tokens)
    user = begin({"question": QUESTION}, asked_by(user_id="7"))["feedback_token"]
    session = begin({"question": QUESTION}, asked_by(session_id="7"))["feedback_token"]
    assert tokens.read(user).actor != tokens.read(session).actor


def test_nobody_is_named_where_nobody_is_known():
    update = nodes.begin(tokens=tokens)({"question": QUESTION})
    assert tokens.read(update["feedback_token"]).actor is None


async def test_async_writes_the_same():
    trace_id = new_trace_id()
    config = asked_by(feedback_trace_id=trace_id, user_id="ann")
    update = await nodes.begin(tokens=tokens).ainvoke({"question": QUESTION}, config)
    assert tokens.read(update["feedback_token"]).subject == trace_id


def test_a_trace_id_that_is_no_uuid_has_no_token_and_one_line_in_the_log(caplog):
    begin = nodes.begin(tokens=tokens)
    with caplog.at_level(logging.WARNING):
        updates = [
            begin({"question": QUESTION}, asked_by(feedback_trace_id=f"mine-{n}"))
            for n in range(3)
        ]
    assert [update["trace_id"] for update in updates] == ["mine-0", "mine-1", "mine-2"]
    assert [update["feedback_token"] for update in updates] == ["", "", ""]
    [record] = caplog.records
    assert "new_trace_id" in record.getMessage()


def test_the_key_has_your_name():
    keys = StateKeys(feedback_token="rating_ticket", messages="messages")  # noqa: S106  a name
    update = nodes.begin(tokens=tokens, keys=keys)({"messages": [HumanMessage(QUESTION)]})
    assert tokens.read(update["rating_ticket"]).subject == update["trace_id"]
    assert "feedback_token" not in update


def test_without_tokens_nothing_is_written_or_declared():
    begin = nodes.begin()
    assert "feedback_token" not in begin({"question": QUESTION})
    graph = graph_of(begin, nodes.retrieve(ListRetriever(documents=[REFUND])))
    assert "trace_id" in graph.channels
    assert "feedback_token" not in graph.channels


class Host(TypedDict):
    question: str


def graph_of(*steps):
    builder = StateGraph(Host)
    for step in steps:
        builder.add_node(step)
    names = [START, *(step.name for step in steps), END]
    for one, other in pairwise(names):
        builder.add_edge(one, other)
    return builder.compile(checkpointer=InMemorySaver())


def state_after(graph, **metadata):
    config = {"configurable": {"thread_id": "t1"}, "metadata": metadata}
    graph.invoke({"question": QUESTION}, config)
    return graph.get_state(config).values


def test_in_a_graph_of_your_own_the_token_survives_undeclared():
    graph = graph_of(nodes.begin(tokens=tokens), nodes.retrieve(ListRetriever(documents=[REFUND])))
    state = state_after(graph)
    assert tokens.read(state["feedback_token"]).subject == state["trace_id"]


@pytest.fixture
def used(tmp_path):
    """A retriever over a store, and an id that was used there for another question."""
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store:
        trace_id = new_trace_id()
        store.record_trace(trace_id, "Where is the office?", [REFUND])
        base = ListRetriever(documents=[REFUND])
        yield FeedbackRetriever(base_retriever=base, store=store), trace_id


def test_a_fresh_id_in_place_of_a_used_one_has_the_token(used):
    retriever, trace_id = used
    begin = nodes.begin(tokens=tokens, store=retriever.store)
    update = begin({"question": QUESTION}, asked_by(feedback_trace_id=trace_id))
    assert update["trace_id"] != trace_id
    assert tokens.read(update["feedback_token"]).subject == update["trace_id"]


def test_an_id_that_the_retriever_changes_changes_the_token(used):
    retriever, trace_id = used
    graph = graph_of(nodes.begin(tokens=tokens), nodes.retrieve(retriever, tokens=tokens))
    state = state_after(graph, feedback_trace_id=trace_id, user_id="ann")
    assert state["trace_id"] != trace_id
    claims = tokens.read(state["feedback_token"])
    assert claims.subject == state["trace_id"]
    assert tokens.is_actor(claims, "ann")


def test_an_id_that_stays_leaves_the_token(used):
    retriever, _ = used
    update = nodes.retrieve(retriever, tokens=tokens)(
        {"question": QUESTION, "trace_id": new_trace_id()}
    )
    assert "feedback_token" not in update
