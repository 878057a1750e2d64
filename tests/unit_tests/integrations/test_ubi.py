"""User Behavior Insights, out of a store and into another one."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.documents import Document

from langchain_feedback import FeedbackStore, new_trace_id
from langchain_feedback.errors import StoreError
from langchain_feedback.integrations import ubi
from langchain_feedback.integrations.ubi import export_ubi, import_ubi
from tests.unit_tests.store.conftest import store, url
from tests.unit_tests.store.tables import assert_consistent, column, counts, evidence_of

__all__ = ["store", "url"]

QUESTION = "How long does a refund take?"
CHUNKS = [Document(f"Chunk {n}.", id=f"c{n}", metadata={"source": "faq.md"}) for n in range(4)]
BY_ID = {chunk.id: chunk for chunk in CHUNKS}

# What the JSON Schema of UBI 1.3.0 (o19s/ubi, Apache-2.0) requires, in our words.
TEXT = {"type": "string", "maxLength": 100}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}
SCHEMA = {
    "queries": {
        "type": "object",
        "required": ["user_query", "query_id"],
        "properties": {
            "application": TEXT,
            "query_id": TEXT,
            "client_id": TEXT,
            "user_query": {"type": "string"},
            "query_attributes": {"type": "object"},
            "timestamp": TIME,
            "query_response_id": {"type": "string"},
            "query_response_hit_ids": {"type": "array", "items": {"type": "string"}},
        },
        "additionalProperties": False,
    },
    "events": {
        "type": "object",
        "required": ["action_name", "timestamp", "event_attributes"],
        "properties": {
            **dict.fromkeys(
                ["application", "action_name", "query_id", "session_id", "client_id", "user_id"],
                TEXT,
            ),
            "timestamp": TIME,
            "message": {"type": "string", "maxLength": 1024},
            "event_attributes": {
                "type": "object",
                "required": ["position"],
                "properties": {
                    "position": {
                        "type": "object",
                        "required": ["ordinal"],
                        "properties": {"ordinal": {"type": "integer"}},
                        "additionalProperties": False,
                    },
                    "object": {
                        "type": "object",
                        "required": ["object_id"],
                        "properties": {"object_id": {"type": "string", "maxLength": 256}},
                        "additionalProperties": False,
                    },
                },
            },
        },
        "additionalProperties": False,
    },
}


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, *lines):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def full(store):
    """Fill a store with everything that a round trip must keep; return the trace ids."""
    ids = [new_trace_id() for _ in range(4)]
    store.record_trace(ids[0], QUESTION, CHUNKS, actor="ann", session_id="s1")
    store.update_trace(ids[0], in_prompt=CHUNKS[:2], cited=CHUNKS[1:2], answer="14 days.")
    store.record_trace(ids[1], "Where is the office?", CHUNKS[::-1], session_id="s2")
    store.record_trace(ids[2], "Grüße \U0001f600?", CHUNKS[:1])
    store.record_trace(ids[3], "Nothing?", [], actor="ben")
    store.rate(ids[0], 5, comment="x" * 2_000)
    store.rate(ids[0], 2, actor="ben")
    store.signal(ids[0], "source_click", target=CHUNKS[3])
    store.signal(ids[1], "source_click", target=CHUNKS[0])
    store.signal(ids[1], "copy")
    store.signal(ids[2], "dwell", value=12_000)
    store.signal(ids[2], "correction", correction="It takes 20 days.")
    store.signal(ids[2], "thumbs_down")
    return ids


@pytest.fixture
def other(request, tmp_path):
    """A second store, on SQLite: what was exported from either database is read there."""
    with FeedbackStore(f"sqlite:///{tmp_path / 'other.db'}") as opened:
        yield opened


def test_a_round_trip_keeps_questions_signals_and_evidence(store, other, tmp_path):
    ids = full(store)
    written = export_ubi(store, tmp_path / "ubi")
    assert (written.queries, written.events) == (4, 9 + 8)
    done = import_ubi(other, *written.files[:2], documents=BY_ID.get)
    assert (done.queries, done.events, done.problems) == (4, 8, ())
    assert (done.ignored, done.unknown) == (9, frozenset())
    assert _sums(other) == _sums(store)
    assert_consistent(other)
    for trace_id in ids:
        one, two = store.trace(trace_id), other.trace(trace_id)
        for name in ("question", "actor", "session_id", "created_at"):
            assert getattr(one, name) == getattr(two, name)
        facts = [
            [
                (c.chunk_id, c.cell_id, c.content_hash, c.final_rank, c.in_prompt, c.cited)
                for c in t.chunks
            ]
            for t in (one, two)
        ]
        assert facts[0] == facts[1]
    for name in ("event_id", "signal", "rating", "value", "comment", "correction", "received_at"):
        assert _column(other, name) == _column(store, name)
    again = export_ubi(other, tmp_path / "again")
    for one, two in zip(written.files, again.files, strict=True):
        assert _sorted(one) == _sorted(two)


def _sums(store):
    return sorted(map(repr, evidence_of(store)))


def _column(store, name):
    return sorted(column(store, "signals", name), key=repr)


def _sorted(path):
    return sorted(path.read_text().splitlines())


def test_into_the_same_store_nothing_is_new(store, tmp_path):
    full(store)
    before = counts(store), _sums(store)
    queries, events = export_ubi(store, tmp_path / "ubi").files
    done = import_ubi(store, queries, events)
    assert (done.queries, done.events, done.duplicates) == (0, 0, 4 + 8)
    assert (counts(store), _sums(store)) == before


def test_importing_twice_adds_nothing(store, other, tmp_path):
    full(other)
    queries, events = export_ubi(other, tmp_path / "ubi").files
    import_ubi(store, queries, events, documents=BY_ID.get)
    before = counts(store), _sums(store)
    done = import_ubi(store, queries, events, documents=BY_ID.get)
    assert (done.queries, done.events) == (0, 0)
    assert (counts(store), _sums(store)) == before


def test_what_is_exported_is_valid(store, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    full(store)
    store.record_trace("x" * 80, "Long?", CHUNKS, actor="a" * 200, session_id="s" * 200)
    store.rate("x" * 80, 4)
    queries, events = export_ubi(store, tmp_path / "ubi").files
    for kind, path in (("queries", queries), ("events", events)):
        for line in read(path):
            jsonschema.validate(line, SCHEMA[kind])


def test_positions_count_from_1_and_the_answer_stands_at_0(store, tmp_path):
    ids = full(store)
    export_ubi(store, tmp_path / "ubi", application="handbook")
    queries, events = read(tmp_path / "ubi" / ubi.QUERIES), read(tmp_path / "ubi" / ubi.EVENTS)
    asked = {query["query_id"]: query for query in queries}
    assert asked[ids[1]]["query_response_hit_ids"] == ["c3", "c2", "c1", "c0"]
    assert asked[ids[3]]["query_response_hit_ids"] == []
    assert {line["application"] for line in queries + events} == {"handbook"}
    [click] = [e for e in events if e["action_name"] == "click" and e["query_id"] == ids[1]]
    assert click["event_attributes"]["position"] == {"ordinal": 4}
    assert click["event_attributes"]["object"] == {"object_id": "c0"}
    assert click["client_id"] == "s2"
    rated = [e for e in events if e["action_name"] == "rating"]
    assert [e["event_attributes"]["position"] for e in rated] == [{"ordinal": 0}] * 2
    assert not any("object" in e["event_attributes"] for e in rated)
    shown = [
        e["event_attributes"]["position"]["ordinal"]
        for e in events
        if e["action_name"] == "impression" and e["query_id"] == ids[0]
    ]
    assert shown == [1, 2, 3, 4]


def test_what_is_not_in_force_is_not_exported(store, tmp_path):
    trace_id = new_trace_id()
    store.record_trace(trace_id, QUESTION, CHUNKS, actor="ann")
    event_id = store.rate(trace_id, 1)
    store.retract(event_id)
    evaluated = new_trace_id()
    store.record_trace(evaluated, "Where?", CHUNKS, traffic="eval")
    written = export_ubi(store, tmp_path / "ubi", impressions=False)
    assert (written.queries, written.events) == (1, 0)


def test_an_export_is_of_its_namespace(store, tmp_path):
    full(store.scoped("elsewhere"))
    assert export_ubi(store, tmp_path / "ubi").queries == 0


def test_only_what_was_asked_since_is_exported(store, tmp_path):
    full(store)
    assert export_ubi(store, tmp_path / "ubi", since=datetime.now(UTC)).queries == 0


def test_files_are_not_replaced_unasked(store, tmp_path):
    full(store)
    export_ubi(store, tmp_path / "ubi")
    with pytest.raises(ValueError, match="ubi"):
        export_ubi(store, tmp_path / "ubi")
    assert export_ubi(store, tmp_path / "ubi", overwrite=True).queries == 4


# -- old click logs

QUERY = {
    "query_id": "q-1",
    "client_id": "browser-1",
    "user_query": "refund time",
    "timestamp": "2024-11-13T20:20:39",
    "query_response_hit_ids": ["c0", "c1", "gone", "c2"],
}
CLICK = {
    "action_name": "click",
    "query_id": "q-1",
    "client_id": "browser-1",
    "timestamp": "2024-11-13T21:20:39+01:00",
    "event_attributes": {"object": {"object_id": "c2"}, "position": {"ordinal": 4}},
}


def event(**changes):
    return CLICK | changes


@pytest.fixture
def files(tmp_path):
    def make(queries, events):
        return write(tmp_path / "q.jsonl", *queries), write(tmp_path / "e.jsonl", *events)

    return make


def test_an_old_click_log_becomes_evidence(store, files):
    done = import_ubi(store, *files([QUERY], [CLICK]), documents=BY_ID.get)
    assert (done.queries, done.events, done.problems) == (1, 1, ())
    assert done.unknown == {"gone"}
    trace = store.trace("q-1")
    assert (trace.question, trace.session_id) == ("refund time", "browser-1")
    assert trace.created_at == datetime(2024, 11, 13, 20, 20, 39, tzinfo=UTC)
    # A hit that nobody knows leaves its rank free.
    assert [(c.chunk_id, c.final_rank) for c in trace.chunks] == [("c0", 0), ("c1", 1), ("c2", 3)]
    [cell] = store.evidence_for("refund time").cells
    assert cell.key == store.cells_of([CHUNKS[2]])[0]
    assert column(store, "signals", "received_at") == [
        datetime(2024, 11, 13, 20, 20, 39, tzinfo=UTC)
    ]


def test_chunks_are_seen_when_they_are_handed_over_not_when_they_were_asked_for(store, files):
    began = datetime.now(UTC)
    import_ubi(store, *files([QUERY], [CLICK]), documents=BY_ID.get)
    assert all(
        seen >= began - timedelta(seconds=5) for seen in column(store, "chunks", "last_seen")
    )


def test_integers_are_ids_too_and_a_user_speaks_for_himself(store, files):
    number = Document("Seven.", id="7")
    query = QUERY | {"query_response_hit_ids": ["7"], "user_id": "ann"}
    attributes = {"object": {"object_id": 7}, "position": {"ordinal": 1}}
    events = [
        event(event_attributes=attributes),
        event(event_attributes=attributes, user_id="ben"),
    ]
    done = import_ubi(store, *files([query], events), documents={"7": number}.get)
    assert (done.events, done.problems) == (2, ())
    assert set(column(store, "signals", "actor")) == {None, "ben"}
    assert store.trace("q-1").actor == "ann"


def test_wrong_lines_are_told_by_number_and_cost_no_other(store, files):
    queries = [
        QUERY,
        "{",
        "[]",
        "",
        QUERY | {"query_id": "q-2", "user_query": " "},
        {"user_query": "no id"},
        QUERY | {"query_id": "q-3", "timestamp": 12},
        QUERY | {"user_query": "another question under one id"},
        QUERY | {"query_id": "q-4"},
    ]
    no_position = {"object": {"object_id": "c2"}}
    events = [
        CLICK,
        event(event_attributes=no_position),
        event(query_id="q-9"),
        event(event_attributes={"object": {"object_id": "gone"}, "position": {"ordinal": 3}}),
        event(event_attributes={"position": {"ordinal": 3}}),
        event(timestamp="yesterday"),
        event(query_id="q-4"),
        {"action_name": "click", "timestamp": "2024-11-13T20:20:39Z"},
        CLICK,
        event(action_name="purchase"),
    ]
    done = import_ubi(store, *files(queries, events), documents=BY_ID.get)
    assert (done.queries, done.events, done.duplicates, done.ignored) == (2, 2, 1, 1)
    wrong = [(problem.file, problem.line) for problem in done.problems]
    assert wrong == [("queries", n) for n in (2, 3, 4, 5, 6, 7, 8)] + [
        ("events", n) for n in (2, 3, 4, 5, 6, 8)
    ]
    reasons = {(problem.file, problem.line): problem.reason for problem in done.problems}
    assert reasons["events", 2] == "event_attributes.position: Field required"
    assert "q-9" in reasons["events", 3]
    assert "documents=" in reasons["events", 4]
    assert reasons["queries", 6] == "query_id: Field required"
    assert_consistent(store)


def test_hits_that_become_known_later_are_added(store, files):
    paths = files([QUERY], [CLICK])
    first = import_ubi(store, *paths)
    assert (first.queries, first.events, len(first.problems)) == (1, 0, 1)
    second = import_ubi(store, *paths, documents=BY_ID.get)
    assert (second.queries, second.events, second.problems) == (1, 1, ())
    assert store.trace("q-1").chunks[-1].final_rank == 3


def test_other_actions_are_signals_where_you_say_so(store, files):
    paths = files([QUERY], [event(action_name="purchase")])
    import_ubi(store, *paths, documents=BY_ID.get, actions={"purchase": "thumbs_up"})
    assert column(store, "signals", "signal") == ["thumbs_up"]
    with pytest.raises(ValueError, match="no signal"):
        import_ubi(store, *paths, actions={"purchase": "joy"})


def test_another_namespaces_query_is_out_of_reach(store, files):
    paths = files([QUERY], [CLICK])
    import_ubi(store.scoped("theirs"), *paths, documents=BY_ID.get)
    done = import_ubi(store, *paths, documents=BY_ID.get)
    assert (done.queries, done.events, len(done.problems)) == (0, 0, 2)


def test_a_missing_file_is_an_error_of_the_stores(store, tmp_path):
    with pytest.raises(StoreError, match="cannot be read"):
        import_ubi(store, tmp_path / "nowhere.jsonl")


def test_more_than_a_page_is_imported_and_exported(store, files, tmp_path):
    queries = [QUERY | {"query_id": f"q-{n}", "user_query": f"query {n}"} for n in range(230)]
    events = [event(query_id=f"q-{n}") for n in range(230)]
    done = import_ubi(store, *files(queries, events), documents=BY_ID.get)
    assert (done.queries, done.events, done.problems) == (230, 230, ())
    written = export_ubi(store, tmp_path / "ubi", impressions=False)
    assert (written.queries, written.events) == (230, 230)
