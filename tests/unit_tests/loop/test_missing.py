"""What people ask for and find nothing: one item for each document that is missing."""

from datetime import UTC, datetime, timedelta

import pytest

from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.missing import missing_documents
from langchain_feedback.loop.owners import Owner, Owners
from langchain_feedback.store.owner_items import open_item
from langchain_feedback.store.transactions import writing
from tests.unit_tests.loop.kit import asked, said

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DOGS = "May I bring my dog to the office?"


def nothing(store, question, *, days=1.0, found=(), **facts):
    return asked(
        store, question, found, at=NOW - timedelta(days=days),
        **{"status": "abstained", "reason": "none_relevant"} | facts,
    )  # fmt: skip


def answered(store, question, *, days=1.0, **facts):
    return asked(
        store, question, ["c1"], at=NOW - timedelta(days=days), status="answered", grounded=True,
        **facts,
    )  # fmt: skip


def missing(store, **options):
    return missing_documents(store, **{"now": NOW} | options)


def items(store):
    return Corrections(store).items(kind="missing_document")


def test_what_found_nothing_is_counted_once_for_each_question(store):
    first = nothing(store, DOGS, days=3, actor="ann")
    last = nothing(store, "may i bring my  dog to the office", days=1, actor="bob")
    nothing(store, "What is the parental leave?", days=2)
    answered(store, "How long does a refund take?")
    dogs, leave = missing(store)
    assert (dogs.question, dogs.asks, dogs.askers) == (DOGS, 2, 2)
    assert dogs.trace_ids == (last, first)
    assert (dogs.first_asked, dogs.last_asked) == (
        NOW - timedelta(days=3), NOW - timedelta(days=1),
    )  # fmt: skip
    assert (leave.question, leave.asks, leave.state) == ("What is the parental leave?", 1, "open")
    assert {item.text for item in items(store)} == {
        "Nothing answers this. It was asked 2 times since 2026-11-27.",
        "Nothing answers this. It was asked once since 2026-11-28.",
    }


@pytest.mark.parametrize(
    "facts",
    [
        {"reason": "no_documents", "found": ["a"]},
        {"reason": "none_relevant", "found": ["a"]},
        {"reason": None, "status": None},
        {"reason": None, "status": "answered", "found": ["a"], "grades": {"a": "no"}},
    ],
)
def test_each_way_of_finding_nothing_counts(store, facts):
    nothing(store, DOGS, **facts)
    assert [one.question for one in missing(store)] == [DOGS]


def test_a_zero_result_signal_counts_and_what_was_found_does_not(store):
    trace_id = answered(store, DOGS)
    assert missing(store) == []
    said(store, trace_id, "zero_result")
    assert len(missing(store)) == 1


def test_traffic_of_tests_old_questions_and_other_namespaces_do_not_count(store):
    nothing(store, DOGS, traffic="eval")
    nothing(store, "Cats?", days=29)
    nothing(store.scoped("other"), "Birds?")
    assert missing(store) == []
    assert [one.question for one in missing(store, days=30)] == ["Cats?"]
    with pytest.raises(ValueError, match="above 0"):
        missing(store, days=0)


def test_running_it_again_opens_nothing_as_more_questions_join(store):
    nothing(store, DOGS, days=3)
    [before] = missing(store)
    assert missing(store) == [before]
    nothing(store, "Bring a dog into the office", days=2)
    [after] = missing(store)
    assert after.item_id == before.item_id
    assert set(after.questions) == {DOGS, "Bring a dog into the office"}
    [item] = items(store)
    assert item.snapshot["asks"] == 2
    assert len(Corrections(store).history(item.item_id)) == 1
    # Weeks later, the question that was first is out of sight.
    nothing(store, "Bring a dog into the office", days=-27)
    [later] = missing(store, now=NOW + timedelta(days=27, hours=1))
    assert (later.item_id, later.question) == (before.item_id, DOGS)
    assert later.questions == ("Bring a dog into the office",)


def test_two_groups_that_grow_into_one_leave_one_item_open(store):
    vectors = {"a": [1.0, 0.0], "b": [0.6, 0.8], "c": [0.9, 0.44]}
    nothing(store, "a", days=3, vector=vectors["a"])
    nothing(store, "b", days=2, vector=vectors["b"])
    first, second = sorted(missing(store), key=lambda one: one.question)
    for days in (1.2, 1.1, 1.0):
        nothing(store, "c", days=days, vector=vectors["c"])
    [one] = missing(store)
    assert one.item_id == first.item_id
    assert (one.asks, set(one.questions)) == (5, {"a", "b", "c"})
    assert Corrections(store).item(second.item_id).state == "withdrawn"
    assert [one.item_id for one in missing(store)] == [first.item_id]


def test_by_vectors_alike_questions_are_put_together_across_words(store):
    nothing(store, "Is parental leave paid?", vector=[1, 0.1, 0])
    nothing(store, "Time off for fathers", vector=[1, 0.2, 0.1])
    nothing(store, "Is sick leave paid?", vector=[0, 1, 0])
    assert sorted(one.asks for one in missing(store)) == [1, 2]


def test_by_chunks_only_where_they_tell_questions_apart(store):
    # Each of six topics finds chunks of its own.
    for topic in range(6):
        found = [f"{topic}-{n}" for n in range(5)]
        asked(store, f"about {topic}", found, at=NOW - timedelta(hours=1))
    pool = [f"x{n}" for n in range(5)]
    nothing(store, "Is parental leave paid?", found=pool)
    nothing(store, "Time off for fathers", found=pool[::-1])
    [one] = missing(store)
    assert len(one.questions) == 2


def test_in_a_small_index_where_all_find_the_same_chunks_go_by_words(store):
    pool = [f"x{n}" for n in range(5)]
    for number in range(6):
        at = NOW - timedelta(hours=1)
        asked(store, f"Question number {number} on something", pool, at=at)
    nothing(store, "Is parental leave paid?", found=pool)
    nothing(store, DOGS, found=pool)
    assert len(missing(store)) == 2


def test_what_was_answered_since_is_missing_no_more_and_fixes_its_item(store):
    nothing(store, DOGS, days=3)
    [one] = missing(store)
    answered(store, DOGS, days=-1)
    later = NOW + timedelta(days=2)
    assert missing(store, now=later) == []
    [fixed] = Corrections(store).check_fixed(now=later)
    assert (fixed.item_id, fixed.state) == (one.item_id, "fixed")
    nothing(store, DOGS, days=-3)
    [again] = missing(store, now=NOW + timedelta(days=4))
    assert (again.item_id, again.asks, again.state) == (one.item_id, 1, "fixed")


def test_a_verified_document_is_open_again_once_its_question_finds_nothing(store):
    nothing(store, DOGS, days=3)
    [one] = missing(store)
    corrections = Corrections(store)
    for state in ("acknowledged", "fixed", "verified"):
        corrections.move(one.item_id, state, now=NOW)
    assert missing(store) == []
    nothing(store, DOGS, days=-1)
    [again] = missing(store, now=NOW + timedelta(days=2))
    assert (again.item_id, again.state) == (one.item_id, "open")
    assert "again" in corrections.history(one.item_id)[-1].note


def test_what_a_person_withdrew_stays_so(store):
    nothing(store, DOGS, days=3)
    [one] = missing(store)
    Corrections(store).move(one.item_id, "withdrawn", now=NOW)
    nothing(store, DOGS, days=-1)
    assert missing(store, now=NOW + timedelta(days=2)) == []
    assert len(items(store)) == 1


def test_an_item_that_a_reviewer_opened_is_joined_and_keeps_its_words(store):
    trace_id = nothing(store, DOGS, days=3)
    with writing(store) as (connection, _):
        item_id, _ = open_item(
            connection, store.namespace, about="review", kind="missing_document", now=NOW,
            text="Write a pet policy.", question=DOGS, trace_id=trace_id, opened_by="ann",
            snapshot={"answer": "Yes."},
        )  # fmt: skip
    [one] = missing(store)
    assert one.item_id == item_id
    [item] = items(store)
    assert (item.text, item.snapshot["answer"], item.snapshot["asks"]) == (
        "Write a pet policy.", "Yes.", 1,
    )  # fmt: skip


def test_the_default_owner_is_to_write_it(store):
    nothing(store, DOGS)
    owners = Owners([(Owner("all"), ["*"])], default=Owner("docs"))
    [one] = missing(store, owners=owners)
    assert one.owner == "docs"
