"""The bridge to LangSmith, against a local server and LangSmith's own client and tracer."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers.langchain import LangChainTracer
from langsmith import Client
from langsmith import utils as langsmith_utils
from urllib3.util import Retry

from langchain_feedback import FeedbackRetriever, FeedbackStore, create_reliable_rag, trace_id_of
from langchain_feedback.errors import StoreError
from langchain_feedback.integrations.langsmith import LangSmithBridge, Pulled, Pushed
from tests.fakes import ListRetriever
from tests.langsmith_server import PROJECT_ID, LangSmithServer

QUESTION = "How long does a refund take?"
REFUND = Document("A refund takes 14 days.", id="refund", metadata={"source": "faq.md"})
KEYS = Document("Keys rotate every 90 days.", id="keys", metadata={"source": "faq.md"})
SEND = "POST /feedback"
FIND = "POST /v2/runs/query"
CHANGE = "PATCH /feedback/ID"
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_"))]:
        monkeypatch.delenv(name)
    read_environment_anew()
    yield
    read_environment_anew()


def read_environment_anew():
    langsmith_utils.get_env_var.cache_clear()
    langsmith_utils.get_tracer_project.cache_clear()


@pytest.fixture
def server() -> Iterator[LangSmithServer]:
    with LangSmithServer() as running:
        yield running


@pytest.fixture
def store(tmp_path) -> Iterator[FeedbackStore]:
    with FeedbackStore(f"sqlite:///{tmp_path}/feedback.db", timeout_s=20) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def either_store(request, tmp_path) -> Iterator[FeedbackStore]:
    url = f"sqlite:///{tmp_path}/feedback.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    with FeedbackStore(url) as opened:
        yield opened


def client_of(server, key="test", **options):
    options = {"timeout_ms": 20_000, "retry_config": Retry(total=0)} | options
    return Client(api_url=server.api_url, api_key=key, auto_batch_tracing=False, **options)


def bridge_of(server, store, **options):
    return LangSmithBridge(store, client_of(server), project="support", **options)


def asked(store, server=None, trace_id="t1", **who):
    """Record a trace, and its run in LangSmith where a server is given."""
    store.record_trace(trace_id, QUESTION, [REFUND, KEYS], **who)
    return server.add_run(trace_id) if server else None


def said(server):
    """What the feedback says, by key and value."""
    said = ((f["key"], f["score"], f["value"]) for f in server.feedback.values())
    return sorted(said, key=str)


# -- whose run


def tracer_of(server):
    return LangChainTracer(project_name="support", client=client_of(server))


def roots(server):
    return {run["id"] for run in server.runs.values() if run["id"] == run["trace_id"]}


@pytest.mark.parametrize("metadata", [{}, {"feedback_trace_id": "0196-mine"}])
def test_the_run_of_a_plain_retriever_is_found(store, server, metadata):
    retriever = FeedbackRetriever(base_retriever=ListRetriever(documents=[REFUND]), store=store)
    chain = RunnableLambda(retriever.invoke)
    config = {"callbacks": [tracer_of(server)], "metadata": metadata}
    found = chain.invoke(QUESTION, config)
    chain.invoke("And how do keys rotate?", {"callbacks": [tracer_of(server)]})
    store.rate(trace_id_of(found), 5)
    done = bridge_of(server, store).push()
    assert (done.sent, done.error) == (1, None)
    [feedback] = server.feedback.values()
    [root] = [run for run in server.runs.values() if run["inputs"] == {"input": QUESTION}]
    assert feedback["run_id"] == root["id"] in roots(server)
    assert (feedback["key"], feedback["score"], feedback["value"]) == ("rating", 1.0, 5)
    assert feedback["session_id"] == PROJECT_ID


async def test_the_run_of_a_graph_is_found_sync_and_async(store, server):
    retriever = FeedbackRetriever(base_retriever=ListRetriever(documents=[REFUND]), store=store)
    graph = create_reliable_rag(retriever, "offline")
    config = {"callbacks": [tracer_of(server)]}
    asked = {"question": QUESTION}
    for answer in (graph.invoke(asked, config), await graph.ainvoke(asked, config)):
        assert answer["status"] == "answered"
        store.rate(answer["trace_id"], 4)
    assert bridge_of(server, store).push().sent == 2
    assert {feedback["run_id"] for feedback in server.feedback.values()} == roots(server)


# -- to LangSmith


def test_each_signal_is_mirrored_with_its_key_and_score(either_store, server):
    store, run_id = either_store, asked(either_store, server, actor="ann")
    store.rate("t1", 2, comment="too long")
    store.rate("t1", 5, target=REFUND)
    store.signal("t1", "thumbs_down", target=KEYS)
    store.signal("t1", "source_click", target=REFUND)
    store.signal("t1", "source_skipped", target=KEYS)
    store.signal("t1", "copy")
    store.signal("t1", "regenerate")
    store.signal("t1", "correction", correction="It takes 10 days.")
    done = bridge_of(server, store).push()
    assert (done.sent, done.waiting, done.error) == (8, 0, None)
    assert said(server) == [
        ("click", 0.0, "source_skipped"),
        ("click", 1.0, "source_click"),
        ("copy", 1.0, "copy"),
        ("correction", None, "correction"),
        ("rating", 0.25, 2),
        ("reformulation", 1.0, "regenerate"),
        ("source_rating", 0.0, "thumbs_down"),
        ("source_rating", 1.0, 5),
    ]
    by_key = {f["key"]: f for f in server.feedback.values()}
    assert by_key["rating"]["comment"] == "too long"
    assert by_key["correction"]["correction"] == {"text": "It takes 10 days."}
    assert {f["run_id"] for f in server.feedback.values()} == {run_id}
    source = by_key["copy"]["feedback_source"]
    assert source["type"] == "api"
    assert source["metadata"]["source"] == "langchain-feedback"
    assert source["metadata"]["feedback_trace_id"] == "t1"
    assert "actor" not in source["metadata"]
    assert server.names().count(FIND) == 1  # one look for all of a trace


def test_who_said_it_is_told_only_when_asked_for(store, server):
    asked(store, server)
    store.rate("t1", 5, actor="ann", target=REFUND, reviewer=True)
    bridge_of(server, store, with_actor=True).push()
    [feedback] = server.feedback.values()
    told = feedback["feedback_source"]["metadata"]
    assert (told["actor"], told["chunk_id"], told["reviewer"]) == ("ann", "refund", True)
    assert feedback["extend_trace_retention"] is False


@pytest.mark.parametrize("repeats", ["replace", "ignore", "conflict"])
def test_a15_a_change_of_mind_updates_the_same_feedback(either_store, repeats):
    store = either_store
    with LangSmithServer(repeats=repeats) as server:
        asked(store, server)
        bridge = bridge_of(server, store)
        store.rate("t1", 1, actor="ann")
        store.rate("t1", 5, actor="bob")
        bridge.push()
        store.rate("t1", 4, actor="ann", comment="better now")
        assert bridge.push().sent == 1
        assert said(server) == [("rating", 0.75, 4), ("rating", 1.0, 5)]
        assert [f["comment"] for f in server.feedback.values() if f["value"] == 4] == [
            "better now"
        ]
        assert server.names()[-1] == CHANGE


@pytest.mark.parametrize("repeats", ["replace", "ignore", "conflict"])
def test_what_was_sent_before_a_crash_is_sent_again_and_changes_nothing(store, repeats):
    with LangSmithServer(repeats=repeats) as server:
        asked(store, server)
        store.rate("t1", 5)
        bridge_of(server, store).push()
        before = dict(server.feedback)
        noted = store.bookmark("langsmith:support")
        assert store.move_bookmark("langsmith:support", _rewound(noted), expected=noted)
        assert bridge_of(server, store).push().sent == 1
        assert server.feedback.keys() == before.keys()
        assert said(server) == [("rating", 1.0, 5)]


def _rewound(noted):
    return json.dumps(json.loads(noted) | {"seq": 0})


def test_of_several_changes_before_a_push_only_the_last_is_sent(store, server):
    asked(store, server)
    for rating in (1, 2, 5):
        store.rate("t1", rating)
    done = bridge_of(server, store).push()
    assert (done.sent, done.skipped) == (1, 2)
    assert said(server) == [("rating", 1.0, 5)]


def test_repeating_a_push_calls_nothing(store, server):
    asked(store, server)
    store.rate("t1", 5)
    bridge = bridge_of(server, store)
    bridge.push()
    server.forget_calls()
    assert bridge.push().sent == 0
    assert bridge_of(server, store).push().sent == 0
    assert server.names() == []


def test_a_retraction_empties_the_feedback_and_another_rating_fills_it(either_store, server):
    store = either_store
    asked(store, server)
    bridge = bridge_of(server, store)
    event = store.rate("t1", 1, comment="personal words")
    bridge.push()
    store.retract(event)
    assert bridge.push().taken_back == 1
    [feedback] = server.feedback.values()
    assert (feedback["score"], feedback["value"], feedback["comment"]) == (None, "retracted", None)
    assert bridge.push().taken_back == 0
    store.rate("t1", 5)
    bridge.push()
    assert said(server) == [("rating", 1.0, 5)]


def test_what_was_retracted_before_it_was_sent_is_never_sent(store, server):
    asked(store, server)
    store.retract(store.rate("t1", 1, comment="personal words"))
    bridge = bridge_of(server, store)
    done = bridge.push()
    assert (done.sent, done.skipped, done.waiting) == (0, 1, 0)
    assert bridge.push() == Pushed()
    assert "personal words" not in str(server.calls)
    assert server.feedback == {}


def test_a_change_of_mind_that_is_retracted_at_once_empties_what_was_sent_before(store, server):
    asked(store, server)
    bridge = bridge_of(server, store)
    store.rate("t1", 1)
    earlier = store.rate("t1", 4, target=KEYS)
    bridge.push()
    store.retract(earlier)
    store.retract(store.rate("t1", 5))
    assert bridge.push().taken_back == 2
    assert {f["value"] for f in server.feedback.values()} == {"retracted"}


def test_an_old_event_that_is_retracted_does_not_empty_the_newer_one(store, server):
    asked(store, server)
    bridge = bridge_of(server, store)
    first = store.rate("t1", 1)
    store.rate("t1", 5)
    bridge.push()
    store.retract(first)
    bridge.push()
    assert said(server) == [("rating", 1.0, 5)]


def test_a_pin_and_an_imported_log_have_no_run(store, server, tmp_path):
    log = tmp_path / "feedback_data.json"
    log.write_text('{"query": "Who?", "response": "Ann.", "relevance": 5, "quality": 4}\n')
    store.import_jsonl(log)
    store.pin(QUESTION, REFUND)
    done = bridge_of(server, store).push()
    assert (done.sent, done.skipped, done.waiting) == (0, 1, 0)
    assert server.names() == []


def test_more_signals_than_a_page_arrive_in_order(store, server):
    for at in range(130):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 1 + at % 5)
    assert bridge_of(server, store).push().sent == 130
    sent = [call.body["value"] for call in server.calls if call.name == SEND]
    assert sent == [1 + at % 5 for at in range(130)]


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_all_arrive_that_count_as_sent_though_a_client_samples_its_runs(store, server, rate):
    for at in range(20):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 5)
    client = client_of(server, tracing_sampling_rate=rate)
    assert LangSmithBridge(store, client, project="support").push().sent == 20
    assert len(server.feedback) == 20


# -- waiting


def test_a_run_that_is_not_there_yet_is_waited_for_and_others_are_not_held_up(
    either_store, server, monkeypatch
):
    store = either_store
    asked(store)
    store.rate("t1", 5, actor="ann")
    asked(store, server, "t2")
    store.rate("t2", 4)
    bridge = bridge_of(server, store)
    done = bridge.push()
    assert (done.sent, done.waiting) == (1, 1)
    server.forget_calls()
    assert bridge.push().waiting == 1
    assert server.names() == []  # it is not asked for at once
    server.add_run("t1")
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    done = bridge_of(server, store).push()  # another process goes on
    assert (done.sent, done.waiting) == (1, 0)
    assert said(server) == [("rating", 0.75, 4), ("rating", 1.0, 5)]


def test_a14_a_signal_that_waits_for_its_trace_is_sent_once_that_arrives(
    store, server, monkeypatch
):
    server.add_run("t1")
    store.rate("t1", 5, pending=True)
    bridge = bridge_of(server, store)
    assert bridge.push().waiting == 1
    asked(store)
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert bridge.push().sent == 1


def test_what_waits_says_what_is_in_force_when_it_is_sent(store, server, monkeypatch):
    asked(store)
    event = store.rate("t1", 1, actor="ann")
    store.rate("t1", 2, actor="bob")
    bridge = bridge_of(server, store)
    bridge.push()
    server.add_run("t1")
    store.rate("t1", 5, actor="bob")
    bridge.push()
    store.retract(event)
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    bridge.push()
    assert said(server) == [("rating", 1.0, 5)]


def test_a_run_that_never_comes_is_given_up(store, server, monkeypatch):
    asked(store)
    store.rate("t1", 5)
    bridge = bridge_of(server, store, patience=timedelta(0))
    done = bridge.push()
    assert (done.given_up, done.waiting) == (1, 0)
    server.forget_calls()
    bridge.push()
    assert server.names() == []


def test_who_was_forgotten_while_waiting_is_not_sent(store, server, monkeypatch):
    asked(store, actor="ann")
    store.rate("t1", 5)
    bridge = bridge_of(server, store)
    bridge.push()
    store.forget("ann")
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert bridge.push().waiting == 0
    assert server.feedback == {}


# -- when LangSmith is away


def fails(server, status, *whats, of=""):
    """Let LangSmith answer some calls with a status: those that name `of`."""
    server.fail = lambda call: (
        status if call.name in whats and of in json.dumps(call.body) else None
    )


def told(caplog):
    """Who warned of what, but for the client, of what it cannot learn about the server."""
    records = (r for r in caplog.records if r.levelno >= logging.WARNING)
    return [record.name for record in records if "/info" not in record.message]


@pytest.mark.parametrize(
    ("status", "what"),
    [(status, what) for status in (401, 403, 408, 429) for what in (FIND, SEND)]
    + [(status, "GET /sessions") for status in (401, 403, 404, 408, 429, 500, 502, 503)],
)
def test_a_failure_is_told_once_and_nothing_is_lost(store, server, caplog, status, what):
    asked(store, server)
    store.rate("t1", 5, actor="ann")
    store.rate("t1", 4, actor="bob")
    fails(server, status, what)
    bridge = bridge_of(server, store)
    for _ in range(3):
        done = bridge.push()
        assert (done.sent, done.failed, done.waiting) == (0, 0, 0)
        assert done.error.startswith("LangSmith")
    assert told(caplog) == ["langchain_feedback.integrations.langsmith"]
    server.fail = lambda _: None
    done = bridge.push()
    assert (done.sent, done.error) == (2, None)
    assert said(server) == [("rating", 0.75, 4), ("rating", 1.0, 5)]


@pytest.mark.parametrize("status", [405, 410, 500, 502, 503, 504])
@pytest.mark.parametrize("what", [FIND, SEND])
def test_a_trace_that_langsmith_fails_at_does_not_hold_up_the_rest(store, server, status, what):
    for at in range(5):
        asked(store, server, f"t{at}")
        for actor in ("ann", "bob", "cid", "dan"):
            store.rate(f"t{at}", 5, actor=actor)
    fails(server, status, what, of="t1")
    bridge = bridge_of(server, store)
    done = bridge.push()
    assert (done.sent, done.failed, done.waiting) == (16, 4, 4)
    assert done.error.startswith("LangSmith")
    store.rate("t2", 1, actor="eve")
    done = bridge.push()
    assert (done.sent, done.failed, done.waiting, done.error) == (1, 4, 4, None)


def test_what_langsmith_failed_at_is_sent_later_by_any_process_and_told_once(
    either_store, server, monkeypatch, caplog
):
    store = either_store
    for at in range(2):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 5 - at)
    fails(server, 500, FIND, of="t1")
    bridge, now = bridge_of(server, store), time.time()
    for after_s in (0, 1, 60, 61, 120):
        monkeypatch.setattr(time, "time", lambda after_s=after_s: now + after_s)
        assert bridge.push().failed == 1
    assert told(caplog) == ["langchain_feedback.integrations.langsmith"]
    assert server.names().count(FIND) == 4  # one for the other trace, and three of these
    server.fail = lambda _: None
    monkeypatch.setattr(time, "time", lambda: now + 600)
    done = bridge_of(server, store).push()
    assert (done.sent, done.failed, done.waiting, done.error) == (1, 0, 0, None)
    assert said(server) == [("rating", 0.75, 4), ("rating", 1.0, 5)]


@pytest.mark.parametrize(
    "reply",
    [
        None, [], "x", {"items": 3}, {"items": [None]}, {"items": [{}]},
        {"items": [{"id": "nope"}]}, {"items": [{"id": 7, "trace_id": None}]},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_an_odd_reply_about_a_run_does_not_hold_up_the_rest(store, server, monkeypatch, reply):
    for at in range(3):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 5)
    server.instead = lambda call: (
        (200, reply) if call.name == FIND and "t0" in call.body["filter"] else None
    )
    bridge = bridge_of(server, store)
    done = bridge.push()
    assert (done.sent, done.failed, done.waiting) == (2, 1, 1)
    assert done.error.startswith("LangSmithError")
    server.instead = lambda _: None
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert bridge.push().sent == 1
    assert len(server.feedback) == 3


def test_after_three_failures_in_a_row_it_stops_and_goes_on_behind_them(store, server):
    for at in range(7):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 5)
    bridge = bridge_of(server, store)
    fails(server, 500, FIND)
    done = bridge.push()
    assert (done.sent, done.failed, done.waiting) == (0, 3, 3)
    assert server.names() == [FIND] * 3
    server.forget_calls()
    assert bridge.push().failed == 6
    assert server.names() == [FIND] * 3
    server.fail = lambda _: None
    done = bridge.push()
    assert (done.sent, done.waiting, done.error) == (1, 6, None)


def test_failures_with_others_between_them_do_not_stop_it(store, server):
    for at in range(12):
        asked(store, server, f"t{at % 2}-{at}")
        store.rate(f"t{at % 2}-{at}", 5)
    fails(server, 500, FIND, of="t0-")
    done = bridge_of(server, store).push()
    assert (done.sent, done.failed) == (6, 6)


def test_a_langsmith_that_fails_for_longer_than_patience_loses_nothing(store, server, monkeypatch):
    for at in range(5):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 5)
    bridge = bridge_of(server, store, patience=timedelta(hours=1))
    fails(server, 503, FIND, SEND)
    now = time.time()
    for hours in range(0, 72, 3):
        monkeypatch.setattr(time, "time", lambda hours=hours: now + hours * 3600)
        assert bridge.push().given_up == 0
    server.fail = lambda _: None
    monkeypatch.setattr(time, "time", lambda: now + 74 * 3600)
    done = bridge.push()
    assert (done.sent, done.waiting) == (5, 0)


def test_a_trace_that_langsmith_fails_at_for_longer_than_patience_is_given_up(
    store, server, monkeypatch
):
    asked(store, server)
    store.rate("t1", 5)
    bridge = bridge_of(server, store, patience=timedelta(hours=1))
    fails(server, 500, FIND, of="t1")
    assert bridge.push().waiting == 1
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * 3600)
    asked(store, server, "t2")
    store.rate("t2", 5)
    done = bridge.push()
    assert (done.sent, done.failed, done.given_up, done.waiting) == (1, 0, 1, 0)
    server.forget_calls()
    monkeypatch.setattr(time, "time", lambda: now + 90 * 3600)
    bridge.push()
    assert server.names() == []


def test_a_retraction_that_langsmith_fails_at_is_made_later(store, server, monkeypatch):
    asked(store, server)
    asked(store, server, "t2")
    events = [store.rate("t1", 1), store.rate("t2", 1)]
    bridge = bridge_of(server, store)
    bridge.push()
    for event in events:
        store.retract(event)
    failed = []
    server.fail = lambda call: failed.append(call) or 500 if not failed else None
    done = bridge.push()
    assert (done.taken_back, done.failed, done.waiting) == (1, 1, 1)
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert bridge.push().taken_back == 1
    assert {f["value"] for f in server.feedback.values()} == {"retracted"}


def test_a_failure_half_way_goes_on_from_there(store, server):
    for at in range(4):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 5)
    server.fail = lambda call: 429 if call.name == SEND and len(server.feedback) == 2 else None
    bridge = bridge_of(server, store)
    assert bridge.push().sent == 2
    server.forget_calls()
    server.fail = lambda _: None
    assert bridge.push().sent == 2
    assert server.names().count(SEND) == 2


def test_the_network_may_be_down_and_a_key_wrong(store, server, caplog):
    asked(store, server)
    store.rate("t1", 5)
    away = Client(api_url="http://127.0.0.1:9", api_key="test", auto_batch_tracing=False,
                  retry_config=Retry(total=0))  # fmt: skip
    bridge = LangSmithBridge(store, away)
    assert {bridge.push().error.partition(":")[0] for _ in range(3)} == {
        "LangSmithConnectionError"
    }
    assert sum("gets the signals later" in record.message for record in caplog.records) == 1
    wrong = LangSmithBridge(store, client_of(server, key="wrong"), project="support")
    assert "LangSmithAuthError" in wrong.push().error
    assert bridge_of(server, store).push().sent == 1


def test_one_signal_that_langsmith_refuses_does_not_hold_up_the_rest(store, server, caplog):
    for at in range(3):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 1 + at)
    server.fail = lambda call: 422 if call.name == SEND and call.body["value"] == 2 else None
    done = bridge_of(server, store).push()
    assert (done.sent, done.refused, done.error) == (2, 1, None)
    assert any("refuses signal" in record.message for record in caplog.records)


def test_a_store_that_is_away_is_told_to_the_caller(server, tmp_path):
    (tmp_path / "folder").mkdir()
    store = FeedbackStore(f"sqlite:///{tmp_path / 'folder'}")
    with pytest.raises(StoreError):
        bridge_of(server, store).push()


# -- several at once


def test_two_processes_do_not_send_the_same(either_store, server):
    store = either_store
    for at in range(10):
        asked(store, server, f"t{at}")
        store.rate(f"t{at}", 5)
    with server.hold() as called:
        first: list = []
        thread = threading.Thread(target=lambda: first.append(bridge_of(server, store).push()))
        thread.start()
        assert called.wait(10)
        assert bridge_of(server, store).push().busy
    thread.join(30)
    assert first[0].sent == 10
    assert server.names().count(SEND) == 10
    assert not bridge_of(server, store).push().busy


def test_who_died_at_it_is_followed_by_another(store, server, monkeypatch):
    asked(store, server)
    store.rate("t1", 5)
    bridge_of(server, store).push()
    noted = store.bookmark("langsmith:support")
    dead = json.dumps(json.loads(noted) | {"holder": "dead", "until": time.time() + 600, "seq": 0})
    assert store.move_bookmark("langsmith:support", dead, expected=noted)
    assert bridge_of(server, store).push().busy
    later = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later)
    assert bridge_of(server, store).push().sent == 1


def test_namespaces_are_mirrored_apart(store, server):
    other = store.scoped("other")
    asked(store, server)
    asked(other, server, "t2")
    store.rate("t1", 5)
    other.rate("t2", 1)
    bridge_of(server, store).push()
    assert said(server) == [("rating", 1.0, 5)]
    bridge_of(server, other).push()
    assert said(server) == [("rating", 0.0, 1), ("rating", 1.0, 5)]


# -- in the background


def test_the_background_sends_by_itself_and_close_sends_the_rest(store, server):
    asked(store, server)
    with bridge_of(server, store, every_s=0.01):
        store.rate("t1", 5, actor="ann")
        _until(lambda: server.feedback)
    with bridge_of(server, store, every_s=3600) as bridge:
        _until(lambda: server.names().count(SEND) == 1)
        store.rate("t1", 4, actor="bob")
        bridge.start()
    assert len(server.feedback) == 2
    assert "langsmith-bridge" not in {thread.name for thread in threading.enumerate()}


def _until(happened):
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_closed_while_a_push_hangs_and_started_again_it_is_one_thread(store, server):
    def threads():
        return sum(thread.name == "langsmith-bridge" for thread in threading.enumerate())

    asked(store, server)
    store.rate("t1", 5)
    bridge = bridge_of(server, store, every_s=0.01)
    with server.hold() as called:
        bridge.start()
        assert called.wait(10)
        bridge.close(timeout=0.01)
        bridge.start()
    _until(lambda: threads() == 1)
    store.rate("t1", 4, actor="bob")
    _until(lambda: len(server.feedback) == 2)
    bridge.close()
    assert threads() == 0


@pytest.mark.parametrize("in_memory", [True, False])
def test_answers_and_ratings_do_not_wait_for_a_langsmith_that_hangs(server, tmp_path, in_memory):
    url = "sqlite://" if in_memory else f"sqlite:///{tmp_path}/feedback.db"
    store = FeedbackStore(url, timeout_s=20)
    asked(store, server)
    store.rate("t1", 5)
    retriever = FeedbackRetriever(base_retriever=ListRetriever(documents=[REFUND]), store=store)
    graph = create_reliable_rag(retriever, "offline")
    with server.hold() as called:
        bridge = bridge_of(server, store, every_s=0.01).start()
        assert called.wait(10)
        for _ in range(20):
            found = retriever.invoke(QUESTION)
            store.rate(trace_id_of(found), 5)
        assert graph.invoke({"question": QUESTION})["status"] == "answered"
        assert server.feedback == {}  # all that while, LangSmith has not answered once
        bridge.close(timeout=0.01)
        store.close()


async def test_the_event_loop_is_free_while_langsmith_hangs(store, server):
    asked(store, server)
    store.rate("t1", 5)
    with server.hold() as called:
        push = asyncio.create_task(bridge_of(server, store).apush())
        assert await asyncio.to_thread(called.wait, 10)
        assert not push.done()
    assert (await push).sent == 1


def test_a_broken_store_does_not_end_the_background(server, tmp_path, caplog):
    path = tmp_path / "feedback.db"
    path.mkdir()
    store = FeedbackStore(f"sqlite:///{path}")
    with bridge_of(server, store, every_s=0.01):
        _until(lambda: any("cannot be read" in record.message for record in caplog.records))
        path.rmdir()
        asked(store, server)
        store.rate("t1", 5)
        _until(lambda: server.feedback)
    assert sum("cannot be read" in record.message for record in caplog.records) == 1
    store.close()


# -- off


def test_nothing_is_done_where_nothing_is_configured(store, server):
    store.record_trace("t1", QUESTION, [REFUND])
    store.rate("t1", 5)
    bridge = LangSmithBridge(store)
    assert not bridge.on
    with bridge:
        assert bridge.push() == Pushed()
        assert bridge.pull(DAY) == Pulled()
        assert "langsmith-bridge" not in {thread.name for thread in threading.enumerate()}
    assert store.bookmark("langsmith:default") is None


@pytest.mark.parametrize(
    ("environment", "on"),
    [
        ({"LANGSMITH_API_KEY": "k"}, False),
        ({"LANGSMITH_TRACING": "true"}, False),
        ({"LANGSMITH_API_KEY": "k", "LANGSMITH_TRACING": "false"}, False),
        ({"LANGSMITH_API_KEY": "k", "LANGSMITH_TRACING": "true"}, True),
        ({"LANGCHAIN_API_KEY": "k", "LANGCHAIN_TRACING_V2": "true"}, True),
    ],
)
def test_the_environment_turns_it_on(store, monkeypatch, environment, on):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert LangSmithBridge(store).on is on


def test_the_environment_says_where_to(store, server, monkeypatch):
    asked(store, server)
    store.rate("t1", 5)
    for name, value in {
        "API_KEY": "test", "TRACING": "true", "ENDPOINT": server.api_url, "PROJECT": "mine",
        "TRACING_SAMPLING_RATE": "0",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"LANGSMITH_{name}", value)
    read_environment_anew()
    assert LangSmithBridge(store).push().sent == 1
    assert not [thread for thread in threading.enumerate() if "tracing" in thread.name]
    [project] = [call.params["name"] for call in server.calls if call.name == "GET /sessions"]
    assert project == ["mine"]


def test_where_it_is_off_what_needs_a_client_is_not_even_imported():
    code = (
        "import sys; from langchain_feedback.integrations.langsmith import LangSmithBridge;"
        "from langchain_feedback import FeedbackStore;"
        "LangSmithBridge(FeedbackStore('sqlite://')).start().push();"
        "print('langchain_feedback.integrations._langsmith_api' in sys.modules)"
    )
    environment = {name: of for name, of in os.environ.items() if not name.startswith("LANG")}
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, check=True, env=environment, cwd=root,
    )  # fmt: skip
    assert done.stdout.strip() == "False"


def test_settings_are_checked(store):
    with pytest.raises(ValueError, match="every_s must be above 0"):
        LangSmithBridge(store, every_s=0)
    with pytest.raises(ValueError, match="needs a zone"):
        LangSmithBridge(store).pull(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="must not be negative"):
        LangSmithBridge(store).pull(timedelta(days=-1))
    with pytest.raises(ValueError, match="scale of 'liked' has one score only"):
        LangSmithBridge(store).pull(timedelta(days=1), scores={"liked": (1, 1)})


# -- from LangSmith


def ratings(store):
    return [(s.trace_id, s.rating, s.actor, s.comment) for s in store.signals_since()]


def test_feedback_becomes_ratings_and_importing_again_adds_nothing(either_store, server):
    store, run_id = either_store, asked(either_store, server, actor="ann")
    server.add_feedback(run_id, score=1, comment="thank you")
    server.add_feedback(run_id, score=0, feedback_source={"type": "app", "user_id": PROJECT_ID})
    bridge = bridge_of(server, store)
    done = bridge.pull(DAY)
    assert (done.imported, done.known, done.skipped) == (2, 0, {})
    assert ratings(store) == [
        ("t1", 5, None, "thank you"),
        ("t1", 1, f"langsmith:{PROJECT_ID}", None),
    ]
    [cell] = {(c.positive > 0, c.negative > 0) for c in store.evidence_for(QUESTION).cells}
    assert cell == (True, True)
    server.forget_calls()
    done = bridge.pull(DAY)
    assert (done.imported, done.known) == (0, 2)
    assert server.names() == ["GET /feedback"]
    assert len(store.signals_since()) == 2


def test_feedback_that_was_changed_replaces_what_was_imported(store, server):
    run_id = asked(store, server, actor="ann")
    feedback_id = server.add_feedback(run_id, score=1)
    bridge = bridge_of(server, store)
    bridge.pull(DAY)
    for score in (0, 1):
        client_of(server).update_feedback(feedback_id, score=score)
        assert bridge.pull(DAY).imported == 1
    newest = [(s.rating, s.superseded) for s in store.signals_since()]
    assert newest == [(5, True), (1, True), (5, False)]
    assert all(cell.negative == 0 for cell in store.evidence_for(QUESTION).cells)


def test_neither_side_echoes_the_other(store, server):
    run_id = asked(store, server)
    store.rate("t1", 2, actor="ann")
    bridge = bridge_of(server, store)
    bridge.push()
    server.add_feedback(run_id, score=1)
    done = bridge.pull(DAY, scores={"rating": (0, 1), "user_score": (0, 1)})
    assert (done.imported, done.skipped) == (1, {"ours": 1})
    assert bridge.push().skipped == 1
    assert len(server.feedback) == 2


def test_scales_are_the_callers(store, server):
    scales = {"user_score": (0, 1), "stars": (1, 5), "toxic": (1, 0)}
    given = {
        "user_score": [(True, 5), (0.5, 3), (0.2, 2), (7, None)],
        "stars": [(1, 1), (4, 4), (0, None)],
        "toxic": [(1, 1), (0, 5)],
        "elsewhere": [(1, None)],
    }
    expected = []
    for key, pairs in given.items():
        for score, rating in pairs:
            trace_id = f"{key}-{score}"
            server.add_feedback(asked(store, server, trace_id), key, score=score)
            expected += [(trace_id, rating, None, None)] if rating else []
    done = bridge_of(server, store).pull(DAY, scores=scales)
    assert ratings(store) == expected
    assert done.skipped == {"no score": 2}


def test_what_is_no_rating_of_a_known_answer_is_counted_by_reason(store, server):
    run_id = asked(store, server)
    server.add_feedback(run_id, comment="only words")
    server.add_feedback(run_id, score=1, feedback_source={"type": "model", "metadata": {}})
    server.add_feedback(None, score=1)
    server.add_feedback(server.add_run(), score=1)
    server.add_feedback(server.add_run("elsewhere"), score=1)
    both = server.add_run("t8")
    server.add_run("t9", below=both)
    server.add_feedback(both, score=1)
    done = bridge_of(server, store).pull(DAY)
    assert done.imported == 0
    assert done.skipped == {
        "no score": 1, "source": 1, "no run": 1,
        "no trace": 1, "unknown trace": 1, "several traces": 1,
    }  # fmt: skip
    assert store.signals_since() == []


def test_feedback_on_a_run_within_is_that_runs(store, server):
    root = server.add_run()
    one = server.add_run("t1", below=root)
    server.add_run("t2", below=root)
    asked(store, None, "t1")
    server.add_feedback(one, score=1)
    assert bridge_of(server, store).pull(DAY).imported == 1
    assert ratings(store) == [("t1", 5, None, None)]


def test_a_correction_comes_along_or_alone(store, server):
    first, second = asked(store, server, "t1"), asked(store, server, "t2")
    server.add_feedback(first, score=0, correction={"text": "It takes 10 days."})
    server.add_feedback(second, correction={"answer": "10 days", "because": "policy"})
    bridge_of(server, store).pull(DAY)
    assert [(s.signal, s.correction) for s in store.signals_since()] == [
        ("rating", "It takes 10 days."),
        ("correction", '{"answer": "10 days", "because": "policy"}'),
    ]


def test_a19_only_what_was_given_since_then_is_imported_whatever_the_zone(store, server):
    run_id = asked(store, server)
    for text in ("2026-03-01T23:15:00+05:30", "2026-03-01T18:00:00Z", "2026-03-01T18:00:00"):
        server.add_feedback(run_id, score=1, created_at=text, modified_at=text)
    since = datetime(2026, 3, 1, 17, 50, tzinfo=UTC)
    assert bridge_of(server, store).pull(since).imported == 2
    assert {s.rating for s in store.signals_since()} == {5}


def test_more_feedback_and_runs_than_a_page(store, server):
    for at in range(120):
        server.add_feedback(asked(store, server, f"t{at}"), score=at % 2)
    root = asked(store, server)
    for _ in range(150):
        server.add_run("t1", below=root)
    server.add_feedback(root, score=1)
    done = bridge_of(server, store).pull(DAY)
    assert (done.imported, done.skipped) == (121, {})


def test_a_langsmith_that_cannot_be_read_is_told(store, server):
    server.fail = lambda call: 401 if call.name == "GET /feedback" else None
    with pytest.raises(langsmith_utils.LangSmithAuthError):
        bridge_of(server, store).pull(DAY)


@pytest.mark.parametrize(
    "odd",
    [
        {"score": "1"}, {"score": [1]}, {"score": 10**400}, {"id": "nope"}, {"run_id": 7},
        {"created_at": None}, {"modified_at": "0001-01-01T00:00:00+14:00"}, {"comment": {}},
        {"feedback_source": "api"}, {"feedback_source": {"type": "api", "metadata": "x"}},
    ],
    ids=lambda odd: str(odd)[:40],
)  # fmt: skip
def test_feedback_that_cannot_be_read_is_counted_and_the_rest_imported(store, server, odd):
    run_id = asked(store, server, actor="ann")
    server.feedback[server.add_feedback(run_id, score=1)].update(odd)
    server.add_feedback(run_id, score=0)
    bridge = bridge_of(server, store)
    done = bridge.pull(DAY)
    assert (done.imported, done.skipped) == (1, {"malformed": 1})
    done = bridge.pull(DAY)
    assert (done.known, done.skipped) == (1, {"malformed": 1})
    assert ratings(store) == [("t1", 1, None, None)]


@pytest.mark.parametrize(
    ("what", "reply"),
    [
        ("GET /sessions", {}), ("GET /sessions", None), ("GET /sessions", [3]),
        ("GET /feedback", {"detail": "?"}), ("GET /feedback", 3),
        (FIND, []), (FIND, {"items": [3]}), (FIND, {"items": [{"metadata": 3}]}),
    ],
)  # fmt: skip
def test_a_reply_that_is_none_is_told_as_langsmiths_error(store, server, what, reply):
    server.add_feedback(asked(store, server), score=1)
    server.instead = lambda call: (200, reply) if call.name == what else None
    with pytest.raises(langsmith_utils.LangSmithError, match="cannot be read"):
        bridge_of(server, store).pull(DAY)


def test_an_import_from_a_langsmith_that_hangs_ends_with_langsmiths_error(store, server):
    server.add_feedback(asked(store, server), score=1)
    client = client_of(server, timeout_ms=200)
    with server.hold(), pytest.raises(langsmith_utils.LangSmithError, match="Timeout"):
        LangSmithBridge(store, client, project="support").pull(DAY)


async def test_importing_has_an_async_side(store, server):
    server.add_feedback(asked(store, server), score=1)
    assert (await bridge_of(server, store).apull(DAY)).imported == 1


# -- the calls are the client's


async def test_runs_are_asked_for_as_the_client_asks(store, server):
    run_id = asked(store, server)
    store.rate("t1", 5)
    bridge_of(server, store).push()
    [ours] = [call for call in server.calls if call.name == FIND]
    server.forget_calls()
    names = {name: of for name, of in ours.body.items() if name != "project_ids"}
    pager = client_of(server).runs.query(project_ids=[PROJECT_ID], **names)
    assert [run.trace_id async for run in pager] == [run_id]
    [theirs] = [call for call in server.calls if call.name == FIND]
    assert theirs.body == ours.body


def test_feedback_is_sent_and_read_as_the_client_does(store, server):
    asked(store, server)
    store.signal("t1", "correction", correction="10 days", comment="see the policy")
    store.rate("t1", 2, target=REFUND)
    bridge_of(server, store).push()
    ours = [call.body for call in server.calls if call.name == SEND]
    server.forget_calls()
    for body in ours:
        client_of(server).create_feedback(
            run_id=body["run_id"], key=body["key"], score=body.get("score"),
            value=body["value"], comment=body.get("comment"), correction=body.get("correction"),
            source_info=body["feedback_source"]["metadata"], feedback_id=body["id"],
            session_id=body["session_id"], extend_trace_retention=False,
        )  # fmt: skip
    theirs = [call.body for call in server.calls if call.name == SEND]
    times = {"created_at": None, "modified_at": None}
    assert [body | times for body in theirs] == [body | times for body in ours]
    server.forget_calls()
    since = datetime.now(UTC) - DAY
    bridge_of(server, store).pull(since, scores={"rating": (0, 1)})
    options = {"session": [PROJECT_ID], "min_created_at": since.isoformat()}
    list(client_of(server).list_feedback(feedback_key=["rating"], **options))
    ours, theirs = (call for call in server.calls if call.name == "GET /feedback")
    assert theirs.params == ours.params


def test_the_server_wants_its_key(server):
    with pytest.raises(OSError, match="401"):
        urlopen(Request(f"{server.api_url}/info"))  # noqa: S310
