"""What clients send: once each, within limits, and floods held back."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from sqlalchemy import func, select, update

from langchain_feedback import FeedbackRetriever
from langchain_feedback.demo.handbook import golden_questions, handbook_documents
from langchain_feedback.errors import TooManySignalsError
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.inbox.bursts import settle_burst, unsettle_burst
from langchain_feedback.store.inbox.events import CLIENT_SIGNALS, Incoming
from langchain_feedback.store.inbox.limits import Burst, Limits
from langchain_feedback.store.inbox.skips import passed_over
from langchain_feedback.store.loop_schema import counters
from langchain_feedback.store.schema import signals
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.store.tables import assert_consistent, evidence_of

CHUNKS = [Document(f"Chunk {n}.", id=f"c{n}", metadata={"source": "faq.md"}) for n in range(5)]
FREE = Limits(per_token=None, per_actor=None, per_address=None)
ONE, TWO = "one", "two"
NOT_HELD = Limits(None, None, None, burst=None)


def ask(store, trace_id, question="How long?", actor="ann", chunks=CHUNKS):
    store.record_trace(trace_id, question, chunks, actor=actor)


def crowd(store, people=12):
    """Enough people that bursts are held at all."""
    for number in range(people):
        ask(store, f"crowd{number}", f"Something else {number}?", actor=f"p{number}")
        store.rate(f"crowd{number}", 4)


def event(event_id, trace_id="t", signal="thumbs_up", **fields):
    return Incoming(event_id, trace_id, signal, **fields)


def statuses(received):
    return [one.status for one in received]


def rows(store, **where):
    with reading(store) as connection:
        found = select(signals).filter_by(**where).order_by(signals.c.seq)
        return connection.execute(found).all()


def kept(store):
    return [(row.signal, row.target, row.polarity) for row in rows(store)]


# -- one batch


def test_one_bad_event_spoils_no_other_and_says_why(store):
    ask(store, "t")
    received = store.receive(
        [
            event("e1"),
            event("e2", signal="grounded"),
            event("e3", signal="rating", rating=7),
            event("e4", signal="source_click", target="c9"),
            event("e5", signal="dwell", value=float("nan")),
            event("e6", signal="copy", comment="x" * 5_001),
            event("skipped:e7"),
            event("e8", signal="copy", client_time=datetime(2026, 1, 1)),  # noqa: DTZ001
            event("e9", signal="thumbs_down", comment="A NUL \0 and a lone \ud800."),
            event("e10", signal="copy", rating=5),
            event("e11", signal="correction"),
            event("e12", signal="correction", correction="It is 14 days."),
            event("e13", signal="source_click"),
            event("e14", client_time=datetime.min.replace(tzinfo=UTC) - timedelta(0)),
        ]
    )
    assert [one.event_id for one in received if one.status == "accepted"] == [
        "e1",
        "e9",
        "e12",
        "e14",
    ]
    refused = {one.event_id: one.reason for one in received if one.status == "rejected"}
    assert refused["e2"].startswith("signal must be one of thumbs_up, ")
    assert refused["e3"] == "A rating is a whole number from 1 to 5, got 7"
    assert refused["e4"] == "target is no source of this answer"
    assert refused["e6"] == "comment must be a text of at most 5,000 characters"
    assert refused[None].startswith("event_id must be ")
    assert refused["e8"] == "client_time needs a zone"
    assert [row.event_id for row in rows(store)] == ["e1", "e9", "e12", "e14"]
    assert rows(store)[1].comment == "A NUL \ufffd and a lone ?."
    assert not any(row.reviewer for row in rows(store))
    assert_consistent(store)


@pytest.mark.parametrize(
    "odd",
    [
        {"event_id": None}, {"event_id": 7}, {"event_id": ""}, {"event_id": "x" * 65},
        {"signal": None}, {"signal": ["thumbs_up"]}, {"signal": "source_skipped"},
        {"signal": "rephrase"}, {"target": 7}, {"target": "x" * 501}, {"actor": ["ann"]},
        {"signal": "rating"}, {"signal": "rating", "rating": True}, {"value": 3.0},
        {"signal": "rating", "rating": 10**400}, {"signal": "dwell", "value": 10**400},
        {"signal": "dwell", "value": -1}, {"signal": "dwell", "value": True}, {"signal": "dwell"},
        {"comment": 7}, {"client_time": "yesterday"},
        {"client_time": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
    ],
)  # fmt: skip
def test_whatever_a_client_sends_is_an_answer_and_no_error(store, odd):
    ask(store, "t")
    received = store.receive(
        [Incoming(**({"event_id": "e", "trace_id": "t", "signal": "copy"} | odd)), event("good")]
    )
    assert statuses(received) == ["rejected", "accepted"]
    assert received[0].reason


def test_what_is_sent_twice_counts_once(store):
    ask(store, "t")
    ask(store, "other", "How much?")
    one = event("e1", signal="source_click", target="c0")
    assert statuses(store.receive([one, one])) == ["accepted", "duplicate"]
    before = evidence_of(store)
    again = [
        one,
        event("e1", "other"),
        event("e1", target="c1", signal="wrong_source"),
        event("e2"),
    ]
    received = store.receive(again)
    assert statuses(received) == ["duplicate", "rejected", "rejected", "accepted"]
    assert received[1].reason == "event_id was used for something else"
    assert len(rows(store)) == 2
    assert evidence_of(store) != before
    assert_consistent(store)


def test_an_event_waits_for_its_trace_and_counts_once_it_is_there(store):
    waiting = event("e1", "late", "source_click", target="c0", actor="ann")
    assert statuses(store.receive([waiting])) == ["pending"]
    assert statuses(store.receive([waiting])) == ["duplicate"]
    assert evidence_of(store) == []
    ask(store, "late")
    assert [row[1] for row in evidence_of(store)] != []
    assert_consistent(store)


def test_another_namespaces_trace_is_unknown(store):
    ask(store.scoped("theirs"), "t")
    assert statuses(store.receive([event("e1")])) == ["pending"]
    assert evidence_of(store.scoped("theirs")) == []


def test_one_person_counts_once_whichever_way_he_speaks(store):
    ask(store, "t", actor="ann")
    store.rate("t", 1)
    store.receive(
        [event("e1", actor="token:ab")],
        is_asker=lambda sent, asked: (sent, asked) == ("token:ab", "ann"),
    )
    [outcome] = [cell for cell in evidence_of(store) if not cell[1]]
    assert outcome[3:5] == ((1.0).hex(), (0.0).hex())
    assert rows(store, event_id="e1")[0].actor is None


def test_a_dwell_is_capped(store):
    ask(store, "t")
    store.receive(
        [event("e1", signal="dwell", value=1e9), event("e2", signal="dwell", value=1200)]
    )
    assert [row.value for row in rows(store)] == [120_000, 1200]


async def test_it_has_an_async_side(store):
    ask(store, "t")
    assert statuses(await store.areceive([event("e1")])) == ["accepted"]
    assert await store.abursts() == []


# -- what a click says of the sources above it


def test_a_click_says_that_the_sources_above_it_were_passed_over(store):
    ask(store, "t")
    store.receive([event("e1", signal="source_click", target="c2", actor="ben")])
    assert kept(store) == [
        ("source_click", "c2", 1), ("source_skipped", "c0", -1), ("source_skipped", "c1", -1),
    ]  # fmt: skip
    assert {row.actor for row in rows(store)} == {"ben"}
    assert {row.weight for row in rows(store)} == {0.5}
    store.receive([event("e2", signal="source_click", target="c0", actor="ben")])
    store.receive([event("e3", signal="source_click", target="c4", actor="ben")])
    # c0 was opened after all; what was passed over stays so; only c3 is new.
    assert kept(store)[3:] == [
        ("source_click", "c0", 1), ("source_click", "c4", 1), ("source_skipped", "c3", -1),
    ]  # fmt: skip
    positive = {cell[1] for cell in evidence_of(store) if float.fromhex(cell[3])}
    negative = {cell[1] for cell in evidence_of(store) if float.fromhex(cell[4])}
    names = {
        cell: document.id
        for document, (cell, _) in zip(CHUNKS, store.cells_of(CHUNKS), strict=True)
    }
    assert {names[cell] for cell in positive} == {"c0", "c2", "c4"}
    assert {names[cell] for cell in negative} == {"c1", "c3"}
    assert_consistent(store)


def test_clicks_of_one_batch_are_one_look_at_the_list(store):
    ask(store, "t")
    clicks = [event(f"e{n}", signal="source_click", target=f"c{n}") for n in (3, 0)]
    store.receive(clicks)
    skipped = [row.target for row in rows(store, signal="source_skipped")]
    assert skipped == ["c1", "c2"]
    store.receive(clicks)
    store.receive([event("e9", signal="source_click", target="c3")])
    assert len(rows(store, signal="source_skipped")) == 2


def test_another_persons_click_is_his_own_look(store):
    ask(store, "t")
    store.receive([event("e1", signal="source_click", target="c0", actor="ben")])
    store.receive([event("e2", signal="source_click", target="c1", actor="cy")])
    assert [(row.actor, row.target) for row in rows(store, signal="source_skipped")] == [
        ("cy", "c0")
    ]


def test_only_what_stood_before_the_reader_was_passed_over(store):
    ask(store, "t")
    store.update_trace("t", in_prompt=["c0", "c2", "c4"], cited=["c2", "c4"])
    store.receive([event("e1", signal="source_click", target="c4")])
    assert [row.target for row in rows(store, signal="source_skipped")] == ["c0", "c2"]
    store.receive([event("e2", signal="source_click", target="c1")])  # not shown at all
    assert len(rows(store, signal="source_skipped")) == 2


@pytest.mark.parametrize(("rank", "skipped"), [(2, ["c0", "c2"]), (1, ["c2"]), (0, []), (7, [])])
def test_the_rank_on_the_page_tells_which_list_was_shown(store, rank, skipped):
    ask(store, "t")
    store.update_trace("t", in_prompt=["c0", "c2", "c4"], cited=["c2", "c4"])
    store.receive([event("e1", signal="source_click", target="c4", rank=rank)])
    assert [row.target for row in rows(store, signal="source_skipped")] == skipped


@given(st.lists(st.integers(0, 7), max_size=6))
def test_nothing_opened_and_nothing_below_the_lowest_opened_one_is_passed_over(opened):
    found = passed_over([str(n) for n in range(8)], {str(n) for n in opened})
    assert {int(one) for one in found} == set(range(max(opened, default=0))) - set(opened)


# -- limits


def test_a_token_is_good_for_twenty_events_however_long_it_takes(store):
    ask(store, "t")
    for number in range(20):
        store.receive([event(f"e{number}", signal="copy")], token=ONE)
    with reading(store) as connection:
        [row] = connection.execute(select(counters)).all()
    assert "one" not in row.bucket
    assert row.count == 20
    before = len(rows(store))
    with pytest.raises(TooManySignalsError) as refused:
        store.receive([event("more"), event("more2")], token=ONE)
    assert 29 * 86_400 < refused.value.retry_after_s <= 30 * 86_400 + 3_600
    assert len(rows(store)) == before
    # What is known already costs nothing, and another token is another one.
    assert statuses(store.receive([event("e1", signal="copy")], token=ONE)) == ["duplicate"]
    assert statuses(store.receive([event("more")], token=TWO)) == ["accepted"]


def test_tokens_of_one_batch_are_counted_apart(store):
    ask(store, "t")
    batch = [event(f"e{n}", signal="copy", token=(ONE, TWO, "three")[n % 3]) for n in range(60)]
    assert set(statuses(store.receive(batch))) == {"accepted"}
    with pytest.raises(TooManySignalsError):
        store.receive([event("more", token=TWO)])


def test_a_person_may_send_sixty_an_hour_and_an_address_three_hundred(store):
    ask(store, "t")
    for number in range(60):
        store.receive([event(f"e{number}", signal="copy", actor="ben")], address="192.0.2.1")
    with pytest.raises(TooManySignalsError) as refused:
        store.receive([event("more", signal="copy", actor="ben")], address="192.0.2.1")
    assert 1 <= refused.value.retry_after_s <= 3_600
    more = [event(f"m{n}", signal="copy", actor=f"a{n}") for n in range(240)]
    store.receive(more, address="192.0.2.1")
    bad = [event("bad", signal="zap")]
    with pytest.raises(TooManySignalsError, match="300 events of one address"):
        store.receive(bad, address="192.0.2.1")
    assert statuses(store.receive(bad, address="192.0.2.2")) == ["rejected"]


def test_an_address_is_kept_as_a_digest_and_of_ipv6_the_network(store):
    limits = Limits(per_address=2)
    for number, address in enumerate(["2001:db8:1:2::1", "2001:db8:1:2:ffff::2"]):
        store.receive([event(f"e{number}")], address=address, limits=limits)
    with pytest.raises(TooManySignalsError):
        store.receive([event("e9")], address="2001:db8:1:2::9", limits=limits)
    assert statuses(store.receive([event("e9")], address="2001:db8:1:3::9", limits=limits)) == [
        "pending"
    ]
    store.receive([event("e10")], address="::ffff:192.0.2.7", limits=limits)
    with reading(store) as connection:
        text = str(connection.execute(select(counters)).all())
    assert "2001:" not in text
    assert "192.0.2" not in text


def test_the_next_hour_starts_anew_and_old_counters_go(store):
    limits = Limits(per_actor=1)
    store.receive([event("e1", actor="ben")], limits=limits, token=ONE)
    with writing(store) as (connection, _):
        back = counters.c.bucket.like("actor:%")
        hour = connection.execute(select(counters.c.hour).where(back)).scalar_one()
        connection.execute(update(counters).where(back).values(hour=hour - timedelta(hours=1)))
    store.receive([event("e2", actor="ben")], limits=limits, token=ONE)
    with writing(store) as (connection, _):
        connection.execute(
            update(counters)
            .where(back, counters.c.hour < hour)
            .values(hour=hour - timedelta(hours=2))
        )
    store.receive([event("e3", actor="cy")], limits=limits, token=ONE)
    with reading(store) as connection:
        kinds = [row.bucket.partition(":")[0] for row in connection.execute(select(counters))]
    assert sorted(kinds) == ["actor", "actor", "token"]


SENDER = """
import sys
from langchain_feedback.errors import TooManySignalsError
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.inbox.events import Incoming
store, name, kept = FeedbackStore(sys.argv[1]), sys.argv[2], 0
for n in range(30):
    try:
        store.receive([Incoming(f"{name}-{n}", "t", "copy", actor="ben")], address="192.0.2.1")
        kept += 1
    except TooManySignalsError:
        pass
print(kept)
"""


def test_four_processes_share_one_limit_and_keep_exactly_what_it_allows(url):
    with FeedbackStore(url) as store:
        ask(store, "t")
        senders = [
            subprocess.Popen(
                [sys.executable, "-c", SENDER, url, f"w{n}"], stdout=subprocess.PIPE, text=True
            )
            for n in range(4)
        ]
        numbers = [int(sender.communicate(timeout=120)[0]) for sender in senders]
        assert sum(numbers) == 60
        assert len(rows(store)) == 60
        assert_consistent(store)


# -- bursts


def flood(store, people, answers=8, *, signal="thumbs_down", limits=FREE, name="f", **fields):
    statuses_ = []
    for number in range(answers):
        for person in people:
            trace_id = f"{name}{number}{person}"
            ask(store, trace_id, "How long?", actor=person)
            sent = Incoming(f"{trace_id}-e", trace_id, signal, **fields)
            statuses_ += statuses(store.receive([sent], limits=limits))
    return statuses_


def test_a_burst_is_held_from_its_first_event_and_shown_once(store):
    crowd(store)
    before = evidence_of(store)
    done = flood(store, ["eve"], comment="Bad!")
    assert done == ["accepted"] * 5 + ["held"] * 3
    assert evidence_of(store) == before
    [burst] = store.bursts()
    assert (burst.sign, burst.target, burst.question) == (-1, "", "How long?")
    assert (burst.events, burst.actors, burst.signals) == (8, 1, {"thumbs_down": 8})
    assert burst.comments == ("Bad!",)
    assert burst.trace_ids[0] == "f7eve"
    assert burst.first_at < burst.last_at
    assert_consistent(store)


def test_a_reviewer_counts_or_drops_a_burst_and_may_take_that_back(store):
    crowd(store)
    quiet = evidence_of(store)
    flood(store, ["eve"])
    [burst] = store.bursts()
    args = store.namespace, burst.burst_id
    with writing(store) as (connection, half_life):
        assert settle_burst(connection, *args, accept=True, half_life=half_life) == 8
    assert evidence_of(store) != quiet
    assert store.bursts() == []
    assert_consistent(store)
    with writing(store) as (connection, half_life):
        assert unsettle_burst(connection, *args, half_life) == 8
    assert evidence_of(store) == quiet
    assert [one.burst_id for one in store.bursts()] == [burst.burst_id]
    with writing(store) as (connection, half_life):
        settle_burst(connection, *args, accept=False, half_life=half_life)
    assert evidence_of(store) == quiet
    assert store.bursts() == []
    assert {row.state for row in rows(store, burst_id=burst.burst_id)} == {"dropped"}
    # Who goes on after that is held anew, and what was accepted is not held again.
    flood(store, ["eve"], name="g")
    assert [one.events for one in store.bursts()] == [8]
    assert_consistent(store)


def test_what_was_accepted_is_not_held_again(store):
    crowd(store)
    flood(store, ["eve"])
    [burst] = store.bursts()
    with writing(store) as (connection, half_life):
        settle_burst(connection, store.namespace, burst.burst_id, accept=True, half_life=half_life)
    assert flood(store, ["eve"], answers=5, name="g") == ["accepted"] * 5
    assert store.bursts() == []


def test_what_follows_from_held_clicks_is_held_with_them(store):
    crowd(store)
    before = evidence_of(store)
    flood(store, ["eve"], signal="source_click", target="c2")
    assert evidence_of(store) == before
    assert {row.state for row in rows(store, signal="source_skipped")} == {"held"}
    assert sum(burst.events for burst in store.bursts()) == 24
    [burst] = store.bursts()
    assert (burst.target, burst.sign) == ("c2", 1)


def test_what_a_job_derives_is_no_part_of_a_burst(store):
    crowd(store)
    for number in range(9):
        ask(store, f"d{number}", actor="ben")
        store.signal(f"d{number}", "rephrase", event_id=f"derived:{number}")
    assert statuses(store.receive([event("e1", "d0", "thumbs_down")])) == ["accepted"]
    assert store.bursts() == []


def test_a_reviewers_own_signals_are_never_held(store):
    crowd(store)
    ask(store, "r")
    store.rate("r", 1, actor="eve", reviewer=True)
    flood(store, ["eve"])
    assert [(row.actor, row.state) for row in rows(store, reviewer=True)] == [("eve", None)]


def test_an_honest_third_person_is_not_held_with_a_flood(store):
    crowd(store)
    flood(store, ["eve", "mal"])
    ask(store, "h", actor="ben")
    assert statuses(store.receive([event("h1", "h", "thumbs_down")], limits=FREE)) == ["accepted"]
    [burst] = store.bursts()
    assert (burst.events, burst.actors) == (16, 2)


def test_many_people_with_one_vote_each_are_no_burst(store):
    crowd(store)
    assert flood(store, [f"h{n}" for n in range(12)], answers=1) == ["accepted"] * 12


def test_all_that_one_person_does_with_one_answer_is_no_burst(store):
    crowd(store)
    ask(store, "t", actor="ben")
    store.receive([event(f"c{n}", signal="source_click", target=f"c{n}") for n in range(5)])
    store.receive([event("copy", signal="copy"), event("up"), event("copy2", signal="copy")])
    assert {row.state for row in rows(store)} == {None}
    # Sixty times are too many all the same.
    done = store.receive([event(f"x{n}", signal="copy") for n in range(60)], limits=FREE)
    assert set(statuses(done)) == {"held"}


def test_what_is_usual_for_a_chunk_is_no_burst(store):
    crowd(store)
    rule = Burst(times=5, days=1)
    assert flood(store, ["ann"], answers=48, limits=NOT_HELD, name="old") == ["accepted"] * 48
    with writing(store) as (connection, _):
        older = signals.c.received_at - timedelta(hours=2)
        now = connection.execute(select(func.max(signals.c.received_at))).scalar_one()
        connection.execute(
            update(signals)
            .where(signals.c.trace_id.like("old%"))
            .values(received_at=now - timedelta(hours=2))
        )
        del older
    limits = Limits(None, None, None, burst=rule)
    # Two an hour on average, so that up to ten in an hour are nothing special.
    assert flood(store, ["eve"], answers=11, limits=limits) == ["accepted"] * 10 + ["held"]


def test_a_held_signal_stays_so_in_an_export(store, url, tmp_path):
    crowd(store)
    flood(store, ["eve"])
    ask(store, "t")
    store.receive([event("d", signal="dwell", value=1500.0)])
    store.record_trace("e", "Why?", CHUNKS, actor="ann", traffic="eval")
    store.update_trace("e", status="abstained", reason="no_documents")
    store.rate("e", 2)
    path = tmp_path / "feedback.jsonl"
    store.export_jsonl(path)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    with FeedbackStore(f"sqlite:///{tmp_path / 'other.db'}") as other:
        assert other.import_jsonl(path).problems == ()
        assert [(b.burst_id, b.events) for b in other.bursts()] == [
            (b.burst_id, b.events) for b in store.bursts()
        ]
        assert evidence_of(other) == evidence_of(store)
        assert [row.value for row in rows(other, event_id="d")] == [1500.0]
        assert (other.trace("e").reason, other.trace("e").traffic) == ("no_documents", "eval")
    new = ("value", "state", "burst_id")
    for line in lines:
        if line["type"] == "signal":
            [line.pop(name) for name in new]
            [line["trace"].pop(name) for name in ("reason", "traffic")]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    with FeedbackStore(f"sqlite:///{tmp_path / 'old.db'}") as old:
        assert old.import_jsonl(path).problems == ()
        assert [row.value for row in rows(old, event_id="d")] == [None]
        assert old.bursts() == []


def test_a_held_line_without_its_burst_is_told(tmp_path):
    line = {"type": "signal", "event_id": "e", "trace_id": "t", "signal": "thumbs_up"}
    line |= {"state": "held", "received_at": "2026-01-01T00:00:00Z", "trace": None}
    path = tmp_path / "feedback.jsonl"
    path.write_text(json.dumps(line), "utf-8")
    with FeedbackStore("sqlite://") as store:
        assert store.import_jsonl(path).problems == (
            (1, "burst_id: a signal that is held needs one"),
        )


# -- the flood


HANDBOOK = handbook_documents()


def words_of(text):
    return {word.strip("?.,").lower() for word in text.split()}


def lab(store, people):
    """The handbook, asked and rated by some people."""

    def search(question):
        asked = words_of(question)
        return sorted(HANDBOOK, key=lambda one: -len(asked & words_of(one.page_content)))[:6]

    retriever = FeedbackRetriever(base_retriever=RunnableLambda(search), store=store)
    for number in range(people):
        for case in golden_questions():
            trace_id = f"lab{number}{case.question[:9]}"
            store.record_trace(trace_id, case.question, search(case.question), actor=f"p{number}")
            right = [one for one in search(case.question) if one.id in case.evidence]
            for one in right:
                store.rate(trace_id, 5, target=one)
    return search, lambda: [
        [one.id for one in retriever.invoke(case.question)] for case in golden_questions()
    ]


def storm(store, search, people, events, *, limits=FREE, size=1, name="storm"):
    """Events against the right chunks, as fast as they can be sent: an answer for each."""
    done, waiting = [], []
    for number in range(events):
        case = golden_questions()[number % 2]
        person = people[number % len(people)]
        trace_id = f"{name}{number}"
        found = search(case.question)
        store.record_trace(trace_id, case.question, found, actor=person)
        target = next((one.id for one in found if one.id in case.evidence), found[0].id)
        waiting.append(Incoming(trace_id, trace_id, "wrong_source", target, actor=person))
        if len(waiting) == size:
            try:
                done += statuses(store.receive(waiting, limits=limits, address="192.0.2.1"))
            except TooManySignalsError:
                done += ["refused"] * size
            waiting.clear()
    return done


def test_a_flood_changes_no_ranking_and_is_shown_once_check10(store):
    search, ranking = lab(store, 12)
    before, ordered = evidence_of(store), ranking()
    done = storm(store, search, ["eve"], 1_000, size=20)
    assert set(done[20:]) == {"held"}
    assert (evidence_of(store), ranking()) == (before, ordered)
    done = storm(store, search, ["mal", "sid", "lou"], 90, name="three")
    assert set(done[-50:]) == {"held"}
    assert (evidence_of(store), ranking()) == (before, ordered)
    bursts = store.bursts()
    groups = {(burst.target, burst.question_id, burst.sign) for burst in bursts}
    assert len(bursts) == len(groups) == 2
    assert [burst.events for burst in bursts] == [545, 545]
    assert {burst.actors for burst in bursts} == {4}
    assert_consistent(store)


def test_a_flood_of_three_is_held_on_its_own_check10(store):
    search, ranking = lab(store, 12)
    before, ordered = evidence_of(store), ranking()
    assert set(storm(store, search, ["mal", "sid", "lou"], 90)[-50:]) == {"held"}
    assert (evidence_of(store), ranking()) == (before, ordered)
    assert [(burst.events, burst.actors) for burst in store.bursts()] == [(45, 3)] * 2


def test_with_the_usual_limits_a_flood_is_refused_after_sixty_events_check10(store):
    search, ranking = lab(store, 12)
    before, ordered = evidence_of(store), ranking()
    done = storm(store, search, ["eve"], 200, limits=Limits())
    assert done[60:] == ["refused"] * 140
    assert "refused" not in done[:60]
    assert (evidence_of(store), ranking()) == (before, ordered)


def test_an_honest_team_of_two_is_not_held_check10(store):
    search, _ = lab(store, 2)
    before = evidence_of(store)
    done = storm(store, search, ["p0", "p1"], 60)
    assert set(done) == {"accepted"}
    assert store.bursts() == []
    assert evidence_of(store) != before


def test_clients_may_say_nine_things():
    assert set(CLIENT_SIGNALS) == {
        "thumbs_up", "thumbs_down", "rating", "wrong_source", "source_click", "copy", "dwell",
        "regenerate", "correction",
    }  # fmt: skip
