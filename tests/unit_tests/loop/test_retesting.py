"""Asking again: corrections and missing documents, from open to verified, on the handbook."""

import hashlib
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langgraph.checkpoint.memory import InMemorySaver
from sqlalchemy import insert, select

from langchain_feedback import FeedbackRetriever, create_reliable_rag, trace_id_of
from langchain_feedback.demo.handbook import handbook_documents
from langchain_feedback.judges.offline import LexicalGrader
from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.missing import missing_documents
from langchain_feedback.loop.outbox import deliver, write_digests
from langchain_feedback.loop.owners import Owner, Owners
from langchain_feedback.loop.retesting import retest
from langchain_feedback.store.asking import read_asks
from langchain_feedback.store.loop_schema import source_alarms
from langchain_feedback.store.owner_items import open_item
from langchain_feedback.store.transactions import reading, writing
from langchain_feedback.words import content_words
from tests.webhook_server import WebhookServer

QUESTION = "When must I ask for a refund of the first payment?"
WRONG = "Ask for a refund within fourteen days of the first payment."
RIGHT = "Ask for a refund within thirty days of the first payment."
CORRECTION = "It is thirty days, not fourteen."
DOGS = "Are dogs allowed in the office?"
DOG_RULE = "Dogs are allowed in the office on Fridays."


class Words(Embeddings):
    """A direction for each word."""

    def embed_query(self, text):
        row = np.zeros(96)
        for word in content_words(text):
            row[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % 96] += 1
        return (row / (np.linalg.norm(row) or 1)).tolist()

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


def handbook(change=None, *more):
    """The handbook with another text for its refund window, and more documents."""
    documents = [*handbook_documents(), *more]
    for document in documents:
        if document.id == "refund-window" and change is not None:
            document.page_content = change
    return documents


def search(store, documents, k=4):
    index = FAISS.from_documents(documents, Words(), ids=[one.id for one in documents])
    return FeedbackRetriever(base_retriever=index.as_retriever(), store=store, k=k)


def rag(store, documents, **options):
    return create_reliable_rag(search(store, documents), "offline", store=store, **options)


@pytest.fixture
def corrections(store):
    return Corrections(store)


@pytest.fixture
def item(store, corrections):
    result = rag(store, handbook()).invoke({"question": QUESTION})
    assert result["answer"] == WRONG
    return corrections.correct(result["trace_id"], CORRECTION, actor="ann")


def test_a_changed_source_is_fixed_then_verified_and_shown_before_and_after_check12(store):
    secret = "s3cret"  # noqa: S105
    graph = rag(store, handbook())
    result = graph.invoke({"question": QUESTION})
    with WebhookServer(secret, [500, 200]) as server:
        billing = Owner("billing", "webhook", server.url, secret)
        owners = Owners([(billing, ["handbook/refund*"])])
        corrections = Corrections(store, owners)
        item = corrections.correct(result["trace_id"], CORRECTION, actor="ann")
        assert write_digests(store, owners) == 1
        assert deliver(store, owners, folder=None, pauses=[0]).sent == 1
        assert [one.status for one in server.received] == [500, 200]
        [told] = server.received[-1].json["items"]
    assert (told["item_id"], told["says"], told["source"]) == (
        item.item_id, WRONG, "handbook/refund-window",
    )  # fmt: skip
    corrections.move(item.item_id, "acknowledged", actor="billing")

    [early] = retest(store, graph)
    assert (early.verified, early.state) == (False, "acknowledged")
    assert "still rests on the wrong text of chunk refund-window" in " ".join(early.why)
    assert corrections.check_fixed() == []

    corrected = rag(store, handbook(RIGHT))
    corrected.invoke({"question": "May I ask for a refund?"})
    [fixed] = corrections.check_fixed()
    assert (fixed.item_id, fixed.state) == (item.item_id, "fixed")
    [after] = retest(store, corrected)
    assert (after.why, after.state_before, after.state) == ((), "fixed", "verified")
    assert (after.before["answer"], after.after["answer"]) == (WRONG, RIGHT)
    kept = corrections.item(item.item_id).retest
    assert kept["verified"]
    for when, text in (("before", WRONG), ("after", RIGHT)):
        [cited] = [chunk for chunk in kept[when]["chunks"] if chunk["cited"]]
        assert (cited["chunk_id"], cited["text"]) == ("refund-window", text)
        assert kept[when]["status"] == "answered"
    assert [event.state for event in corrections.history(item.item_id)] == [
        "open", "acknowledged", "fixed", "verified",
    ]  # fmt: skip
    assert retest(store, corrected) == []


def test_retests_are_traffic_of_tests_and_move_nothing(store, item):
    asks, cells = _asks(store), store.evidence_for(QUESTION).cells
    [result] = retest(store, rag(store, handbook(RIGHT)))
    assert store.trace(result.after["trace_id"]).traffic == "eval"
    assert _asks(store) == asks
    assert store.evidence_for(QUESTION).cells == cells


def _asks(store):
    with reading(store) as connection:
        return [ask.trace_id for ask in read_asks(connection, store.namespace)]


def test_a_change_that_the_retest_is_the_first_to_see_verifies_an_open_item(store, item):
    [result] = retest(store, rag(store, handbook(RIGHT)))
    assert (result.state_before, result.state) == ("open", "verified")


@pytest.mark.parametrize(
    ("change", "more", "why"),
    [
        ("Ask for a refund within twenty days of the first payment.", [], "none of the figures"),
        (RIGHT, [Document(WRONG, id="copy", metadata={"source": "old"})], "wrong text of chunk"),
        ("Nothing.", [], "not answered"),
    ],
)
def test_what_is_still_wrong_is_not_verified(store, item, change, more, why):
    [result] = retest(store, rag(store, handbook(change, *more)))
    assert (result.verified, result.state) == (False, "open")
    assert why in " ".join(result.why)


def test_another_answer_proves_no_correction(store, item, corrections):
    lucky = {
        "answer": "Thirty days.", "status": "answered", "grounded": True,
        "documents": [Document("Thirty days.", id="lucky", metadata={"source": "elsewhere"})],
    }  # fmt: skip
    [result] = retest(store, lambda _: lucky)
    assert result.why == ("Nothing shows that the document was changed.",)
    corrections.move(item.item_id, "fixed", actor="billing")
    assert retest(store, lambda _: lucky)[0].state == "verified"


def test_an_answer_that_nobody_checked_verifies_nothing(store, item, corrections):
    corrections.move(item.item_id, "fixed")
    for reply in ("Thirty days.", {"answer": "Thirty days."}, {"answer": "", "grounded": True}):
        [result] = retest(store, lambda _, reply=reply: reply)
        assert not result.verified
    assert "not answered" in " ".join(result.why)


def test_without_a_chunk_or_a_figure_a_person_must_look(store, item, corrections):
    corrections.move(item.item_id, "withdrawn")
    vague = corrections.correct(item.trace_id, "Be more polite.", chunk="sla")
    with writing(store) as (connection, _):
        open_item(
            connection, store.namespace, about="x", kind="correction", text="Be polite.",
            question=QUESTION, now=vague.opened_at + timedelta(seconds=1),
        )  # fmt: skip
    named, nameless = retest(store, rag(store, handbook()))
    assert "wrong text" in named.why[0] or "Nothing shows" in named.why[0]
    assert "a person must look" in nameless.why[0]


def test_by_a_retriever_the_changed_text_must_be_found(store, corrections):
    retriever = search(store, handbook())
    trace_id = trace_id_of(retriever.invoke(QUESTION))
    item = corrections.correct(trace_id, CORRECTION, chunk="refund-window")
    [before] = retest(store, retriever)
    assert before.why == (
        "It still finds the wrong text of chunk refund-window.",
        "A changed text of the source is not among what is found.",
    )
    wrong_again = "Ask for a refund within twenty days of the first payment."
    [still] = retest(store, search(store, handbook(wrong_again)))
    assert "The new text has none of the figures" in still.why[0]
    [after] = retest(store, search(store, handbook(RIGHT)))
    assert (after.item_id, after.state) == (item.item_id, "verified")
    assert after.after["answer"] is None
    assert RIGHT in [chunk["text"] for chunk in after.after["chunks"]]
    assert WRONG in [chunk["text"] for chunk in after.before["chunks"]]


def test_a_document_that_was_written_closes_its_item(store, corrections):
    graph = rag(store, handbook())
    for question in (DOGS, "Are dogs allowed in our office?"):
        assert graph.invoke({"question": question})["status"] == "abstained"
    [missing] = missing_documents(store, now=datetime.now(UTC) + timedelta(seconds=5))
    assert missing.asks == 2
    [early] = retest(store, graph)
    assert (early.state, early.before["status"]) == ("open", "abstained")
    written = Document(DOG_RULE, id="dogs", metadata={"source": "handbook/dogs"})
    [after] = retest(store, rag(store, handbook(None, written)))
    assert (after.why, after.state) == ((), "verified")
    assert (after.before["answer"] == after.after["answer"], after.after["answer"]) == (
        False, DOG_RULE,
    )  # fmt: skip
    assert [one["status"] for one in after.after["others"]] == ["answered"]
    assert corrections.counts()["verified"] == 1


def test_all_questions_of_a_missing_document_must_be_answered(store):
    graph = rag(store, handbook())
    for question in (DOGS, "Are dogs allowed in the office on Mondays or in Lyon?"):
        graph.invoke({"question": question})
    [missing] = missing_documents(store, now=datetime.now(UTC) + timedelta(seconds=5))
    assert len(missing.questions) == 2
    reply = {"answer": DOG_RULE, "status": "answered", "grounded": True}
    [result] = retest(store, lambda question: reply if question == DOGS else {"answer": None})
    assert (result.state, len(result.why)) == ("open", 1)
    assert "Lyon" in result.why[0]


def test_a_retriever_closes_a_missing_document_only_with_a_grader(store):
    rag(store, handbook()).invoke({"question": DOGS})
    missing_documents(store, now=datetime.now(UTC) + timedelta(seconds=5))
    written = Document(DOG_RULE, id="dogs", metadata={"source": "handbook/dogs"})
    after = search(store, handbook(None, written))
    [alone] = retest(store, after)
    assert "pass a grader" in alone.why[0]
    [nothing] = retest(store, search(store, handbook()), grader=LexicalGrader())
    assert "Nothing relevant" in nothing.why[0]
    [graded] = retest(store, after, grader=LexicalGrader())
    assert graded.state == "verified"


def test_what_a_reviewer_called_missing_needs_a_text_that_was_not_there(store):
    graph = rag(store, handbook())
    result = graph.invoke({"question": QUESTION})
    chunks = [
        {"chunk_id": one.chunk_id, "content_hash": one.content_hash}
        for one in store.trace(result["trace_id"]).chunks
    ]
    with writing(store) as (connection, _):
        open_item(
            connection, store.namespace, about="x", kind="missing_document", text="How to ask.",
            question=QUESTION, now=datetime.now(UTC), trace_id=result["trace_id"],
            opened_by="ann", snapshot={"chunks": chunks},
        )  # fmt: skip
    [same] = retest(store, graph)
    assert "what was there before" in same.why[0]
    text = "You must ask for a refund of the first payment by email."
    written = Document(text, id="how", metadata={"source": "handbook/how"})
    [after] = retest(store, rag(store, handbook(None, written)))
    assert after.state == "verified"


def test_an_app_that_fails_verifies_nothing_and_stops_nothing(store, item, corrections):
    corrections.correct(item.trace_id, "Be polite.", chunk="sla")

    def broken(question):
        msg = "no\0 model"
        raise RuntimeError(msg)

    results = retest(store, broken)
    assert [result.why for result in results] == [
        ("The app failed: RuntimeError: no\ufffd model",)
    ] * 2
    assert all(result.after == {} for result in results)
    [odd, _] = retest(store, lambda _: 7)
    assert "TypeError" in odd.why[0]


def test_items_are_chosen_by_id_and_a_verified_one_that_fails_is_open_again(store, item):
    assert retest(store, rag(store, handbook(RIGHT)), item_ids=["none"]) == []
    assert retest(store, rag(store, handbook(RIGHT)))[0].verified
    [again] = retest(store, rag(store, handbook(WRONG)), item_ids=[item.item_id])
    assert (again.state_before, again.state) == ("verified", "open")


def test_withdrawn_items_and_those_of_other_namespaces_are_not_asked(store, item, corrections):
    assert retest(store.scoped("other"), rag(store, handbook())) == []
    corrections.move(item.item_id, "withdrawn")
    assert retest(store, rag(store, handbook()), item_ids=[item.item_id]) == []


@pytest.mark.parametrize("options", [{"messages": True}, {"checkpointer": InMemorySaver()}])
def test_graphs_that_chat_or_remember_are_asked_too(store, item, options):
    [result] = retest(store, rag(store, handbook(RIGHT), **options))
    assert (result.why, result.after["answer"]) == ((), RIGHT)


def test_a_verified_source_is_calm_once_no_other_item_is_left(store, item, corrections):
    other = corrections.correct(item.trace_id, "It is thirty days from today.")
    with writing(store) as (connection, _):
        for kind in ("changed", "reviewer", "complaints"):
            row = {"alarm_id": kind, "namespace": store.namespace, "source": item.source}
            row |= {"kind": kind, "evidence": "{}", "raised_at": item.opened_at}
            connection.execute(insert(source_alarms), row)
    graph = rag(store, handbook(RIGHT))
    retest(store, graph, item_ids=[item.item_id])
    assert _open_alarms(store) == {"changed", "reviewer", "complaints"}
    retest(store, graph, item_ids=[other.item_id])
    assert _open_alarms(store) == {"complaints"}


def _open_alarms(store):
    still = select(source_alarms.c.kind).where(source_alarms.c.closed_at.is_(None))
    with reading(store) as connection:
        return set(connection.execute(still).scalars())
