"""The selection against an exact oracle, and at its edges."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_feedback.ranking import _facility
from langchain_feedback.ranking.dartboard import cosine_distances, select
from tests.exact_dartboard import assert_exact, exact_gains

SIGMAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0)


def pools(rng, size=None):
    """Make a pool with what goes wrong: copies, near copies, ties, a question far away."""
    size = size or int(rng.integers(1, 12))
    vectors = rng.normal(size=(size, int(rng.integers(2, 6))))
    if rng.random() < 0.5:
        vectors = vectors[rng.integers(0, size, size)]
    if rng.random() < 0.3:
        vectors = vectors + 10.0 ** -rng.integers(3, 14) * rng.normal(size=vectors.shape)
    if rng.random() < 0.3:
        vectors = np.round(vectors) + (np.round(vectors) == 0).all(axis=1)[:, None]
    return cosine_distances(rng.normal(size=vectors.shape[1]), vectors)


@pytest.mark.parametrize("seed", range(40))
def test_the_order_is_the_exact_one_at_every_sigma(seed):
    rng = np.random.default_rng(seed)
    to_query, between = pools(rng)
    for sigma in SIGMAS:
        assert_exact(select(to_query, between, 12, sigma=sigma), to_query, between, sigma)


@pytest.mark.parametrize("kept", [0, 100])
@pytest.mark.parametrize("seed", range(20))
def test_the_ways_of_large_pools_are_as_exact(seed, kept, monkeypatch):
    limits = {"_DENSE": 0, "_KEPT": kept, "_BATCH": 2, "_BLOCK": 16}
    for name, value in limits.items():
        monkeypatch.setattr(_facility, name, value)
    rng = np.random.default_rng(100 + seed)
    to_query, between = pools(rng)
    for sigma in SIGMAS:
        assert_exact(select(to_query, between, 12, sigma=sigma), to_query, between, sigma)


@pytest.mark.parametrize("sigma", [0.001, 0.1, 5.0])
def test_a_pool_of_150_with_copies_is_exact(sigma):
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(50, 6))[np.arange(150) % 50]
    to_query, between = cosine_distances(rng.normal(size=6), vectors)
    assert_exact(select(to_query, between, 8, sigma=sigma), to_query, between, sigma)


@pytest.mark.parametrize("sigma", [0.03, 0.3])
def test_a_whole_pool_of_90_is_exact_to_the_end(sigma):
    rng = np.random.default_rng(9)
    to_query, between = cosine_distances(rng.normal(size=5), rng.normal(size=(90, 5)))
    assert_exact(select(to_query, between, 90, sigma=sigma), to_query, between, sigma)


def test_large_pools_select_as_small_ones_do(monkeypatch):
    rng = np.random.default_rng(6)
    centers = rng.normal(size=(90, 32))
    vectors = centers[np.arange(700) % 90] + 0.5 * rng.normal(size=(700, 32))
    to_query, between = cosine_distances(centers[0], vectors)
    for sigma in (0.01, 0.1, 1.0):
        lazily = select(to_query, between, 40, sigma=sigma)
        with monkeypatch.context() as patch:
            patch.setattr(_facility, "_DENSE", 1000)
            patch.setattr(_facility, "_KEPT", 1000)
            densely = select(to_query, between, 40, sigma=sigma)
        assert lazily.indices.tolist() == densely.indices.tolist()
        np.testing.assert_allclose(lazily.gains, densely.gains, rtol=1e-9)


def test_weights_and_multiplicity_are_exact_too():
    rng = np.random.default_rng(3)
    for _ in range(20):
        to_query, between = pools(rng)
        settings = {
            "relevance_weight": float(rng.choice([0, 0.5, 2])),
            "diversity_weight": float(rng.choice([0.25, 1, 3])),
            "multiplicity": rng.integers(1, 9, to_query.size),
        }
        selection = select(to_query, between, 12, sigma=0.1, **settings)
        assert_exact(selection, to_query, between, 0.1, **settings)


def test_the_published_loop_lets_a_copy_win_where_this_does_not():
    """Copies of the best text leave every other gain below the rounding of the total."""
    vectors = np.array([[1.0, 0.1]] * 5 + [[0.2, 1.0]])
    to_query, between = cosine_distances([1.0, 0.0], vectors)
    assert loop(to_query, between, 2, 0.05)[1] in range(5)
    chosen = select(to_query, between, 2, sigma=0.05)
    assert chosen.indices.tolist() == [0, 5]
    assert chosen.gains[1] > 0


def loop(to_query, between, k, sigma):
    """Greedy by the logarithm of the total: the loop in circulation, in a few lines."""
    log_weights, log_kernel = -(to_query**2) / 2 / sigma**2, -(between**2) / 2 / sigma**2
    chosen = [int(log_weights.argmax())]
    covered = log_kernel[chosen[0]]
    while len(chosen) < k:
        totals = np.logaddexp.reduce(np.maximum(covered, log_kernel) + log_weights, axis=1)
        totals[chosen] = -np.inf
        chosen.append(int(totals.argmax()))
        covered = np.maximum(covered, log_kernel[chosen[-1]])
    return chosen


# -- edges


def test_a10_more_than_there_are_none_and_fewer():
    to_query, between = cosine_distances([1, 0], [[1, 0], [0, 1], [1, 1]])
    assert sorted(select(to_query, between, 10).indices.tolist()) == [0, 1, 2]
    assert select(to_query, between, 0).indices.tolist() == []
    assert [part.tolist() for part in select([], [], 3)] == [[], []]
    assert select([], np.empty((0, 0)), 3).gains.shape == (0,)
    assert select([0.5], [[0.0]], 1).indices.tolist() == [0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": -1}, "k must be 0 or more"),
        ({"sigma": 0}, "sigma must be"),
        ({"sigma": float("nan")}, "sigma must be"),
        ({"sigma": 1e200}, "sigma must be a number from 1e-09 to 1e\\+09, got 1e\\+200"),
        ({"sigma": float("inf")}, "sigma must be"),
        ({"relevance_weight": -1}, "relevance_weight must be"),
        ({"diversity_weight": float("inf")}, "diversity_weight must be"),
        ({"multiplicity": [1]}, "multiplicity must hold 2"),
        ({"multiplicity": [1, 0]}, "multiplicity must hold 2"),
        ({"pair_distances": [[0, 1]]}, r"\(n, n\)"),
        ({"query_distances": [[0, 1]]}, r"\(n,\)"),
    ],
)
def test_a10_bad_input_is_refused_with_what_is_wrong(change, message):
    good = {"query_distances": [0.1, 0.2], "pair_distances": [[0, 1], [1, 0]], "k": 2}
    with pytest.raises(ValueError, match=message):
        select(**good | change)


def test_k_that_is_no_number_is_a_type_error():
    with pytest.raises(TypeError):
        select([0.1], [[0]], 1.5)


def test_a10_texts_without_a_distance_come_last():
    vectors = [[0, 0], [1, 0], [np.nan, 1], [0, 1], [np.inf, 0]]
    to_query, between = cosine_distances([1, 1], vectors)
    selection = select(to_query, between, 5)
    assert sorted(selection.indices[:2].tolist()) == [1, 3]
    assert selection.indices[2:].tolist() == [0, 2, 4]
    assert selection.gains[2:].tolist() == [0, 0, 0]
    alone = select(*cosine_distances([1, 1], [vectors[1], vectors[3]]), 2)
    np.testing.assert_array_equal(selection.gains[:2], alone.gains)


def test_a_pair_without_a_distance_puts_both_last():
    between = np.array([[0, np.nan, 0.5], [np.nan, 0, 0.5], [0.5, 0.5, 0]])
    assert select([0.1, 0.1, 0.9], between, 3).indices.tolist() == [2, 0, 1]


def test_a_question_without_a_vector_keeps_the_pool_order():
    to_query, between = cosine_distances([0, 0], [[1, 0], [0, 1]])
    assert np.isnan(to_query).all()
    selection = select(to_query, between, 2)
    assert (selection.indices.tolist(), selection.gains.tolist()) == ([0, 1], [0, 0])


def test_distances_outside_their_range_are_clipped():
    selection = select([-1e-16, 2.1], [[-1e-16, 2.5], [2.5, 0]], 2)
    same = select([0, 2], [[0, 2], [2, 0]], 2)
    assert selection.indices.tolist() == same.indices.tolist()
    np.testing.assert_array_equal(selection.gains, same.gains)


def test_inputs_are_not_changed():
    to_query, between = cosine_distances([1, 0], [[1, 0], [0, 1], [np.nan, 0]])
    before = to_query.copy(), between.copy()
    select(to_query, between, 3)
    np.testing.assert_array_equal(to_query, before[0])
    np.testing.assert_array_equal(between, before[1])


def test_copies_have_exactly_equal_distances_and_others_keep_their_length_out():
    rng = np.random.default_rng(1)
    unique = rng.normal(size=(40, 384))
    to_query, between = cosine_distances(rng.normal(size=384), np.vstack([unique] * 5))
    assert (between.reshape(5, 40, 5, 40) == between[:40, :40][None, :, None]).all()
    assert (to_query.reshape(5, 40) == to_query[:40]).all()
    assert (np.diagonal(between) == 0).all()
    longer, _ = cosine_distances([1, 2], [[1e-300, 3e-300], [3e300, 1e300]])
    np.testing.assert_allclose(longer, cosine_distances([1, 2], [[1, 3], [3, 1]])[0])


def test_vectors_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="same embeddings"):
        cosine_distances([1, 0, 0], [[1, 0]])


# -- properties

VECTORS = st.lists(st.tuples(*[st.integers(-3, 3)] * 3).filter(any), min_size=1, max_size=9).map(
    np.array
)


@given(VECTORS, st.tuples(*[st.integers(-3, 3)] * 3).filter(any), st.data())
def test_permuting_the_pool_permutes_the_selection(vectors, question, data):
    sigma = data.draw(st.sampled_from(SIGMAS))
    to_query, between = cosine_distances(question, vectors)
    order = data.draw(st.permutations(range(len(vectors))))
    selection = select(to_query, between, len(vectors), sigma=sigma)
    permuted = select(to_query[order], between[np.ix_(order, order)], len(vectors), sigma=sigma)
    assert_exact(permuted, to_query[order], between[np.ix_(order, order)], sigma)
    steps = exact_gains(to_query, between, selection.indices.tolist(), sigma)
    distinct = itertools.takewhile(lambda s: s[3] < s[1] * (1 - type(s[1])("1e-11")), steps)
    untied = len(list(distinct))  # after a tie each order goes its own way
    again = [order[at] for at in permuted.indices]
    assert again[:untied] == selection.indices[:untied].tolist()
    np.testing.assert_allclose(permuted.gains[:untied], selection.gains[:untied], rtol=1e-9)


@given(VECTORS, st.tuples(*[st.integers(-3, 3)] * 3).filter(any), st.data())
def test_a_copy_is_never_chosen_while_a_distinct_text_gains(vectors, question, data):
    sigma = data.draw(st.sampled_from(SIGMAS))
    place = data.draw(st.lists(st.integers(0, len(vectors) - 1), min_size=1, max_size=14))
    to_query, between = cosine_distances(question, vectors[place])
    selection = select(to_query, between, len(place), sigma=sigma)
    seen, left = set(), list(range(len(place)))
    for at in selection.indices.tolist():
        copied = any(between[at, before] == 0 for before in seen)
        if copied:
            assert all(any(between[other, b] == 0 for b in seen) for other in left)
        seen.add(at)
        left.remove(at)


@given(VECTORS, st.tuples(*[st.integers(-3, 3)] * 3).filter(any), st.sampled_from(SIGMAS))
def test_gains_never_increase_and_each_text_comes_once(vectors, question, sigma):
    selection = select(*cosine_distances(question, vectors), 20, sigma=sigma)
    assert (np.diff(selection.gains) <= 0).all()
    assert (selection.gains >= 0).all()
    assert sorted(selection.indices.tolist()) == list(range(len(vectors)))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=15), st.integers(0, 99), st.data())
def test_counting_copies_selects_what_keeping_them_selects(place, seed, data):
    sigma = data.draw(st.sampled_from(SIGMAS))
    rng = np.random.default_rng(seed)
    vectors, question = rng.normal(size=(6, 4)), rng.normal(size=4)
    unique = list(dict.fromkeys(place))
    kept = select(*cosine_distances(question, vectors[place]), len(unique), sigma=sigma)
    counts = [place.count(at) for at in unique]
    counted = select(
        *cosine_distances(question, vectors[unique]), len(unique), sigma=sigma, multiplicity=counts
    )
    assume((counted.gains > 0).all())
    assert [place[at] for at in kept.indices] == [unique[at] for at in counted.indices]
    np.testing.assert_allclose(kept.gains, counted.gains, rtol=1e-9)
