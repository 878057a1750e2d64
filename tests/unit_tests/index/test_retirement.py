"""Retirement: what goes, what stays whatever is said of it, and how it comes back."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from sqlalchemy import func, select

from langchain_feedback import FeedbackRetriever
from langchain_feedback.index._retirement.rules import Tally, Vote, tally
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.retirement import (
    NotRestoredError,
    Restored,
    Retired,
    Retirement,
    RetirementRules,
)
from langchain_feedback.index.writer import IndexBusyError, PlanChangedError
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import credits_
from langchain_feedback.store.transactions import reading
from tests.unit_tests.index.gate_kit import set_status
from tests.unit_tests.index.retirement_kit import (
    JUNK,
    PEOPLE,
    QUESTIONS,
    World,
    chunk,
    everything,
    ids,
    repeated,
)

NOW = datetime(2026, 11, 30, tzinfo=UTC)
KINDS = ("memory", "faiss")


@pytest.fixture
def store():
    with FeedbackStore("sqlite://", timeout_s=20) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
def any_store(request):
    url = "sqlite://" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with FeedbackStore(url, timeout_s=20) as store:
        yield store


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param == "faiss":
        pytest.importorskip("faiss", reason="faiss is missing")
        pytest.importorskip("langchain_community", reason="langchain-community is missing")
    return request.param


def junk_and_good(number=4):
    return [chunk("junk", JUNK), *(chunk(at) for at in range(number))]


# -- the way of a chunk


def test_check7_junk_is_hidden_then_removed_and_comes_back_as_it_was(any_store, kind):
    world = World(any_store, kind, *junk_and_good())
    before, ranked = world.held(), world.ranked(JUNK)
    done = world.run()
    assert (done.demoted, done.removed) == (("junk",), ())
    assert world.status()["junk"] == "demoted"
    assert world.held() == before, "what is hidden stays in the index"
    world.pass_days(13)
    assert not world.retirement.plan()
    world.pass_days(1)
    done = world.run()
    assert (done.demoted, done.removed) == ((), ("junk",))
    assert world.status()["junk"] == "retired"
    assert "junk" not in world.held()
    assert "junk" not in dict(world.ranked(JUNK))
    back = world.retirement.restore(done.run_id, actor="rita")
    assert back.chunks == ("junk",)
    assert world.held() == before
    assert world.ranked(JUNK) == ranked
    assert world.status()["junk"] == "live"


def test_a_demoted_chunk_is_hidden_at_once_and_back_at_once(store):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    wanted = chunk(1)
    world.vote(wanted)
    base = world.index.as_retriever(search_kwargs={"k": 4})
    retriever = FeedbackRetriever(base_retriever=base, store=store, k=4, gate=QualityGate(store))

    def shown():
        return [one.id for one in retriever.invoke("What is there to learn?")]

    before = shown()
    assert "1" in before
    done = world.run()
    assert done.demoted == ("1",)
    assert shown() == [one for one in before if one != "1"]
    [action] = world.retirement.actions()
    world.retirement.restore(action.action_id, actor="rita")
    assert shown() == before


def test_check7_a_dry_run_writes_nothing_but_the_run(any_store):
    world = World(any_store, "memory", *junk_and_good())
    before, held = everything(any_store), world.held()
    plan = world.retirement.plan()
    assert ids(plan.demote) == ["junk"]
    assert everything(any_store) == before
    assert world.held() == held
    [run] = world.runs()
    assert run["run_id"] == plan.run_id
    assert (run["job"], run["dry_run"], run["status"]) == ("retire", True, "done")
    assert run["plan_digest"] == plan.digest
    assert json.loads(run["counts"]) == plan.counts


def test_what_was_reviewed_is_what_runs(any_store):
    world = World(any_store, "memory", *junk_and_good(), chunk("x", "Index", source="b.md"))
    world.load(*junk_and_good())
    plan = world.retirement.plan()
    done = Retirement(any_store, world.writer).apply(plan.digest, actor="rita")
    assert done.demoted == ("junk",)
    assert done.digest == plan.digest


def test_check7_another_plans_digest_is_refused_and_nothing_changes(any_store):
    world = World(any_store, "memory", *junk_and_good())
    plan = world.retirement.plan()
    world.store.pin(QUESTIONS[0], chunk("junk", JUNK), actor="rita")
    before = everything(any_store)
    for stale in (plan, plan.digest, "another"):
        with pytest.raises(PlanChangedError, match="Plan again"):
            world.retirement.apply(stale, actor="rita")
    assert everything(any_store) == before
    assert world.status()["junk"] == "live"


def test_plans_of_two_indexes_or_namespaces_differ(store):
    one = World(store, "memory", *junk_and_good())
    other = World(store.scoped("other"), "memory", *junk_and_good())
    assert one.retirement.plan().digest != other.retirement.plan().digest
    with pytest.raises(PlanChangedError):
        one.retirement.apply(other.retirement.plan(), actor="rita")


def test_a_second_run_does_nothing_and_writes_nothing(store):
    world = World(store, "memory", *junk_and_good())
    world.run()
    plan = world.retirement.plan()
    before = everything(store), world.runs()
    assert world.retirement.apply(plan, actor="rita") == Retired("", plan.digest)
    assert (everything(store), world.runs()) == before


def test_an_actor_is_needed(store):
    world = World(store, "memory", *junk_and_good())
    with pytest.raises(ValueError, match="actor"):
        world.retirement.apply(world.retirement.plan(), actor=" ")
    with pytest.raises(ValueError, match="actor"):
        world.retirement.restore("run", actor="")


async def test_the_twins_do_the_same(store):
    world = World(store, "memory", *junk_and_good())
    plan = await world.retirement.aplan()
    done = await world.retirement.aapply(plan, actor="rita")
    assert done.demoted == ("junk",)
    assert [one.action for one in await world.retirement.aactions()] == ["demote"]
    assert (await world.retirement.arestore(done.run_id, actor="rita")).chunks == ("junk",)


# -- what people say


def test_enough_votes_of_enough_people_on_enough_questions_retire_a_good_text(any_store):
    world = World(any_store, "memory", *(chunk(at) for at in range(4)))
    world.vote(chunk(1))
    [one] = world.retirement.plan().demote
    assert one.chunk_id == "1"
    assert one.statistics["actors"] == len(PEOPLE)
    assert one.statistics["questions"] == len(QUESTIONS)
    assert one.statistics["votes"] == 4 * len(PEOPLE)
    assert one.statistics["positive"] == 0
    assert one.reason == "0 of 32 votes for it, by 8 people on 6 questions"


def test_check7_one_person_with_a_thousand_votes_retires_nothing(store):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    world.vote(chunk(1), people=["mallory"], questions=[f"Question {at}?" for at in range(20)])
    repeated(store, 49)
    with reading(store) as connection:
        on_chunk = select(func.count()).select_from(credits_).where(credits_.c.chunk_id != "")
        assert connection.execute(on_chunk).scalar_one() == 1_000
    assert not world.retirement.plan()


def test_a_thousand_nameless_votes_retire_nothing(store):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    world.vote(chunk(1), people=[None] * 40)
    assert not world.retirement.plan()


@pytest.mark.parametrize(
    "less", [{"people": PEOPLE[:4]}, {"questions": QUESTIONS[:4]}], ids=["people", "questions"]
)
def test_too_few_people_or_questions_retire_nothing(store, less):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    world.vote(chunk(1), **less)
    assert not world.retirement.plan()


def test_a_chunk_that_only_stood_by_is_not_blamed(store):
    chunks = [chunk(at) for at in range(4)]
    world = World(store, "memory", *chunks)
    many = tuple(f"Question {at}?" for at in range(12))
    world.vote(chunks[1], cited=[chunks[2]], questions=many)
    plan = world.retirement.plan()
    assert ids(plan.demote) == ["2"]
    assert plan.waiting == 0


def test_an_answer_that_was_not_grounded_blames_nobody(store):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    world.vote(chunk(1), grounded=False)
    assert not world.retirement.plan()


def test_a_chunk_that_somebody_found_good_lately_stays(store):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    world.vote(chunk(1), rating=5, people=["ann"], questions=["Another?"])
    world.vote(chunk(1))
    assert not world.retirement.plan()
    world.pass_days(91)
    assert ids(world.retirement.plan().demote) == ["1"]


def test_junk_that_somebody_found_good_lately_stays(store):
    world = World(store, "memory", *junk_and_good())
    world.vote(chunk("junk", JUNK), rating=5, people=["ann"], questions=["Where?"])
    assert not world.retirement.plan()


def test_what_was_ever_pinned_stays(store):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    pin = store.pin(QUESTIONS[0], chunk(1), actor="rita")
    store.retract(pin)
    world.vote(chunk(1))
    assert not world.retirement.plan()


def test_what_was_folded_back_is_no_chunk(store):
    derived = chunk("d", JUNK, derived=True, derived_id="d")
    world = World(store, "memory", derived, *(chunk(at) for at in range(4)))
    assert not world.retirement.plan()


def test_votes_on_a_former_text_say_nothing_of_the_present_one(store):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    world.vote(chunk(1))
    ChunkCatalog(store).sync([chunk(1, "Rule 1 was written anew, and takes 9 days.")])
    assert not world.retirement.plan()


# -- what stays of a source


def test_check7_a_document_of_two_chunks_keeps_one(any_store, kind):
    world = World(any_store, kind, chunk(0), chunk(1), *others())
    for at in (0, 1):
        # The fewest that are enough: of each person four count.
        world.vote(chunk(at), people=PEOPLE[:5], questions=QUESTIONS[:5])
    plan = world.retirement.plan()
    assert ids(plan.demote) == ["0"]
    assert [(one.chunk_id, one.because) for one in plan.held] == [("1", "last_chunk")]
    world.run()
    assert ids(world.retirement.plan().demote) == []
    world.pass_days(14)
    world.run()
    assert world.retirement.plan().demote == ()
    assert set(world.held()) >= {"1"}


def test_a_document_of_one_chunk_keeps_it(store):
    world = World(store, "memory", chunk("junk", JUNK), *others())
    plan = world.retirement.plan()
    assert not plan
    assert [(one.chunk_id, one.because) for one in plan.held] == [("junk", "last_chunk")]
    assert plan.counts["held_last_chunk"] == 1


def test_junk_is_nothing_that_a_document_is_left_with(store):
    loved = chunk("junk", JUNK)
    world = World(store, "memory", chunk(0), loved, *others())
    store.pin(QUESTIONS[0], loved, actor="rita")
    world.vote(chunk(0))
    assert [(one.chunk_id, one.because) for one in world.retirement.plan().held] == [
        ("0", "last_chunk")
    ]


def test_half_of_a_documents_text_stays_over_all_runs(store):
    rules = RetirementRules(most_share=1)
    world = World(store, "memory", *(chunk(at) for at in range(4)), *others(), rules=rules)
    for at in range(4):
        world.vote(chunk(at))
    plan = world.retirement.plan()
    assert ids(plan.demote) == ["0", "1"]
    assert {one.because for one in plan.held} == {"half_of_source"}
    for _ in range(3):
        world.run()
        world.pass_days(14)
    assert {key for key in world.held() if key in "0123"} == {"2", "3"}
    assert world.status()["2"] == world.status()["3"] == "live"


def test_two_tenants_documents_of_one_name_are_two(store):
    rules = RetirementRules(most_share=1)
    one, two = (chunk(f"junk {name}", JUNK, tenant=name) for name in "ab")
    world = World(store, "memory", rules=rules)
    documents = [one, two, chunk(1, tenant="b"), *others()]
    world.load(*documents)
    ChunkCatalog(store, scope_field="tenant").sync(documents, complete=True)
    plan = world.retirement.plan()
    assert ids(plan.demote) == ["junk b"]
    assert [one.chunk_id for one in plan.held] == ["junk a"]


def test_siblings_that_are_no_longer_in_the_index_do_not_count(store):
    world = World(store, "memory", *junk_and_good(1), *others())
    world.index.delete(["0"])
    [held] = world.retirement.plan().held
    assert (held.chunk_id, held.because) == ("junk", "last_chunk")


def test_at_removal_the_source_is_looked_at_again(store):
    world = World(store, "memory", *junk_and_good(1), *others())
    world.run()
    world.pass_days(14)
    world.index.delete(["0"])
    plan = world.retirement.plan()
    assert not plan
    assert [(one.chunk_id, one.because) for one in plan.held] == [("junk", "last_chunk")]


def test_at_removal_what_speaks_for_a_chunk_counts(store):
    world = World(store, "memory", *junk_and_good(), *others())
    world.run()
    world.pass_days(14)
    store.pin(QUESTIONS[0], chunk("junk", JUNK), actor="rita")
    plan = world.retirement.plan()
    assert not plan
    assert [(one.chunk_id, one.because) for one in plan.held] == [("junk", "pinned")]


def test_at_removal_something_must_still_speak_against_a_chunk(store):
    world = World(store, "memory", *(chunk(at) for at in range(4)))
    world.vote(chunk(1))
    world.run()
    world.pass_days(14)
    milder = Retirement(store, world.writer, rules=RetirementRules(least_votes=1_000)).plan()
    assert not milder
    assert [(one.chunk_id, one.because) for one in milder.held] == [("1", "acquitted")]
    assert ids(world.retirement.plan().remove) == ["1"]


def test_without_a_source_nothing_goes(store):
    world = World(store, "memory", chunk("junk", JUNK, source=""), *others())
    assert [one.because for one in world.retirement.plan().held] == ["no_source"]


def test_what_json_cannot_give_back_is_not_taken_away(store):
    odd = chunk("junk", JUNK, seen={"1", "2"})
    world = World(store, "memory", odd, chunk(0), *others())
    assert [one.because for one in world.retirement.plan().held] == ["unkeepable"]


def test_what_is_not_in_the_index_cannot_go(store):
    world = World(store, "memory", *junk_and_good())
    world.index.delete(["junk"])
    assert [one.because for one in world.retirement.plan().held] == ["not_in_index"]


@pytest.mark.parametrize(("most", "gone"), [({}, 1), ({"most_share": 1, "most_a_run": 3}, 3)])
def test_one_run_takes_so_many_and_the_rest_waits(store, most, gone):
    junk = [chunk(f"junk {at}", JUNK, source=f"{at}.md") for at in range(5)]
    good = [chunk(f"good {at}", source=f"{at}.md") for at in range(5)]
    world = World(store, "memory", *junk, *good, rules=RetirementRules(**most))
    plan = world.retirement.plan()
    assert len(plan.demote) == gone
    assert plan.waiting == 5 - gone
    world.run()
    assert list(world.status().values()).count("demoted") == gone


# -- on record


def test_all_that_was_taken_away_is_on_record(store):
    world = World(store, "memory", chunk("junk", JUNK, page=3, tags=["a"]), chunk(0), *others())
    done = world.run()
    [action] = world.retirement.actions(done.run_id)
    assert (action.action, action.target, action.actor) == ("demote", "junk", "rita")
    assert action.document == chunk("junk", JUNK, page=3, tags=["a"])
    assert action.reason == "gated: no_statement"
    assert action.statistics["gated"] == ["no_statement"]
    assert action.undone_by is None
    run = world.runs()[-1]
    assert (run["run_id"], run["dry_run"], run["status"]) == (done.run_id, False, "done")


def test_a_restored_chunk_is_on_record_and_is_no_candidate_for_90_days(store):
    world = World(store, "memory", *junk_and_good())
    done = world.run()
    assert done.demoted == ("junk",)
    back = world.retirement.restore(done.run_id, actor="bob")
    first, second = world.retirement.actions()
    assert first.undone_by == second.action_id
    assert (second.action, second.actor, second.run_id) == ("restore", "bob", back.run_id)
    assert not world.retirement.plan()
    # The gate is one thing, and what people say another: this is about the latter.
    QualityGate(store).disallow([chunk("junk", JUNK)], actor="bob")
    world.pass_days(89)
    assert not world.retirement.plan()
    world.pass_days(2)
    assert ids(world.retirement.plan().demote) == ["junk"]


def test_what_the_gate_took_out_is_allowed_by_whoever_restores_it(any_store):
    world = World(any_store, "memory", *junk_and_good())
    gate, bad = QualityGate(any_store), chunk("junk", JUNK)
    done = world.run()
    assert gate.hidden([bad]) == {0: ("no_statement", "demoted")}
    world.retirement.restore(done.run_id, actor="bob")
    assert gate.hidden([bad]) == {}
    assert [(one.actor, one.chunks) for one in gate.allowed()] == [("bob", ("junk",))]
    world.pass_days(91)
    assert not world.retirement.plan()


def test_restoring_twice_is_harmless(store):
    world = World(store, "memory", *junk_and_good())
    done = world.run()
    world.retirement.restore(done.run_id, actor="rita")
    before = everything(store), world.runs()
    assert world.retirement.restore(done.run_id, actor="rita") == Restored("", ())
    assert (everything(store), world.runs()) == before


def test_restoring_the_demotion_of_what_was_removed_since_puts_it_back(store):
    world = World(store, "memory", *junk_and_good())
    demoted = world.run()
    world.pass_days(14)
    removed = world.run()
    world.retirement.restore(demoted.run_id, actor="rita")
    assert "junk" in world.held()
    assert all(one.undone_by for one in world.retirement.actions(removed.run_id))


def test_what_nobody_did_cannot_be_restored(store):
    world = World(store, "memory", *junk_and_good())
    done = world.run()
    with pytest.raises(NotRestoredError, match="no action"):
        world.retirement.restore("nothing", actor="rita")
    other = World(store.scoped("other"), "memory", *junk_and_good())
    with pytest.raises(NotRestoredError, match="no action"):
        other.retirement.restore(done.run_id, actor="rita")


def test_an_old_text_does_not_come_back_over_a_new_one(store):
    world = World(store, "memory", *junk_and_good())
    done = world.run()
    ChunkCatalog(store).sync([chunk("junk", "Refunds take 14 days.")])
    with pytest.raises(NotRestoredError, match="another one by now"):
        world.retirement.restore(done.run_id, actor="rita")
    assert world.status()["junk"] == "live"


def test_another_text_in_the_index_is_not_overwritten(store):
    world = World(store, "memory", *junk_and_good())
    world.run()
    world.pass_days(14)
    done = world.run()
    world.index.add_documents([chunk("junk", "Refunds take 14 days.")])
    with pytest.raises(NotRestoredError, match="another text"):
        world.retirement.restore(done.run_id, actor="rita")
    assert world.held()["junk"][0] == "Refunds take 14 days."


def test_an_index_that_loses_what_it_is_given_is_told_of(store):
    world = World(store, "memory", *junk_and_good())
    world.run()
    world.pass_days(14)
    done = world.run()
    world.index.add_documents = lambda documents, **_: [one.id for one in documents]
    with pytest.raises(NotRestoredError, match="did not return"):
        world.retirement.restore(done.run_id, actor="rita")
    assert world.status()["junk"] == "retired"


# -- crashes


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
def test_a_removal_that_dies_is_done_by_the_next_run(store, kind, after):
    world = World(store, kind, *junk_and_good())
    held = world.held()
    world.run()
    world.pass_days(14)
    delete = world.index.delete

    def dies(ids, **kwargs):
        if after:
            delete(ids, **kwargs)
        raise OSError

    world.index.delete = dies
    with pytest.raises(OSError):  # noqa: PT011  the fake's own
        world.run()
    assert world.runs()[-1]["status"] == "failed"
    assert world.status()["junk"] == "demoted"
    world.index.delete = delete
    assert world.run().removed == ("junk",)
    assert world.status()["junk"] == "retired"
    assert "junk" not in world.held()
    world.retirement.restore(world.runs()[-1]["run_id"], actor="rita")
    assert world.held() == held


def test_a_text_that_is_edited_during_its_removal_is_not_hidden(store):
    world = World(store, "memory", *junk_and_good())
    world.run()
    world.pass_days(14)
    delete = world.index.delete

    def edited(ids, **kwargs):
        delete(ids, **kwargs)
        ChunkCatalog(store).sync([chunk("junk", "Refunds take 14 days.")])

    world.index.delete = edited
    assert world.run().removed == ("junk",)
    assert world.status()["junk"] == "live"


def test_what_somebody_else_hides_is_not_removed(store):
    world = World(store, "memory", *junk_and_good())
    world.retirement.restore(world.run().run_id, actor="rita")
    set_status(store, "demoted", "junk")
    world.pass_days(20)
    plan = world.retirement.plan()
    assert not plan
    assert not plan.held


def test_of_two_who_remove_the_same_one_is_on_record(store):
    world = World(store, "memory", *junk_and_good())
    world.run()
    world.pass_days(15)
    plan, refused = world.retirement.plan(), []
    delete = world.index.delete

    def meanwhile(*arguments, **options):
        with pytest.raises(IndexBusyError):
            Retirement(store, world.writer).apply(plan, actor="bob")
        refused.append(1)
        return delete(*arguments, **options)

    world.index.delete = meanwhile
    assert world.retirement.apply(plan.digest, actor="rita").removed == ("junk",)
    assert refused
    told = [(one.action, one.actor) for one in world.retirement.actions()]
    assert told == [("demote", "rita"), ("remove", "rita")]
    with pytest.raises(PlanChangedError):
        world.retirement.apply(plan, actor="bob")


def test_while_another_writer_works_nothing_is_removed(store):
    world = World(store, "memory", *junk_and_good())
    world.run()
    world.pass_days(14)
    assert world.writer.ledger.claim("somebody", 60)
    with pytest.raises(IndexBusyError):
        world.run()
    assert "junk" in world.held()
    world.writer.ledger.release("somebody")
    assert world.run().removed == ("junk",)


class Late(TableLedger):
    """Lets something happen when a plan was just made: that is when its name is asked for."""

    happens = None

    @property
    def name(self):
        happens, self.happens = self.happens, None
        if happens:
            happens()
        return self._named

    @name.setter
    def name(self, value):
        self._named = value


def test_what_is_said_while_a_plan_runs_counts(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}", timeout_s=20) as store:
        world = World(store, "memory", *junk_and_good())
        plan = world.retirement.plan()
        world.writer.ledger = ledger = Late(store, "handbook")
        ledger.happens = lambda: store.pin(QUESTIONS[0], chunk("junk", JUNK), actor="rita")
        with pytest.raises(PlanChangedError, match="Plan again"):
            world.retirement.apply(plan, actor="rita")
        assert ledger.happens is None
        assert world.status()["junk"] == "live"
        assert world.retirement.actions() == []


# -- numbers


VOTES = st.lists(
    st.builds(
        Vote,
        st.sampled_from(["", "ann", "bob"]),
        st.integers(0, 3),
        st.sampled_from([-1, 0, 1]),
        st.floats(0.1, 2.5),
        st.integers(0, 100).map(lambda days: NOW - timedelta(days=days)),
    ),
    max_size=30,
)


@given(VOTES, st.randoms())
def test_the_order_of_votes_makes_no_difference(votes, random):
    distinct = list({(one.actor, one.question_id, one.at): one for one in votes}.values())
    shuffled = random.sample(distinct, len(distinct))
    assert tally(shuffled) == tally(distinct)


@given(VOTES)
def test_nobody_weighs_more_than_four_against_a_chunk(votes):
    said = tally(votes)
    assert said.votes - said.positive <= 4 * said.actors + 1e-9
    assert said.positive <= said.questions * said.actors
    goods = [one.at for one in votes if one.polarity > 0]
    assert said.last_positive == max(goods, default=None)


def test_a_persons_newest_word_counts():
    early, late = NOW - timedelta(days=1), NOW
    said = tally([Vote("ann", 1, -1, 1.0, early), Vote("ann", 1, 0, 1.0, late)])
    assert (said.votes, said.actors) == (0, 0)
    said = tally([Vote("ann", 1, -1, 1.0, late), Vote("ann", 1, 1, 1.0, early)])
    assert (said.votes, said.positive) == (1, 0)


@pytest.mark.parametrize("wrong", [{"most_upper": 1.1}, {"most_a_run": -1}, {"hidden_days": -1}])
def test_rules_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetirementRules(**wrong)


@pytest.mark.parametrize(
    "less",
    [{"votes": 19}, {"actors": 4}, {"questions": 4}, {"upper": 0.31}],
    ids=["votes", "actors", "questions", "share"],
)
def test_all_of_it_must_hold(less):
    enough = Tally(votes=20, actors=5, questions=5, upper=0.3)
    assert RetirementRules().condemns(enough)
    assert not RetirementRules().condemns(replace(enough, **less))


def others():
    """Chunks of other sources."""
    return [chunk(f"other {at}", source=f"other {at}.md") for at in range(3)]


def test_documents_without_ids_of_their_own_are_found_under_the_writers(store):
    world = World(store)
    texts = (JUNK, "Refunds take 14 days.")
    world.load(*(Document(text, metadata={"source": "a.md"}) for text in texts))
    plan = world.retirement.plan()
    assert [one.document.page_content for one in plan.demote] == [JUNK]
    done = world.run()
    world.pass_days(14)
    world.run()
    assert world.index.get_by_ids([plan.demote[0].index_id]) == []
    world.retirement.restore(done.run_id, actor="rita")
    [back] = world.index.get_by_ids([plan.demote[0].index_id])
    assert back.page_content == JUNK
