"""The retriever and the compressor: pools, copies, duplicates, every way to call."""

import copy
import json
import logging
import time

import numpy as np
import pytest
from blockbuster import blockbuster_ctx
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import Field, ValidationError

from langchain_feedback import DartboardCompressor, DartboardRetriever
from langchain_feedback.demo.handbook import handbook_documents, stop_words
from langchain_feedback.local import TfidfRetriever
from tests.fakes import ListRetriever, Recorder
from tests.shared import shared_data

ASKED = "Can I export my data after I cancel my plan?"


class TfidfEmbeddings(Embeddings):
    """The vectors of a word search; counts its calls, and never runs in an event loop."""

    def __init__(self, vectorizer):
        self.vectorizer, self.embedded, self.asked = vectorizer, [], 0

    def embed_documents(self, texts):
        self.embedded += texts
        return self.vectorizer.transform(texts).toarray().tolist()

    def embed_query(self, text):
        self.asked += 1
        return self.vectorizer.transform([text]).toarray()[0].tolist()


def handbook(copies=1):
    """The handbook, each chunk stored several times under ids of their own."""
    return [
        document.model_copy(
            update={"id": f"{document.id}/{at}", "metadata": {"chunk": document.id, "copy": at}}
        )
        for document in handbook_documents()
        for at in range(copies)
    ]


@pytest.fixture
def words():
    return TfidfRetriever.from_documents(handbook(5), stop_words=stop_words())


@pytest.fixture
def embeddings(words):
    return TfidfEmbeddings(words.vectorizer)


@pytest.fixture
def store(embeddings):
    return stored(embeddings)


def stored(embeddings, copies=5):
    store = InMemoryVectorStore(embeddings)
    store.add_documents(handbook(copies))
    embeddings.embedded.clear()
    return store


def chunks(found):
    return [document.metadata["chunk"] for document in found]


def as_told(found):
    return [(d.id, d.page_content, d.metadata) for d in found]


# -- five copies of a handbook


class TestFiveCopies:
    @pytest.fixture
    def expected(self):
        path = shared_data("handbook") / "expected.json"
        return json.loads(path.read_text(encoding="utf-8"))["dartboard_on_five_copies"]

    def test_a10_the_word_search_alone_returns_one_chunk_three_times(self, expected, words):
        assert chunks(words.invoke(expected["question"], k=3)) == expected["plain_top_3"]

    @pytest.mark.parametrize("oversampling", [3, 4])
    def test_a10_the_exact_rule_on_the_same_pool(self, expected, words, embeddings, oversampling):
        retriever = DartboardRetriever(
            base_retriever=words,
            embeddings=embeddings,
            k=expected["k"],
            sigma=expected["sigma"],
            oversampling=oversampling,
            adaptive=False,
            deduplicate=False,
        )
        found = retriever.invoke(expected["question"])
        assert chunks(found) == expected[f"oversampling_{oversampling}"]
        assert len({document.id for document in found}) == 3

    @pytest.mark.parametrize("oversampling", [3, 4])
    def test_a10_by_default_three_distinct_texts(self, expected, words, embeddings, oversampling):
        retriever = DartboardRetriever(
            base_retriever=words, embeddings=embeddings, k=3, oversampling=oversampling
        )
        assert chunks(retriever.invoke(ASKED)) == expected["oversampling_4"]


# -- the pool


def test_a10_the_pool_doubles_until_it_holds_enough_texts(embeddings):
    documents = [Document("Export it.", id=str(at)) for at in range(20)]
    documents += [Document("Cancel it.", id="20"), Document("Refund it.", id="21")]
    base = ListRetriever(documents=documents)
    retriever = DartboardRetriever(base_retriever=base, embeddings=embeddings, k=3)
    assert len(retriever.invoke("Export")) == 3
    assert [k for _, k, *_ in base.queries] == [9, 18, 36]


def test_a10_a_base_that_has_no_more_is_not_asked_again(embeddings):
    base = ListRetriever(documents=[Document("Export it.", id=str(at)) for at in range(12)])
    retriever = DartboardRetriever(base_retriever=base, embeddings=embeddings, k=3)
    assert len(retriever.invoke("Export")) == 1
    assert [k for _, k, *_ in base.queries] == [9, 18]


def test_a10_a_base_that_gives_the_same_again_and_again_is_left(embeddings):
    class Stubborn(ListRetriever):
        def _get_relevant_documents(self, query, *, run_manager, k=None):
            return super()._get_relevant_documents(query, run_manager=run_manager, k=None)

    base = Stubborn(documents=[Document("Export it.", id=str(at)) for at in range(50)])
    retriever = DartboardRetriever(base_retriever=base, embeddings=embeddings, k=2)
    assert len(retriever.invoke("Export")) == 1
    assert len(base.queries) == 2


def test_not_adaptive_asks_once(embeddings):
    base = ListRetriever(documents=[Document("Export it.", id=str(at)) for at in range(50)])
    retriever = DartboardRetriever(
        base_retriever=base, embeddings=embeddings, k=2, oversampling=5, adaptive=False
    )
    assert len(retriever.invoke("Export")) == 1
    assert [k for _, k, *_ in base.queries] == [10]


def test_a_base_that_records_its_searches_is_asked_once(embeddings):
    noted = {"feedback": {"trace_id": "t1"}}
    documents = [Document("Export it.", id=str(at), metadata=noted) for at in range(50)]
    base = ListRetriever(documents=documents)
    retriever = DartboardRetriever(base_retriever=base, embeddings=embeddings, k=2)
    assert len(retriever.invoke("Export")) == 1
    assert len(base.queries) == 1


@pytest.mark.parametrize("base_k_arg", ["k", None])
def test_a_base_that_takes_no_k_is_asked_once_and_without(embeddings, base_k_arg):
    asked = []

    def search(question):
        asked.append(question)
        return handbook()[:5]

    retriever = DartboardRetriever(
        base_retriever=RunnableLambda(search),
        embeddings=embeddings,
        k=2,
        base_k_arg=base_k_arg,
    )
    assert len(retriever.invoke(ASKED)) == 2
    assert asked == [ASKED]


def test_a_base_may_call_it_otherwise(embeddings):
    class Other(BaseRetriever):
        asked: list = Field(default_factory=list)

        def _get_relevant_documents(self, query, *, run_manager, top_k=1):
            self.asked.append(top_k)
            return handbook()[:top_k]

    base = Other()
    retriever = DartboardRetriever(
        base_retriever=base, embeddings=embeddings, k=2, base_k_arg="top_k"
    )
    assert len(retriever.invoke(ASKED)) == 2
    assert base.asked == [6]


def test_a10_k_more_than_there_are_and_none(store, embeddings):
    retriever = DartboardRetriever(vector_store=store, k=40)
    assert len(retriever.invoke(ASKED)) == 12
    assert retriever.invoke(ASKED, k=0) == []
    empty = DartboardRetriever(vector_store=InMemoryVectorStore(embeddings))
    assert empty.invoke(ASKED) == []
    three = DartboardRetriever(vector_store=stored(embeddings), k=10).invoke(
        ASKED, filter=lambda d: d.metadata["chunk"] in ("sla", "keys", "seats")
    )
    assert len(three) == len({id(document) for document in three}) == 3


@pytest.mark.parametrize("k", [-1, 1.5, True, "3"])
async def test_a10_a_wrong_k_is_refused(store, k):
    retriever = DartboardRetriever(vector_store=store)
    with pytest.raises(ValueError, match="k must be a whole number"):
        retriever.invoke(ASKED, k=k)
    with pytest.raises(ValueError, match="k must be a whole number"):
        await retriever.ainvoke(ASKED, k=k)


@pytest.mark.parametrize(
    "settings",
    [
        {"k": -1},
        {"oversampling": 0},
        {"sigma": 0},
        {"sigma": float("nan")},
        {"sigma": 1e200},
        {"relevance_weight": -1},
        {"near_duplicate": 2},
        {"sigmma": 0.1},
    ],
)
def test_wrong_settings_are_refused(store, settings):
    with pytest.raises(ValidationError, match=next(iter(settings))):
        DartboardRetriever(vector_store=store, **settings)


def test_what_is_missing_is_said(words):
    with pytest.raises(ValidationError, match="needs a `base_retriever` or a `vector_store`"):
        DartboardRetriever(embeddings=TfidfEmbeddings(words.vectorizer))
    with pytest.raises(ValidationError, match="needs vectors: pass `embeddings`"):
        DartboardRetriever(base_retriever=words)
    with pytest.raises(ValidationError, match="DartboardCompressor needs vectors"):
        DartboardCompressor()


# -- what comes back


def test_a07_documents_of_the_base_are_never_changed(embeddings):
    documents = handbook(2)
    for document in documents:
        document.metadata |= {"feedback": {"trace_id": "t1", "belief": 0.5}, "tags": ["a"]}
    before = copy.deepcopy(documents)
    base = ListRetriever(documents=documents)
    retriever = DartboardRetriever(base_retriever=base, embeddings=embeddings, k=3)
    first, second = retriever.invoke(ASKED), retriever.invoke(ASKED)
    assert as_told(first) == as_told(second)
    assert documents == before
    for document in first:
        document.metadata["tags"].append("b")
        document.metadata["feedback"]["belief"] = -1
    assert documents == before


def test_what_another_retriever_has_noted_is_kept(embeddings):
    noted = {"trace_id": "t1", "chunk_id": "c", "base_rank": 3, "origin": "base", "belief": 0.1}
    documents = [
        document.model_copy(update={"metadata": {"relevance_score": 2.0, "feedback": noted}})
        for document in handbook()[:3]
    ]
    retriever = DartboardRetriever(
        base_retriever=ListRetriever(documents=documents), embeddings=embeddings, k=3
    )
    for document in retriever.invoke(ASKED):
        feedback = document.metadata["feedback"]
        assert {name: feedback[name] for name in noted} == noted
        assert feedback["duplicates"] == []
        assert document.metadata["relevance_score"] < 2
    assert "duplicates" not in noted


def test_a20_numbers_are_plain(store, embeddings):
    documents = handbook(2)
    for document in documents:
        document.metadata["score"] = np.float32(0.5)
    retriever = DartboardRetriever(
        base_retriever=ListRetriever(documents=documents), embeddings=embeddings
    )
    for document in retriever.invoke(ASKED):
        assert json.loads(json.dumps(document.metadata)) == document.metadata
        assert type(document.metadata["relevance_score"]) is float
        [duplicate] = document.metadata["feedback"]["duplicates"]
        assert type(duplicate["similarity"]) is float


def test_scores_are_gains_and_never_increase(store):
    scores = [
        document.metadata["relevance_score"]
        for document in DartboardRetriever(vector_store=store, k=6).invoke(ASKED)
    ]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0


def test_copies_count_as_weight_and_are_reported(store):
    retriever = DartboardRetriever(vector_store=store, k=3)
    found = retriever.invoke(ASKED)
    kept_all = DartboardRetriever(
        vector_store=store, k=3, deduplicate=False, oversampling=20
    ).invoke(ASKED)
    everything = DartboardRetriever(vector_store=store, k=3, oversampling=20).invoke(ASKED)
    assert chunks(kept_all) == chunks(everything) == chunks(found)
    scores = [[d.metadata["relevance_score"] for d in some] for some in (kept_all, everything)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-9)
    for document in everything:
        names = {d["chunk_id"] for d in document.metadata["feedback"]["duplicates"]}
        chunk, number = document.id.split("/")
        assert names == {f"{chunk}/{at}" for at in range(5)} - {f"{chunk}/{number}"}


def test_the_first_copy_is_the_one_that_is_kept(embeddings):
    documents = handbook(3)
    retriever = DartboardRetriever(
        base_retriever=ListRetriever(documents=documents), embeddings=embeddings, k=12
    )
    assert {document.metadata["copy"] for document in retriever.invoke(ASKED)} == {0}


class Given(Embeddings):
    """Vectors by text."""

    def __init__(self, vectors):
        self.vectors = vectors

    def embed_documents(self, texts):
        return [self.vectors[text] for text in texts]

    def embed_query(self, text):
        return self.vectors[text]


def test_near_duplicates_are_reported_with_their_cosine():
    vectors = {"q": [1, 0.2, 0], "a": [1, 0, 0], "b": [1, 0.1, 0], "c": [1, 1, 0], "d": [0, 0, 1]}
    compressor = DartboardCompressor(embeddings=Given(vectors), k=4)
    documents = [Document(text, id=f"id-{text}") for text in "abcd"]
    found = {d.id: d for d in compressor.compress_documents(documents, "q")}
    [near] = found["id-a"].metadata["feedback"]["duplicates"]
    assert near == {"chunk_id": "id-b", "similarity": pytest.approx(1 / 1.01**0.5)}
    assert found["id-c"].metadata["feedback"]["duplicates"] == []
    wide = compressor.model_copy(update={"near_duplicate": 0.5})
    [first, *_] = wide.compress_documents(documents, "q")
    assert len(first.metadata["feedback"]["duplicates"]) == 2


def test_documents_without_a_direction_come_last_and_are_still_there():
    vectors = {"q": [1, 0], "empty": [0, 0], "a": [1, 0], "b": [0, 1]}
    compressor = DartboardCompressor(embeddings=Given(vectors), k=3)
    documents = [Document(text) for text in ("empty", "a", "b")]
    found = compressor.compress_documents(documents, "q")
    assert [document.page_content for document in found] == ["a", "b", "empty"]
    assert found[-1].metadata["relevance_score"] == 0


@pytest.mark.parametrize("vector", [[0, 0], [float("nan"), 1], [float("inf"), 1], None])
async def test_a_question_without_a_direction_keeps_the_order_and_is_told_once(vector, caplog):
    vectors = {"q": vector, "a": [1, 0], "b": [0, 1]}
    compressor = DartboardCompressor(embeddings=Given(vectors), k=2)
    documents = [Document(text) for text in ("b", "a", "b")]
    for found in (
        compressor.compress_documents(documents, "q"),
        await compressor.acompress_documents(documents, "q"),
    ):
        assert [document.page_content for document in found] == ["b", "a"]
        assert [document.metadata["relevance_score"] for document in found] == [0, 0]
    [told] = caplog.records
    assert "pool's order" in told.getMessage()
    assert "Given" in told.getMessage()


# -- the cross-encoder


class Scores:
    def __init__(self, scores):
        self.scores, self.pairs = scores, []

    def score(self, text_pairs):
        self.pairs += text_pairs
        return np.array([self.scores[text] for _, text in text_pairs], dtype=np.float32)


VECTORS = {"q": [1, 0, 0], "a": [1, 0, 0], "b": [0, 1, 0], "c": [0, 0, 1]}
DOCUMENTS = [Document("a"), Document("b"), Document("b"), Document("c")]


def test_a_cross_encoder_takes_the_questions_side():
    encoder = Scores({"a": 0.1, "b": 0.9, "c": 0.5})
    compressor = DartboardCompressor(embeddings=Given(VECTORS), cross_encoder=encoder, k=3)
    found = compressor.compress_documents(DOCUMENTS, "q")
    assert [document.page_content for document in found] == ["b", "c", "a"]
    assert encoder.pairs == [("q", "a"), ("q", "b"), ("q", "c")]


async def test_a_cross_encoders_logits():
    encoder = Scores({"a": -9.0, "b": 7.0, "c": 2.0})
    compressor = DartboardCompressor(embeddings=Given(VECTORS), cross_encoder=encoder, k=2)
    with pytest.raises(ValueError, match="score_scale='logit'"):
        compressor.compress_documents(DOCUMENTS, "q")
    with pytest.raises(ValueError, match="score_scale='logit'"):
        await compressor.acompress_documents(DOCUMENTS, "q")
    logits = compressor.model_copy(update={"score_scale": "logit"})
    found = logits.compress_documents(DOCUMENTS, "q")
    assert [document.page_content for document in found] == ["b", "c"]


def test_a_cross_encoder_that_loses_count_is_found_out():
    class Short(Scores):
        def score(self, text_pairs):
            return super().score(text_pairs)[:-1]

    encoder = Short({"a": 0.1, "b": 0.9, "c": 0.5})
    compressor = DartboardCompressor(embeddings=Given(VECTORS), cross_encoder=encoder)
    with pytest.raises(ValueError, match="2 scores for 3 texts"):
        compressor.compress_documents(DOCUMENTS, "q")


def test_a_score_that_is_no_number_puts_a_text_last():
    encoder = Scores({"a": 0.1, "b": np.nan, "c": 0.5})
    compressor = DartboardCompressor(embeddings=Given(VECTORS), cross_encoder=encoder)
    found = compressor.compress_documents(DOCUMENTS, "q")
    assert [document.page_content for document in found] == ["c", "a", "b"]


# -- every way to call


async def every_way(runnable, question, **options):
    """What each way to call returns."""
    return [
        runnable.invoke(question, **options),
        await runnable.ainvoke(question, **options),
        *runnable.batch([question, question], **options),
        *await runnable.abatch([question, question], **options),
        *runnable.stream(question, **options),
        *[found async for found in runnable.astream(question, **options)],
    ]


async def test_a22_every_way_to_call_gives_the_same(store, words, embeddings):
    retrievers = [
        DartboardRetriever(vector_store=store, k=3),
        DartboardRetriever(base_retriever=store.as_retriever(), k=3),
        DartboardRetriever(base_retriever=words, embeddings=embeddings, k=3),
        DartboardRetriever(
            base_retriever=words,
            embeddings=embeddings,
            cross_encoder=Scores({d.page_content: 1 / len(d.page_content) for d in handbook()}),
            k=3,
        ),
    ]
    for retriever in retrievers:
        found = await every_way(retriever, ASKED)
        assert len(found) == 8
        assert all(as_told(again) == as_told(found[0]) for again in found)
        assert len(found[0]) == 3


async def test_a22_options_of_a_call_reach_the_base(store):
    retriever = DartboardRetriever(vector_store=store, k=3)

    def allowed(document):
        return document.metadata["chunk"] in ("cancel", "sla", "keys", "reboot")

    found = await every_way(retriever, ASKED, k=2, filter=allowed)
    assert all(as_told(again) == as_told(found[0]) for again in found)
    assert len(found[0]) == 2
    assert set(chunks(found[0])) <= {"cancel", "sla", "keys", "reboot"}
    assert len(retriever.bind(k=1).invoke(ASKED)) == 1


async def test_a22_a_base_with_a_sync_hook_alone_gets_its_options_too(embeddings):
    class OnlySync(BaseRetriever):
        asked: list = Field(default_factory=list)

        def _get_relevant_documents(self, query, *, run_manager, k=1, shelf=None):
            self.asked.append((k, shelf))
            return handbook(5)[:k]

    base = OnlySync()
    retriever = DartboardRetriever(base_retriever=base, embeddings=embeddings, k=2)
    sync = retriever.invoke(ASKED, shelf="top")
    calls, base.asked = base.asked, []
    assert as_told(await retriever.ainvoke(ASKED, shelf="top")) == as_told(sync)
    assert base.asked == calls == [(6, "top")]


async def test_a22_callbacks_tags_and_metadata_reach_the_base(embeddings):
    base = ListRetriever(documents=handbook())
    retriever = DartboardRetriever(base_retriever=base, embeddings=embeddings, k=2)
    seen = []
    for call in ("sync", "async"):
        recorder = Recorder()
        config = {"callbacks": [recorder], "tags": ["t"], "metadata": {"feedback_trace_id": "x"}}
        if call == "sync":
            retriever.invoke(ASKED, config)
        else:
            await retriever.ainvoke(ASKED, config)
        seen.append([name for name, *_ in recorder.named("retriever")])
        _, _, metadata, tags = base.queries[-1]
        assert metadata["feedback_trace_id"] == "x"
        assert "t" in tags
    assert seen[0] == seen[1] == ["DartboardRetriever", "ListRetriever"]


async def test_a22_async_never_blocks_the_event_loop(store, words, embeddings):
    class Slow(TfidfEmbeddings):
        def embed_query(self, text):
            time.sleep(0.01)
            return super().embed_query(text)

    slow = Slow(words.vectorizer)
    retriever = DartboardRetriever(base_retriever=words, embeddings=slow, k=3)
    compressor = DartboardCompressor(vector_store=store, k=3)
    await retriever.ainvoke(ASKED)
    documents = handbook(2)
    with blockbuster_ctx():
        assert len(await retriever.ainvoke(ASKED)) == 3
        assert len(await compressor.acompress_documents(documents, ASKED)) == 3


async def test_the_compressor_fits_where_langchain_puts_compressors(store, words, embeddings):
    compressor = DartboardCompressor(embeddings=embeddings, k=3)
    pipeline = DocumentCompressorPipeline(transformers=[compressor])
    base = store.as_retriever(search_kwargs={"k": 60})
    expected = chunks(DartboardRetriever(vector_store=store, k=3).invoke(ASKED))
    for part in (compressor, pipeline):
        wrapped = ContextualCompressionRetriever(base_compressor=part, base_retriever=base)
        assert chunks(wrapped.invoke(ASKED)) == expected
        assert chunks(await wrapped.ainvoke(ASKED)) == expected
    assert list(compressor.compress_documents([], ASKED)) == []
    assert list(await compressor.acompress_documents([], ASKED)) == []
    assert list(compressor.model_copy(update={"k": 0}).compress_documents(handbook(), "q")) == []


def test_it_can_be_stacked_on_itself_and_on_a_compression_retriever(store, embeddings):
    inner = DartboardRetriever(vector_store=store, k=3)
    outer = DartboardRetriever(base_retriever=inner, k=2)
    assert chunks(outer.invoke(ASKED)) == chunks(inner.invoke(ASKED))[:2]
    assert all("duplicates" in d.metadata["feedback"] for d in outer.invoke(ASKED))


def test_nothing_is_logged_where_nothing_is_wrong(store, caplog):
    with caplog.at_level(logging.WARNING):
        DartboardRetriever(vector_store=store, k=3).invoke(ASKED)
    assert caplog.records == []
