"""Forgetting and pruning reach the review queue and the owners' items."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.labels import reviewed_questions
from langchain_feedback.loop.mining import mine
from langchain_feedback.store.loop_schema import (
    owner_events,
    owner_items,
    review_events,
    review_items,
    source_alarms,
)
from langchain_feedback.store.schema import questions
from langchain_feedback.store.transactions import reading
from tests.unit_tests.loop.kit import asked
from tests.unit_tests.loop.test_review import POOL, QUESTION, filled

TABLES = (review_items, review_events, owner_items, owner_events, source_alarms, questions)
ASKER = f"asker of {QUESTION}"


def everything(store):
    """All that the tables hold, as one text; a `Row` would show long values cut."""
    with reading(store) as connection:
        rows = [row for table in TABLES for row in connection.execute(select(table))]
    return repr([tuple(row) for row in rows])


def decided(store):
    queue = filled(store)
    queue.decide(
        queue.claim("rita"), "confirm", right_chunks=["refund-timing"],
        failure_class="stale_document", correction="Ten days.",
    )  # fmt: skip
    return queue


def test_a_persons_words_leave_the_items_that_quote_them(store):
    queue = filled(store)
    store.forget("bob")
    [item] = queue.items()
    assert [one["comment"] for one in item.snapshot["said"]] == ["ann says no", "cem says no"]
    assert "bob" not in everything(store)
    assert len(item.snapshot["chunks"]) == len(POOL)


def test_words_whose_signals_were_pruned_go_with_whoever_is_forgotten(store):
    queue = filled(store)
    store.prune(datetime.now(UTC) + timedelta(minutes=1))
    assert len(queue.items()[0].snapshot["said"]) == 3
    store.forget("bob")
    assert queue.items()[0].snapshot["said"] == []


def test_a_question_that_nobody_else_asked_goes_with_its_item_and_its_pin(store):
    decided(store)
    assert QUESTION in everything(store)
    store.forget(ASKER)
    assert QUESTION not in everything(store)
    assert "Within fourteen" not in everything(store)  # the answer; a chunk says it in lower case
    assert reviewed_questions(store) == []
    [correction] = Corrections(store).items()
    assert (correction.text, correction.trace_id) == ("Ten days.", None)


def test_where_others_ask_the_same_the_label_stays_without_the_persons_answer(store):
    decided(store)
    asked(store, QUESTION, POOL, actor="zoe", answer="Another.")
    store.forget(ASKER)
    [label] = reviewed_questions(store)
    assert (label.question, label.right, label.answer, label.trace_id) == (
        QUESTION, ("refund-timing",), None, None,
    )  # fmt: skip
    assert "Within fourteen" not in everything(store)  # the answer; a chunk says it in lower case


def test_an_open_item_goes_and_is_mined_again_by_others(store):
    queue = filled(store)
    for name in ("ann", "bob"):
        trace_id = asked(store, QUESTION, POOL, actor="zoe", answer="Another.")
        store.rate(trace_id, 1, actor=name)
    store.forget(ASKER)
    assert queue.items() == []
    assert mine(store, queue=queue).added == 1
    assert queue.items()[0].snapshot["answer"] == "Another."


def test_a_reviewers_name_goes_and_the_verdict_stays(store):
    queue = decided(store)
    store.forget("rita")
    assert "rita" not in everything(store)
    assert [label.right for label in reviewed_questions(store)] == [("refund-timing",)]
    assert [event.reviewer for event in queue.events(queue.items()[0].item_id)] == [""]


def test_another_namespace_forgets_nobody(store):
    filled(store.scoped("other"))
    before = everything(store)
    store.forget("bob")
    store.forget(ASKER)
    assert everything(store) == before


def test_prune_takes_what_expired_and_leaves_what_is_open_or_decided(store):
    queue = filled(store, count=3)
    queue.decide(queue.claim("rita"), "reject")
    assert store.prune(datetime.now(UTC) + timedelta(minutes=1)).reviews == 0
    assert [len(item.snapshot["said"]) for item in queue.items(state="decided")] == [0]
    assert [len(item.snapshot["said"]) for item in queue.items(state="open")] == [3, 3]
    assert queue.expire(datetime.now(UTC) + timedelta(days=29)) == 2
    assert store.prune(datetime.now(UTC) + timedelta(days=60)).reviews == 2
    assert [item.state for item in queue.items()] == ["decided"]
    assert len(reviewed_questions(store)) == 1


def test_the_text_of_a_forgotten_chunk_leaves_what_reviewers_and_owners_see(store):
    queue = decided(store)
    text = POOL[2].page_content
    assert text in everything(store)
    store.forget_chunks(["refund-timing"])
    assert text not in everything(store)
    [item] = queue.items()
    assert [bool(chunk["text"]) for chunk in item.snapshot["chunks"]] == [True, True, False, True]
    assert [label.right for label in reviewed_questions(store)] == [("refund-timing",)]
