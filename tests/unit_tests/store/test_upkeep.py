"""Pruning and forgetting: what goes, what stays, and evidence that is right after each page."""

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random

import pytest
from langchain_core.documents import Document

from langchain_feedback.errors import StoreError, UnknownTraceError
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.upkeep import forgetting, pruning
from tests.unit_tests.store.tables import (
    CHUNKS,
    Angles,
    assert_consistent,
    column,
    counts,
    credits_of,
    evidence_of,
    grown,
    refilled,
    vote,
)

SEEDS = range(3)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch):
    """Several pages for a few rows, so that their borders are tested."""
    for name in ("_SIGNALS", "_TRACES", "_OTHERS"):
        monkeypatch.setattr(pruning, name, 7)
    monkeypatch.setattr(forgetting, "_SIGNALS", 7)
    monkeypatch.setattr(forgetting, "_TRACES", 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "export.jsonl"


# -- prune


@pytest.mark.parametrize("seed", SEEDS)
def test_prune_leaves_what_the_newer_votes_alone_would_have_made(seed, url, path):
    store = grown(url, seed)
    cut = datetime.now(UTC)
    for number in range(0, 40, 4):
        found = [Document("", id=chunk.chunk_id) for chunk in store.trace(f"t{number}").chunks]
        vote(store, f"t{number}", found, Random(number))
    store.record_trace("new", "Question 1?", CHUNKS[:2])
    store.rate("new", 5)
    store.export_jsonl(path)

    done = store.prune(cut)

    newer = refilled(
        path, "sqlite://", lambda line: line.get("received_at", "9") >= cut.isoformat()
    )
    assert evidence_of(store) == evidence_of(newer)
    assert credits_of(store) == credits_of(newer)
    assert evidence_of(store)
    assert_consistent(store)
    assert done.signals > 20
    assert store.trace("new") is not None
    assert column(store, "signals", "received_at")[0] >= cut


def test_prune_counts_what_it_removes_and_removes_it_once(url):
    store = grown(url)
    before = counts(store)
    done = store.prune(datetime.now(UTC))
    after = counts(store)
    assert done == pruning.Pruned(
        signals=before["signals"],
        traces=before["traces"],
        snapshots=before["chunks"] - 3,
        pins=1,
        questions=before["questions"] - 3,
    )
    gone = dict.fromkeys(after, 0)
    assert after == gone | {"chunks": 3, "pins": 3, "questions": 3}
    assert store.prune(datetime.now(UTC)) == pruning.Pruned(0, 0, 0, 0, 0)
    assert len(store.evidence_for("Question 1?").pins) == 1


def test_prune_keeps_a_vote_in_force_and_drops_the_older_one_for_good(url):
    store = FeedbackStore(url)
    store.record_trace("t", "How long?", CHUNKS[:2])
    store.rate("t", 5, actor="ann")
    cut = datetime.now(UTC)
    newer = store.rate("t", 1, actor="ann")
    store.prune(cut)
    [outcome] = store.evidence_for("How long?").questions
    assert (outcome.positive, round(outcome.negative, 3)) == (0, 1)
    store.retract(newer)
    store.prune(cut)
    assert store.evidence_for("How long?").cells == ()
    assert store.trace("t") is not None


def test_prune_does_not_bring_back_a_vote_that_a_clock_put_back_dates_later(url, path):
    """The newest event by arrival is in force, whatever the clock said."""
    store = FeedbackStore(url)
    store.record_trace("t", "How long?", CHUNKS[:2])
    store.rate("t", 5, actor="ann", event_id="first")
    store.rate("t", 1, actor="ann", event_id="second")
    store.export_jsonl(path)

    def put_back(line):
        times = {"first": "2026-01-02T00:00:00+00:00", "second": "2026-01-01T00:00:00+00:00"}
        return line | {"received_at": times[line["event_id"]]} if "event_id" in line else line

    other = refilled(path, "sqlite://", lambda line: True, put_back)
    done = other.prune(datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert done.signals == 2
    assert evidence_of(other) == []


def test_prune_takes_an_age(url):
    store = grown(url, traces=4)
    assert store.prune(timedelta(days=1)).signals == 0
    assert store.prune(timedelta(0)).signals > 0


def test_a19_prune_refuses_a_naive_time_and_a_negative_age(url):
    store = grown(url, traces=4)
    before = counts(store)
    with pytest.raises(ValueError, match="older_than needs a zone"):
        store.prune(datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="must not be negative"):
        store.prune(timedelta(days=-1))
    assert counts(store) == before


def test_prune_leaves_other_namespaces_alone(url):
    store = FeedbackStore(url, namespace="one")
    other = store.scoped("two")
    for scoped in (store, other):
        scoped.record_trace(f"t-{scoped.namespace}", "How long?", CHUNKS[:2])
        scoped.rate(f"t-{scoped.namespace}", 5)
    store.prune(datetime.now(UTC))
    assert evidence_of(store) == []
    assert len(evidence_of(other)) == 3
    assert len(other.snapshots(other.cells_of(CHUNKS[:2]))[other.cells_of(CHUNKS)[0]]) == 1


def test_prune_and_ratings_at_the_same_time_lose_nothing(url):
    store = grown(url, traces=60)
    cut = datetime.now(UTC)
    rated = []

    def rate():
        other = FeedbackStore(url)
        for number in range(25):
            other.record_trace(f"n{number}", f"Question {number % 8}?", CHUNKS[:3])
            rated.append(other.rate(f"n{number}", 1 + number % 5))
        other.close()

    thread = threading.Thread(target=rate)
    thread.start()
    store.prune(cut)
    thread.join()
    assert set(column(store, "signals", "event_id")) == set(rated)
    assert len(rated) == 25
    assert_consistent(store)


def test_similar_questions_no_longer_find_one_whose_feedback_is_pruned(url):
    embeddings = Angles()
    store = FeedbackStore(url, embeddings=embeddings)
    elsewhere = FeedbackStore(url, embeddings=embeddings)
    store.record_trace("t1", "About 10", CHUNKS[:1])
    store.rate("t1", 5)
    assert [q.text for q in elsewhere.evidence_for("About 11").questions] == ["About 10"]
    cut = datetime.now(UTC)
    store.record_trace("t2", "About 10", CHUNKS[:1])
    store.record_trace("t3", "About 80", CHUNKS[1:2])
    store.rate("t3", 5)
    store.prune(cut)
    # Somebody asked it since: the question is kept, without feedback.
    assert column(store, "questions", "text") == ["About 10", "About 80"]
    for seen_by in (store, elsewhere):
        # Nor does the one with feedback lose its place among the nearest.
        found = seen_by.evidence_for("About 11", limit=1).questions
        assert [question.text for question in found] == ["About 80"]


# -- forget


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("actor", ["ann", "session:s1"])
def test_forget_leaves_what_would_be_if_the_person_had_never_been_there(seed, actor, url, path):
    store = grown(url, seed)
    store.export_jsonl(path)

    def is_kept(line):
        trace = line.get("trace") or {}
        asker = trace.get("actor") or (
            trace.get("session_id") and f"session:{trace['session_id']}"
        )
        return line["type"] != "signal" or actor not in (line["actor"], asker)

    done = store.forget(actor)

    without = refilled(path, "sqlite://", is_kept)
    assert evidence_of(store) == evidence_of(without)
    assert credits_of(store) == credits_of(without)
    assert evidence_of(store)
    assert_consistent(store)
    assert done.traces > 0
    for table in ("traces", "signals", "pins", "credits_"):
        assert actor not in column(store, table, "actor")


def test_forget_tells_whose_what_went(url):
    store = FeedbackStore(url)
    store.record_trace("hers", "Only Ann asks this", CHUNKS[:2], actor="ann")
    store.record_trace("both", "How long?", CHUNKS[:2], actor="ann")
    store.record_trace("his", "How long?", CHUNKS[:2], actor="ben")
    store.record_trace("pinned", "A pinned one", CHUNKS[:2], actor="ann")
    store.rate("hers", 5)
    store.rate("hers", 1, actor="cy")
    store.rate("his", 4, actor="ann")
    store.rate("his", 2, actor="ben")
    store.rate("both", 5)
    store.rate("awaited", 5, actor="ann", pending=True)
    kept = store.pin("A pinned one", CHUNKS[0], actor="ann")
    store.retract(store.pin("Hers, too", CHUNKS[0], actor="ann"))

    done = store.forget("ann")

    assert done == forgetting.Forgotten(signals=4, of_others=1, traces=3, questions=2, pins=1)
    assert column(store, "questions", "text") == ["A pinned one", "How long?"]
    assert column(store, "traces", "trace_id") == ["his"]
    assert column(store, "pins", "actor") == [None]
    assert [pin.pin_id for pin in store.evidence_for("A pinned one").pins] == [kept]
    [outcome] = store.evidence_for("How long?").questions
    assert (outcome.positive, round(outcome.negative, 3)) == (0, 1)
    with pytest.raises(UnknownTraceError):
        store.rate("hers", 5)
    assert store.forget("ann") == forgetting.Forgotten(0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="blank"):
        store.forget(" ")


def test_forget_takes_anonymous_signals_through_their_trace(url):
    store = FeedbackStore(url)
    store.record_trace("in", "How long?", CHUNKS[:1], session_id="s1")
    store.record_trace("out", "How long?", CHUNKS[:1], actor="ann", session_id="s1")
    store.record_trace("one", "How much?", CHUNKS[:1])
    for trace_id in ("in", "out", "one"):
        store.rate(trace_id, 5)
    # Signed in, she is another person than the session's.
    assert store.forget("session:s1").traces == 1
    assert {credit[3] for credit in credits_of(store)} == {"ann", "trace:one"}
    assert store.forget("trace:one") == forgetting.Forgotten(1, 0, 1, 1, 0)
    assert_consistent(store)


def test_forget_leaves_other_namespaces_alone(url):
    store = FeedbackStore(url, namespace="one")
    other = store.scoped("two")
    for scoped in (store, other):
        scoped.record_trace(f"t-{scoped.namespace}", "How long?", CHUNKS[:2], actor="ann")
        scoped.rate(f"t-{scoped.namespace}", 5)
    store.forget("ann")
    assert evidence_of(store) == []
    assert len(evidence_of(other)) == 3


def test_question_memories_of_all_processes_forget(url):
    store = FeedbackStore(url, embeddings=Angles())
    elsewhere = FeedbackStore(url, embeddings=Angles())
    store.record_trace("t", "Ann's secret 10", CHUNKS[:1], actor="ann")
    store.rate("t", 5)
    assert len(elsewhere.evidence_for("About 11").questions) == 1
    store.forget("ann")
    # SQLite gives a free id again: the old vector must not lead to the new question.
    store.record_trace("u", "Another thing 90", CHUNKS[1:2], actor="ben")
    store.rate("u", 5)
    for seen_by in (store, elsewhere):
        assert seen_by.evidence_for("About 11", min_similarity=0.5).questions == ()
        [found] = seen_by.evidence_for("About 89", min_similarity=0.5).questions
        assert found.text == "Another thing 90"


def test_forget_overwrites_a_persons_words_in_the_sqlite_file(tmp_path):
    file = tmp_path / "feedback.db"
    store = FeedbackStore(f"sqlite:///{file}")
    for number in range(50):
        question = f"Is the diagnosis of Ann Example {number} final?"
        store.record_trace(f"t{number}", question, CHUNKS[:1], actor="ann")
        store.rate(f"t{number}", 1, comment="My telephone number is 555-0199.")
    store.close()
    assert b"555-0199" in file.read_bytes()
    store.forget("ann")
    store.close()
    assert not any(word in file.read_bytes() for word in (b"555-0199", b"Ann Example"))


def test_forget_flushes_what_waits_in_memory_first(url, monkeypatch):
    def fail(_):
        msg = "away"
        raise StoreError(msg)

    store = FeedbackStore(url)
    with monkeypatch.context() as away:
        away.setattr(store._outbox, "_write", fail)
        store.record_soon("t", "How long?", CHUNKS[:1], actor="ann")
    assert len(store._outbox) == 1
    assert store.forget("ann").traces == 1
    store.close()
    assert column(store, "traces", "trace_id") == []


# -- chunks


@pytest.mark.parametrize("seed", SEEDS)
def test_forget_chunks_leaves_what_would_be_without_them(seed, url, path):
    store = grown(url, seed)
    store.export_jsonl(path)
    gone = {"c1", "c4"}

    def without(line):
        if line["type"] == "signal" and line["trace"]:
            chunks = [chunk for chunk in line["trace"]["chunks"] if chunk["chunk_id"] not in gone]
            return line | {"trace": line["trace"] | {"chunks": chunks}}
        return line

    assert store.forget_chunks(["c1", "c4", "never seen"]) == 2

    others = refilled(path, "sqlite://", lambda line: line.get("target") not in gone, without)
    assert evidence_of(store) == evidence_of(others)
    assert credits_of(store) == credits_of(others)
    assert_consistent(store)
    assert gone.isdisjoint(column(store, "trace_chunks", "chunk_id"))
    assert gone.isdisjoint(column(store, "chunks", "chunk_id"))
    assert gone.isdisjoint(column(store, "signals", "target"))
    assert store.evidence_for("Question 1?").pins == ()
    assert store.evidence_for("Question 2?").pins


def test_forget_chunks_keeps_a_cell_that_another_id_has(url):
    store = FeedbackStore(url)
    old, new = CHUNKS[0], CHUNKS[0].model_copy(update={"id": "new id"})
    store.record_trace("t1", "How long?", [old])
    store.record_trace("t2", "How long?", [new])
    for trace_id in ("t1", "t2"):
        store.rate(trace_id, 5, actor=trace_id)
    store.pin("How long?", new)
    assert store.forget_chunks(["c0"]) == 1
    evidence = store.evidence_for("How long?")
    # One vote of weight 1, and a pin of weight 3.
    assert [round(cell.positive, 3) for cell in evidence.cells] == [4.0]
    assert len(evidence.pins) == 1
    [cell] = store.cells_of([new])
    assert [snapshot.chunk_id for snapshot in store.snapshots([cell])[cell]] == ["new id"]
    assert store.forget_chunks(["new id"]) == 1
    assert store.evidence_for("How long?").cells == ()
    assert column(store, "pins", "pin_id") == []
    assert_consistent(store)


def test_forget_chunks_finds_earlier_texts_of_an_id(url):
    store = FeedbackStore(url)
    for number, text in enumerate(("Seven days.", "Fourteen days.")):
        store.record_trace(f"t{number}", "How long?", [Document(text, id="c")])
        store.rate(f"t{number}", 5, actor=f"u{number}")
    assert len(store.evidence_for("How long?").cells) == 2
    assert store.forget_chunks(iter(["c"])) == 1
    assert store.evidence_for("How long?").cells == ()


async def test_a22_the_async_twins_do_the_same(url, path):
    store = grown(url, traces=12)
    await store.aforget_chunks(["c1"])
    await store.aforget("ben")
    assert await store.aexport_jsonl(path) > 0
    await store.arebuild_evidence()
    assert (await store.aprune(timedelta(0))).signals > 0
    assert (await store.aimport_jsonl(path)).imported > 0
    assert_consistent(store)


def test_errors_of_the_database_are_store_errors(tmp_path):
    (tmp_path / "feedback.db").write_bytes(b"This is no database, but it is long enough." * 99)
    store = FeedbackStore(f"sqlite:///{tmp_path}/feedback.db")
    for work in (lambda: store.prune(timedelta(0)), lambda: store.forget("ann")):
        with pytest.raises(StoreError, match="not a database"):
            work()


# -- times


A19 = """
import sys
from datetime import UTC, datetime, timedelta, timezone
from langchain_core.documents import Document
from langchain_feedback.store.feedback_store import FeedbackStore

store = FeedbackStore(sys.argv[1])
found = [Document("Fourteen days.", id="c")]
store.record_trace("t", "How long?", found)
india = timezone(timedelta(hours=5, minutes=30))
times = [datetime(2026, 3, 8, 23, 0, tzinfo=india), datetime(2026, 3, 8, 18, 0, tzinfo=UTC)]
for number, time in enumerate(times):
    store.rate("t", 5, actor=f"u{number}", event_id=f"e{number}", client_time=time)
try:
    store.rate("t", 5, client_time=datetime(2026, 3, 8, 18, 0))
except ValueError as error:
    print(error)
assert abs(datetime.now(UTC) - store.trace("t").created_at) < timedelta(minutes=1)
store.export_jsonl(sys.argv[2])
"""


def test_a19_client_times_come_back_in_utc_whatever_the_zone_of_the_process(url, path):
    script = [sys.executable, "-c", A19, url, str(path)]
    environment = os.environ | {"TZ": "America/Los_Angeles"}
    done = subprocess.run(
        script, env=environment, capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert "client_time needs a zone" in done.stdout
    store = FeedbackStore(url)
    assert column(store, "signals", "client_time") == [
        datetime(2026, 3, 8, 17, 30, tzinfo=UTC),
        datetime(2026, 3, 8, 18, 0, tzinfo=UTC),
    ]
    text = path.read_text("utf-8")
    assert '"client_time": "2026-03-08T17:30:00+00:00"' in text
    assert '"client_time": "2026-03-08T18:00:00+00:00"' in text
    received = column(store, "signals", "received_at")
    assert all(abs(datetime.now(UTC) - time) < timedelta(minutes=5) for time in received)


def test_a19_a_window_and_pruning_count_instants_not_clock_faces(url, path):
    store = FeedbackStore(url)
    store.record_trace("t", "How long?", CHUNKS[:1])
    for number in range(3):
        store.rate("t", 5, actor=f"u{number}", event_id=f"e{number}")
    store.export_jsonl(path)
    times = {"e0": "2026-03-08T23:00:00+05:30", "e1": "2026-03-08T18:00:00Z"}
    naive = {"e2": "2026-03-08T18:00:00"}
    lines = path.read_text("utf-8")
    for event_id, time in (times | naive).items():
        lines = _received(lines, event_id, time)
    path.write_text(lines, "utf-8")
    store.forget("trace:t")

    done = store.import_jsonl(path)

    # The first line is the chunk's, which is known.
    assert [number for number, _ in done.problems] == [4]
    assert "received_at: Input should have timezone info" in done.problems[0][1]
    assert column(store, "signals", "received_at") == [
        datetime(2026, 3, 8, 17, 30, tzinfo=UTC),
        datetime(2026, 3, 8, 18, 0, tzinfo=UTC),
    ]
    cells = store.cells_of(CHUNKS[:1])
    since = datetime(2026, 3, 8, 17, 45, tzinfo=UTC)
    *_, votes = store.votes_for(cells, since=since)
    assert votes.tolist() == [1]
    *_, votes = store.votes_for(cells, since=since.astimezone(timezone(timedelta(hours=9))))
    assert votes.tolist() == [1]
    assert store.prune(since.astimezone(timezone(timedelta(hours=-8)))).signals == 1
    assert column(store, "signals", "event_id") == ["e1"]


def _received(lines, event_id, time):
    changed = []
    for line in lines.splitlines():
        found = json.loads(line)
        if found.get("event_id") == event_id:
            found["received_at"] = time
        changed.append(json.dumps(found))
    return "\n".join(changed)
