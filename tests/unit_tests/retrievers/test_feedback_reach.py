"""Chunks that the base missed: injected and pinned ones, and the rules that keep them in."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import ConfigurableField
from langchain_core.vectorstores import InMemoryVectorStore
from sqlalchemy import create_engine, text

from langchain_feedback import FeedbackRetriever, trace_id_of
from langchain_feedback.ranking.policies import AverageRating, WilsonFusion
from tests.fakes import ListRetriever
from tests.unit_tests.retrievers.feedback_kit import (
    MONEY,
    REFUND,
    SERVER,
    chunks,
    ids,
    marks,
    run,
    vote,
    wrap,
)

LOST = Document("The lost text.", id="lost", metadata={"source": "lost.md", "tenant": "a"})


def like(store, document=LOST, times=3, question=REFUND):
    """Let people like a chunk that the base will not return."""
    vote(wrap(store, [document]), document.id, question=question, times=times)


def origins(found):
    return {one.id: marks(one)["origin"] for one in found}


class TestInjection:
    async def test_a_liked_chunk_that_the_base_lacks_is_added(self, store):
        like(store)
        retriever = wrap(store)
        found = retriever.invoke(REFUND)
        assert ids(found) == ["lost", "c0", "c1"]
        assert marks(found[0]) | {"trace_id": ""} == {
            "trace_id": "",
            "chunk_id": "lost",
            "base_rank": None,
            "origin": "injected",
            "belief": pytest.approx(0.6, abs=1e-3),
            "multiplier": pytest.approx(1.4, abs=1e-3),
        }
        assert found[0].metadata["source"] == "lost.md"
        assert ids(await retriever.ainvoke(REFUND)) == ids(found)

    def test_it_may_be_rated_again(self, store):
        like(store)
        found = wrap(store).invoke(REFUND)
        for at in range(8):
            store.rate(trace_id_of(found), 1, target=found[0], actor=f"other{at}")
        assert ids(wrap(store).invoke(REFUND)) == ["c0", "c1", "c2"]

    def test_for_similar_questions_only_as_far_as_they_are_alike(self, store):
        like(store)
        assert origins(wrap(store, k=9).invoke(MONEY))["lost"] == "injected"
        assert "lost" not in ids(wrap(store, k=9).invoke(SERVER))

    def test_at_most_so_many_and_the_best_of_them(self, store):
        others = chunks(6, start=10)
        for at, document in enumerate(others):
            like(store, document, times=1 + at)
        assert [
            [one for one in ids(wrap(store, k=12, **given).invoke(REFUND)) if one > "c1"][:4]
            for given in ({"inject": 0}, {"inject": 1}, {})
        ] == [["c2", "c3", "c4", "c5"], ["c15", "c2", "c3", "c4"], ["c15", "c14", "c13", "c2"]]

    def test_little_belief_adds_nothing(self, store):
        vote(wrap(store, [LOST]), "lost", rating=3)
        like(store, chunks(1, start=10)[0], times=1)
        found = wrap(store, k=9).invoke(REFUND)
        assert "lost" not in ids(found)
        assert "c10" in ids(found)

    def test_a_chunk_of_the_pool_is_not_added_again(self, store):
        like(store, chunks()[4])
        assert ids(wrap(store, k=9).invoke(REFUND)).count("c4") == 1

    @pytest.mark.parametrize("policy", [AverageRating(), AverageRating("all"), WilsonFusion()])
    def test_only_a_policy_that_reads_evidence_adds(self, store, policy):
        like(store)
        assert "lost" not in ids(wrap(store, policy=policy, k=9).invoke(REFUND))

    def test_an_empty_pool_is_filled(self, store):
        like(store)
        assert ids(wrap(store, []).invoke(REFUND)) == ["lost"]

    def test_the_stored_chunk_is_a_copy_each_time(self, store):
        like(store)
        retriever = wrap(store)
        retriever.invoke(REFUND)[0].metadata["source"] = "changed"
        assert retriever.invoke(REFUND)[0].metadata["source"] == "lost.md"

    def test_an_edited_chunk_of_the_pool_is_not_shown_beside_its_old_text(self, lost):
        edited = LOST.model_copy(update={"page_content": "An edited text."})
        found = wrap(lost, [*chunks(2), edited], k=9).invoke(REFUND)
        assert ids(found) == ["c0", "c1", "lost"]
        assert found[2].page_content == "An edited text."

    def test_and_makes_room_for_the_next(self, store):
        others = chunks(2, start=10)
        for document, times in zip(others, (9, 3), strict=True):
            like(store, document, times=times)
        edited = others[0].model_copy(update={"page_content": "An edited text."})
        found = wrap(store, [edited], k=9, inject=1).invoke(REFUND)
        assert origins(found) == {"c11": "injected", "c10": "base"}

    def test_an_index_that_holds_it_under_a_new_id_does_not_show_it_twice(self, store):
        like(store)
        moved = LOST.model_copy(update={"id": "new"})
        found = wrap(store, [*chunks(3), moved], k=9).invoke(REFUND)
        assert ids(found) == ["new", "c0", "c1", "c2"]
        assert origins(found)["new"] == "base"


class TestPins:
    async def test_a_pinned_chunk_of_the_pool_comes_first(self, store):
        retriever = wrap(store)
        retriever.invoke(REFUND)
        vote(retriever, "c0", times=9)
        pin_id = store.pin(REFUND, "c5")
        found = retriever.invoke("HOW long does a refund take??")
        assert ids(found) == ["c5", "c0", "c1"]
        assert (marks(found[0])["origin"], marks(found[0])["base_rank"]) == ("pinned", 5)
        assert ids(await retriever.ainvoke(REFUND)) == ids(found)
        store.retract(pin_id)
        assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]

    def test_and_one_that_the_base_lacks(self, store):
        store.pin(REFUND, LOST)
        found = wrap(store).invoke(REFUND)
        assert ids(found) == ["lost", "c0", "c1"]
        assert (marks(found[0])["origin"], marks(found[0])["base_rank"]) == ("pinned", None)

    def test_several_in_the_order_in_which_they_were_pinned(self, store):
        wrap(store).invoke(REFUND)
        for target in ("c5", LOST, "c3"):
            store.pin(REFUND, target)
        assert ids(wrap(store, k=4).invoke(REFUND)) == ["c5", "lost", "c3", "c0"]
        assert ids(wrap(store, k=2).invoke(REFUND)) == ["c5", "lost"]

    def test_even_a_disliked_one(self, store):
        vote(wrap(store), "c5", rating=1, times=5)
        store.pin(REFUND, "c5")
        assert ids(wrap(store).invoke(REFUND))[0] == "c5"

    def test_for_a_similar_question_it_is_evidence_of_weight_3(self, store):
        store.pin(REFUND, LOST)
        found = wrap(store, k=9).invoke(MONEY)
        assert origins(found)["lost"] == "injected"
        assert "lost" not in ids(wrap(store, k=9).invoke(SERVER))

    @pytest.mark.parametrize("policy", [AverageRating(), WilsonFusion()])
    def test_whatever_the_policy(self, store, policy):
        store.pin(REFUND, LOST)
        assert ids(wrap(store, policy=policy).invoke(REFUND))[0] == "lost"
        assert ids(wrap(store, policy=policy, inject=0).invoke(REFUND))[0] == "lost"

    def test_of_several_copies_of_its_text_the_first_one_is_enough(self, store):
        copy_ = Document("Text 3.", id="copy", metadata={"source": "3.md"})
        retriever = wrap(store, [*chunks(4), copy_], k=5)
        retriever.invoke(REFUND)
        store.pin(REFUND, "c3")
        found = retriever.invoke(REFUND)
        assert ids(found)[0] == "c3"
        assert origins(found)["copy"] == "base"

    def test_until_its_text_changes(self, store):
        store.pin(REFUND, chunks()[5])
        documents = chunks()
        documents[5].page_content = "An edited text."
        found = wrap(store, documents, resolve=lambda _: documents).invoke(REFUND)
        assert ids(found) == ["c0", "c1", "c2"]


@pytest.fixture
def index():
    made = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
    made.add_documents([LOST])
    return made


@pytest.fixture(params=["liked", "pinned"])
def lost(request, store):
    """The store, in which a chunk that the base lacks is liked or pinned."""
    if request.param == "liked":
        like(store)
    else:
        store.pin(REFUND, LOST)
    return store


class TestResolve:
    def test_the_index_says_how_it_is_now(self, lost, index):
        newer = LOST.model_copy(update={"metadata": {"source": "lost.md", "page": 7}})
        index.add_documents([newer])
        found = wrap(lost, resolve=index.get_by_ids).invoke(REFUND)
        assert (ids(found)[0], found[0].metadata["page"]) == ("lost", 7)

    def test_a_deleted_chunk_is_left_out(self, lost, index):
        index.delete(["lost"])
        assert "lost" not in ids(wrap(lost, resolve=index.get_by_ids).invoke(REFUND))

    def test_an_edited_chunk_is_left_out(self, lost, index):
        index.add_documents([LOST.model_copy(update={"page_content": "An edited text."})])
        assert "lost" not in ids(wrap(lost, resolve=index.get_by_ids).invoke(REFUND))

    @pytest.mark.parametrize("answer", [None, [], ["text"], [None]])
    def test_what_is_not_there_is_left_out(self, lost, answer):
        found = wrap(lost, resolve=lambda _: answer).invoke(REFUND)
        assert ids(found) == ["c0", "c1", "c2"]

    def test_an_error_leaves_it_out_and_is_logged_once(self, lost, caplog):
        def resolve(_):
            msg = "the index is away"
            raise ConnectionError(msg)

        retriever = wrap(lost, resolve=resolve)
        assert [ids(retriever.invoke(REFUND)) for _ in range(3)] == [["c0", "c1", "c2"]] * 3
        (line,) = caplog.records
        assert "the index is away" in line.getMessage()

    def test_one_that_is_gone_makes_room_for_the_next(self, store):
        others = chunks(6, start=10)
        for document in others:
            like(store, document)
        there = {one.id: one for one in others[3:]}
        asked = []

        def resolve(wanted):
            asked.append(wanted)
            return [there[one] for one in wanted if one in there]

        found = wrap(store, k=12, resolve=resolve).invoke(REFUND)
        assert {key for key, origin in origins(found).items() if origin == "injected"} == {*there}
        assert len(asked) == 1

    def test_a_rebuilt_index_is_asked_for_its_newest_id(self, lost, index):
        index.delete(["lost"])
        renamed = LOST.model_copy(update={"id": "new-random-id"})
        index.add_documents([renamed])
        # Somebody saw it under its new id, for another question.
        wrap(lost, [renamed]).invoke(SERVER)
        found = wrap(lost, resolve=index.get_by_ids).invoke(REFUND)
        assert ids(found) == ["new-random-id", "c0", "c1"]

    def test_it_is_not_asked_without_need(self, store, index):
        asked = []
        wrap(store, resolve=asked.append).invoke(REFUND)
        vote(wrap(store), "c4")
        wrap(store, resolve=asked.append).invoke(REFUND)
        assert asked == []

    def test_only_ids_of_the_documents_own_are_asked_for(self, store):
        lost = LOST.model_copy(update={"id": str(uuid.uuid4())})
        like(store, lost)
        asked = []

        def resolve(wanted):
            # As a table does whose ids are UUIDs: it refuses any other for the whole batch.
            asked.extend(str(uuid.UUID(one)) for one in wanted)
            return [lost]

        found = wrap(store, resolve=resolve).invoke(REFUND)
        assert (ids(found)[0], origins(found)[lost.id]) == (lost.id, "injected")
        assert asked == [lost.id]

    @pytest.mark.parametrize("own", ["sha256:0123", "sha256:" + 64 * "f"])
    def test_also_such_as_look_like_digests(self, store, own):
        lost = LOST.model_copy(update={"id": own})
        like(store, lost)
        found = wrap(store, resolve=lambda wanted: [lost] * (wanted == [own])).invoke(REFUND)
        assert ids(found)[0] == own

    def test_without_an_id_nothing_can_be_read_again_so_it_is_left_out(self, store):
        lost = Document("The lost text.", metadata={"source": "lost.md"})
        seen = wrap(store, [lost])
        for actor in ("ann", "bob", "eve"):
            store.rate(trace_id_of(seen.invoke(REFUND, run(user_id=actor))), 5)
        assert wrap(store).invoke(REFUND)[0].page_content == lost.page_content
        asked = []
        assert ids(wrap(store, resolve=asked.append).invoke(REFUND)) == ["c0", "c1", "c2"]
        assert asked == []

    def test_ids_in_a_field(self, store):
        lost = Document("The lost text.", metadata={"key": "k9"})
        vote(wrap(store, [lost], id_field="key"), "k9", times=3)
        retriever = wrap(store, id_field="key", resolve=lambda wanted: [lost] * ("k9" in wanted))
        found = retriever.invoke(REFUND)
        assert marks(found[0])["chunk_id"] == "k9"
        assert found[0].page_content == "The lost text."


class TestSnapshots:
    @pytest.mark.parametrize(("days", "shown"), [(29, True), (31, False)])
    def test_they_count_for_30_days(self, lost, days, shown):
        seen = datetime.now(UTC) - timedelta(days=days)
        engine = create_engine(lost.url)
        with engine.begin() as connection:
            stored = seen.replace(tzinfo=None).isoformat(sep=" ")
            connection.execute(text("UPDATE lcf_chunks SET last_seen = :at"), {"at": stored})
        engine.dispose()
        found = wrap(lost).invoke(REFUND)
        assert ("lost" in ids(found)) == shown

    def test_one_that_the_database_could_not_hold_as_it_was_is_left_out(self, store):
        like(store, Document("A text with a\0zero.", id="zero"))
        assert "zero" not in ids(wrap(store, k=9).invoke(REFUND))


class TestAllow:
    @pytest.mark.parametrize("tenant", ["a", "b"])
    async def test_another_tenants_chunk_is_refused(self, lost, tenant):
        def allow(document, run_metadata):
            return document.metadata.get("tenant") == run_metadata["tenant"]

        retriever = wrap(lost, allow=allow)
        found = retriever.invoke(REFUND, run(tenant=tenant))
        assert ("lost" in ids(found)) == (tenant == "a")
        assert ids(await retriever.ainvoke(REFUND, run(tenant=tenant))) == ids(found)

    def test_with_resolve_it_sees_the_document_of_now(self, lost, index):
        moved = LOST.model_copy(update={"metadata": {"source": "lost.md", "tenant": "b"}})
        index.add_documents([moved])
        only_a = {"allow": lambda document, _: document.metadata["tenant"] == "a"}
        assert "lost" not in ids(wrap(lost, resolve=index.get_by_ids, **only_a).invoke(REFUND))

    def test_an_error_is_a_refusal_and_logged_once(self, lost, caplog):
        def allow(document, run_metadata):
            return run_metadata["no such key"]

        retriever = wrap(lost, allow=allow)
        assert [ids(retriever.invoke(REFUND)) for _ in range(3)] == [["c0", "c1", "c2"]] * 3
        (line,) = caplog.records
        assert "counts as a refusal: KeyError" in line.getMessage()

    def test_what_it_changes_changes_nothing(self, lost):
        def allow(document, run_metadata):
            document.page_content = "changed"
            document.metadata.clear()
            run_metadata.clear()
            return True

        found = wrap(lost, allow=allow).invoke(REFUND, run(user_id="ann"))
        assert found[0].page_content == LOST.page_content
        assert lost.trace(trace_id_of(found)).actor == "ann"

    def test_chunks_of_the_base_are_not_its_business(self, lost):
        assert ids(wrap(lost, allow=lambda *_: False).invoke(REFUND)) == ["c0", "c1", "c2"]


class TestOptionsOfTheCall:
    """They may be what keeps tenants apart, and only `allow` knows."""

    class Filtered(ListRetriever):
        def _get_relevant_documents(self, query, *, run_manager, k=None, filter=None):  # noqa: A002
            return [one for one in self.documents if filter is None or filter(one)][:k]

        async def _aget_relevant_documents(self, query, *, run_manager, **options):
            return self._get_relevant_documents(query, run_manager=run_manager, **options)

    def wrapped(self, store, **settings):
        base = self.Filtered(documents=chunks())
        return FeedbackRetriever(base_retriever=base, store=store, k=3, **settings)

    async def test_without_allow_nothing_is_added(self, lost):
        retriever = self.wrapped(lost)
        assert ids(retriever.invoke(REFUND))[0] == "lost"
        only = {"filter": lambda document: document.id != "c1"}
        for found in (
            retriever.invoke(REFUND, **only),
            await retriever.ainvoke(REFUND, **only),
            retriever.bind(**only).invoke(REFUND),
        ):
            assert ids(found) == ["c0", "c2", "c3"]

    def test_k_is_no_such_option(self, lost):
        assert ids(self.wrapped(lost).invoke(REFUND, k=2)) == ["lost", "c0"]

    def test_with_allow_it_decides(self, lost):
        only = {"filter": lambda document: document.id != "c1"}
        found = self.wrapped(lost, allow=lambda *_: True).invoke(REFUND, **only)
        assert ids(found) == ["lost", "c0", "c2"]

    def test_a_pinned_chunk_of_the_pool_moves_first_all_the_same(self, store):
        retriever = self.wrapped(store)
        retriever.invoke(REFUND)
        store.pin(REFUND, "c4")
        found = retriever.invoke(REFUND, filter=lambda document: document.id != "c1")
        assert ids(found) == ["c4", "c0", "c2"]

    def test_configurable_fields_of_the_base_count_as_options(self, lost):
        index = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
        index.add_documents(chunks())
        base = index.as_retriever().configurable_fields(search_kwargs=ConfigurableField("search"))
        retriever = FeedbackRetriever(base_retriever=base, store=lost, k=9)
        only = {"filter": lambda document: document.id == "c3"}
        assert "lost" in ids(retriever.invoke(REFUND, {"configurable": {"thread_id": "t"}}))
        assert ids(retriever.invoke(REFUND, {"configurable": {"search": only}})) == ["c3"]
