"""The trap: hardest negatives stand first by definition, so a ranker learns that first is wrong.

A review queue holds failures: the right chunk is not first. Who takes the chunks that stand first
as the negatives, and lets the model see the rank, teaches it to turn the order round, and that
ruins every question that went well. The whole pool, and the anchor, do not.
"""

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_feedback.ranking.features import WordWeights, features_of
from langchain_feedback.ranking.linear import LinearRanker, TrainingGroup
from langchain_feedback.ranking.views import Candidates
from tests.unit_tests.ranking.pools import POOL, asked, failing, gain

REVIEWED, ORDINARY = failing(60), asked(300, seed=2)
WORDS = WordWeights.of(one.page_content for each in REVIEWED for one in each.documents)


def table(one):
    return features_of(one.question, one.candidates, WORDS)


def hardest(one, n=4):
    """The named chunk, and the n others that stand first."""
    others = [at for at in range(POOL) if at != one.right][:n]
    return [one.right, *others]


def fitted(model, groups):
    """Fit a classifier to single chunks, as the published recipe does; return how it scores."""
    rows = np.concatenate([table(one)[hardest(one)] for one in groups])
    labels = [at == one.right for one in groups for at in hardest(one)]
    model.fit(rows, labels)
    return lambda features: model.predict_proba(features)[:, 1]


@pytest.fixture
def sklearn():
    return pytest.importorskip("sklearn", reason="the extra `local` is not installed")


def unanchored(kind):
    if kind == "logistic":
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

        return LogisticRegression()
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

    return DecisionTreeClassifier(max_depth=3, random_state=0)


def alike():
    """A pool in which nothing but the rank differs."""
    chunk = Document("Refunds take 14 days.", metadata={"title": "Refunds"})
    return Candidates(np.arange(POOL), [chunk] * POOL)


def test_the_whole_pool_with_the_anchor_gains_from_the_same_failures_check2():
    ranker = LinearRanker.fit([one.group for one in REVIEWED], words=WORDS)
    assert gain(lambda one: ranker.score(one.question, one.candidates), ORDINARY) > 3
    scores = ranker.score("When are refunds made?", alike())
    assert (np.diff(scores) < 0).all(), "where only the rank differs, the base's order stays"


@pytest.mark.parametrize("kind", ["logistic", "tree"])
def test_hardest_negatives_without_the_anchor_invert_the_order_check2(sklearn, kind):
    score = fitted(unanchored(kind), REVIEWED)
    assert gain(lambda one: score(table(one)), ORDINARY) < -20
    scores = score(features_of("When are refunds made?", alike(), WORDS))
    assert scores[0] < scores[POOL // 2], "the first chunk falls behind the tenth"
    if kind == "logistic":
        assert (np.diff(scores) > 0).all(), "the last one comes first"


def test_a_tree_is_trapped_by_ordinary_questions_too_check2(sklearn):
    # Places below the fifth are only ever right ones there.
    reviewed = asked(100, seed=3)
    score = fitted(unanchored("tree"), reviewed)
    assert gain(lambda one: score(table(one)), ORDINARY) < -20
    ranker = LinearRanker.fit([one.group for one in reviewed], words=WORDS)
    assert gain(lambda one: ranker.score(one.question, one.candidates), ORDINARY) > 3


def test_our_ranker_is_not_turned_round_by_the_hardest_negatives_either_check2():
    """It may learn how little the order says, and never that it says the opposite."""
    cut = []
    for one in REVIEWED:
        kept = sorted(hardest(one))
        right = frozenset({kept.index(one.right)})
        chosen = [one.documents[at] for at in kept]
        cut.append(TrainingGroup(one.question, chosen, kept, right))
    ranker = LinearRanker.fit(cut, words=WORDS)
    assert ranker.weights[0] == 0
    assert gain(lambda one: ranker.score(one.question, one.candidates), ORDINARY) > 0
    scores = ranker.score("When are refunds made?", alike())
    assert np.argsort(-scores, kind="stable").tolist() == list(range(POOL))
