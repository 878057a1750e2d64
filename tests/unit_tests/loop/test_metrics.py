"""Metrics: the numbers of trec_eval, and their corners."""

import math

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.loop.metrics import mrr, ndcg_at, recall_at, scores_of, success_at

IDS = [f"d{number}" for number in range(15)]
ranked = st.lists(st.sampled_from(IDS), unique=True, min_size=1)
relevant = st.sets(st.sampled_from(IDS), min_size=1)


def trec(order, right):
    """What trec_eval says of one question; its ties are broken by id, so there are none."""
    scored = {one: float(len(order) - at) for at, one in enumerate(order)}
    measures = {"ndcg_cut", "recall", "recip_rank", "success"}
    judge = pytrec_eval.RelevanceEvaluator({"q": dict.fromkeys(right, 1)}, measures)
    return judge.evaluate({"q": scored})["q"]


@given(ranked, relevant)
def test_they_are_the_numbers_of_trec_eval(order, right):
    known = trec(order, right)
    ours = {
        "ndcg_cut_5": ndcg_at(order, right, 5),
        "ndcg_cut_10": ndcg_at(order, right, 10),
        "recall_5": recall_at(order, right, 5),
        "recall_10": recall_at(order, right, 10),
        "recip_rank": mrr(order, right),
        "success_1": success_at(order, right, 1),
        "success_5": success_at(order, right, 5),
        "success_10": success_at(order, right, 10),
    }
    assert ours == pytest.approx({name: known[name] for name in ours}, abs=1e-9)


@given(ranked, relevant, st.integers(1, 12))
def test_scores_of_are_the_single_ones(order, right, k):
    assert scores_of(order, right, k) == {
        f"ndcg@{k}": ndcg_at(order, right, k),
        f"recall@{k}": recall_at(order, right, k),
        "mrr": mrr(order, right),
        "success@1": success_at(order, right, 1),
    }


@given(ranked, relevant, st.integers(1, 12))
def test_a_right_chunk_one_place_up_never_scores_lower(order, right, k):
    for at in range(1, len(order)):
        if order[at] in right and order[at - 1] not in right:
            up = [*order[: at - 1], order[at], order[at - 1], *order[at + 1 :]]
            before, after = scores_of(order, right, k), scores_of(up, right, k)
            assert all(after[name] >= before[name] for name in before)


def test_a_copy_counts_once_and_takes_its_place():
    assert ndcg_at(["a", "a", "b"], {"a", "b"}, 3) == pytest.approx(
        (1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    )
    assert recall_at(["a", "a", "b"], {"a", "b"}, 2) == 0.5


def test_nothing_right_and_nothing_found_score_nothing():
    assert set(scores_of(["a", "b"], set()).values()) == {0.0}
    assert set(scores_of([], {"a"}).values()) == {0.0}


@pytest.mark.parametrize("metric", [ndcg_at, recall_at, success_at])
def test_a_depth_below_one_is_refused(metric):
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        metric(["a"], {"a"}, 0)
