"""A retriever over the active version: it follows swaps, and never mixes two versions."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from sqlalchemy import select, update

from langchain_feedback import FeedbackRetriever, create_reliable_rag, new_trace_id, trace_id_of
from langchain_feedback.errors import StoreError
from langchain_feedback.index.swappable import SwappableRetriever
from langchain_feedback.index.versions import (
    EmbedderMismatchError,
    IndexRegistry,
    NoActiveVersionError,
)
from langchain_feedback.store.care_schema import index_versions
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import trace_chunks, traces
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.index.version_kit import (
    Model,
    Reader,
    documents,
    follow,
    opener,
    prepared,
    promote,
    question,
)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'feedback.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(tmp_path):
    # Patient: a busy machine must not cost a test its trace.
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}", timeout_s=20) as opened:
        yield opened


@pytest.fixture
def registry(store, tmp_path):
    return prepared(store, tmp_path, "v1", "v2")


def version_of(found):
    [version] = {one.metadata["feedback"]["index_version"] for one in found}
    return version


def kept_versions(store):
    with reading(store) as connection:
        rows = connection.execute(select(traces.c.trace_id, traces.c.index_version)).all()
        return {row.trace_id: row.index_version for row in rows}


# -- many readers while versions are swapped


def test_check8_twenty_swaps_and_rollbacks_under_four_threads_and_two_processes(url, tmp_path):
    with FeedbackStore(url, timeout_s=20) as store:
        registry = prepared(store, tmp_path, "v1", "v2")
        processes = [started(url, tmp_path) for _ in range(2)]
        for process in processes:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        live = follow(registry, check_every=0.01, learns=True)
        readers, stop = [Reader(live) for _ in range(4)], threading.Event()
        threads = [threading.Thread(target=asking, args=(one, stop)) for one in readers]
        for thread in threads:
            thread.start()
        for turn in range(20):
            before = [one.asked for one in readers]
            if turn % 2:
                assert registry.rollback(expected="v2").active.version == "v1"
            else:
                assert registry.activate("v2", expected="v1").active.version == "v2"
            # Longer than the processes wait before they look at the registry again.
            time.sleep(0.015)
            for _ in range(2):
                answered(processes)
            # The answer after the one that was under way at the swap.
            waited(lambda: all(one.asked > then + 1 for one, then in zip(readers, before)))  # noqa: B023, B905
        stop.set()
        for thread in threads:
            thread.join()
        told = list(ended(processes))
        assert [one.wrong[:5] for one in readers] == [[]] * 4
        assert [one["wrong"] for one in told] == [[]] * 2
        assert {version for one in readers for version in one.versions} == {"v1", "v2"}
        assert [one["versions"] for one in told] == [["v1", "v2"]] * 2
        assert [one.action for one in registry.history()] == [
            "activate", *["activate", "rollback"] * 10,
        ]  # fmt: skip
    with FeedbackStore(url) as store, reading(store) as connection:
        asked = sum(one.asked for one in readers) + sum(one["asked"] for one in told)
        kept = connection.execute(select(traces.c.trace_id, traces.c.index_version)).all()
        assert len(kept) == asked
        # What a trace says is the version of every chunk that it considered.
        rows = connection.execute(
            select(trace_chunks.c.chunk_id, traces.c.index_version).join(
                traces, traces.c.trace_id == trace_chunks.c.trace_id
            )
        ).all()
        assert len(rows) >= 3 * asked
        assert all(chunk_id.partition("-")[0] == version for chunk_id, version in rows)


def started(url, folder):
    command = [sys.executable, "-m", "tests.unit_tests.index.version_kit", url, str(folder)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def answered(processes):
    for process in processes:
        process.stdin.write("next\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout.readline() == "more\n", process.stderr.read()


def ended(processes):
    for process in processes:
        process.stdin.close()
    for process in processes:
        told, errors = process.stdout.read(), process.stderr.read()
        assert process.wait(timeout=60) == 0, errors
        yield json.loads(told)


def asking(reader, stop):
    # With a pause, which leaves the processors to the others.
    while not stop.wait(0.005):
        reader.ask()


def waited(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


# -- following


def test_it_looks_at_the_registry_only_so_often(registry, monkeypatch):
    live = follow(registry, check_every=3600)
    assert version_of(live.invoke(question(1))) == "v1"
    registry.activate("v2", expected="v1")
    assert version_of(live.invoke(question(1))) == "v1"
    later = time.monotonic() + 3601
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert version_of(live.invoke(question(1))) == "v2"


def test_a_version_is_opened_once_for_all_threads(registry):
    opened, inner = [], opener()

    def slowly(version):
        opened.append(version.version)
        time.sleep(0.1)
        return inner(version)

    readers = [Reader(follow(registry, open_version=slowly))] * 4
    threads = [threading.Thread(target=one.ask) for one in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (opened, readers[0].wrong) == (["v1"], [])


def test_others_go_on_with_the_old_version_while_the_new_one_is_opened(registry):
    opening, may_open, inner = threading.Event(), threading.Event(), opener()

    def slowly(version):
        if version.version == "v2":
            opening.set()
            assert may_open.wait(30)
        return inner(version)

    live = follow(registry, open_version=slowly)
    live.invoke(question(1))
    registry.activate("v2", expected="v1")
    found = []
    first = threading.Thread(target=lambda: found.append(live.invoke(question(1))))
    first.start()
    assert opening.wait(30)
    assert version_of(live.invoke(question(1))) == "v1"
    may_open.set()
    first.join()
    assert version_of(found[0]) == version_of(live.invoke(question(1))) == "v2"


def test_without_an_active_version_it_says_what_to_do(store, tmp_path):
    registry = IndexRegistry(store)
    live = follow(registry)
    with pytest.raises(NoActiveVersionError, match="Activate one"):
        live.invoke(question(1))
    promote(registry, tmp_path, "v1")
    registry.activate("v1", expected=None)
    assert live.current().version == "v1"
    assert version_of(live.invoke(question(1))) == "v1"


def test_a_name_that_is_used_again_is_another_version(registry, tmp_path):
    live = follow(registry)
    assert "as of v1" in live.invoke(question(1))[0].page_content
    with writing(registry.store) as (connection, _):
        connection.execute(
            update(index_versions)
            .where(index_versions.c.version == "v1")
            .values(version="old", status="retired")
        )
        connection.execute(
            update(index_versions)
            .where(index_versions.c.version == "v2")
            .values(version="v1", status="active")
        )
    assert "as of v2" in live.invoke(question(1))[0].page_content


# -- what cannot be opened


def test_a_version_that_cannot_be_opened_keeps_the_old_one_and_is_told_once(
    registry, caplog, monkeypatch
):
    tried, inner, broken = [], opener(), True

    def fragile(version):
        tried.append(version.version)
        if version.version == "v2" and broken:
            msg = "the folder is gone"
            raise OSError(msg)
        return inner(version)

    live = follow(registry, open_version=fragile)
    live.invoke(question(1))
    registry.activate("v2", expected="v1")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert version_of(live.invoke(question(1))) == "v1"
        later = time.monotonic() + 31
        monkeypatch.setattr(time, "monotonic", lambda: later)
        assert version_of(live.invoke(question(1))) == "v1"
    assert [
        record.message for record in caplog.records if "cannot be opened" in record.message
    ] == ["Version 'v2' cannot be opened, so 'v1' goes on: OSError('the folder is gone')"]
    # Not with each question: at once, and again after half a minute.
    assert tried == ["v1", "v2", "v2"]
    broken = False
    monkeypatch.setattr(time, "monotonic", lambda: later + 31)
    assert version_of(live.invoke(question(1))) == "v2"


def test_check8_another_embedder_of_equal_size_is_refused(registry, caplog):
    def careless(version):
        locator = dict(version.locator) | {"model": "v1"}
        return opener()(version.__class__(**vars(version) | {"locator": locator}))

    live = follow(registry, open_version=careless)
    assert version_of(live.invoke(question(1))) == "v1"
    registry.activate("v2", expected="v1")
    assert version_of(live.invoke(question(1))) == "v1"
    assert "it is v1, not v2" in caplog.text
    fresh = follow(registry, open_version=careless)
    with pytest.raises(EmbedderMismatchError, match="it is v1, not v2"):
        fresh.invoke(question(1))


def test_an_embedder_that_nobody_can_see_is_refused_unless_it_is_named(registry):
    def hidden(version):
        return RunnableLambda(opener()(version).invoke)

    with pytest.raises(EmbedderMismatchError, match="embedder_of"):
        follow(registry, open_version=hidden).invoke(question(1))
    live = follow(registry, open_version=hidden, embedder_of=lambda _: Model("v1"))
    assert version_of(live.invoke(question(1))) == "v1"
    with pytest.raises(EmbedderMismatchError, match="it is v2, not v1"):
        follow(registry, open_version=hidden, embedder_of=lambda _: Model("v2")).current()


def test_a_store_that_is_away_keeps_what_is_open(registry, monkeypatch):
    live = follow(registry)
    live.invoke(question(1))

    def away():
        msg = "away"
        raise StoreError(msg)

    monkeypatch.setattr(registry, "active", away)
    assert version_of(live.invoke(question(1))) == "v1"
    with pytest.raises(StoreError):
        follow(registry).invoke(question(1))


def test_a_version_that_is_no_longer_active_without_a_new_one_goes_on(registry, caplog):
    live = follow(registry)
    live.invoke(question(1))
    with writing(registry.store) as (connection, _):
        connection.execute(update(index_versions).values(status="retired"))
    for _ in range(2):
        assert version_of(live.invoke(question(1))) == "v1"
    assert caplog.text.count("No version is active any more") == 1


# -- requests


def test_a_request_keeps_the_version_that_it_began_with(registry):
    live = follow(registry)
    mine, other = ({"metadata": {"feedback_trace_id": new_trace_id()}} for _ in range(2))
    assert version_of(live.invoke(question(1), mine)) == "v1"
    registry.activate("v2", expected="v1")
    assert version_of(live.invoke(question(2), mine)) == "v1"
    assert version_of(live.invoke(question(2), other)) == "v2"
    assert version_of(live.invoke(question(2))) == "v2"
    registry.rollback()
    assert version_of(live.invoke(question(2), other)) == "v2"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_second_search_goes_by_the_trace_id_that_the_first_one_got(registry, is_async):
    live = follow(registry, learns=True)

    def asked(page, config=None):
        if is_async:
            return asyncio.run(live.ainvoke(question(page), config))
        return live.invoke(question(page), config)

    # Nobody named a trace: the first search is recorded under an id of its own.
    trace_id = trace_id_of(asked(1))
    registry.activate("v2", expected="v1")
    again = {"metadata": {"feedback_trace_id": trace_id, "feedback_attempt": 2}}
    found = asked(2, again)
    assert (trace_id_of(found), version_of(found)) == (trace_id, "v1")
    assert version_of(asked(2)) == "v2"


def test_a_request_is_forgotten_after_a_while(registry, monkeypatch):
    live = follow(registry)
    mine = {"metadata": {"feedback_trace_id": new_trace_id()}}
    live.invoke(question(1), mine)
    registry.activate("v2", expected="v1")
    later = time.monotonic() + 301
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert version_of(live.invoke(question(1), mine)) == "v2"


def test_only_so_many_requests_are_remembered(registry):
    live = follow(registry, check_every=3600)
    for number in range(1_050):
        live._follower.of_request(f"t{number}")
    assert len(live._follower._requests) == 1_000


def test_a_second_search_of_a_trace_below_a_feedback_retriever_keeps_its_version(registry):
    outer = FeedbackRetriever(base_retriever=follow(registry), store=registry.store, k=3)
    first = outer.invoke(question(1))
    registry.activate("v2", expected="v1")
    trace_id = trace_id_of(first)
    again = {"metadata": {"feedback_trace_id": trace_id, "feedback_attempt": 2}}
    found = outer.invoke(question(1), again)
    assert trace_id_of(found) == trace_id
    assert version_of(found) == "v1"


# -- what is handed on, and what comes back


def test_traces_record_the_version(registry):
    live = follow(registry, learns=True)
    first = trace_id_of(live.invoke(question(1)))
    registry.activate("v2", expected="v1")
    second = trace_id_of(live.invoke(question(1)))
    assert kept_versions(registry.store) == {first: "v1", second: "v2"}


async def test_async_traces_record_the_version(registry):
    live = follow(registry, learns=True)
    first = trace_id_of(await live.ainvoke(question(1)))
    await registry.aactivate("v2", expected="v1")
    second = trace_id_of(await live.ainvoke(question(1)))
    assert await asyncio.to_thread(kept_versions, registry.store) == {first: "v1", second: "v2"}


def test_a_feedback_retriever_above_records_the_version(registry):
    outer = FeedbackRetriever(base_retriever=follow(registry), store=registry.store, k=3)
    first = trace_id_of(outer.invoke(question(1)))
    registry.activate("v2", expected="v1")
    second = trace_id_of(outer.invoke(question(1)))
    assert kept_versions(registry.store) == {first: "v1", second: "v2"}


def test_chunks_that_feedback_adds_are_of_the_same_version(registry):
    live = follow(registry, learns=True)
    liked = live.invoke(question(1))
    registry.store.rate(trace_id_of(liked), 5, target=liked[2], actor="ann")
    registry.activate("v2", expected="v1")
    after = live.invoke(question(1))
    assert {one.id.partition("-")[0] for one in after} == {"v2"}
    registry.rollback()
    assert liked[2].id in [one.id for one in live.invoke(question(1))]


def test_unrecorded_searches_touch_no_trace(registry, caplog):
    live = follow(registry, learns=True)
    live.invoke(question(1), {"metadata": {"feedback_unrecorded": True}})
    assert kept_versions(registry.store) == {}
    assert "not kept" not in caplog.text


def test_options_and_config_reach_the_version(registry):
    seen = []

    class Inner(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager, k=1, shelf="a"):
            seen.append((query, k, shelf, run_manager.metadata.get("user_id")))
            return documents("v1")[:k]

    live = follow(registry, open_version=lambda _: Inner(), embedder_of=lambda _: Model("v1"))
    config = {"metadata": {"user_id": "ann"}}
    assert len(live.invoke("q", config, k=2, shelf="b")) == 2
    assert len(asyncio.run(live.ainvoke("q", config, k=4))) == 4
    assert len(live.invoke("q")) == 1
    assert seen == [("q", 2, "b", "ann"), ("q", 4, "a", "ann"), ("q", 1, "a", None)]


def test_a_feedback_retriever_above_asks_for_its_whole_pool(registry):
    outer = FeedbackRetriever(
        base_retriever=follow(registry), store=registry.store, k=2, fetch_k=9
    )
    trace_id = trace_id_of(outer.invoke(question(1)))
    assert len(registry.store.trace(trace_id).chunks) == 9


def test_documents_are_copies_and_keep_what_else_is_marked(registry):
    stored = [Document("A.", metadata={"feedback": {"mine": 1}}), Document("B.")]
    live = follow(
        registry, open_version=lambda _: RunnableLambda(lambda _: stored),
        embedder_of=lambda _: Model("v1"),
    )  # fmt: skip
    found = live.invoke("q")
    marks = [{"mine": 1, "index_version": "v1"}, {"index_version": "v1"}]
    assert [one.metadata["feedback"] for one in found] == marks
    assert stored == [Document("A.", metadata={"feedback": {"mine": 1}}), Document("B.")]


def test_nothing_found_is_an_empty_list(registry):
    live = follow(
        registry, open_version=lambda _: RunnableLambda(lambda _: None),
        embedder_of=lambda _: Model("v1"),
    )  # fmt: skip
    assert live.invoke("q") == []


def test_an_error_of_the_version_reaches_the_caller(registry):
    def broken(_):
        msg = "the index is away"
        raise ConnectionError(msg)

    live = follow(
        registry, open_version=lambda _: RunnableLambda(broken), embedder_of=lambda _: Model("v1")
    )
    with pytest.raises(ConnectionError):
        live.invoke("q")


async def test_sync_and_async_give_the_same(registry):
    live = follow(registry)
    here = await asyncio.to_thread(live.invoke, question(1))
    assert here == await live.ainvoke(question(1))
    assert await live.abatch([question(1), question(2)]) == [
        here, await live.ainvoke(question(2)),
    ]  # fmt: skip
    assert (await live.acurrent()).version == "v1"


async def test_async_calls_never_block_the_event_loop(registry, tmp_path):
    def opened(version):
        inner = opener()(version)
        time.sleep(0.01)
        return inner

    live = follow(registry, open_version=opened)
    outer = FeedbackRetriever(base_retriever=live, store=registry.store, k=2)
    learning = follow(registry, learns=True)
    with blockbuster_ctx():
        assert len(await outer.ainvoke(question(1))) == 2
        await registry.aactivate("v2", expected="v1")
        assert version_of(await live.ainvoke(question(1))) == "v2"
        assert version_of(await learning.ainvoke(question(1))) == "v2"


def test_a_graph_finds_the_store_of_a_retriever_that_learns(registry):
    live = follow(registry, learns=True)
    graph = create_reliable_rag(live, "offline")
    state = graph.invoke({"question": question(1)})
    assert registry.store.trace(state["trace_id"]).status in ("answered", "abstained")
    assert kept_versions(registry.store) == {state["trace_id"]: "v1"}


def test_settings_are_checked(registry):
    with pytest.raises(ValueError, match="check_every"):
        SwappableRetriever(registry=registry, open_version=opener(), check_every=-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_follows_with_locks_of_its_own(tmp_path, postgres_url):
    program = """
import os, sys, threading
from pathlib import Path
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.index.version_kit import Reader, follow, prepared
store = FeedbackStore(sys.argv[1], timeout_s=20)
live = follow(prepared(store, Path(sys.argv[2]), "v1", "v2"))
live._follower._turn.acquire()
live._follower._lock.acquire()
if os.fork() == 0:
    reader = Reader(live)
    reader.ask()
    os._exit(len(reader.wrong) or reader.versions != {"v1"})
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    command = [sys.executable, "-c", program, postgres_url, str(tmp_path)]
    subprocess.run(command, check=True, timeout=60)
