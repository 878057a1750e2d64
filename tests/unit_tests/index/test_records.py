"""The record manager behaves as LangChain's own SQL one, on the feedback store."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.indexing import RecordManager, aindex, index
from langchain_core.vectorstores import InMemoryVectorStore
from sqlalchemy import create_engine

from langchain_feedback.errors import StoreError
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.records import StoreRecordManager
from langchain_feedback.store import record_manager as recording
from langchain_feedback.store.feedback_store import FeedbackStore

HOW = {"source_id_key": "source", "key_encoder": "sha256"}
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def store():
    """One database for all tests: each has an index of its own."""
    with FeedbackStore("sqlite://") as store:
        yield store


@pytest.fixture(scope="module")
def classic(tmp_path_factory):
    """Makes LangChain's own manager of a name, on a database for all tests."""
    made = pytest.importorskip("langchain_classic.indexes").SQLRecordManager
    folder = tmp_path_factory.mktemp("classic")
    engine = create_engine(f"sqlite:///{folder}/records.db")
    made("any", engine=engine).create_schema()
    yield partial(made, engine=engine)
    engine.dispose()


@pytest.fixture
def records(store):
    return StoreRecordManager(store, f"handbook {uuid4()}")


def vectors():
    return InMemoryVectorStore(DeterministicFakeEmbedding(size=8))


def chunks(texts, source="a.md"):
    return [Document(text, metadata={"source": source}) for text in texts]


class Pair:
    """Our manager and LangChain's, told the same by one clock of the test's own."""

    def __init__(self, store, classic, patch):
        name = str(uuid4())
        self.ours = StoreRecordManager(store, name)
        self.theirs = classic(name)
        self.now = START
        patch.setattr(recording, "clock", lambda *_: self.now)
        patch.setattr(self.theirs, "get_time", self.time)

    def time(self):
        return self.now.timestamp()

    def both(self, name, *arguments, **options):
        ours, theirs = (
            getattr(one, name)(*arguments, **options) for one in (self.ours, self.theirs)
        )
        if name == "list_keys" and not options.get("limit"):
            ours, theirs = sorted(ours), sorted(theirs)
        assert ours == theirs
        return ours


KEYS = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=5)
GROUPS = st.sampled_from(["", "x", "y", None])
SECONDS = st.integers(-2, 20)
STEP = st.one_of(
    st.tuples(
        st.just("update"),
        st.lists(st.tuples(st.sampled_from("abcdefg"), GROUPS), min_size=1, max_size=5),
    ),
    st.tuples(st.just("update without groups"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("wait"), st.integers(1, 3)),
)


@settings(max_examples=60)
@given(
    steps=st.lists(STEP, min_size=1, max_size=12),
    asked=st.fixed_dictionaries({}, optional={"before": SECONDS, "after": SECONDS}),
    groups=st.none() | st.lists(st.sampled_from(["", "x", "y", "z"]), max_size=3),
)
def test_any_sequence_of_calls_gives_what_langchains_own_gives(
    store, classic, steps, asked, groups
):
    with pytest.MonkeyPatch.context() as patch:
        pair = Pair(store, classic, patch)
        for what, given_ in steps:
            if what == "update":
                keys, group_ids = zip(*dict(given_).items(), strict=True)
                pair.both("update", list(keys), group_ids=list(group_ids))
            elif what == "update without groups":
                pair.both("update", sorted(set(given_)))
            elif what == "delete":
                pair.both("delete_keys", given_)
            else:
                pair.now += timedelta(seconds=given_)
        times = {
            name: (START + timedelta(seconds=value)).timestamp() for name, value in asked.items()
        }
        pair.both("list_keys")
        pair.both("list_keys", group_ids=groups)
        pair.both("list_keys", **times)
        pair.both("list_keys", **times, group_ids=groups)
        pair.both("exists", [*"gfedcba", "unknown", "a"])
        pair.both("exists", [])


def test_a_limit_returns_that_many_of_what_langchains_own_would(store, classic):
    with pytest.MonkeyPatch.context() as patch:
        pair = Pair(store, classic, patch)
        pair.both("update", [*"cab"])
        for limit in (None, 0, 1, 2, 9):
            ours, theirs = (one.list_keys(limit=limit) for one in (pair.ours, pair.theirs))
            assert len(ours) == len(theirs)
            assert set(ours) <= set("abc")


STATE = st.dictionaries(
    st.sampled_from(["a.md", "b.md", "c.md"]),
    st.lists(st.sampled_from(["One.", "Two.", "Three.", "Four."]), max_size=3, unique=True),
)


@settings(max_examples=25)
@given(
    states=st.lists(STATE, min_size=1, max_size=4),
    cleanup=st.sampled_from([None, "incremental", "full", "scoped_full"]),
    batch_size=st.sampled_from([2, 100]),
)
def test_indexing_is_the_same_with_either(store, classic, states, cleanup, batch_size):
    name = str(uuid4())
    ours = StoreRecordManager(store, name), vectors()
    theirs = classic(name), vectors()
    for state in states:
        found = [one for source, texts in state.items() for one in chunks(texts, source)]
        how = HOW | {"cleanup": cleanup, "batch_size": batch_size}
        # LangChain's own counts in milliseconds: two runs need to be that far apart.
        time.sleep(0.002)
        assert index(found, *ours, **how) == index(found, *theirs, **how)
        assert sorted(ours[1].store) == sorted(theirs[1].store)
        assert sorted(ours[0].list_keys()) == sorted(theirs[0].list_keys())


@pytest.mark.parametrize("cleanup", ["incremental", "full", "scoped_full"])
async def test_async_indexing_cleans_up_too(records, cleanup):
    where, how = vectors(), HOW | {"cleanup": cleanup}
    first = await aindex(chunks(["One.", "Two."]), records, where, **how)
    again = await aindex(chunks(["Two.", "Three."]), records, where, **how)
    assert (first["num_added"], again["num_added"], again["num_deleted"]) == (2, 1, 1)
    assert sorted(one["text"] for one in where.store.values()) == ["Three.", "Two."]
    assert sorted(await records.alist_keys()) == sorted(where.store)


async def test_async_calls_never_block(records):
    blockbuster = pytest.importorskip("blockbuster")
    records.create_schema()
    with blockbuster.blockbuster_ctx("langchain_feedback"):
        await records.acreate_schema()
        await records.aupdate(["a", "b"], group_ids=["x", None], time_at_least=1.0)
        assert await records.aexists(["a", "c"]) == [True, False]
        assert await records.alist_keys(group_ids=["x"], after=await records.aget_time() - 60) == [
            "a"
        ]
        await records.adelete_keys(["a"])
        assert await records.alist_keys() == ["b"]


def test_it_is_a_record_manager_and_remembers_over_a_restart(tmp_path):
    url, where = f"sqlite:///{tmp_path}/feedback.db", vectors()
    how = HOW | {"cleanup": "scoped_full"}
    with FeedbackStore(url) as store:
        records = StoreRecordManager(store, "handbook")
        assert isinstance(records, RecordManager)
        records.create_schema()
        records.create_schema()
        assert index(chunks(["One."]), records, where, **how)["num_added"] == 1
    with FeedbackStore(url) as store:
        records = StoreRecordManager(store, "handbook")
        assert index(chunks(["One."]), records, where, **how)["num_skipped"] == 1


def test_the_time_is_the_servers_and_exact(records, monkeypatch):
    before = time.time()
    assert before - 1e-3 <= records.get_time() <= time.time() + 1e-3
    instant = START + timedelta(microseconds=123_457)
    monkeypatch.setattr(recording, "clock", lambda *_: instant)
    records.update(["a"])
    now = records.get_time()
    assert now == instant.timestamp()
    # What was written at that very time is neither before nor after it.
    assert records.list_keys(before=now) == records.list_keys(after=now) == []
    assert records.list_keys(before=now + 1e-5) == records.list_keys(after=now - 1e-5) == ["a"]


def test_a_clock_that_went_back_is_refused_and_nothing_is_written(records):
    with pytest.raises(ValueError, match="clock"):
        records.update(["a"], time_at_least=records.get_time() + 100)
    assert records.list_keys() == []
    records.update(["a"], time_at_least=records.get_time())
    assert records.list_keys() == ["a"]


@pytest.mark.parametrize("groups", [[], ["x"], ["x", "y", "z"]])
def test_each_key_needs_its_group(records, groups):
    with pytest.raises(ValueError, match="group_ids"):
        records.update(["a", "b"], group_ids=groups)
    assert records.list_keys() == []


@pytest.mark.parametrize("name", ["", " "])
def test_an_index_needs_a_name(store, name):
    with pytest.raises(ValueError, match="name"):
        store.record_manager(name)


def test_a_store_makes_its_own_and_finds_it_again(store):
    name = str(uuid4())
    store.record_manager(name).update(["a"], group_ids=[""])
    records = store.record_manager(name)
    assert isinstance(records, StoreRecordManager)
    assert (records.namespace, records.list_keys(group_ids=[""])) == (name, ["a"])


def test_nothing_is_no_error(records):
    records.update([])
    records.update([], group_ids=[])
    records.delete_keys([])
    records.delete_keys(["unknown"])
    assert (records.exists([]), records.list_keys()) == ([], [])


def test_keys_come_in_the_order_in_which_they_were_written(records, monkeypatch):
    now = [START]
    monkeypatch.setattr(recording, "clock", lambda *_: now[0])
    for keys in (["c"], ["b", "a"], ["c"]):
        records.update(keys)
        now[0] += timedelta(seconds=1)
    assert records.list_keys() == ["a", "b", "c"]
    assert records.list_keys(limit=2) == ["a", "b"]


def test_many_keys_are_one_call(records):
    keys = [f"{at:05}" for at in range(2_345)]
    records.update(keys, group_ids=["x"] * len(keys))
    assert records.list_keys(group_ids=["x"]) == keys
    assert records.exists([*keys, "unknown"]) == [True] * len(keys) + [False]
    records.delete_keys(keys[1:])
    assert records.list_keys() == keys[:1]


def test_indexes_namespaces_and_the_writers_ledger_are_kept_apart(store):
    name = str(uuid4())
    here, there = StoreRecordManager(store, name), StoreRecordManager(store, f"{name} 2")
    elsewhere = StoreRecordManager(store.scoped("elsewhere"), name)
    here.update(["a"])
    assert there.list_keys() == elsewhere.list_keys() == []
    there.delete_keys(["a"])
    elsewhere.delete_keys(["a"])
    assert here.list_keys() == ["a"]
    assert TableLedger(store, name).entries() == {}


def test_a_database_that_is_away_is_said(tmp_path):
    records = StoreRecordManager(FeedbackStore(f"sqlite:///{tmp_path}/missing/f.db"), "handbook")
    for call in (records.get_time, records.list_keys, lambda: records.update(["a"])):
        with pytest.raises(StoreError):
            call()


def test_it_is_the_same_on_postgresql(postgres_url):
    with FeedbackStore(postgres_url) as store:
        records, where = StoreRecordManager(store, "handbook"), vectors()
        how = HOW | {"cleanup": "full"}
        assert abs(records.get_time() - time.time()) < 5
        assert index(chunks(["One.", "Two."]), records, where, **how)["num_added"] == 2
        assert index(chunks(["Two."]), records, where, **how)["num_deleted"] == 1
        now = records.get_time()
        records.update(["later"], group_ids=["x"], time_at_least=now)
        assert records.list_keys(after=now) == records.list_keys(group_ids=["x"]) == ["later"]
        assert len(records.list_keys(before=now)) == 1
