"""The gate in a retriever: `k` clean documents, on every vector store, whatever comes first."""

import json
from contextlib import ExitStack
from uuid import uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from langchain_feedback import FeedbackRetriever, trace_id_of
from langchain_feedback.documents import chunk_key
from langchain_feedback.errors import StoreError
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.gate import GateCounts, QualityGate
from langchain_feedback.retrievers._gating import Gate
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.fakes import ListRetriever
from tests.unit_tests.index import writer_stores
from tests.unit_tests.index.gate_kit import (
    QUESTION,
    JunkFirst,
    good,
    junk,
    over,
    set_status,
    texts,
)

K = 4


@pytest.fixture
def store(tmp_path):
    # Patient: a busy machine must not cost a test its gate.
    with FeedbackStore(f"sqlite:///{tmp_path}/feedback.db", timeout_s=20) as store:
        yield store


@pytest.fixture
def gate(store):
    return QualityGate(store)


def asked_for(base):
    return [k for _, k, *_ in base.queries]


def test_the_gate_of_a_retriever_is_a_protocol(gate):
    assert isinstance(gate, Gate)


@pytest.mark.parametrize("junk_first", [0, 3, 20, 25, 90])
def test_k_clean_documents_are_returned_however_much_junk_comes_first(store, gate, junk_first):
    found = [*junk(junk_first), *good(10)]
    gate.split(found)
    retriever, base = over(found, store, gate=gate)
    assert texts(retriever.invoke(QUESTION)) == texts(good(K))
    sizes = {0: [20], 3: [20], 20: [20, 40], 25: [20, 40], 90: [20, 40, 80, 160]}
    assert asked_for(base) == sizes[junk_first]


async def test_async_calls_are_the_same_and_never_block(store, gate):
    blockbuster = pytest.importorskip("blockbuster")
    found = [*junk(25), *good(10)]
    gate.split(found)
    retriever, base = over(found, store, gate=gate)
    retriever.invoke(QUESTION)
    with blockbuster.blockbuster_ctx("langchain_feedback"):
        shown = await retriever.ainvoke(QUESTION)
    assert texts(shown) == texts(good(K))
    assert asked_for(base) == [20, 40] * 2


def test_the_base_is_asked_for_a_thousand_at_most(store, gate):
    found = [*junk(160), *[Document(f"Contents {'x' * at}") for at in range(1, 1_500)]]
    gate.split(found)
    retriever, base = over(found, store, gate=gate)
    assert retriever.invoke(QUESTION) == []
    assert asked_for(base) == [20, 40, 80, 160, 320, 640, 1_000]


def test_a_larger_pool_than_that_is_not_made_smaller(store, gate):
    found = [*junk(160), *good(100)]
    gate.split(found)
    retriever, base = over(found, store, gate=gate)
    assert len(retriever.invoke(QUESTION, k=150)) == 100
    assert asked_for(base) == [600]
    base.queries.clear()
    retriever.invoke(QUESTION, k=300)
    assert asked_for(base) == [1_200]


def test_a_base_that_has_no_more_is_not_asked_again(store, gate):
    found = [*junk(18), *good(2)]
    gate.split(found)
    retriever, base = over(found, store, gate=gate)
    assert texts(retriever.invoke(QUESTION)) == texts(good(2))
    assert asked_for(base) == [20, 40]
    gate.split(junk(19))
    retriever, base = over(junk(19), store, gate=gate)
    assert retriever.invoke(QUESTION) == []
    assert asked_for(base) == [20]


def test_a_set_fetch_k_is_kept_to(store, gate):
    found = [*junk(25), *good(10)]
    gate.split(found)
    retriever, base = over(found, store, gate=gate, fetch_k=27)
    assert texts(retriever.invoke(QUESTION)) == texts(good(2))
    assert asked_for(base) == [27]


def test_a_base_that_takes_no_number_is_asked_once(store, gate):
    class Fixed(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [*junk(2), *good(3)]

    gate.split(junk(2))
    retriever = FeedbackRetriever(base_retriever=Fixed(), store=store, k=K, gate=gate)
    assert texts(retriever.invoke(QUESTION)) == texts(good(3))


def test_what_is_hidden_is_not_recorded_and_the_rest_is_ranked_as_if_it_were_not_there(
    store, gate
):
    found = [*junk(3), *good(6)]
    gate.split(found)
    with_gate, _ = over(found, store, gate=gate)
    without, _ = over(good(6), store)
    one, other = with_gate.invoke(QUESTION), without.invoke(QUESTION)
    for name in ("base_rank", "belief", "multiplier"):
        assert [shown.metadata["feedback"][name] for shown in one] == [
            shown.metadata["feedback"][name] for shown in other
        ]
    assert len(with_gate.explain(trace_id_of(one))) == 6


def test_without_a_gate_nothing_changes(store):
    found = [*junk(3), *good(6)]
    QualityGate(store).split(found)
    retriever, _ = over(found, store)
    assert texts(retriever.invoke(QUESTION)) == texts(found[:K])


def test_a_blank_question_is_gated_too(store, gate):
    found = [*junk(3), *good(6)]
    gate.split(found)
    retriever, _ = over(found, store, gate=gate)
    assert texts(retriever.invoke(" ")) == texts(good(K))


def ids(number, start=0):
    """Good documents with ids of their own, which pins and votes go by."""
    return [
        one.model_copy(update={"id": f"c{at}"}) for at, one in enumerate(good(number + start))
    ][start:]


def test_a_demoted_chunk_is_not_added_however_well_liked_it_is(store, gate):
    documents = ids(30)
    retriever, base = over(documents, store, gate=gate)
    for actor in ("ann", "bob"):
        found = retriever.invoke(QUESTION, {"metadata": {"user_id": actor}}, k=20)
        store.rate(trace_id_of(found), 5, target="c9")
    base.documents = [one for one in documents if one.id != "c9"]
    assert "c9" in [one.id for one in retriever.invoke(QUESTION)]
    set_status(store, "demoted", "c9")
    assert "c9" not in [one.id for one in retriever.invoke(QUESTION)]
    set_status(store, "live", "c9")
    assert "c9" in [one.id for one in retriever.invoke(QUESTION)]


@pytest.mark.parametrize("found_by_the_base", [True, False])
def test_a_pin_outranks_the_gate(store, gate, found_by_the_base):
    documents = ids(30)
    retriever, base = over(documents, store, gate=gate)
    retriever.invoke(QUESTION, k=20)
    store.pin(QUESTION, "c9", actor="rev")
    set_status(store, "demoted", "c9")
    if not found_by_the_base:
        base.documents = [one for one in documents if one.id != "c9"]
    shown = retriever.invoke(QUESTION)
    assert shown[0].id == "c9"
    assert shown[0].metadata["feedback"]["origin"] == "pinned"


def test_what_the_fallback_finds_is_gated_too(store, gate):
    gate.split(junk(5))
    fallback = ListRetriever(documents=[*junk(5), *good(9)[6:]])
    retriever, _ = over(ids(6), store, gate=gate, fallback_retriever=fallback, k=9)
    for actor in ("ann", "bob", "eve"):
        found = retriever.invoke(QUESTION, {"metadata": {"user_id": actor}})
        store.rate(trace_id_of(found), 1)
    shown = texts(retriever.invoke(QUESTION))
    assert set(texts(good(9)[6:])) <= set(shown)
    assert not set(texts(junk(5))) & set(shown)


class Broken:
    """A gate that fails, and remembers how often it was asked."""

    error = StoreError("gone")

    def __init__(self):
        self.asked = 0

    def hidden(self, documents):
        self.asked += 1
        raise self.error


def test_a_gate_that_fails_costs_the_gate_and_never_the_answer(store):
    gate = Broken()
    found = [*junk(2), *ids(20)]
    retriever, _ = over(found, store, gate=gate)
    assert texts(retriever.invoke(QUESTION)) == texts(found[:K])
    assert gate.asked == 1
    # Feedback is another thing, and goes on.
    for actor in ("ann", "bob", "eve"):
        shown = retriever.invoke(QUESTION, {"metadata": {"user_id": actor}})
        store.rate(trace_id_of(shown), 5, target="c1")
    assert retriever.invoke(QUESTION)[0].id == "c1"


class FailsLater(Broken):
    """Hides what begins with "Contents", the first time."""

    def hidden(self, documents):
        if self.asked:
            return super().hidden(documents)
        self.asked += 1
        return {
            at: ("junk",) for at, one in enumerate(documents) if "Contents" in one.page_content
        }


def test_what_was_hidden_before_a_gate_failed_stays_hidden(store):
    gate = FailsLater()
    retriever, base = over([*junk(25), *good(10)], store, gate=gate)
    assert texts(retriever.invoke(QUESTION)) == texts(junk(24)[20:])
    assert (gate.asked, asked_for(base)) == (2, [20, 40])


def test_copies_of_a_text_under_other_ids_have_each_their_own_standing(store, gate):
    copies = [
        Document("It takes a day.", metadata={"_id": key, "source": "a.md"}) for key in "abcd"
    ]
    ChunkCatalog(store).sync(copies)
    set_status(store, "retired", "a", "c")
    retriever, _ = over(copies, store, gate=gate)
    assert [one.metadata["_id"] for one in retriever.invoke(QUESTION)] == ["b", "d"]


def test_a_store_that_is_away_costs_the_gate_and_never_the_answer(tmp_path):
    store = FeedbackStore(f"sqlite:///{tmp_path}/missing/feedback.db")
    retriever, _ = over([*junk(2), *good(4)], store, gate=QualityGate(store))
    assert len(retriever.invoke(QUESTION)) == K


# -- on real vector stores (acceptance check 5 of the design)


@pytest.fixture(params=list(writer_stores.OPEN))
def vectors(request, tmp_path, monkeypatch):
    """Each of the five vector stores, with 25 chunks of junk nearest to every question."""
    for package in writer_stores.NEEDS[request.param]:
        pytest.importorskip(package)
    monkeypatch.setattr(writer_stores, "EMBEDDING", JunkFirst(writer_stores.SIZE))
    with ExitStack() as closing:
        if request.param == "postgres":
            server = request.getfixturevalue("postgres_server")
            url = closing.enter_context(server.database())
            (tmp_path / "postgres.json").write_text(json.dumps([url, "handbook_0"]))
        opened = writer_stores.OPEN[request.param](str(tmp_path)).store
        everything = [*junk(25), *good(30)]
        opened.add_documents(everything, ids=[str(uuid4()) for _ in everything])
        yield opened


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_check5_every_store_returns_k_and_nothing_gated_with_the_first_25_hits_gated(
    vectors, store, gate, asynchronous
):
    gate.split([*junk(25), *good(30)])
    base = vectors.as_retriever()
    first = base.invoke(QUESTION, k=25)
    assert sorted(texts(first)) == sorted(texts(junk(25)))
    retriever = FeedbackRetriever(base_retriever=base, store=store, k=K, gate=gate)
    shown = await retriever.ainvoke(QUESTION) if asynchronous else retriever.invoke(QUESTION)
    assert len(shown) == K
    assert not set(texts(shown)) & set(texts(junk(25)))
    assert gate.hidden(shown) == {}
    # Each chunk of the pool was looked up once, and then those above.
    assert gate.counts == GateCounts(checked=40 + K, hidden=25, unknown=0)


def test_every_store_hides_the_first_25_hits_where_they_are_demoted(vectors, store, gate):
    base = vectors.as_retriever()
    first = base.invoke(QUESTION, k=25)
    ChunkCatalog(store).sync(first)
    set_status(store, "demoted", *map(chunk_key, first))
    retriever = FeedbackRetriever(base_retriever=base, store=store, k=K, gate=gate)
    shown = retriever.invoke(QUESTION)
    assert len(shown) == K
    assert not set(texts(shown)) & set(texts(first))
