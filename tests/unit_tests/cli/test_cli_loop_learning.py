"""`langchain-feedback loop run`, `status`, `train`, `evaluate`, ...: what people see."""

import json
import subprocess
import sys
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from langchain_feedback import FeedbackStore
from langchain_feedback.cli import loop_running
from langchain_feedback.cli.commands import app
from langchain_feedback.loop.job import STEPS, last_runs, run_loop
from langchain_feedback.loop.promotion import active_ranker, rolled_back
from langchain_feedback.loop.training import train_ranker
from langchain_feedback.store.rankers import newest_activation
from langchain_feedback.store.transactions import reading
from tests.unit_tests.loop.job_kit import copied, fill

BACKWARDS = """
import json
from langchain_feedback.ranking.estimating import LinearEstimator

class Backwards:
    kind, least, settings = "linear", 30, {"backwards": True}

    def fit(self, groups, words):
        self.made = LinearEstimator().fit(groups, words)
        return self

    def score(self, question, candidates):
        return -self.made.score(question, candidates)

    def to_json(self):
        found = json.loads(self.made.to_json())
        found["weights"] = [-abs(one) for one in found["weights"]]
        return json.dumps(found)

def make():
    return Backwards()
"""


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """A database with enough for a promotion, and one with too few cases for it."""
    folder = tmp_path_factory.mktemp("cli")
    for name, cases in (("many", 100), ("few", 30)):
        with FeedbackStore(f"sqlite:///{folder / name}.db") as store:
            fill(store, questions=55, cases=cases)
    return folder


@pytest.fixture
def loop(templates, tmp_path, monkeypatch):
    """Run a command on a copy of the store; `loop.store()` opens it."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_DATABASE", copied(templates / "many.db", tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments, code=0):
        result = CliRunner().invoke(app, ["loop", *arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.stdout if code < 2 else result.stderr or result.stdout

    run.store = lambda: FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}")
    run.few = lambda: copied(templates / "few.db", tmp_path)
    return run


def words_of(printed):
    return " ".join(printed.split())


def test_run_tells_each_step_and_what_comes_next(loop, tmp_path):
    printed = loop("run", "--report", "week.md")
    for step in STEPS:
        assert f"\n{step} " in f"\n{printed}"
    with loop.store() as store:
        [done] = last_runs(store)
        assert active_ranker(store) is None
    waits = done.step("promote").facts["waits"]
    assert f"Next: langchain-feedback loop promote --to {waits}" in words_of(printed)
    assert "Next: langchain-feedback loop review" in printed
    assert "gift" not in printed
    assert "gift card" in (tmp_path / "week.md").read_text("utf-8")


def test_run_as_json_is_the_stored_report(loop):
    printed = json.loads(loop("run", "--json", "--auto-promote"))
    with loop.store() as store:
        assert printed == last_runs(store)[0].as_json()
        assert active_ranker(store).ranker_id == printed["steps"][7]["facts"]["ranker_id"]


def test_run_takes_single_steps_and_options(loop):
    printed = json.loads(
        loop("run", "--step", "mine", "--step", "derive", "--ordinary", "3", "--json")
    )
    assert [step["name"] for step in printed["steps"]] == ["derive", "mine"]
    assert printed["steps"][1]["facts"]["added"] == 4  # three drawn, and one that found nothing
    assert "There is no step 'dance'" in words_of(loop("run", "--step", "dance", code=2))
    assert ", ".join(STEPS) == loop_running._STEPS


def test_run_ends_with_3_and_one_line_where_another_process_runs_check13(loop):
    printed = []
    with loop.store() as store:
        run_loop(store, steps=["derive"], on_step=lambda _: printed.append(loop("run", code=3)))
    [line] = printed[0].splitlines()
    assert "is running in another process" in line


def test_run_goes_on_where_a_killed_process_was_check13(loop, tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, signal, sys\n"
        "from datetime import timedelta\n"
        "from langchain_feedback import FeedbackStore\n"
        "from langchain_feedback.loop.job import run_loop\n"
        "def die(step):\n"
        "    if step.name == 'train':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "run_loop(FeedbackStore(sys.argv[1]), on_step=die, lease=timedelta(seconds=.5))\n"
    )
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    died = subprocess.run([sys.executable, str(script), url], check=False, timeout=120)
    assert died.returncode == -9
    with loop.store() as store:
        while last_runs(store)[0].state == "running":
            pass
    done = json.loads(loop("run", "--json"))
    assert (done["state"], done["resumed"], len(done["steps"])) == ("done", 1, len(STEPS))


def test_run_ends_with_1_where_a_step_failed(loop, tmp_path):
    (tmp_path / "broken_estimator.py").write_text(
        "class Broken:\n"
        "    kind, least, settings = 'linear', 0, {}\n"
        "    def fit(self, groups, words):\n"
        "        raise OSError('cannot read what somebody asked')\n"
        "def make():\n"
        "    return Broken()\n"
    )
    printed = loop("run", "--estimator", "broken_estimator:make", code=1)
    assert "OSError: the log says more." in words_of(printed)
    assert "somebody" not in printed
    assert "Failed: train." in printed
    assert "last run failed" in loop("status")


@pytest.mark.parametrize(
    ("report", "words"), [("nowhere/week.md", "no folder"), (".", "is a directory")]
)
def test_run_does_nothing_where_its_report_has_no_place(loop, report, words):
    assert words in words_of(loop("run", "--report", report, code=2))
    with loop.store() as store:
        assert last_runs(store) == []


def test_status_says_whether_it_closes_and_why(loop):
    before = words_of(loop("status"))
    assert "none yet: langchain-feedback loop run" in before
    loop("run", "--auto-promote")
    told = json.loads(loop("status", "--json"))
    printed = loop("status")
    assert printed.startswith(told["verdict"])
    assert told["verdict"] == "closing"
    active = told["rankers"]["active"]
    for words in ("last run done", f"active: {active}", "1 promoted", "nothing"):
        assert words in words_of(printed)
    with loop.store() as store:
        assert active_ranker(store).ranker_id == active


def test_by_hand_train_evaluate_promote_and_roll_back(loop):
    assert "There is no ranker yet" in loop("evaluate", code=2)
    loop("run", "--step", "freeze")
    trained = json.loads(loop("train", "--json"))
    ranker = trained["ranker_id"]
    assert "artifact" not in trained
    assert ranker in loop("train")
    assert "was not tried" in words_of(loop("promote", code=2))
    printed = loop("evaluate", "--gate")
    for words in (
        f"{ranker} against the base's own order: promote",
        "failing",
        "ordinary",
        "ndcg@10",
        "of the",
    ):
        assert words in printed
    assert "Retrievers follow" in loop("promote", "--to", ranker, "--by", "ann")
    with loop.store() as store, reading(store) as connection:
        newest = newest_activation(connection, store.namespace)
        assert (newest.ranker_id, newest.actor) == (ranker, "ann")
    again = words_of(loop("evaluate", "--gate"))  # not against itself
    assert f"{ranker} against the base's own order: promote" in again
    assert "No ranker orders the pools now" in words_of(loop("rollback", "--by", "ann"))
    with loop.store() as store:
        assert rolled_back(store) == {ranker}
    assert "nothing to roll back" in words_of(loop("rollback", code=2))
    assert "There is no ranker 'x'" in words_of(loop("promote", "--to", "x", code=2))
    for name in ("#1", "1", ranker[:6]):  # as the pages, and people, call it
        loop("promote", "--to", name, "--by", "ann", "--force")
        loop("rollback", "--by", "ann")
    assert "There is no ranker '#7'" in words_of(loop("promote", "--to", "#7", code=2))


FEATURED = """
from langchain_feedback.ranking.estimating import LinearEstimator


def make():
    long = lambda _, found: [len(str(one)) for one in found]
    return LinearEstimator(extra_features={"long": long})
"""


def test_a_promotion_says_which_features_retrievers_need(loop, tmp_path):
    (tmp_path / "featured_estimator.py").write_text(FEATURED)
    loop("run", "--step", "freeze")
    made = json.loads(loop("train", "--estimator", "featured_estimator:make", "--json"))
    printed = words_of(loop("promote", "--to", made["ranker_id"], "--force", "--by", "ann"))
    assert "It needs features of your own: long." in printed
    assert "ranker_features={...}" in printed
    wrong = words_of(loop("train", "--estimator", "nowhere:make", code=2))
    assert "--estimator nowhere:make" in wrong


def test_the_gate_fails_a_ranker_that_is_worse(loop, tmp_path):
    (tmp_path / "backwards_estimator.py").write_text(BACKWARDS)
    loop("run", "--step", "freeze")
    made = json.loads(loop("train", "--estimator", "backwards_estimator:make", "--json"))
    report = json.loads(loop("evaluate", made["ranker_id"], "--gate", "--json", code=1))
    assert (report["verdict"], report["gain"] < 0) == ("reject", True)
    printed = loop("evaluate", made["ranker_id"])
    assert "reject" in printed
    assert "Worst: " in printed
    assert "The verdict is 'reject'" in words_of(loop("promote", code=2))
    forced = json.loads(loop("promote", "--force", "--by", "ann", "--json"))
    assert (forced["ranker_id"], forced["reason"]["forced"]) == (made["ranker_id"], True)


def test_the_gate_says_when_there_are_too_few_cases(loop):
    few = ("--database", loop.few())
    assert "There is no ranker yet" in loop("evaluate", "--gate", *few, code=2)
    loop("run", *few)
    printed = loop("evaluate", "--gate", *few, code=2)
    assert "100 cases are needed" in words_of(printed)
    assert (
        json.loads(loop("evaluate", "--json", "--baseline", "base", *few))["verdict"] == "advice"
    )


def test_a_shadow_is_switched_on_and_off(loop):
    loop("run", "--step", "freeze", "--step", "train")
    with loop.store() as store:
        ranker = train_ranker(store).ranker_id
    assert f"Ranker {ranker} ranks in the shadow now." in loop("shadow", "--by", "ann")
    with loop.store() as store, reading(store) as connection:
        assert newest_activation(connection, store.namespace, "shadow").ranker_id == ranker
        assert newest_activation(connection, store.namespace) is None
    assert "In the shadow: nobody" in loop("experiment", "shadow")  # it saw no question yet
    assert json.loads(loop("experiment", "shadow", "--json"))["questions"] == 0
    assert "No ranker ranks" in loop("shadow", "--off", "--by", "ann")


def test_repeated_questions_are_compared_before_and_after_a_promotion(loop):
    assert "No ranker was activated yet" in loop("experiment", "repeats", code=2)
    assert "not known yet" in loop("experiment", "repeats", "--since", "2026-01-01")
    loop("run", "--auto-promote")
    assert json.loads(loop("experiment", "repeats", "--json"))["win_rate"] is None


def test_an_experiment_is_begun_listed_peeked_at_and_stopped(loop):
    assert "There are no experiments" in loop("experiment", "list")
    printed = words_of(loop("experiment", "start", "new ranker", "--effect", "5"))
    assert "To find 5 points it needs" in printed
    assert "InterleavedRetriever(..., experiment='new ranker')" in printed
    assert "new ranker" in loop("experiment", "start", "new ranker", code=2)
    early = words_of(loop("experiment", "report", "new ranker", code=2))
    assert "`--peek` shows the counts" in early
    peeked = loop("experiment", "report", "new ranker", "--peek")
    assert peeked.startswith("no verdict yet")
    told = json.loads(loop("experiment", "report", "new ranker", "--peek", "--json"))
    assert (told["verdict"], told["peeks"]) == (None, 2)
    [listed] = json.loads(loop("experiment", "list", "--json"))
    assert (listed["name"], listed["peeks"]) == ("new ranker", 2)
    assert "running" in loop("experiment", "list")
    assert "stopped" in loop("experiment", "stop", "new ranker")
    short = loop("experiment", "start", "short", "--kind", "ab", "--horizon", "10")
    assert "It ends after 10" in short
    assert "SplitRetriever" in short


def test_a_lease_is_no_obstacle_once_it_ran_out(loop):
    def stop(step):
        raise KeyboardInterrupt

    with loop.store() as store, pytest.raises(KeyboardInterrupt):
        run_loop(store, on_step=stop, lease=timedelta(minutes=5))
    assert json.loads(loop("run", "--json"))["resumed"] == 1
