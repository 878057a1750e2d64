"""One run of the loop at a time, and none lost: several processes, kill -9, both databases."""

import multiprocessing
import os
import signal
import threading
import time
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from langchain_feedback import FeedbackStore
from langchain_feedback.errors import LoopBusyError
from langchain_feedback.loop.job import STEPS as EVERY_STEP
from langchain_feedback.loop.job import last_runs, run_loop
from langchain_feedback.ranking.estimating import LinearEstimator
from langchain_feedback.store.learning_schema import loop_runs
from langchain_feedback.store.transactions import writing
from tests.unit_tests.loop.job_kit import fill, tables

SPAWN = multiprocessing.get_context("spawn")
STEPS = ["derive", "alarms", "missing", "train"]
SHORT = timedelta(seconds=3)
LONG = timedelta(minutes=5)

needs_sigkill = pytest.mark.skipif(
    not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL"
)


class Fits:
    """An estimator that learns nothing, and tells when it is asked to."""

    kind, least, settings = "linear", 0, {}

    def __init__(self, meanwhile=lambda: None):
        self.meanwhile, self.asked = meanwhile, 0

    def fit(self, groups, words):
        self.asked += 1
        self.meanwhile()
        return self

    def to_json(self):
        return "{}"


def run_and_tell(url, told, begin, end):
    """Run the loop in a process of its own, as soon as all may begin."""
    with FeedbackStore(url) as store:
        store.setup()
        told.put("ready")
        begin.wait(60)
        try:
            # Whoever is first is not through before the others have tried.
            report = run_loop(store, steps=STEPS, estimator=Fits(lambda: end.wait(60)), lease=LONG)
            told.put(report.state)
        except LoopBusyError as error:
            told.put(str(error))


def run_and_hang(url, told, where, lease, end):
    """Run the loop, and hang after a step, or within the one that trains."""

    def hang(step=None):
        if step is None or step.name == where:
            told.put("hangs")
            end.wait(120)

    with FeedbackStore(url) as store:
        within = where == "within train"
        options = {"estimator": Fits(hang)} if within else {"on_step": hang}
        try:
            run_loop(store, **({"estimator": Fits(), "steps": STEPS, "lease": lease} | options))
        except LoopBusyError as error:
            told.put(str(error))


def run_a_week(url, told):
    with FeedbackStore(url) as store:
        told.put("begins")
        told.put(run_loop(store, auto_promote=True, lease=timedelta(seconds=0.5)).state)


def started(url, where, lease):
    told, end = SPAWN.Queue(), SPAWN.Event()
    process = SPAWN.Process(target=run_and_hang, args=(url, told, where, lease, end))
    process.start()
    assert told.get(timeout=60) == "hangs"
    return process, told, end


def killed(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)


def age(store, **by):
    """Let the lease of the run that is open have ended this long ago."""
    with writing(store) as (connection, _):
        [run] = connection.execute(select(loop_runs)).all()
        ended = run.lease_until - timedelta(**by)
        connection.execute(update(loop_runs).values(lease_until=ended))


def until_interrupted(store):
    """Wait for the end of the lease, and return the run."""
    deadline = time.monotonic() + 30
    while (run := last_runs(store)[0]).state == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert run.state == "interrupted"
    return run


def test_of_four_that_begin_at_once_one_runs_check13(url):
    told, begin, end = SPAWN.Queue(), SPAWN.Event(), SPAWN.Event()
    workers = [SPAWN.Process(target=run_and_tell, args=(url, told, begin, end)) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert [told.get(timeout=120) for _ in workers] == ["ready"] * 4
    begin.set()
    refused = [told.get(timeout=60) for _ in workers[1:]]
    end.set()
    assert told.get(timeout=60) == "done"
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert all("is running in another process" in words for words in refused)
    with FeedbackStore(url) as store:
        [run] = last_runs(store)
        assert (run.state, [step.name for step in run.steps]) == ("done", STEPS)


@needs_sigkill
@pytest.mark.parametrize("where", ["derive", "train", "within train"])
def test_a_run_that_was_killed_is_resumed_where_it_was_check13(url, where):
    process, _, _ = started(url, where, SHORT)
    with FeedbackStore(url) as store:
        with pytest.raises(LoopBusyError):
            run_loop(store, steps=STEPS)
        killed(process)
        before = until_interrupted(store)
        taken, estimator = [], Fits()
        report = run_loop(store, steps=STEPS, on_step=taken.append, estimator=estimator)
        [stored] = last_runs(store)
    kept = STEPS[:3] if where == "within train" else STEPS[: STEPS.index(where) + 1]
    assert [step.name for step in before.steps] == kept
    assert [step.name for step in taken] == STEPS[len(kept) :]
    assert estimator.asked == (where != "train")
    assert (report.run_id, report.resumed, report.state) == (before.run_id, 1, "done")
    assert report.steps[: len(kept)] == before.steps
    assert report == stored


@needs_sigkill
def test_killed_at_any_moment_a_week_is_done_in_the_end_and_nothing_twice_check13(url):
    with FeedbackStore(url) as store:
        fill(store, questions=50)
        deaths, wait = 0, 0.05
        while not (runs := last_runs(store)) or runs[0].state != "done":
            told = SPAWN.Queue()
            process = SPAWN.Process(target=run_a_week, args=(url, told))
            process.start()
            assert told.get(timeout=60) == "begins"
            time.sleep(wait)
            killed(process)
            deaths, wait = deaths + 1, wait + 0.15
            if last_runs(store) and last_runs(store)[0].state == "running":
                until_interrupted(store)
            assert deaths < 40
        [run] = last_runs(store)
        assert [step.name for step in run.steps] == list(EVERY_STEP)
        assert run.resumed >= 1
        before = tables(store)
        again = run_loop(store, auto_promote=True)
        assert again.state == "done"
        assert tables(store) == before


@needs_sigkill
def test_who_slept_past_his_lease_changes_nothing_any_more_check13(url):
    process, told, end = started(url, "within train", SHORT)
    os.kill(process.pid, signal.SIGSTOP)
    with FeedbackStore(url) as store:
        until_interrupted(store)
        report = run_loop(store, steps=STEPS, estimator=Fits(), lease=LONG)
        os.kill(process.pid, signal.SIGCONT)
        end.set()
        assert "taken over by another process" in told.get(timeout=60)
        process.join(30)
        assert report.resumed == 1
        assert last_runs(store) == [report]


def test_a_lost_lease_ends_the_run_at_its_next_step_check13(store):
    def lose():
        age(store, hours=1)
        run_loop(store, steps=STEPS, estimator=Fits())

    with pytest.raises(LoopBusyError, match="taken over"):
        run_loop(store, steps=STEPS, estimator=Fits(lose), lease=LONG)
    [run] = last_runs(store)
    assert (run.state, run.resumed, len(run.steps)) == ("done", 1, len(STEPS))


def test_who_took_a_run_over_has_it_alone_check13(store):
    working, end, done = threading.Event(), threading.Event(), []

    def work():
        working.set()
        end.wait(60)

    def take_over():
        done.append(run_loop(store, steps=STEPS, estimator=Fits(work), lease=LONG))

    thread = threading.Thread(target=take_over)

    def lose():
        age(store, hours=1)
        thread.start()
        working.wait(60)  # the other one is in the same step now

    with pytest.raises(LoopBusyError, match="taken over"):
        run_loop(store, steps=STEPS, estimator=Fits(lose), lease=LONG)
    [run] = last_runs(store)
    assert (run.state, [step.name for step in run.steps]) == ("running", STEPS[:-1])
    end.set()
    thread.join()
    assert last_runs(store) == done


def test_a_step_that_takes_longer_than_the_lease_keeps_it_check13(store):
    busy, seen = threading.Event(), []

    def work():
        busy.set()
        time.sleep(4)

    def run():
        seen.append(run_loop(store, steps=STEPS, estimator=Fits(work), lease=timedelta(seconds=1)))

    thread = threading.Thread(target=run)
    thread.start()
    assert busy.wait(30)
    refused = 0
    while thread.is_alive():
        try:
            run_loop(store, steps=STEPS)
        except LoopBusyError:
            refused += 1
        else:
            assert seen, "it ran beside another one"
        time.sleep(0.2)
    thread.join()
    assert (seen[0].state, seen[0].resumed) == ("done", 0)
    assert refused >= 5


def test_an_exception_leaves_the_lease_to_the_next_run(store):
    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_loop(store, steps=STEPS, on_step=stop, lease=LONG)
    report = run_loop(store, steps=STEPS)
    assert (report.resumed, len(report.steps), len(last_runs(store))) == (1, len(STEPS), 1)


@pytest.mark.parametrize(
    ("then", "hours"),
    [({"steps": ["derive"]}, 0), ({"auto_promote": True}, 0), ({}, 25)],
    ids=["other steps", "it may promote", "a day later"],
)
def test_what_is_not_the_same_run_begins_anew(store, then, hours):
    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_loop(store, steps=STEPS, on_step=stop)
    age(store, hours=hours)
    report = run_loop(store, **({"steps": STEPS} | then))
    assert report.resumed == 0
    runs = {run.run_id: run.state for run in last_runs(store)}
    assert sorted(runs.values()) == ["done", "failed"]
    assert runs[report.run_id] == "done"


def test_each_namespace_has_a_lease_of_its_own(store):
    inner = []

    def beside(step):
        if not inner:
            inner.append(run_loop(store.scoped("other"), steps=["derive"]))

    report = run_loop(store, steps=["derive"], on_step=beside)
    assert (report.state, inner[0].state) == ("done", "done")
    assert [run.run_id for run in last_runs(store)] == [report.run_id]


def test_the_default_estimator_is_the_linear_one(store):
    report = run_loop(store, steps=["train"])
    assert report.steps[0].state == "skipped"
    assert str(LinearEstimator().least) in report.steps[0].words
