"""What teaches and what is held out: near-duplicates are never on both sides."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.loop.splitting import (
    Splittable,
    alike,
    near_duplicate_groups,
    question_sides,
)


def one(key, question=None, right=("c1",), angle=None):
    vector = None
    if angle is not None:
        vector = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))], np.float32)
    return Splittable(key, question or f"Question {key}?", frozenset(right), vector)


def test_the_same_words_about_another_chunk_are_not_alike():
    first, then = one("a", "How long is it?"), one("b", "How long is it?", right=("c2",))
    assert not alike(first, then)
    assert alike(one("a"), one("a", right=("c2",)))  # the same question is always itself


def test_vectors_decide_where_both_have_one():
    assert alike(one("a", angle=0), one("b", angle=25))  # cos 25 degrees = .906
    assert not alike(one("a", angle=0), one("b", angle=27))  # .891
    # Without them the words.
    assert not alike(one("a", "Where do refunds go?", angle=0), one("b", "When is it open?"))


def test_a_chain_of_near_duplicates_is_one_group():
    chain = [one(str(at), angle=20 * at) for at in range(5)]
    assert [len(group) for group in near_duplicate_groups(chain)] == [5]


questions = st.lists(
    st.builds(
        lambda key, right, angle: one(f"k{key}", right={f"c{right}"}, angle=angle),
        st.integers(0, 30),
        st.integers(0, 3),
        st.floats(0, 180),
    ),
    max_size=25,
    unique_by=lambda question: question.key,
)


@given(questions)
def test_near_duplicates_are_never_on_both_sides_check3(asked):
    sides = question_sides(asked)
    assert set(sides) == {question.key for question in asked}
    for first in asked:
        for then in asked:
            if alike(first, then):
                assert sides[first.key] == sides[then.key]


@given(questions, st.randoms())
def test_the_order_in_which_they_come_does_not_count(asked, random):
    mixed = list(asked)
    random.shuffle(mixed)
    assert question_sides(mixed) == question_sides(asked)


@given(questions, st.data())
def test_a_group_stays_where_it_was_put(asked, data):
    keys = [question.key for question in asked]
    held = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
    taught = data.draw(st.sets(st.sampled_from(keys))) - held if keys else set()
    sides = question_sides(asked, held, taught)
    assert all(sides[key] == "evaluation" for key in held)
    for group in near_duplicate_groups(asked):
        group_keys = {question.key for question in group}
        if group_keys & taught and not group_keys & held:
            assert {sides[key] for key in group_keys} == {"train"}


def test_nothing_held_out_and_everything():
    asked = [one(str(at), right=(f"c{at}",)) for at in range(20)]
    assert set(question_sides(asked, share=0).values()) == {"train"}
    assert set(question_sides(asked, share=1).values()) == {"evaluation"}
