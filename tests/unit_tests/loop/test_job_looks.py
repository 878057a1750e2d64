"""When the loop looks at a ranker, with which options it goes on, and what it says of errors."""

import logging

import pytest

from langchain_feedback import FeedbackStore
from langchain_feedback.errors import StoreRejectedError
from langchain_feedback.loop._week import steps as _job_steps
from langchain_feedback.loop.digest import week_as_markdown
from langchain_feedback.loop.evaluation import evaluate, read_reports
from langchain_feedback.loop.health import loop_health
from langchain_feedback.loop.job import last_runs, run_loop
from langchain_feedback.loop.owners import Owner, Owners
from langchain_feedback.loop.promotion import active_ranker, promote, rollback
from langchain_feedback.ranking.estimating import LinearEstimator
from tests.unit_tests.loop.casekit import BY_WORDS, UPSIDE_DOWN, frozen, pool, stored
from tests.unit_tests.loop.job_kit import fill
from tests.unit_tests.loop.kit import asked

LOOKS = ["evaluate", "promote"]


@pytest.fixture
def memory():
    with FeedbackStore("sqlite://") as store:
        yield store


class Stopped(BaseException):
    """What a process that is killed would be."""


def stop(step):
    raise Stopped


def looked(store, **options):
    """The state of the step that evaluates, and its words."""
    step = run_loop(store, steps=LOOKS, **options).step("evaluate")
    return step.state, step.words


# -- how often


def test_after_a_rejection_it_looks_again_only_once_a_quarter_more_cases_came(store):
    frozen(store, 120, right=0)
    stored(store, "cand", UPSIDE_DOWN)
    assert looked(store)[0] == "done"
    state, words = looked(store)
    assert (state, words) == ("skipped", "Ranker cand was tried on these cases already: reject.")
    for night in range(29):
        frozen(store, 1, start=500 + night, right=0)
        state, words = looked(store)
        assert state == "skipped"
    assert words == (
        "Ranker cand was tried on 120 cases: reject. It is tried again as soon as 30 new ones are "
        "there; there are 29."
    )
    assert len(read_reports(store)) == 1
    frozen(store, 1, start=600, right=0)
    assert looked(store)[0] == "done"
    assert [(one.version, one.n) for one in read_reports(store)] == [(1, 120), (31, 150)]


def test_below_the_least_of_cases_it_looks_at_each_new_set(memory):
    frozen(memory, 50)
    stored(memory, "cand")
    assert looked(memory)[0] == "done"
    assert looked(memory) == (
        "skipped", "Ranker cand was tried on these cases already: advice.",
    )  # fmt: skip
    frozen(memory, 1, start=500)
    assert looked(memory)[0] == "done"
    frozen(memory, 60, start=600)
    report = run_loop(memory, steps=LOOKS)
    assert report.step("evaluate").facts["verdict"] == "promote"
    assert report.step("promote").facts == {"waits": "cand"}


def test_what_waits_for_a_person_is_tried_on_each_new_set_and_may_be_promoted(memory):
    frozen(memory, 120)
    stored(memory, "cand")
    assert looked(memory)[0] == "done"
    frozen(memory, 1, start=500)
    alone = run_loop(memory, steps=["promote"]).step("promote")
    assert (alone.facts, "older set of cases" in alone.words) == ({}, True)
    report = run_loop(memory, steps=LOOKS)
    assert report.step("evaluate").state == "done"
    assert report.step("promote").facts == {"waits": "cand"}
    again = run_loop(memory, steps=LOOKS)
    assert again.step("evaluate").facts["run_id"] == report.step("evaluate").facts["run_id"]
    assert again.step("promote").facts == {"waits": "cand"}
    assert promote(memory, "cand").ranker_id == "cand"


def test_another_ranker_or_another_active_one_is_a_first_look(memory):
    frozen(memory, 120, right=0)
    stored(memory, "cand", UPSIDE_DOWN)
    stored(memory, "other", BY_WORDS)
    assert looked(memory)[0] == "done"
    promote(memory, "other", force=True)
    assert looked(memory)[0] == "done"
    assert {one.baseline_id for one in read_reports(memory)} == {None, "other"}


@pytest.mark.parametrize("other", [{"version": 1}, {"k": 3}])
def test_what_somebody_tried_by_hand_otherwise_is_no_look_of_the_loop(memory, other):
    frozen(memory, 120)
    frozen(memory, 120, start=500, right=0)
    stored(memory, "cand", UPSIDE_DOWN)
    evaluate(memory, "cand", **other)
    assert looked(memory)[0] == "done"
    evaluate(memory, "cand", **other)
    report = run_loop(memory, steps=LOOKS, auto_promote=True)
    assert report.step("evaluate").words.endswith("already: reject.")
    assert report.step("promote").words == "Ranker cand stays out: reject."


# -- promoting while others do


def test_one_that_is_taken_back_at_that_very_moment_stays_out(memory, monkeypatch):
    frozen(memory, 120)
    stored(memory, "cand")
    evaluate(memory, "cand")
    found = _job_steps.candidate_of

    def meanwhile(store, before):
        candidate = found(store, before)
        promote(store, "cand", actor="ann")
        rollback(store, actor="ann")
        return candidate

    monkeypatch.setattr(_job_steps, "candidate_of", meanwhile)
    report = run_loop(memory, steps=["promote"], auto_promote=True)
    assert (report.state, active_ranker(memory)) == ("done", None)
    step = report.step("promote")
    assert (step.state, "somebody was faster" in step.words) == ("skipped", True)


# -- what is said of errors


class Says:
    """An estimator that fails with somebody's words."""

    kind, least, settings = "linear", 0, {}

    def __init__(self, error):
        self.error = error

    def fit(self, groups, words):
        raise self.error


SECRET = "cannot tokenize 'how do I tell my boss'"  # noqa: S105  a question


@pytest.mark.parametrize("error", [ValueError(SECRET), StoreRejectedError(SECRET)])
def test_the_texts_of_others_errors_are_in_the_log_alone(memory, caplog, error):
    with caplog.at_level(logging.ERROR):
        report = run_loop(memory, steps=["train"], estimator=Says(error))
    assert report.state == "failed"
    assert report.step("train").words == f"{type(error).__name__}: the log says more."
    assert "boss" not in str(last_runs(memory))
    assert "boss" in caplog.text


class NoNumber:
    """A ranker that is broken."""

    def score(self, question, candidates):
        return [float("nan")] * len(candidates.base_rank)


def test_a_broken_ranker_fails_the_run(memory):
    frozen(memory, 120)
    stored(memory, "cand")
    report = run_loop(memory, steps=LOOKS, load=lambda _: NoNumber(), auto_promote=True)
    assert (report.state, report.step("evaluate").state) == ("failed", "failed")
    assert "one finite score" in report.step("evaluate").words
    assert "'evaluate', which failed" in report.step("promote").words
    assert active_ranker(memory) is None


def test_health_says_why_an_evaluation_was_refused(memory):
    stored(memory, "cand")
    assert loop_health(memory).why == "Ranker #1 is trained; `loop evaluate` tries it."
    step = run_loop(memory, steps=["evaluate"]).steps[0]
    assert (step.state, step.facts) == ("skipped", {"refused": "EvaluationError"})
    found = loop_health(memory)
    assert found.run.refused == step.words
    assert found.why == f"Ranker #1 could not be tried: {step.words}"
    run_loop(memory, steps=["derive"])  # says nothing of rankers
    assert loop_health(memory).why == found.why
    frozen(memory, 120)
    run_loop(memory, steps=["evaluate"])
    found = loop_health(memory)
    assert (found.run.refused, "`loop promote`" in found.why) == (None, True)


# -- going on after an interruption


def test_with_another_estimator_it_begins_anew(memory):
    fill(memory, questions=55, ordinary=3, cases=3)
    steps = ["freeze", "train", "evaluate"]

    def die(step):
        if step.name == "train":
            raise Stopped

    with pytest.raises(Stopped):
        run_loop(memory, steps=steps, on_step=die)
    other = LinearEstimator(strength=5.0)
    report = run_loop(memory, steps=steps, estimator=other)
    assert [(run.state, run.resumed) for run in last_runs(memory)] == [("done", 0), ("failed", 0)]
    first = last_runs(memory)[1].step("train").facts["ranker_id"]
    assert report.step("train").facts["ranker_id"] != first
    assert run_loop(memory, steps=["train"], estimator=other).steps[0].facts == (
        report.step("train").facts
    )


@pytest.mark.parametrize(
    ("changed", "resumed"),
    [
        ({}, 1),
        ({"estimator": LinearEstimator(), "days": 7.0}, 1),  # what it is without being named
        ({"owners": Owners(default=Owner("docs"))}, 0),
        ({"days": 8}, 0),
        ({"limit": 41}, 0),
        ({"ordinary": 9}, 0),
        ({"double": 0.2}, 0),
        ({"estimator": LinearEstimator(least=31)}, 0),
    ],
)
def test_a_run_is_resumed_with_the_same_options_only(memory, changed, resumed):
    steps = ["derive", "missing"]
    with pytest.raises(Stopped):
        run_loop(memory, steps=steps, on_step=stop)
    assert run_loop(memory, steps=steps, **changed).resumed == resumed
    assert len(last_runs(memory)) == 2 - resumed


# -- the report for people


def test_addresses_that_people_wrote_are_no_links_in_the_digest(memory):
    question = "See https://evil.example/x or WWW.evil.example or me@evil.example?"
    for who in ("ann", "bea"):
        trace_id = asked(memory, question, pool(3), actor=who, answer="x")
        memory.rate(trace_id, 1, actor=who)
    written = week_as_markdown(memory, run_loop(memory, steps=["mine"]))
    [row] = [line for line in written.splitlines() if "evil" in line]
    for linked in ("://", "www.", "@evil"):
        assert linked not in row.lower()
    assert row.replace("\u200b", "").startswith(f"| {question} |")
