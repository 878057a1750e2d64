"""The gate's error rates: 200 simulated rankers each, of which the true difference is known."""

import random
from statistics import fmean, pstdev

import numpy as np
import pytest
from langchain_core.runnables import RunnableLambda

from langchain_feedback import FeedbackStore
from langchain_feedback.errors import EvaluationError
from langchain_feedback.loop._gating.strata import shares_of
from langchain_feedback.loop.cases import import_cases, read_cases
from langchain_feedback.loop.evaluation import evaluate
from tests.unit_tests.loop.casekit import clicked, frozen, pool, question
from tests.unit_tests.loop.kit import said

CANDIDATES = 200
SIZE = 10
BASE_RANKS = {0: 45, 1: 17, 2: 11, 3: 8, 4: 6, 5: 5, 6: 3, 7: 2, 8: 2, 9: 1}
"""Of 100 questions, at how many the right chunk stands where: an nDCG of .72."""
FAILING = 30
SPREAD = 0.18
"""The standard deviation of a question's difference. From it follow the 106 questions that a
gain of five points needs (80 % of the time, two-sided 5 %). `LinearRanker` has .06 to .08 on
FeedbackQA: the gate passes it more often than these."""


def ndcg(rank):
    return 1 / np.log2(rank + 2)


@pytest.fixture(scope="module")
def store():
    """100 frozen cases, 30 of them failing, and a week of traffic, a fifth of it failing."""
    ranks = [rank for rank, count in BASE_RANKS.items() for _ in range(count)]
    random.Random(1).shuffle(ranks)
    with FeedbackStore("sqlite://") as opened:
        frozen(opened, FAILING, right=ranks[:FAILING], stratum="failing", size=SIZE)
        more = len(ranks) - FAILING
        frozen(opened, more, start=FAILING, right=ranks[FAILING:], size=SIZE)
        for number in range(8):
            trace_id = clicked(opened, 500 + number)
            if number == 0:
                said(opened, trace_id, "thumbs_down")
        yield opened


class Simulated:
    """Moves the right chunk up, or down, by chance, of which the true difference follows."""

    def __init__(self, seed, up, down):
        self.seed, self.up, self.down = seed, up, down

    def score(self, text, candidates):
        scores = -candidates.base_rank.astype(float)
        right = next(
            at for at, one in enumerate(candidates.documents) if one.page_content[:3] == "The"
        )
        place = self.place(text, right)
        scores[right] = -place - 0.5 * np.sign(place - right)
        return scores

    def place(self, text, rank):
        """Up and down it goes to any place there is, each as likely."""
        chance = random.Random(f"{self.seed} {text}")
        first = chance.random()
        if first < self.up and rank > 0:
            return chance.randrange(rank)
        if self.up <= first < self.up + self.down and rank < SIZE - 1:
            return chance.randrange(rank + 1, SIZE)
        return rank


def tuned(cases, weights, difference):
    """How often it must move chunks up, and down, for this true difference and spread."""
    ranks = [next(at for at, one in enumerate(c.pool) if one.name in c.right) for c in cases]
    best = [[ndcg(at) - ndcg(rank) for at in range(rank)] or [0.0] for rank in ranks]
    worst = [[ndcg(at) - ndcg(rank) for at in range(rank + 1, SIZE)] or [0.0] for rank in ranks]
    means = [weights @ [fmean(one) for one in side] for side in (best, worst)]
    squares = [weights @ [fmean(np.square(one)) for one in side] for side in (best, worst)]
    square = SPREAD**2 + difference**2
    up, down = np.linalg.solve([means, squares], [difference, square])
    return float(up), float(down)


@pytest.mark.parametrize(
    ("difference", "least", "most"), [(-0.01, 0.0, 0.08), (0.0, 0.0, 0.15), (0.05, 0.8, 1.0)]
)
def test_of_200_simulated_rankers_the_gate_promotes_the_right_share_check3(
    store, difference, least, most
):
    weights = evaluate(store, Simulated(0, 0.0, 0.0)).weights
    cases = read_cases(store)
    up, down = tuned(cases, shares_of(cases, weights), difference)
    assert min(up, down, 1 - up - down) > 0
    reports = [evaluate(store, Simulated(seed, up, down)) for seed in range(CANDIDATES)]
    gains = [one.gain for one in reports]
    # The simulation is what it says: its mean is the true difference within 3 standard errors.
    assert abs(fmean(gains) - difference) < 3 * pstdev(gains) / CANDIDATES**0.5
    promoted = sum(one.verdict == "promote" for one in reports) / CANDIDATES
    assert least <= promoted <= most, f"{promoted:.1%} promoted"


DOCUMENTS, EACH, EQUAL = 12, 30, 40


def of_documents(number):
    """The pool of a case, and the document that its right chunk is of."""
    ranks = [rank for rank, count in BASE_RANKS.items() for _ in range(count)]
    rank = random.Random(number).choice(ranks)
    return pool(number, rank, SIZE, f"d{number % DOCUMENTS}.md"), rank


@pytest.fixture(scope="module")
def many():
    """360 ordinary cases, 30 of each of 12 documents."""
    found = {number: of_documents(number) for number in range(DOCUMENTS * EACH)}
    rows = [
        {"question": question(number), "relevant": [chunks[rank].id]}
        for number, (chunks, rank) in found.items()
    ]
    pools = {question(number): chunks for number, (chunks, _) in found.items()}
    with FeedbackStore("sqlite://") as opened:
        import_cases(opened, rows, RunnableLambda(pools.__getitem__))
        yield opened


def vetoes(report):
    return [one.name for one in report.strata if one.worse and one.name.startswith("source:")]


def test_many_documents_are_not_many_chances_of_a_veto_check3(many):
    cases = read_cases(many)
    up, down = tuned(cases, np.full(len(cases), 1 / len(cases)), 0.0)
    reports = [evaluate(many, Simulated(seed, up, down)) for seed in range(EQUAL)]
    assert all(
        sum(one.name.startswith("source:") for one in report.strata) == DOCUMENTS
        for report in reports
    )
    # Some document of twelve looks worse by chance nearly every fourth time.
    look_worse = sum(
        any(one.p_worse <= 0.05 and one.name.startswith("source:") for one in report.strata)
        for report in reports
    )
    assert look_worse >= 0.15 * EQUAL
    assert sum(bool(vetoes(report)) for report in reports) <= 0.05 * EQUAL


class Ruins(Simulated):
    """Gains on all documents but some, of which it puts the right chunk down."""

    ruined = ("d3.md",)

    def score(self, text, candidates):
        self.source = candidates.documents[0].metadata["source"]
        return super().score(text, candidates)

    def place(self, text, rank):
        return SIZE - 1 if self.source in self.ruined else max(0, rank - 1)


def test_documents_that_are_ruined_are_a_veto_among_many_check3(many):
    ranker = Ruins(0, 0.0, 0.0)
    report = evaluate(many, ranker)
    assert (report.verdict, report.gain > 0, vetoes(report)) == ("reject", True, ["source:d3.md"])
    ranker.ruined = ("d3.md", "d7.md", "d8.md")
    assert vetoes(evaluate(many, ranker)) == [f"source:{name}" for name in ranker.ruined]


class Shuffles:
    """Puts the first five in any order."""

    def score(self, text, candidates):
        scores = -candidates.base_rank.astype(float)
        scores[:5] = random.Random(text).sample(range(1, 6), 5)
        return scores


def test_a_shuffle_gains_on_failures_alone_which_are_refused_and_is_rejected_check3():
    with FeedbackStore("sqlite://") as failures:
        # Their first chunks are wrong: that is why they failed.
        frozen(failures, 120, right=[1 + at % 4 for at in range(120)], stratum="failing")
        with pytest.raises(EvaluationError, match="All 120 cases are failing"):
            evaluate(failures, Shuffles())
        frozen(failures, 120, start=200, right=0)
        report = evaluate(failures, Shuffles())
    strata = {one.name: one for one in report.strata}
    assert strata["failing"].gain > 0.03
    assert strata["ordinary"].worse
    assert (report.verdict, report.gain < 0) == ("reject", True)
