"""Mining: what comes into the queue, what does not, and what an item says."""

import json
from datetime import UTC, datetime, timedelta

import pytest
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


def test_of_many_wordings_for_one_missing_document_one_is_looked_at(store):
    queue = ReviewQueue(store, double=0)
    wordings = [f"Can you ship parcels to {place} planet Mars?" for place in ("the", "our", "a")]
    for number, question in enumerate([*wordings, wordings[1], "Where is the canteen?"]):
        asked(store, question, [], actor=f"u{number}", reason="no_documents")
    assert mine(store, queue=queue).added == 2
    assert mine(store, queue=queue).added == 0
    item, other = queue.items(state="open")
    assert (item.question, other.question) == (wordings[1], "Where is the canteen?")
    assert item.snapshot["why"][0] == (
        "Asked 4 times, in 3 wordings, and nothing was there to answer from."
    )
    # Once somebody looked, the other wordings that were asked before do not come up.
    queue.decide(queue.claim("ann"), "confirm", none_exists=True)
    assert mine(store, queue=queue).added == 0
    asked(store, wordings[0], [], actor="later", reason="no_documents")
    asked(store, "Can you ship a parcel to planet Mars?", [], actor="new", reason="no_documents")
    assert mine(store, queue=queue).added == 0


def test_a_burst_comes_first_and_a_full_queue_takes_it_too(store):
    burst(store)
    queue = ReviewQueue(store, double=0)
    assert mine(store, queue=queue, limit=1).waiting == 1
    assert [item.kind for item in queue.items()] == ["burst"]


def ordinary(store, count, start=0, **facts):
    for number in range(start, start + count):
        asked(store, f"Ordinary {number}?", POOL, actor=f"u{number}", answer="Yes.", **facts)


def drawn(queue):
    return {item.question for item in queue.items() if item.snapshot.get("sampled") is True}


def test_some_ordinary_questions_are_drawn_and_wait_behind_all_others(store):
    queue = filled(store)
    ordinary(store, 12)
    assert mine(store, queue=queue, ordinary=5).added == 5
    assert mine(store, queue=queue, ordinary=5).added == 0
    waiting = queue.items(state="open")
    assert waiting[0].question == QUESTION
    assert len(drawn(queue)) == 5
    assert QUESTION not in drawn(queue)
    last = waiting[-1]
    assert (last.guess, last.failure_class, last.priority) == (None, None, 0.0)
    assert last.snapshot["why"][0].startswith("Drawn by chance")
    assert [chunk["chunk_id"] for chunk in last.snapshot["chunks"]] == [one.id for one in POOL]
    queue.decide(queue.claim("ann"), "confirm", right_chunks=["refund-timing"])


def test_what_failed_found_nothing_or_was_a_test_is_not_drawn(store):
    asked(store, "Complained of?", POOL, actor="a")
    trace_id = asked(store, "Complained of?", POOL, actor="b")
    store.signal(trace_id, "rephrase")
    asked(store, "Lost?", [], actor="c")
    ordinary(store, 2, traffic="playground")
    queue = ReviewQueue(store, double=0)
    mine(store, queue=queue, ordinary=9)
    assert drawn(queue) == set()
    with pytest.raises(ValueError, match="ordinary must be at least 0, got -1"):
        mine(store, ordinary=-1)


def test_ordinary_questions_have_places_kept_and_a_full_queue_takes_none(store):
    fine(store)
    for number in range(6):
        failing(store, f"Bad {number}?")
    queue = ReviewQueue(store, double=0)
    assert mine(store, queue=queue, limit=5, ordinary=2).waiting == 5
    assert len(drawn(queue)) == 2
    assert mine(store, queue=queue, limit=5, ordinary=4).added == 0


def test_at_most_half_of_the_places_are_kept_for_what_went_well(store):
    fine(store)
    for number in range(9):
        failing(store, f"Bad {number}?")
    ordinary(store, 12)
    queue = ReviewQueue(store, double=0)
    assert mine(store, queue=queue, limit=8, ordinary=8).waiting == 8
    assert len(drawn(queue)) == 4
    assert {f"Bad {number}?" for number in range(9)} >= {
        item.question for item in queue.items() if not item.snapshot.get("sampled")
    }


def test_where_nobody_complains_what_went_well_has_all_places(store):
    ordinary(store, 12)
    queue = ReviewQueue(store, double=0)
    assert mine(store, queue=queue, limit=8, ordinary=8).waiting == 8
    assert mine(store, queue=queue, limit=8, ordinary=8).added == 0
    assert len(drawn(queue)) == 8


def test_another_week_draws_others_and_none_that_was_looked_at(store):
    ordinary(store, 12)
    queue = ReviewQueue(store, double=0)
    now = datetime.now(UTC)
    mine(store, queue=queue, ordinary=4, days=60, now=now)
    first = drawn(queue)
    while item := queue.claim("ann"):
        queue.decide(item, "reject")
    later = now + timedelta(days=7)
    assert mine(store, queue=queue, ordinary=4, days=60, now=later).added == 4
    assert mine(store, queue=queue, ordinary=4, days=60, now=later).added == 0
    assert len(drawn(queue) - first) == 4
    mine(store, queue=queue, ordinary=9, days=60, now=later + timedelta(days=7))
    assert len(drawn(queue)) == 12 + 4 - 4  # all of them, each once
