"""Forgetting and pruning reach what index care keeps: its record, its ledger, what it serves."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from sqlalchemy import select

from langchain_feedback.index.errors import IndexWriteError
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.retirement import RetirementRules
from langchain_feedback.index.versions import IndexRegistry
from langchain_feedback.index.writer import IndexWriter
from langchain_feedback.store.care_schema import (
    chunk_quality,
    derived,
    index_entries,
    quality_overrides,
)
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import metadata
from langchain_feedback.store.transactions import reading
from tests.unit_tests.index import foldback_kit as folded
from tests.unit_tests.index import retirement_kit as retired
from tests.unit_tests.index.retirement_kit import chunk

PRIVATE = "Ann Example"
"""Junk to the gate, and a person's name."""
LATER = timedelta(days=400)
KEPT = (chunk(1), chunk(2))


def everything(store):
    """All that the database holds, as one text; a `Row` would show long values cut."""
    with reading(store) as connection:
        rows = [
            tuple(row)
            for table in metadata.tables.values()
            if table.name.startswith("lcf_")
            for row in connection.execute(select(table))
        ]
    return repr(rows)


def column(store, table, name):
    with reading(store) as connection:
        return list(connection.scalars(select(table.c[name])))


def hidden(url):
    """An index in which two chunks are hidden for their texts."""
    store = FeedbackStore(url)
    rules = RetirementRules(most_share=1.0)
    junk = chunk("x", PRIVATE), chunk("y", retired.JUNK)
    world = retired.World(store, "memory", *KEPT, *junk, rules=rules)
    world.run(actor="rita")
    assert world.status() == {"1": "live", "2": "live", "x": "demoted", "y": "demoted"}
    return world


# -- a person


def test_who_answered_for_a_change_of_the_index_is_forgotten_and_what_was_done_stays(url):
    world = hidden(url)
    before = world.retirement.actions()
    world.store.forget("rita")
    assert "rita" not in everything(world.store)
    assert world.retirement.actions() == [replace(one, actor=None) for one in before]
    assert world.retirement.restore(before[0].run_id, actor="bob").chunks == ("x", "y")


def test_who_allowed_a_text_is_forgotten_with_the_reason_and_it_stays_allowed(url):
    store = FeedbackStore(url)
    gate, page = QualityGate(store), chunk("x", PRIVATE)
    gate.score([page, chunk("y", retired.JUNK)])
    gate.allow([page], actor="rita", reason="I, rita, know her.")
    gate.allow([chunk("y", retired.JUNK)], actor="bob", reason="A title.")
    gate.disallow([chunk("y", retired.JUNK)], actor="rita")
    gate.allow([chunk("y", retired.JUNK)], actor="bob", reason="A title.")
    store.forget("rita")
    assert "rita" not in everything(store)
    assert [(one.actor, one.reason) for one in gate.allowed()] == [(None, ""), ("bob", "A title.")]
    assert gate.hidden([page]) == {}


def test_who_switched_versions_leaves_the_journal_and_a_rollback_still_works(url):
    store = FeedbackStore(url)
    registry = IndexRegistry(store)
    found = RunnableLambda(lambda _: list(KEPT))
    for name, expected in (("v1", None), ("v2", "v1")):
        registry.register(name, None, locator={})
        registry.ready(name, open_version=lambda _: found, chunk_count=2)
        registry.activate(name, expected=expected, actor="rita")
    store.forget("rita")
    assert "rita" not in everything(store)
    assert registry.rollback(actor="bob").active.version == "v1"


def test_who_approved_a_folded_back_answer_is_forgotten_also_in_the_queue(url):
    with FeedbackStore(url, embeddings=folded.Angles()) as store:
        foldback = folded.World(store).served()
        [entry] = foldback.list(status="active")
        assert entry.approved_by == "rita"
        store.forget("rita")
        assert "rita" not in everything(store)
        assert [one.derived_id for one in foldback.list(status="active")] == [entry.derived_id]


def test_a_folded_back_question_that_nobody_else_asked_leaves_no_hash(url):
    with FeedbackStore(url, embeddings=folded.Angles()) as store:
        world = folded.World(store)
        foldback = world.served()
        trace_id = foldback.list()[0].trace_id
        text_hash = {one for one in column(store, index_entries, "content_hash") if one}
        assert len(text_hash) == 1
        store.forget(f"trace:{trace_id}")
        assert foldback.list() == []
        assert folded.REFUND not in everything(store)
        assert text_hash.pop() not in everything(store)
        # The ledger still knows that its index may hold the question, and so it goes.
        world.run(foldback)
        assert world.questions.similarity_search(folded.REFUND) == []


# -- chunks


def test_a_forgotten_chunk_leaves_no_text_and_no_hash_and_cannot_be_restored(url):
    world = hidden(url)
    of_x, of_y = world.retirement.actions()
    text_hash = of_x.before["content_hash"]
    assert PRIVATE in everything(world.store)

    world.index.delete(["x"])
    assert world.store.forget_chunks(["x"]) == 1

    left = everything(world.store)
    assert PRIVATE not in left
    assert text_hash not in left
    assert [one.target for one in world.retirement.actions()] == ["x", "y"]
    with pytest.raises(IndexWriteError, match="'x' was forgotten"):
        world.retirement.restore(of_x.action_id, actor="bob")
    # Also where the chunk is there again: there is nothing to restore it from.
    world.load(*KEPT, chunk("x", PRIVATE), chunk("y", retired.JUNK))
    with pytest.raises(IndexWriteError, match="'x'"):
        world.retirement.restore(of_x.action_id, actor="bob")
    assert world.index.get_by_ids(["x"])[0].page_content == PRIVATE
    assert world.retirement.restore(of_y.action_id, actor="bob").chunks == ("y",)


def test_a_chunk_that_is_retired_again_after_it_was_forgotten_can_be_restored(url):
    world = hidden(url)
    world.store.forget_chunks(["x"])
    world.load(*KEPT, chunk("x", PRIVATE), chunk("y", retired.JUNK))
    done = world.run()
    assert done.demoted == ("x",)
    assert world.retirement.restore(done.run_id, actor="bob").chunks == ("x",)


def test_what_only_the_record_still_tells_of_a_chunk_is_forgotten_too(url):
    world = hidden(url)
    actions = world.retirement.actions()
    world.retirement.restore(actions[0].run_id, actor="bob")
    world.store.prune(datetime.now(UTC) + LATER)
    assert world.status() == {}
    world.store.forget_chunks(["x"])
    left = everything(world.store)
    assert PRIVATE not in left
    assert actions[0].before["content_hash"] not in left


def test_the_ledger_knows_a_forgotten_chunk_by_its_id_so_that_it_can_leave_the_index(url):
    world = hidden(url)
    kept = [*KEPT, chunk("y", retired.JUNK)]
    world.store.forget_chunks(["x"])
    assert world.writer.ledger.entries()["x"].fingerprint == ("", "")
    # Who forgot to take it out is told of it by the next plan.
    plan = world.writer.plan(kept)
    assert plan.remove == ("x",)
    world.writer.apply(plan, force=True)
    assert world.index.get_by_ids(["x"]) == []
    assert not world.writer.plan(kept)


def test_a_chunk_that_was_written_under_a_made_up_id_leaves_the_ledger_by_its_text(url):
    store = FeedbackStore(url)
    page = Document(f"{PRIVATE} lives here.", metadata={"source": "a.md"})
    writer = IndexWriter(retired.empty_index("memory"), TableLedger(store, "handbook"))
    writer.apply(writer.plan([page]))
    store.record_trace("t", "Who?", [page])
    store.forget_chunks([store.trace("t").chunks[0].chunk_id])
    [entry] = writer.ledger.entries().values()
    assert entry.fingerprint == ("", "")


def test_what_is_known_of_a_text_stays_while_another_chunk_has_it(url):
    store, elsewhere = FeedbackStore(url), FeedbackStore(url, namespace="elsewhere")
    page, copy = chunk("a", PRIVATE), chunk("b", PRIVATE)
    QualityGate(store).score([page])
    for of, documents in ((store, [page, copy]), (elsewhere, [page])):
        of.record_trace(f"t {of.namespace}", "Who?", documents)
    store.forget_chunks(["a"])
    assert QualityGate(store).hidden([copy]) == {0: ("no_statement",)}
    store.forget_chunks(["b"])
    assert len(column(store, chunk_quality, "content_hash")) == 1
    elsewhere.forget_chunks(["a"])
    assert column(store, chunk_quality, "content_hash") == []


def test_that_a_text_is_allowed_is_forgotten_with_the_last_chunk_that_has_it(url):
    store, elsewhere = FeedbackStore(url), FeedbackStore(url, namespace="elsewhere")
    page, copy = chunk("a", PRIVATE), chunk("b", PRIVATE)
    for of, documents in ((store, [page, copy]), (elsewhere, [page])):
        of.record_trace(f"t {of.namespace}", "Who?", documents)
        QualityGate(of).allow([page], actor="rita")
    store.forget_chunks(["a"])
    [allowed] = QualityGate(store).allowed()
    assert allowed.chunks == ("b",)
    store.forget_chunks(["b"])
    assert QualityGate(store).allowed() == []
    assert len(QualityGate(elsewhere).allowed()) == 1
    elsewhere.forget_chunks(["a"])
    assert allowed.content_hash not in everything(store)


def test_that_a_text_is_allowed_is_forgotten_also_where_only_the_ledger_knows_the_chunk(url):
    store = FeedbackStore(url)
    pages = [chunk("a", PRIVATE), chunk("b", PRIVATE), *KEPT]
    writer = IndexWriter(retired.empty_index("memory"), TableLedger(store, "handbook"))
    writer.apply(writer.plan(pages))
    QualityGate(store).allow(pages, actor="rita")
    store.forget_chunks(["a"])
    assert len(QualityGate(store).allowed()) == 3
    store.forget_chunks(["b"])
    assert len(QualityGate(store).allowed()) == 2


def test_that_a_restored_text_is_allowed_is_forgotten_with_it(url):
    world = hidden(url)
    of_x, _ = world.retirement.actions()
    world.retirement.restore(of_x.action_id, actor="rita")
    assert of_x.before["content_hash"] in column(world.store, quality_overrides, "content_hash")
    world.store.forget_chunks(["x"])
    assert of_x.before["content_hash"] not in everything(world.store)


def test_an_answer_that_rests_on_a_forgotten_chunk_is_kept_no_longer_for_serving(url):
    with FeedbackStore(url, embeddings=folded.Angles()) as store:
        world = folded.World(store)
        foldback = world.served()
        world.primary.delete(["right"])
        store.forget_chunks(["right"])
        assert column(store, derived, "text") == [""]
        assert foldback.lookup(folded.REFUND) == []
        world.run(foldback)
        assert [one.status for one in foldback.list()] == ["expired"]


def test_another_namespace_forgets_nothing(url):
    world = hidden(url)
    before = everything(world.store)
    other = world.store.scoped("other")
    other.forget("rita")
    other.forget_chunks(["x", "y"])
    assert everything(world.store) == before


# -- pruning


def test_pruning_leaves_hidden_what_the_index_may_still_hold(url):
    world = hidden(url)
    world.pass_days(20)
    done = world.run()
    assert done.removed == ("x", "y")
    world.load(*KEPT, chunk("x", PRIVATE), chunk("z", "Index"))
    world.run()
    world.store.prune(datetime.now(UTC) + LATER)
    assert world.status() == {"x": "retired", "y": "retired", "z": "demoted"}
    found = [chunk("x", PRIVATE), chunk("new id", PRIVATE), chunk("z", "Index")]
    reasons = QualityGate(world.store).hidden(found)
    assert [one[-1] for one in reasons.values()] == ["retired", "retired", "demoted"]
    assert world.retirement.restore(done.run_id, actor="bob").chunks == ("x", "y")


def test_pruning_leaves_allowed_what_a_person_allowed(url):
    store = FeedbackStore(url)
    page = chunk("x", PRIVATE)
    store.record_trace("t", "Who?", [page])
    QualityGate(store).allow([page], actor="rita", reason="A title.")
    store.prune(datetime.now(UTC) + LATER)
    [allowed] = QualityGate(store).allowed()
    assert (allowed.actor, allowed.reason, allowed.chunks) == ("rita", "A title.", ())
    assert QualityGate(store).split([page]) == ([page], [])


def test_pruning_takes_an_answer_that_waits_with_its_question(url):
    with FeedbackStore(url, embeddings=folded.Angles()) as store:
        world = folded.World(store)
        foldback = world.foldback()
        world.liked()
        world.run(foldback)
        assert column(store, derived, "text") == ["It takes 14 days."]
        store.prune(datetime.now(UTC) + LATER)
        assert [(one.question, one.text) for one in foldback.list()] == [(None, "")]
