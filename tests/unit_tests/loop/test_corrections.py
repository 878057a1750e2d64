"""What owners are asked to correct: states, history, and what the store sees of the fix."""

from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from sqlalchemy import select

from langchain_feedback import FeedbackRetriever
from langchain_feedback.errors import UnknownChunkError, UnknownItemError, UnknownTraceError
from langchain_feedback.loop.corrections import Corrections, ItemStateError
from langchain_feedback.loop.owners import Owner, Owners
from langchain_feedback.store.owner_items import open_item
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.kit import asked

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
QUESTION = "How long may I ask for a refund?"
WRONG = "Ask for a refund within 14 days of the first payment."
RIGHT = "Ask for a refund within 30 days of the first payment."
OWNERS = Owners([(Owner("billing"), ["handbook/refund*"])], default=Owner("docs"))


def refund(text=WRONG, chunk_id="refund", source="handbook/refund.md"):
    return Document(text, id=chunk_id, metadata={"source": source, "heading": "Refunds"})


def keys():
    return Document("Keys rotate.", id="keys", metadata={"source": "handbook/keys.md"})


@pytest.fixture
def trace_id(store):
    return asked(
        store, QUESTION, [refund(), keys()], at=NOW - timedelta(days=1),
        answer="Within 14 days.", status="answered", grounded=True, cited=["refund"],
    )  # fmt: skip


@pytest.fixture
def corrections(store):
    return Corrections(store, OWNERS)


def later(store, documents, question=QUESTION, days=1, **facts):
    return asked(store, question, documents, at=NOW + timedelta(days=days), **facts)


def test_a_correction_goes_to_the_owner_of_the_chunk_that_is_cited(corrections, trace_id):
    item = corrections.correct(trace_id, " It is 30 days.\0 ", actor="ann", now=NOW)
    assert (item.kind, item.state, item.owner) == ("correction", "open", "billing")
    assert (item.source, item.chunk_id, item.question) == (
        "handbook/refund.md", "refund", QUESTION,
    )  # fmt: skip
    assert item.text == "It is 30 days.\ufffd"
    assert item.opened_at == item.changed_at == NOW
    [seen, _] = item.snapshot["chunks"]
    assert (seen["text"], seen["heading"], seen["cited"]) == (WRONG, "Refunds", True)
    assert item.snapshot["answer"] == "Within 14 days."
    assert corrections.items() == [item]
    assert corrections.counts()["open"] == 1


def test_the_same_correction_twice_is_one_item(corrections, trace_id):
    first = corrections.correct(trace_id, "It is 30 days.", now=NOW)
    again = corrections.correct(trace_id, "It is  30 days.", actor="bob")
    assert again == first
    assert len(corrections.history(first.item_id)) == 1
    assert corrections.correct(trace_id, "It is 31 days.").item_id != first.item_id
    assert len(corrections.items()) == 2


def test_bad_input_is_told_and_nothing_is_opened(corrections, trace_id):
    with pytest.raises(ValueError, match="text"):
        corrections.correct(trace_id, "  ")
    with pytest.raises(UnknownTraceError):
        corrections.correct("none", "It is 30 days.")
    with pytest.raises(UnknownChunkError):
        corrections.correct(trace_id, "It is 30 days.", chunk="none")
    with pytest.raises(UnknownItemError):
        corrections.item("none")
    with pytest.raises(UnknownItemError):
        corrections.history("none")
    assert corrections.items() == []


def test_states_follow_each_other_and_each_is_kept(corrections, trace_id):
    item = corrections.correct(trace_id, "It is 30 days.", actor="ann", now=NOW)
    with pytest.raises(ItemStateError, match="acknowledged, fixed, withdrawn"):
        corrections.move(item.item_id, "verified")
    with pytest.raises(ValueError, match="no state 'done'"):
        corrections.move(item.item_id, "done")
    moved = corrections.move(item.item_id, "acknowledged", actor="bob", note="on it", now=NOW)
    assert corrections.move(item.item_id, "acknowledged", actor="eve") == moved
    for state in ("fixed", "verified", "open", "withdrawn", "open"):
        corrections.move(item.item_id, state)
    history = corrections.history(item.item_id)
    assert [event.state for event in history] == [
        "open", "acknowledged", "fixed", "verified", "open", "withdrawn", "open",
    ]  # fmt: skip
    assert (history[0].actor, history[1].actor, history[1].note) == ("ann", "bob", "on it")


def test_lists_are_narrowed_by_state_kind_and_owner(corrections, trace_id):
    one = corrections.correct(trace_id, "It is 30 days.", now=NOW)
    two = corrections.correct(trace_id, "Yearly.", chunk="keys", now=NOW + timedelta(hours=1))
    corrections.move(one.item_id, "acknowledged")
    ids = {name: [item.item_id for item in found] for name, found in {
        "all": corrections.items(),
        "open": corrections.items(state="open"),
        "billing": corrections.items(owner="billing"),
        "missing": corrections.items(kind="missing_document"),
        "one": corrections.items(limit=1),
    }.items()}  # fmt: skip
    assert ids == {
        "all": [two.item_id, one.item_id], "open": [two.item_id], "billing": [one.item_id],
        "missing": [], "one": [two.item_id],
    }  # fmt: skip


def test_items_of_another_namespace_are_not_there(store, corrections, trace_id):
    item = corrections.correct(trace_id, "It is 30 days.")
    other = Corrections(store.scoped("other"))
    assert other.items() == []
    assert sum(other.counts().values()) == 0
    for call in (other.item, other.history, lambda one: other.move(one, "fixed")):
        with pytest.raises(UnknownItemError):
            call(item.item_id)
    assert other.check_fixed() == []


def test_a_chunk_with_another_text_fixes_its_item_once(store, corrections, trace_id):
    item = corrections.correct(trace_id, "It is 30 days.", now=NOW)
    assert corrections.check_fixed() == []
    later(store, [refund(RIGHT)], question="Anything else")
    [fixed] = corrections.check_fixed(now=NOW + timedelta(days=2))
    assert (fixed.item_id, fixed.state) == (item.item_id, "fixed")
    assert fixed.changed_at == NOW + timedelta(days=2)
    assert corrections.check_fixed() == []
    assert "another text" in corrections.history(item.item_id)[-1].note


def test_a_text_in_its_place_fixes_an_item_whose_chunk_ids_are_digests(store, corrections):
    def anonymous(text):
        return Document(text, metadata={"source": "handbook/refund.md"})

    trace_id = asked(store, QUESTION, [anonymous(WRONG)], at=NOW - timedelta(days=1))
    wrong = anonymous(WRONG)
    item = corrections.correct(trace_id, "It is 30 days.", chunk=wrong, now=NOW)
    # Another paragraph of the file that is found for the first time is no correction.
    later(store, [anonymous("Invoices are sent monthly.")], question="Invoices?")
    assert corrections.check_fixed() == []
    later(store, [anonymous(RIGHT)], question="Refunds again?", days=2)
    [fixed] = corrections.check_fixed()
    assert fixed.item_id == item.item_id


def test_a_text_beside_the_wrong_one_fixes_nothing(store, corrections, trace_id):
    corrections.correct(trace_id, "It is 30 days.", now=NOW)
    later(store, [refund(RIGHT, "copy"), refund()], days=1)
    assert corrections.check_fixed() == []


def test_a_chunk_that_its_question_no_longer_finds_is_gone(store, corrections, trace_id):
    item = corrections.correct(trace_id, "It is 30 days.", now=NOW)
    later(store, [], days=1)  # an empty search says that the index is broken
    assert corrections.check_fixed() == []
    later(store, [keys()], days=2)
    [fixed] = corrections.check_fixed()
    assert fixed.item_id == item.item_id
    assert "no longer" in corrections.history(item.item_id)[-1].note


def test_what_is_withdrawn_is_not_fixed_by_itself(store, corrections, trace_id):
    item = corrections.correct(trace_id, "It is 30 days.", now=NOW)
    corrections.move(item.item_id, "withdrawn")
    later(store, [refund(RIGHT)])
    assert corrections.check_fixed() == []
    again = corrections.correct(trace_id, "It is 30 days.", actor="ann")
    assert (again.item_id, again.state) == (item.item_id, "open")


def test_a_missing_document_is_written_once_its_question_is_answered(store, corrections):
    def missing(question, opened_by=None):
        with writing(store) as (connection, _):
            item_id, _ = open_item(
                connection, store.namespace, about=question, kind="missing_document",
                now=NOW, text="Nothing.", question=question, opened_by=opened_by,
            )  # fmt: skip
        return item_id

    asked(store, "Dogs?", [], at=NOW - timedelta(days=1), status="abstained")
    asked(store, "Cats?", [keys()], at=NOW - timedelta(days=1), status="answered", grounded=True)
    dogs, cats = missing("Dogs?"), missing("Cats?", "ann")
    later(store, [], question="Dogs?", days=1, status="abstained")
    assert corrections.check_fixed() == []
    # Cats was answered before, too, and a reviewer said that it is no answer.
    later(store, [keys()], question="Cats?", days=2, status="answered", grounded=True)
    later(store, [keys()], question="dogs", days=2, status="answered", grounded=True)
    assert [item.item_id for item in corrections.check_fixed()] == [dogs]
    later(store, [refund()], question="Cats?", days=3, status="answered", grounded=True)
    assert [item.item_id for item in corrections.check_fixed()] == [cats]


async def test_every_method_has_an_async_twin(store, trace_id):
    corrections = Corrections(store)
    item = await corrections.acorrect(trace_id, "It is 30 days.", actor="ann")
    assert await corrections.aitems() == [item]
    assert await corrections.aitem(item.item_id) == item
    assert (await corrections.acounts())["open"] == 1
    assert (await corrections.amove(item.item_id, "acknowledged")).state == "acknowledged"
    assert [event.state for event in await corrections.ahistory(item.item_id)][
        -1
    ] == "acknowledged"
    assert await corrections.acheck_fixed() == []


def test_a_correction_is_never_found_as_if_it_were_a_document(store, corrections):
    base = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    base.add_documents([refund(), keys()])
    retriever = FeedbackRetriever(base_retriever=base.as_retriever(), store=store, inject=3)
    found = retriever.invoke(QUESTION)
    trace_id = found[0].metadata["feedback"]["trace_id"]
    store.rate(trace_id, 1, target="refund", correction="It is 30 days.", actor="ann")
    item = corrections.correct(trace_id, "It is 30 days.", chunk="refund", actor="ann")
    for state in ("acknowledged", "fixed", "verified"):
        corrections.move(item.item_id, state)
    texts = [one.page_content for one in retriever.invoke(QUESTION)]
    assert len(texts) == 2
    with reading(store) as connection:
        texts += connection.execute(select(chunks.c.text)).scalars()
    assert sorted(set(texts)) == [WRONG, "Keys rotate."]
    said = store.cells_of([Document("It is 30 days.")])[0]
    assert said not in {cell.key for cell in store.evidence_for(QUESTION).cells}
