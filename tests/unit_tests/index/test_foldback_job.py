"""Fold-back, behind the slot: the run, the gate, reviewers, what is forgotten, and ids."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from sqlalchemy import select, update

from langchain_feedback import FeedbackStore
from langchain_feedback.errors import ReviewError, UnknownItemError
from langchain_feedback.index._foldback import job
from langchain_feedback.index._foldback.gate import Gate, Tally, Vote, tally
from langchain_feedback.index._foldback.mining import derived_id_of, quotes_are_proved
from langchain_feedback.index.foldback import FoldBackError
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.writer import IndexBusyError, PlanChangedError, SavedFolder
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.server.app import create_app
from langchain_feedback.store.care_schema import care_actions, care_runs, derived, derived_sources
from langchain_feedback.store.loop_schema import owner_items, review_items
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.index.foldback_kit import (
    EDITED,
    MONEY,
    PEOPLE,
    REFUND,
    RIGHT,
    SECOND,
    SERVER,
    Angles,
    World,
    empty,
    ids,
    rows,
)
from tests.unit_tests.server.test_pages import fields, signed_in


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


class TestTheJob:
    def test_check6_a_second_run_does_nothing(self, world):
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

    def test_each_time_that_it_comes_back_it_is_looked_at_anew(self, plain):
        foldback = plain.served()
        for reviewer in ("sam", "tom"):
            assert ReviewQueue(plain.store).claim(reviewer) is None
            plain.replace(EDITED)
            plain.run(foldback)
            plain.replace(RIGHT)
            plain.run(foldback)
            queue = ReviewQueue(plain.store)
            queue.decide(queue.claim(reviewer), "confirm")
            assert foldback.list()[0].approved_by == reviewer
            plain.run(foldback)

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

    def test_votes_that_change_no_more_than_figures_do_not_stop_a_run(self, plain):
        first, other = plain.liked(people=PEOPLE[:1]), plain.answer(SERVER)
        foldback = plain.foldback()
        for kind in ("propose", "refresh"):
            plain.store.rate(first, 5, actor=f"{kind} 1")
            plan = foldback.plan()
            plain.store.rate(first, 5, actor=f"{kind} 2")
            # Something new is for the next run.
            plain.store.rate(other, 5, actor=f"{kind} 3")
            assert foldback.apply(plan).counts == {kind: 1}
            [entry] = [one for one in foldback.list() if one.question == REFUND]
            assert entry.votes["positive"] == {"propose": 3, "refresh": 5}[kind]
            plain.run(foldback)

    def test_people_can_vote_while_a_run_reads_what_they_said(self, plain, monkeypatch):
        foldback, trace_id = plain.foldback(), plain.liked()
        plan, voted = foldback.plan(), []

        def slow(*arguments, **options):
            voted.append(plain.store.rate(trace_id, 5, actor="meanwhile"))
            return mined(*arguments, **options)

        mined = job.proposals
        monkeypatch.setattr(job, "proposals", slow)
        assert foldback.apply(plan).counts == {"propose": 1}
        assert len(voted) == 1

    def test_an_index_that_lives_in_memory_is_put_on_the_disk(self, plain):
        saved = []
        foldback = plain.foldback(auto_approve=True, persist=saved.append)
        plain.liked()
        plain.run(foldback)
        assert saved == [plain.questions]

    def test_a_plan_is_named_by_its_digest_as_well(self, plain):
        plain.liked()
        foldback = plain.foldback()
        digest = foldback.plan().digest
        assert plain.foldback().apply(digest).counts == {"propose": 1}
        with pytest.raises(PlanChangedError, match="review that"):
            foldback.apply(digest)

    @pytest.mark.parametrize(
        "meanwhile",
        [
            lambda world, _: world.store.record_trace("new", SERVER, [EDITED]),
            lambda world, _: world.liked(rating=1, people=[f"foe {at}" for at in range(9)]),
            lambda world, trace_id: world.store.update_trace(trace_id, grounded=False),
        ],
        ids=["source", "votes", "grounding"],
    )
    def test_what_is_no_longer_what_was_planned_is_refused(self, plain, meanwhile):
        trace_id = plain.liked()
        foldback = plain.foldback()
        plan = foldback.plan()
        meanwhile(plain, trace_id)
        before = rows(plain.store)
        with pytest.raises(PlanChangedError, match="Plan again"):
            foldback.apply(plan)
        assert rows(plain.store) == before

    def test_what_a_reviewer_decides_meanwhile_is_not_undone(self, plain, monkeypatch):
        trace_id, foldback = plain.liked(people=PEOPLE[:1]), plain.foldback()
        plain.run(foldback)
        plain.store.rate(trace_id, 5, actor="bob")
        plan = foldback.plan()

        def slow(*arguments, **options):
            found = mined(*arguments, **options)
            foldback.reject(foldback.list()[0].derived_id, "rita")
            return found

        mined = job.proposals
        monkeypatch.setattr(job, "proposals", slow)
        with pytest.raises(PlanChangedError, match="Plan again"):
            foldback.apply(plan)
        assert foldback.list()[0].status == "rejected"

    def test_a_crash_before_the_index_is_written_is_made_good_by_the_next_run(
        self, world, monkeypatch
    ):
        foldback = world.foldback(auto_approve=True)
        world.liked()
        plan = foldback.plan()
        with monkeypatch.context() as broken:
            broken.setattr(Angles, "embed_documents", lambda *_: 1 / 0)
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

    def test_the_index_is_asked_for_a_few_hundred_sources_at_a_time(self, plain):
        many = [
            Document(f"Line {at}.", id=f"m{at}", metadata={"source": "m"}) for at in range(201)
        ]
        plain.primary.add_documents(many)
        plain.liked(cited=many, text="All of it.")
        asked = []

        def resolve(wanted):
            asked.append(len(wanted))
            return plain.primary.get_by_ids(wanted)

        foldback = plain.foldback(auto_approve=True, resolve=resolve)
        plain.run(foldback)
        assert max(asked) <= 200 < sum(asked)
        plain.primary.delete(["m7"])
        assert plain.run(foldback).counts == {"expire": 1}

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
        foldback = self.forgotten(plain, plain.served(plain.foldback(serve="answer")))
        assert ids(foldback.lookup(MONEY)) == ["right"]
        assert ids(plain.foldback().lookup(MONEY)) == ["right"]
        # Others' words were liked, too; but it was her words that the reviewer had seen.
        plain.liked(text="Others' words.")
        assert not foldback.plan()
        assert ids(foldback.lookup(MONEY)) == ["right"]

    def test_votes_give_an_entry_of_theirs_another_answer_that_is_proved(self, plain):
        foldback = plain.foldback(serve="answer", auto_approve=True)
        plain.liked()
        plain.run(foldback)
        self.forgotten(plain, foldback)
        before = foldback.list()[0].expires_at
        plain.liked(people=PEOPLE[:1], text="It says “within forty one days of asking”.")
        assert not foldback.plan()
        plain.liked(people=PEOPLE[:1], text="Others' words.")
        assert plain.run(foldback).counts == {"refresh": 1}
        assert foldback.list()[0].expires_at == before
        assert "Others' words." in foldback.lookup(MONEY)[-1].page_content
        assert not foldback.plan()

    def test_a_reviewer_is_shown_the_answer_that_took_the_place_of_a_forgotten_one(self, plain):
        foldback, queue = plain.foldback(), ReviewQueue(plain.store)
        plain.liked()
        plain.run(foldback)
        claimed = queue.claim("rita")
        self.forgotten(plain, foldback)
        plain.liked(people=PEOPLE[:1], text="It says “within forty one days of asking”.")
        plain.run(foldback)
        assert foldback.list()[0].text == ""
        plain.liked(people=PEOPLE[:1], text="Others' words.")
        assert plain.run(foldback).counts == {"revive": 1}
        # What she was about to say yes to is another answer.
        with pytest.raises(ReviewError):
            queue.decide(claimed, "confirm")
        again = queue.claim("rita")
        assert again.snapshot["answer"] == "Others' words."
        queue.decide(again, "confirm")
        assert [(one.status, one.text) for one in foldback.list()] == [
            ("active", "Others' words.")
        ]

    def forgotten(self, plain, foldback):
        """Have the one entry hold the answer that somebody got who then is forgotten."""
        plain.store.record_trace("hers", REFUND, [RIGHT], actor="zoe")
        with writing(plain.store) as (connection, _):
            connection.execute(update(derived).values(trace_id="hers", text="Her words."))
        plain.store.forget("zoe")
        assert foldback.list()[0].text == ""
        return foldback

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

    @pytest.mark.parametrize(
        "wrong", [{"least_lower": 1.1}, {"least_lower": -0.1}, {"least_votes": -1},
                  {"least_actors": float("nan")}]
    )  # fmt: skip
    def test_numbers_out_of_range_are_refused(self, wrong):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Gate(**wrong)

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
        # Its question is written by the next run: see `FoldBack`.
        assert foldback.lookup(MONEY) == []
        plan = foldback.plan()
        assert (plan.changes, len(plan.index.add)) == ((), 1)
        assert foldback.apply(plan.digest).written == 1
        assert ids(foldback.lookup(MONEY)) == ["right"]
        assert not foldback.plan()

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

    def test_it_tells_what_people_say_by_now_and_what_passes_comes_first(self, world):
        queue, foldback = ReviewQueue(world.store), world.foldback()
        trace_id = world.liked(people=PEOPLE[:1])
        world.liked(SERVER, people=PEOPLE[:3])
        world.run(foldback)
        assert [one.question for one in queue.items()] == [SERVER, REFUND]
        for person in PEOPLE:
            world.store.rate(trace_id, 5, actor=person)
        assert world.run(foldback).counts == {"refresh": 1}
        first, second = queue.items()
        assert (first.question, second.question) == (REFUND, SERVER)
        assert first.snapshot["why"] == ["8 for, 0 against, of 8 people."]
        assert first.priority > 1 > second.priority

    def test_one_that_nobody_decided_in_time_is_asked_again_when_somebody_says_more(self, plain):
        queue, foldback = ReviewQueue(plain.store), plain.foldback()
        trace_id = plain.liked(people=PEOPLE[:1])
        plain.run(foldback)
        with writing(plain.store) as (connection, _):
            over = {"expires_at": datetime(2026, 1, 1, tzinfo=UTC)}
            connection.execute(update(review_items).values(over))
        assert queue.expire() == 1
        plain.run(foldback)
        assert queue.claim("rita") is None
        plain.store.rate(trace_id, 5, actor="bob")
        plain.run(foldback)
        queue.decide(queue.claim("rita"), "confirm")
        assert foldback.list()[0].status == "active"

    def test_one_that_was_decided_is_not_asked_again(self, plain):
        queue, foldback = ReviewQueue(plain.store), plain.foldback()
        trace_id = plain.liked(people=PEOPLE[:1])
        plain.run(foldback)
        queue.decide(queue.claim("rita"), "unclear")
        plain.store.rate(trace_id, 5, actor="bob")
        plain.run(foldback)
        assert queue.claim("sam") is None

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


class TestAnIndexThatAnotherProcessSaved:
    @pytest.fixture
    def behind(self, plain, tmp_path):
        """Fold-back with an entry, on an index that another process saved since."""
        place = tmp_path / "questions"

        def persist():
            def save(index, folder):
                index.dump(str(folder / "index"))

            return SavedFolder(place, save).save

        other = plain.foldback(persist=persist())
        foldback = plain.foldback(vector_store=empty("memory", Angles()), persist=persist())
        plain.liked()
        plain.liked(SERVER)
        plain.run(other)
        first, second = other.list()
        other.approve(first.derived_id, "rita")
        return foldback, second.derived_id

    def test_approving_there_changes_nothing(self, plain, behind):
        foldback, derived_id = behind
        before = rows(plain.store)
        with pytest.raises(IndexBusyError, match="Load the index again"):
            foldback.approve(derived_id, "rita")
        assert rows(plain.store) == before

    def test_rejecting_there_holds_all_the_same(self, behind):
        foldback, _ = behind
        [active] = foldback.list(status="active")
        with pytest.raises(IndexBusyError, match="Load the index again"):
            foldback.reject(active.derived_id, "rita")
        assert {one.derived_id: one.status for one in foldback.list()}[active.derived_id] == (
            "rejected"
        )

    def test_where_another_one_writes_just_now_the_next_run_writes_it(self, plain):
        foldback = plain.foldback()
        plain.liked()
        plain.run(foldback)
        [entry] = foldback.list()
        ledger = TableLedger(plain.store, "foldback")
        assert ledger.claim("somebody", 60)
        with pytest.raises(IndexBusyError, match="Another writer"):
            foldback.approve(entry.derived_id, "rita")
        assert foldback.list()[0].status == "active"
        ledger.release("somebody")
        assert plain.run(foldback).written == 1
        assert ids(foldback.lookup(MONEY)) == ["right"]


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
