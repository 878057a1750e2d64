"""A store on PostgreSQL that is partitioned by month, as `docs/scaling.md` has it."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from langchain_core.documents import Document
from sqlalchemy import delete, insert, inspect, select, text, update

from langchain_feedback.errors import (
    EventReusedError,
    StoreRejectedError,
    TraceReusedError,
    UnknownChunkError,
    UnknownTraceError,
)
from langchain_feedback.store import schema
from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.incoming import new_trace
from langchain_feedback.store.transactions import question_of, reading, writing
from tests.unit_tests.store.tables import (
    assert_consistent,
    column,
    counts,
    credits_of,
    evidence_of,
    grown,
)
from tests.unit_tests.store.test_histories import ACTORS, CHUNKS, TRACES, History

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"
FOUND = [Document(f"Text {name}.", id=name) for name in "abcd"]


def partition(url):
    """Run the script of the page."""
    marked = r"<!-- partitions: script -->\n```sql\n(.*?)^```$"
    script = re.search(marked, PAGE.read_text(), re.DOTALL | re.MULTILINE)
    with FeedbackStore(url) as store, store._database.engine.connect() as connection:
        connection.connection.driver_connection.autocommit = True
        connection.connection.driver_connection.execute(script[1])


@pytest.fixture
def partitioned(postgres_url):
    partition(postgres_url)
    with FeedbackStore(postgres_url) as store:
        yield store


def trace(store, trace_id, question="How long?", *, days_ago=0, **facts):
    when = datetime.now(UTC) - timedelta(days=days_ago)
    asked = question_of(store, question)
    store._write(
        new_trace(
            trace_id, asked, FOUND, attempt=1, query=None, id_field=None, created_at=when,
            facts=facts,
        )
    )  # fmt: skip


def newest(store):
    """The partition of this month's traces."""
    with reading(store) as connection:
        found = "SELECT tableoid::regclass::text FROM lcf_traces ORDER BY created_at DESC LIMIT 1"
        return connection.execute(text(found)).scalar_one()


def months(store, table):
    """The partitions that hold rows, with how many."""
    with reading(store) as connection:
        found = connection.execute(
            text(f"SELECT tableoid::regclass::text, count(*) FROM {table} GROUP BY 1")  # noqa: S608
        )
        return dict(found.all())


@pytest.mark.parametrize("seed", range(2))
def test_a_store_that_is_full_keeps_every_row_and_goes_on(postgres_url, seed):
    with grown(postgres_url, seed=seed) as store:
        with writing(store) as (connection, _):
            dates = Random(seed)
            for table, name in ((schema.signals, "received_at"), (schema.traces, "created_at")):
                [key] = table.primary_key.columns
                for (one,) in connection.execute(select(key)).all():
                    when = datetime.now(UTC) - timedelta(days=dates.random() * 300)
                    connection.execute(update(table).where(key == one).values({name: when}))
        store.rebuild_evidence()
        before = counts(store), evidence_of(store), credits_of(store)
        seqs = column(store, "signals", "seq")
    partition(postgres_url)
    with FeedbackStore(postgres_url) as store:
        assert (counts(store), evidence_of(store), credits_of(store)) == before
        assert column(store, "signals", "seq") == seqs
        assert len(months(store, "lcf_signals")) > 5
        assert "lcf_signals_other" not in months(store, "lcf_signals")
        trace(store, "after")
        store.rate("after", 5, actor="ann")
        assert max(column(store, "signals", "seq")) > max(seqs)
        assert_consistent(store)


def test_an_event_is_kept_once_also_months_later(partitioned):
    trace(partitioned, "t1")
    event_id = partitioned.rate("t1", 5, actor="ann", event_id="e1")
    with writing(partitioned) as (connection, _):
        row = dict(connection.execute(select(schema.signals)).mappings().one())
        later = row | {"seq": 99, "received_at": row["received_at"] + timedelta(days=62)}
        assert insert_or_ignore(connection, schema.signals, [later]) == 0
    assert partitioned.rate("t1", 1, actor="ann", event_id="e1") == event_id
    assert counts(partitioned)["signals"] == 1
    with pytest.raises(EventReusedError):
        partitioned.rate("t1", 1, actor="ann", event_id="e1", target="a")
    other = partitioned.scoped("other")
    trace(other, "o1")
    assert other.rate("o1", 5, event_id="e1") == "e1"
    assert counts(partitioned)["signals"] == 2


def test_a_number_is_given_once_in_all_months(partitioned):
    trace(partitioned, "t1")
    partitioned.rate("t1", 5, event_id="e1")
    with reading(partitioned) as connection:
        row = dict(connection.execute(select(schema.signals)).mappings().one())
    row |= {"event_id": "e2", "received_at": row["received_at"] + timedelta(days=62)}
    with pytest.raises(StoreRejectedError), writing(partitioned) as (connection, _):
        connection.execute(insert(schema.signals), row)


def test_a_trace_is_one_also_months_later(partitioned):
    trace(partitioned, "t1", days_ago=62)
    trace(partitioned, "t1")
    assert counts(partitioned)["traces"] == 1
    with pytest.raises(TraceReusedError):
        trace(partitioned, "t1", "Another question?")
    with pytest.raises(UnknownTraceError):
        trace(partitioned.scoped("other"), "t1")


def test_writers_at_the_same_time_keep_one(partitioned):
    trace(partitioned, "t1")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: trace(partitioned, "t2"), range(16)))
        list(pool.map(lambda _: partitioned.rate("t1", 5, event_id="e1"), range(16)))
    assert counts(partitioned)["traces"] == 2
    assert counts(partitioned)["signals"] == 1
    assert_consistent(partitioned)


def test_candidates_go_with_their_trace_and_need_one(partitioned):
    trace(partitioned, "t1")
    with writing(partitioned) as (connection, _):
        row = dict(connection.execute(select(schema.trace_chunks)).mappings().first())
        connection.execute(delete(schema.traces))
    left = counts(partitioned)
    assert (left["trace_chunks"], left["trace_searches"]) == (0, 0)
    with pytest.raises(StoreRejectedError), writing(partitioned) as (connection, _):
        connection.execute(insert(schema.trace_chunks), row)
    trace(partitioned, "t1")
    assert counts(partitioned)["trace_chunks"] == 4


def test_a_trace_needs_its_question(partitioned):
    row = {"trace_id": "x", "namespace": "n", "question_id": 77, "created_at": datetime.now(UTC)}
    with pytest.raises(StoreRejectedError), writing(partitioned) as (connection, _):
        connection.execute(insert(schema.traces), row)


@pytest.mark.parametrize(
    ("table", "name"), [(schema.signals, "received_at"), (schema.traces, "created_at")]
)
def test_a_row_does_not_move_to_another_month(partitioned, table, name):
    trace(partitioned, "t1")
    partitioned.rate("t1", 5)
    with pytest.raises(StoreRejectedError), writing(partitioned) as (connection, _):
        connection.execute(update(table).values({name: datetime(2020, 1, 1, tzinfo=UTC)}))
    assert (counts(partitioned)["signals"], counts(partitioned)["traces"]) == (1, 1)


def test_who_is_forgotten_may_come_again(partitioned):
    trace(partitioned, "t1", actor="ann")
    partitioned.rate("t1", 5, actor="ann", event_id="e1")
    partitioned.forget("ann")
    assert counts(partitioned)["signals"] == counts(partitioned)["traces"] == 0
    with reading(partitioned) as connection:
        for name in ("lcf_signal_ids", "lcf_trace_ids"):
            assert connection.execute(text(f"SELECT count(*) FROM {name}")).scalar() == 0  # noqa: S608
    trace(partitioned, "t1", actor="ben")
    partitioned.rate("t1", 5, actor="ben", event_id="e1")
    assert counts(partitioned)["signals"] == 1


def test_old_months_are_pruned_and_new_ones_made(partitioned):
    trace(partitioned, "old", days_ago=400)
    trace(partitioned, "new")
    assert months(partitioned, "lcf_traces")["lcf_traces_other"] == 1
    with partitioned._database.engine.begin() as connection:
        assert connection.execute(text("SELECT lcf_make_months(6)")).scalar() > 12
        assert connection.execute(text("SELECT lcf_make_months(6)")).scalar() == 0
    held = months(partitioned, "lcf_traces")
    assert sorted(held.values()) == [1, 1]
    assert "lcf_traces_other" not in held
    # They watch over what moved, too.
    trace(partitioned, "old")
    assert counts(partitioned)["traces"] == 2
    [month] = months(partitioned, "lcf_traces").keys() - {newest(partitioned)}
    assert partitioned.prune(timedelta(days=365)).traces == 1
    assert counts(partitioned)["trace_chunks"] == 4
    with partitioned._database.engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {month}"))
    trace(partitioned, "old", days_ago=400)
    assert counts(partitioned)["traces"] == 2


def test_indexes_and_columns_are_those_of_the_release(partitioned, postgres_server):
    with postgres_server.database() as url, FeedbackStore(url) as plain:
        for name in ("lcf_signals", "lcf_traces"):
            described = []
            for store in (plain, partitioned):
                seen = inspect(store._database.engine)
                columns = [
                    (one["name"], str(one["type"]), one["nullable"], one["default"])
                    for one in seen.get_columns(name)
                ]
                indexes = {one["name"]: one["column_names"] for one in seen.get_indexes(name)}
                unique = {
                    one["name"]: one["column_names"] for one in seen.get_unique_constraints(name)
                }
                described.append((columns, indexes | unique))
            assert described[0] == described[1]


def test_random_histories_end_as_in_a_plain_store(partitioned):
    with FeedbackStore("sqlite://") as plain:
        runs = [History(partitioned), History(plain)]
        chance = Random(3)
        for _ in range(150):
            trace_id = chance.choice(TRACES)
            step = chance.choice(
                [
                    ("search", trace_id, chance.sample(CHUNKS, 3), chance.choice([1, 2]), False),
                    ("rate", trace_id, chance.randint(1, 5), chance.choice([None, "a", "b"]),
                     chance.choice(ACTORS), True),
                    ("update", trace_id, CHUNKS[:2], CHUNKS[:1], None),
                    ("retract", chance.randint(0, 30)),
                ]
            )  # fmt: skip
            said = []
            for run in runs:
                try:
                    getattr(run, step[0])(*step[1:])
                    said.append(None)
                except (UnknownTraceError, UnknownChunkError) as error:
                    said.append(type(error))
            assert said[0] == said[1]
        cells = [[row[:3] for row in evidence_of(store)] for store in (partitioned, plain)]
        assert cells[0] == cells[1]
        assert len(cells[0]) > 3
        assert_consistent(partitioned)
