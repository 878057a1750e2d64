"""Kernels: what they give, and what a log teaches the calibrated one."""

import json
from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.errors import NotEnoughFeedbackError
from langchain_feedback.ranking.belief import conviction
from langchain_feedback.ranking.kernels import (
    CalibratedKernel,
    ExactKernel,
    Kernel,
    LinearKernel,
)
from tests.shared import shared_data, shared_rows
from tests.unit_tests.ranking.strategies import cosines

TABLE = CalibratedKernel([(0.3, 0.0), (0.6, 0.1), (0.8, 0.1), (0.95, 0.9)], "mini")
KERNELS = [ExactKernel(), LinearKernel(), LinearKernel(floor=0.0), TABLE]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
convictions = st.sampled_from([-0.9, -0.5, -1 / 3, 0.0, 1 / 3, 0.5, 0.9])
STRANGERS, NEIGHBORS = 0.2, 0.98


def never(similarity):
    return np.zeros_like(similarity)


def always(similarity):
    return np.ones_like(similarity)


def ramp(similarity):
    return np.clip((similarity - 0.6) / 0.3, 0, 1)


def pairs(count, truth, *, good=0.5, chunk=0.0, drift=0.0, lowest=0.0, seed=0):
    """Make a log of which the truth is known.

    `truth(similarity)`: the chance that the second question says what the first one says.
    `good`: share of good votes. `drift`: how much it rises with similarity. `chunk`: how
    often a vote is the chunk's own quality, whatever the question.
    """
    rng = np.random.default_rng(seed)
    similarity = rng.uniform(lowest, 1, count)
    share = np.clip(good + drift * (similarity - 0.5), 0, 1)

    def draws():
        return rng.random(count) < share

    quality = draws()
    one, other = (np.where(rng.random(count) < chunk, quality, draws()) for _ in range(2))
    other = np.where(rng.random(count) < truth(similarity), one, other)
    size = rng.choice([1 / 3, 1 / 2, 3 / 5], (2, count))
    return similarity, np.where(one, 1, -1) * size[0], np.where(other, 1, -1) * size[1]


# -- All of them


@every_kernel
@given(st.lists(cosines, max_size=8))
def test_a_kernel_is_from_0_to_1_and_never_falls(kernel, similarities):
    weight = kernel(sorted(similarities))
    assert weight.shape == (len(similarities),)
    assert ((weight >= 0) & (weight <= 1)).all()
    assert (np.diff(weight) >= 0).all()


@every_kernel
@given(cosines)
def test_a_kernel_is_0_below_its_minimum(kernel, similarity):
    if similarity < kernel.minimum:
        assert kernel(similarity) == 0
    assert -1 <= kernel.minimum <= 1


@every_kernel
def test_a_kernel_is_a_value_that_keeps_shapes(kernel):
    assert isinstance(kernel, Kernel)
    assert hash(kernel) is not None
    assert kernel(np.zeros((2, 3), dtype=np.float32)).shape == (2, 3)
    assert kernel(np.float32(0.5)).dtype == np.float64


@every_kernel
def test_a_similarity_that_is_no_number_is_refused(kernel):
    with pytest.raises(ValueError, match="similarity must be finite"):
        kernel([0.5, float("nan")])


def test_the_exact_kernel_asks_for_no_search():
    assert ExactKernel().minimum == 1
    assert not ExactKernel()([0.999, 1.0]).any()


def test_the_linear_kernel_by_hand():
    weight = LinearKernel(floor=0.8)([-1.0, 0.8, 0.85, 0.9, 1.0])
    assert weight == pytest.approx([0, 0, 0.25, 0.5, 1])


@pytest.mark.parametrize("floor", [-0.1, 1.0, 1.5, float("nan"), "0.9", None])
def test_a_floor_is_at_least_0_and_below_1(floor):
    with pytest.raises(ValueError, match="floor must be at least 0 and below 1"):
        LinearKernel(floor)


# -- The calibrated table


def test_a_table_is_straight_between_its_points_and_0_below_them():
    assert TABLE([-1, 0.3, 0.45, 0.7, 0.875, 1.0]) == pytest.approx([0, 0, 0.05, 0.1, 0.5, 0.9])
    assert CalibratedKernel([(0.5, 0.2)])([0.49, 0.5, 1.0]).tolist() == [0.0, 0.2, 0.2]


@pytest.mark.parametrize(
    ("points", "minimum"),
    [
        ([(0.2, 0.0), (0.5, 0.0), (0.9, 1.0)], 0.5),
        ([(0.5, 0.2), (0.9, 1.0)], 0.5),
        ([(0.2, 0.0), (0.5, 0.0)], 1.0),
    ],
)
def test_the_search_ends_where_the_table_does(points, minimum):
    assert CalibratedKernel(points).minimum == minimum


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0.5,)],
        [(0.5, 0.1, 0.2)],
        [(0.5, 0.1), (0.5, 0.2)],
        [(0.6, 0.1), (0.5, 0.2)],
        [(0.5, 0.2), (0.6, 0.1)],
        [(0.5, -0.1)],
        [(0.5, 1.1)],
        [(1.5, 0.5)],
        [(0.5, float("nan"))],
        [("a", 0.5)],
        None,
    ],
)
def test_a_table_that_is_none_is_refused(points):
    with pytest.raises(ValueError, match="points must"):
        CalibratedKernel(points)


def test_a20_json_holds_plain_numbers_and_comes_back_equal():
    kernel = CalibratedKernel(np.array([[0.5, 0.1], [0.9, 0.7]], dtype=np.float32), "mini")
    assert type(kernel.points[0][0]) is float
    assert CalibratedKernel.from_json(kernel.to_json()) == kernel
    assert json.loads(kernel.to_json())["embedder"] == "mini"


@given(st.lists(st.tuples(cosines, st.floats(0, 1)), min_size=1, unique_by=lambda at: at[0]))
def test_every_table_survives_json(points):
    at, weight = (sorted(column) for column in zip(*points, strict=True))
    kernel = CalibratedKernel(tuple(zip(at, weight, strict=True)))
    assert CalibratedKernel.from_json(kernel.to_json()) == kernel


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kernel": "linear", "points": [[0.5, 1]]}'])
def test_other_json_is_refused(text):
    with pytest.raises(ValueError, match=r"not the JSON|Expecting value"):
        CalibratedKernel.from_json(text)


# -- Fitting, where the truth is known

WORLDS = {
    "plain": {},
    "nine of ten votes are good": {"good": 0.9},
    "a chunk's own quality decides seven of ten": {"chunk": 0.7},
    "distant questions are mostly bad": {"drift": 0.8},
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_fit_is_0_for_strangers_and_near_1_for_neighbors_that_agree(world):
    kernel = CalibratedKernel.fit(*pairs(20_000, ramp, **world))
    assert kernel(STRANGERS) < 0.02
    assert kernel(NEIGHBORS) > 0.85


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("count", [500, 3_000, 50_000])
def test_a_fit_claims_no_more_than_the_truth(world, count):
    similarity = np.linspace(0, 1, 21)
    fits = [CalibratedKernel.fit(*pairs(count, ramp, seed=s, **world)) for s in range(5)]
    mean = np.mean([kernel(similarity) for kernel in fits], axis=0)
    assert (mean <= ramp(similarity) + 0.03).all()


@pytest.mark.parametrize("world", [*WORLDS.values(), {"chunk": 1.0}], ids=[*WORLDS, "all chunk"])
@pytest.mark.parametrize("count", [500, 10_000])
def test_a_fit_finds_nothing_where_questions_say_nothing_of_each_other(world, count):
    fits = [CalibratedKernel.fit(*pairs(count, never, seed=s, **world)) for s in range(5)]
    assert np.mean([kernel(NEIGHBORS) for kernel in fits]) < 0.05


def test_what_a_bin_shows_counts_from_its_upper_end_on():
    log = pairs(1_000, ramp)
    kernel = CalibratedKernel.fit(*log)
    assert kernel.points[-1][0] == log[0].max()
    assert len(kernel.points) == 1_000 // 25


def test_neighbors_alone_that_agree_are_believed():
    kernel = CalibratedKernel.fit(*pairs(2_000, always, lowest=0.93))
    assert kernel(NEIGHBORS) > 0.9
    assert kernel(0.9) == 0


def test_more_of_the_same_evidence_makes_it_surer():
    weights = [CalibratedKernel.fit(*pairs(n, ramp))(NEIGHBORS) for n in (500, 3_000, 50_000)]
    assert weights == sorted(weights)
    assert weights[0] > 0.5


@given(st.randoms())
def test_neither_the_order_of_pairs_nor_who_is_first_matters(random):
    similarity, first, second = pairs(600, ramp)
    similarity = similarity.round(2)  # with ties
    shuffle = np.array(random.sample(range(600), 600))
    there = CalibratedKernel.fit(similarity, first, second)
    back = CalibratedKernel.fit(similarity[shuffle], second[shuffle], first[shuffle])
    assert np.allclose(there.points, back.points, rtol=0, atol=1e-9)


@given(st.lists(st.tuples(cosines, convictions, convictions), max_size=80))
def test_any_log_of_both_kinds_of_votes_gives_a_table(log):
    both_kinds = [(0.5, 0.5, -0.5), *log]
    kernel = CalibratedKernel.fit(*zip(*both_kinds, strict=True), minimum_pairs=1)
    assert len(kernel.points) <= 50
    assert 0 <= kernel(1.0) <= 1


def test_pairs_of_one_similarity_give_one_point():
    _, first, second = pairs(600, always)
    kernel = CalibratedKernel.fit(np.full(600, 0.97), first, second)
    assert [at for at, _ in kernel.points] == [pytest.approx(0.97)]


# -- Fitting, on ratings of real people


def real_pairs():
    """Return every two rated questions that share a passage, of the shared FeedbackQA part."""
    queries = [row["_id"] for row in shared_rows("feedbackqa_us/queries.jsonl")]
    with np.load(shared_data("feedbackqa_us/embeddings.npz")) as embeddings:
        vector = dict(zip(queries, embeddings["queries"].astype(np.float64), strict=True))
    of_passage = defaultdict(list)
    for row in shared_rows("feedbackqa_us/ratings.jsonl"):
        good = sum(value >= 4 for value in row["values"])
        said = float(conviction(good, len(row["values"]) - good))
        of_passage[row["doc_id"]].append((vector[row["query_id"]], said))
    rows = [
        (one @ other, first, second)
        for rated in of_passage.values()
        for (one, first), (other, second) in combinations(rated, 2)
    ]
    return zip(*rows, strict=True)


def test_real_raters_agree_on_close_questions_and_by_chance_on_distant_ones():
    kernel = CalibratedKernel.fit(*real_pairs(), minimum_pairs=200)
    assert kernel(0.7) == 0
    assert kernel(0.9) > 0.2
    assert kernel(1.0) > 0.4


# -- Not enough, and bad input


def test_too_few_pairs_say_how_many_are_needed():
    log = pairs(99, ramp)
    with pytest.raises(NotEnoughFeedbackError, match=r"100 pairs .* there are 99"):
        CalibratedKernel.fit(*log)
    assert CalibratedKernel.fit(*log, minimum_pairs=90).points


def test_pairs_without_a_sign_do_not_count():
    similarity, first, second = pairs(100, ramp)
    first[0] = 0.0
    with pytest.raises(NotEnoughFeedbackError, match="there are 99"):
        CalibratedKernel.fit(similarity, first, second)


@pytest.mark.parametrize("count", [0, 1])
def test_an_empty_log_is_not_enough_whatever_is_asked_for(count):
    with pytest.raises(NotEnoughFeedbackError):
        CalibratedKernel.fit([0.5] * count, [0.5] * count, [0.5] * count, minimum_pairs=0)


@pytest.mark.parametrize("sign", [1, -1])
def test_votes_that_all_say_the_same_show_no_chance(sign):
    similarity, first, second = pairs(600, ramp)
    with pytest.raises(NotEnoughFeedbackError, match="All votes say the same"):
        CalibratedKernel.fit(similarity, sign * abs(first), sign * abs(second))


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (([0.5], [0.5, 0.5], [0.5]), "one shape"),
        (([[0.5]], [[0.5]], [[0.5]]), "similarity must have 1 dimension"),
        (([2.0], [0.5], [0.5]), "similarity must be from"),
        (([0.5], [1.5], [0.5]), "first must be from -1 to 1"),
        (([0.5], [0.5], [float("nan")]), "second must be finite"),
    ],
)
def test_a_log_out_of_range_is_refused(log, message):
    with pytest.raises(ValueError, match=message):
        CalibratedKernel.fit(*log)
