"""The team draft: what every list must be, and that it favors neither side."""

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.ranking.interleave import arm_of, coins, team_draft

SEEDS = [f"trace-{at}" for at in range(2_000)]
rankings = st.lists(st.integers(0, 12), max_size=12)


def teams(drawn):
    return Counter(one.team for one in drawn)


@given(rankings, rankings, st.integers(0, 15), st.text(max_size=8))
def test_a_list_holds_each_key_once_and_as_many_as_there_are(a, b, k, seed):
    drawn = [one.key for one in team_draft(a, b, k, seed=seed)]
    assert len(drawn) == len(set(drawn)) == min(k, len({*a, *b}))
    assert set(drawn) <= {*a, *b}


@given(rankings, rankings, st.integers(0, 15), st.text(max_size=8))
def test_the_two_have_as_many_picks_but_for_a_round_that_is_cut(a, b, k, seed):
    drawn = team_draft(a, b, k, seed=seed)
    picks = teams(drawn)
    assert abs(picks["a"] - picks["b"]) <= 1
    whole = team_draft(a, b, len({*a, *b}), seed=seed)
    assert teams(whole)["a"] == teams(whole)["b"]
    # A shorter list is the beginning of a longer one.
    assert drawn == whole[:k]


@given(rankings, rankings, st.text(max_size=8))
def test_each_side_picks_in_its_own_order(a, b, seed):
    drawn = team_draft(a, b, 30, seed=seed)
    for side, order in (("a", a), ("b", b)):
        places = [order.index(one.key) for one in drawn if one.team in (side, "both")]
        assert places == sorted(places)


@given(rankings, st.integers(0, 15), st.text(max_size=8))
def test_two_that_agree_give_their_own_order_which_says_nothing_of_them(a, k, seed):
    drawn = team_draft(a, a, k, seed=seed)
    assert [one.key for one in drawn] == list(dict.fromkeys(a))[:k]
    assert {one.team for one in drawn} <= {"both"}


@given(rankings, rankings, st.text(max_size=8))
def test_the_same_seed_gives_the_same_list(a, b, seed):
    assert team_draft(a, b, 9, seed=seed) == team_draft(a, b, 9, seed=seed)


def test_the_coin_decides_who_comes_first_as_often_as_not():
    firsts = Counter(team_draft("xyz", "uvw", 6, seed=seed)[0].team for seed in SEEDS)
    # Four standard errors of 2,000 throws.
    assert abs(firsts["a"] - firsts["b"]) < 4 * math.sqrt(len(SEEDS))


@pytest.mark.parametrize(("a", "b"), [("xyz", "zyx"), ("xy", "yzuvw"), ("wxyz", "xwzy")])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_who_clicks_a_place_at_random_prefers_neither(a, b, k):
    net = [0] * k
    for seed in SEEDS:
        for place, one in enumerate(team_draft(a, b, k, seed=seed)):
            net[place] += (one.team == "b") - (one.team == "a")
    assert all(abs(at) < 4 * math.sqrt(len(SEEDS)) for at in net)


def test_a_swapped_pair_is_credited_to_the_one_that_had_it_first():
    for seed in SEEDS[:40]:
        drawn = {one.key: one.team for one in team_draft("xy", "yx", 2, seed=seed)}
        assert drawn == {"x": "a", "y": "b"}


def test_what_one_side_has_left_is_nobodys():
    drawn = team_draft("x", "yxuvw", 9, seed="t")
    assert {one.key: one.team for one in drawn} == {
        "x": "a", "y": "b", "u": None, "v": None, "w": None,
    }  # fmt: skip
    assert [one.team for one in team_draft("", "yx", 9, seed="t")] == [None, None]


def test_agreement_at_one_moment_says_nothing_and_costs_no_turn():
    drawn = team_draft("xyz", "xzy", 3, seed="t")
    assert (drawn[0].key, drawn[0].team) == ("x", "both")
    assert teams(drawn) == {"both": 1, "a": 1, "b": 1}


def test_a_list_of_no_places_is_empty_and_fewer_are_refused():
    assert team_draft("xy", "yx", 0, seed="t") == []
    with pytest.raises(ValueError, match="k must be at least 0, got -1"):
        team_draft("xy", "yx", -1, seed="t")


def test_coins_are_fair_independent_and_never_end():
    flips = coins("t")
    thrown = [next(flips) for _ in range(10_000)]
    assert abs(sum(thrown) - 5_000) < 4 * 50
    repeats = sum(one == two for one, two in pairwise(thrown))
    assert abs(repeats - 5_000) < 4 * 50


def test_seeds_that_resemble_each_other_throw_other_coins():
    thrown = []
    for seed in ("t/1", "t/2", "t/11"):
        flips = coins(seed)
        thrown.append([next(flips) for _ in range(64)])
    assert thrown[0] != thrown[1] != thrown[2]
    assert 16 < sum(one == two for one, two in zip(thrown[0], thrown[1], strict=True)) < 48


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_people_are_divided_by_their_share(share):
    given_b = sum(arm_of("e", f"user-{at}", share) == "b" for at in range(10_000))
    assert abs(given_b - share * 10_000) <= 4 * math.sqrt(share * (1 - share) * 10_000)


def test_a_person_stays_where_he_is_and_another_experiment_divides_anew():
    people = [f"user-{at}" for at in range(4_000)]
    first = [arm_of("e1", one) for one in people]
    assert first == [arm_of("e1", one) for one in people]
    both = Counter(zip(first, (arm_of("e2", one) for one in people), strict=True))
    assert all(abs(count - 1_000) < 4 * 28 for count in both.values())
    # Who got `b` of a tenth gets it of a half, too: a share may grow.
    assert all(arm_of("e", one, 0.5) == "b" for one in people if arm_of("e", one, 0.1) == "b")


def test_no_choice_of_names_imitates_another_experiment():
    arms = {arm_of("e" * at, "e" * (40 - at) + "user") for at in range(40)}
    assert arms == {"a", "b"}


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="share must be from 0 to 1"):
        arm_of("e", "user", share)
