"""Eight processes at one queue: each item is decided once."""

import multiprocessing
import os
import signal
import time

import pytest

from langchain_feedback import FeedbackStore
from langchain_feedback.loop.review import ReviewQueue
from tests.unit_tests.loop.test_review import candidate, later

ITEMS, REVIEWERS = 400, 8
SPAWN = multiprocessing.get_context("spawn")


def work(url, name, decided):
    with FeedbackStore(url) as store:
        queue = ReviewQueue(store, double=0)
        while (item := queue.claim(name)) is not None:
            queue.decide(item, "reject")
            decided.put((name, item.item_id))
    decided.put((name, None))


def hold(url, ready):
    with FeedbackStore(url) as store:
        ReviewQueue(store).claim("gone")
        ready.put("claimed")
        time.sleep(60)


def test_eight_processes_decide_each_of_400_items_once_check6(url):
    with FeedbackStore(url) as store:
        queue = ReviewQueue(store, double=0)
        assert queue.add(candidate(number) for number in range(ITEMS)) == ITEMS
    decided = SPAWN.Queue()
    names = [f"reviewer {number}" for number in range(REVIEWERS)]
    workers = [SPAWN.Process(target=work, args=(url, name, decided)) for name in names]
    for worker in workers:
        worker.start()
    found, ended = [], 0
    while ended < REVIEWERS:
        _, item_id = decided.get(timeout=120)
        ended += item_id is None
        found += [] if item_id is None else [item_id]
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert len(found) == len(set(found)) == ITEMS
    with FeedbackStore(url) as store:
        progress = ReviewQueue(store).progress()
        assert (progress.decided, progress.open, progress.claimed) == (ITEMS, 0, 0)
        assert sum(one.decided for one in progress.reviewers) == ITEMS


def test_the_claim_of_a_killed_reviewer_ends_check6(url):
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("this system has no SIGKILL")
    with FeedbackStore(url) as store:
        queue = ReviewQueue(store, double=0)
        queue.add([candidate(1)])
        ready = SPAWN.Queue()
        process = SPAWN.Process(target=hold, args=(url, ready))
        process.start()
        assert ready.get(timeout=60) == "claimed"
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        assert queue.claim("ann") is None
        later(store, hours=1)
        assert queue.decide(queue.claim("ann"), "reject").state == "decided"
