"""The catalog: what came, what was edited, what went, and where each chunk stands."""

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from sqlalchemy import event, select

from langchain_feedback.documents import chunk_key
from langchain_feedback.index import catalog as cataloging
from langchain_feedback.index.catalog import Changes, ChunkCatalog
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading
from tests.unit_tests.index.gate_kit import set_status


@pytest.fixture
def store():
    with FeedbackStore("sqlite://", timeout_s=20) as store:
        yield store


@pytest.fixture
def catalog(store):
    return ChunkCatalog(store)


def chunk(key, text=None, **metadata):
    return Document(f"Text {key}." if text is None else text, id=key, metadata=metadata)


def rows(store):
    """Return what stands in the table, by chunk id."""
    mine = select(chunks).where(chunks.c.namespace == store.namespace)
    with reading(store) as connection:
        return {row.chunk_id: row for row in connection.execute(mine)}


def written(store, function):
    """Return how many statements changed something while a function ran."""
    sent = []

    def note(connection, cursor, statement, *_):
        sent.append(statement)

    event.listen(store._database.engine, "before_cursor_execute", note)
    try:
        function()
    finally:
        event.remove(store._database.engine, "before_cursor_execute", note)
    return sum(one.startswith(("INSERT", "UPDATE", "DELETE")) for one in sent)


def test_the_first_time_everything_is_new(catalog, store):
    assert catalog.sync([chunk("b"), chunk("a")]) == Changes(new=("b", "a"))
    kept = rows(store)
    assert [kept[key].status for key in "ab"] == ["live", "live"]
    assert kept["a"].first_seen is not None
    assert kept["a"].changed_at is None
    assert (kept["a"].text, kept["a"].document_id) == ("Text a.", "a")


def test_a_second_time_nothing_differs_and_nothing_is_written(catalog, store):
    found = [chunk("a", source="a.md", start_index=0), chunk("b", source="a.md", start_index=9)]
    catalog.sync(found, complete=True)
    before = rows(store)
    changes = []
    sent = written(store, lambda: changes.append(catalog.sync(found, complete=True)))
    assert changes == [Changes(unchanged=2)]
    assert not changes[0]
    assert sent == 0
    assert rows(store) == before


def test_an_edit_is_known_by_the_id_and_dated(catalog, store):
    catalog.sync([chunk("a"), chunk("b")])
    first = rows(store)["a"]
    changes = catalog.sync([chunk("a", "Another."), chunk("b")])
    assert changes == Changes(changed=("a",), unchanged=1)
    now = rows(store)["a"]
    assert (now.text, now.first_seen) == ("Another.", first.first_seen)
    assert now.changed_at >= first.first_seen
    assert catalog.sync([chunk("a", "Another."), chunk("b")]) == Changes(unchanged=2)
    assert rows(store)["a"].changed_at == now.changed_at


def test_without_ids_an_edit_is_a_new_chunk_and_a_missing_one(catalog):
    catalog.sync([Document("Old.")], complete=True)
    changes = catalog.sync([Document("New.")], complete=True)
    assert changes.new == (chunk_key(Document("New.")),)
    assert changes.missing == (chunk_key(Document("Old.")),)


def test_only_a_complete_sync_misses_anything(catalog, store):
    catalog.sync([chunk("a"), chunk("b"), chunk("c")])
    assert catalog.sync([chunk("b")]) == Changes(unchanged=1)
    assert catalog.sync([chunk("b")], complete=True) == Changes(missing=("a", "c"), unchanged=1)
    assert [rows(store)[key].status for key in "abc"] == ["missing", "live", "missing"]
    # Missed once is enough.
    assert catalog.sync([chunk("b")], complete=True) == Changes(unchanged=1)


@pytest.mark.parametrize("complete", [True, False])
def test_what_returns_is_live_again_and_keeps_its_first_day(catalog, store, complete):
    catalog.sync([chunk("a"), chunk("b")])
    first = rows(store)["a"].first_seen
    catalog.sync([chunk("b")], complete=True)
    changes = catalog.sync([chunk("a"), chunk("b")], complete=complete)
    assert changes == Changes(returned=("a",), unchanged=1)
    assert (rows(store)["a"].status, rows(store)["a"].first_seen) == ("live", first)


def test_what_returns_with_another_text_is_an_edit(catalog, store):
    catalog.sync([chunk("a"), chunk("b")])
    catalog.sync([chunk("b")], complete=True)
    assert catalog.sync([chunk("a", "Another.")]) == Changes(changed=("a",))
    assert rows(store)["a"].status == "live"


@pytest.mark.parametrize("status", ["demoted", "retired"])
def test_a_demotion_stays_until_the_text_changes(catalog, store, status):
    catalog.sync([chunk("a"), chunk("b")])
    set_status(store, status, "a")
    assert catalog.sync([chunk("a"), chunk("b")], complete=True) == Changes(unchanged=2)
    assert rows(store)["a"].status == status
    # Neither does being away for a while make it good.
    assert catalog.sync([chunk("b")], complete=True) == Changes(unchanged=1)
    assert rows(store)["a"].status == status
    assert catalog.sync([chunk("a", "Corrected.")]).changed == ("a",)
    assert rows(store)["a"].status == "live"


@pytest.mark.parametrize("documents", [[], iter(())])
def test_a_loader_that_found_nothing_does_not_empty_the_catalog(catalog, store, documents):
    catalog.sync([chunk("a")])
    with pytest.raises(ValueError, match="loader"):
        catalog.sync(documents, complete=True)
    assert rows(store)["a"].status == "live"
    assert catalog.sync([]) == Changes()


def test_an_index_that_never_held_anything_may_be_empty(catalog):
    assert catalog.sync([], complete=True) == Changes()


def test_chunks_that_were_only_seen_in_answers_are_new_and_never_missing(catalog, store):
    store.record_trace("t1", "How long?", [chunk("seen"), chunk("gone")])
    assert rows(store)["seen"].first_seen is None
    assert catalog.sync([chunk("seen")], complete=True) == Changes(new=("seen",))
    assert rows(store)["seen"].first_seen is not None
    assert rows(store)["gone"].status == "live"


def test_an_edit_of_a_chunk_only_seen_in_answers_is_dated_too(catalog, store):
    store.record_trace("t1", "How long?", [chunk("seen")])
    assert catalog.sync([chunk("seen", "Another.")]) == Changes(new=("seen",))
    assert rows(store)["seen"].changed_at is not None


def test_positions_are_those_of_start_indexes_where_all_are_known(catalog, store):
    starts = {"c": 70, "a": 0, "b": 30}
    found = [chunk(key, source="a.md", start_index=at) for key, at in starts.items()]
    catalog.sync([*found, chunk("z", source="z.md")], complete=True)
    kept = rows(store)
    assert [kept[key].position for key in "abcz"] == [0, 1, 2, 0]
    assert [kept[key].start_index for key in "abcz"] == [0, 30, 70, None]


@pytest.mark.parametrize("bad", [None, True, -1, "7", 7.0])
def test_positions_are_the_given_order_where_any_start_is_unknown(catalog, store, bad):
    found = [chunk("b", source="a.md", start_index=9), chunk("a", source="a.md", start_index=bad)]
    catalog.sync(found, complete=True)
    assert [rows(store)[key].position for key in "ba"] == [0, 1]
    assert rows(store)["a"].start_index is None


def test_chunks_without_a_source_have_no_position(catalog, store):
    catalog.sync([chunk("a"), chunk("b", source="")], complete=True)
    assert [rows(store)[key].position for key in "ab"] == [None, None]


def test_a_partial_sync_keeps_positions_of_what_is_unchanged_only(catalog, store):
    found = [chunk(key, source="a.md") for key in "abc"]
    catalog.sync(found, complete=True)
    catalog.sync([found[1], chunk("c", "Edited.", source="a.md"), chunk("d", source="a.md")])
    assert [rows(store)[key].position for key in "abcd"] == [0, 1, None, None]


def test_the_scope_is_a_field_of_the_owners_choice(store):
    found = [chunk("a", tenant="north"), chunk("b", tenant=7), chunk("c")]
    ChunkCatalog(store, scope_field="tenant").sync(found)
    assert [rows(store)[key].scope for key in "abc"] == ["north", "7", None]


def test_the_id_field_names_a_chunk(store):
    catalog = ChunkCatalog(store, id_field="number")
    assert catalog.sync([chunk("random", "One.", number=7)]).new == ("7",)
    assert catalog.sync([chunk("other", "One.", number=7)]) == Changes(unchanged=1)


def test_of_two_documents_with_one_id_the_first_counts(catalog, store):
    assert catalog.sync([chunk("a", "First."), chunk("a", "Second.")]) == Changes(new=("a",))
    assert rows(store)["a"].text == "First."


def test_namespaces_do_not_see_each_other(store):
    ChunkCatalog(store.scoped("a")).sync([chunk("x"), chunk("y")])
    assert ChunkCatalog(store.scoped("b")).sync([chunk("x")], complete=True).new == ("x",)
    assert rows(store.scoped("a"))["y"].status == "live"


def test_feedback_that_a_chunk_has_stays_its_own(store):
    document = chunk("a", "Refunds take 14 days.", source="a.md")
    store.record_trace("t1", "How long?", [document])
    store.rate("t1", 5, target=document)
    ChunkCatalog(store).sync([document], complete=True)
    (cell,) = store.evidence_for("How long?").cells
    assert (cell.key, cell.positive) == (store.cells_of([document])[0], 1.0)


def test_a_crash_between_two_steps_is_made_good_by_the_next_run(catalog, store, monkeypatch):
    monkeypatch.setattr(cataloging, "_PAGE", 2)
    found = [chunk(key) for key in "abcdef"]
    real, calls = cataloging.take_snapshots, []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(cataloging, "take_snapshots", failing)
    with pytest.raises(KeyboardInterrupt):
        catalog.sync(found, complete=True)
    assert sorted(rows(store)) == ["a", "b"]
    assert catalog.sync(found, complete=True) == Changes(new=tuple("cdef"), unchanged=2)
    assert catalog.sync(found, complete=True) == Changes(unchanged=6)


async def test_the_async_twin_does_the_same(catalog, store):
    assert await catalog.async_([chunk("a"), chunk("b")], complete=True) == Changes(new=("a", "b"))
    assert (await catalog.async_([chunk("a")], complete=True)).missing == ("b",)


def test_it_is_the_same_on_postgresql(postgres_url):
    with FeedbackStore(postgres_url) as store:
        catalog = ChunkCatalog(store)
        found = [chunk(f"{at:04}", source=f"{at // 7}.md") for at in range(1_200)]
        assert len(catalog.sync(found, complete=True).new) == 1_200
        assert catalog.sync(found, complete=True) == Changes(unchanged=1_200)
        changes = catalog.sync([chunk("0000", "Edited."), *found[1:-1]], complete=True)
        assert changes == Changes(changed=("0000",), missing=("1199",), unchanged=1_198)
        catalog.sync([chunk("far", source="a.md", start_index=2**40)])


TEXT = st.sampled_from(["One.", "Two.", "Three."])


@pytest.fixture(scope="module")
def one_store():
    """One database for all examples: each has a namespace of its own."""
    with FeedbackStore("sqlite://") as store:
        yield store


STATES = st.lists(
    st.dictionaries(st.sampled_from("abcde"), TEXT, min_size=1), min_size=1, max_size=5
)


@given(states=STATES)
def test_complete_syncs_always_tell_the_difference_of_two_states(one_store, states):
    store = one_store.scoped(str(uuid4()))
    catalog, before, ever = ChunkCatalog(store), {}, {}
    for now in states:
        changes = catalog.sync([chunk(*pair) for pair in now.items()], complete=True)
        assert set(changes.new) == set(now) - set(ever)
        assert set(changes.missing) == set(before) - set(now)
        edited = {key for key in now if key in ever and ever[key] != now[key]}
        assert set(changes.changed) == edited
        assert set(changes.returned) == (set(now) & set(ever)) - set(before) - edited
        told = (changes.new, changes.changed, changes.returned)
        assert changes.unchanged + sum(map(len, told)) == len(now)
        before, ever = now, ever | now
    live = {key: row.text for key, row in rows(store).items() if row.status == "live"}
    assert live == before
