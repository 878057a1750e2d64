"""Policies: from a view of the feedback to an order, and what they refuse."""

import copy
from math import log2, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_feedback.ranking._base import scaled_base
from langchain_feedback.ranking._wilson import wilson_feedback
from langchain_feedback.ranking.kernels import CalibratedKernel, ExactKernel, LinearKernel
from langchain_feedback.ranking.policies import (
    AverageRating,
    KernelBelief,
    RankingPolicy,
    WilsonFusion,
)
from langchain_feedback.ranking.views import (
    Candidates,
    EvidenceView,
    RatingsView,
    Scores,
    VotesView,
)
from langchain_feedback.retrievers.feedback import FeedbackRetriever
from tests.unit_tests.ranking.strategies import searches

NAN, INF = float("nan"), float("inf")
POLICIES = [KernelBelief(), AverageRating(), WilsonFusion()]
VIEWS = {
    "evidence": EvidenceView([1.0], [True], [[1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]]),
    "ratings": RatingsView(total=[5.0, 0.0, 1.0], count=[1, 0, 1]),
    "votes": VotesView(positive=[9.0, 0.0, 0.0], negative=[0.0, 0.0, 9.0], votes=[9, 0, 9]),
}
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.needs)


def scored(*numbers, key="score"):
    return [Document(f"text {rank}", metadata={key: n}) for rank, n in enumerate(numbers)]


def votes_for(chunk, count, good=0.0, bad=0.0):
    """Evidence of the identical question on one chunk of `count`."""
    only = np.zeros((1, count))
    only[0, chunk] = 1
    return EvidenceView([1.0], [True], only * good, only * bad)


def without_evidence(count):
    return EvidenceView([], [], np.zeros((0, count)), np.zeros((0, count)))


def place(scores, chunk):
    return scores.order().tolist().index(chunk)


# -- All of them


@every_policy
def test_a_policy_says_which_view_it_reads(policy):
    assert isinstance(policy, RankingPolicy)
    scores = policy.score(Candidates([0, 1, 2]), VIEWS[policy.needs])
    assert {array.shape for array in (scores.score, scores.belief, scores.multiplier)} == {(3,)}


@every_policy
@pytest.mark.parametrize("other", VIEWS)
def test_another_view_is_refused_by_name(policy, other):
    if other != policy.needs:
        with pytest.raises(TypeError, match=f"got {type(VIEWS[other]).__name__}"):
            policy.score(Candidates([0, 1, 2]), VIEWS[other])


@every_policy
def test_a_view_of_other_candidates_is_refused(policy):
    with pytest.raises(ValueError, match="3 columns for 2 candidates"):
        policy.score(Candidates([0, 1]), VIEWS[policy.needs])


@every_policy
def test_a07_scoring_twice_gives_the_same_and_changes_nothing(policy):
    documents = scored(0.9, 0.5, 0.1)
    candidates, view = Candidates([0, 1, 2], documents), VIEWS[policy.needs]
    before = copy.deepcopy((candidates.documents, vars(view)))
    first, second = (policy.score(candidates, view) for _ in range(2))
    assert first.score.tolist() == second.score.tolist()
    assert first.multiplier.tolist() == second.multiplier.tolist()
    assert candidates.documents == before[0]
    assert all(np.array_equal(vars(view)[name], array) for name, array in before[1].items())


@every_policy
def test_a20_scores_become_plain_numbers(policy):
    scores = policy.score(Candidates([0, 1, 2]), VIEWS[policy.needs])
    for array in (scores.score, scores.belief, scores.multiplier):
        assert array.dtype == np.float64
        assert {type(number) for number in array.tolist()} == {float}


@every_policy
def test_no_candidates_are_ranked_as_none(policy):
    empty = {
        "evidence": without_evidence(0),
        "ratings": RatingsView([], []),
        "votes": VotesView([], [], []),
    }
    assert policy.score(Candidates([]), empty[policy.needs]).order().tolist() == []


@every_policy
def test_policies_are_values(policy):
    assert policy == type(policy)()
    assert hash(policy) == hash(type(policy)())


def test_a_policy_of_ones_own_needs_no_base_class():
    class Backwards:
        needs = "votes"

        def score(self, candidates, view):
            zeros = np.zeros(len(candidates))
            return Scores(candidates.base_rank.astype(float), zeros, zeros + 1)

    assert isinstance(Backwards(), RankingPolicy)
    assert not isinstance(object(), RankingPolicy)


# -- KernelBelief


def test_the_base_is_the_discount_of_the_rank_scaled_to_the_pool():
    scores = KernelBelief().score(Candidates([0, 1, 2]), without_evidence(3))
    low = 1 / log2(4)
    assert scores.score == pytest.approx([1, (1 / log2(3) - low) / (1 - low), 0])
    assert scores.multiplier.tolist() == [1.0, 1.0, 1.0]


def test_a_pool_of_one_has_the_base_1_and_an_injected_chunk_0():
    scores = KernelBelief().score(Candidates([0, -1, -1]), without_evidence(3))
    assert scores.score.tolist() == [1.0, 0.0, 0.0]
    assert KernelBelief().score(Candidates([-1]), without_evidence(1)).score.tolist() == [0.0]


def test_belief_counts_strength_times():
    view = votes_for(2, 3, good=2.0)
    scores = KernelBelief(strength=3.0).score(Candidates([0, 1, 2]), view)
    assert scores.belief.tolist() == [0.0, 0.0, 0.5]
    assert scores.score[2] == pytest.approx(3 * 0.5)
    assert scores.multiplier[2] == pytest.approx(4 / 3)


def test_the_identical_question_counts_in_full_whatever_the_kernel():
    for kernel in (ExactKernel(), LinearKernel(), CalibratedKernel([(0.5, 0.0)])):
        view = EvidenceView([0.1, 0.1], [True, False], [[2.0], [0.0]], [[0.0], [9.0]])
        assert KernelBelief(kernel).belief(view).tolist() == [0.5]


def test_a_similar_question_counts_by_the_kernel():
    view = EvidenceView([0.95, 0.9, 0.2], [False] * 3, [[2.0], [9.0], [9.0]], np.zeros((3, 1)))
    assert KernelBelief(LinearKernel(0.9)).belief(view) == pytest.approx([0.5 * 0.5])


def test_evidence_of_a_changed_text_is_no_evidence_at_all():
    # The store gives it no cell: a column of zeros.
    view = EvidenceView([1.0], [True], [[0.0, 0.0]], [[0.0, 0.0]])
    assert KernelBelief().score(Candidates([0, 1]), view).score.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("good", "bad"), [(1, 0), (0, 1), (2, 1), (3, 5), (40, 2)])
def test_the_classic_rule_is_the_multiplier_without_a_prior(good, bad):
    scores = KernelBelief(prior=0).score(Candidates([0]), votes_for(0, 1, good, bad))
    classic = RatingsView([5 * good + bad], [good + bad])
    assert scores.multiplier == pytest.approx(
        AverageRating().score(Candidates([0]), classic).multiplier, abs=1e-12
    )


@given(searches(), st.floats(0, 5))
def test_scores_are_bounded_and_multipliers_from_a_third_to_five_thirds(search, strength):
    scores = KernelBelief(strength=strength).score(*search)
    assert (scores.score >= -strength).all()
    assert (scores.score <= 1 + strength).all()
    assert ((scores.multiplier > 0.333) & (scores.multiplier < 1.667)).all()


@given(searches())
def test_without_evidence_the_base_order_stands(search):
    candidates, view = search
    scores = KernelBelief().score(candidates, without_evidence(view.candidates))
    assert scores.order().tolist() == list(range(view.candidates))


@given(searches(), st.randoms())
def test_the_order_of_candidates_does_not_matter(search, random):
    candidates, view = search
    columns = random.sample(range(len(candidates)), len(candidates))
    shuffled = EvidenceView(
        view.similarity, view.exact, view.positive[:, columns], view.negative[:, columns]
    )
    there = KernelBelief().score(candidates, view).score[columns]
    here = KernelBelief().score(Candidates(candidates.base_rank[columns]), shuffled).score
    assert np.allclose(there, here, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "setting",
    [
        {"strength": -1},
        {"strength": NAN},
        {"prior": -0.5},
        {"prior": INF},
        {"prior": "2"},
        {"score_direction": "distance"},
    ],
)
def test_a_setting_out_of_range_is_named(setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} must be"):
        KernelBelief(**setting)


def test_a_kernel_must_be_one():
    with pytest.raises(TypeError, match="kernel must be a Kernel"):
        KernelBelief(kernel=0.9)


# -- A09: the backend's own numbers

DISTANCES, RELEVANCES, EQUAL = (0.0, 2.5, 10.2), (1.0, -6.2, -12.7), (0.5, 0.5, 0.5)
A09 = {
    "ranks": ((None, None, None), KernelBelief()),
    "distances": (DISTANCES, KernelBelief(score_key="score", score_direction="lower")),
    "relevances": (RELEVANCES, KernelBelief(score_key="score")),
    "all equal": (EQUAL, KernelBelief(score_key="score")),
    "distances taken for relevances": (DISTANCES, KernelBelief(score_key="score")),
    "relevances taken for distances": (
        RELEVANCES,
        KernelBelief(score_key="score", score_direction="lower"),
    ),
    "numbers that nobody declared": (DISTANCES, KernelBelief()),
}
every_a09 = pytest.mark.parametrize(("numbers", "policy"), A09.values(), ids=A09)


@every_a09
@pytest.mark.parametrize("chunk", [0, 1, 2])
@pytest.mark.parametrize("weight", [0.1, 1.0, 50.0])
def test_a09_a_liked_chunk_never_moves_down_and_a_disliked_one_never_up(
    numbers, policy, chunk, weight
):
    candidates = Candidates([0, 1, 2], scored(*numbers))
    liked = policy.score(candidates, votes_for(chunk, 3, good=weight))
    disliked = policy.score(candidates, votes_for(chunk, 3, bad=weight))
    assert place(liked, chunk) <= chunk <= place(disliked, chunk)
    others = [other for other in (0, 1, 2) if other != chunk]
    for scores in (liked, disliked):
        assert [other for other in scores.order().tolist() if other != chunk] == others


@every_a09
def test_a09_without_feedback_the_base_order_stands(numbers, policy):
    candidates = Candidates([0, 1, 2], scored(*numbers))
    assert policy.score(candidates, without_evidence(3)).order().tolist() == [0, 1, 2]


@every_a09
def test_a09_two_thumbs_up_bring_up_the_last_chunk(numbers, policy):
    candidates = Candidates([0, 1, 2], scored(*numbers))
    assert place(policy.score(candidates, votes_for(2, 3, good=2.0)), 2) < 2


def test_a09_the_backends_numbers_are_scaled_in_the_declared_direction():
    policy = KernelBelief(score_key="score", score_direction="lower")
    scores = policy.score(Candidates([0, 1, 2], scored(*DISTANCES)), without_evidence(3))
    assert scores.score == pytest.approx([1, 1 - 2.5 / 10.2, 0])
    policy = KernelBelief(score_key="score")
    scores = policy.score(Candidates([0, 1, 2], scored(*EQUAL)), without_evidence(3))
    assert scores.score.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "documents",
    [
        (),
        scored(0.9, None, 0.1),
        scored(0.9, NAN, 0.1),
        scored(0.9, "0.5", 0.1),
        scored(INF, 0.5, 0.1),
        scored(*[True, True, False]),
        scored(10**400, 0.5, 0.1),
        scored(0.9, 0.5, 0.1, key="another"),
        scored(0.1, 0.9, 0.5),
    ],
    ids="unknown missing nan text infinite truth huge elsewhere disordered".split(),
)
def test_a09_ranks_serve_where_the_numbers_cannot(documents):
    ranks, view = KernelBelief(), without_evidence(3)
    expected = ranks.score(Candidates([0, 1, 2]), view).score.tolist()
    policy = KernelBelief(score_key="score")
    assert policy.score(Candidates([0, 1, 2], documents), view).score.tolist() == expected


def test_a09_an_injected_chunk_needs_no_number():
    candidates = Candidates([0, 1, -1], scored(np.float32(0.75), np.float32(0.5), None))
    scores = KernelBelief(score_key="score").score(candidates, without_evidence(3))
    assert scores.score.tolist() == [1.0, 0.0, 0.0]


def test_a09_the_widest_numbers_do_not_overflow():
    candidates = Candidates([0, 1, 2], scored(1.7e308, 0.0, -1.7e308))
    scores = KernelBelief(score_key="score").score(candidates, without_evidence(3))
    assert scores.score.tolist() == [1.0, 0.5, 0.0]


@given(searches(), st.floats(0, 5))
def test_a09_a_chunk_passes_another_only_if_feedback_says_more_good_of_it(search, strength):
    candidates, view = search
    scores = KernelBelief(strength=strength).score(candidates, view)
    for ahead, behind in zip(scores.order(), scores.order()[1:], strict=False):
        if ahead > behind:
            assert scores.belief[ahead] > scores.belief[behind]


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=6), st.booleans(), st.data())
def test_a09_holds_for_any_numbers_of_any_backend(numbers, lower, data):
    count = len(numbers)
    direction = "lower" if lower else "higher"
    policy = KernelBelief(score_key="score", score_direction=direction)
    candidates = Candidates(range(count), scored(*numbers))
    chunk = data.draw(st.integers(0, count - 1), label="chunk")
    weight = data.draw(st.floats(0.01, 50), label="weight")
    liked = policy.score(candidates, votes_for(chunk, count, good=weight))
    disliked = policy.score(candidates, votes_for(chunk, count, bad=weight))
    assert place(liked, chunk) <= chunk <= place(disliked, chunk)


# -- AverageRating


def test_a07_the_average_rule_is_the_mean_rating_over_3():
    view = RatingsView(total=[5.0, 0.0, 6.0, 1.0], count=[1, 0, 2, 1])
    scores = AverageRating().score(Candidates([0, 1, 2, 3]), view)
    assert scores.score == pytest.approx([5 / 3, 1, 1, 1 / 3])
    assert scores.multiplier.tolist() == scores.score.tolist()
    assert not scores.belief.any()
    assert scores.order().tolist() == [0, 1, 2, 3]


@given(st.lists(st.lists(st.integers(1, 5), max_size=6), min_size=1, max_size=5))
def test_the_average_rule_is_bounded_and_neutral_without_ratings(ratings):
    view = RatingsView([sum(of) for of in ratings], [len(of) for of in ratings])
    score = AverageRating("all").score(Candidates(range(len(ratings))), view).score
    assert ((score > 0.333) & (score < 1.667)).all()
    assert all(score[chunk] == 1 for chunk, of in enumerate(ratings) if not of)


def test_a_scope_is_one_of_two():
    with pytest.raises(ValueError, match="scope must be one of 'question', 'all'"):
        AverageRating("everything")


# -- WilsonFusion


def wilson(share, votes, z=1.96):
    center, spread = share + z**2 / (2 * votes), share * (1 - share) / votes
    return (center - z * sqrt(spread + z**2 / (4 * votes**2))) / (1 + z**2 / votes)


def fused(votes, positive=0.0, negative=0.0, quality=None):
    policy = WilsonFusion(quality and (lambda document: quality))
    view = VotesView([positive], [negative], [votes])
    return policy.score(Candidates([0], [Document("text")]), view).score[0]


@pytest.mark.parametrize(
    ("votes", "positive", "negative"), [(5, 5, 0), (10, 7, 3), (50, 20, 30), (400, 300, 100)]
)
def test_feedback_is_wilsons_bound_blended_by_confidence(votes, positive, negative):
    sure = min(1, votes / 50)
    feedback = sure * wilson(positive / (positive + negative), votes) + (1 - sure) * 0.5
    expected = 0.50 + 0.25 * 0.5 + 0.25 * feedback
    assert fused(votes, positive, negative) == pytest.approx(expected)


def test_wilsons_bound_is_the_textbooks():
    # 81 of 263, as in Newcombe, Statistics in Medicine 17, 1998, table I: .2553 to .3662.
    feedback = (fused(263, 81, 182) - 0.50 - 0.25 * 0.5) / 0.25
    assert feedback == pytest.approx(0.2553, abs=5e-5)


def test_under_five_votes_feedback_is_neutral():
    assert fused(4, 4, 0) == fused(4, 0, 4) == fused(0) == pytest.approx(0.75)


def test_votes_that_are_all_neutral_are_neutral():
    assert fused(20) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("quality", "votes", "bonus"),
    [(0.9, 0, 0.05), (0.9, 4, 0.03), (0.9, 10, 0.0), (0.65, 0, 0.0), (0.66, 0, 0.05)],
)
def test_a_good_chunk_that_few_people_saw_gets_a_bonus(quality, votes, bonus):
    feedback = (fused(votes) - 0.625) / 0.25
    expected = 0.50 + 0.25 * quality + 0.25 * feedback + bonus
    assert fused(votes, quality=quality) == pytest.approx(expected)


def test_an_unknown_quality_is_in_the_middle():
    view = VotesView([0.0, 0.0], [0.0, 0.0], [0, 0])
    known = {"a": 0.2}
    policy = WilsonFusion(lambda document: known.get(document.id))
    documents = [Document("text", id="a"), Document("text", id="b")]
    scores = policy.score(Candidates([0, -1], documents), view)
    assert scores.score == pytest.approx([0.5 + 0.05 + 0.125, 0.25 * 0.5 + 0.125])
    assert scores.belief.tolist() == [0.0, 0.0]
    assert policy.score(Candidates([0, -1]), view).score == pytest.approx([0.75, 0.25])


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.integers(0, 200)), max_size=6))
def test_wilson_fusion_is_bounded(chunks):
    positive, negative, votes = zip(*chunks, strict=True) if chunks else ([], [], [])
    view = VotesView(positive, negative, votes)
    scores = WilsonFusion().score(Candidates(range(len(chunks))), view)
    assert ((scores.score >= 0) & (scores.score <= 1.05)).all()
    assert (abs(scores.belief) <= 1).all()


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 100), st.integers(0, 200)),
        min_size=1,
        max_size=6,
    )
)
def test_by_default_quality_weighs_nothing(chunks):
    view = VotesView(*zip(*chunks, strict=True))
    pool = Candidates(range(len(chunks)))
    scores = WilsonFusion().score(pool, view)
    similarity = scaled_base(pool)
    without = 0.50 * similarity + 0.25 * wilson_feedback(view)
    assert scores.score - without == pytest.approx(np.full(len(chunks), 0.125))
    assert FeedbackRetriever.model_fields["policy"].default_factory is KernelBelief


@pytest.mark.parametrize("quality", [1.5, -0.1, NAN, "good"])
def test_a_quality_out_of_range_is_refused(quality):
    with pytest.raises(ValueError, match="quality must be from 0 to 1"):
        fused(0, quality=quality)


def test_settings_of_the_fusion_are_checked():
    with pytest.raises(TypeError, match="quality must be a function"):
        WilsonFusion(quality=0.5)
    with pytest.raises(ValueError, match="window_days must be"):
        WilsonFusion(window_days=0)


# -- Views


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Candidates([0.5]), "base_rank must be whole numbers"),
        (lambda: Candidates([-2]), "base_rank must be one row of ranks"),
        (lambda: Candidates([[0]]), "base_rank must be one row of ranks"),
        (lambda: Candidates([0, 1], [Document("a")]), "2 base ranks, and 1 documents"),
        (lambda: EvidenceView([2.0], [True], [[0.0]], [[0.0]]), "similarity must be from"),
        (lambda: EvidenceView([NAN], [True], [[0.0]], [[0.0]]), "similarity must be finite"),
        (lambda: EvidenceView([1.0], [1], [[0.0]], [[0.0]]), "exact must be true or false"),
        (lambda: EvidenceView([1.0], [True], [[-1.0]], [[0.0]]), "positive must be at least 0"),
        (lambda: EvidenceView([1.0], [True], [[0.0]], [[NAN]]), "negative must be finite"),
        (lambda: EvidenceView([1.0], [True], [[0.0]], [[0.0, 1.0]]), "one shape"),
        (lambda: EvidenceView([1.0, 1.0], [True], [[0.0]], [[0.0]]), "one shape"),
        (lambda: EvidenceView([1.0], [True], [0.0], [0.0]), "positive must have 2 dimension"),
        (lambda: RatingsView([5.0], [0]), "total must be the sum of count ratings"),
        (lambda: RatingsView([6.0], [1]), "total must be the sum of count ratings"),
        (lambda: RatingsView([1.0], [2]), "total must be the sum of count ratings"),
        (lambda: RatingsView([1.0], [1, 1]), "one shape"),
        (lambda: VotesView([1.0], [-1.0], [1]), "negative must be at least 0"),
        (lambda: VotesView([1.0], [1.0], [-1]), "votes must be at least 0"),
    ],
)
def test_impossible_views_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_cosine_that_rounding_carries_beyond_1_is_1():
    assert EvidenceView([1.0005], [False], [[0.0]], [[0.0]]).similarity.tolist() == [1.0]


def test_equal_scores_keep_their_order():
    # More than an unstable sort would keep by chance.
    scores = Scores(np.arange(200) % 2, np.zeros(200), np.ones(200))
    assert scores.order().tolist() == [*range(1, 200, 2), *range(0, 200, 2)]
