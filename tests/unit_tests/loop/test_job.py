"""The week in one call: what it does, what it leaves alone, and what it says."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, text

from langchain_feedback import FeedbackStore
from langchain_feedback.loop.digest import run_as_markdown, week_as_markdown
from langchain_feedback.loop.job import STEPS, last_runs, run_loop
from langchain_feedback.loop.owners import Owner, Owners
from langchain_feedback.loop.promotion import active_ranker, promote, rollback
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.ranking.estimating import LinearEstimator
from langchain_feedback.store.learning_schema import loop_runs
from langchain_feedback.store.rankers import read_activations, read_rankers
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.job_kit import GIFT, copied, fill, tables
from tests.unit_tests.loop.learned import reviewed


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("learned") / "template.db"
    with FeedbackStore(f"sqlite:///{path}") as store:
        fill(store)
    return path


@pytest.fixture
def learned(template, tmp_path):
    """A store with enough labels and cases for a promotion."""
    with FeedbackStore(copied(template, tmp_path)) as store:
        yield store


class Breaks:
    """An estimator that cannot."""

    kind, least, settings = "linear", 0, {}

    def fit(self, groups, words):
        msg = "The disk is full.\nDETAIL: (1, 'what somebody asked')"
        raise OSError(msg)


def states(report):
    return {step.name: step.state for step in report.steps}


def rankers(store):
    with reading(store) as connection:
        return [one.ranker_id for one in read_rankers(connection, store.namespace)]


def activations(store):
    with reading(store) as connection:
        return read_activations(connection, store.namespace)


def test_a_week_mines_freezes_trains_evaluates_and_leaves_the_decision_to_a_person(learned):
    told = []
    report = run_loop(learned, on_step=told.append)
    assert [step.name for step in told] == list(STEPS)
    assert report.steps == tuple(told)
    assert states(report) == dict.fromkeys(STEPS, "done") | {
        "promote": "skipped", "digest": "skipped",
    }  # fmt: skip
    [ranker_id] = rankers(learned)
    assert report.step("train").facts["ranker_id"] == ranker_id
    tried = report.step("evaluate").facts
    assert (tried["verdict"], tried["cases"] >= 100, tried["gain"] > 0) == ("promote", True, True)
    assert f"loop promote --to {ranker_id}" in report.step("promote").words
    assert activations(learned) == []
    assert last_runs(learned) == [report]
    assert len(ReviewQueue(learned).items(state="open")) == report.step("mine").facts["waiting"]


def test_with_leave_to_a_ranker_that_earned_it_is_promoted(learned):
    report = run_loop(learned, auto_promote=True)
    assert (report.state, report.auto_promote) == ("done", True)
    assert active_ranker(learned).ranker_id == report.step("promote").facts["ranker_id"]
    [row] = activations(learned)
    assert (row.action, row.actor) == ("promote", "loop")
    again = run_loop(learned, auto_promote=True)
    assert "is active already" in again.step("promote").words
    assert len(activations(learned)) == 1


@pytest.mark.parametrize("auto_promote", [False, True])
def test_twice_changes_nothing_check13(learned, tmp_path, auto_promote):
    options = {
        "auto_promote": auto_promote,
        "owners": Owners(default=Owner("docs team")),
        "outbox": tmp_path / "outbox",
    }
    first = run_loop(learned, **options)
    assert first.state == "done"
    before = tables(learned)
    for name in ("lcf_rankers", "lcf_eval_cases", "lcf_eval_runs", "lcf_review_items"):
        assert before[name], f"{name} is empty, so nothing is shown"
    files = {path: path.read_text() for path in (tmp_path / "outbox").iterdir()}
    assert files
    second = run_loop(learned, **options)
    assert second.state == "done"
    assert tables(learned) == before
    assert {path: path.read_text() for path in (tmp_path / "outbox").iterdir()} == files


def test_twice_changes_nothing_on_both_databases_check13(store):
    fill(store, questions=50, cases=30)
    assert run_loop(store).state == "done"
    before = tables(store)
    assert before["lcf_rankers"]
    assert run_loop(store).state == "done"
    assert tables(store) == before


def test_interrupted_after_each_step_a_run_does_what_an_uninterrupted_one_does_check13(
    template, tmp_path
):
    def stop(step):
        raise KeyboardInterrupt

    ends = []
    for name, interrupted in (("whole", False), ("pieces", True)):
        (tmp_path / name).mkdir()
        with FeedbackStore(copied(template, tmp_path / name)) as store:
            for _ in range(len(STEPS) * interrupted):
                with pytest.raises(KeyboardInterrupt):
                    run_loop(store, auto_promote=True, on_step=stop)
            report = run_loop(store, auto_promote=True)
            assert report.resumed == len(STEPS) * interrupted
            assert len(last_runs(store)) == 1
            items = sorted(item.item_id for item in ReviewQueue(store).items(limit=1000))
            acted = [(one.action, one.ranker_id) for one in activations(store)]
            ends.append((states(report), rankers(store), acted, items))
    assert ends[0] == ends[1]


def test_what_was_rolled_back_stays_out_until_there_is_a_new_ranker(learned):
    run_loop(learned, auto_promote=True)
    [first] = rankers(learned)
    rollback(learned, actor="ann")
    report = run_loop(learned, auto_promote=True)
    assert report.state == "done"
    assert "was rolled back" in report.step("evaluate").words
    assert "was rolled back" in report.step("promote").words
    assert active_ranker(learned) is None
    number = 2000
    while len(rankers(learned)) == 1:  # one in three is held out, and teaches nothing
        reviewed(learned, number)
        number += 1
        report = run_loop(learned, auto_promote=True)
    assert active_ranker(learned).ranker_id == report.step("promote").facts["ranker_id"] != first


def test_a_person_may_promote_what_waits(learned):
    waits = run_loop(learned).step("promote").facts["waits"]
    promote(learned, waits, actor="ann")
    assert active_ranker(learned).ranker_id == waits


def test_too_few_labels_are_said_and_are_no_failure(store):
    fill(store, questions=3, cases=5)
    report = run_loop(store, auto_promote=True)
    assert report.state == "done"
    train = report.step("train")
    assert (train.state, "30 reviewed questions" in train.words) == ("skipped", True)
    assert report.step("evaluate").words == "There is no ranker yet."
    assert rankers(store) == activations(store) == []


def test_failures_alone_are_no_test_and_no_failure():
    store = FeedbackStore("sqlite://")
    fill(store, questions=50, ordinary=0, cases=0)
    report = run_loop(store, auto_promote=True)
    assert report.state == "done"
    tried = report.step("evaluate")
    assert (tried.state, "some must be ordinary traffic" in tried.words) == ("skipped", True)
    assert report.step("promote").state == "skipped"
    assert activations(store) == []


def test_a_step_that_fails_takes_with_it_only_what_needs_it(learned, tmp_path):
    owners = Owners(default=Owner("docs team"))
    report = run_loop(
        learned, estimator=Breaks(), owners=owners, outbox=tmp_path / "outbox", auto_promote=True
    )
    assert report.state == last_runs(learned)[0].state == "failed"
    assert states(report) == dict.fromkeys(STEPS, "done") | {
        "train": "failed", "evaluate": "skipped", "promote": "skipped",
    }  # fmt: skip
    assert report.step("train").words == "OSError: the log says more."
    assert "'train', which failed" in report.step("evaluate").words
    assert (tmp_path / "outbox").is_dir()
    assert run_loop(learned, auto_promote=True).state == "done"


def test_a_database_that_lacks_a_table_fails_where_it_is_needed(learned):
    with writing(learned) as (connection, _):
        connection.execute(text("DROP TABLE lcf_eval_cases"))
    report = run_loop(learned, auto_promote=True)
    assert [step.name for step in report.failed] == ["freeze"]
    for name in ("train", "evaluate", "promote"):
        assert "'freeze', which failed" in report.step(name).words
    assert report.step("mine").state == "done"
    assert rankers(learned) == []


def test_each_step_runs_alone(store):
    for name in STEPS:
        report = run_loop(store, steps=[name])
        assert (name, report.state) == (name, "done")
        assert [step.name for step in report.steps] == [name]
        assert report.steps[0].words
        assert last_runs(store)[0] == report
    assert len(last_runs(store)) == len(STEPS)


def test_a_step_alone_goes_on_from_what_is_in_the_store(learned):
    for name in ("freeze", "train", "evaluate"):
        assert run_loop(learned, steps=[name]).steps[0].state == "done"
    report = run_loop(learned, steps=["promote"], auto_promote=True)
    assert active_ranker(learned).ranker_id == report.steps[0].facts["ranker_id"]


def test_steps_run_in_their_own_order():
    report = run_loop(FeedbackStore("sqlite://"), steps=["digest", "derive"])
    assert [step.name for step in report.steps] == ["derive", "digest"]


@pytest.mark.parametrize(
    "wrong",
    [{"steps": ["derive", "dance"]}, {"steps": []}, {"days": 0}, {"lease": timedelta()}],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(wrong):
    store = FeedbackStore("sqlite://")
    with pytest.raises(ValueError, match=r"no step 'dance'|must be above 0"):
        run_loop(store, **wrong)
    assert last_runs(store) == []


def test_features_of_ones_own_are_there_when_the_ranker_is_tried(learned):
    features = {"has_alpha": lambda question, texts: [float("alpha" in one) for one in texts]}
    estimator = LinearEstimator(extra_features=features)
    report = run_loop(learned, estimator=estimator, auto_promote=True)
    assert (report.state, report.step("evaluate").facts["verdict"]) == ("done", "promote")


def test_the_moment_is_handed_to_the_steps(learned):
    later = datetime.now(UTC) + timedelta(days=40)
    report = run_loop(learned, now=later)
    assert report.step("mine").facts["added"] == 0  # nothing was asked in the week before
    assert report.step("missing").facts["items"] == []
    assert abs(report.started_at - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_run_keeps_no_text_of_a_question(learned):
    run_loop(learned, owners=Owners(default=Owner("docs team")))
    with reading(learned) as connection:
        [kept] = connection.execute(select(loop_runs.c.report)).scalars()
    assert "gift" not in kept
    assert "alpha" not in kept
    assert len(json.loads(kept)["steps"]) == len(STEPS)


def test_the_digest_says_what_needs_somebody_and_no_ones_words_are_markup(learned):
    report = run_loop(learned)
    written = week_as_markdown(learned, report)
    assert f"loop promote --to {report.step('promote').facts['waits']}" in written
    assert "## Documents that are missing" in written
    assert "\\<b\\>gift card\\</b\\>" in written
    for harmful in ("<b>", "@octocat", "#12", " | see"):
        assert harmful in GIFT
        assert harmful not in written.replace("\\|", "")
    assert run_as_markdown(report) == written[: len(run_as_markdown(report))]
    assert "gift" not in run_as_markdown(report)


def test_a_failed_run_says_so_in_its_digest():
    store = FeedbackStore("sqlite://")
    report = run_loop(store, steps=["train", "evaluate"], estimator=Breaks())
    written = run_as_markdown(report)
    assert "What failed: Training." in written
    assert "| Training | **failed** | OSError: the log says more. |" in written
