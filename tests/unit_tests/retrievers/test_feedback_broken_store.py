"""A broken or slow store costs the adjustment, never the answer."""

import sqlite3
import time
from pathlib import Path

import pytest

from langchain_feedback import new_trace_id, trace_id_of
from langchain_feedback.errors import StoreError
from langchain_feedback.ranking.policies import AverageRating, KernelBelief, WilsonFusion
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.retrievers.feedback_kit import (
    MONEY,
    REFUND,
    AngleEmbeddings,
    ids,
    marks,
    run,
    vote,
    wrap,
)

READS = ["trace", "evidence_for", "cells_of", "snapshots", "ratings_for", "votes_for"]
POLICIES = [KernelBelief(), AverageRating(), WilsonFusion()]


def failing_store(folder, reads, how):
    """A store of which some reads go wrong."""

    class Failing(FeedbackStore):
        called: list = []  # noqa: RUF012

    def broken(self, *args, **kwargs):
        self.called.append(args)
        how()

    for name in reads:
        setattr(Failing, name, broken)
    return Failing(f"sqlite:///{folder}/feedback.db", embeddings=AngleEmbeddings())


def raise_typed():
    msg = "the disk is gone"
    raise StoreError(msg)


def raise_untyped():
    msg = "a bug"
    raise RuntimeError(msg)


def hang():
    time.sleep(3)


@pytest.fixture
def learned(tmp_path):
    """A database in which people like a chunk far down."""
    with FeedbackStore(
        f"sqlite:///{tmp_path}/feedback.db", embeddings=AngleEmbeddings(), timeout_s=20
    ) as store:
        vote(wrap(store), "c4", times=3)
        store.pin(REFUND, "c5")
    return tmp_path


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("how", [raise_typed, raise_untyped])
async def test_a16_reads_that_raise(learned, how, policy, caplog):
    store = failing_store(learned, READS, how)
    retriever = wrap(store, policy=policy)
    trace_id = new_trace_id()
    found = retriever.invoke(REFUND, run(feedback_trace_id=trace_id))
    assert (ids(found), trace_id_of(found)) == (["c0", "c1", "c2"], trace_id)
    assert {marks(one)["belief"] for one in found} == {0.0}
    assert ids(await retriever.ainvoke(REFUND)) == ["c0", "c1", "c2"]
    assert caplog.records
    # The trace was written all the same: it can be rated.
    store.rate(trace_id, 5)
    store.close()


@pytest.mark.parametrize("read", READS)
def test_each_read_alone(learned, read):
    with failing_store(learned, [read], raise_untyped) as store:
        retriever = wrap(store)
        store.pin(MONEY, "c3")
        found = retriever.invoke(MONEY, run(feedback_trace_id="given"))
        assert len(found) == 3
        assert trace_id_of(found) == "given"


def test_a_store_that_hangs_is_waited_for_once(learned, caplog):
    store = failing_store(learned, READS, hang)
    retriever = wrap(store)
    started = time.perf_counter()
    found = retriever.invoke(REFUND, run(feedback_trace_id="given"))
    assert time.perf_counter() - started < 2.5
    assert ids(found) == ["c0", "c1", "c2"]
    assert len(store.called) == 1
    assert len([line for line in caplog.messages if "(read)" in line]) == 1


def test_a16_a_locked_database(learned, caplog):
    store = FeedbackStore(
        f"sqlite:///{learned}/feedback.db", embeddings=AngleEmbeddings(), timeout_s=1
    )
    retriever = wrap(store)
    retriever.invoke(REFUND)
    caplog.clear()
    other = sqlite3.connect(learned / "feedback.db")
    other.execute("BEGIN EXCLUSIVE")
    started = time.perf_counter()
    found = retriever.invoke(REFUND)
    assert time.perf_counter() - started < 5
    assert len(found) == 3
    other.rollback()
    other.close()
    # The trace waited, and is there as soon as it is rated.
    store.rate(trace_id_of(found), 5)
    assert store.trace(trace_id_of(found)) is not None
    assert len([line for line in caplog.messages if "(write)" in line]) == 1
    store.close()


@pytest.mark.parametrize("content", [b"not a database at all" * 200, b""])
def test_a16_a_file_that_is_no_database(tmp_path, content, caplog):
    path = tmp_path / "feedback.db"
    path.write_bytes(content)
    retriever = wrap(FeedbackStore(f"sqlite:///{path}", embeddings=AngleEmbeddings()))
    found = [retriever.invoke(REFUND) for _ in range(3)]
    assert [ids(one) for one in found] == [["c0", "c1", "c2"]] * 3
    assert all(trace_id_of(one) for one in found)
    # One line for reading and one for writing.
    assert len(caplog.records) == (2 if content else 0)


def test_a16_a_database_that_breaks_on_the_way(learned, caplog):
    store = FeedbackStore(
        f"sqlite:///{learned}/feedback.db", embeddings=AngleEmbeddings(), timeout_s=20
    )
    retriever = wrap(store)
    assert ids(retriever.invoke(REFUND))[0] == "c5"
    store.close()
    for path in Path(learned).glob("feedback.db*"):
        path.write_bytes(b"\x00garbage" * 4096)
    assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
    assert len(caplog.records) >= 1


def test_a16_a_folder_that_is_not_there(tmp_path, caplog):
    retriever = wrap(FeedbackStore(f"sqlite:///{tmp_path}/no/such/folder/feedback.db"))
    assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
    assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
    assert len(caplog.records) == 2
