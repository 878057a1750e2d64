"""Following the signals, on SQLite and PostgreSQL."""

from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.documents import Document

from langchain_feedback.store.feedback_store import FeedbackStore

QUESTION = "How long does a refund take?"
REFUND = Document("A refund takes 14 days.", id="refund")


@pytest.fixture
def rated(store):
    store.record_trace("t1", QUESTION, [REFUND], actor="ann")
    store.rate("t1", 1, event_id="e1", comment="too long")
    store.rate("t1", 4, event_id="e2", target=REFUND, reviewer=True)
    store.signal("t1", "copy", event_id="e3", actor="bob")
    return store


def ids(records):
    return [record.event_id for record in records]


def test_signals_come_in_order_and_in_pages(rated):
    first = rated.signals_since(limit=2)
    assert ids(first) == ["e1", "e2"]
    assert ids(rated.signals_since(first[-1].seq)) == ["e3"]
    assert rated.signals_since(first[-1].seq + 1) == []
    one, two = first
    assert (one.rating, one.polarity, one.target, one.comment) == (1, -1, "", "too long")
    assert (two.rating, two.target, two.reviewer, two.attached) == (4, "refund", True, True)
    assert one.received_at.tzinfo is not None
    assert one.asked_at < one.received_at


def test_a_change_of_mind_is_told_on_both_sides(rated):
    rated.rate("t1", 5, event_id="e4")
    rated.rate("t1", 5, event_id="e5", actor="bob")
    told = {r.event_id: (r.repeats, r.superseded) for r in rated.signals_since()}
    assert told["e1"] == (False, True)
    assert told["e4"] == (True, False)
    assert told["e2"] == told["e3"] == told["e5"] == (False, False)


def test_retractions_have_a_log_of_their_own(rated):
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert rated.retractions_since(before) == []
    rated.retract("e3")
    rated.retract("e1")
    assert ids(rated.retractions_since(before)) == ["e3", "e1"]
    last = rated.retractions_since(before)[-1].retracted_at
    assert ids(rated.retractions_since(last)) == ["e1"]
    assert rated.retractions_since(last + timedelta(milliseconds=1)) == []


def test_single_signals_are_read_as_they_are_now(rated):
    seqs = [record.seq for record in rated.signals_since()]
    rated.retract("e2")
    assert [r.retracted_at is None for r in rated.signals_at(seqs[:2])] == [True, False]
    rated.forget("bob")
    assert ids(rated.signals_at(seqs)) == ["e1", "e2"]
    assert rated.signals_at([]) == []


def test_a_signal_that_waits_for_its_trace_says_so(store):
    store.rate("t9", 5, pending=True, event_id="e1")
    [waiting] = store.signals_since()
    assert (waiting.attached, waiting.asked_at) == (False, None)
    store.record_trace("t9", QUESTION, [REFUND])
    [arrived] = store.signals_since()
    assert arrived.attached
    assert arrived.asked_at is not None


def test_namespaces_do_not_see_each_other(rated):
    other = rated.scoped("other")
    assert other.signals_since() == []
    assert other.known_events(["e1"]) == set()
    assert rated.known_events(["e1", "e3", "nobody"]) == {"e1", "e3"}
    assert other.move_bookmark("reader", "1", expected=None)
    assert rated.bookmark("reader") is None


def test_a_bookmark_moves_only_from_where_it_was_seen(store, url):
    assert store.bookmark("reader") is None
    assert store.move_bookmark("reader", "1", expected=None)
    assert not store.move_bookmark("reader", "9", expected=None)
    with FeedbackStore(url) as elsewhere:
        assert elsewhere.bookmark("reader") == "1"
        assert elsewhere.move_bookmark("reader", "2", expected="1")
    assert not store.move_bookmark("reader", "9", expected="1")
    assert store.bookmark("reader") == "2"


async def test_the_async_side_says_the_same(rated):
    assert await rated.asignals_since() == rated.signals_since()
    [first, *_] = await rated.asignals_since()
    assert await rated.asignals_at([first.seq]) == [first]
    assert await rated.aretractions_since(first.received_at) == []
    assert await rated.aknown_events(["e1"]) == {"e1"}
    assert await rated.amove_bookmark("reader", "1", expected=None)
    assert await rated.abookmark("reader") == "1"
