"""Fold-back: accepted questions bring their sources along, until a source changes."""

from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.runnables import RunnableLambda, RunnableParallel
from sqlalchemy import select, update

from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of
from langchain_feedback.documents import is_derived
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading, writing
from tests.fakes import ListRetriever
from tests.unit_tests.index.foldback_kit import (
    EDITED,
    MONEY,
    REFUND,
    RIGHT,
    SECOND,
    SERVER,
    WEATHER,
    Angles,
    World,
    ids,
    others,
    two_objects,
)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    url = f"sqlite:///{tmp_path}/feedback.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    with FeedbackStore(url, embeddings=Angles(), timeout_s=20) as store:
        yield store


@pytest.fixture(params=["memory", "faiss"])
def world(request, store):
    if request.param == "faiss":
        pytest.importorskip("faiss")
        pytest.importorskip("langchain_community")
    return World(store, request.param)


@pytest.fixture
def plain(tmp_path):
    """A world on SQLite and in memory, for what depends on neither."""
    url = f"sqlite:///{tmp_path}/feedback.db"
    with FeedbackStore(url, embeddings=Angles(), timeout_s=20) as store:
        yield World(store)


def texts(documents):
    return [document.page_content for document in documents]


class TestTheExtraSlot:
    def test_a_question_like_an_accepted_one_gets_its_source_after_the_k_chunks(self, world):
        foldback = world.served()
        without = world.retriever().invoke(MONEY)
        found = world.retriever(foldback=foldback).invoke(MONEY)
        assert ids(found) == [*ids(without), "right"]
        assert len(without) == 2
        assert found[-1].metadata["source"] == "terms.md"
        assert not is_derived(found[-1])

    def test_check6_documents_of_unrelated_questions_are_identical_with_and_without(self, world):
        foldback = world.served()
        for question in (SERVER, WEATHER):
            without = world.retriever().invoke(question)
            found = world.retriever(foldback=foldback).invoke(question)
            assert texts(found) == texts(without)
            assert [one.metadata["relevance_score"] for one in found] == [
                one.metadata["relevance_score"] for one in without
            ]

    def test_check6_the_k_chunks_of_related_questions_are_those_without(self, world):
        foldback = world.served(world.foldback(serve="answer"))
        for question in (REFUND, MONEY):
            without = world.retriever().invoke(question)
            found = world.retriever(foldback=foldback).invoke(question)
            assert texts(found[:2]) == texts(without)

    async def test_async_is_the_same(self, plain):
        foldback = plain.served()
        retriever = plain.retriever(foldback=foldback)
        assert ids(await retriever.ainvoke(MONEY)) == ids(retriever.invoke(MONEY))
        assert ids(await foldback.alookup(MONEY)) == ["right"]

    def test_what_is_shown_already_is_not_shown_twice(self, plain):
        foldback = plain.served()
        plain.primary.add_documents([RIGHT])
        base = ListRetriever(documents=[RIGHT, *others()])
        retriever = FeedbackRetriever(
            base_retriever=base, store=plain.store, k=2, foldback=foldback
        )
        assert ids(retriever.invoke(MONEY)) == ["right", "c0"]

    def test_a_chunk_further_down_the_pool_moves_up_into_the_slot(self, plain):
        foldback = plain.served()
        base = ListRetriever(documents=[*others()[:3], RIGHT, *others()[3:]])
        retriever = FeedbackRetriever(
            base_retriever=base, store=plain.store, k=2, foldback=foldback
        )
        found = retriever.invoke(MONEY)
        assert ids(found) == ["c0", "c1", "right"]
        assert found[-1].metadata["feedback"]["base_rank"] == 3
        shown = plain.store.trace(trace_id_of(found)).chunks
        assert [(one.chunk_id, one.final_rank) for one in shown if one.returned] == [
            ("c0", 0), ("c1", 1), ("right", 2),
        ]  # fmt: skip
        assert sorted(one.final_rank for one in shown) == list(range(7))

    def test_the_trace_knows_the_slot_so_that_it_can_be_rated_and_explained(self, plain):
        foldback = plain.served()
        retriever = plain.retriever(foldback=foldback)
        found = retriever.invoke(MONEY)
        trace_id = trace_id_of(found)
        plain.store.rate(trace_id, 5, target=found[-1])
        plain.store.update_trace(trace_id, cited=[found[-1]])
        last = [one for one in retriever.explain(trace_id) if one["returned"]][-1]
        assert (last["chunk_id"], last["origin"], last["base_rank"]) == ("right", "foldback", None)
        assert "accepted answer" in last["why"]

    def test_least_similarity_is_a_cosine(self, plain):
        foldback = plain.served()
        near = plain.foldback(min_similarity=0.81)
        far = plain.foldback(min_similarity=0.83)
        assert (ids(near.lookup(MONEY)), far.lookup(MONEY)) == (["right"], [])
        assert ids(far.lookup(REFUND)) == ["right"]
        assert foldback.lookup("  ") == []

    def test_a_function_of_ones_own_decides_who_may_see_a_source(self, plain):
        foldback = plain.served()
        asked = []

        def allow(document, run):
            asked.append(document.id)
            return run.get("user_id") == "ann"

        retriever = plain.retriever(foldback=foldback, allow=allow)
        assert ids(retriever.invoke(MONEY, {"metadata": {"user_id": "ann"}}))[-1] == "right"
        assert "right" not in ids(retriever.invoke(MONEY, {"metadata": {"user_id": "bob"}}))
        assert set(asked) == {"right"}

    def test_without_it_nothing_is_added_where_options_may_keep_tenants_apart(self, plain):
        retriever = plain.retriever(foldback=plain.served())
        found = retriever.invoke(MONEY, filter=lambda _: True)
        assert "right" not in ids(found)

    def test_a_gate_hides_it_too(self, plain):
        class Hides:
            def hidden(self, documents):
                return {at: ["x"] for at, one in enumerate(documents) if one.id == "right"}

        retriever = plain.retriever(foldback=plain.served(), gate=Hides())
        assert "right" not in ids(retriever.invoke(MONEY))

    def test_another_namespace_has_its_own(self, plain):
        foldback = plain.served()
        other = World(plain.store.scoped("other"))
        other.questions = plain.questions
        assert other.foldback().lookup(REFUND) == []
        assert ids(foldback.lookup(REFUND)) == ["right"]

    def test_a_broken_index_of_questions_costs_the_slot_only(self, plain, caplog):
        foldback = plain.served()
        plain.questions.similarity_search_by_vector = None
        found = plain.retriever(foldback=foldback).invoke(MONEY)
        assert len(found) == 2
        assert "extra slot stays empty" in caplog.text

    def test_a_store_that_is_away_costs_the_slot_only(self, plain, monkeypatch):
        foldback = plain.served()
        retriever = plain.retriever(foldback=foldback)
        monkeypatch.setattr(
            "langchain_feedback.index._foldback.lookup.read_derived", lambda *_, **__: 1 / 0
        )
        assert len(retriever.invoke(MONEY)) == 2


class TestASourceThatChanges:
    """Hidden on the next query, and no job has run."""

    def test_check6_edited_in_the_index(self, world):
        foldback = world.served()
        retriever = world.retriever(foldback=foldback)
        assert ids(retriever.invoke(MONEY))[-1] == "right"
        world.replace(EDITED)
        assert "right" not in ids(retriever.invoke(MONEY))
        assert foldback.list()[0].status == "active"

    def test_the_retriever_may_know_the_index_as_well(self, plain):
        foldback = plain.served(plain.foldback())
        retriever = plain.retriever(foldback=foldback, resolve=plain.primary.get_by_ids)
        plain.replace(EDITED)
        assert "right" not in ids(retriever.invoke(MONEY))

    def test_check6_removed_from_the_index(self, world):
        foldback = world.served()
        world.primary.delete(["right"])
        assert "right" not in ids(world.retriever(foldback=foldback).invoke(MONEY))

    def test_without_access_to_the_index_what_this_very_search_returned_tells(self, plain):
        foldback = plain.served(plain.foldback())
        base = ListRetriever(documents=[*others()[:3], EDITED])
        retriever = FeedbackRetriever(
            base_retriever=base, store=plain.store, k=2, foldback=foldback
        )
        assert "right" not in ids(retriever.invoke(MONEY))

    def test_or_what_another_search_returned_before(self, world):
        foldback = world.served(world.foldback())
        world.store.record_trace("another", SERVER, [EDITED])
        assert "right" not in ids(world.retriever(foldback=foldback).invoke(MONEY))

    @pytest.mark.parametrize("status", ["missing", "demoted", "retired"])
    def test_a_chunk_that_upkeep_took_out(self, world, status):
        foldback = world.served(world.foldback())
        with writing(world.store) as (connection, _):
            this = update(chunks).where(chunks.c.chunk_id == "right")
            connection.execute(this.values(status=status))
        assert foldback.lookup(MONEY) == []

    def test_a_chunk_that_was_forgotten(self, plain):
        foldback = plain.served(plain.foldback())
        plain.store.forget_chunks(["right"])
        assert foldback.lookup(MONEY) == []

    def test_the_same_text_under_a_new_id_is_the_same_source(self, plain):
        foldback = plain.served()
        again = RIGHT.model_copy(update={"id": "rebuilt"})
        plain.primary.delete(["right"])
        plain.primary.add_documents([again])
        plain.store.record_trace("another", SERVER, [again])
        assert ids(foldback.lookup(MONEY)) == ["rebuilt"]

    def test_being_served_does_not_keep_a_snapshot_young(self, plain):
        foldback = plain.served(plain.foldback())
        retriever = plain.retriever(foldback=foldback)

        def seen(age):
            with writing(plain.store) as (connection, _):
                this = update(chunks).where(chunks.c.chunk_id == "right")
                connection.execute(this.values(last_seen=datetime.now(UTC) - timedelta(days=age)))

        seen(29)
        assert ids(retriever.invoke(MONEY))[-1] == "right"
        with reading(plain.store) as connection:
            last = connection.execute(
                select(chunks.c.last_seen).where(chunks.c.chunk_id == "right")
            ).scalar_one()
        assert datetime.now(UTC) - last > timedelta(days=28)
        seen(31)
        assert "right" not in ids(retriever.invoke(MONEY))

    def test_all_sources_of_an_answer_must_stand(self, plain):
        foldback = plain.served(cited=(RIGHT, SECOND))
        assert ids(foldback.lookup(MONEY)) == ["right"]
        plain.primary.delete(["second"])
        assert foldback.lookup(MONEY) == []

    def test_an_index_that_fails_costs_the_slot_only(self, plain, caplog):
        def away(_):
            msg = "away"
            raise ConnectionError(msg)

        plain.served()
        foldback = plain.foldback(resolve=away)
        assert len(plain.retriever(foldback=foldback).invoke(MONEY)) == 2
        assert not foldback.plan()


class TestAnswers:
    """`serve="answer"`: the answer comes last, marked, and is nobody's source."""

    def served(self, world, **more):
        return world.served(world.foldback(serve="answer"), **more)

    def test_its_sources_come_first_and_it_comes_last(self, world):
        foldback = self.served(world, cited=(RIGHT, SECOND))
        found = world.retriever(foldback=foldback).invoke(MONEY)
        assert ids(found)[2:4] == ["right", "second"]
        assert found[4].page_content == f"{REFUND}\nIt takes 14 days."
        assert [is_derived(one) for one in found] == [False] * 4 + [True]
        assert found[4].metadata["derived"] is True
        assert found[4].metadata["feedback"]["trace_id"] == trace_id_of(found)

    def test_it_is_never_a_candidate_of_anything(self, world):
        foldback = self.served(world)
        retriever = world.retriever(foldback=foldback)
        for _ in range(3):
            found = retriever.invoke(MONEY)
            trace = world.store.trace(trace_id_of(found))
            world.store.rate(trace.trace_id, 5, actor="ann")
        assert {one.chunk_id for one in trace.chunks} <= {*ids(others()), "right", "second"}
        with reading(world.store) as connection:
            kept = connection.execute(select(chunks.c.text)).scalars().all()
        assert not [text for text in kept if "It takes 14 days." in text]

    def test_one_whose_source_may_not_be_seen_is_not_served(self, plain):
        foldback = self.served(plain, cited=(RIGHT, SECOND))
        assert foldback.lookup(MONEY, allow=lambda one: one.id == "right") == []

    def test_check6_it_never_takes_a_slot_though_a_base_returns_it(self, plain):
        foldback = self.served(plain)
        [answer] = [one for one in foldback.lookup(MONEY) if is_derived(one)]
        question = plain.questions.get_by_ids([foldback.list()[0].derived_id])[0]
        base = ListRetriever(documents=[answer, question, *others()])
        for slot in (None, foldback):
            retriever = FeedbackRetriever(
                base_retriever=base, store=plain.store, k=3, foldback=slot
            )
            assert ids(retriever.invoke(SERVER)) == ["c0", "c1", "c2"]
            assert not any(map(is_derived, retriever.invoke(MONEY)[:3]))


class TestWhatIsRefused:
    def test_the_primary_index_itself(self, plain):
        foldback = plain.foldback()
        for settings in (
            {"base_retriever": plain.questions.as_retriever()},
            {"fallback_retriever": plain.questions.as_retriever()},
            {"resolve": plain.questions.get_by_ids},
        ):
            parts = {"base_retriever": plain.primary.as_retriever(), "foldback": foldback}
            with pytest.raises(ValueError, match="one of its own"):
                FeedbackRetriever(store=plain.store, **parts | settings)
        with pytest.raises(ValueError, match="one of its own"):
            plain.foldback(resolve=plain.questions.get_by_ids)

    @pytest.mark.parametrize(
        "wrapped",
        [
            lambda one, none: none.with_fallbacks([one]),
            lambda one, none: RunnableLambda(str.strip) | one | none,
            lambda one, none: RunnableParallel(first=none, second=one),
            lambda one, _: RunnableLambda(lambda question: one.invoke(question)[:1]),
            lambda one, none: (none | one.with_retry()).with_config(tags=["a"]).with_retry(),
        ],
        ids=["fallback", "middle", "parallel", "function", "deep"],
    )
    def test_wherever_it_lies(self, plain, wrapped):
        none = RunnableLambda(lambda _: [])
        with pytest.raises(ValueError, match="one of its own"):
            plain.foldback().refuse(wrapped(plain.questions.as_retriever(), none))
        plain.foldback().refuse(wrapped(plain.primary.as_retriever(), none))

    @pytest.mark.parametrize("kind", ["chroma", "qdrant", "faiss", "pgvectorstore"])
    def test_under_another_object_too(self, plain, request, kind):
        one, same, other = two_objects(kind, request, plain.store.embeddings)
        with pytest.raises(ValueError, match="one of its own"):
            plain.foldback(vector_store=one).refuse(same.as_retriever())
        plain.foldback(vector_store=one).refuse(other.as_retriever())

    @pytest.mark.parametrize(
        "settings", [{"serve": "both"}, {"min_similarity": 1.1}, {"max_age_days": 0}]
    )
    def test_settings_out_of_range(self, plain, settings):
        with pytest.raises(ValueError, match="serve is one of"):
            plain.foldback(**settings)
