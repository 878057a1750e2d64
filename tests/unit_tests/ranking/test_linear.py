import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_feedback.errors import NotEnoughFeedbackError
from langchain_feedback.ranking.estimating import LinearEstimator
from langchain_feedback.ranking.features import FEATURES, WordWeights
from langchain_feedback.ranking.linear import (
    LEAST_GROUPS,
    LinearRanker,
    Ranker,
    TrainingGroup,
)
from langchain_feedback.ranking.views import Candidates
from tests.unit_tests.ranking.pools import POOL, asked, failing, gain

WORDS = WordWeights({"refund": 1.2, "day": 1.4}, 2.0)
numbers = st.floats(-1e6, 1e6)


def length(question, documents):
    return [len(document.page_content) for document in documents]


def recent(question, documents):
    return [document.metadata.get("year", 2000) for document in documents]


@st.composite
def rankers(draw, extra=()):
    count = len(FEATURES) + len(extra)
    row = st.lists(numbers, min_size=count, max_size=count).map(tuple)
    scales = st.lists(st.floats(1e-6, 1e6), min_size=count, max_size=count).map(tuple)
    words = st.dictionaries(st.text(max_size=4), st.floats(1e-3, 50), max_size=4)
    weights = WordWeights(draw(words), draw(st.floats(1e-3, 50)))
    return LinearRanker(
        draw(row), draw(row), draw(scales), weights, draw(st.text(max_size=8)),
        extra=extra, scorers=dict.fromkeys(extra, length),
    )  # fmt: skip


@st.composite
def pools(draw):
    texts = draw(st.lists(st.text("refund day key.,", max_size=12), min_size=1, max_size=8))
    ranks = draw(st.permutations(range(len(texts))))
    outside = draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    shown = [-1 if out else rank for rank, out in zip(ranks, outside, strict=True)]
    return Candidates(np.array(shown, dtype=int), [Document(text) for text in texts])


@pytest.fixture(scope="module")
def reviewed():
    return asked(60)


@pytest.fixture(scope="module")
def ranker(reviewed):
    return LinearRanker.fit([one.group for one in reviewed])


# -- what it learns


def test_thirty_questions_gain_and_questions_that_nobody_reviewed_profit():
    held_out = asked(300, seed=5)
    for seed in range(6, 12):
        ranker = LinearRanker.fit([one.group for one in asked(30, seed=seed)])
        gained = gain(lambda one, by=ranker: by.score(one.question, one.candidates), held_out)
        assert gained > 1, seed


def test_failing_questions_alone_do_not_teach_that_first_is_wrong():
    held_out = asked(300, seed=5)
    ranker = LinearRanker.fit([one.group for one in failing(30)])
    assert gain(lambda one: ranker.score(one.question, one.candidates), held_out) > 0


def test_labels_of_which_half_are_wrong_do_not_ruin_the_order():
    held_out = asked(300, seed=5)
    groups = [one.group for one in asked(30, seed=7)]
    wrong = [
        TrainingGroup(one.question, one.documents, one.base_rank, frozenset({at % POOL}))
        if at % 2
        else one
        for at, one in enumerate(groups)
    ]
    ranker = LinearRanker.fit(wrong)
    assert gain(lambda one: ranker.score(one.question, one.candidates), held_out) > -1


@pytest.mark.parametrize("strength", [1e9, 1e12])
def test_a_strong_anchor_gives_the_base_order(reviewed, strength):
    ranker = LinearRanker.fit([one.group for one in reviewed], strength=strength)
    for one in asked(20, seed=4):
        order = np.argsort(-ranker.score(one.question, one.candidates), kind="stable")
        assert order.tolist() == list(range(POOL))


def test_labels_that_say_nothing_leave_the_base_order():
    # Every chunk has the same text, and each place is right once: only the anchor speaks.
    documents = [Document("Refunds take days.")] * POOL
    groups = [
        TrainingGroup("When?", documents, range(POOL), frozenset({at % POOL}))
        for at in range(2 * POOL)
    ]
    ranker = LinearRanker.fit(groups, strength=1e3)
    scores = ranker.score("When are refunds made?", Candidates(np.arange(POOL), documents))
    assert (np.diff(scores) < 0).all()


def test_a_chunk_that_the_base_lacks_can_come_first_by_its_words(ranker):
    one = asked(1, first=1.0, seed=20)[0]
    named = Document(one.question, metadata={"title": one.question})
    pool = Candidates([-1, *range(1, POOL)], [named, *one.documents[1:]])
    assert ranker.score(one.question, pool).argmax() == 0


def test_the_weights_minimize_the_anchored_loss(reviewed):
    """Against SciPy's general minimizer, on the loss as the docstring states it."""
    scipy = pytest.importorskip("scipy.optimize", reason="scikit-learn brings SciPy")
    from langchain_feedback.ranking.features import features_of  # noqa: PLC0415

    ranker = LinearRanker.fit([one.group for one in reviewed], words=WORDS, strength=7.0)
    tables = [features_of(one.question, one.candidates, WORDS) for one in reviewed]
    rows = np.concatenate(tables)
    means, scales = rows.mean(axis=0), rows.std(axis=0)
    np.testing.assert_allclose(ranker.means, means)
    np.testing.assert_allclose(ranker.scales, scales)
    pairs = []
    for table, one in zip(tables, reviewed, strict=True):
        scaled = (table - means) / scales
        pairs += [scaled[one.right] - scaled[at] for at in range(POOL) if at != one.right]
    anchor = np.array([4 * scales[0], 0, 0])

    def loss(weights):
        margins = np.array(pairs) @ weights
        return np.log1p(np.exp(-margins)).sum() + 3.5 * ((weights - anchor) ** 2).sum()

    found = scipy.minimize(loss, anchor, method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(ranker.weights, found.x, atol=1e-4)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_groups_and_of_pools_does_not_matter(reviewed, order):
    groups = [one.group for one in reviewed]
    turned = [
        TrainingGroup(
            one.question,
            one.documents[::order],
            range(POOL)[::order],
            frozenset({one.right if order == 1 else POOL - 1 - one.right}),
        )
        for one in reversed(reviewed)
    ]
    one, other = (LinearRanker.fit(each, words=WORDS) for each in (groups, turned))
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-9)
    assert one.labels == other.labels


def test_a_feature_of_ones_own_is_learned():
    groups = []
    for one in asked(40, seed=8):
        documents = [
            Document(chunk.page_content, metadata={"year": 2026 if at == one.right else 2001})
            for at, chunk in enumerate(one.documents)
        ]
        groups.append(TrainingGroup(one.question, documents, range(POOL), one.group.right))
    ranker = LinearRanker.fit(groups, extra_features={"length": length, "recent": recent})
    assert ranker.extra == ("length", "recent")
    group = groups[0]
    pool = Candidates(np.arange(POOL), group.documents)
    assert {int(ranker.score(group.question, pool).argmax())} == group.right
    # The scorers may come in any order, and with others beside them.
    given_back = {"recent": recent, "other": recent, "length": length}
    again = LinearRanker.from_json(ranker.to_json(), extra_features=given_back)
    np.testing.assert_array_equal(
        again.score(group.question, pool), ranker.score(group.question, pool)
    )
    built = LinearRanker(
        ranker.weights, ranker.means, ranker.scales, ranker.words, "", ranker.extra, given_back
    )
    np.testing.assert_array_equal(
        built.score(group.question, pool), ranker.score(group.question, pool)
    )


# -- what it needs


@pytest.mark.parametrize("n", [0, 1, LEAST_GROUPS - 1])
def test_too_few_reviewed_questions_are_refused_and_the_message_says_how_many(reviewed, n):
    groups = [one.group for one in reviewed[:n]]
    with pytest.raises(NotEnoughFeedbackError, match=rf"30 reviewed .* there are {n}\."):
        LinearRanker.fit(groups)
    with pytest.raises(NotEnoughFeedbackError):
        LinearEstimator().fit(groups, WORDS)


def test_questions_that_teach_nothing_do_not_count(reviewed):
    document = Document("Refunds take days.")
    nothing = [
        TrainingGroup("Right is not in the pool?", [document] * 3, range(3), frozenset()),
        TrainingGroup("All is right?", [document] * 2, range(2), frozenset({0, 1})),
        TrainingGroup("One chunk?", [document], [0], frozenset({0})),
        TrainingGroup("Nothing found?", [], [], frozenset()),
    ]
    assert [one.teaches for one in nothing] == [False] * 4
    groups = [one.group for one in reviewed[: LEAST_GROUPS - 1]]
    with pytest.raises(NotEnoughFeedbackError):
        LinearRanker.fit(groups + nothing)
    enough = [one.group for one in reviewed[:LEAST_GROUPS]]
    assert LinearRanker.fit(enough + nothing) == LinearRanker.fit(enough)


@pytest.mark.parametrize("strength", [0, -1.0, math.nan, math.inf, "much", None, True])
def test_a_strength_that_is_no_number_above_0_is_refused(reviewed, strength):
    with pytest.raises(ValueError, match="strength must be above 0"):
        LinearRanker.fit([one.group for one in reviewed], strength=strength)


def test_a_chunk_in_many_pools_counts_once_in_the_words(reviewed):
    one = reviewed[0].group
    assert LinearRanker.fit([one] * 30).words == WordWeights.of(
        document.page_content for document in one.documents
    )


@pytest.mark.parametrize("name", ["rank", "words", "title"])
def test_a_feature_may_not_take_a_name_that_is_taken(reviewed, name):
    with pytest.raises(ValueError, match="a name of its own"):
        LinearRanker.fit([one.group for one in reviewed], extra_features={name: length})


def test_a_feature_that_gives_too_few_numbers_is_named(reviewed):
    with pytest.raises(ValueError, match="'short' must give one finite number"):
        LinearRanker.fit(
            [one.group for one in reviewed], extra_features={"short": lambda _, __: [1.0]}
        )


def test_candidates_without_documents_are_refused(ranker):
    with pytest.raises(ValueError, match="reads the documents"):
        ranker.score("When?", Candidates([0, 1]))


def test_an_empty_pool_has_no_scores(ranker):
    assert ranker.score("When?", Candidates([], [])).tolist() == []


# -- how it scores


@given(rankers(), pools(), st.data())
def test_candidates_are_scored_by_themselves_whatever_their_order(ranker, pool, data):
    order = data.draw(st.permutations(range(len(pool))))
    turned = Candidates(pool.base_rank[list(order)], [pool.documents[at] for at in order])
    scores = ranker.score("refund day key", pool)
    assert scores.shape == (len(pool),)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(ranker.score("refund day key", turned), scores[list(order)])


def test_nothing_is_changed_by_scoring(ranker):
    one = asked(1, seed=30)[0]
    before = [document.model_copy(deep=True) for document in one.documents]
    ranks = one.candidates.base_rank.copy()
    ranker.score(one.question, one.candidates)
    assert one.documents == before
    assert (one.candidates.base_rank == ranks).all()


def test_it_is_a_ranker_and_no_hash_seed_changes_a_bit(ranker):
    assert isinstance(ranker, Ranker)
    program = (
        "from tests.unit_tests.ranking.pools import asked\n"
        "from langchain_feedback.ranking.linear import LinearRanker\n"
        "ranker = LinearRanker.fit([one.group for one in asked(30)])\n"
        "one = asked(1, seed=9)[0]\n"
        "print(ranker.weights, ranker.score(one.question, one.candidates).tolist())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(said) == 1


# -- the artifact


@given(rankers())
def test_json_gives_back_the_same_ranker(ranker):
    again = LinearRanker.from_json(ranker.to_json())
    assert again == ranker
    assert again.to_json() == ranker.to_json()


@given(rankers(extra=("length",)), pools())
def test_json_gives_back_the_same_scores_with_a_feature_of_ones_own(ranker, pool):
    again = LinearRanker.from_json(ranker.to_json(), extra_features={"length": length})
    np.testing.assert_array_equal(again.score("a day", pool), ranker.score("a day", pool))


def test_the_artifact_is_names_and_numbers(ranker):
    parts = json.loads(ranker.to_json())
    assert parts["features"] == list(FEATURES)
    assert [len(parts[name]) for name in ("weights", "means", "scales")] == [3, 3, 3]
    assert set(parts) == {
        "format", "features", "versions", "weights", "means", "scales", "words", "rare", "labels",
    }  # fmt: skip


def test_a_feature_that_is_not_given_back_is_named(reviewed):
    groups = [one.group for one in reviewed]
    text = LinearRanker.fit(groups, extra_features={"length": length}).to_json()
    with pytest.raises(ValueError, match=r"needs the features \['length'\]"):
        LinearRanker.from_json(text)


def damaged(**changes):
    """A good artifact with other parts; None: without the part."""
    good = LinearRanker((1.0, 2.0, 3.0), (0.0,) * 3, (1.0,) * 3, WORDS, "x").to_json()
    parts = json.loads(good) | changes
    return json.dumps({name: part for name, part in parts.items() if part is not None})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"text"',
        "{}",
        "\x00",
        "[" * 200_000,
        '{"format": 1' + "0" * 5_000 + "}",
        damaged(format=2),
        damaged(features=["rank"]),
        damaged(features=["words", "rank", "title"]),
        damaged(features="rank words title"),
        damaged(features=["rank", "words", "title", "title"]),
        damaged(weights=None),
        damaged(weights=[1.0, 2.0]),
        damaged(weights=[1.0, 2.0, 3.0, 4.0]),
        damaged(weights=[1.0, 2.0, math.nan]),
        damaged(weights=[1.0, 2.0, 10**400]),
        damaged(weights=[1.0, 2.0, "many"]),
        damaged(weights=7),
        damaged(means=[1.0, 2.0, math.inf]),
        damaged(scales=[1.0, 0.0, 1.0]),
        damaged(scales=[1.0, -1.0, 1.0]),
        damaged(scales=[]),
        damaged(words=[1, 2]),
        damaged(words={"refund": "x"}),
        damaged(words={"refund": math.nan}),
        damaged(words={"refund": -1.0}),
        damaged(rare=0),
        damaged(rare=math.inf),
        damaged(labels=None),
    ],
    ids=lambda text: text[:40],
)
def test_a_damaged_artifact_is_refused(text):
    with pytest.raises(ValueError, match=r"no ranker that this release reads|A ranker of|name"):
        LinearRanker.from_json(text)


@settings(max_examples=300)
@given(rankers(), st.data())
def test_an_artifact_that_was_cut_or_changed_anywhere_is_refused_or_still_scores(ranker, data):
    text = ranker.to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = data.draw(st.sampled_from([text[:at], text[:at] + "9" + text[at + 1 :]]))
    try:
        read = LinearRanker.from_json(changed)
    except ValueError:
        return
    pool = Candidates([0, 1], [Document("refund"), Document("day")])
    assert read.score("refund", pool).shape == (2,)


def test_scoring_twenty_candidates_seen_before_takes_less_than_a_millisecond(ranker):
    from tests.shared import seconds  # noqa: PLC0415

    text = " ".join(f"word{at} is here" for at in range(70))  # about 1,000 characters
    pool = Candidates(
        np.arange(POOL), [Document(f"{text} {at}", metadata={"title": "A"}) for at in range(POOL)]
    )
    ranker.score("word1 or word2?", pool)
    best = min(seconds(lambda: ranker.score("word1 or word2?", pool)) for _ in range(50))
    assert best < 0.001
