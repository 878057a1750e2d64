"""Feedback in and out of files: the recipe's log, and exports that make the same store again."""

import json
import logging
import math
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_feedback.errors import StoreError
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.jsonlines.importing import Imported
from langchain_feedback.store.records import TracedChunk
from tests.unit_tests.store.tables import (
    CHUNKS,
    Angles,
    assert_consistent,
    column,
    counts,
    credits_of,
    evidence_of,
    grown,
)

GOOD = {
    "query": "How long does a refund take?",
    "response": "14 days.",
    "relevance": 4,
    "quality": 5,
    "comments": "clear",
}
NO_RELEVANCE = {name: value for name, value in GOOD.items() if name != "relevance"}

TRACE = {"question": "How long?", "created_at": "2026-01-01T00:00:00Z"}
CANDIDATE = {"chunk_id": "c", "cell_id": "c", "content_hash": "h", "final_rank": 0}
CANDIDATE |= {"returned": True, "in_prompt": True}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "feedback_data.json"


def recipe(**changes):
    return json.dumps(GOOD | changes)


def write(path, *lines, end="\n", bom=b""):
    path.write_bytes(bom + end.join(lines).encode())
    return path


# -- the recipe's log


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_a18_good_lines_are_imported_and_the_others_told_by_number(url, path, end, bom):
    lines = [
        recipe(),
        recipe()[:-20],
        "",
        "[]",
        recipe(query="How much?", relevance="5"),
        json.dumps(NO_RELEVANCE),
        recipe(query="Where?", relevance=1),
    ]
    store = FeedbackStore(url)
    done = store.import_jsonl(write(path, *lines, end=end, bom=bom))
    assert (done.imported, done.duplicates) == (3, 0)
    assert [number for number, _ in done.problems] == [2, 3, 4, 6]
    reasons = [reason for _, reason in done.problems]
    assert reasons[0].startswith("not JSON: ")
    assert reasons[1:] == ["an empty line", "not an object, but []", "relevance: Field required"]
    assert column(store, "signals", "rating") == [1, 4, 5]
    assert column(store, "traces", "answer") == ["14 days."] * 3

    before = counts(store), evidence_of(store)
    again = store.import_jsonl(path)
    assert again == Imported(0, 3, done.problems)
    assert (counts(store), evidence_of(store)) == before
    assert_consistent(store)


@pytest.mark.parametrize(("relevance", "rating"), [(5, 5), ("5", 5), (" 3 ", 3), (4.0, 4), (1, 1)])
def test_a18_a_whole_number_is_a_rating(path, relevance, rating):
    store = FeedbackStore("sqlite://")
    assert store.import_jsonl(write(path, recipe(relevance=relevance))).imported == 1
    assert column(store, "signals", "rating") == [rating]


@pytest.mark.parametrize(
    "relevance",
    [0, 6, -1, 4.5, "4.5", "six", "", None, [], [5], {}, True, math.nan, math.inf, 10**30, "٥٥"],
)
def test_a18_what_is_no_rating_is_told_and_nothing_of_it_is_stored(path, relevance):
    store = FeedbackStore("sqlite://")
    done = store.import_jsonl(write(path, recipe(relevance=relevance)))
    assert done.imported == 0
    [(number, reason)] = done.problems
    assert number == 1
    assert "relevance" in reason or "not JSON" in reason
    assert "\n" not in reason
    assert set(counts(store).values()) == {0}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (json.dumps(GOOD | {"query": 5}), "query: Input should be a valid string, got 5"),
        (json.dumps(GOOD | {"query": " "}), "query: "),
        (json.dumps(GOOD | {"response": ["14 days."]}), "response: "),
        (json.dumps(GOOD | {"type": "vote"}), "Input tag 'vote'"),
        ("5", "not an object, but 5"),
        ('"text"', "not an object"),
        ("[" * 100_000, "nested too deeply"),
        ("{'query': 1}", "not JSON"),
        ('{"query": "a"} {"query": "b"}', "not JSON: Extra data"),
    ],
)
def test_a18_lines_of_a_wrong_kind_are_told(path, line, reason):
    store = FeedbackStore("sqlite://")
    done = store.import_jsonl(write(path, line, recipe()))
    assert done.imported == 1
    [(number, told)] = done.problems
    assert number == 1
    assert reason in told


def test_a18_a_line_that_is_no_utf8_costs_no_other(path):
    path.write_bytes(recipe().encode() + b'\n{"query": "\xff"}\n' + recipe(relevance=1).encode())
    done = FeedbackStore("sqlite://").import_jsonl(path)
    assert done.imported == 2
    assert done.problems == ((2, "not UTF-8: invalid start byte at byte 11"),)


def test_a18_equal_lines_are_several_votes_and_a_log_may_grow(url, path):
    store = FeedbackStore(url)
    assert store.import_jsonl(write(path, recipe(), recipe())).imported == 2
    done = store.import_jsonl(write(path, recipe(), recipe(), recipe(), recipe(relevance=1)))
    assert (done.imported, done.duplicates) == (2, 2)
    [outcome] = store.evidence_for(GOOD["query"]).questions
    assert (round(outcome.positive, 3), round(outcome.negative, 3)) == (3, 1)


def test_line_ends_and_a_bom_do_not_make_another_line(path):
    store = FeedbackStore("sqlite://")
    store.import_jsonl(write(path, recipe(), recipe(relevance=1)))
    lines = [recipe(), recipe(relevance=1), ""]
    done = store.import_jsonl(write(path, *lines, end="\r\n", bom=b"\xef\xbb\xbf"))
    assert done == Imported(0, 2, ())


def test_quality_and_comments_are_kept_as_words(path):
    store = FeedbackStore("sqlite://")
    store.import_jsonl(
        write(path, recipe(), recipe(quality=None, comments=""), recipe(comments=["a", 1]))
    )
    assert column(store, "signals", "comment") == [
        None,
        'quality: 5\n["a", 1]',
        "quality: 5\nclear",
    ]


def test_without_a_retriever_only_outcomes_count(url, path):
    store = FeedbackStore(url)
    store.import_jsonl(write(path, recipe(), recipe(relevance=2)))
    evidence = store.evidence_for("how long does a refund take")
    assert evidence.cells == ()
    [outcome] = evidence.questions
    assert (round(outcome.positive, 3), round(outcome.negative, 3)) == (1, 1)


def test_with_a_retriever_each_query_is_retrieved_once_and_its_results_share_the_vote(url, path):
    asked = []

    def retrieve(query):
        asked.append(query)
        return CHUNKS[:4]

    write(path, recipe(), recipe(relevance=5), recipe(query="Where?", relevance=2))
    store = FeedbackStore(url)
    assert store.import_jsonl(path, RunnableLambda(retrieve)).imported == 3
    assert asked == [GOOD["query"], "Where?"]
    cells = store.evidence_for("Where?").cells
    # No citations are known: each of four chunks gets 1 / sqrt(4).
    assert [round(cell.negative, 3) for cell in cells] == [0.5] * 4
    [trace_id] = column(store, "traces", "trace_id")[:1]
    trace = store.trace(trace_id)
    assert trace.status == "imported"
    assert [(chunk.chunk_id, chunk.origin, chunk.cited) for chunk in trace.chunks] == [
        (f"c{number}", "base", None) for number in range(4)
    ]

    assert store.import_jsonl(path, RunnableLambda(retrieve)).duplicates == 3
    assert len(asked) == 2
    assert_consistent(store)


def test_a_query_whose_retrieval_fails_is_told_and_imported_next_time(path):
    down = [True]

    def retrieve(query):
        if query == "Where?" and down[0]:
            msg = "no connection"
            raise ConnectionError(msg)
        return CHUNKS[:1]

    write(path, recipe(query="Where?"), recipe())
    store = FeedbackStore("sqlite://")
    done = store.import_jsonl(path, RunnableLambda(retrieve))
    assert done.imported == 1
    assert done.problems == ((1, "nothing could be retrieved: ConnectionError: no connection"),)
    down.clear()
    down.append(False)
    assert store.import_jsonl(path, RunnableLambda(retrieve)) == Imported(1, 1, ())


def test_what_is_no_retriever_is_told(path):
    done = FeedbackStore("sqlite://").import_jsonl(
        write(path, recipe()), RunnableLambda(str.upper)
    )
    assert "a retriever returns a list of Documents, got str" in done.problems[0][1]


def test_two_namespaces_may_import_one_log(url, path):
    store = FeedbackStore(url)
    write(path, recipe())
    assert store.import_jsonl(path).imported == 1
    assert store.scoped("other").import_jsonl(path).imported == 1
    assert store.scoped("other").import_jsonl(path).duplicates == 1


def test_an_import_embeds_its_questions_in_batches(path, caplog):
    embeddings = Angles()
    store = FeedbackStore("sqlite://", embeddings=embeddings)
    lines = [recipe(query=f"About {number}") for number in (10, 20, 30)]
    store.import_jsonl(write(path, *lines))
    assert (embeddings.queries, embeddings.batches) == (1, [1, 3])
    nearest = store.evidence_for("About 22", limit=1).questions
    assert [question.text for question in nearest] == ["About 20"]

    embeddings.embed_query = None
    with caplog.at_level(logging.WARNING):
        assert store.import_jsonl(write(path, recipe(query="About 40"))).imported == 1
    assert "embed_questions" in caplog.text


# -- exports


@pytest.mark.parametrize("seed", range(3))
def test_an_export_makes_the_same_evidence_again_in_either_database(seed, url, tmp_path):
    file, memory = tmp_path / "export.jsonl", FeedbackStore("sqlite://")
    store = grown(url, seed)
    lines = store.export_jsonl(file)
    assert memory.import_jsonl(file) == Imported(lines, 0, ())
    # And back: from SQLite into the kind of database that is tested.
    second = tmp_path / "second.jsonl"
    assert memory.export_jsonl(second) == lines
    other = store.scoped("emptied")
    for actor in ("ann", "ben", "cy", "session:s1", "session:s2"):
        store.forget(actor)
    for trace_id in column(store, "traces", "trace_id"):
        store.forget(f"trace:{trace_id}")
    for pin_id in column(store, "pins", "pin_id"):
        store.retract(pin_id)
    store.prune(datetime.now(UTC) + timedelta(days=1))
    assert set(counts(store).values()) == {0}
    assert other.import_jsonl(second) == Imported(lines, 0, ())

    for imported in (memory, other):
        assert evidence_of(imported)
        assert_consistent(imported)
        assert imported.import_jsonl(file) == Imported(0, lines, ())
    assert evidence_of(memory) == evidence_of(other)
    assert credits_of(memory) == credits_of(other)
    assert second.read_text("utf-8") == file.read_text("utf-8")


def test_an_export_holds_what_evidence_rests_on(url, tmp_path):
    store, file = FeedbackStore(url), tmp_path / "export.jsonl"
    chunk = Document("Vierzehn Täge.", id="c", metadata={"source": "faq.md", "page": 3})
    unfit = TracedChunk(chunk, final_rank=1, base_rank=0, base_score=math.inf, belief=0.25)
    store.record_trace("t", "Wie lange?", [unfit], actor="ann", query="Dauer", model="m")
    store.update_trace(
        "t", cited=[chunk], grades={"c": "yes"}, grounded=True, answer="Zwei Wochen"
    )
    store.rate("t", 5, target="c", comment="gut", reviewer=True, event_id="e")
    store.record_trace("silent", "Nobody voted on this", [chunk])
    pin_id = store.pin("Wie lange?", chunk, actor="bob")
    assert store.export_jsonl(str(file)) == 3
    text = file.read_text("utf-8")
    assert "Vierzehn Täge." in text
    seen, voted, pinned = map(json.loads, text.splitlines())
    assert seen | {"last_seen": 0, "content_hash": 0, "cell_id": 0} == {
        "type": "chunk", "chunk_id": "c", "document_id": "c", "cell_id": 0, "content_hash": 0,
        "dropped": {}, "text": "Vierzehn Täge.", "metadata": {"source": "faq.md", "page": 3},
        "source": "faq.md", "last_seen": 0,
    }  # fmt: skip
    assert voted["received_at"].endswith("+00:00")
    trace = voted.pop("trace")
    [candidate] = trace.pop("chunks")
    assert voted | {"received_at": 0} == {
        "type": "signal", "event_id": "e", "trace_id": "t", "signal": "rating", "rating": 5,
        "target": "c", "actor": None, "reviewer": True, "comment": "gut", "correction": None,
        "client_time": None, "received_at": 0, "retracted_at": None, "value": None,
        "state": None, "burst_id": None,
    }  # fmt: skip
    assert trace | {"created_at": 0} == {
        "question": "Wie lange?", "actor": "ann", "session_id": None, "answer": "Zwei Wochen",
        "status": None, "reason": None, "grounded": True, "model": "m", "index_version": None,
        "traffic": None, "ranker_id": None, "shadow_id": None, "experiment": None,
        "created_at": 0, "searches": {"1": "Dauer"},
    }  # fmt: skip
    assert candidate == {
        "chunk_id": "c", "cell_id": seen["cell_id"], "content_hash": seen["content_hash"],
        "attempt": 1, "base_rank": 0, "final_rank": 1, "base_score": None, "belief": 0.25,
        "multiplier": None, "final_score": None, "origin": "base", "returned": True,
        "in_prompt": True,
        "cited": True, "grade": "yes", "ranker_rank": None, "shadow_rank": None, "team": None,
    }  # fmt: skip
    assert (pinned["pin_id"], pinned["question"]) == (pin_id, "Wie lange?")


def test_an_import_brings_snapshots_so_that_pins_can_be_shown_at_once(tmp_path):
    store, file = FeedbackStore("sqlite://"), tmp_path / "export.jsonl"
    store.pin("How long?", CHUNKS[0])
    store.export_jsonl(file)
    other = FeedbackStore("sqlite://")
    other.import_jsonl(file)
    [pin] = other.evidence_for("How long?").pins
    [snapshot] = other.snapshots([pin.key])[pin.key]
    assert snapshot.document == CHUNKS[0]


def test_an_import_takes_up_signals_that_waited_for_its_traces(url, tmp_path):
    file, store = tmp_path / "export.jsonl", FeedbackStore("sqlite://")
    store.record_trace("t", "How long?", CHUNKS[:1])
    store.rate("t", 5, actor="ann")
    store.export_jsonl(file)
    other = FeedbackStore(url)
    other.rate("t", 1, actor="ben", pending=True)
    other.import_jsonl(file)
    [outcome] = other.evidence_for("How long?").questions
    assert (round(outcome.positive, 3), round(outcome.negative, 3)) == (1, 1)
    assert_consistent(other)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"signal": "applause"}, "There is no signal 'applause'"),
        ({"rating": 9}, "A rating is a whole number from 1 to 5"),
        ({"target": "c5"}, "target: trace 't' has no chunk 'c5'"),
        ({"received_at": "2026-01-01T00:00:00"}, "timezone"),
        ({"received_at": 5}, "a time is a text"),
        ({"event_id": ""}, "event_id"),
        ({"trace": {"question": "How long?"}}, "trace.created_at: Field required"),
        ({"reviewer": "yes"}, "reviewer"),
        ({"trace": TRACE | {"searches": {"9" * 30: "x"}}}, "trace.searches"),
        ({"trace": TRACE | {"chunks": [CANDIDATE | {"final_rank": 10**20}]}}, "final_rank"),
        ({"trace": TRACE | {"chunks": [CANDIDATE | {"belief": "high"}]}}, "belief"),
        ({"trace_id": "held"}, "trace 'held' is another namespace's"),
    ],
)
def test_a18_a_bad_line_of_an_export_leaves_nothing_behind(url, tmp_path, change, reason):
    store, file = FeedbackStore(url), tmp_path / "export.jsonl"
    store.record_trace("held", "Of another tenant", [])
    store.record_trace("t", "How long?", CHUNKS[:1])
    store.rate("t", 5)
    store.export_jsonl(file)
    store.forget("trace:t")
    before = counts(store)
    [_, good] = file.read_text("utf-8").splitlines()
    file.write_text(f"{json.dumps(json.loads(good) | change)}\n", "utf-8")
    other = store.scoped("other")
    done = other.import_jsonl(file)
    assert done.imported == 0
    [(number, told)] = done.problems
    assert number == 1
    assert reason in told
    assert counts(store) == before
    file.write_text(f"{good}\n{json.dumps(json.loads(good) | change)}\n", "utf-8")
    assert other.import_jsonl(file).imported == 1
    assert_consistent(other)


def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path):
    store = FeedbackStore("sqlite://")
    with pytest.raises(StoreError, match=r"missing\.jsonl cannot be read: No such file"):
        store.import_jsonl(tmp_path / "missing.jsonl")
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        store.import_jsonl(tmp_path)
    with pytest.raises(StoreError, match="cannot be written: No such file"):
        store.export_jsonl(tmp_path / "missing" / "export.jsonl")
    with pytest.raises(StoreError, match="cannot be written: "):
        store.export_jsonl(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_leaves_the_older_file(tmp_path, monkeypatch):
    store, file = grown("sqlite://", traces=5), tmp_path / "export.jsonl"
    number = store.export_jsonl(file)
    before = file.read_bytes()
    assert before.count(b"\n") == number

    def fail(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dumps", fail)
    with pytest.raises(StoreError, match="cannot be written: No space left on device"):
        store.export_jsonl(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]
