"""How many questions an experiment needs: against the formulas' own behavior, and by trying."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.loop._experiments.tests_of import design_effect, preference, two_rates
from langchain_feedback.loop.experiments import needed_questions

effects = st.floats(0.5, 20)
rates = st.floats(0.05, 0.7)


def test_the_designs_table_is_met():
    # Half and a tenth of the people look, and 63 % of them open something.
    for effect, engaged, table in (
        (5, 0.31, 1_400), (5, 0.063, 6_400), (2, 0.31, 3_100), (2, 0.063, 16_900),
    ):  # fmt: skip
        needed = needed_questions("interleave", effect=effect, engaged=engaged)
        assert needed == pytest.approx(table, rel=0.2)
    for effect, table in ((5, 500), (2, 1_200)):
        needed = needed_questions("interleave", credit="citations", effect=effect)
        assert needed == pytest.approx(table, rel=0.2)
    # Right chunks are shown in .8 of the questions, and clicked by .4: success is .32.
    for effect, table in ((2, 17_300), (0.8, 110_000)):
        assert needed_questions("ab", effect=effect, base_rate=0.32) == pytest.approx(
            table, rel=0.2
        )


@given(effects, rates, st.floats(0.05, 1))
def test_less_to_find_or_fewer_who_tell_need_more(effect, rate, engaged):
    for kind, credit in (("interleave", "clicks"), ("ab", "ratings")):
        settings = {"credit": credit, "base_rate": rate}
        needed = needed_questions(kind, effect=effect, engaged=engaged, **settings)
        assert needed_questions(kind, effect=effect / 2, engaged=engaged, **settings) > needed
        assert needed_questions(kind, effect=effect, engaged=engaged / 2, **settings) > needed
        surer = needed_questions(kind, effect=effect, engaged=engaged, power=0.95, **settings)
        assert surer > needed
        assert needed_questions(
            kind, effect=effect, engaged=engaged, design=3, **settings
        ) == pytest.approx(3 * needed, abs=3)


@given(rates, st.floats(0.05, 0.95))
def test_halves_need_the_least(rate, share):
    halves = needed_questions("ab", effect=5, base_rate=rate)
    assert needed_questions("ab", effect=5, base_rate=rate, share=share) >= 0.9 * halves


def test_that_many_find_it_in_four_of_five():
    rng = np.random.default_rng(0)
    number = needed_questions("ab", effect=10, base_rate=0.3) // 2
    found = 0
    for _ in range(300):
        arms = [
            [(f"{arm}{at}", bool(good)) for at, good in enumerate(rng.random(number) < rate)]
            for arm, rate in (("a", 0.3), ("b", 0.4))
        ]
        found += two_rates(*arms).winner(0.05) == "b"
    assert 0.72 <= found / 300 <= 0.88


def test_that_many_find_it_in_a_draft_too_however_unequally_people_click():
    # Half of the people never click: what they do is very much alike, and costs no power.
    rng = np.random.default_rng(0)
    people, clicks, tells = 84, 0.5, 0.2
    number = needed_questions("interleave", engaged=clicks, effect=5) // people
    # The share of b's of what tells something, so that a sign test finds it in four of five.
    lean = 0.5 + np.sqrt(7.85 * clicks * tells / (number * people)) / (clicks * tells) / 2
    found = 0
    for _ in range(300):
        told = rng.random((people, number)) < tells
        told[::2] = False
        signs = told * np.where(rng.random(told.shape) < lean, 1, -1)
        said = [(f"u{at}", sign) for at, row in enumerate(signs.tolist()) for sign in row]
        found += preference(said).winner(0.05) == "b"
    assert 0.7 <= found / 300 <= 0.88


def test_a_design_below_one_is_refused():
    with pytest.raises(ValueError, match="design must be at least 1"):
        needed_questions("ab", design=0.5)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=30))
def test_the_design_effect_is_at_least_one_and_finite(outcomes):
    assert 1 <= design_effect(outcomes) <= max(1, len(outcomes))


signs = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([-1, 0, 1])), max_size=40)


@given(signs)
def test_a_preference_is_symmetric_and_whole(outcomes):
    found = preference(outcomes)
    other = preference([(person, -sign) for person, sign in outcomes])
    assert (other.value, other.p, other.people) == (-found.value, found.p, found.people)
    assert -1 <= found.value <= 1
    assert found.low <= found.value <= found.high
    assert 0 <= found.p <= 1
    # However much one person clicks, he alone is one person.
    assert found.people <= 8


answers = st.lists(
    st.tuples(st.sampled_from([f"u{at}" for at in range(30)]), st.booleans()), max_size=80
)


@given(answers, answers, st.sampled_from([0.001, 0.01, 0.05, 0.2]))
def test_rates_are_compared_the_same_either_way_and_the_interval_agrees(a, b, alpha):
    found = two_rates(a, b, alpha=alpha, deals=999)
    other = two_rates(b[::-1], a[::-1], alpha=alpha, deals=999)
    assert (other.value, other.p, other.people) == (-found.value, found.p, found.people)
    assert (other.low, other.high) == (-found.high, -found.low)
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert 0 < found.p <= 1
    if found.p <= alpha:
        assert found.low > 0 or found.high < 0
    else:
        assert found.low <= 1e-9
        assert found.high >= -1e-9


def test_few_people_are_divided_in_all_ways():
    # Of the 252 ways to divide ten, two are as far apart as all against none.
    all_, none = ([(f"{arm}{at}", arm == "b") for at in range(5)] for arm in "ba")
    assert two_rates(none, all_).p == pytest.approx(2 / 252, abs=0.003)
    assert two_rates(none, all_).winner(0.05) is None  # too few to speak for others


@given(signs)
def test_rates_of_nobody_and_of_everybody_are_handled(outcomes):
    told = [(person, sign > 0) for person, sign in outcomes]
    found = two_rates(told, [])
    assert found.winner(0.05) is None
    assert found.low <= found.value <= found.high
    assert two_rates(told, told).value == 0
