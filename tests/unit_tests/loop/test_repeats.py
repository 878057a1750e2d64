"""Questions asked before and after a moment: which pairs count, and what they say."""

from datetime import UTC, datetime, timedelta
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.loop.repeats import mcnemar, repeat_win_rate
from langchain_feedback.ranking.kernels import ExactKernel, LinearKernel
from tests.unit_tests.loop.kit import asked, said

MOMENT = datetime(2026, 11, 2, 12, tzinfo=UTC)
BEFORE, AFTER = MOMENT - timedelta(days=2), MOMENT + timedelta(days=2)
NOW = MOMENT + timedelta(days=10)
GOOD = {"cited": ["c"], "grounded": True, "status": "answered"}
BAD = {"status": "answered", "grounded": False, "cited": []}
VECTORS = {"same": [1.0, 0.0], "near": [0.999, 0.045], "far": [0.98, 0.199]}


def report(store, **kwargs):
    return repeat_win_rate(store, MOMENT, **{"now": NOW} | kwargs)


def pair(store, question, before, after, vectors=(None, None)):
    asked(store, question, ["c"], at=BEFORE, vector=vectors[0], **before)
    second = question if vectors[1] is None else f"{question} reworded"
    asked(store, second, ["c"], at=AFTER, vector=vectors[1], **after)


def counts(found):
    return found.pairs, found.won, found.lost


def test_an_identical_question_is_compared_with_itself(store):
    pair(store, "won?", BAD, GOOD)
    pair(store, "lost?", GOOD, BAD)
    pair(store, "both?", GOOD, GOOD)
    asked(store, "only before?", ["c"], at=BEFORE, **GOOD)
    asked(store, "only after?", ["c"], at=AFTER, **GOOD)
    assert counts(report(store)) == (3, 1, 1)
    assert counts(report(store.scoped("other"))) == (0, 0, 0)


def test_a_question_reworded_is_the_same_from_a_kernel_of_95_percent_on(store):
    pair(store, "near?", BAD, GOOD, (VECTORS["same"], VECTORS["near"]))
    assert counts(report(store)) == (1, 1, 0)
    assert counts(report(store, kernel=ExactKernel())) == (0, 0, 0)


def test_a_question_further_away_is_another_one(store):
    pair(store, "far?", BAD, GOOD, (VECTORS["same"], VECTORS["far"]))
    assert counts(report(store)) == (0, 0, 0)
    assert counts(report(store, kernel=LinearKernel(floor=0.1))) == (1, 1, 0)


def test_a_question_asked_often_counts_once_by_the_times_next_to_the_moment(store):
    for days, facts in ((5, GOOD), (3, GOOD), (1, BAD)):
        asked(store, "often?", ["c"], at=MOMENT - timedelta(days=days), **facts)
    for days, facts in ((1, GOOD), (2, BAD), (3, BAD)):
        asked(store, "often?", ["c"], at=MOMENT + timedelta(days=days), **facts)
    assert counts(report(store)) == (1, 1, 0)


def test_what_somebody_says_is_stronger_than_what_was_verified(store):
    asked(store, "said?", ["c"], at=BEFORE, **GOOD, trace_id="t1")
    said(store, "t1", "thumbs_down")
    asked(store, "said?", ["c"], at=AFTER, **BAD, trace_id="t2")
    said(store, "t2", "rating", rating=5)
    assert counts(report(store)) == (1, 1, 0)


def test_an_abstention_is_no_success_and_of_silence_nothing_is_known(store):
    pair(store, "abstained?", {"status": "abstained"}, GOOD)
    pair(store, "silent?", {"status": "answered"}, GOOD)
    pair(store, "unproved?", {"status": "answered", "cited": [], "grounded": True}, GOOD)
    pair(store, "unverified?", {"status": "answered", "cited": ["c"]}, GOOD)
    assert counts(report(store)) == (3, 3, 0)


def test_only_the_days_on_either_side_and_no_tests_count(store):
    pair(store, "in time?", BAD, GOOD)
    assert counts(report(store, days=1)) == (0, 0, 0)
    assert counts(report(store, days=2.5)) == (1, 1, 0)
    assert counts(report(store, now=MOMENT + timedelta(days=1))) == (0, 0, 0)
    pair(store, "a test?", BAD | {"traffic": "eval"}, GOOD)
    assert counts(report(store)) == (1, 1, 0)


def test_below_thirty_that_differ_no_rate_is_told(store):
    for at in range(29):
        pair(store, f"question {at}?", *((BAD, GOOD) if at < 20 else (GOOD, BAD)))
    few = report(store)
    assert (few.win_rate, few.p) == (None, None)
    assert few.why.startswith("Too few: 29 of 29 repeated questions fared differently, and 30 are")
    pair(store, "the thirtieth?", BAD, GOOD)
    enough = report(store)
    assert (enough.won, enough.lost, enough.win_rate) == (21, 9, 0.7)
    assert enough.p == mcnemar(21, 9) == pytest.approx(0.0428, abs=1e-4)
    assert enough.why.endswith(
        "Nobody was drawn by lot: what else changed at that time is in it, too."
    )


def test_settings_that_cannot_work_are_refused(store):
    with pytest.raises(ValueError, match="days must be above 0"):
        report(store, days=0)
    with pytest.raises(ValueError, match="since needs a zone"):
        repeat_win_rate(store, MOMENT.replace(tzinfo=None))


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_twice_the_tail_of_a_fair_coin(won, lost):
    number, most = won + lost, max(won, lost)
    tail = sum(comb(number, at) for at in range(most, number + 1)) / 2**number
    assert mcnemar(won, lost) == pytest.approx(min(1, 2 * tail))
    assert mcnemar(won, lost) == mcnemar(lost, won)


def test_mcnemar_of_very_many_pairs_is_still_a_number():
    assert mcnemar(5_000, 5_000) == 1
    assert 0 <= mcnemar(4_000, 6_000) < 1e-80
    with pytest.raises(ValueError, match="at least 0"):
        mcnemar(-1, 3)
