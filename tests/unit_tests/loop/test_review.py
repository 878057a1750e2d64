"""The review queue: one item, one reviewer, and what verdicts do and undo."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from langchain_feedback.demo.handbook import handbook_documents
from langchain_feedback.errors import ClaimLostError, ReviewError, UnknownItemError
from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.labels import reviewed_questions
from langchain_feedback.loop.mining import mine
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.loop.staleness import open_alarms
from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.reviewing.items import Candidate
from langchain_feedback.store.schema import ANSWER
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.kit import asked

QUESTION = "How long does a refund take?"
HANDBOOK = {document.id: document for document in handbook_documents()}
POOL = [HANDBOOK[key] for key in ("refund-window", "cancel", "refund-timing", "export")]


def failing(store, question=QUESTION, people=("ann", "bob", "cem"), **facts):
    """A question whose answer some people found bad."""
    trace_id = asked(
        store, question, POOL, actor=f"asker of {question}", answer="Within fourteen days.",
        **({"status": "answered", "grounded": True, "cited": ["refund-window"]} | facts),
    )  # fmt: skip
    for name in people:
        store.rate(trace_id, 1, actor=name, comment=f"{name} says no")
    return trace_id


def fine(store):
    """Questions whose answers are good, so that a bad one stands out."""
    for number in range(4):
        trace_id = asked(store, f"Fine {number}?", POOL, actor=f"u{number}", answer="Yes.")
        store.rate(trace_id, 5, actor="dee")


def filled(store, count=1, **settings):
    queue = ReviewQueue(store, **({"double": 0.0} | settings))
    fine(store)
    for number in range(count):
        failing(store, QUESTION if count == 1 else f"Question {number}?")
    assert mine(store, queue=queue).added == count
    return queue


def candidate(number, priority=1.0):
    pool = [{"chunk_id": f"c{number}", "content_hash": f"h{number}", "text": "t", "source": ""}]
    return Candidate(
        "answer", f"Question {number}?", priority, {"chunks": pool}, guess=f"c{number}"
    )


def later(store, hours):
    """Let the claims of the queue be that old."""
    with writing(store) as (connection, _):
        for row in connection.execute(select(review_items)).all():
            if row.claimed_until is not None:
                until = row.claimed_until - timedelta(hours=hours)
                this = update(review_items).where(review_items.c.item_id == row.item_id)
                connection.execute(this.values(claimed_until=until))


def test_two_reviewers_never_get_the_same_item_and_each_gets_his_own_again(store):
    queue = ReviewQueue(store, double=0)
    queue.add([candidate(number, priority=number) for number in range(3)])
    ann, bob = queue.claim("ann"), queue.claim("bob")
    assert (ann.question, bob.question) == ("Question 2?", "Question 1?")
    assert queue.claim("ann").item_id == ann.item_id
    assert queue.claim("cem").question == "Question 0?"
    assert queue.claim("dee") is None


def test_an_expired_claim_is_free_and_a_late_verdict_is_refused_check6(store):
    queue = filled(store)
    late = queue.claim("ann")
    later(store, hours=1)
    taken = queue.claim("bob")
    assert taken.item_id == late.item_id
    with pytest.raises(ClaimLostError, match="bob has this item now"):
        queue.decide(late, "confirm")
    with pytest.raises(ClaimLostError, match="bob"):
        queue.skip(late)
    assert queue.decide(taken, "reject").state == "decided"
    with pytest.raises(ClaimLostError, match="decided"):
        queue.decide(late, "confirm")
    assert [event.reviewer for event in queue.events(late.item_id)] == ["bob"]


def test_undo_takes_back_pin_vote_label_correction_and_alarm_check6(store):
    queue = filled(store)
    before = store.evidence_for(QUESTION)
    item = queue.claim("ann")
    done = queue.decide(
        item, "confirm", right_chunks=["refund-timing"], failure_class="stale_document",
        correction="It takes 10 working days.", note="See finance.",
    )  # fmt: skip
    assert (len(done.pins), len(done.signals), len(done.owner_items)) == (1, 1, 1)
    assert [pin.chunk_id for pin in store.evidence_for(QUESTION).pins] != []
    assert [label.right for label in reviewed_questions(store)] == [("refund-timing",)]
    assert [label.wrong for label in reviewed_questions(store)] == [("refund-window",)]
    [correction] = Corrections(store).items()
    assert (correction.text, correction.opened_by) == ("It takes 10 working days.", "ann")
    assert [alarm.kind for alarm in open_alarms(store)] == ["reviewer"]

    again = queue.undo("ann")
    assert (again.item_id, again.state) == (item.item_id, "open")
    assert store.evidence_for(QUESTION) == before
    assert reviewed_questions(store) == []
    assert [one.state for one in Corrections(store).items()] == ["withdrawn"]
    assert open_alarms(store) == []
    assert queue.undo("ann") is None
    assert [event.action for event in queue.events(item.item_id)] == ["decide", "undo"]

    # It may be decided again, the other way.
    assert queue.decide(queue.claim("ann"), "reject").state == "decided"
    assert [label.wrong for label in reviewed_questions(store)] == [()]


def test_undo_leaves_a_pin_that_was_there_before(store):
    queue = filled(store)
    pin_id = store.pin(QUESTION, POOL[2], actor="zoe")
    assert queue.decide(queue.claim("ann"), "confirm", right_chunks=["refund-timing"]).pins == ()
    queue.undo("ann")
    assert [pin.pin_id for pin in store.evidence_for(QUESTION).pins] == [pin_id]


def test_the_second_review_is_blind_and_nothing_happens_before_two_agree_check6(store):
    queue = filled(store, double=1.0)
    first = queue.claim("ann")
    done = queue.decide(first, "confirm", right_chunks=["refund-timing"], note="a secret")
    assert (done.state, done.pins) == ("open", ())
    assert store.evidence_for(QUESTION).pins == ()
    assert queue.claim("ann") is None  # not twice by one person
    second = queue.claim("bob")
    assert "secret" not in repr(second) + repr(second.snapshot)
    assert queue.decide(second, "reject").state == "open"  # they differ: a third decides
    third = queue.claim("cem")
    done = queue.decide(third, "confirm", right_chunks=["refund-timing", "export"])
    assert done.state == "decided"
    assert len(done.pins) == 1  # what one of the two alone named is not pinned
    progress = queue.progress()
    assert (progress.double_reviewed, progress.decided) == (1, 1)
    assert progress.agreement is not None
    # One of the two that agreed takes it back: it waits for another one again.
    assert queue.undo("ann").state == "open"
    assert store.evidence_for(QUESTION).pins == ()


def test_nobody_reads_a_verdict_while_another_one_is_awaited_check6(store):
    queue = filled(store, double=1.0)
    item = queue.claim("ann")
    queue.decide(item, "confirm", note="a secret")
    assert queue.events(item.item_id) == []
    assert reviewed_questions(store) == []
    [waiting] = reviewed_questions(store, include_unreviewed=True)
    assert (waiting.verdict, waiting.reviewers, waiting.needs_review) == (None, (), True)
    queue.decide(queue.claim("bob"), "confirm")
    assert [event.note for event in queue.events(item.item_id)] == ["a secret", None]


def test_undoing_one_of_two_verdicts_leaves_the_other_reviewers_claim(store):
    queue = filled(store, double=1.0)
    queue.decide(queue.claim("ann"), "confirm")
    second = queue.claim("bob")
    assert queue.undo("ann").state == "open"
    assert queue.decide(second, "reject").state == "open"
    assert queue.decide(queue.claim("ann"), "reject").state == "decided"


def test_an_item_on_which_enough_others_agree_stays_decided_after_an_undo(store):
    queue = filled(store, double=1.0)
    right = {"right_chunks": ["refund-timing"]}
    queue.decide(queue.claim("ann"), "confirm", **right)
    queue.decide(queue.claim("bob"), "reject")
    [pin] = queue.decide(queue.claim("cem"), "confirm", **right).pins
    assert queue.undo("bob").state == "decided"
    assert [one.pin_id for one in store.evidence_for(QUESTION).pins] == [pin]
    assert queue.undo("cem").state == "open"
    assert store.evidence_for(QUESTION).pins == ()


def test_ones_own_claim_goes_on_with_its_token_and_is_timed_from_its_start(store):
    queue = ReviewQueue(store, double=0)
    queue.add([candidate(1)])
    first = queue.claim("ann")
    again = queue.claim("ann", item_id=first.item_id)
    assert again.claim_token == first.claim_token
    assert again.claimed_until >= first.claimed_until
    assert queue.decide(first, "reject").state == "decided"
    [event] = queue.events(first.item_id)
    assert 0 <= event.seconds < 60


def test_what_an_owner_has_fixed_stays_fixed_after_an_undo(store):
    queue = filled(store)
    [item_id] = queue.decide(queue.claim("ann"), "reject", correction="30 days.").owner_items
    Corrections(store).move(item_id, "fixed")
    queue.undo("ann")
    assert Corrections(store).item(item_id).state == "fixed"


def test_mining_twice_adds_nothing_whatever_became_of_an_item_check6(store):
    queue = filled(store)
    assert (mine(store, queue=queue).added, mine(store, queue=queue).known) == (0, 1)
    queue.decide(queue.claim("ann"), "reject")
    assert mine(store, queue=queue).added == 0
    assert queue.claim("bob") is None


def test_an_item_outlives_its_trace_check6(store):
    queue = filled(store)
    for signal in store.signals_since():
        store.retract(signal.event_id)
    store.prune(datetime.now(UTC) + timedelta(days=1))
    item = queue.claim("ann")
    assert store.trace(item.trace_id) is None
    assert item.question == QUESTION
    assert [chunk["text"] for chunk in item.snapshot["chunks"]] == [
        document.page_content for document in POOL
    ]
    done = queue.decide(item, "confirm", none_exists=True)
    assert (done.signals, len(done.owner_items)) == ((), 1)


def test_what_is_skipped_is_for_others(store):
    queue = ReviewQueue(store, double=0)
    queue.add([candidate(1, 2.0), candidate(2, 1.0)])
    first = queue.claim("ann")
    queue.skip(first)
    assert queue.claim("ann").question == "Question 2?"
    assert queue.claim("bob").item_id == first.item_id


def test_a_missing_document_becomes_an_item_and_a_right_chunk_may_come_from_the_search(store):
    queue = filled(store, count=2)
    store.record_trace("elsewhere", "Another?", [HANDBOOK["sla"]])
    [found, *_] = queue.find("credit 99.9% outage")
    assert found["chunk_id"] == "sla"
    assert queue.decide(queue.claim("ann"), "reject", right_chunks=["sla"]).pins != ()
    queue.decide(queue.claim("ann"), "reject", none_exists=True)
    [missing] = Corrections(store).items(kind="missing_document")
    assert missing.question.startswith("Question ")


@pytest.mark.parametrize(
    ("verdict", "parts", "words"),
    [
        ("yes", {}, "verdict is one of"),
        (
            "confirm",
            {"right_chunks": ["refund-window"], "failure_class": "retrieval"},
            "cannot be right",
        ),
        ("reject", {"right_chunks": ["export"], "none_exists": True}, "not both"),
        ("reject", {"failure_class": "bad luck"}, "no failure class"),
    ],
)
def test_a_verdict_that_contradicts_itself_is_refused_and_keeps_nothing(
    store, verdict, parts, words
):
    queue = filled(store)
    item = queue.claim("ann")
    with pytest.raises(ValueError, match=words):
        queue.decide(item, verdict, **parts)
    assert queue.events(item.item_id) == []
    assert queue.decide(item, "unclear").state == "decided"


def test_what_nobody_decides_expires_and_does_not_come_back(store):
    queue = filled(store, keep_for=timedelta(days=28))
    soon = datetime.now(UTC) + timedelta(days=29)
    assert queue.expire(soon) == 1
    assert queue.claim("ann") is None
    assert queue.progress().expired == 1
    assert mine(store, queue=queue).added == 0


def test_a_full_queue_takes_nothing_more(store):
    queue = ReviewQueue(store, double=0)
    queue.add([candidate(number) for number in range(3)])
    fine(store)
    failing(store)
    assert mine(store, queue=queue, limit=3).added == 0
    assert mine(store, queue=queue, limit=4).added == 1


def test_namespaces_have_queues_of_their_own(store):
    queue = filled(store)
    other = ReviewQueue(store.scoped("other"))
    assert other.claim("ann") is None
    with pytest.raises(UnknownItemError):
        other.item(queue.claim("ann").item_id)
    assert other.undo("ann") is None


def test_nameless_reviewers_and_bad_settings_are_refused(store):
    with pytest.raises(ValueError, match="name"):
        ReviewQueue(store).claim("  ")
    for settings in ({"double": 2}, {"reviews_required": 0}, {"claim_for": timedelta()}):
        with pytest.raises(ValueError, match="got"):
            ReviewQueue(store, **settings)


async def test_the_async_side_does_the_same(store):
    queue = ReviewQueue(store, double=0)
    assert await queue.aadd([candidate(1)]) == 1
    item = await queue.aclaim("ann")
    assert (await queue.adecide(item, "reject")).state == "decided"
    assert (await queue.aundo("ann")).state == "open"
    assert (await queue.aprogress()).open == 1


def burst(store):
    """A crowd that likes an answer, and one person who hates it many times over."""
    for number in range(12):
        trace_id = asked(store, QUESTION, POOL, actor=f"crowd {number}", answer="Soon.")
        store.rate(trace_id, 5, target="refund-timing")
    from langchain_feedback.store.inbox.receiving import Incoming  # noqa: PLC0415

    for number in range(12):
        trace_id = asked(store, QUESTION, POOL, actor="mallory", answer="Soon.")
        event = Incoming(f"m{number}", trace_id, "wrong_source", target="refund-timing")
        store.receive([event])


def test_a_burst_is_one_item_that_is_dropped_kept_and_undone_check10(store):
    burst(store)
    [held] = store.bursts()
    queue = ReviewQueue(store, double=0)
    mine(store, queue=queue)
    [item] = [one for one in queue.items(state="open") if one.kind == "burst"]
    item = queue.claim("ann")
    assert (item.kind, item.guess) == ("burst", held.burst_id)
    before = store.evidence_for(QUESTION).cells
    with pytest.raises(ReviewError, match="burst"):
        queue.decide(item, "confirm", none_exists=True)
    queue.decide(item, "confirm")
    assert store.bursts() == []
    assert store.evidence_for(QUESTION).cells == before
    queue.undo("ann")
    assert [one.burst_id for one in store.bursts()] == [held.burst_id]
    queue.decide(queue.claim("ann"), "reject")
    cells = {cell.key: cell.negative for cell in store.evidence_for(QUESTION).cells}
    assert max(cells.values()) > 0
    with reading(store):
        assert ANSWER == ""


def test_a_document_that_was_corrected_since_the_item_was_mined_gets_no_alarm(store):
    queue = filled(store)
    mended = HANDBOOK["refund-window"].model_copy(update={"page_content": "Thirty days now."})
    asked(store, "Another question?", [mended], actor="eve")
    queue.decide(queue.claim("ann"), "confirm", failure_class="stale_document")
    assert open_alarms(store) == []


def test_a_document_that_the_reviewer_calls_right_gets_no_alarm(store):
    queue = filled(store)
    item = queue.claim("ann")
    assert item.guess == "refund-window"
    queue.decide(item, "reject", right_chunks=["refund-window"], failure_class="stale_document")
    assert open_alarms(store) == []
