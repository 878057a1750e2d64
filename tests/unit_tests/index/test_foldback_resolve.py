"""Fold-back: the index alone says what a source's text is, whatever a stale reader has seen."""

import pytest
from langchain_core.documents import Document
from sqlalchemy import update

from langchain_feedback import FeedbackRetriever, FeedbackStore
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.foldback import FoldBackError
from langchain_feedback.index.writer import PlanChangedError
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import writing
from tests.fakes import ListRetriever
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
    others,
    rows,
)

OLDER = Document("A refund takes 7 days.", id="right", metadata={"source": "terms.md"})


@pytest.fixture(params=["sqlite", "postgres"])
def world(request, tmp_path):
    url = f"sqlite:///{tmp_path}/feedback.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    with FeedbackStore(url, embeddings=Angles(), timeout_s=20) as store:
        yield World(store)


@pytest.fixture
def plain(tmp_path):
    url = f"sqlite:///{tmp_path}/feedback.db"
    with FeedbackStore(url, embeddings=Angles(), timeout_s=20) as store:
        yield World(store)


def behind(world):
    """Have a process with an older state of the index answer something from it."""
    index = empty(world.kind, world.store.embeddings)
    index.add_documents([OLDER, *others()])
    reader = FeedbackRetriever(base_retriever=index.as_retriever(), store=world.store, k=7)
    assert "right" in ids(reader.invoke(SERVER))


def away(_):
    msg = "away"
    raise ConnectionError(msg)


def status(world, status):
    with writing(world.store) as (connection, _):
        this = update(chunks).where(chunks.c.chunk_id == "right")
        connection.execute(this.values(status=status))


class TestAReaderThatIsBehind:
    def test_it_hides_and_expires_nothing_that_the_index_holds(self, world):
        foldback = world.served()
        for _ in range(2):
            behind(world)
            assert ids(world.retriever(foldback=foldback).invoke(MONEY))[-1] == "right"
            before = rows(world.store)
            assert not foldback.plan()
            assert rows(world.store) == before
            ChunkCatalog(world.store).sync([*others(), RIGHT, SECOND], complete=True)
            assert not foldback.plan()
        assert foldback.list()[0].status == "active"

    def test_the_retriever_s_own_word_of_the_index_counts_too(self, plain):
        foldback = plain.served(plain.foldback())
        behind(plain)
        retriever = plain.retriever(foldback=foldback, resolve=plain.primary.get_by_ids)
        assert ids(retriever.invoke(MONEY))[-1] == "right"
        assert "right" not in ids(plain.retriever(foldback=foldback).invoke(MONEY))

    def test_what_it_saw_is_proposed_to_nobody_and_what_is_right_is(self, world):
        world.liked()
        world.liked(cited=[OLDER], text="It takes 7 days.")
        foldback = world.foldback(resolve=world.primary.get_by_ids)
        assert world.run(foldback).counts == {"propose": 1}
        [entry] = foldback.list()
        assert entry.text == "It takes 14 days."
        [item] = ReviewQueue(world.store).items()
        assert item.snapshot["chunks"][0]["text"] == RIGHT.page_content

    def test_a_reviewer_can_approve_what_the_index_holds_and_nothing_else(self, world):
        world.liked()
        foldback = world.foldback(resolve=world.primary.get_by_ids)
        world.run(foldback)
        [entry] = foldback.list()
        behind(world)
        for other in (world.foldback(), world.foldback(resolve=away)):
            before = rows(world.store)
            with pytest.raises(FoldBackError, match="source changed"):
                other.approve(entry.derived_id, "rita")
            assert rows(world.store) == before
        assert foldback.approve(entry.derived_id, "rita").status == "active"
        assert ids(foldback.lookup(MONEY)) == ["right"]
        assert not foldback.plan()

    def test_an_answer_comes_with_its_source_from_the_index(self, plain):
        foldback = plain.foldback(serve="answer", resolve=plain.primary.get_by_ids)
        plain.served(foldback, cited=[RIGHT, SECOND])
        behind(plain)
        found = foldback.lookup(MONEY)
        assert [one.page_content for one in found] == [
            RIGHT.page_content, SECOND.page_content, f"{REFUND}\nIt takes 14 days.",
        ]  # fmt: skip

    def test_without_access_to_the_index_it_cannot_be_told_from_an_edit(self, plain):
        foldback = plain.served(plain.foldback())
        behind(plain)
        assert foldback.lookup(MONEY) == []
        assert plain.run(foldback).counts == {"expire": 1}

    def test_an_index_that_is_away_serves_and_expires_nothing(self, plain):
        plain.served()
        behind(plain)
        foldback = plain.foldback(resolve=away)
        assert foldback.lookup(MONEY) == []
        assert not foldback.plan()

    def test_nor_does_it_bring_anything_back(self, plain):
        foldback = plain.served()
        plain.replace(EDITED)
        plain.run(foldback)
        plain.replace(RIGHT)
        behind(plain)
        assert not plain.foldback(resolve=away).plan()
        assert plain.run(foldback).counts == {"revive": 1}

    @pytest.mark.parametrize("gone", ["missing", "demoted", "retired"])
    def test_a_chunk_that_upkeep_took_out_is_hidden_all_the_same(self, plain, gone):
        foldback = plain.served()
        behind(plain)
        status(plain, gone)
        assert foldback.lookup(MONEY) == []

    def test_one_that_was_forgotten_is(self, plain):
        foldback = plain.served()
        behind(plain)
        plain.store.forget_chunks(["right"])
        assert foldback.lookup(MONEY) == []

    def test_who_asks_between_plan_and_apply_has_it_planned_again(self, plain):
        trace_id = plain.liked(people=PEOPLE[:1])
        foldback = plain.foldback(resolve=plain.primary.get_by_ids)
        plain.run(foldback)
        plain.store.rate(trace_id, 5, actor="bob")
        plan = foldback.plan()
        behind(plain)
        with pytest.raises(PlanChangedError, match="Plan again"):
            foldback.apply(plan)
        assert plain.run(foldback).counts == {"refresh": 1}


class TestTheIndexAloneDecides:
    def test_an_edit_hides_and_expires_whatever_was_seen_last(self, world):
        foldback = world.served()
        behind(world)
        world.replace(EDITED)
        assert foldback.lookup(MONEY) == []
        plan = foldback.plan()
        assert [(one.kind, one.reason) for one in plan.changes] == [("expire", "right changed")]
        assert foldback.apply(plan).removed == 1

    def test_a_base_that_still_returns_the_old_text_does_not_bring_it_back(self, plain):
        foldback = plain.served()
        plain.replace(EDITED)
        base = ListRetriever(documents=[*others()[:3], RIGHT])
        retriever = FeedbackRetriever(
            base_retriever=base, store=plain.store, k=2, foldback=foldback
        )
        assert ids(retriever.invoke(MONEY)) == ["c0", "c1"]

    def test_it_is_asked_once_and_not_for_what_is_shown_already(self, plain):
        asked = []

        def resolve(wanted):
            asked.append(wanted)
            return plain.primary.get_by_ids(wanted)

        plain.served(cited=[RIGHT, SECOND])
        foldback = plain.foldback(resolve=resolve)
        assert ids(foldback.lookup(MONEY)) == ["right"]
        assert asked == [["right", "second"]]
        assert foldback.lookup(MONEY, shown=[RIGHT, SECOND]) == []
        assert len(asked) == 1
