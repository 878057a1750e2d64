"""A real Qdrant, in memory: its documents have no `id`, and are known by `metadata["_id"]`."""

from uuid import NAMESPACE_URL, uuid5

import pytest
from langchain_core.documents import Document

from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of
from langchain_feedback.documents import chunk_key
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.foldback import FoldBack
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.retirement import Retirement
from langchain_feedback.index.writer import IndexWriter
from tests.unit_tests.index.foldback_kit import MONEY, REFUND, RIGHT, SECOND, Angles, others

pytest.importorskip("langchain_qdrant")


def uuid(name):
    return str(uuid5(NAMESPACE_URL, name))


def named(document):
    """The document under a UUID, as the index knows it; `key` is what its owner calls it."""
    more = document.metadata | {"key": document.id}
    return Document(document.page_content, id=uuid(document.id), metadata=more)


DOCUMENTS = [named(one) for one in [*others(), RIGHT, SECOND]]
JUNK = named(Document("Contents", id="junk", metadata={"source": "x"}))
BEST = uuid(RIGHT.id)


def qdrant(collection="handbook"):
    from langchain_qdrant import QdrantVectorStore  # noqa: PLC0415
    from qdrant_client import QdrantClient  # noqa: PLC0415
    from qdrant_client.models import Distance, VectorParams  # noqa: PLC0415

    client = QdrantClient(":memory:")
    client.create_collection(collection, VectorParams(size=2, distance=Distance.COSINE))
    return QdrantVectorStore(client, collection, Angles())


@pytest.fixture
def store():
    with FeedbackStore("sqlite://", embeddings=Angles()) as opened:
        yield opened


@pytest.fixture
def index():
    index = qdrant()
    index.add_documents(DOCUMENTS)
    return index


def retriever(store, index, **settings):
    base = index.as_retriever()
    settings = {"k": 2, "fetch_k": 4, "resolve": index.get_by_ids} | settings
    return FeedbackRetriever(base_retriever=base, store=store, **settings)


def keys(documents):
    return [one.metadata["feedback"]["chunk_id"] for one in documents]


def test_its_documents_have_no_id_of_their_own_and_one_key_everywhere(index):
    [searched] = [one for one in index.similarity_search(REFUND, k=20) if _is_best(one)]
    [read] = index.get_by_ids([BEST])
    assert (searched.id, read.id) == (None, None)
    assert chunk_key(searched) == chunk_key(read) == BEST
    assert chunk_key(searched, "key") == RIGHT.id


def test_votes_and_pins_find_their_chunk_again(store, index):
    ours = retriever(store, index)
    for person in ("ann", "bob", "cid"):
        asked = ours.invoke(REFUND)
        store.rate(trace_id_of(asked), 5, target=asked[1], actor=person)
    liked = keys(asked)[1]
    again = ours.invoke(REFUND)
    assert again[keys(again).index(liked)].metadata["feedback"]["belief"] > 0.1
    [known] = store.trace(trace_id_of(again)).chunks[:1]
    assert known.chunk_id in {one.id for one in DOCUMENTS}

    # A pinned chunk that the search did not find is read from the index by its UUID.
    pinned = index.get_by_ids([BEST])[0]
    assert BEST not in keys(again)
    store.pin(REFUND, pinned)
    assert keys(ours.invoke(REFUND))[0] == BEST
    index.delete([BEST])
    assert BEST not in keys(ours.invoke(REFUND))


def test_a_field_of_ones_own_goes_before_the_uuid(store, index):
    ours = retriever(store, index, id_field="key", resolve=None)
    found = ours.invoke(REFUND)
    assert set(keys(found)) <= {one.metadata["key"] for one in DOCUMENTS}
    store.rate(trace_id_of(found), 5, target=found[0])
    assert ours.invoke(REFUND)[0].metadata["feedback"]["belief"] > 0


def test_what_is_retired_in_it_is_hidden_removed_and_restored(store):
    index = qdrant()
    writer = IndexWriter(index, TableLedger(store, "handbook"))
    documents = [*DOCUMENTS, JUNK]
    writer.apply(writer.plan(documents))
    # As an index tells what it holds, and as a loader does: the same chunks.
    ChunkCatalog(store).sync(index.similarity_search(REFUND, k=50), complete=True)
    assert not ChunkCatalog(store).sync(documents, complete=True)
    gate = QualityGate(store)
    gate.score(documents)
    retirement = Retirement(store, writer)
    done = retirement.apply(retirement.plan(), actor="rita")
    assert done.demoted == (JUNK.id,)
    assert JUNK.id not in keys(retriever(store, index, gate=gate, k=20, fetch_k=20).invoke(REFUND))
    assert retirement.restore(done.run_id, actor="rita").chunks == (JUNK.id,)
    assert store.forget_chunks([JUNK.id]) == 1
    assert writer.ledger.entries()[JUNK.id].fingerprint == ("", "")


def test_a_folded_back_question_serves_its_source_by_the_uuid(store, index):
    foldback = FoldBack(store, vector_store=qdrant("questions"), resolve=index.get_by_ids)
    source = index.get_by_ids([BEST])
    store.record_trace("t", REFUND, source)
    store.update_trace(
        "t", answer="It takes 14 days.", status="answered", grounded=True, cited=source
    )
    store.rate("t", 5, actor="ann")
    foldback.apply(foldback.plan())
    [entry] = foldback.list(status="candidate")
    foldback.approve(entry.derived_id, "rita")
    ours = retriever(store, index, foldback=foldback, inject=0)
    asked = ours.invoke(MONEY)
    assert keys(asked)[2:] == [BEST]
    index.delete([BEST])
    assert len(ours.invoke(MONEY)) == 2


def _is_best(document):
    return document.page_content == RIGHT.page_content
