"""The health of an index: what is found, what is skipped and why, and how often for nothing."""

import json
import math
import sqlite3
import uuid
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from sqlalchemy import insert, update

from langchain_feedback import FeedbackRetriever, KernelBelief
from langchain_feedback.documents import chunk_key
from langchain_feedback.index._health import statistics
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.index.health import CHECKS, acheck_health, check_health
from langchain_feedback.index.jobs import catalog_documents, nightly, score_corpus
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.managed import ManagedIndex
from langchain_feedback.index.quality import SCORING_VERSION
from langchain_feedback.index.versions import IndexRegistry
from langchain_feedback.store import schema
from langchain_feedback.store.care_schema import chunk_quality, derived, index_entries, job_leases
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import writing
from tests.fakes import ListRetriever
from tests.unit_tests.index.retirement_kit import EMBEDDING, empty_index
from tests.unit_tests.index.version_kit import Model, build, opener
from tests.unit_tests.index.writer_stores import NEEDS, OPEN

DAY = timedelta(days=1)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    with FeedbackStore(url) as opened:
        yield opened


@pytest.fixture
def light(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as opened:
        yield opened


def pages(number, start=0, source="faq.md"):
    return [
        Document(
            f"Rule {at} of the house takes {at} days to learn by heart.",
            id=f"page {at}",
            metadata={"source": source},
        )
        for at in range(start, start + number)
    ]


def unnamed(number, start=0):
    return [
        Document(one.page_content, metadata={"source": f"{at}.md"})
        for at, one in enumerate(pages(number, start), start)
    ]


def scans(number, start=0, source="scan.pdf"):
    """Junk, and no two alike."""
    return [
        Document(
            f"~^ §§ R|1e {at} °° ‰‰ ¦¦ ,;: /\\ ^^ ~~ ¬¬" * 3,
            id=f"scan {at}",
            metadata={"source": source},
        )
        for at in range(start, start + number)
    ]


def bring(store, documents, *, days=0.0, score=True):
    """Put documents into the catalog, as of some days ago."""
    ChunkCatalog(store).sync(documents)
    if score:
        QualityGate(store).score(documents)
    then = datetime.now(UTC) - days * DAY
    ids = [chunk_key(document) for document in documents]
    mine = (chunks.c.namespace == store.namespace) & chunks.c.chunk_id.in_(ids)
    with writing(store, lock="traces") as (connection, _):
        connection.execute(update(chunks).where(mine).values(first_seen=then))


def looked(store, name, index=None, **options):
    return check_health(store, index or ManagedIndex(), **options).get(name)


def written(store, documents, kind="memory", **options):
    """Return an index that holds documents."""
    index = ManagedIndex(vector_store=empty_index(kind), documents=lambda: documents, **options)
    writer = index.writer(store)
    writer.apply(writer.plan(index.load()))
    return index


# -- the share of junk among new chunks


def test_a_scanner_that_broke_is_an_alarm_that_names_it_check9(store):
    bring(store, [*pages(600), *scans(3)], days=9)
    bring(store, [*pages(190, 600), *scans(10, 3)])
    check = looked(store, "gated_share")
    assert check.severity == "alarm"
    assert check.figures["n"] == 200
    assert check.figures["gated"] == 10
    assert (check.figures["base_n"], check.figures["base_gated"]) == (603, 3)
    assert check.figures["basis"] == "the 28 days before"
    assert check.figures["sources"] == [{"source": "scan.pdf", "gated": 10}]
    assert "scan.pdf (10)" in check.why
    assert "QualityGate.split" in check.todo
    assert check.figures["psi"] > 0


def test_as_much_junk_as_before_is_no_alarm_check9(light):
    bring(light, [*pages(200), *scans(10)], days=9)
    bring(light, [*pages(200, 200), *scans(10, 10)])
    check = looked(light, "gated_share")
    assert check.severity is None
    assert check.figures["share"] == check.figures["share_before"]


def test_a_single_scan_after_thousands_of_pages_is_no_alarm_check9(light):
    bring(light, pages(2_000), days=9)
    bring(light, [*pages(49, 2_000), *scans(1)])
    check = looked(light, "gated_share")
    assert check.figures["z"] > 3.3
    assert check.severity is None


@pytest.mark.parametrize("base", [100, 1_000, 5_000])
@pytest.mark.parametrize("n", [50, 200])
def test_without_a_change_one_night_of_200_alarms_at_most_check9(base, n):
    stats = pytest.importorskip("scipy.stats", reason="scipy is missing")
    for share in (0.0005, 0.001, 0.003, 0.01, 0.03):
        new = stats.binom.pmf(range(n + 1), n, share)
        old = stats.binom.pmf(range(base + 1), base, share)
        likely = [(a, b) for a in np.flatnonzero(new > 1e-7) for b in np.flatnonzero(old > 1e-7)]
        false = sum(
            new[a] * old[b] for a, b in likely if statistics.rise(int(a), n, int(b), base).is_real
        )
        assert false <= statistics.MOST_P


def test_each_namespace_has_its_own_share(light):
    other = light.scoped("other")
    bring(light, pages(150), days=9)
    bring(other, pages(150), days=9)
    bring(other, scans(30))
    bring(light, pages(50, 150))
    assert looked(light, "gated_share").severity is None
    assert looked(other, "gated_share").severity == "alarm"


def test_a_new_index_is_compared_with_what_the_gate_may_flag(light):
    bring(light, [*pages(60), *scans(3)])
    check = looked(light, "gated_share")
    assert check.severity is None
    assert check.figures["basis"] == "assumed"
    assert "too few before" in check.why
    bring(light, scans(27, 3))
    assert looked(light, "gated_share").severity == "alarm"


def test_an_old_index_that_was_quiet_is_compared_with_all_of_it(light):
    bring(light, pages(200), days=200)
    bring(light, pages(20, 200), days=9)
    bring(light, scans(20))
    check = looked(light, "gated_share")
    assert check.figures["basis"] == "everything before"
    assert check.figures["base_n"] == 220
    assert check.severity == "alarm"


def test_edits_are_new_texts(light):
    bring(light, pages(200), days=9)
    edited = [Document(scan.page_content, id=f"page {at}") for at, scan in enumerate(scans(12))]
    ChunkCatalog(light).sync(edited)
    QualityGate(light).score(edited)
    check = looked(light, "gated_share")
    assert (check.figures["n"], check.figures["gated"]) == (12, 12)
    assert check.figures["base_n"] == 188
    assert check.severity == "alarm"


def test_results_of_other_rules_do_not_count(light):
    bring(light, [*pages(200), *scans(20)], days=9)
    bring(light, [*pages(90, 200), *scans(10, 20)])
    with writing(light) as (connection, _):
        connection.execute(update(chunk_quality).values(scoring_version="0"))
    check = looked(light, "gated_share")
    assert check.status == "skipped"
    assert "none of 100 new chunks is scored" in check.why
    coverage = looked(light, "coverage")
    assert coverage.severity == "finding"
    assert coverage.figures["scored_by_other_rules_only"] == 320
    # Nothing has to be waited for: scored anew, the base is there at once.
    score_corpus(light, catalog_documents(light))
    again = looked(light, "gated_share").figures
    assert (again["n"], again["base_n"]) == (100, 220)
    assert again["scoring_version"] == SCORING_VERSION


def test_the_stability_index_is_shown_from_200_on(light):
    bring(light, pages(300), days=9)
    bring(light, pages(199, 300))
    assert "psi" not in looked(light, "gated_share").figures
    bring(light, pages(1, 499))
    assert looked(light, "gated_share").figures["psi"] < 0.2


def test_a_night_without_new_chunks_is_clean_and_a_catalog_without_any_is_not(light):
    assert looked(light, "gated_share").status == "skipped"
    assert "ChunkCatalog.sync" in looked(light, "gated_share").why
    bring(light, pages(10), days=2)
    check = looked(light, "gated_share")
    assert (check.status, check.severity) == ("done", None)
    assert "no new chunk in the last 24 hours" in check.why
    assert looked(light, "gated_share", window=3 * DAY).figures["new"] == 10


# -- is anything scored at all


def test_no_junk_is_not_said_of_chunks_that_nobody_scored(store):
    bring(store, pages(90))
    assert looked(store, "coverage").severity is None
    bring(store, scans(10), score=False)
    check = looked(store, "coverage")
    assert check.severity == "finding"
    assert check.figures | {"share": 0.9, "chunks": 100, "scored": 90} == check.figures
    assert "score_corpus" in check.todo
    assert looked(store, "gated_share").figures["unscored"] == 10


def test_without_a_catalog_the_chunks_are_those_of_the_ledger(light):
    assert looked(light, "coverage").status == "skipped"
    index = written(light, pages(10))
    check = looked(light, "coverage", index)
    assert (check.figures["of"], check.figures["chunks"]) == ("ledger", 10)
    assert "score_corpus" in check.todo
    QualityGate(light).split(index.load())
    assert looked(light, "coverage", index).severity is None


# -- the embedder


def test_another_embedder_of_equal_size_is_an_alarm(light, tmp_path):
    registry = IndexRegistry(light)
    index = ManagedIndex(embeddings=Model("v1"))
    assert "no version is active" in looked(light, "embedder", index).why
    registry.register("v1", Model("v1"), locator=build(tmp_path, "v1"))
    registry.ready("v1", open_version=opener(), chunk_count=12)
    registry.activate("v1", expected=None)
    check = looked(light, "embedder", index)
    assert (check.status, check.severity) == ("done", None)
    check = looked(light, "embedder", ManagedIndex(embeddings=Model("v2")))
    assert check.severity == "alarm"
    assert check.figures["version"] == "v1"
    assert check.figures["registered"] != check.figures["now"]
    check = looked(light, "embedder", ManagedIndex())
    assert (check.status, "embeddings=" in check.why) == ("skipped", True)
    vectors = InMemoryVectorStore(Model("v1"))
    assert looked(light, "embedder", ManagedIndex(vector_store=vectors)).severity is None


def test_a_version_that_cannot_be_opened_is_an_alarm(light, tmp_path):
    index = ManagedIndex(open_version=opener())
    assert "open_version=" in looked(light, "version").why
    assert "no version is active" in looked(light, "version", index).why
    registry = IndexRegistry(light)
    registry.register("v1", Model("v1"), locator=build(tmp_path, "v1"))
    registry.ready("v1", open_version=opener(), chunk_count=12)
    registry.activate("v1", expected=None)
    assert looked(light, "version", index).ok
    (tmp_path / "v1.json").unlink()
    check = looked(light, "version", index)
    assert (check.severity, check.figures) == ("alarm", {"version": "v1"})
    assert "FileNotFoundError" in check.why
    assert "see `version`" in looked(light, "embedder", index).why
    build(tmp_path, "v1")
    wrong = ManagedIndex(open_version=lambda _: InMemoryVectorStore(Model("v2")).as_retriever())
    check = looked(light, "embedder", wrong)
    assert (check.severity, "'v1'" in check.why) == ("alarm", True)
    mute = ManagedIndex(open_version=lambda _: ListRetriever(documents=[]))  # it does not tell
    assert looked(light, "version", mute).ok
    assert looked(light, "embedder", mute).status == "skipped"
    # What sync writes is not what is searched, where versions are.
    vectors = InMemoryVectorStore(Model("v2"))
    both = ManagedIndex(vector_store=vectors, open_version=opener())
    assert looked(light, "embedder", both).ok


# -- is it known at all


def test_an_index_of_which_nothing_is_known_is_a_finding(store):
    elsewhere = store.scoped("books")
    written(elsewhere, pages(2))
    check = looked(store, "known", ManagedIndex(vector_store=empty_index("memory")))
    assert check.severity == "finding"
    assert check.why == (
        "nothing is known of index 'main' in namespace 'default': no write, no catalog; "
        "other namespaces that hold chunks: 'books'"
    )
    assert check_health(store, ManagedIndex()).exit_code == 1
    bring(store, pages(3))
    assert looked(store, "known", ManagedIndex(vector_store=empty_index("memory"))).ok


def test_another_name_in_the_ledger_is_a_finding_and_that_of_questions_is_none(light):
    bring(light, pages(3))
    written(light, pages(3), name="handbook")
    index = ManagedIndex(vector_store=empty_index("memory"), name="hand-book")
    check = looked(light, "known", index)
    assert (check.severity, "but to 'handbook' (3)" in check.why) == ("finding", True)
    assert looked(light, "known", ManagedIndex()).ok  # it has none to be named
    with writing(light) as (connection, _):
        for one in pages(3):
            row = {"derived_id": one.id, "text": "", "status": "active", "votes": "{}"}
            connection.execute(insert(derived).values(namespace="default", **row))
    assert looked(light, "known", index).ok


def test_without_a_vector_store_questions_are_enough_to_be_known(light):
    assert looked(light, "known").severity == "finding"
    ask(light, [None])
    assert looked(light, "known").ok
    assert looked(light, "known", ManagedIndex(vector_store=empty_index("memory"))).severity


# -- ledger and vector store


@pytest.mark.parametrize("kind", ["memory", "faiss"])
def test_what_was_written_and_is_not_there_is_an_alarm(light, kind):
    if kind == "faiss":
        pytest.importorskip("faiss", reason="the extra `faiss` is missing")
    index = written(light, pages(150), kind)
    assert looked(light, "ledger", index).figures["present"] == 150
    assert check_health(light, index).get("ledger").severity is None
    index.vector_store.delete(["page 3", "page 7"])
    check = looked(light, "ledger", index)
    assert check.severity == "alarm"
    assert check.figures["missing"] == 2
    assert "page 3, page 7" in check.why
    # What it says to do heals it.
    index.writer(light).apply(index.writer(light).plan(index.load()))
    assert looked(light, "ledger", index).severity is None


def test_a_text_that_somebody_else_overwrote_is_an_alarm(light):
    index = written(light, pages(5))
    index.vector_store.add_documents([Document("Another text.", id="page 2")])
    check = looked(light, "ledger", index)
    assert (check.severity, check.figures["changed"]) == ("alarm", 1)


def test_a_write_that_was_interrupted_is_found_with_its_age(store):
    index = written(store, pages(5))
    assert looked(store, "unfinished_writes", index).severity is None
    then = datetime.now(UTC) - timedelta(hours=30)
    with writing(store) as (connection, _):
        mine = index_entries.c.chunk_id == "page 1"
        connection.execute(
            update(index_entries).where(mine).values(state="writing", updated_at=then)
        )
    check = looked(store, "unfinished_writes", index)
    assert check.severity == "finding"
    assert "still writing: 1, the oldest for 30 hours" in check.why
    # A vector store that holds it is no worse for it.
    assert looked(store, "ledger", index).severity is None


def test_nobody_looks_over_the_shoulder_of_a_writer(light):
    index = written(light, pages(5))
    index.vector_store.delete(["page 1"])
    ledger = TableLedger(light, "main")
    assert ledger.claim("somebody", 60)
    for name in ("ledger", "leftovers"):
        assert "at work" in looked(light, name, index).why
    with writing(light) as (connection, _):
        connection.execute(update(index_entries).values(state="writing"))
    assert looked(light, "unfinished_writes", index).severity is None
    with writing(light) as (connection, _):
        past = datetime.now(UTC) - DAY
        connection.execute(update(job_leases).values(expires_at=past))
    assert looked(light, "unfinished_writes", index).severity == "finding"


def test_a_lease_of_another_index_is_no_matter(light):
    index = written(light, pages(5))
    assert TableLedger(light, "another").claim("somebody", 60)
    assert looked(light, "ledger", index).status == "done"


def test_an_index_without_ledger_or_vector_store_is_skipped_with_the_reason(light):
    assert "vector_store=" in looked(light, "ledger").why
    unwritten = ManagedIndex(vector_store=empty_index("memory"), name="handbook")
    for name in ("ledger", "unfinished_writes", "leftovers"):
        check = looked(light, name, unwritten)
        assert (check.status, "'handbook'" in check.why) == ("skipped", True)

    class Mute(InMemoryVectorStore):
        get_by_ids = None

    assert "get_by_ids" in looked(light, "ledger", ManagedIndex(vector_store=Mute(EMBEDDING))).why


# -- what should not be there


@pytest.mark.parametrize("kind", ["memory", "faiss", "qdrant", "chroma", "postgres"])
def test_chunks_that_the_ledger_does_not_know_are_counted(light, kind, tmp_path, request):
    for package in NEEDS[kind]:
        pytest.importorskip(package, reason=f"{package} is missing")
    if kind == "postgres":
        place = [request.getfixturevalue("postgres_url"), "handbook_0"]
        (tmp_path / "postgres.json").write_text(json.dumps(place))
    vectors = OPEN[kind](str(tmp_path)).store
    index = ManagedIndex(vector_store=vectors, documents=lambda: unnamed(5))
    writer = index.writer(light)
    writer.apply(writer.plan(index.load()))
    # Whether a store is asked by ids of its own form, or says where its ids are.
    assert looked(light, "ledger", index).ok
    check = looked(light, "leftovers", index)
    assert check.ok
    if kind == "postgres":
        assert check.figures["held"] is None
        assert "what others put into PGVectorStore is not known" in check.why
        return
    vectors.add_documents(unnamed(2, 50))
    check = looked(light, "leftovers", index)
    assert check.severity == "finding"
    assert check.figures["held"] == 7
    assert check.figures["unknown_to_the_ledger"] == 2


def test_chunks_that_were_removed_and_came_back_are_found(light):
    documents = pages(10)
    index = written(light, documents)
    writer = index.writer(light)
    writer.apply(writer.plan(documents[1:]))
    assert looked(light, "leftovers", index).severity is None
    index.vector_store.add_documents(documents[:1])
    check = looked(light, "leftovers", index)
    assert "still there although removed: 1 (page 0)" in check.why
    assert check.figures["unknown_to_the_ledger"] == 0


def test_a_text_that_was_forgotten_is_found_where_it_still_is(light):
    documents = pages(5)
    index = written(light, documents)
    light.forget_chunks(["page 1"])
    check = looked(light, "leftovers", index)
    assert check.figures["forgotten_there"] == 1
    assert "although the store forgot them: 1 (page 1)" in check.why
    # It is no text that somebody changed.
    assert looked(light, "ledger", index).severity is None
    index.vector_store.delete(["page 1"])
    assert looked(light, "leftovers", index).severity is None


def test_chunks_whose_source_dropped_them_are_found_whatever_their_ids(store):
    documents = unnamed(6)
    index = written(store, documents)
    catalog = ChunkCatalog(store)
    catalog.sync(documents, complete=True)
    assert looked(store, "leftovers", index).severity is None
    catalog.sync(documents[2:], complete=True)
    check = looked(store, "leftovers", index)
    assert check.figures["gone_at_the_source"] == 2
    assert "although gone at their source: 2" in check.why


# -- silent sources


def test_a_source_that_nobody_saw_for_long_is_found_and_an_answer_breaks_the_silence(store):
    bring(store, [*pages(4, 0, "old.md"), *pages(4, 10, "new.md")])
    assert looked(store, "silent_sources").severity is None
    then = datetime.now(UTC) - 20 * DAY
    with writing(store) as (connection, _):
        old = chunks.c.source == "old.md"
        connection.execute(update(chunks).where(old).values(last_seen=then))
    check = looked(store, "silent_sources")
    assert check.severity == "finding"
    assert check.figures["longest"][0]["source"] == "old.md"
    assert "sources not seen for 14 days: 1 of 2 (old.md)" in check.why
    assert looked(store, "silent_sources", max_silence=30 * DAY).severity is None
    store.record_trace(str(uuid.uuid4()), "How long?", pages(1, 0, "old.md"))
    assert looked(store, "silent_sources").severity is None


def test_when_no_source_was_seen_the_sync_itself_has_stopped(light):
    bring(light, [*pages(4, 0, "a.md"), *pages(4, 10, "b.md")])
    check = looked(light, "silent_sources", now=datetime.now(UTC) + 15 * DAY)
    assert check.severity == "alarm"
    assert "ChunkCatalog.sync" in check.todo


def test_sources_that_are_gone_or_nameless_are_not_silent(light):
    assert looked(light, "silent_sources").status == "skipped"
    nameless = [Document("Refunds take 14 days.", id="x")]
    bring(light, nameless)
    assert "`source`" in looked(light, "silent_sources").why
    catalog = ChunkCatalog(light)
    catalog.sync([*pages(3, 0, "gone.md"), *pages(3, 10, "here.md")])
    catalog.sync(pages(3, 10, "here.md"), complete=True)
    check = looked(light, "silent_sources")
    assert (check.figures["sources"], check.figures["silent"]) == (1, 0)


# -- the questions


def ask(store, scores, *, days=0.0, version=None, status=None, traffic=None):
    """Record searches whose best chunk had these scores, some days ago."""
    now = datetime.now(UTC) - days * DAY
    rows = {"questions": [], "traces": [], "trace_chunks": []}
    for score in scores:
        trace_id = uuid.uuid4().hex
        rows["traces"].append(
            {"trace_id": trace_id, "namespace": store.namespace, "question_id": 1,
             "index_version": version, "status": status, "traffic": traffic, "created_at": now}
        )  # fmt: skip
        for rank in (0, 1):
            rows["trace_chunks"].append(
                {"trace_id": trace_id, "attempt": 1, "chunk_id": str(rank), "cell_id": str(rank),
                 "content_hash": "", "base_rank": rank, "final_rank": rank,
                 "base_score": None if score is None else score - rank, "belief": 0.0,
                 "origin": "base", "returned": True, "in_prompt": True}
            )  # fmt: skip
    with writing(store) as (connection, _):
        known = connection.execute(
            schema.questions.select().where(schema.questions.c.question_id == 1)
        )
        if known.first() is None:
            question = {"namespace": "x", "question_key": "x", "text": "x"}
            connection.execute(insert(schema.questions), question)
        connection.execute(insert(schema.traces), rows["traces"])
        connection.execute(insert(schema.trace_chunks), rows["trace_chunks"])


def scores_around(mean, number, seed=0):
    return np.random.default_rng(seed).normal(mean, 0.1, number).tolist()


def test_other_best_scores_are_an_alarm(store):
    ask(store, scores_around(0.7, 600), days=9)
    ask(store, scores_around(0.7, 600, 1))
    check = looked(store, "top_score")
    assert (check.status, check.severity) == ("done", None)
    ask(store, scores_around(0.6, 600, 2))
    check = looked(store, "top_score")
    assert check.severity == "alarm"
    assert (check.figures["n"], check.figures["base_n"]) == (1200, 600)
    assert check.figures["distance"] >= 0.1
    assert check.figures["median"] < check.figures["median_before"]


def test_a_small_difference_of_many_scores_is_no_alarm(light):
    ask(light, scores_around(0.7, 3_000), days=9)
    ask(light, scores_around(0.69, 3_000, 1))
    check = looked(light, "top_score")
    assert check.severity is None
    assert check.figures["distance"] < 0.1


def test_too_few_scores_or_none_at_all_are_said_to_be(light):
    assert "nobody asked" in looked(light, "top_score").why
    ask(light, [None] * 5)
    assert "score_key=" in looked(light, "top_score").why
    ask(light, scores_around(0.7, 499), days=9)
    ask(light, scores_around(0.1, 600))
    check = looked(light, "top_score")
    assert (check.status, "500 on each side" in check.why) == ("skipped", True)


def test_scores_of_another_version_of_the_index_are_not_compared(light):
    ask(light, scores_around(0.7, 600), days=9, version="v1")
    ask(light, scores_around(0.2, 600), days=1, version="v2")
    check = looked(light, "top_score")
    assert check.status == "skipped"
    assert (check.figures["index_version"], check.figures["base_n"]) == ("v2", 0)


def test_a_retriever_with_a_score_key_gives_the_scores(light):
    found = [
        Document(f"Rule {at} holds.", id=str(at), metadata={"similarity": 0.9 - at / 10})
        for at in range(3)
    ]
    base = ListRetriever(documents=found)
    policy = KernelBelief(score_key="similarity")
    FeedbackRetriever(base_retriever=base, store=light, k=2, policy=policy).invoke("Why?")
    check = looked(light, "top_score")
    assert (check.figures["n"], check.figures["base_n"]) == (1, 0)


def test_more_questions_without_an_answer_are_an_alarm(store):
    assert looked(store, "abstentions").status == "skipped"
    ask(store, [None] * 190, days=9, status="answered")
    ask(store, [None] * 10, days=9, status="abstained")
    ask(store, [None] * 95, status="answered")
    ask(store, [None] * 6, status="abstained")
    ask(store, [None] * 50, status="abstained", traffic="eval")
    ask(store, [None] * 50)
    check = looked(store, "abstentions")
    assert check.severity is None
    assert (check.figures["n"], check.figures["abstained"]) == (101, 6)
    ask(store, [None] * 12, status="abstained")
    check = looked(store, "abstentions")
    assert check.severity == "alarm"
    assert check.figures["share"] > check.figures["share_before"]


# -- all together


def test_a_clean_index_is_clean_and_nothing_is_written(light, tmp_path):
    index = written(light, pages(30))
    bring(light, pages(30), days=2)

    def dumped():
        with sqlite3.connect(tmp_path / "feedback.db") as connection:
            return list(connection.iterdump())

    before = dumped()
    health = check_health(light, index)
    assert dumped() == before
    assert (health.exit_code, health.findings, health.failed) == (0, (), ())
    assert [check.name for check in health.checks] == list(CHECKS)
    assert {check.name for check in health.skipped} == {
        "embedder", "version", "questions", "top_score", "abstentions",
    }  # fmt: skip
    assert all(check.why for check in health.checks)


def test_a_report_is_json_and_text_and_tells_somebody(light):
    bring(light, pages(150), days=9)
    bring(light, scans(30))
    bring(light, pages(30, 500), score=False)
    told = []
    health = check_health(light, ManagedIndex(name="handbook"), on_finding=told.append)
    assert health.exit_code == 1
    assert [check.name for check in told] == ["gated_share", "coverage"]
    assert health.alarms == (told[0],)
    read = json.loads(json.dumps(health.as_dict(), allow_nan=False))
    assert (read["index"], read["namespace"], read["exit_code"]) == ("handbook", "default", 1)
    assert (read["alarms"], read["findings"]) == (["gated_share"], ["gated_share", "coverage"])
    assert [check["name"] for check in read["checks"]] == list(CHECKS)
    lines = str(health).splitlines()
    assert "alarms 1, other findings 1" in lines[0]
    assert lines[1].startswith("ALARM gated_share: ")
    assert len(lines) == 1 + len(CHECKS)


def test_a_check_that_fails_is_told_and_the_others_are_done(light):
    class Broken(Model):
        def embed_query(self, text):
            raise ConnectionError

    bring(light, pages(30))
    IndexRegistry(light).register("v1", Model("v1"), locator={})
    with writing(light) as (connection, _):
        connection.exec_driver_sql("UPDATE lcf_index_versions SET status = 'active'")
    health = check_health(light, ManagedIndex(embeddings=Broken("v1")))
    assert health.exit_code == 2
    assert [check.name for check in health.failed] == ["embedder"]
    assert "ConnectionError" in health.get("embedder").why
    assert health.get("coverage").status == "done"


def test_a_store_that_is_away_fails_what_needs_it_and_raises_nothing(tmp_path):
    store = FeedbackStore(f"sqlite:///{tmp_path / 'no such folder' / 'feedback.db'}")
    health = check_health(store, ManagedIndex())
    store.close()
    assert health.exit_code == 2
    needless = {
        "ledger",
        "leftovers",
        "version",
        "questions",
    }  # the index gives nothing to look at
    assert {check.name for check in health.failed} == set(CHECKS) - needless
    assert "StoreError" in health.get("gated_share").why


def test_nobody_hears_of_a_finding_when_telling_fails_but_the_report_says_so(light):
    bring(light, pages(30), score=False)

    def page_somebody(finding):
        raise TimeoutError

    health = check_health(light, ManagedIndex(), on_finding=page_somebody)
    assert health.exit_code == 2
    assert "'coverage'" in health.get("on_finding").why
    assert "TimeoutError" in health.get("on_finding").why
    assert health.get("coverage").severity == "finding"


def test_a_night_looks_at_the_health(light):
    index = ManagedIndex()
    bring(light, pages(30), score=False)
    report = nightly(light, health=lambda: check_health(light, index))
    assert (report.steps[0].status, report.exit_code) == ("findings", 1)
    assert "coverage" in report.steps[0].said
    report = nightly(
        light,
        score=lambda: score_corpus(light, catalog_documents(light)),
        health=lambda: check_health(light, index),
    )
    assert [step.status for step in report.steps] == ["done", "done"]


async def test_the_twin_does_the_same(light):
    bring(light, pages(30), score=False)
    now = datetime.now(UTC)
    index = ManagedIndex()
    assert await acheck_health(light, index, now=now) == check_health(light, index, now=now)


@pytest.mark.parametrize("name", ["window", "base", "asked", "max_silence"])
def test_times_that_are_none_are_refused(light, name):
    with pytest.raises(ValueError, match=name):
        check_health(light, ManagedIndex(), **{name: timedelta()})
    with pytest.raises(ValueError, match="zone"):
        check_health(light, ManagedIndex(), now=datetime(2026, 11, 30))  # noqa: DTZ001


# -- the statistics


COUNTS = st.tuples(st.integers(1, 400), st.integers(1, 4_000)).flatmap(
    lambda sizes: st.tuples(
        st.integers(0, sizes[0]), st.just(sizes[0]), st.integers(0, sizes[1]), st.just(sizes[1])
    )
)


@given(COUNTS)
def test_the_exact_test_is_that_of_scipy(counts):
    stats = pytest.importorskip("scipy.stats", reason="scipy is missing")
    hits, n, before, m = counts
    exact = stats.hypergeom.sf(hits - 1, n + m, hits + before, n)
    assert statistics.fisher_greater(*counts) == pytest.approx(exact, rel=1e-6, abs=1e-12)


@given(st.integers(1, 2_000), st.floats(0, 1), st.floats(0.001, 0.5))
def test_the_binomial_tail_is_that_of_scipy(n, part, share):
    stats = pytest.importorskip("scipy.stats", reason="scipy is missing")
    hits = round(n * part)
    exact = stats.binom.sf(hits - 1, n, share)
    assert statistics.binomial_tail(hits, n, share) == pytest.approx(exact, rel=1e-6, abs=1e-12)


@given(COUNTS)
def test_more_hits_are_never_less_of_a_rise(counts):
    hits, n, before, m = counts
    if hits < n:
        fewer, more = (statistics.rise(number, n, before, m) for number in (hits, hits + 1))
        assert more.p <= fewer.p + 1e-9
        assert more.is_real or not fewer.is_real


def test_counts_of_millions_take_no_time_and_no_overflow():
    assert statistics.fisher_greater(60_000, 1_000_000, 100_000, 2_000_000) < 1e-100
    even = statistics.fisher_greater(50_000, 1_000_000, 100_000, 2_000_000)
    assert even == pytest.approx(0.5, abs=0.01)


NUMBERS = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=2, max_size=200)


@given(NUMBERS, NUMBERS)
def test_the_distance_is_that_of_scipy(before, now):
    stats = pytest.importorskip("scipy.stats", reason="scipy is missing")
    exact = stats.ks_2samp(before, now, method="asymp")
    assert statistics.ks(before, now)[0] == pytest.approx(exact.statistic, abs=1e-12)


@given(st.integers(500, 3_000), st.integers(500, 3_000), st.floats(-0.3, 0.3))
def test_the_p_of_the_distance_is_that_of_scipy_for_large_samples(n, m, shift):
    stats = pytest.importorskip("scipy.stats", reason="scipy is missing")
    chance = np.random.default_rng(n * m)
    before, now = chance.normal(size=n), chance.normal(shift, size=m)
    exact = stats.ks_2samp(before, now, method="asymp").pvalue
    assert statistics.ks(before, now)[1] == pytest.approx(exact, rel=0.25, abs=0.02)


@given(NUMBERS, NUMBERS)
def test_the_stability_index_is_finite_and_never_negative(before, now):
    index = statistics.psi(before, now)
    assert math.isfinite(index)
    assert index >= -1e-12
    assert statistics.psi(before, before) == 0


def test_the_stability_index_of_fifty_equal_draws_is_what_the_docs_say():
    chance = np.random.default_rng(0)
    runs = [statistics.psi(chance.normal(size=5_000), chance.normal(size=50)) for _ in range(200)]
    assert np.mean(runs) == pytest.approx(9 * (1 / 50 + 1 / 5_000), rel=0.15)
