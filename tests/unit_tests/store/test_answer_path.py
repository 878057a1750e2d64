"""The answer never waits for the store, and what it had to say is not lost."""

import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
from langchain_core.documents import Document

from langchain_feedback.errors import StoreError
from langchain_feedback.store.feedback_store import FeedbackStore

CHUNK = Document("A refund takes 14 days.", id="refund")


class MoodyStore(FeedbackStore):
    """Does to each write what `mood` says."""

    mood = staticmethod(lambda: None)

    def _write(self, new):
        self.mood()
        super()._write(new)


@pytest.fixture
def moody(tmp_path):
    with MoodyStore(f"sqlite:///{tmp_path / 'f.db'}", timeout_s=0.2) as store:
        yield store


def away():
    raise StoreError("away")  # noqa: EM101


def test_a_write_that_fails_is_made_up_for_with_the_next(moody):
    moody.mood = away
    moody.record_soon("t1", "refund?", [CHUNK])
    moody.update_soon("t1", answer="14 days")
    assert moody.trace("t1") is None
    moody.mood = lambda: None
    moody.record_soon("t2", "refund?", [CHUNK])
    assert moody.trace("t1").answer == "14 days"
    assert moody.trace("t2") is not None


def test_a_rating_of_a_trace_that_waits_writes_it_first(moody):
    moody.mood = away
    moody.record_soon("t1", "refund?", [CHUNK])
    moody.mood = lambda: None
    moody.rate("t1", 5)
    assert len(moody.evidence_for("refund?").cells) == 1


def test_closing_writes_what_waits(moody):
    moody.mood = away
    moody.record_soon("t1", "refund?", [CHUNK])
    moody.mood = lambda: None
    moody.close()
    assert moody.trace("t1") is not None


def test_a_document_that_is_changed_while_it_waits_is_kept_as_it_was(moody):
    mine = CHUNK.model_copy(update={"metadata": {"page": [1]}})
    moody.mood = away
    moody.record_soon("t1", "refund?", [mine])
    mine.metadata["page"].append(2)
    moody.mood = lambda: None
    moody.close()
    [[snapshot]] = moody.snapshots(moody.cells_of([mine])).values()
    assert snapshot.document.metadata == {"page": [1]}


def test_a_hanging_write_is_waited_for_no_longer_than_told(moody):
    hanging = threading.Event()
    moody.mood = lambda: hanging.wait(20)
    started = time.monotonic()
    moody.record_soon("t1", "refund?", [CHUNK])
    assert time.monotonic() - started < 5
    hanging.set()
    moody.close()
    assert moody.trace("t1") is not None


def test_what_a_database_refuses_for_good_holds_nothing_up(moody, caplog):
    def refuse():
        raise TypeError

    moody.mood = refuse
    with caplog.at_level(logging.WARNING):
        moody.record_soon("t1", "refund?", [CHUNK])
    moody.mood = lambda: None
    moody.record_soon("t2", "refund?", [CHUNK])
    assert (moody.trace("t1"), moody.trace("t2").trace_id) == (None, "t2")
    assert "t1 was not kept" in caplog.text


def test_ids_that_postgres_refuses_hold_nothing_up(url, caplog):
    with FeedbackStore(url, timeout_s=10) as store:
        odd = Document("Text.", id="nul\0id")
        with caplog.at_level(logging.WARNING):
            store.record_soon("t1", "refund?", [odd])
            store.record_soon("t2", "refund?", [CHUNK])
        assert store.trace("t2") is not None


def test_many_hanging_reads_are_given_up_each_in_its_time_and_the_next_ones_work(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'f.db'}", timeout_s=0.2) as store:
        hanging = threading.Event()
        started = time.monotonic()
        reads = [
            threading.Thread(target=lambda: store.try_read(lambda: hanging.wait(20), None))
            for _ in range(30)
        ]
        for thread in reads:
            thread.start()
        for thread in reads:
            thread.join()
        assert time.monotonic() - started < 5
        hanging.set()
        deadline = time.monotonic() + 5
        while store.try_read(lambda: "read", "away") == "away" and time.monotonic() < deadline:
            pass
        assert store.try_read(lambda: "read", "away") == "read"


def test_a_store_that_is_away_is_told_once_and_not_with_each_answer(tmp_path, caplog):
    with FeedbackStore(f"sqlite:///{tmp_path / 'f.db'}") as store:
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                assert store.try_read(away, "base order") == "base order"
                assert store.try_read(lambda: "read", None) == "read"
        assert len([r for r in caplog.records if "does without the store" in r.message]) == 1


def test_reads_that_hang_hold_up_no_exit(tmp_path):
    program = (
        "import sys, time; from langchain_feedback.store.feedback_store import FeedbackStore\n"
        "store = FeedbackStore(sys.argv[1], timeout_s=.1)\n"
        "store.try_read(lambda: time.sleep(60), None)\n"
    )
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path / 'f.db'}"]
    assert subprocess.run(command, timeout=30, check=False).returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_threads_of_its_own(tmp_path):
    program = (
        "import os, sys; from langchain_feedback.store.feedback_store import FeedbackStore\n"
        "store = FeedbackStore(sys.argv[1], timeout_s=5)\n"
        "assert store.try_read(lambda: 1, 0) == 1\n"
        "child = os.fork()\n"
        "assert store.try_read(lambda: 1, 0) == 1\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
        "else: os._exit(0)\n"
    )
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path / 'f.db'}"]
    done = subprocess.run(command, timeout=60, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_processes_that_are_forked_while_others_are_busy_answer_too(postgres_url):
    """Not on SQLite, whose own record of who holds which lock is copied as it stands."""
    program = """
import os, sys, threading
from langchain_core.documents import Document
from langchain_feedback.store.feedback_store import FeedbackStore
store = FeedbackStore(sys.argv[1], timeout_s=20)
chunk = Document("14 days", id="refund")
store.record_trace("t0", "refund?", [chunk], vector=[1, 0])
store.rate("t0", 5)
busy = True
def work(name):
    n = 0
    while busy:
        n += 1
        store.record_soon(f"{name}-{n}", "refund?", [chunk], vector=[1, 0])
        store.try_read(lambda: store.evidence_for("refunds?", vector=[1, 0.1]), None)
threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
for thread in threads: thread.start()
children = []
for n in range(8):
    child = os.fork()
    if child == 0:
        store.record_soon(f"child-{n}", "refund?", [chunk], vector=[1, 0])
        found = store.try_read(lambda: store.evidence_for("refunds?", vector=[1, 0.1]), None)
        os._exit(0 if found and found.cells and store.trace(f"child-{n}") else 1)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
busy = False
for thread in threads: thread.join()
assert codes == [0] * 8, codes
"""
    command = [sys.executable, "-W", "ignore", "-c", program, postgres_url]
    done = subprocess.run(command, timeout=120, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_closed_store_leaves_no_threads_and_nothing_alive(tmp_path):
    before = threading.active_count()
    stores = [FeedbackStore(f"sqlite:///{tmp_path / f'{n}.db'}") for n in range(5)]
    for store in stores:
        store.try_read(lambda: 1, 0)
        store.close()
    gone = [weakref.ref(store) for store in stores]
    del store, stores
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.02)
    gc.collect()
    assert threading.active_count() <= before
    assert [ref() for ref in gone] == [None] * 5


def test_nothing_waits_for_good_while_another_thread_writes(moody):
    """Ratings and answers of traces that are on their way are neither refused nor dropped."""
    moody.record_trace("t0", "refund?", [CHUNK])
    slow = threading.Event()
    moody.mood = lambda: slow.wait(0.3)
    errors = []

    def answer(number):
        try:
            moody.record_soon(f"t{number}", "refund?", [CHUNK])
            moody.update_soon(f"t{number}", answer="14 days")
            moody.rate(f"t{number}", 5, actor=str(number))
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=answer, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    moody.close()
    assert errors == []
    assert {moody.trace(f"t{n}").answer for n in range(1, 7)} == {"14 days"}
