"""The feedback retriever: order, copies, `k` and options, and that all ways to call agree."""

import asyncio
import contextvars
import copy
import json
import threading

import numpy as np
import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import ValidationError

from langchain_feedback import (
    FeedbackRetriever,
    create_reliable_rag,
    trace_id_of,
)
from langchain_feedback.ranking.kernels import CalibratedKernel, ExactKernel
from langchain_feedback.ranking.policies import AverageRating, KernelBelief, WilsonFusion
from langchain_feedback.ranking.views import Scores
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.fakes import ListRetriever, Recorder
from tests.unit_tests.retrievers.feedback_kit import (
    MONEY,
    REFUND,
    SERVER,
    AngleEmbeddings,
    chunks,
    ids,
    marks,
    run,
    vote,
    wrap,
)


class TestOrder:
    def test_without_feedback_it_is_the_bases(self, store):
        found = wrap(store).invoke(REFUND)
        assert ids(found) == ["c0", "c1", "c2"]
        assert [marks(one)["base_rank"] for one in found] == [0, 1, 2]
        assert {marks(one)["multiplier"] for one in found} == {1.0}
        assert {marks(one)["belief"] for one in found} == {0.0}

    def test_a_rating_changes_the_next_retrieval(self, store):
        retriever = wrap(store)
        vote(retriever, "c4", times=3)
        found = retriever.invoke("how long does a refund take")
        assert ids(found) == ["c4", "c0", "c1"]
        assert marks(found[0]) | {"trace_id": "t"} == {
            "trace_id": "t",
            "chunk_id": "c4",
            "base_rank": 4,
            "origin": "base",
            "belief": pytest.approx(0.6, abs=1e-3),
            "multiplier": pytest.approx(1.4, abs=1e-3),
        }
        scores = [one.metadata["relevance_score"] for one in found]
        assert scores == sorted(scores, reverse=True)

    def test_and_so_for_similar_questions_but_not_for_others(self, store):
        retriever = wrap(store)
        vote(retriever, "c4", times=3)
        near, far = retriever.invoke(MONEY), retriever.invoke(SERVER)
        assert ids(near)[0] == "c4"
        assert 0 < marks(near[0])["belief"] < 0.6
        assert ids(far) == ["c0", "c1", "c2"]

    def test_a_bad_rating_moves_it_down(self, store):
        retriever = wrap(store)
        vote(retriever, "c0", rating=1, times=2)
        found = retriever.invoke(REFUND)
        assert ids(found) == ["c1", "c2", "c3"]

    def test_a_copy_of_a_chunk_in_the_base_is_dropped_and_the_first_kept(self, store):
        first, second = chunks(2)
        found = wrap(store, [first, second, first, Document("Other text.", id="c0")]).invoke("q")
        assert ids(found) == ["c0", "c1"]
        assert found[0].page_content == "Text 0."

    def test_copies_of_one_text_under_two_ids_share_their_feedback(self, store):
        documents = [*chunks(4), Document("Text 3.", id="copy", metadata={"source": "3.md"})]
        retriever = wrap(store, documents)
        vote(retriever, "c3", times=4)
        assert ids(retriever.invoke(REFUND)) == ["c3", "copy", "c0"]

    @pytest.mark.parametrize("found", [None, []])
    def test_an_empty_result_is_recorded_too(self, store, found):
        retriever = FeedbackRetriever(base_retriever=RunnableLambda(lambda _: found), store=store)
        trace_id = "00000000-0000-7000-8000-000000000001"
        assert retriever.invoke(REFUND, run(feedback_trace_id=trace_id)) == []
        record = store.trace(trace_id)
        assert (record.question, record.chunks) == (REFUND, ())
        store.rate(trace_id, 1)

    def test_what_the_base_raises_is_raised(self, store):
        def broken(_):
            msg = "the index is away"
            raise OSError(msg)

        retriever = FeedbackRetriever(base_retriever=RunnableLambda(broken), store=store)
        with pytest.raises(OSError, match="the index is away"):
            retriever.invoke(REFUND)

    def test_something_else_than_documents_is_refused(self, store):
        base = RunnableLambda(lambda _: ["text"])
        with pytest.raises(TypeError, match="Expected a langchain_core Document, got str"):
            FeedbackRetriever(base_retriever=base, store=store).invoke(REFUND)

    def test_a_blank_question_gets_the_bases_answer(self, store, caplog):
        assert ids(wrap(store).invoke("  ")) == ["c0", "c1", "c2"]
        assert not caplog.records


class TestPolicies:
    def test_the_classic_rule(self, store):
        retriever = wrap(store, policy=AverageRating(), inject=0)
        vote(retriever, "c2", rating=5)
        vote(retriever, "c0", rating=1)
        found = retriever.invoke(REFUND)
        assert ids(found) == ["c2", "c1", "c3"]
        shown = [marks(one)["multiplier"] for one in found]
        assert shown == pytest.approx([5 / 3, 1, 1])

    def test_the_classic_rule_over_all_questions(self, store):
        vote(wrap(store), "c2", question=SERVER)
        assert ids(wrap(store, policy=AverageRating()).invoke(REFUND))[0] == "c0"
        assert ids(wrap(store, policy=AverageRating("all")).invoke(REFUND))[0] == "c2"

    def test_wilson_fusion_counts_whatever_the_question_was(self, store):
        vote(wrap(store), "c1", question=SERVER, times=40)
        found = wrap(store, policy=WilsonFusion()).invoke(REFUND)
        assert marks(found[ids(found).index("c1")])["multiplier"] > 1

    def test_quality_reads_the_documents(self, store):
        documents = chunks()
        documents[1].metadata["stars"] = 1.0
        policy = WilsonFusion(quality=lambda document: document.metadata.get("stars"))
        scored = wrap(store, documents, policy=policy).invoke(REFUND)
        plain = wrap(store, documents, policy=WilsonFusion()).invoke(REFUND)
        score = {
            name: {one.id: one.metadata["relevance_score"] for one in found}["c1"]
            for name, found in (("scored", scored), ("plain", plain))
        }
        assert score["scored"] > score["plain"]

    def test_a_policy_of_ones_own(self, store):
        class Backwards:
            needs = "evidence"

            def score(self, candidates, view):
                assert view.candidates == len(candidates) == len(candidates.documents)
                rank = candidates.base_rank.astype(float)
                return Scores(rank, rank * 0, rank * 0 + 1)

        assert ids(wrap(store, policy=Backwards()).invoke(REFUND)) == ["c5", "c4", "c3"]

    @pytest.mark.parametrize(
        "policy", [AverageRating(), WilsonFusion(), KernelBelief(ExactKernel())]
    )
    def test_none_of_these_embeds_the_question(self, store, embeddings, policy):
        wrap(store, policy=policy).invoke(REFUND)
        assert embeddings.asked == []

    def test_the_default_embeds_it_once(self, store, embeddings):
        retriever = wrap(store)
        retriever.invoke(REFUND)
        assert embeddings.asked == [REFUND]
        embeddings.asked.clear()
        vote(retriever, "c4")
        assert embeddings.asked == [REFUND]

    def test_a_kernel_of_another_embedder_is_refused(self, store):
        kernel = CalibratedKernel([(0.5, 0.0), (0.9, 0.8)], embedder="another")
        with pytest.raises(ValidationError, match="fitted for the embedder 'another'"):
            wrap(store, policy=KernelBelief(kernel))


class TestIdentityOfResults:
    """A07, A08, A20: copies, keys, plain numbers."""

    def test_a07_objects_of_the_base_are_never_changed(self, store):
        documents = chunks()
        documents[0].metadata["tags"] = ["a"]
        before = copy.deepcopy(documents)
        retriever = wrap(store, documents)
        vote(retriever, "c0")
        found = retriever.invoke(REFUND)
        assert documents == before
        assert (found[0].id, found[0].type) == ("c0", "Document")
        found[0].metadata["tags"].append("b")
        assert documents == before

    def test_a07_faiss_gives_the_same_twice_and_in_threads(self, store):
        pytest.importorskip("faiss")
        from langchain_community.vectorstores import FAISS  # noqa: PLC0415

        index = FAISS.from_documents(chunks(), DeterministicFakeEmbedding(size=8))
        live = {key: copy.deepcopy(one) for key, one in index.docstore._dict.items()}
        base = index.as_retriever()
        retriever = FeedbackRetriever(
            base_retriever=base, store=store, policy=AverageRating(), inject=0
        )
        rated = base.invoke(REFUND)[-1].id
        vote(retriever, rated)
        expected = retriever.invoke(REFUND)
        assert (expected[0].id, marks(expected[0])["multiplier"]) == (rated, pytest.approx(5 / 3))
        results = {}

        def call(at):
            results[at] = retriever.invoke(REFUND)

        threads = [threading.Thread(target=call, args=(at,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same = [without_trace(found) for found in results.values()]
        assert same == [without_trace(expected)] * 8
        assert index.docstore._dict == live

    def test_a08_every_kind_of_identity_is_told_apart(self, store):
        opening = "The same opening. " * 20
        documents = [
            Document(f"{opening}One.", metadata={"source": "a", "score": 0.1}),
            Document(f"{opening}Two.", metadata={"source": "a", "nested": {"list": [1, {}]}}),
            Document("Three.", metadata={"_id": "qdrant"}),
            Document("Four.", id="four", metadata={"id": "disagrees"}),
        ]
        retriever = wrap(store, documents, k=4)
        found = retriever.invoke(REFUND)
        keys = [marks(one)["chunk_id"] for one in found]
        assert len(set(keys)) == 4
        assert keys[2:] == ["qdrant", "four"]
        # The same chunk with another score is the same chunk.
        store.rate(trace_id_of(found), 5, target=found[1])
        documents[0].metadata["score"] = documents[1].metadata["score"] = 0.9
        again = retriever.invoke(REFUND)
        (liked,) = [one for one in again if marks(one)["belief"] > 0]
        assert liked.page_content.endswith("Two.")

    def test_a08_a_field_that_holds_the_id(self, store):
        documents = [Document(f"Text {at}.", metadata={"key": f"k{at}"}) for at in range(5)]
        retriever = wrap(store, documents, id_field="key")
        vote(retriever, "k3", times=3)
        found = retriever.invoke(REFUND)
        assert [marks(one)["chunk_id"] for one in found] == ["k3", "k0", "k1"]

    def test_a20_numbers_are_plain_python(self, store):
        documents = chunks()
        documents[0].metadata |= {
            "score": np.float32(0.5),
            "kept": np.bool_(1),
            "at": [np.int64(3)],
        }
        found = wrap(store, documents).invoke(REFUND)
        json.dumps([one.metadata for one in found])
        first = found[0].metadata
        assert [type(first[key]) for key in ("score", "kept")] == [float, bool]
        assert first["at"] == [3]
        assert type(first["at"][0]) is int
        assert type(first["relevance_score"]) is float
        assert isinstance(documents[0].metadata["score"], np.float32)

    def test_a20_a_graph_with_a_checkpointer_keeps_them(self, store):
        documents = chunks()
        documents[0].metadata["score"] = np.float32(0.5)
        graph = create_reliable_rag(wrap(store, documents), "offline")
        graph.checkpointer = InMemorySaver()
        config = {"configurable": {"thread_id": "1"}}
        graph.invoke({"question": "What does text 1 say?"}, config)
        kept = graph.get_state(config).values["documents"]
        assert ids(kept) == ["c0", "c1", "c2"]
        json.dumps([one.metadata for one in kept])


def without_trace(documents):
    plain = []
    for document in documents:
        kept = copy.deepcopy(document)
        del kept.metadata["feedback"]["trace_id"]
        plain.append(kept)
    return plain


class TestA09:
    """The base's order counts, or a declared direction, never a raw score of its own."""

    @pytest.mark.parametrize(
        ("scores", "settings"),
        [
            ((0.0, 2.5, 10.2), {}),
            ((1.0, -6.2, -12.7), {}),
            ((0.0, 2.5, 10.2), {"score_key": "score", "score_direction": "lower"}),
            ((1.0, -6.2, -12.7), {"score_key": "score"}),
            ((0.0, 2.5, 10.2), {"score_key": "score", "score_direction": "higher"}),
        ],
    )
    def test_a09_a_liked_chunk_never_moves_down_nor_a_disliked_one_up(
        self, store, scores, settings
    ):
        documents = chunks(3)
        for document, score in zip(documents, scores, strict=True):
            document.metadata["score"] = score
        retriever = wrap(store, documents, policy=KernelBelief(**settings))
        assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
        vote(retriever, "c2", times=4)
        assert ids(retriever.invoke(REFUND))[0] == "c2"
        vote(retriever, "c0", rating=1, question=SERVER, times=4)
        assert ids(retriever.invoke(SERVER))[0] != "c0"

    @given(
        at=st.integers(0, 7),
        rating=st.sampled_from([1, 2, 4, 5]),
        times=st.integers(1, 4),
        others=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 5)), max_size=3),
    )
    @settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
    def test_a09_whatever_others_said(self, at, rating, times, others):
        store = FeedbackStore("sqlite://", timeout_s=20)
        retriever = wrap(store, chunks(8), k=8)
        for number, (other, given_) in enumerate(others):
            vote(retriever, f"c{other}", given_, actor=f"other{number}-")
        before = ids(retriever.invoke(REFUND)).index(f"c{at}")
        vote(retriever, f"c{at}", rating, times=times)
        after = ids(retriever.invoke(REFUND)).index(f"c{at}")
        store.close()
        assert after <= before if rating > 3 else after >= before


class TestK:
    def test_it_is_4_unless_said_otherwise(self, store):
        retriever = FeedbackRetriever(
            base_retriever=ListRetriever(documents=chunks()), store=store
        )
        assert len(retriever.invoke(REFUND)) == 4
        assert len(wrap(store, k=2).invoke(REFUND)) == 2

    def test_the_base_is_asked_for_more(self, store):
        retriever = wrap(store)
        retriever.invoke(REFUND)
        retriever.invoke(REFUND, k=8)
        assert [asked[1] for asked in retriever.base_retriever.queries] == [20, 32]
        wide = wrap(store, fetch_k=5)
        assert len(wide.invoke(REFUND, k=6)) == 5
        assert wide.base_retriever.queries[0][1] == 5

    def test_a_base_that_returns_more_than_asked_for_is_cut(self, store):
        base = RunnableLambda(lambda _: chunks(50))
        retriever = FeedbackRetriever(base_retriever=base, store=store, k=2, fetch_k=4)
        record = store.trace(trace_id_of(retriever.invoke(REFUND)))
        assert len(record.chunks) == 4

    @pytest.mark.parametrize("k", [0, -1])
    async def test_less_than_one_is_refused(self, store, k):
        with pytest.raises(ValueError, match=f"k must be at least 1, not {k}"):
            wrap(store).invoke(REFUND, k=k)
        with pytest.raises(ValueError, match=f"k must be at least 1, not {k}"):
            await wrap(store).ainvoke(REFUND, k=k)
        with pytest.raises(ValueError, match="greater than or equal to 1"):
            wrap(store, k=k)

    @pytest.mark.parametrize("k", ["3", 2.0])
    def test_something_else_than_a_whole_number_is_refused(self, store, k):
        with pytest.raises(TypeError):
            wrap(store).invoke(REFUND, k=k)

    def test_numpys_numbers_are_welcome(self, store):
        assert len(wrap(store).invoke(REFUND, k=np.int64(2))) == 2


class TestA22:
    """Every way to call gives the same, and options, callbacks and config reach the base."""

    async def test_a22_all_ways_agree(self, store):
        retriever = wrap(store)
        vote(retriever, "c4", times=2)
        expected = without_trace(retriever.invoke(REFUND, k=2))
        assert ids(expected) == ["c4", "c0"]
        results = [
            await retriever.ainvoke(REFUND, k=2),
            *retriever.batch([REFUND] * 3, k=2),
            *await retriever.abatch([REFUND] * 3, k=2),
            *retriever.stream(REFUND, k=2),
            *[part async for part in retriever.astream(REFUND, k=2)],
            retriever.bind(k=2).invoke(REFUND),
            await retriever.bind(k=2).ainvoke(REFUND),
            (RunnablePassthrough() | retriever.bind(k=2)).invoke(REFUND),
        ]
        assert [without_trace(found) for found in results] == [expected] * len(results)
        assert len({trace_id_of(found) for found in results}) == len(results)

    async def test_a22_other_options_reach_the_base(self, store):
        seen = []

        def search(query, k=None, filter=None):  # noqa: A002
            seen.append((k, filter))
            return chunks()[:k]

        retriever = FeedbackRetriever(base_retriever=RunnableLambda(search), store=store)
        retriever.invoke(REFUND, filter="a")
        await retriever.ainvoke(REFUND, filter="a", k=6)
        retriever.batch([REFUND], filter="a")
        assert seen == [(20, "a"), (24, "a"), (20, "a")]

    def test_a22_an_option_of_the_caller_wins_over_the_over_fetch(self, store):
        seen = []

        def search(query, top_k=None):
            seen.append(top_k)
            return chunks()[:top_k]

        base = RunnableLambda(search)
        retriever = FeedbackRetriever(base_retriever=base, store=store, base_k_arg="top_k")
        assert len(retriever.invoke(REFUND, top_k=2)) == 2
        assert seen == [2]

    async def test_a22_callbacks_tags_and_metadata_reach_the_base(self, store):
        retriever = wrap(store)
        config = {"tags": ["mine"], "metadata": {"user_id": "ann", "team": "x"}}
        for call in ("invoke", "ainvoke"):
            recorder = Recorder()
            given_ = config | {"callbacks": [recorder]}
            if call == "invoke":
                retriever.invoke(REFUND, given_)
            else:
                await retriever.ainvoke(REFUND, given_)
            outer, inner = recorder.named("retriever")
            assert (outer[0], inner[0]) == ("FeedbackRetriever", "ListRetriever")
            assert "mine" in inner[1]
            assert inner[2]["team"] == "x"

    async def test_a22_the_whole_config_reaches_the_base(self, store):
        seen = []

        def search(query, config):
            seen.append((config["configurable"]["tenant"], config["metadata"]["team"]))
            return chunks()

        retriever = FeedbackRetriever(base_retriever=RunnableLambda(search), store=store)
        config = {"configurable": {"tenant": "t"}, "metadata": {"team": "x"}}
        retriever.invoke(REFUND, config)
        await retriever.ainvoke(REFUND, config)
        assert seen == [("t", "x")] * 2

    def test_a22_a_base_with_configurable_fields(self, store):
        index = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
        index.add_documents(chunks())
        base = index.as_retriever().configurable_fields(search_kwargs=ConfigurableField("search"))
        retriever = FeedbackRetriever(base_retriever=base, store=store, k=6)
        only = {"filter": lambda document: document.id == "c3"}
        assert len(retriever.invoke(REFUND)) == 6
        assert ids(retriever.invoke(REFUND, {"configurable": {"search": only}})) == ["c3"]

    async def test_a22_nothing_blocks_the_event_loop(self, store):
        retriever = wrap(store, resolve=lambda _: [], allow=lambda *_: True)
        vote(retriever, "c4")
        trace_id = trace_id_of(retriever.invoke(REFUND))
        # Compiled once, as imports are, before anything watches.
        await retriever.ainvoke(REFUND, run(feedback_trace_id="first"))
        with blockbuster_ctx():
            await retriever.ainvoke(REFUND, run(feedback_trace_id="given"))
            await asyncio.gather(*(retriever.ainvoke(REFUND) for _ in range(5)))
            await retriever.aexplain(trace_id)

    async def test_a17_one_store_serves_threads_and_event_loops(self, store):
        retriever = wrap(store)
        vote(retriever, "c4")
        expected = without_trace(retriever.invoke(REFUND))
        results = retriever.batch([REFUND] * 20)
        results += await asyncio.gather(*(retriever.ainvoke(REFUND) for _ in range(20)))

        def another_loop():
            results.append(asyncio.run(retriever.ainvoke(REFUND)))

        thread = threading.Thread(target=another_loop)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert [without_trace(found) for found in results] == [expected] * 41
        assert all(store.trace(trace_id_of(found)) for found in results)
        store.close()
        store.close()


class TestConstruction:
    @pytest.mark.parametrize("part", ["base_retriever", "fallback_retriever"])
    def test_a_function_is_refused_with_what_to_do(self, store, part):
        parts = {"base_retriever": ListRetriever(documents=[]), part: lambda _: []}
        with pytest.raises(ValidationError, match="wrap a function in `RunnableLambda`"):
            FeedbackRetriever(store=store, **parts)

    def test_a_base_is_needed(self, store):
        with pytest.raises(ValidationError, match="base_retriever"):
            FeedbackRetriever(base_retriever=None, store=store)

    @pytest.mark.parametrize("part", ["allow", "resolve"])
    def test_coroutine_functions_are_refused(self, store, part):
        async def function(*_):
            return []

        with pytest.raises(ValidationError, match="plain function"):
            wrap(store, **{part: function})

    def test_a_policy_that_is_none(self, store):
        with pytest.raises(ValidationError, match="RankingPolicy"):
            wrap(store, policy="average")

        class Unknown:
            needs = "chunk_days"

            def score(self, candidates, view):
                raise NotImplementedError

        with pytest.raises(ValidationError, match=r"policy\.needs must be one of"):
            wrap(store, policy=Unknown())

    def test_the_default_policy_is_ones_own(self, store):
        assert wrap(store).policy == KernelBelief()

    def test_its_text_form_is_short(self, store):
        assert "AngleEmbeddings" not in repr(wrap(store))


def test_a_rebuilt_index_with_new_random_ids_keeps_its_feedback(store):
    embeddings = DeterministicFakeEmbedding(size=8)

    def index():
        # Without ids of its own this store makes random ones.
        made = InMemoryVectorStore(embeddings)
        made.add_documents(
            [Document(f"Text {at}.", metadata={"source": f"{at}.md"}) for at in range(40)]
        )
        return FeedbackRetriever(
            base_retriever=made.as_retriever(), store=store, k=4, resolve=made.get_by_ids
        )

    first = index()
    found = first.invoke(REFUND)
    for number in range(3):
        store.rate(trace_id_of(found), 5, target=found[3], actor=f"u{number}")
    again = index().invoke(REFUND)
    assert again[0].page_content == found[3].page_content
    assert again[0].id != found[3].id
    assert marks(again[0])["belief"] == pytest.approx(0.6, abs=1e-3)


def test_run_context_does_not_leak(store):
    """The hidden way of the config leaves no trace in the options."""
    seen = []

    def search(query, **options):
        seen.append(options)
        return chunks()

    wrapped = FeedbackRetriever(base_retriever=RunnableLambda(search), store=store)
    contextvars.copy_context().run(wrapped.invoke, REFUND)
    assert seen == [{}]


def test_embeddings_that_fail_leave_the_exact_match(store, embeddings, caplog):
    retriever = wrap(store)
    vote(retriever, "c4", times=3)

    class Broken(AngleEmbeddings):
        def embed_query(self, text):
            msg = "quota"
            raise ConnectionError(msg)

    store.embeddings = Broken()
    assert ids(retriever.invoke(REFUND))[0] == "c4"
    assert ids(retriever.invoke(MONEY))[0] == "c0"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "only the identical question's feedback counts: ConnectionError" in caplog.text


@pytest.mark.parametrize("vector", [[], [float("nan"), 1.0]])
def test_a_vector_that_is_none_counts_as_a_failure(store, vector):
    retriever = wrap(store)
    vote(retriever, "c4", times=3)

    class Odd(AngleEmbeddings):
        def embed_query(self, text):
            return vector

    store.embeddings = Odd()
    found = retriever.invoke(REFUND)
    assert ids(found)[0] == "c4"
    assert store.trace(trace_id_of(found))
