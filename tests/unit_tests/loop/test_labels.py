"""Labels: the verdicts in force, and what they say of each chunk."""

import pytest

from langchain_feedback.loop.labels import reviewed_questions
from tests.unit_tests.loop.test_review import POOL, QUESTION, filled


def test_a_label_holds_the_whole_pool_as_it_was_reviewed(store):
    queue = filled(store)
    queue.decide(
        queue.claim("ann"), "confirm", right_chunks=["refund-timing"],
        failure_class="retrieval", correction="Ten days.",
    )  # fmt: skip
    [label] = reviewed_questions(store)
    assert [chunk.chunk_id for chunk in label.pool] == [document.id for document in POOL]
    assert [chunk.text for chunk in label.pool] == [document.page_content for document in POOL]
    assert [chunk.final_rank for chunk in label.pool] == [0, 1, 2, 3]
    assert (label.question, label.right, label.wrong) == (
        QUESTION, ("refund-timing",), ("refund-window",),
    )  # fmt: skip
    assert (label.verdict, label.failure_class, label.correction) == (
        "confirm", "retrieval", "Ten days.",
    )  # fmt: skip
    assert (label.reviewers, label.needs_review) == (("ann",), False)


@pytest.mark.parametrize("failure_class", ["generation", "disputed"])
def test_where_the_chunk_is_not_to_blame_it_is_no_wrong_one_and_gets_no_vote(store, failure_class):
    queue = filled(store)
    done = queue.decide(queue.claim("ann"), "confirm", failure_class=failure_class)
    assert done.signals == ()
    assert [label.wrong for label in reviewed_questions(store)] == [()]


def test_a_suspect_that_is_rejected_is_no_wrong_chunk(store):
    queue = filled(store)
    queue.decide(queue.claim("ann"), "reject")
    assert [(label.verdict, label.wrong) for label in reviewed_questions(store)] == [
        ("reject", ())
    ]
