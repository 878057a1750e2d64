"""Conviction, belief, multiplier, decay, local failure and rank fusion."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.ranking.attribution import PromptChunk, attribute
from langchain_feedback.ranking.belief import (
    belief,
    conviction,
    decay,
    local_failure,
    multiplier,
    reciprocal_rank_fusion,
)
from tests.unit_tests.ranking.strategies import ages, evidence, kernel_weights, priors, weights

NAN, INF = float("nan"), float("inf")
ROUNDING = 1e-12
extreme_ratings = st.lists(st.sampled_from([1, 5]), min_size=1, max_size=30)


def close(one, other):
    return np.allclose(one, other, rtol=0, atol=ROUNDING)


# -- Conviction


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [(1, 0, 1 / 3), (2, 0, 1 / 2), (0, 1, -1 / 3), (3, 1, 1 / 3), (5, 5, 0), (0, 0, 0)],
)
def test_two_silent_votes_shrink_each_conviction(positive, negative, expected):
    assert conviction(positive, negative) == pytest.approx(expected)


def test_without_a_prior_no_vote_is_still_no_conviction():
    assert conviction([0.0, 2.0], [0.0, 2.0], prior=0).tolist() == [0.0, 0.0]


@given(weights, weights, priors)
def test_a_conviction_is_bounded_and_odd_in_its_votes(positive, negative, prior):
    value = conviction(positive, negative, prior)
    assert -1 <= value <= 1
    assert value == -conviction(negative, positive, prior)


# -- Belief


def test_belief_by_hand():
    # d is .5 and -.5 under the identical question, 1/3 under one of half the weight.
    positive, negative = [[2.0, 0.0], [1.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]
    said = belief([1.0, 0.5], positive, negative)
    assert said == pytest.approx([1 - (1 - 1 / 2) * (1 - 1 / 6), -1 / 2])


def test_no_past_question_is_no_belief():
    nothing = np.zeros((0, 3))
    assert belief(np.zeros(0), nothing, nothing).tolist() == [0.0, 0.0, 0.0]


@given(evidence(), priors)
def test_belief_is_bounded(said, prior):
    assert (abs(belief(*said, prior)) <= 1).all()


@given(evidence(), priors)
def test_belief_is_exactly_neutral_without_evidence(said, prior):
    silent = np.zeros_like(said.positive)
    assert not belief(said.kernel, silent, silent, prior).any()
    assert not belief(np.zeros_like(said.kernel), said.positive, said.negative, prior).any()


@given(evidence(), priors)
def test_belief_has_the_sign_of_evidence_that_is_all_of_one_kind(said, prior):
    none = np.zeros_like(said.positive)
    assert (belief(said.kernel, said.positive, none, prior) >= 0).all()
    assert (belief(said.kernel, none, said.negative, prior) <= 0).all()


@given(evidence(), priors, st.data())
def test_belief_never_falls_with_a_good_vote_nor_rises_with_a_bad_one(said, prior, data):
    more = data.draw(weights, label="vote")
    before = belief(*said, prior)
    assert (
        belief(said.kernel, said.positive + more, said.negative, prior) >= before - ROUNDING
    ).all()
    assert (
        belief(said.kernel, said.positive, said.negative + more, prior) <= before + ROUNDING
    ).all()


@given(evidence(), priors)
def test_belief_turns_around_when_the_votes_do(said, prior):
    turned = belief(said.kernel, said.negative, said.positive, prior)
    assert close(turned, -belief(*said, prior))


@given(evidence(), priors, st.randoms())
def test_the_order_of_questions_and_of_chunks_does_not_matter(said, prior, random):
    questions, chunks = said.positive.shape
    rows, columns = (random.sample(range(n), n) for n in (questions, chunks))
    rows = np.array(rows, dtype=int)
    shuffled = belief(
        said.kernel[rows],
        said.positive[rows][:, columns],
        said.negative[rows][:, columns],
        prior,
    )
    assert close(shuffled, belief(*said, prior)[columns])


@given(evidence(), priors, kernel_weights, weights, weights)
def test_one_past_question_moves_belief_by_at_most_k_of_its_conviction(said, prior, k, pos, neg):
    chunks = said.positive.shape[1]
    with_it = belief(
        np.append(said.kernel, k),
        np.vstack([said.positive, np.full((1, chunks), pos)]),
        np.vstack([said.negative, np.full((1, chunks), neg)]),
        prior,
    )
    moved = abs(with_it - belief(*said, prior))
    assert (moved <= k * abs(conviction(pos, neg, prior)) + ROUNDING).all()


def test_a_million_votes_under_a_distant_question_stay_within_its_kernel_weight():
    assert abs(belief([0.1], [[0.0]], [[1e6]])[0]) <= 0.1


# -- Multiplier


@given(extreme_ratings, st.integers(1, 6))
def test_the_classic_rule_comes_out_of_ratings_of_one_and_five(ratings, chunks):
    prompt = [PromptChunk(key, cited=None, relevant=None) for key in range(chunks)]
    shares = [attribute(1 if rating == 5 else -1, 1.0, prompt)[0] for rating in ratings]
    fresh = decay(np.zeros(len(ratings)), half_life=None)
    positive = float(fresh @ np.maximum(shares, 0))
    negative = float(fresh @ np.maximum(np.negative(shares), 0))
    said = belief([1.0], [[positive]], [[negative]], prior=0)
    assert close(multiplier(said), np.mean(ratings) / 3)


def test_a07_one_rating_of_five_is_1_667_and_not_its_square():
    positive, negative = np.array([[1.0]]), np.array([[0.0]])
    for _ in range(2):
        said = belief([1.0], positive, negative, prior=0)
        assert multiplier(said).round(3).tolist() == [1.667]
    assert positive.tolist() == [[1.0]]


@given(st.floats(-1, 1))
def test_a_multiplier_is_from_a_third_to_five_thirds(said):
    assert 1 / 3 - ROUNDING <= multiplier(said) <= 5 / 3 + ROUNDING


# -- Decay


def test_half_is_left_after_the_half_life():
    assert decay([0, 30, 60], half_life=30).tolist() == [1.0, 0.5, 0.25]


def test_without_a_half_life_votes_do_not_age():
    assert decay([0, 1e6], half_life=None).tolist() == [1.0, 1.0]


@given(ages, ages, st.floats(0.1, 1000))
def test_a_weight_never_grows_with_age(age, later, half_life):
    first, second = decay(sorted([age, age + abs(later)]), half_life)
    assert 0 <= second <= first <= 1


@given(st.floats(0, 200), st.floats(0, 200), st.floats(1, 1000))
def test_aging_in_two_steps_is_aging_in_one(one, other, half_life):
    stepwise = decay(one, half_life) * decay(other, half_life)
    assert np.isclose(stepwise, decay(one + other, half_life), rtol=1e-9)


# -- Local failure


def test_local_failure_by_hand():
    assert local_failure([1.0, 0.5], [1.0, 0.0], [0.0, 2.0]) == pytest.approx(2 / 4)


def test_under_half_an_observation_nothing_is_known():
    assert local_failure([], [], []) is None
    assert local_failure([0.25], [1.0], [0.99]) is None
    assert local_failure([0.25], [1.0], [1.0]) == pytest.approx(1.25 / 2.5)


def test_one_bad_outcome_is_over_the_widening_mark_and_a_good_one_takes_it_back():
    assert local_failure([1.0], [0.0], [1.0]) > 0.6
    assert local_failure([1.0], [1.0], [1.0]) < 0.6


@given(st.lists(st.tuples(kernel_weights, weights, weights), min_size=1, max_size=6))
def test_local_failure_is_a_share_that_rises_with_failures(rows):
    kernel, good, bad = map(np.array, zip(*rows, strict=True))
    share, worse = local_failure(kernel, good, bad), local_failure(kernel, good, bad + 1)
    if share is not None:
        assert 0 < share < 1
        assert worse >= share - ROUNDING


# -- Reciprocal rank fusion


def test_fusion_by_hand():
    fused = reciprocal_rank_fusion([["a", "b"], ["b", "c"]])
    assert list(fused) == ["b", "a", "c"]
    assert fused["b"] == pytest.approx(1 / 62 + 1 / 61)


def test_equal_things_keep_the_order_in_which_they_were_seen():
    assert list(reciprocal_rank_fusion([["a"], ["b"], ["c"]])) == ["a", "b", "c"]


def test_a_thing_twice_in_one_ranking_counts_where_it_stands_first():
    assert reciprocal_rank_fusion([["a", "a", "b"]]) == reciprocal_rank_fusion([["a", "b"]])


def test_nothing_fused_is_nothing():
    assert reciprocal_rank_fusion([]) == reciprocal_rank_fusion([[], []]) == {}


def test_the_order_of_the_rankings_does_not_change_a_score():
    rankings = [list("abcde"), list("ecab"), list("dbeca"), list("cd")]
    fused = [reciprocal_rank_fusion(order) for order in permutations(rankings)]
    assert all(scores == fused[0] for scores in fused)


@given(st.lists(st.permutations("abcd"), min_size=1, max_size=5))
def test_what_is_first_everywhere_comes_first(rankings):
    with_favorite = [["favorite", *ranking] for ranking in rankings]
    assert next(iter(reciprocal_rank_fusion(with_favorite))) == "favorite"


# -- Bad input


@pytest.mark.parametrize("bad", [-1.0, NAN, INF])
def test_votes_are_finite_and_not_negative(bad):
    with pytest.raises(ValueError, match="negative must be"):
        conviction([0.0], [bad])
    with pytest.raises(ValueError, match="positive must be"):
        belief([1.0], [[bad]], [[0.0]])
    with pytest.raises(ValueError, match="positive must be"):
        local_failure([1.0], [bad], [0.0])


@pytest.mark.parametrize("bad", [-0.1, NAN, INF, "2", None])
def test_a_prior_is_a_number_of_at_least_0(bad):
    with pytest.raises(ValueError, match="prior must be a number of at least 0"):
        conviction([1.0], [0.0], prior=bad)


@pytest.mark.parametrize("bad", [-0.1, 1.1, NAN])
def test_kernel_weights_are_from_0_to_1(bad):
    with pytest.raises(ValueError, match="weights must be"):
        belief([bad], [[0.0]], [[0.0]])
    with pytest.raises(ValueError, match="weights must be"):
        local_failure([bad], [0.0], [0.0])


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"one shape: positive \(2,\), negative \(1,\)"):
        conviction([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match=r"kernel_weights \(2,\), rows_of_positive \(1,\)"):
        belief([1.0, 1.0], [[1.0]], [[1.0]])
    with pytest.raises(ValueError, match="positive must have 2 dimension"):
        belief([1.0], [1.0], [1.0])
    with pytest.raises(ValueError, match="one shape"):
        local_failure([1.0], [1.0, 1.0], [1.0, 1.0])


def test_other_numbers_out_of_range_are_named():
    with pytest.raises(ValueError, match="belief must be from -1 to 1"):
        multiplier([1.5])
    with pytest.raises(ValueError, match="age_days must be finite"):
        decay([NAN], 90)
    with pytest.raises(ValueError, match="constant must be"):
        reciprocal_rank_fusion([["a"]], constant=-1)
    with pytest.raises(ValueError, match="positive must be an array of numbers"):
        conviction(["many"], [0.0])


@pytest.mark.parametrize("half_life", [0, -1, NAN, "90"])
def test_a_half_life_is_above_0(half_life):
    with pytest.raises(ValueError, match="half_life must be"):
        decay([1.0], half_life)
