"""Mining: what comes into the queue, what does not, and what an item says."""

import json

from sqlalchemy import select

from langchain_feedback.loop.mining import mine
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.transactions import reading
from tests.unit_tests.loop.kit import asked
from tests.unit_tests.loop.test_review import POOL, QUESTION, burst, failing, filled, fine


def test_an_item_says_why_it_is_there_and_names_nobody(store):
    queue = filled(store)
    [item] = queue.items()
    assert item.snapshot["why"][0] == ("Asked once; 3 people say that it went wrong (judgement).")
    assert [one["comment"] for one in item.snapshot["said"]] == [
        "ann says no", "bob says no", "cem says no",
    ]  # fmt: skip
    with reading(store) as connection:
        raw = connection.execute(select(review_items.c.snapshot)).scalar_one()
    assert '"actor"' not in raw
    assert "asker of" not in raw
    assert set(json.loads(raw)) >= {
        "question", "asked_at", "answer", "status", "reason", "grounded", "searches", "chunks",
        "said", "citations", "why",
    }  # fmt: skip


def test_a_question_that_waits_is_not_added_again_with_another_pool(store):
    queue = filled(store)
    for name in ("ann", "bob"):
        trace_id = asked(store, QUESTION, POOL[:2], actor=f"later {name}", answer="Soon.")
        store.rate(trace_id, 1, actor=name)
    assert (mine(store, queue=queue).added, len(queue.items())) == (0, 1)


def test_a_decided_question_comes_back_once_it_fails_anew_with_another_pool(store):
    queue = filled(store)
    queue.decide(queue.claim("ann"), "reject")
    assert mine(store, queue=queue).added == 0
    trace_id = asked(store, QUESTION, POOL[:2], actor="later", answer="Soon.")
    store.rate(trace_id, 1, actor="later")
    assert mine(store, queue=queue).added == 1


def test_evaluations_and_single_complaints_are_not_mined(store):
    fine(store)
    failing(store, "Tested?", traffic="eval")
    failing(store, "Said once?", people=("ann",))
    assert mine(store) == mine(store)
    assert ReviewQueue(store).items() == []


def test_what_found_nothing_comes_behind_complaints(store):
    queue = filled(store)
    asked(store, "Do you ship to Mars?", [], actor="eve", reason="no_documents")
    assert mine(store, queue=queue).added == 1
    waiting = queue.items(state="open")
    assert [item.question for item in waiting] == [QUESTION, "Do you ship to Mars?"]
    assert waiting[1].failure_class == "missing_document"


def test_a_burst_comes_first_and_a_full_queue_takes_it_too(store):
    burst(store)
    queue = ReviewQueue(store, double=0)
    assert mine(store, queue=queue, limit=1).waiting == 1
    assert [item.kind for item in queue.items()] == ["burst"]
