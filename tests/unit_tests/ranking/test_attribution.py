"""Credit: which chunks a vote speaks of, and how much."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.ranking.attribution import PromptChunk, attribute

keys = st.sampled_from("abcdef")
known = st.booleans() | st.none()
chunks = st.lists(st.builds(PromptChunk, keys, known, known), max_size=8)
polarities = st.sampled_from([-1, 0, 1])
weights = st.floats(0, 5)


def cited(key, relevant=None):
    return PromptChunk(key, cited=True, relevant=relevant)


def uncited(key, relevant=None):
    return PromptChunk(key, cited=False, relevant=relevant)


def unknown(key, relevant=None):
    return PromptChunk(key, cited=None, relevant=relevant)


# -- The table of the design, row by row


def test_a_good_answer_credits_what_it_cites_and_says_nothing_of_the_rest():
    assert attribute(1, 1.0, [cited("a"), uncited("b")]) == {"a": 1.0}


def test_a_bad_answer_blames_what_it_cites_and_the_rest_a_little():
    assert attribute(-1, 2.0, [cited("a"), uncited("b")]) == {"a": -2.0, "b": -0.6}


@pytest.mark.parametrize("mark", [cited, uncited, unknown])
def test_a_generation_failure_is_not_the_relevant_chunks_fault(mark):
    prompt = [mark("a", relevant=True), cited("b", relevant=False)]
    assert attribute(-1, 1.0, prompt, grounded=False) == {"b": -1.0}


@pytest.mark.parametrize("grounded", [True, None])
def test_only_a_failed_check_excuses_a_relevant_chunk(grounded):
    assert attribute(-1, 1.0, [cited("a", relevant=True)], grounded=grounded) == {"a": -1.0}


@pytest.mark.parametrize("relevant", [False, None])
def test_a_chunk_not_known_to_be_relevant_is_not_excused(relevant):
    assert attribute(-1, 1.0, [cited("a", relevant=relevant)], grounded=False) == {"a": -1.0}


def test_an_ungrounded_answer_that_was_rated_good_credits_as_usual():
    assert attribute(1, 1.0, [cited("a", relevant=True)], grounded=False) == {"a": 1.0}


@pytest.mark.parametrize("polarity", [-1, 1])
def test_without_citations_the_chunks_share_the_vote(polarity):
    credit = attribute(polarity, 1.0, [unknown(key) for key in "abcd"])
    assert credit == dict.fromkeys("abcd", polarity / sqrt(4))


def test_an_excused_chunk_still_shares_the_vote_with_the_others():
    prompt = [unknown("a", relevant=True), *map(unknown, "bcd")]
    assert attribute(-1, 1.0, prompt, grounded=False) == dict.fromkeys("bcd", -0.5)


@pytest.mark.parametrize("polarity", [-1, 0, 1])
def test_a_vote_on_one_source_is_that_sources_alone(polarity):
    prompt = [cited("a", relevant=True), uncited("b")]
    credit = attribute(polarity, 0.5, prompt, target="b", grounded=False)
    assert credit == {"b": polarity * 0.5}


def test_an_answer_that_cites_nothing_credits_nobody_when_good():
    assert attribute(1, 1.0, [uncited("a"), uncited("b")]) == {}
    assert attribute(-1, 1.0, [uncited("a"), uncited("b")]) == {"a": -0.3, "b": -0.3}


def test_one_known_citation_makes_the_others_uncited():
    assert attribute(1, 1.0, [cited("a"), unknown("b")]) == {"a": 1.0}


def test_an_empty_prompt_gets_no_credit():
    assert attribute(1, 1.0, []) == attribute(-1, 1.0, []) == {}


# -- Duplicates and neutral votes


def test_a_chunk_that_stands_twice_in_the_prompt_counts_once():
    assert attribute(1, 1.0, [unknown("a"), unknown("a")]) == {"a": 1.0}
    assert attribute(-1, 1.0, [uncited("a"), cited("a"), uncited("b")]) == {"a": -1.0, "b": -0.3}


def test_a_neutral_vote_takes_the_place_of_a_good_one():
    assert attribute(0, 1.0, [cited("a"), uncited("b")]) == {"a": 0.0}
    assert attribute(0, 1.0, [unknown("a"), unknown("b")]) == {"a": 0.0, "b": 0.0}


def test_zeros_have_no_minus_sign():
    assert str(attribute(-1, 0.0, [cited("a")])) == str(attribute(0, 1.0, [cited("a")]))


@given(weights, chunks, known)
def test_a_neutral_vote_speaks_of_what_a_good_one_would(weight, prompt, grounded):
    neutral = attribute(0, weight, prompt, grounded=grounded)
    assert neutral == dict.fromkeys(attribute(1, weight, prompt, grounded=grounded), 0.0)


@given(polarities, weights, chunks, known)
def test_credit_has_the_votes_sign_and_at_most_its_weight(polarity, weight, prompt, grounded):
    credit = attribute(polarity, weight, prompt, grounded=grounded)
    assert set(credit) <= {chunk.key for chunk in prompt}
    assert all(0 <= polarity * share <= weight for share in credit.values())


@given(polarities, weights, chunks, known, st.randoms())
def test_the_order_of_the_prompt_does_not_matter(polarity, weight, prompt, grounded, random):
    shuffled = random.sample(prompt, len(prompt))
    there, here = (attribute(polarity, weight, p, grounded=grounded) for p in (prompt, shuffled))
    assert there == here


@given(polarities, weights, chunks, known)
def test_a_prompt_twice_over_is_the_same_prompt(polarity, weight, prompt, grounded):
    once, twice = (attribute(polarity, weight, p, grounded=grounded) for p in (prompt, prompt * 2))
    assert once == twice


# -- Bad input


@pytest.mark.parametrize("polarity", [2, -2, 0.5, float("nan")])
def test_a_polarity_is_minus_one_zero_or_one(polarity):
    with pytest.raises(ValueError, match="polarity must be -1, 0 or 1"):
        attribute(polarity, 1.0, [cited("a")])


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf"), "1", None])
def test_a_weight_is_a_number_of_at_least_0(weight):
    with pytest.raises(ValueError, match="weight must be a number of at least 0"):
        attribute(1, weight, [cited("a")])
