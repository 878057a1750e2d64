"""Fold-back: accepted questions bring their sources along, until a source changes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from sqlalchemy import select, update

from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of
from langchain_feedback.documents import is_derived
from langchain_feedback.errors import ReviewError, UnknownItemError
from langchain_feedback.index._foldback_gate import Gate, Tally, Vote, tally, wilson_lower
from langchain_feedback.index._foldback_mining import derived_id_of, quotes_are_proved
from langchain_feedback.index.foldback import FoldBackError
from langchain_feedback.index.writer import PlanChangedError
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.server.app import create_app
from langchain_feedback.store.care_schema import care_actions, care_runs, derived, derived_sources
from langchain_feedback.store.loop_schema import owner_items, review_items
from langchain_feedback.store.schema import chunks, metadata
from langchain_feedback.store.transactions import reading, writing
from tests.fakes import ListRetriever
from tests.unit_tests.index.foldback_kit import (
    MONEY,
    PEOPLE,
    REFUND,
    RIGHT,
    SECOND,
    SERVER,
    WEATHER,
    Angles,
    World,
    ids,
    others,
)
from tests.unit_tests.server.test_pages import fields, signed_in

EDITED = Document("A refund takes 30 days.", id="right", metadata={"source": "terms.md"})


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


def rows(store):
    """Everything that the database holds."""
    with reading(store) as connection:
        return {
            name: sorted(map(repr, connection.execute(select(table)).all()))
            for name, table in metadata.tables.items()
            if name.startswith("lcf_")
        }


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

    def test_documents_of_unrelated_questions_are_identical_with_and_without(self, world):
        foldback = world.served()
        for question in (SERVER, WEATHER):
            without = world.retriever().invoke(question)
            found = world.retriever(foldback=foldback).invoke(question)
            assert texts(found) == texts(without)
            assert [one.metadata["relevance_score"] for one in found] == [
                one.metadata["relevance_score"] for one in without
            ]

    def test_the_k_chunks_of_related_questions_are_those_without(self, world):
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
        assert len(shown) == 7

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
            "langchain_feedback.index._foldback_lookup.read_derived", lambda *_, **__: 1 / 0
        )
        assert len(retriever.invoke(MONEY)) == 2


class TestASourceThatChanges:
    """Hidden on the next query, and no job has run."""

    def test_edited_in_the_index(self, world):
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

    def test_removed_from_the_index(self, world):
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


class TestTheJob:
    def test_a_second_run_does_nothing(self, world):
        foldback = world.foldback(auto_approve=True, resolve=world.primary.get_by_ids)
        world.liked()
        world.liked(SERVER, people=PEOPLE[:2])
        done = world.run(foldback)
        assert (done.counts, done.written) == ({"activate": 1, "propose": 1}, 1)
        before = rows(world.store)
        again = foldback.plan()
        assert not again
        assert foldback.apply(again).run_id == ""
        assert rows(world.store) == before

    def test_planning_writes_nothing(self, plain):
        plain.liked()
        before = rows(plain.store)
        assert plain.foldback().plan().counts == {"propose": 1}
        assert rows(plain.store) == before

    def test_a_changed_source_expires_and_leaves_the_index(self, world):
        foldback = world.served()
        world.replace(EDITED)
        done = world.run(foldback)
        assert (done.counts, done.removed) == ({"expire": 1}, 1)
        assert foldback.list()[0].status == "expired"
        assert world.questions.get_by_ids([foldback.list()[0].derived_id]) == []
        assert not foldback.plan()
        with reading(world.store) as connection:
            [action] = connection.execute(select(care_actions)).all()
            runs = connection.execute(select(care_runs)).all()
        assert (action.action, action.reason) == ("expire", "right is gone")
        assert "active" in action.before
        assert len(runs) == 2

    def test_one_that_comes_back_unchanged_asks_a_reviewer_again(self, world):
        foldback = world.foldback(auto_approve=True, resolve=world.primary.get_by_ids)
        world.liked()
        world.run(foldback)
        world.replace(EDITED)
        world.run(foldback)
        world.replace(RIGHT)
        assert world.run(foldback).counts == {"revive": 1}
        assert foldback.list()[0].status == "candidate"
        assert foldback.lookup(MONEY) == []
        assert not foldback.plan()
        item = ReviewQueue(world.store).claim("rita")
        assert item.kind == "foldback"
        ReviewQueue(world.store).decide(item, "confirm")
        world.run(foldback)
        assert ids(foldback.lookup(MONEY)) == ["right"]

    def test_an_approval_ends_whatever_is_served_meanwhile(self, world):
        foldback = world.served(world.foldback(max_age_days=30))
        [entry] = foldback.list()
        assert entry.expires_at - entry.approved_at == timedelta(days=30)
        assert ids(foldback.lookup(MONEY)) == ["right"]
        [same] = foldback.list()
        assert same.expires_at == entry.expires_at
        with writing(world.store) as (connection, _):
            past = datetime.now(UTC) - timedelta(seconds=1)
            connection.execute(update(derived).values(expires_at=past))
        assert foldback.lookup(MONEY) == []
        assert world.run(foldback).counts == {"expire": 1}
        assert not foldback.plan()
        world.liked(people=["new"])
        assert world.run(foldback).counts == {"revive": 1}
        assert not foldback.plan()

    def test_what_people_turn_down_later_goes(self, plain):
        foldback = plain.served()
        plain.liked(people=PEOPLE[:6], rating=1)
        plan = foldback.plan()
        assert [(one.kind, one.reason) for one in plan.changes] == [
            ("expire", "since its approval, 0 for, 6 against, of 6 people")
        ]
        foldback.apply(plan)
        assert not foldback.plan()

    def test_another_plan_s_changes_are_refused(self, plain):
        plain.liked()
        foldback = plain.foldback()
        plan = foldback.plan()
        plain.liked(SERVER)
        before = rows(plain.store)
        with pytest.raises(PlanChangedError, match="Plan again"):
            foldback.apply(plan)
        assert rows(plain.store) == before

    def test_a_crash_before_the_index_is_written_is_made_good_by_the_next_run(
        self, world, monkeypatch
    ):
        foldback = world.foldback(auto_approve=True)
        world.liked()
        plan = foldback.plan()
        with monkeypatch.context() as broken:
            broken.setattr(type(world.questions), "add_documents", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                foldback.apply(plan)
        assert foldback.lookup(MONEY) == []
        assert world.run(foldback).written == 1
        assert ids(foldback.lookup(MONEY)) == ["right"]

    def test_an_emptied_index_of_questions_is_filled_again(self, plain):
        foldback = plain.served()
        plain.questions.delete([foldback.list()[0].derived_id])
        assert plain.run(foldback).written == 1
        assert ids(foldback.lookup(MONEY)) == ["right"]

    def test_an_index_without_any_source_is_held_to_be_the_wrong_one(self, plain, caplog):
        for at in range(5):
            chunk = Document(f"Chunk {at}.", id=f"s{at}", metadata={"source": "s"})
            plain.primary.add_documents([chunk])
            plain.liked(f"Question {at}?", cited=[chunk])
        plain.run(plain.foldback(auto_approve=True))
        assert not plain.foldback(auto_approve=True, resolve=lambda _: []).plan().changes
        assert "right one" in caplog.text

    def test_a_question_that_was_forgotten_is_served_no_more(self, plain):
        plain.store.record_trace("hers", REFUND, [RIGHT], actor="ann")
        known = {"status": "answered", "grounded": True, "cited": [RIGHT]}
        plain.store.update_trace("hers", answer="14 days.", **known)
        plain.store.rate("hers", 5, actor="ann")
        foldback = plain.foldback()
        plain.run(foldback)
        foldback.approve(foldback.list()[0].derived_id, "rita")
        assert ids(foldback.lookup(REFUND)) == ["right"]
        plain.store.forget("ann")
        assert foldback.lookup(REFUND) == []
        assert foldback.list() == []
        assert plain.run(foldback).removed == 1
        assert not plain.questions.store

    def test_an_answer_that_was_forgotten_goes_and_the_sources_stay(self, plain):
        foldback = plain.served(plain.foldback(serve="answer"), text="Others' words.")
        plain.store.record_trace("hers", REFUND, [RIGHT], actor="zoe")
        known = {"status": "answered", "grounded": True, "cited": [RIGHT]}
        plain.store.update_trace("hers", answer="Her words.", **known)
        with writing(plain.store) as (connection, _):
            connection.execute(update(derived).values(trace_id="hers", text="Her words."))
        plain.store.forget("zoe")
        assert foldback.list()[0].text == ""
        assert foldback.lookup(MONEY) == []
        assert ids(plain.foldback().lookup(MONEY)) == ["right"]
        before = foldback.list()[0].expires_at
        assert plain.run(foldback).counts == {"refresh": 1}
        assert foldback.list()[0].expires_at == before
        assert "Others' words." in foldback.lookup(MONEY)[-1].page_content
        assert not foldback.plan()

    def test_a_reviewer_who_is_forgotten_leaves_no_name(self, plain):
        foldback = plain.served()
        plain.replace(EDITED)
        plain.run(foldback)
        plain.store.forget("rita")
        assert not [row for table in rows(plain.store).values() for row in table if "rita" in row]

    def test_what_is_served_outlives_the_traces_that_it_came_from(self, plain):
        foldback = plain.served()
        plain.liked(SERVER)
        plain.run(foldback)
        plain.store.prune(datetime.now(UTC) + timedelta(seconds=1))
        with reading(plain.store) as connection:
            assert connection.execute(select(chunks.c.chunk_id)).scalars().all() == ["right"]
        assert ids(foldback.lookup(MONEY)) == ["right"]
        assert plain.run(foldback).counts == {"expire": 1}
        states = {entry.question: (entry.status, entry.text) for entry in foldback.list()}
        assert states == {REFUND: ("active", "It takes 14 days."), None: ("expired", "")}

    async def test_async_is_the_same(self, plain):
        plain.liked()
        foldback = plain.foldback()
        assert (await foldback.aapply(await foldback.aplan())).counts == {"propose": 1}
        [entry] = await foldback.alist()
        assert (await foldback.aapprove(entry.derived_id, "rita")).status == "active"
        assert (await foldback.areject(entry.derived_id, "rita")).status == "rejected"


class TestTheGate:
    def test_enough_votes_serve_where_that_is_wanted(self, plain):
        plain.liked()
        plain.run(plain.foldback())
        assert plain.foldback().list()[0].status == "candidate"
        foldback = plain.foldback(auto_approve=True)
        assert plain.run(foldback).counts == {"activate": 1}
        assert ids(foldback.lookup(MONEY)) == ["right"]
        assert foldback.list()[0].approved_by == "gate"

    def test_five_people_are_too_few_and_six_are_not(self, plain):
        foldback = plain.foldback(auto_approve=True)
        trace_id = plain.liked(people=PEOPLE[:5])
        plain.run(foldback)
        assert foldback.list()[0].status == "candidate"
        plain.store.rate(trace_id, 5, actor=PEOPLE[5])
        plain.run(foldback)
        assert foldback.list()[0].status == "active"

    def test_one_person_s_thousand_votes_are_two(self, plain):
        for _ in range(20):
            plain.liked(people=["ann"])
        foldback = plain.foldback(auto_approve=True)
        plain.run(foldback)
        [entry] = foldback.list()
        assert (entry.status, entry.votes["positive"], entry.votes["actors"]) == (
            "candidate", 2, 1,
        )  # fmt: skip

    def test_people_of_whom_nothing_is_known_are_one(self, plain):
        for _ in range(20):
            plain.store.rate(plain.answer(), 5)
        plain.run(plain.foldback())
        assert plain.foldback().list()[0].votes["actors"] == 1

    def test_a_reviewer_s_no_outweighs_all(self, plain):
        trace_id = plain.liked()
        plain.store.rate(trace_id, 1, actor="rita", reviewer=True)
        assert not plain.foldback(auto_approve=True).plan()

    @pytest.mark.parametrize(
        "facts",
        [
            {"grounded": False},
            {"grounded": None},
            {"status": "abstained"},
            {"cited": []},
            {"text": 'It says "within 41 days of the order".'},
        ],
    )
    def test_what_is_not_proved_is_not_even_a_candidate(self, plain, facts):
        plain.liked(**facts)
        assert not plain.foldback(auto_approve=True).plan()

    def test_what_more_people_turn_down_is_no_candidate(self, plain):
        plain.liked(people=PEOPLE[:2])
        plain.liked(people=PEOPLE[2:5], rating=1)
        assert not plain.foldback().plan()

    def test_a_correction_is_a_vote_against_and_is_never_served(self, plain):
        foldback = plain.foldback(serve="answer", auto_approve=True)
        trace_id = plain.liked()
        for person in ("x", "y"):
            plain.store.signal(trace_id, "correction", actor=person, correction="It takes 99.")
        plain.run(foldback)
        [entry] = foldback.list()
        assert (entry.votes["positive"], entry.votes["negative"]) == (8, 2)
        assert "99" not in entry.text

    def test_answers_to_evaluations_do_not_count(self, plain):
        plain.store.record_trace("eval", REFUND, [RIGHT], traffic="eval")
        known = {"status": "answered", "grounded": True, "cited": [RIGHT]}
        plain.store.update_trace("eval", answer="14 days.", **known)
        plain.store.rate("eval", 5, actor="ann")
        assert not plain.foldback().plan()

    def test_a_retracted_vote_counts_no_more(self, plain):
        event = plain.store.rate(plain.answer(), 5, actor="ann")
        plain.run(plain.foldback())
        plain.store.retract(event)
        assert plain.run(plain.foldback()).counts == {"refresh": 1}
        assert plain.foldback().list()[0].votes["positive"] == 0

    @given(st.integers(0, 500), st.integers(0, 500))
    def test_the_bound_is_below_the_share_and_grows_with_either(self, good, bad):
        votes = good + bad
        lower = wilson_lower(good, votes)
        assert 0 <= lower <= (good / votes if votes else 0) + 1e-12
        assert wilson_lower(good + 1, votes + 1) >= lower - 1e-12
        assert wilson_lower(good, votes + 1) <= lower + 1e-12

    def test_published_bounds(self):
        # Newcombe, Statistics in Medicine 17, 1998, table I, method 3.
        published = {(81, 263): 0.2553, (15, 148): 0.0624, (0, 20): 0.0, (1, 29): 0.0061}
        for (good, votes), bound in published.items():
            assert wilson_lower(good, votes) == pytest.approx(bound, abs=5e-5)

    def test_more_good_votes_than_votes_are_refused(self):
        with pytest.raises(ValueError, match="from 0 to votes"):
            wilson_lower(2, 1)

    @given(
        st.lists(
            st.builds(
                Vote,
                st.sampled_from("abcd"),
                st.booleans(),
                st.booleans(),
                st.datetimes(timezones=st.just(UTC)),
            )
        ),
        st.randoms(),
    )
    def test_the_order_of_votes_does_not_matter(self, votes, random):
        mixed = list(votes)
        random.shuffle(mixed)
        said = tally(votes)
        assert tally(mixed) == said
        assert said.positive + said.negative <= 2 * said.actors

    def test_no_gate_passes_with_a_reviewer_against(self):
        assert not Gate().passes(Tally(100, 0, 50, reviewer_against=True))
        assert Gate().passes(Tally(100, 0, 50))
        assert not Gate(least_actors=60).passes(Tally(100, 0, 50))


class TestTheReviewQueue:
    def queue(self, world):
        world.liked()
        world.run(world.foldback())
        return ReviewQueue(world.store)

    def test_a_yes_serves_whatever_the_votes(self, world):
        foldback = world.foldback()
        world.liked(people=["ann"])
        world.run(foldback)
        queue = ReviewQueue(world.store)
        item = queue.claim("rita")
        assert (item.kind, item.question) == ("foldback", REFUND)
        assert item.snapshot["answer"] == "It takes 14 days."
        assert item.snapshot["chunks"][0]["text"] == RIGHT.page_content
        assert queue.decide(item, "confirm").state == "decided"
        [entry] = foldback.list()
        assert (entry.status, entry.approved_by) == ("active", "rita")
        world.run(foldback)
        assert ids(foldback.lookup(MONEY)) == ["right"]

    def test_a_yes_can_be_taken_back(self, world):
        queue = self.queue(world)
        queue.decide(queue.claim("rita"), "confirm")
        world.run(world.foldback())
        assert queue.undo("rita").state == "open"
        assert world.foldback().list()[0].status == "candidate"
        assert world.foldback().lookup(MONEY) == []

    def test_a_no_is_for_good(self, world):
        queue = self.queue(world)
        queue.decide(queue.claim("rita"), "reject")
        foldback = world.foldback(auto_approve=True)
        world.liked()
        assert not foldback.plan()
        assert foldback.list()[0].status == "rejected"

    def test_unclear_changes_nothing(self, plain):
        queue = self.queue(plain)
        queue.decide(queue.claim("rita"), "unclear")
        assert plain.foldback().list()[0].status == "candidate"

    def test_grounding_is_not_skipped(self, plain):
        queue = self.queue(plain)
        item = queue.claim("rita")
        plain.store.update_trace(item.trace_id, grounded=False)
        queue.decide(item, "confirm")
        assert plain.foldback().list()[0].status == "candidate"

    def test_nor_is_a_source_that_changed_meanwhile(self, plain):
        queue = self.queue(plain)
        item = queue.claim("rita")
        plain.store.record_trace("another", SERVER, [EDITED])
        queue.decide(item, "confirm")
        assert plain.foldback().list()[0].status == "candidate"
        plain.run(plain.foldback())
        assert plain.foldback().list()[0].status == "expired"

    def test_what_would_be_right_goes_to_the_owner_and_nowhere_else(self, plain):
        queue = self.queue(plain)
        queue.decide(queue.claim("rita"), "reject", correction="It takes 99 days.")
        with reading(plain.store) as connection:
            [item] = connection.execute(select(owner_items)).all()
        assert (item.kind, item.text, item.source) == (
            "correction", "It takes 99 days.", "terms.md",
        )  # fmt: skip
        assert "99" not in plain.foldback().list()[0].text

    def test_it_takes_no_right_chunk(self, plain):
        queue = self.queue(plain)
        with pytest.raises(ReviewError, match="whether it is right"):
            queue.decide(queue.claim("rita"), "confirm", right_chunks=["right"])

    def test_one_that_the_votes_decide_is_waited_for_no_more(self, plain):
        queue = self.queue(plain)
        plain.run(plain.foldback(auto_approve=True))
        assert queue.claim("rita") is None

    def test_two_must_agree_where_that_is_asked_for(self, plain):
        queue = self.queue(plain)
        with writing(plain.store) as (connection, _):
            connection.execute(update(review_items).values(reviews_required=2))
        queue.decide(queue.claim("rita"), "confirm")
        assert plain.foldback().list()[0].status == "candidate"
        queue.decide(queue.claim("sam"), "confirm")
        assert plain.foldback().list()[0].status == "active"

    def test_it_is_decided_on_the_page(self, plain):
        self.queue(plain)
        client = signed_in(create_app(plain.store))
        page = client.get("/queue")
        assert "May this answer serve again?" in page.text
        assert "It takes 14 days." in page.text
        assert "8 for, 0 against, of 8 people." in page.text
        assert "Answers it" not in page.text
        action, form = fields(page)
        done = client.post(action, data=form | {"verdict": "confirm"})
        assert done.status_code == 200
        assert plain.foldback().list()[0].status == "active"


class TestAPersonsWord:
    def test_approving_closes_the_item_and_is_served_at_once(self, world):
        foldback = world.served()
        [entry] = foldback.list()
        queue = ReviewQueue(world.store)
        assert queue.claim("sam") is None
        [item] = queue.items(state="decided")
        [event] = queue.events(item.item_id)
        assert (event.reviewer, event.verdict) == ("rita", "confirm")
        assert foldback.approve(entry.derived_id, "sam").approved_by == "rita"
        assert not foldback.plan()

    def test_rejecting_hides_at_once(self, world):
        foldback = world.served()
        assert foldback.reject(foldback.list()[0].derived_id, "sam").status == "rejected"
        assert foldback.lookup(REFUND) == []
        assert not foldback.plan()

    def test_a_changed_source_is_not_approved(self, plain):
        foldback = plain.foldback()
        plain.liked()
        plain.run(foldback)
        plain.store.record_trace("another", SERVER, [EDITED])
        before = rows(plain.store)
        with pytest.raises(FoldBackError, match="source changed"):
            foldback.approve(foldback.list()[0].derived_id, "rita")
        assert rows(plain.store) == before

    def test_unknown_ones_and_nobody_are_refused(self, plain):
        with pytest.raises(UnknownItemError, match="No folded-back answer"):
            plain.foldback().approve("nothing", "rita")
        with pytest.raises(ValueError, match="name"):
            plain.foldback().reject("nothing", " ")


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

    def test_it_never_takes_a_slot_though_a_base_returns_it(self, plain):
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
        "settings", [{"serve": "both"}, {"min_similarity": 1.1}, {"max_age_days": 0}]
    )
    def test_settings_out_of_range(self, plain, settings):
        with pytest.raises(ValueError, match="serve is one of"):
            plain.foldback(**settings)


class TestIds:
    def test_they_are_made_of_namespace_question_and_sources(self):
        one = derived_id_of("n", "How long?", ["a", "b"])
        assert one == derived_id_of("n", " how LONG ", ["b", "a", "a"])
        others = {
            derived_id_of("m", "How long?", ["a", "b"]),
            derived_id_of("n", "How short?", ["a", "b"]),
            derived_id_of("n", "How long?", ["a"]),
        }
        assert len(others | {one}) == 4

    def test_answers_on_other_sources_are_other_entries(self, plain):
        plain.liked()
        plain.liked(cited=(SECOND,))
        plain.liked(cited=(RIGHT,), text="Fourteen days.")
        plain.run(plain.foldback())
        entries = plain.foldback().list()
        assert len(entries) == 2
        with reading(plain.store) as connection:
            assert len(connection.execute(select(derived_sources)).all()) == 2


@pytest.mark.parametrize(
    ("answer", "proved"),
    [
        ("It takes 14 days.", True),
        ("“A refund takes 14 days.”", True),
        ("It says «a refund takes 14 days».", True),
        ("„A refund takes 41 days.“", False),
        ("The word “refund” is a name.", True),
        ("「返金は14日かかります」", False),
    ],
)
def test_quotation_marks_are_taken_at_their_word(answer, proved):
    assert quotes_are_proved(answer, [RIGHT.page_content]) is proved
