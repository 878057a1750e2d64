"""The gate: junk stays out of an index, and what is in it stays out of sight."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.documents import Document
from sqlalchemy import event, select, update

from langchain_feedback.documents import chunk_key
from langchain_feedback.errors import StoreError
from langchain_feedback.index import gate as gating
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.gate import GateCounts, QualityFilter, QualityGate
from langchain_feedback.index.quality import SCORING_VERSION
from langchain_feedback.store.care_schema import chunk_quality
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.transactions import reading, writing
from tests.fakes import ListRetriever
from tests.unit_tests.index.gate_kit import QUESTION, good, junk, over, set_status, texts

K = 4


@pytest.fixture
def store(tmp_path):
    # Patient: a busy machine must not cost a test its gate.
    with FeedbackStore(f"sqlite:///{tmp_path}/feedback.db", timeout_s=20) as store:
        yield store


@pytest.fixture
def gate(store):
    return QualityGate(store)


def statements(store, function):
    """Return what was sent to the database while a function ran."""
    sent = []

    def note(connection, cursor, statement, *_):
        sent.append(statement)

    engine = store._database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        function()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return [one for one in sent if one.startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))]


# -- before indexing


def test_junk_is_split_off_with_its_reasons_and_everything_keeps_its_order(gate):
    mixed = [one for pair in zip(good(5), junk(5), strict=True) for one in pair]
    encoded = Document("RmVlZGJhY2sgaXMgYSBnaWZ0IQoxMjM0NTY3ODkwYWJjZGVmZ2hpamtsbW5v")
    kept, dropped = gate.split([*mixed, encoded])
    assert [id(one) for one in kept] == [id(one) for one in mixed[::2]]
    assert [id(one) for one, _ in dropped] == [id(one) for one in [*mixed[1::2], encoded]]
    # Advice, such as a text that ends amid a sentence, is no reason for dropping it.
    assert [reasons for _, reasons in dropped] == [["no_statement"]] * 5 + [["garbled"]]


def test_nothing_to_split_is_nothing_split(gate):
    assert gate.split([]) == ([], [])
    assert gate.hidden([]) == {}


def test_a_text_is_judged_once_and_then_known_by_its_hash(gate, monkeypatch):
    first = gate.split([*good(3), *junk(3)])
    judged = []
    real = gating.score_chunk
    monkeypatch.setattr(gating, "score_chunk", lambda text: judged.append(text) or real(text))
    again = [*good(3), *junk(4), *junk(4)]
    for document in again:
        document.metadata["source"] = "moved"  # the text is what is judged
    kept, dropped = gate.split(again)
    assert texts(kept) == texts(first[0])
    assert len(dropped) == 8
    assert judged == texts(junk(4)[3:])


def test_known_texts_cost_one_statement_however_many(gate, store):
    many = good(160)
    gate.split(many)
    sent = statements(store, lambda: gate.split(many))
    assert len(sent) == 1
    assert sent[0].startswith("SELECT")


def test_scores_of_another_version_are_neither_read_nor_changed(gate, store):
    gate.split(junk(2))
    with writing(store, lock="traces") as (connection, _):
        old = {"scoring_version": "0", "gated": False, "reasons": "[]"}
        connection.execute(update(chunk_quality).values(**old))
    assert gate.hidden(junk(2)) == {}
    assert gate.counts.unknown == 2
    assert len(gate.split(junk(2))[1]) == 2
    with reading(store) as connection:
        versions = connection.scalars(select(chunk_quality.c.scoring_version)).all()
    assert sorted(versions) == sorted(["0", "0", SCORING_VERSION, SCORING_VERSION])


def test_what_a_crash_interrupted_is_judged_only_from_there(gate, monkeypatch):
    monkeypatch.setattr(gating, "_BLOCK", 3)
    real, judged = gating.score_chunk, []

    def failing(text):
        if len(judged) == 7:
            raise KeyboardInterrupt
        judged.append(text)
        return real(text)

    monkeypatch.setattr(gating, "score_chunk", failing)
    with pytest.raises(KeyboardInterrupt):
        gate.split(good(10))
    judged.clear()
    gate.split(good(10))
    assert judged == texts(good(10)[6:])


def test_scores_are_shared_between_namespaces_and_demotions_are_not(store):
    found = [*good(2), *junk(1)]
    QualityGate(store.scoped("a")).split(found)
    ChunkCatalog(store.scoped("a")).sync(found)
    set_status(store.scoped("a"), "demoted", chunk_key(found[0]))
    assert QualityGate(store.scoped("a")).hidden(found) == {0: ("demoted",), 2: ("no_statement",)}
    assert QualityGate(store.scoped("b")).hidden(found) == {2: ("no_statement",)}


async def test_the_async_twins_say_the_same(gate):
    found = [*good(2), *junk(2)]
    kept, dropped = await gate.asplit(found)
    assert (kept, dropped) == gate.split(found)
    assert (
        await gate.ahidden(found) == gate.hidden(found) == dict.fromkeys([2, 3], ("no_statement",))
    )
    assert [one.gated for one in await gate.ascore(found)] == [False, False, True, True]


def test_texts_that_no_database_can_hold_are_judged_too(gate):
    kept, dropped = gate.split(
        [Document("\ud800\udfff" * 40), Document("A \x00 comes in 3 days.")]
    )
    assert gate.hidden([*kept, *(one for one, _ in dropped)]).keys() == {
        len(kept) + at for at in range(len(dropped))
    }


# -- at query time


def test_an_id_that_no_database_can_hold_costs_no_other_chunk_its_look_up(gate):
    gate.split(junk(2))
    odd = Document("Refunds take 14 days.", id="a\ud800\0")
    assert gate.hidden([odd, *junk(2)]).keys() == {1, 2}


def test_unknown_chunks_pass_and_are_counted(gate):
    gate.split([*good(2), *junk(1)])
    assert gate.hidden([*good(3), *junk(3)]) == {3: ("no_statement",)}
    assert gate.counts == GateCounts(checked=6, hidden=1, unknown=3)
    gate.hidden(junk(3))
    assert gate.counts == GateCounts(checked=9, hidden=2, unknown=5)


def test_counts_are_exact_with_many_threads(gate):
    gate.split(junk(1))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: gate.hidden([*junk(1), *good(1)]), range(200)))
    assert gate.counts == GateCounts(400, 200, 200)


def test_looking_is_one_statement_for_a_thousand_documents(gate, store):
    many = [Document(f"Text {at} of it.", id=f"c{at}") for at in range(1_000)]
    sent = statements(store, lambda: gate.hidden(many))
    assert [one.partition(" ")[0] for one in sent] == ["SELECT"]


def test_looking_finds_each_chunk_by_an_index(gate, store):
    ChunkCatalog(store).sync(good(50))
    asked = []

    def note(connection, cursor, statement, parameters, *_):
        asked.append((statement, parameters))

    event.listen(store._database.engine, "before_cursor_execute", note)
    gate.hidden(good(20))
    ((statement, parameters),) = [one for one in asked if one[0].startswith("SELECT")]
    with reading(store) as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        steps = [row.detail for row in plan]
    searches = [step for step in steps if "lcf_" in step]
    # Of the namespace's chunks it reads those asked for, not all.
    columns = ("content_hash", "namespace=? AND content_hash", "chunk_id", "cell_id")
    for step, column in zip(searches, columns, strict=True):
        assert step.startswith("SEARCH")
        assert f"{column}=?" in step


def test_more_than_one_statement_takes_gives_the_same(gate, monkeypatch):
    found = [*good(20), *junk(20)]
    gate.split(found)
    whole = gate.hidden(found)
    monkeypatch.setattr(gating, "_ASKED", 7)
    assert gate.hidden(found) == whole == dict.fromkeys(range(20, 40), ("no_statement",))


@pytest.mark.parametrize("status", ["demoted", "retired"])
def test_a_demoted_or_retired_chunk_is_hidden_until_its_text_changes(gate, store, status):
    chunk = Document("Refunds take 10 days.", id="refunds", metadata={"source": "a.md"})
    catalog = ChunkCatalog(store)
    catalog.sync([chunk])
    assert gate.hidden([chunk]) == {}
    set_status(store, status, "refunds")
    assert gate.hidden([chunk]) == {0: (status,)}
    edited = chunk.model_copy(update={"page_content": "Refunds take 14 days."})
    assert gate.hidden([edited]) == {}
    catalog.sync([edited])
    assert gate.hidden([edited, chunk]) == {}


def test_an_edit_that_an_answer_shows_first_is_not_hidden(gate, store):
    ChunkCatalog(store).sync([Document("Refunds take 10 days.", id="refunds")])
    set_status(store, "demoted", "refunds")
    edited = Document("Refunds take 14 days.", id="refunds")
    store.record_trace("t1", QUESTION, [edited])
    assert gate.hidden([edited]) == {}


@pytest.mark.parametrize("status", ["live", "missing"])
def test_other_statuses_hide_nothing(gate, store, status):
    chunk = Document("Refunds take 10 days.", id="refunds")
    ChunkCatalog(store).sync([chunk])
    set_status(store, status, "refunds")
    assert gate.hidden([chunk]) == {}


def test_a_chunk_is_known_under_a_new_id_by_its_text_and_source(gate, store):
    there = {"page_content": "Refunds take 10 days.", "metadata": {"source": "a.md"}}
    ChunkCatalog(store).sync([Document(**there, id="old")])
    set_status(store, "demoted", "old")
    elsewhere = Document("Refunds take 10 days.", metadata={"source": "b.md"})
    assert gate.hidden([Document(**there, id="new"), elsewhere]) == {0: ("demoted",)}


@pytest.mark.parametrize("status", ["demoted", "retired"])
@pytest.mark.parametrize("gone", [0, 1])
def test_of_two_copies_the_one_that_stays_is_not_hidden_with_the_other(gate, store, status, gone):
    there = {"page_content": "Refunds take 10 days.", "metadata": {"source": "a.md"}}
    one, other, rebuilt = (Document(**there, id=key) for key in ("one", "other", "rebuilt"))
    ChunkCatalog(store).sync([one, other])
    set_status(store, status, [one, other][gone].id)
    assert gate.hidden([one, other, rebuilt]) == {gone: (status,)}
    set_status(store, "retired", "one", "other")
    assert gate.hidden([rebuilt]) == {0: ("retired",)}


def test_the_id_field_names_a_chunk_as_in_the_retriever(store):
    chunk = Document("Refunds take 10 days.", id="random", metadata={"key": "stable"})
    ChunkCatalog(store, id_field="key").sync([chunk])
    set_status(store, "demoted", "stable")
    again = chunk.model_copy(update={"id": "other"})
    again.metadata["source"] = "moved.md"
    assert QualityGate(store, id_field="key").hidden([again]) == {0: ("demoted",)}
    assert QualityGate(store).hidden([again]) == {}


def test_a_gate_still_counts_after_a_fork_in_the_middle_of_counting(gate):
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    with gate._counting:
        child = os.fork()
        if not child:
            signal.alarm(10)  # rather than wait for ever
            gate._count(1, 0, 0)
            os._exit(gate.counts.checked)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


# -- as a compressor and a transformer


def test_the_filter_leaves_out_what_is_hidden_and_judges_nothing(store, gate):
    found = [*junk(2), *good(2)]
    junk_filter = QualityFilter(gate=gate)
    assert junk_filter.compress_documents(found, QUESTION) == found
    gate.split(found)
    assert junk_filter.compress_documents(found, QUESTION) == good(2)
    assert junk_filter.compress_documents([], QUESTION) == []


def test_the_filter_works_in_langchains_compression_retriever(gate):
    classic = pytest.importorskip("langchain_classic.retrievers")
    compressors = pytest.importorskip("langchain_classic.retrievers.document_compressors")
    found = [*junk(2), *good(2)]
    gate.split(found)
    base = ListRetriever(documents=found)
    junk_filter = QualityFilter(gate=gate)
    pipeline = compressors.DocumentCompressorPipeline(transformers=[junk_filter])
    for compressor in (junk_filter, pipeline):
        whole = classic.ContextualCompressionRetriever(
            base_compressor=compressor, base_retriever=base
        )
        assert texts(whole.invoke(QUESTION)) == texts(good(2))


async def test_the_filters_async_hooks_do_the_same(gate):
    found = [*junk(2), *good(2)]
    junk_filter = QualityFilter(gate=gate)
    assert await junk_filter.atransform_documents(found) == good(2)
    assert await junk_filter.acompress_documents(found, QUESTION) == good(2)


def test_a_broken_store_costs_the_filter_and_never_the_answer(tmp_path):
    store = FeedbackStore(f"sqlite:///{tmp_path}/missing/feedback.db")
    junk_filter = QualityFilter(gate=QualityGate(store))
    assert junk_filter.compress_documents(junk(2), QUESTION) == junk(2)
    # Before indexing there is time, and somebody to be told.
    with pytest.raises(StoreError):
        junk_filter.transform_documents(junk(2))


def test_it_is_the_same_on_postgresql(postgres_url):
    with FeedbackStore(postgres_url, timeout_s=20) as store:
        found = [*good(30), *junk(30)]
        gate = QualityGate(store)
        assert gate.split(found)[0] == good(30)
        ChunkCatalog(store).sync(found)
        set_status(store, "retired", chunk_key(found[4]))
        hidden = {4: ("retired",)} | dict.fromkeys(range(30, 60), ("no_statement",))
        assert gate.hidden(found) == hidden
        assert gate.hidden([*found, Document("Odd.", id="a\0")]) == hidden
        retriever, _ = over(found[::-1], store, gate=gate)
        assert texts(retriever.invoke(QUESTION)) == texts(good(30)[:-5:-1])


def test_two_processes_score_the_same_texts_into_one_database(tmp_path):
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    url = f"sqlite:///{tmp_path}/feedback.db"
    FeedbackStore(url).setup()

    def split():
        child = os.fork()
        if not child:
            signal.alarm(60)  # rather than wait for ever
            kept, dropped = QualityGate(FeedbackStore(url)).split([*good(90), *junk(90)])
            os._exit(0 if (len(kept), len(dropped)) == (90, 90) else 1)
        return child

    children = [split(), split()]
    assert [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children] == [0, 0]
    with FeedbackStore(url) as store, reading(store) as connection:
        assert len(connection.scalars(select(chunk_quality.c.content_hash)).all()) == 180
