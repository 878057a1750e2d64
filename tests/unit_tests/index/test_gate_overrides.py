"""What a person allowed is junk no longer: not hidden, not dropped, and not retired for it."""

import pytest
from langchain_core.documents import Document
from sqlalchemy import event, select, update

from langchain_feedback.documents import content_hash
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.gate import Allowed, GateCounts, QualityFilter, QualityGate
from langchain_feedback.index.health import check_health
from langchain_feedback.index.managed import ManagedIndex
from langchain_feedback.store.care_schema import care_runs, chunk_quality, quality_overrides
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.index.gate_kit import QUESTION, good, junk, over, set_status, texts
from tests.unit_tests.index.retirement_kit import JUNK, World, chunk, everything, ids


@pytest.fixture
def store():
    with FeedbackStore("sqlite://", timeout_s=20) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
def any_store(request):
    url = "sqlite://" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with FeedbackStore(url, timeout_s=20) as store:
        yield store


@pytest.fixture
def gate(store):
    return QualityGate(store)


def a_world(store):
    return World(store, "memory", chunk("junk", JUNK), *(chunk(at) for at in range(4)))


def managed(world, *documents):
    return ManagedIndex(
        vector_store=world.index, name="handbook", documents=lambda: list(documents)
    )


# -- what passes


def test_what_is_allowed_is_shown_and_indexed_and_the_rest_is_not(any_store):
    gate = QualityGate(any_store)
    found = [*good(2), *junk(3)]
    gate.split(found)
    assert gate.allow(found[2:3], actor="rita", reason="A title.") == 1
    assert gate.hidden(found) == dict.fromkeys([3, 4], ("no_statement",))
    kept, dropped = gate.split(found)
    assert kept == found[:3]
    assert [(id(one), why) for one, why in dropped] == [
        (id(one), ["no_statement"]) for one in found[3:]
    ]
    assert texts(QualityFilter(gate=gate).compress_documents(found, "?")) == texts(found[:3])


def test_what_is_allowed_is_known_and_counted_as_shown(gate):
    found = junk(2)
    gate.score(found)
    gate.allow(found, actor="rita")
    assert gate.hidden(found) == {}
    assert gate.counts == GateCounts(checked=2, hidden=0, unknown=0)


def test_a_retriever_returns_what_is_allowed(store, gate):
    found = [*junk(2), *good(4)]
    gate.split(found)
    retriever, _ = over(found, store, gate=gate)
    assert texts(retriever.invoke(QUESTION)) == texts(found[2:])
    gate.allow(junk(2), actor="rita")
    assert texts(retriever.invoke(QUESTION)) == texts(found[:4])


def test_raw_scores_say_what_the_checks_find_all_the_same(gate):
    found = junk(2)
    before = gate.score(found)
    gate.allow(found, actor="rita")
    assert gate.score(found) == before
    assert [one.gated for one in before] == [True, True]


def test_the_health_check_measures_the_corpus_not_what_is_shown(store):
    found = [*good(30), *junk(30)]
    gate = QualityGate(store)
    gate.score(found)
    ChunkCatalog(store).sync(found, complete=True)
    gate.allow(junk(30), actor="rita")
    health = check_health(store, ManagedIndex(documents=lambda: found))
    [share] = [one for one in health.checks if one.name == "gated_share"]
    assert share.figures["gated"] == 30


def test_a_text_is_allowed_under_any_id_and_source_and_an_edited_one_is_not(gate):
    [one] = junk(1)
    gate.score([one, Document(f"{one.page_content} again")])
    gate.allow([one], actor="rita")
    moved = Document(one.page_content, id="new", metadata={"source": "elsewhere"})
    edited = Document(f"{one.page_content} again", id=one.id, metadata=one.metadata)
    assert gate.hidden([moved, edited]) == {1: ("no_statement",)}


def test_another_namespace_goes_by_its_own_people(store):
    mine, theirs = QualityGate(store.scoped("a")), QualityGate(store.scoped("b"))
    found = junk(2)
    mine.split(found)
    mine.allow(found, actor="rita")
    assert theirs.allowed() == []
    assert theirs.hidden(found).keys() == {0, 1}
    assert theirs.split(found)[0] == []
    assert theirs.disallow(found, actor="bob") == 0
    assert mine.hidden(found) == {}


def test_what_nobody_has_scored_yet_can_be_allowed_and_so_what_other_rules_will_find(gate, store):
    found = junk(1)
    gate.allow(found, actor="rita")
    assert gate.split(found) == (found, [])
    with writing(store) as (connection, _):
        connection.execute(update(chunk_quality).values(scoring_version="0"))
    assert gate.split(found) == (found, [])
    assert gate.hidden(found) == {}


@pytest.mark.parametrize("status", ["demoted", "retired"])
def test_what_was_taken_out_stays_hidden(store, gate, status):
    found = [chunk("junk", JUNK)]
    ChunkCatalog(store).sync(found)
    gate.split(found)
    set_status(store, status, "junk")
    assert gate.hidden(found) == {0: ("no_statement", status)}
    gate.allow(found, actor="rita")
    assert gate.hidden(found) == {0: (status,)}


def test_a_look_up_is_one_statement_still(store, gate):
    found = [*good(10), *junk(10)]
    gate.split(found)
    gate.allow(junk(5), actor="rita")
    sent = []
    note = lambda *what: sent.append(what[2])  # noqa: E731
    event.listen(store._database.engine, "before_cursor_execute", note)
    try:
        hidden = gate.hidden(found)
    finally:
        event.remove(store._database.engine, "before_cursor_execute", note)
    assert hidden.keys() == set(range(15, 20))
    assert [one.split()[0] for one in sent if not one.startswith("BEGIN")] == ["SELECT"]


# -- who said so


def test_it_is_listed_who_allowed_what_and_why_oldest_first(any_store):
    gate = QualityGate(any_store)
    first, second = chunk("x", JUNK), Document("Index")
    ChunkCatalog(any_store).sync([first, chunk("copy", JUNK)])
    gate.allow([first, first], actor="rita", reason="A title.")
    gate.allow([second], actor="bob")
    one, two = gate.allowed()
    assert one == Allowed(content_hash(first), "rita", "A title.", one.at, ("copy", "x"))
    assert two == Allowed(content_hash(second), "bob", "", two.at, ())
    assert one.at <= two.at
    assert one.at.tzinfo is not None


def test_saying_it_again_replaces_who_and_why(any_store):
    gate = QualityGate(any_store)
    found = junk(1)
    assert gate.allow(found, actor="rita", reason="A title.") == 1
    assert gate.allow([*found, *junk(2)], actor="bob", reason="So it is.") == 1
    assert {(one.actor, one.reason) for one in gate.allowed()} == {("bob", "So it is.")}


def test_taking_it_back_lets_the_checks_count_again(any_store):
    gate = QualityGate(any_store)
    found = junk(2)
    gate.split(found)
    gate.allow(found, actor="rita")
    assert gate.disallow(junk(3)[1:], actor="bob") == 1
    assert gate.hidden(found) == {1: ("no_statement",)}
    assert [one.content_hash for one in gate.allowed()] == [content_hash(found[0])]
    assert gate.disallow(junk(3)[1:], actor="bob") == 0


def test_each_change_stays_on_record_and_nothing_else_does(store, gate):
    gate.allow([], actor="rita")
    gate.disallow(junk(1), actor="rita")
    gate.allow(junk(2), actor="rita")
    gate.disallow(junk(1), actor="bob")
    with reading(store) as connection:
        rows = connection.execute(select(care_runs).order_by(care_runs.c.started_at)).mappings()
        said = [(one["job"], one["counts"], one["status"], one["dry_run"]) for one in rows]
    assert said == [
        ("gate", '{"allow": 2, "actor": "rita"}', "done", False),
        ("gate", '{"disallow": 1, "actor": "bob"}', "done", False),
    ]


@pytest.mark.parametrize("change", ["allow", "disallow"])
def test_somebody_has_to_answer_for_it(gate, change):
    with pytest.raises(ValueError, match="answers for it"):
        getattr(gate, change)(junk(1), actor=" ")
    assert gate.allowed() == []


async def test_the_async_twins_do_the_same(gate):
    found = junk(2)
    assert await gate.aallow(found, actor="rita") == 2
    assert await gate.aallowed() == gate.allowed()
    assert await gate.adisallow(found, actor="rita") == 2
    assert await gate.aallowed() == []


# -- what goes by it


def test_a_sync_that_drops_junk_keeps_what_is_allowed(any_store):
    world = World(any_store)
    documents = [chunk("a", JUNK), chunk("b", "Index"), chunk(1)]
    index = managed(world, *documents)
    index.gate(any_store).allow(documents[:1], actor="rita")
    before = everything(any_store)
    wanted = index.wanted(any_store, documents, drop_junk=True)
    assert ids_of(wanted.documents) == ["a", "1"]
    assert [(one.id, reasons) for one, reasons in wanted.junk] == [("b", ("no_statement",))]
    assert everything(any_store) == before


def test_a_retirement_leaves_alone_what_is_allowed(any_store):
    world = a_world(any_store)
    QualityGate(any_store).allow([chunk("junk", JUNK)], actor="rita")
    assert not world.retirement.plan()
    QualityGate(any_store).disallow([chunk("junk", JUNK)], actor="rita")
    assert ids(world.retirement.plan().demote) == ["junk"]


def test_votes_retire_also_what_is_allowed(store):
    world = a_world(store)
    bad = chunk("junk", JUNK)
    QualityGate(store).allow([bad], actor="rita")
    world.vote(bad)
    [one] = world.retirement.plan().demote
    assert (one.chunk_id, one.gated) == ("junk", ())


def test_what_was_hidden_is_not_removed_once_it_is_allowed(store):
    world = a_world(store)
    done = world.run()
    QualityGate(store).allow([chunk("junk", JUNK)], actor="rita")
    world.pass_days(20)
    plan = world.retirement.plan()
    assert not plan.remove
    assert [(one.chunk_id, one.because) for one in plan.held] == [("junk", "acquitted")]
    assert world.retirement.restore(done.run_id, actor="rita").chunks == ("junk",)


def test_an_allowed_chunk_is_a_good_one_that_its_source_may_keep(store):
    title, bad = chunk("title", "Contents Rome Oslo", "b.md"), chunk("bad", "Open 9 to 5.", "b.md")
    world = World(store, "memory", title, bad, *(chunk(at) for at in range(4)))
    world.vote(bad)
    assert not world.retirement.plan(), "junk is not all that a source may keep"
    QualityGate(store).allow([title], actor="rita")
    assert ids(world.retirement.plan().demote) == ["bad"]


def test_what_is_restored_by_name_passes_the_gate_from_then_on(any_store):
    world = a_world(any_store)
    gate, bad = QualityGate(any_store), chunk("junk", JUNK)
    first = world.run()
    world.pass_days(14)
    world.run()
    world.retirement.restore(first.run_id, actor="rita")
    [said] = gate.allowed()
    assert (said.actor, said.reason, said.chunks) == ("rita", "restored", ("junk",))
    assert gate.hidden([bad]) == {}
    index = managed(world, bad)
    assert ids_of(index.wanted(any_store, [bad], drop_junk=True).documents) == ["junk"]
    world.pass_days(400)
    assert not world.retirement.plan()


def test_what_was_retired_for_votes_and_is_junk_by_now_passes_too(store):
    world = a_world(store)
    bad = chunk("junk", JUNK)
    with writing(store) as (connection, _):
        connection.execute(update(chunk_quality).values(gated=False, reasons="[]"))
    world.vote(bad)
    done = world.run()
    assert done.demoted == ("junk",)
    with writing(store) as (connection, _):
        junk_now = chunk_quality.c.content_hash == content_hash(bad)
        values = {"gated": True, "reasons": '["no_statement"]'}
        connection.execute(update(chunk_quality).where(junk_now).values(**values))
    world.retirement.restore(done.run_id, actor="rita")
    assert QualityGate(store).hidden([bad]) == {}


def test_what_was_retired_for_votes_alone_is_not_allowed_when_it_is_restored(store):
    world = a_world(store)
    QualityGate(store).allow([chunk("junk", JUNK)], actor="rita")
    world.vote(chunk(1))
    done = world.run()
    assert done.demoted == ("1",)
    world.retirement.restore(done.run_id, actor="bob")
    assert [one.actor for one in QualityGate(store).allowed()] == ["rita"]


def test_a_restore_that_fails_allows_nothing(store):
    world = a_world(store)
    world.run()
    world.pass_days(14)
    done = world.run()
    world.index.add_documents = lambda documents, **_: [one.id for one in documents]
    with pytest.raises(Exception, match="did not return"):
        world.retirement.restore(done.run_id, actor="rita")
    with reading(store) as connection:
        assert connection.execute(select(quality_overrides)).all() == []


def ids_of(documents):
    return [one.id for one in documents]
