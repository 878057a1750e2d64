"""Writing to an index: twice is once, a crash anywhere harms nothing, and no loader empties it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import date
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from sqlalchemy import select

from langchain_feedback.errors import LangChainFeedbackError, StoreError
from langchain_feedback.index.ledger import Entry, Fingerprint, Ledger, TableLedger
from langchain_feedback.index.writer import (
    IndexBusyError,
    IndexWriter,
    PlanChangedError,
    SavedFolder,
    TooManyRemovalsError,
    UnsupportedIndexError,
)
from langchain_feedback.store.care_schema import job_leases
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.transactions import reading
from tests.unit_tests.index import writer_crashes
from tests.unit_tests.index.writer_stores import (
    EMBEDDING,
    NEEDS,
    OPEN,
    Another,
    Opened,
    documents,
)


@pytest.fixture(scope="module")
def feedback():
    """One database for all tests: each has a ledger of its own."""
    with FeedbackStore("sqlite://") as store:
        yield store


def new_ledger(feedback):
    return TableLedger(feedback, f"handbook {uuid4()}")


@pytest.fixture
def ledger(feedback):
    return new_ledger(feedback)


@pytest.fixture
def index():
    return InMemoryVectorStore(EMBEDDING)


@pytest.fixture
def writer(index, ledger):
    return IndexWriter(index, ledger, batch_size=2)


def held(index):
    return sorted(one["text"] for one in index.store.values())


def put(writer, *texts, **kwargs):
    return writer.apply(writer.plan(documents(*texts)), **kwargs)


def changes(plan):
    return {name: n for name, n in plan.counts.items() if n}


def ids_of(*texts):
    """The ids that the writer makes."""
    empty = IndexWriter(InMemoryVectorStore(EMBEDDING), NoLedger())
    return list(empty.plan(documents(*texts)).add)


class NoLedger:
    """Knows nothing and keeps nothing."""

    name = "none"

    def entries(self):
        return {}

    def note(self, entries):
        pass

    def claim(self, holder, seconds):
        return True

    def renew(self, holder, seconds):
        return True

    def release(self, holder):
        pass


# -- crashes


class Failing:
    """Passes calls on until the n-th that changes something, which fails before or after."""

    def __init__(self, inner, seen):
        self.__dict__.update(inner=inner, seen=seen)

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name not in ("note", "delete", "add_documents", "add_embeddings"):
            return found

        def called(*args, **kwargs):
            self.seen["calls"] += 1
            at, how = self.seen["fails"]
            if self.seen["calls"] != at:
                return found(*args, **kwargs)
            if how == "half" and name.startswith("add"):
                found(args[0][:1], **{key: value[:1] for key, value in kwargs.items()})
            elif how == "after":
                found(*args, **kwargs)
            raise ConnectionError(name)

        return called


def failing(opened, ledger, at, how):
    seen = {"calls": 0, "fails": (at, how)}
    writer = IndexWriter(opened.store, Failing(ledger, seen), batch_size=2, max_remove_share=1)
    writer.vector_store = Failing(opened.store, seen)
    return writer


def opened_store(name, tmp_path):
    for package in NEEDS[name]:
        pytest.importorskip(package, reason=f"{package} is missing")
    return OPEN[name](str(tmp_path))


def another():
    store = Another()
    return Opened(store, lambda: {key: row["text"] for key, row in store.inner.store.items()})


@pytest.mark.parametrize("how", ["before", "half", "after"])
@pytest.mark.parametrize("name", ["faiss", "memory", "another"])
def test_a24_an_error_at_any_step_is_healed_by_the_same_process(name, how, tmp_path, feedback):
    before = writer_crashes.wanted(writer_crashes.BEFORE)
    after = writer_crashes.wanted(writer_crashes.AFTER)
    at, failed = 0, True
    while failed:
        at += 1
        opened = another() if name == "another" else opened_store(name, tmp_path / str(at))
        ledger = new_ledger(feedback)
        good = IndexWriter(opened.store, ledger)
        good.apply(good.plan(before))
        bad = failing(opened, ledger, at, how)
        try:
            bad.apply(bad.plan(after))
        except ConnectionError:
            assert opened.held().keys() <= {one.id for one in [*before, *after]}
            good.apply(good.plan(after))
        else:
            failed = False
        assert sorted(opened.held().values()) == sorted(writer_crashes.AFTER)
        assert len(opened.store.similarity_search("e", k=20)) == len(after)
        assert not good.plan(after)
    # note, twice delete, add and note, then note, delete and note.
    assert at == 1 + 1 + 2 * (2 if name == "memory" else 3) + 3


def test_metadata_that_were_not_written_before_a_crash_are_written_after_it(index, ledger):
    pages = [[Document("a", id="1", metadata={"page": page})] for page in (1, 2)]
    good = IndexWriter(index, ledger)
    good.apply(good.plan(pages[0]))
    bad = failing(Opened(index, dict), ledger, 2, "before")
    with pytest.raises(ConnectionError, match="add_documents"):
        bad.apply(bad.plan(pages[1]))
    # Text and ledger agree; only the state of the entry tells.
    plan = good.plan(pages[1])
    assert changes(plan) == {"repair": 1}
    good.apply(plan)
    assert index.store["1"]["metadata"] == {"page": 2}


def test_a_removal_that_was_forced_and_broke_off_goes_on_without_force(index, ledger):
    good = IndexWriter(index, ledger)
    put(good, "1: a", "2: b", "3: c", "4: d")
    bad = failing(Opened(index, dict), ledger, 2, "before")
    with pytest.raises(ConnectionError, match="delete"):
        bad.apply(bad.plan(documents("4: d")), force=True)
    plan = good.plan(documents("4: d"))
    assert (len(plan.remove), plan.removed_share) == (3, 0)
    good.apply(plan)
    assert held(index) == ["4: d"]


@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 5), max_size=6),
            st.integers(1, 14),
            st.sampled_from(["before", "half", "after"]),
            st.sampled_from(["", "empty", "restore"]),
        ),
        max_size=5,
    )
)
def test_whatever_failed_before_a_run_that_ends_leaves_what_is_wanted(feedback, runs):
    ledger, index = new_ledger(feedback), InMemoryVectorStore(EMBEDDING)
    backup = {}
    for numbers, at, how, accident in runs:
        texts = [f"{n % 3}: {n}" for n in numbers]
        wanted = documents(*texts)
        bad = failing(Opened(index, dict), ledger, at, how)
        with suppress(ConnectionError):
            bad.apply(bad.plan(wanted), force=True)
        if accident:
            index.store.clear()
        if accident == "restore":
            index.store.update(backup)
        good = IndexWriter(index, ledger, batch_size=2)
        good.apply(good.plan(wanted), force=True)
        assert held(index) == sorted(texts)
        assert not good.plan(wanted)
        backup = dict(index.store)


# -- twice is once


def test_a24_check4_a_second_run_writes_nothing(writer, index, ledger, monkeypatch):
    first = put(writer, "1: a", "2: b", "3: c")
    assert (first.written, first.removed) == (3, 0)
    for name in ("add_documents", "delete"):
        monkeypatch.setattr(index, name, None)
    for name in ("note", "claim", "release"):
        monkeypatch.setattr(ledger, name, None)
    second = put(writer, "3: c", "2: b", "1: a")
    assert (second.written, second.removed, second.run_id) == (0, 0, "")


def test_a_plan_tells_what_it_would_do_and_changes_nothing(writer, index, ledger):
    put(writer, "1: a", "2: b", "3: c", "4: d", "5: e")
    before = ledger.entries()
    plan = writer.plan(documents("1: a", "2: b", "3: c", "4: d", "6: f"))
    assert changes(plan) == {"add": 1, "remove": 1, "keep": 4}
    assert plan.remove == tuple(ids_of("5: e"))
    assert plan.removed_share == 0.2
    assert "1 to add, 0 to replace, 1 to remove" in str(plan)
    assert (held(index), ledger.entries()) == (["1: a", "2: b", "3: c", "4: d", "5: e"], before)
    writer.apply(plan)
    assert held(index) == ["1: a", "2: b", "3: c", "4: d", "6: f"]
    assert ledger.entries()[plan.remove[0]].state == "removed"


def test_documents_are_given_ids_and_are_not_changed(writer, index):
    given_ = Document("1: a", metadata={"source": "1", "tags": ["x"]})
    writer.apply(writer.plan([given_, given_.model_copy()]))
    ((key, kept),) = index.store.items()
    assert key == ids_of("1: a")[0]
    assert (given_.id, given_.metadata) == (None, {"source": "1", "tags": ["x"]})
    kept["metadata"]["tags"].append("y")
    assert given_.metadata["tags"] == ["x"]


def test_ids_come_from_a_field_then_the_document_then_text_and_source(index, ledger):
    writer = IndexWriter(index, ledger, id_field="key")
    mixed = [
        Document("a", id="own", metadata={"key": "field"}),
        Document("b", id="own"),
        Document("c"),
        Document("c", metadata={"source": "other"}),
    ]
    plan = writer.plan(mixed)
    assert plan.add[:2] == ("field", "own")
    assert len(set(plan.add)) == 4


def test_two_documents_with_one_id_are_refused_unless_they_are_the_same(writer):
    twins = [Document("a", id="1"), Document("a", id="1")]
    assert writer.plan(twins).add == ("1",)
    with pytest.raises(UnsupportedIndexError, match="the id '1'"):
        writer.plan([*twins, Document("b", id="1")])


def test_changed_metadata_are_stored_and_what_we_add_ourselves_are_not(writer, index):
    ours = {"feedback": {"trace_id": "t"}, "relevance_score": 0.5}
    writer.apply(writer.plan([Document("a", id="1", metadata={"page": 1, "x": 2})]))
    same = Document("a", id="1", metadata={"x": 2, "page": 1, **ours})
    assert changes(writer.plan([same])) == {"keep": 1}
    plan = writer.plan([Document("a", id="1", metadata={"page": 2, "x": 2, **ours})])
    assert changes(plan) == {"replace": 1}
    writer.apply(plan)
    assert index.store["1"]["metadata"] == {"page": 2, "x": 2}


class Opaque:
    """Its text holds its address."""


METADATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.just(date(2026, 11, 30))
    | st.builds(Opaque)
    | st.frozensets(st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), METADATA))
def test_any_metadata_are_the_same_in_the_next_run(feedback, metadata):
    writer = IndexWriter(InMemoryVectorStore(EMBEDDING), new_ledger(feedback))
    writer.apply(writer.plan([Document("a", id="1", metadata=metadata)]))
    opaque = {key for key, value in metadata.items() if isinstance(value, Opaque)}
    again = {key: Opaque() if key in opaque else metadata[key] for key in reversed(metadata)}
    assert not writer.plan([Document("a", id="1", metadata=again)])


# -- what happened behind the writer's back


def test_check4_an_emptied_store_is_repaired(writer, index):
    put(writer, "1: a", "2: b", "3: c")
    index.store.clear()
    plan = writer.plan(documents("1: a", "2: b", "3: c"))
    assert changes(plan) == {"repair": 3}
    writer.apply(plan)
    assert held(index) == ["1: a", "2: b", "3: c"]


def test_a_changed_text_is_repaired_and_a_restored_one_is_removed_again(writer, index):
    put(writer, "1: a", "2: b", "3: c")
    backup = {key: dict(row) for key, row in index.store.items()}
    put(writer, "1: a", "2: b", force=True)
    index.store.update(backup)
    index.store[ids_of("1: a")[0]]["text"] = "somebody else's"
    plan = writer.plan(documents("1: a", "2: b"))
    assert changes(plan) == {"repair": 1, "remove": 1, "keep": 1}
    writer.apply(plan)
    assert held(index) == ["1: a", "2: b"]


def test_a_lost_ledger_costs_one_writing(writer, index, feedback):
    put(writer, "1: a", "2: b")
    fresh = IndexWriter(index, TableLedger(feedback, "another"))
    plan = fresh.plan(documents("1: a", "2: b", "3: c"))
    assert changes(plan) == {"replace": 2, "add": 1}
    fresh.apply(plan)
    assert held(index) == ["1: a", "2: b", "3: c"]
    assert not fresh.plan(documents("1: a", "2: b", "3: c"))


def test_what_the_ledger_never_knew_stays(writer, index):
    index.add_documents([Document("not ours", id="x")])
    put(writer, "1: a")
    put(writer, "2: b", force=True)
    assert held(index) == ["2: b", "not ours"]


# -- removals


def test_check4_a_loader_that_returned_nothing_is_refused(writer, index):
    put(writer, "1: a")
    plan = writer.plan([])
    assert plan.removed_share == 1
    with pytest.raises(TooManyRemovalsError, match="did the loader return nothing"):
        writer.apply(plan)
    assert held(index) == ["1: a"]
    assert writer.apply(plan, force=True).removed == 1
    assert held(index) == []
    assert writer.apply(writer.plan([])).removed == 0


@pytest.mark.parametrize(("left", "is_refused"), [(8, False), (7, True)])
def test_more_than_a_fifth_goes_only_by_force(writer, index, left, is_refused):
    put(writer, *(f"{n}: text" for n in range(10)))
    plan = writer.plan(documents(*(f"{n}: text" for n in range(left))))
    if is_refused:
        with pytest.raises(TooManyRemovalsError, match=r"3 of 10 .* At most 20%"):
            writer.apply(plan)
        assert len(index.store) == 10
    else:
        writer.apply(plan)
        assert len(index.store) == left


def test_everything_is_refused_whatever_share_is_allowed(index, ledger):
    writer = IndexWriter(index, ledger, max_remove_share=1)
    put(writer, "1: a", "2: b")
    put(writer, "1: a")
    with pytest.raises(TooManyRemovalsError):
        put(writer, "3: c")
    with pytest.raises(TooManyRemovalsError):
        writer.apply(writer.plan_removal(ids_of("1: a")))
    assert held(index) == ["1: a"]


def test_a_part_of_the_documents_can_be_written_alone(writer, index):
    put(writer, "1: a", "2: b")
    plan = writer.plan(documents("3: c"), complete=False)
    assert changes(plan) == {"add": 1}
    writer.apply(plan)
    assert held(index) == ["1: a", "2: b", "3: c"]


def test_single_documents_are_removed_known_or_not_and_can_come_back(writer, index):
    put(writer, *(f"{n}: text" for n in range(8)))
    index.add_documents([Document("not ours", id="x")])
    plan = writer.plan_removal([*ids_of("0: text"), "x", "never there"])
    assert plan.remove == tuple(sorted([*ids_of("0: text"), "x"]))
    assert plan.removed_share == 1 / 8
    writer.apply(plan)
    assert held(index) == [f"{n}: text" for n in range(1, 8)]
    assert not writer.plan_removal([*ids_of("0: text"), "x"])
    back = writer.plan(documents("0: text"), complete=False)
    assert changes(back) == {"add": 1}
    writer.apply(back)
    assert "0: text" in held(index)


# -- what was reviewed is what runs


def test_a_digest_names_the_changes_and_nothing_else(writer, feedback):
    one, same, other = (
        writer.plan(documents(*texts)) for texts in (["1: a", "2: b"], ["2: b", "1: a"], ["1: a"])
    )
    assert one.digest == same.digest != other.digest
    put(writer, "1: a")
    metadata = [Document("1: a", metadata={"source": "1", "page": page}) for page in (1, 2)]
    assert len({writer.plan([document]).digest for document in metadata}) == 2
    elsewhere = IndexWriter(InMemoryVectorStore(EMBEDDING), TableLedger(feedback, "elsewhere"))
    assert elsewhere.plan(documents("1: a", "2: b")).digest != one.digest


def test_the_digest_of_the_newest_plan_is_enough_and_another_one_is_refused(writer, index):
    with pytest.raises(PlanChangedError, match="has made none"):
        writer.apply("abc")
    older = writer.plan(documents("1: a"))
    newest = writer.plan(documents("2: b"))
    with pytest.raises(PlanChangedError, match="Plan again"):
        writer.apply(older.digest)
    assert writer.apply(newest.digest).digest == newest.digest
    assert held(index) == ["2: b"]


def test_a_plan_that_no_longer_holds_is_refused(writer, index, ledger):
    plan = writer.plan(documents("1: a", "2: b"))
    other = IndexWriter(index, ledger)
    put(other, "1: a")
    with pytest.raises(PlanChangedError, match="changed since"):
        writer.apply(plan)
    assert held(index) == ["1: a"]
    put(writer, "1: a", "2: b")


def test_a_plan_of_another_index_is_refused(writer, feedback):
    other = IndexWriter(InMemoryVectorStore(EMBEDDING), TableLedger(feedback, "other"))
    with pytest.raises(PlanChangedError, match=r"'handbook .*'other'"):
        other.apply(writer.plan(documents("1: a")))


# -- one writer at a time


def test_a_second_writer_waits_for_the_first_or_for_its_death(index, ledger, monkeypatch):
    writer = IndexWriter(index, ledger, lease_s=60)
    ledger.claim("somebody else", 60)
    with pytest.raises(IndexBusyError, match="Another writer"):
        put(writer, "1: a")
    assert ledger.claim("somebody else", 0), "as if it had ended"
    put(writer, "1: a")
    assert ledger.claim("somebody else", 60), "it was given back"


def test_the_lease_is_given_back_after_an_error(writer, index, ledger, monkeypatch):
    def fails(*_, **__):
        raise ConnectionError

    monkeypatch.setattr(index, "add_documents", fails)
    with pytest.raises(ConnectionError):
        put(writer, "1: a")
    assert ledger.claim("somebody else", 60)


def test_a_writer_that_lost_its_lease_stops_before_the_next_batch(index, ledger):
    class Slow(InMemoryVectorStore):
        def add_documents(self, documents, ids=None, **kwargs):
            done = super().add_documents(documents, ids=ids)
            # The lease ended meanwhile, and somebody took it.
            assert ledger.claim(holder_of(ledger), 0)
            assert ledger.claim("somebody else", 60)
            return done

    slow = Slow(EMBEDDING)
    writer = IndexWriter(slow, ledger, batch_size=1)
    with pytest.raises(IndexBusyError):
        put(writer, "1: a", "2: b", "3: c")
    assert len(slow.store) == 1
    assert not ledger.claim("a third", 60)


def holder_of(ledger):
    mine = job_leases.c.name == ledger._lease
    with reading(ledger.store) as connection:
        return connection.execute(select(job_leases.c.holder).where(mine)).scalar_one()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'feedback.db'}"
    return request.getfixturevalue("postgres_url")


def test_of_many_that_claim_at_once_one_gets_it(url):
    with FeedbackStore(url) as store:
        ledger = TableLedger(store, "handbook")
        with ThreadPoolExecutor(6) as pool:
            got = list(pool.map(lambda n: ledger.claim(f"run {n}", 60), range(6)))
        assert sum(got) == 1
        holder = f"run {got.index(True)}"
        assert ledger.claim(holder, 60)
        assert ledger.renew(holder, 60)
        assert not ledger.renew("run x", 60)
        ledger.release("run x")
        assert not ledger.claim("run x", 60)
        ledger.release(holder)
        assert not ledger.renew(holder, 60), "what was given back is nobody's"
        assert ledger.claim("run x", 60)
        assert TableLedger(store, "another").claim("run y", 60)
        assert TableLedger(store.scoped("b"), "handbook").claim("run y", 60)


def test_a_ledger_keeps_the_newest_entry_of_an_id_by_index_and_namespace(url):
    with FeedbackStore(url) as store:
        ledger = TableLedger(store, "handbook")
        entries = [Entry(f"{n:04}", Fingerprint("a", "b"), "writing", "r1") for n in range(1_200)]
        ledger.note(entries)
        ledger.note([])
        changed = replace(entries[7], state="present", run_id="r2")
        ledger.note([changed])
        found = ledger.entries()
        assert found == {entry.id: entry for entry in entries} | {changed.id: changed}
        assert TableLedger(store, "another").entries() == {}
        assert TableLedger(store.scoped("b"), "handbook").entries() == {}
        assert isinstance(ledger, Ledger)


def test_a_ledger_that_cannot_be_written_stops_the_writer_before_the_index_is_touched(
    writer, index, ledger, monkeypatch
):
    def fails(entries):
        raise StoreError

    monkeypatch.setattr(ledger, "note", fails)
    with pytest.raises(StoreError):
        put(writer, "1: a")
    assert held(index) == []


# -- stores and settings


def test_check4_the_old_pgvector_is_refused_with_a_reason(ledger):
    class PGVector(InMemoryVectorStore):
        """Shares ids between collections."""

    with pytest.raises(UnsupportedIndexError, match="Use PGVectorStore"):
        IndexWriter(PGVector(EMBEDDING), ledger)
    old = pytest.importorskip(
        "langchain_postgres", reason="langchain-postgres is missing"
    ).PGVector
    with pytest.raises(UnsupportedIndexError, match="langchain-postgres#139"):
        IndexWriter(old.__new__(old), ledger)


def test_a_store_that_cannot_be_looked_into_is_refused(ledger):
    class Blind(InMemoryVectorStore):
        get_by_ids = VectorStore.get_by_ids

    class Stubborn(InMemoryVectorStore):
        delete = VectorStore.delete

    for kind, name in ((Blind, "get_by_ids"), (Stubborn, "delete")):
        with pytest.raises(UnsupportedIndexError, match=f"{kind.__name__} has no `{name}`"):
            IndexWriter(kind(EMBEDDING), ledger)
    assert issubclass(UnsupportedIndexError, LangChainFeedbackError)


def test_a_store_that_returns_documents_without_ids_is_looked_into_one_by_one(ledger):
    class Nameless(InMemoryVectorStore):
        def get_by_ids(self, ids, /):
            return [Document(one.page_content) for one in super().get_by_ids(ids)]

    index = Nameless(EMBEDDING)
    writer = IndexWriter(index, ledger)
    put(writer, "1: a", "2: b")
    assert changes(writer.plan(documents("1: a", "2: b", "3: c"))) == {"keep": 2, "add": 1}
    index.delete(ids_of("1: a"))
    assert changes(writer.plan(documents("1: a", "2: b"))) == {"keep": 1, "repair": 1}


def test_ids_that_qdrant_does_not_take_are_refused_before_anything_is_done(tmp_path, ledger):
    opened = opened_store("qdrant", tmp_path)
    writer = IndexWriter(opened.store, ledger)
    with pytest.raises(UnsupportedIndexError, match=r"'refunds-1'.*Leave ids empty"):
        writer.plan([Document("a", id="refunds-1")])
    hexadecimal = Document("b", id="0198F2B0AAAA7BBBBCCCDDDDEEEEFFFF")
    writer.apply(writer.plan([Document("a"), hexadecimal]))
    assert sorted(opened.held().values()) == ["a", "b"]
    assert not writer.plan([Document("a"), hexadecimal])


@pytest.mark.parametrize(
    "settings",
    [{"max_remove_share": 1.1}, {"max_remove_share": -0.1}, {"batch_size": 0}, {"lease_s": 0}],
)
def test_settings_out_of_range_are_errors(index, ledger, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        IndexWriter(index, ledger, **settings)


def test_a_blank_name_is_an_error(feedback):
    with pytest.raises(ValueError, match="name"):
        TableLedger(feedback, " ")


async def test_the_async_twins_do_the_same(writer, index):
    plan = await writer.aplan(documents("1: a", "2: b"))
    assert (await writer.aapply(plan)).written == 2
    removal = await writer.aplan_removal(ids_of("1: a"))
    assert (await writer.aapply(removal.digest, force=True)).removed == 1
    assert held(index) == ["2: b"]


def test_texts_are_embedded_in_batches(index, ledger):
    asked = []

    class Counting(InMemoryVectorStore):
        def add_documents(self, documents, ids=None, **kwargs):
            asked.append(len(documents))
            return super().add_documents(documents, ids=ids)

        def get_by_ids(self, ids, /):
            asked.append(-len(ids))
            return super().get_by_ids(ids)

    writer = IndexWriter(Counting(EMBEDDING), ledger, batch_size=200)
    put(writer, *(f"{n}: text" for n in range(250)))
    assert [n for n in asked if n > 0] == [200, 50]
    assert min(asked) == -100


# -- saved folders


def test_what_lives_in_memory_is_saved_before_the_ledger_calls_it_present(index, ledger):
    states = []

    def persist(store):
        states.append((len(store.store), {entry.state for entry in ledger.entries().values()}))

    writer = IndexWriter(index, ledger, batch_size=1, persist=persist)
    put(writer, "1: a", "2: b")
    put(writer, "1: a", force=True)
    assert states == [(2, {"writing"}), (1, {"present", "removing"})]
    assert {entry.state for entry in ledger.entries().values()} == {"present", "removed"}


def test_a_save_that_fails_half_way_leaves_the_state_before(tmp_path):
    def save(text, folder):
        (folder / "one").write_text(text)
        if text == "bad":
            raise OSError(folder.name)
        (folder / "two").write_text(text)

    states = SavedFolder(tmp_path / "states", save)
    assert states.current() is None
    states.save("first")
    with pytest.raises(OSError, match=r"^[0-9a-f]{32}$"):
        states.save("bad")
    assert (states.current() / "two").read_text() == "first"
    for text in ("second", "third"):
        assert states.save(text) == states.current()
    assert (states.current() / "two").read_text() == "third"
    folders = [path for path in (tmp_path / "states").iterdir() if path.is_dir()]
    assert sorted((path / "two").read_text() for path in folders) == ["second", "third"]
