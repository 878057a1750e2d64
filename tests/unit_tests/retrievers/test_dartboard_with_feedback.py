"""Dartboard and feedback put together, both ways round, and with LangChain's compressors."""

import copy
import json

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langchain_feedback import (
    AverageRating,
    DartboardCompressor,
    DartboardRetriever,
    FeedbackRetriever,
    new_trace_id,
    trace_id_of,
)
from langchain_feedback.demo.handbook import handbook_documents
from tests.fakes import ListRetriever
from tests.unit_tests.retrievers.feedback_kit import ids, marks, run

ASKED = "Can I export my data after I cancel my plan?"
COPIES = 5
VECTORS = DeterministicFakeEmbedding(size=32)


def corpus():
    """Twelve texts, five times each, under ids of their own."""
    return [
        Document(
            one.page_content,
            id=f"{one.id}/{at}",
            metadata={"chunk": one.id, "nested": {"tags": [at]}},
        )
        for one in handbook_documents()
        for at in range(COPIES)
    ]


@pytest.fixture(params=["InMemoryVectorStore", "FAISS"])
def index(request):
    if request.param == "FAISS":
        return FAISS.from_documents(corpus(), VECTORS)
    in_memory = InMemoryVectorStore(VECTORS)
    in_memory.add_documents(corpus())
    return in_memory


def held(index):
    """What an index keeps of its documents: the very objects, or what they are made of."""
    return list(index.docstore._dict.values()) if isinstance(index, FAISS) else index.store


def only(index, chunk):
    """A filter as the index takes it."""
    if isinstance(index, FAISS):
        return {"chunk": chunk}
    return lambda document: document.metadata["chunk"] == chunk


def outside(index, store, **settings):
    """Feedback outside: the documented way."""
    base = DartboardRetriever(vector_store=index)
    return FeedbackRetriever(base_retriever=base, store=store, **{"k": 3} | settings)


def inside(index, store, k=3, **settings):
    """Feedback inside: it decides what is in the pool."""
    base = FeedbackRetriever(base_retriever=index.as_retriever(), store=store, **settings)
    return DartboardRetriever(base_retriever=base, k=k)


def texts(found):
    return {document.page_content for document in found}


def as_told(found):
    """What a caller sees, but for the trace id."""
    told = [(d.id, d.page_content, copy.deepcopy(d.metadata)) for d in found]
    for _, _, metadata in told:
        metadata["feedback"].pop("trace_id", None)
    return told


# -- feedback outside


def test_a10_outside_a_trace_holds_no_text_twice_and_k_may_be_any(index, store):
    retriever = outside(index, store)
    found = retriever.invoke(ASKED)
    trace = store.trace(trace_id_of(found))
    assert len(found) == 3
    assert ids(found) == [chunk.chunk_id for chunk in trace.chunks if chunk.returned]
    assert len({chunk.content_hash for chunk in trace.chunks}) == len(trace.chunks) == 12
    assert [len(retriever.invoke(ASKED, k=k)) for k in (1, 7, 12, 100)] == [1, 7, 12, 12]


def test_outside_without_votes_the_order_is_dartboards_and_its_notes_stay(index, store):
    plain = DartboardRetriever(vector_store=index, k=3).invoke(ASKED)
    found = outside(index, store).invoke(ASKED)
    assert ids(found) == ids(plain)
    assert [marks(one)["base_rank"] for one in found] == [0, 1, 2]
    for one, alone in zip(found, plain, strict=True):
        assert marks(one)["chunk_id"] == one.id
        assert {d["chunk_id"].split("/")[0] for d in marks(one)["duplicates"]} == {
            one.metadata["chunk"]
        }
        assert len(marks(one)["duplicates"]) >= len(marks(alone)["duplicates"])


def test_outside_a_rating_moves_a_text_whichever_copy_is_found(index, store):
    retriever = outside(index, store)
    first = retriever.invoke(ASKED)
    store.rate(trace_id_of(first), 5, target=first[2])
    again = retriever.invoke(ASKED)
    assert again[1].page_content == first[2].page_content
    assert marks(again[1])["multiplier"] > 1
    assert marks(again[1])["base_rank"] == 2
    assert len(texts(again)) == 3


def test_a07_outside_scores_do_not_compound_and_the_index_stays_untouched(index, store):
    before = copy.deepcopy(held(index))
    retriever = outside(index, store, policy=AverageRating())
    found = retriever.invoke(ASKED)
    store.rate(trace_id_of(found), 5, target=found[1])
    first, second = retriever.invoke(ASKED), retriever.invoke(ASKED)
    assert as_told(first) == as_told(second)
    assert first[0].id == found[1].id
    assert first[0].metadata["relevance_score"] == pytest.approx(5 / 3)
    first[0].metadata["nested"]["tags"].append("mine")
    assert held(index) == before


def test_outside_what_feedback_adds_comes_without_duplicates_and_once(store):
    everything = ListRetriever(documents=corpus())
    asked = FeedbackRetriever(base_retriever=everything, store=store, k=60).invoke(ASKED)
    [liked] = [one for one in asked if one.id == "sla/1"]
    for at in range(4):
        store.rate(trace_id_of(asked), 5, target=liked, actor=f"user{at}")
    few = ListRetriever(documents=corpus()[: 2 * COPIES])
    board = DartboardRetriever(base_retriever=few, embeddings=VECTORS)
    found = FeedbackRetriever(base_retriever=board, store=store, k=3).invoke(ASKED)
    assert len(texts(found)) == len(found) == 3
    [added] = [one for one in found if marks(one)["origin"] == "injected"]
    assert added.page_content == liked.page_content
    assert "duplicates" not in marks(added)


# -- feedback inside


def test_inside_the_notes_of_both_stand_side_by_side(index, store):
    found = inside(index, store).invoke(ASKED, run(user_id="ann"))
    trace = store.trace(trace_id_of(found))
    assert trace.actor == "ann"
    recorded = {chunk.chunk_id: chunk for chunk in trace.chunks}
    for one in found:
        assert marks(one)["base_rank"] == recorded[one.id].base_rank
        assert {"belief", "multiplier", "origin", "duplicates"} <= set(marks(one))
    gains = [one.metadata["relevance_score"] for one in found]
    assert gains == sorted(gains, reverse=True)


def test_inside_a_liked_text_enters_the_pool(store):
    everything = ListRetriever(documents=corpus())
    asked = FeedbackRetriever(base_retriever=everything, store=store, k=60).invoke(ASKED)
    for at in range(4):
        store.rate(trace_id_of(asked), 5, target="sla/1", actor=f"user{at}")
    few = ListRetriever(documents=corpus()[: 2 * COPIES])
    feedback = FeedbackRetriever(base_retriever=few, store=store)
    found = DartboardRetriever(base_retriever=feedback, embeddings=VECTORS, k=3).invoke(ASKED)
    assert {one.metadata["chunk"]: marks(one)["origin"] for one in found}["sla"] == "injected"


def test_inside_each_call_is_one_search_under_the_callers_id(index, store, caplog):
    mine = new_trace_id()
    found = inside(index, store).invoke(ASKED, run(feedback_trace_id=mine))
    assert trace_id_of(found) == mine
    assert store.trace(mine).searches == {1: ASKED}
    assert caplog.records == []


@pytest.mark.parametrize("k", [3, 7, 12, 100])
async def test_a10_inside_the_pool_grows_until_it_holds_k_texts(index, store, k):
    retriever = inside(index, store, k=k)
    found = retriever.invoke(ASKED, run(user_id="ann"))
    assert len(found) == len(texts(found)) == min(k, 12)
    assert as_told(await retriever.ainvoke(ASKED, run(user_id="ann"))) == as_told(found)
    trace = store.trace(trace_id_of(found))
    assert trace.searches == {1: ASKED}
    assert set(ids(found)) <= {chunk.chunk_id for chunk in trace.chunks if chunk.returned}
    store.rate(trace.trace_id, 5, target=found[-1])
    [liked] = [
        one for one in retriever.invoke(ASKED) if one.page_content == found[-1].page_content
    ]
    assert marks(liked)["multiplier"] > 1


def test_inside_a_pool_that_grew_leaves_the_callers_next_attempt_free(index, store, caplog):
    """A graph searches again, after a rewrite, as attempt 2: growing must not have used it up."""
    retriever, mine = inside(index, store), new_trace_id()
    first = retriever.invoke(ASKED, run(feedback_trace_id=mine, feedback_attempt=1))
    other = "How do I export my data?"
    again = retriever.invoke(other, run(feedback_trace_id=mine, feedback_attempt=2))
    assert len(texts(first)) == len(texts(again)) == 3
    assert trace_id_of(first) == trace_id_of(again) == mine
    assert store.trace(mine).searches == {1: ASKED, 2: other}
    assert caplog.records == []
    store.rate(mine, 5, target=again[0])


def copies_first():
    """Sixty copies of a text, and two others that a search finds last."""
    documents = [Document("Export it.", id=f"e{at}") for at in range(60)]
    return [*documents, Document("Cancel it.", id="c"), Document("Refund it.", id="r")]


@pytest.mark.parametrize("wrap", ["bare", "bound", "compressed"])
def test_a10_inside_the_search_below_feedback_grows_and_is_recorded_once(store, embeddings, wrap):
    below = ListRetriever(documents=copies_first())
    base = FeedbackRetriever(base_retriever=below, store=store)
    if wrap == "bound":
        base = base.with_config(tags=["mine"]).with_retry()
    if wrap == "compressed":
        board = DartboardCompressor(embeddings=VECTORS, k=100, deduplicate=False)
        base = ContextualCompressionRetriever(base_compressor=board, base_retriever=base)
    found = DartboardRetriever(base_retriever=base, embeddings=VECTORS, k=3).invoke(ASKED)
    assert texts(found) == {"Export it.", "Cancel it.", "Refund it."}
    assert [k for _, k, *_ in below.queries] == [36, 72]
    assert embeddings.asked == [ASKED]
    assert store.trace(trace_id_of(found)).searches == {1: ASKED}


def test_inside_what_is_set_is_kept_to(store):
    below = ListRetriever(documents=copies_first())
    base = FeedbackRetriever(base_retriever=below, store=store, fetch_k=30)
    assert len(DartboardRetriever(base_retriever=base, embeddings=VECTORS).invoke(ASKED)) == 1
    base = FeedbackRetriever(base_retriever=below, store=store)
    board = DartboardRetriever(base_retriever=base, embeddings=VECTORS, k=3, adaptive=False)
    assert len(board.invoke(ASKED)) == 1
    assert [k for _, k, *_ in below.queries] == [30, 36]


def test_inside_beside_a_search_that_records_nothing_it_is_asked_once(store):
    """The option to grow is for feedback alone: a vector store would not know it."""
    below = ListRetriever(documents=copies_first())
    index = InMemoryVectorStore(VECTORS)
    base = FeedbackRetriever(base_retriever=below, store=store).with_fallbacks(
        [index.as_retriever()]
    )
    assert len(DartboardRetriever(base_retriever=base, embeddings=VECTORS).invoke(ASKED)) == 1
    assert [k for _, k, *_ in below.queries] == [48]


async def test_a_feedback_retriever_alone_asks_its_base_once(store):
    below = ListRetriever(documents=copies_first())
    base = FeedbackRetriever(base_retriever=below, store=store, k=9)
    assert len(base.invoke(ASKED)) == len(await base.ainvoke(ASKED)) == 9
    assert [k for _, k, *_ in below.queries] == [36, 36]


def test_a10_inside_k_0_searches_nothing(index, store):
    retriever = inside(index, store)
    mine = new_trace_id()
    assert retriever.invoke(ASKED, run(feedback_trace_id=mine), k=0) == []
    assert store.trace(mine) is None
    with pytest.raises(ValueError, match="k must be"):
        retriever.invoke(ASKED, k=-1)


def test_a07_inside_the_index_stays_untouched(index, store):
    before = copy.deepcopy(held(index))
    retriever = inside(index, store)
    first, second = retriever.invoke(ASKED), retriever.invoke(ASKED)
    assert as_told(first) == as_told(second)
    first[0].metadata["nested"]["tags"].append("mine")
    assert held(index) == before


# -- both


@pytest.mark.parametrize("way", [outside, inside])
async def test_a22_every_way_to_call_gives_the_same(index, store, way):
    retriever = way(index, store)
    expected = as_told(retriever.invoke(ASKED))
    assert as_told(await retriever.ainvoke(ASKED)) == expected
    assert [as_told(one) for one in retriever.batch([ASKED, ASKED])] == [expected] * 2
    assert [as_told(one) for one in await retriever.abatch([ASKED])] == [expected]
    assert [as_told(one) for one in retriever.stream(ASKED)] == [expected]
    assert [as_told(one) async for one in retriever.astream(ASKED)] == [expected]


@pytest.mark.parametrize("way", [outside, inside])
async def test_a22_a_filter_reaches_the_index(index, store, way):
    retriever, options = way(index, store), {"filter": only(index, "export")}
    for found in (
        retriever.invoke(ASKED, **options),
        await retriever.ainvoke(ASKED, **options),
    ):
        assert [one.metadata["chunk"] for one in found] == ["export"]


@pytest.mark.parametrize("way", [outside, inside])
def test_a20_notes_are_plain_and_survive_a_checkpointer(index, store, way):
    found = [*way(index, store).invoke(ASKED)]
    for one in found:
        assert json.loads(json.dumps(one.metadata)) == one.metadata
    serde = JsonPlusSerializer()
    assert serde.loads_typed(serde.dumps_typed(found)) == found


# -- with LangChain's own compressors


def compressors(k=3):
    board = DartboardCompressor(embeddings=VECTORS, k=k)
    return {"alone": board, "pipeline": DocumentCompressorPipeline(transformers=[board])}


@pytest.mark.parametrize("kind", ["alone", "pipeline"])
async def test_a_compressor_after_feedback_keeps_its_trace(index, store, kind):
    feedback = FeedbackRetriever(base_retriever=index.as_retriever(), store=store, k=60)
    retriever = ContextualCompressionRetriever(
        base_compressor=compressors()[kind], base_retriever=feedback
    )
    for found in (retriever.invoke(ASKED), await retriever.ainvoke(ASKED)):
        assert len(texts(found)) == 3
        trace = store.trace(trace_id_of(found))
        assert set(ids(found)) <= {chunk.chunk_id for chunk in trace.chunks}
        assert all("duplicates" in marks(one) for one in found)
        store.rate(trace.trace_id, 5, target=found[0])


@pytest.mark.parametrize("kind", ["alone", "pipeline"])
async def test_a_compressor_before_feedback_records_what_was_returned(index, store, kind):
    base = ContextualCompressionRetriever(
        base_compressor=compressors()[kind],
        base_retriever=index.as_retriever(search_kwargs={"k": 60}),
    )
    retriever = FeedbackRetriever(base_retriever=base, store=store, k=3)
    for found in (retriever.invoke(ASKED), await retriever.ainvoke(ASKED)):
        trace = store.trace(trace_id_of(found))
        assert ids(found) == [chunk.chunk_id for chunk in trace.chunks]
        assert [len(marks(one)["duplicates"]) for one in found] == [COPIES - 1] * 3
