import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.ranking.intervals import wilson_interval

COUNTS = st.integers(0, 200)


@given(COUNTS, COUNTS, st.floats(0.1, 4))
def test_it_holds_the_share_and_moves_with_a_further_vote(good, bad, z):
    lower, upper = wilson_interval(good, good + bad, z)
    assert 0 <= lower <= upper <= 1
    if good + bad:
        assert lower - 1e-12 <= good / (good + bad) <= upper + 1e-12
        against = wilson_interval(good, good + bad + 1, z)
        assert against[0] <= lower + 1e-12
        assert against[1] <= upper + 1e-12


@pytest.mark.parametrize(("positive", "votes"), [(0, 20), (3, 30), (7, 50), (20, 20)])
@pytest.mark.parametrize("z", [1.96, 2.58])
def test_its_ends_solve_the_score_equation(positive, votes, z):
    # (share - p)^2 = z^2 p (1 - p) / n, whose two roots they are.
    for end in wilson_interval(positive, votes, z):
        left = (positive / votes - end) ** 2
        assert math.isclose(left, z**2 * end * (1 - end) / votes, abs_tol=1e-9)


def test_published_ends():
    # Newcombe, Statistics in Medicine 17, 1998, table I, method 3.
    published = {(81, 263): 0.2553, (15, 148): 0.0624, (0, 20): 0.0, (1, 29): 0.0061}
    for (good, votes), lower in published.items():
        assert wilson_interval(good, votes)[0] == pytest.approx(lower, abs=5e-5)


def test_impossible_counts_are_refused():
    for positive, votes in ((3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="positive is from"):
            wilson_interval(positive, votes)
