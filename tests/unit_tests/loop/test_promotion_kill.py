"""Kill -9 at any point around promotion and rollback; other processes, and damaged artifacts."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableLambda

from langchain_feedback import FeedbackRetriever, FeedbackStore
from langchain_feedback.errors import ArtifactError, PromotionRefusedError
from langchain_feedback.loop.evaluation import evaluate
from langchain_feedback.loop.promotion import active_ranker, promote, rollback, rolled_back
from langchain_feedback.store.learning_schema import rankers
from langchain_feedback.store.rankers import activate, before_active, read_activations, read_ranker
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.casekit import (
    BY_WORDS,
    UPSIDE_DOWN,
    WHEN,
    frozen,
    pool,
    question,
    stored,
)

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL"
)

NAMES = ("a", "b", "c")

POINTS = """
import os, signal, sys
from sqlalchemy import event
from langchain_feedback import FeedbackStore
from langchain_feedback.loop import promotion

url, action, point = sys.argv[1], sys.argv[2], sys.argv[3]
store = FeedbackStore(url)
store.setup()

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

engine = store._database.engine
if point == "before the insert":
    def before(connection, cursor, statement, *_):
        if "INSERT INTO lcf_ranker_activations" in statement:
            die()
    event.listen(engine, "before_cursor_execute", before)
elif point == "after the insert":
    def after(connection, cursor, statement, *_):
        if "INSERT INTO lcf_ranker_activations" in statement:
            die()
    event.listen(engine, "after_cursor_execute", after)
elif point == "at the commit":
    event.listen(engine, "commit", die)
elif point == "when it begins":
    event.listen(engine, "begin", die)

if action == "promote":
    promotion.promote(store, "b", force=True)
else:
    promotion.rollback(store)
if point == "when it is done":
    die()
"""
LOST = ("when it begins", "before the insert", "after the insert", "at the commit")

TURNS = """
import itertools, sys
from langchain_feedback import FeedbackStore
from langchain_feedback.errors import PromotionRefusedError
from langchain_feedback.loop.promotion import promote, rollback
with FeedbackStore(sys.argv[1]) as store:
    store.setup()
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    for turn in itertools.count():
        try:
            rollback(store) if turn % 3 == 2 else promote(store, "abc"[turn % 3], force=True)
        except PromotionRefusedError:
            pass
"""

SEARCHER = """
import logging, sys
from langchain_core.runnables import RunnableLambda
from langchain_feedback import FeedbackRetriever, FeedbackStore
from tests.unit_tests.loop.casekit import pool, question
logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
with FeedbackStore(sys.argv[1], timeout_s=30) as store:
    retriever = FeedbackRetriever(
        base_retriever=RunnableLambda(lambda _: pool(1)), store=store, k=5
    )
    assert retriever.rankers.poll_s == 30
    retriever.rankers.poll_s = 0.2
    while sys.stdin.readline():
        sys.stdout.write(retriever.invoke(question(1))[0].id + "\\n")
        sys.stdout.flush()
"""

PROMOTER = """
import sys
from langchain_feedback import FeedbackStore
from langchain_feedback.loop.promotion import promote, rollback
with FeedbackStore(sys.argv[1]) as store:
    rollback(store) if sys.argv[2] == "rollback" else promote(store, sys.argv[2], force=True)
"""


class Searcher:
    """A retriever in another process, which asks the store what is active every .2 s."""

    def __init__(self, url):
        root = Path(__file__).parents[3]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SEARCHER, url], cwd=root, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def first(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line.strip()

    def waits_for(self, chunk_id, seconds=30):
        """Return whether the chunk comes first before the time is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.first() == chunk_id:
                return True
            time.sleep(0.1)
        return False

    def closed(self):
        """End it; return what it warned of."""
        _, warned = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, warned
        return warned


def run(script, *arguments):
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def filled(url, *, active=()):
    with FeedbackStore(url) as store:
        stored(store, "a", BY_WORDS)
        stored(store, "b", UPSIDE_DOWN)
        stored(store, "c", (4.0, 0.0, 0.0))
        for name in active:
            promote(store, name, force=True)


def history(store):
    with reading(store) as connection:
        return read_activations(connection, store.namespace)


@pytest.mark.parametrize("point", [*LOST, "when it is done"])
@pytest.mark.parametrize("action", ["promote", "rollback"])
def test_a_kill_at_any_point_leaves_one_active_ranker_check5(url, action, point):
    filled(url, active=["a"] if action == "promote" else ["a", "c"])
    before, after = ("a", "b") if action == "promote" else ("c", "a")
    child = run(POINTS, url, action, point)
    assert child.returncode == -signal.SIGKILL, child.stderr
    with FeedbackStore(url) as store:
        assert active_ranker(store).ranker_id == (before if point in LOST else after)
        # And it goes on from there: nothing is locked, nothing half done.
        if point in LOST:
            promote(store, "b", force=True) if action == "promote" else rollback(store)
        assert active_ranker(store).ranker_id == after
        assert len(history(store)) == (2 if action == "promote" else 3)
        assert rolled_back(store) == (set() if action == "promote" else {"c"})


def test_kills_at_random_moments_never_leave_a_broken_history_check5(url):
    filled(url)
    for number in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", TURNS, url], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.05 + 0.037 * number)
        os.kill(child.pid, signal.SIGKILL)
        child.wait(30)
        child.stdout.close()
        with FeedbackStore(url) as store:
            rows = history(store)
            assert active_ranker(store) == (_record(store, rows[-1].ranker_id) if rows else None)
            _assert_lawful(rows)
    with FeedbackStore(url) as store:
        assert len(history(store)) > 6
        promote(store, "a", force=True)
        assert active_ranker(store).ranker_id == "a"


def _record(store, ranker_id):
    with reading(store) as connection:
        return None if ranker_id is None else read_ranker(connection, store.namespace, ranker_id)


def _assert_lawful(rows):
    """Each rollback went to where the history before it says; nothing was promoted twice."""
    assert [one.seq for one in rows] == sorted(one.seq for one in rows)
    for at, one in enumerate(rows):
        if one.action == "rollback":
            assert one.ranker_id == before_active(rows[:at])
    for one, other in pairwise(rows):
        assert other.action == "rollback" or other.ranker_id != one.ranker_id


def test_processes_that_promote_at_once_make_one_history_check5(url):
    filled(url)
    children = [
        subprocess.Popen([sys.executable, "-c", PROMOTER, url, name]) for name in NAMES * 2
    ]
    assert [child.wait(120) for child in children] == [0] * 6
    with FeedbackStore(url) as store:
        rows = history(store)
        assert {one.ranker_id for one in rows} == set(NAMES)
        _assert_lawful(rows)
        for _ in rows:
            rollback(store)
        assert active_ranker(store) is None
        with pytest.raises(PromotionRefusedError):
            rollback(store)


RIGHT, FIRST, LAST = "1-2", "1-0", "1-4"
"""What the rankers `a`, none and `b` put first."""


def test_another_process_follows_promotion_and_rollback_check5(url):
    filled(url)
    searcher = Searcher(url)
    assert searcher.first() == FIRST
    with FeedbackStore(url) as store:
        promote(store, "a", force=True)
        assert searcher.waits_for(RIGHT)
        promote(store, "b", force=True)
        assert searcher.waits_for(LAST)
        rollback(store)
        assert searcher.waits_for(RIGHT)
        rollback(store)
        assert searcher.waits_for(FIRST)
    assert searcher.closed() == ""


def test_a_damaged_artifact_keeps_the_old_one_in_every_process_check5(url):
    filled(url, active=["a"])
    searcher = Searcher(url)
    assert searcher.waits_for(RIGHT)
    with FeedbackStore(url) as store:
        with writing(store) as (connection, _):
            this = rankers.update().where(rankers.c.ranker_id == "b")
            connection.execute(this.values(artifact='{"format": 1'))
        with pytest.raises(ArtifactError, match="damaged"):
            promote(store, "b", force=True)
        with writing(store) as (connection, _):  # as if it were damaged after its promotion
            activate(connection, store.namespace, "b", action="promote", at=WHEN)
        time.sleep(1)
        assert [searcher.first() for _ in range(5)] == [RIGHT] * 5
        promote(store, "c", force=True)
        assert searcher.waits_for(FIRST)
        rollback(store)
        time.sleep(1)
        assert searcher.first() == FIRST
        rollback(store)
        assert searcher.waits_for(RIGHT)
    warned = searcher.closed()
    assert warned.count("cannot be loaded, so it orders nothing") == 1
    assert "damaged" in warned


def test_what_a_stored_artifact_holds_is_never_run_check5(url):
    evil = "cos\nsystem\n(S'touch pwned'\ntR."
    with FeedbackStore(url) as store:
        stored(store, "evil", artifact=evil)
        promote(store, "evil", force=True)
        frozen(store, 1)
        with pytest.raises(ArtifactError, match="no ranker that this release reads"):
            evaluate(store, "evil", baseline=None)
        retriever = FeedbackRetriever(
            base_retriever=RunnableLambda(lambda _: pool(1)), store=store, k=5
        )
        assert retriever.invoke(question(1))[0].id == FIRST
