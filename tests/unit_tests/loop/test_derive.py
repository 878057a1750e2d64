"""What follows from what people ask next, on real databases."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from langchain_feedback.loop.derive import derive_signals
from langchain_feedback.store.asking import Said, read_asks
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import credits_, evidence, signals
from langchain_feedback.store.transactions import reading
from tests.unit_tests.loop.kit import asked, said

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
LATER = START + timedelta(minutes=20)


def after(**kwargs: float) -> datetime:
    return START + timedelta(**kwargs)


def heard(store: FeedbackStore, trace_id: str) -> list[Said]:
    with reading(store) as connection:
        [ask] = read_asks(connection, store.namespace, trace_ids=[trace_id])
    return list(ask.said)


def names(store: FeedbackStore, trace_id: str) -> list[str]:
    return [one.signal for one in heard(store, trace_id)]


def pair(store: FeedbackStore, question: str, after_s: float, **kwargs: Any) -> tuple[str, str]:
    """A question about refunds, and what the same person asks next."""
    first = asked(
        store, "How long do refunds take?", ["refunds", "cards"], at=START, session_id="s1",
        actor="ann", answer="Refunds take 14 days.", grounded=True,
    )  # fmt: skip
    at = after(seconds=after_s)
    documents = kwargs.pop("documents", ["refunds", "fees"])
    who = {"session_id": "s1", "actor": "ann"} | kwargs
    return first, asked(store, question, documents, at=at, **who)


@pytest.mark.parametrize(
    ("question", "after_s", "expected"),
    [
        ("how long do refunds take", 30, ["regenerate"]),
        ("how long do refunds take", 31, []),
        ("When do I get my money back?", 120, ["rephrase"]),
        ("When do I get my money back?", 121, []),
        ("No, that's wrong.", 200, ["contradiction"]),
        ("I read that refunds take 30 days", 100, ["contradiction"]),
    ],
)
def test_what_is_asked_next_is_said_of_the_first(store, question, after_s, expected):
    first, then = pair(store, question, after_s)
    derive_signals(store, now=LATER)
    assert names(store, first) == expected
    assert names(store, then) == []
    for one in heard(store, first):
        assert one.actor == "ann"
        assert one.event_id.startswith("derived:")


def test_a_contradiction_holds_what_would_be_right_in_its_comment(store):
    first, _ = pair(store, "I read that refunds take 30 days", 50)
    derive_signals(store, now=LATER)
    [one] = heard(store, first)
    assert (one.signal, one.comment) == ("contradiction", "I read that refunds take 30 days")


@pytest.mark.parametrize(
    ("vectors", "same_top", "expected"),
    [
        (([1, 0], [0.5, 0.866]), True, 1),
        (([1, 0], [0.48, 0.877]), True, 0),
        (([1, 0], [0.83, 0.558]), False, 1),
        (([1, 0], [0.8, 0.6]), False, 0),
        (([1, 0, 0], [0.1, 0.995]), True, 1),  # other models: only the chunks are compared
        ((None, [0, 1]), True, 1),
    ],
)
def test_vectors_say_whether_two_questions_are_one(store, vectors, same_top, expected):
    common = {"session_id": "s1"}
    first = asked(store, "One?", ["a", "b"], at=START, vector=vectors[0], **common)
    found = ["a", "c"] if same_top else ["c", "a"]
    asked(store, "Another?", found, at=after(seconds=60), vector=vectors[1], **common)
    derive_signals(store, now=LATER)
    assert names(store, first).count("rephrase") == expected


def test_a_second_run_adds_nothing(store):
    first, _ = pair(store, "When do I get my money back?", 60)
    asked(store, "Who is the emperor?", [], at=START)
    once = derive_signals(store, now=after(hours=2))
    assert once.added == {"rephrase": 1, "abandon": 1, "zero_result": 1}
    for since in (None, START, timedelta(days=400)):
        assert derive_signals(store, since=since, now=after(hours=3)).added == {}
    assert names(store, first) == ["rephrase"]


def test_two_runs_at_once_are_as_one(url):
    with FeedbackStore(url) as one, FeedbackStore(url) as other, ThreadPoolExecutor(4) as pool:
        for n in range(30):
            session = {"session_id": f"s{n}"}
            asked(one, f"What is {n}?", ["a"], at=START, **session)
            asked(one, f"Explain {n}", ["a"], at=after(seconds=9), **session)
        runs = [
            pool.submit(derive_signals, store, since=START, now=LATER)
            for store in (one, other, one, other)
        ]
        assert sum(run.result().added.get("rephrase", 0) for run in runs) == 30
        with reading(one) as connection:
            assert connection.execute(select(func.count()).select_from(signals)).scalar() == 30


def test_the_ranking_does_not_move(store):
    first, _ = pair(store, "No, that's wrong.", 60)
    asked(store, "Anything?", [], at=START)
    derive_signals(store, now=after(hours=2))
    with reading(store) as connection:
        for table in (credits_, evidence):
            assert connection.execute(select(func.count()).select_from(table)).scalar() == 0
        assert connection.execute(select(func.count()).select_from(signals)).scalar() == 3
    said(store, first, "thumbs_down", at=START)
    before = store.evidence_for("How long do refunds take?")
    said(store, first, "rephrase")
    assert store.evidence_for("How long do refunds take?").cells == before.cells


def test_what_the_client_sent_is_not_said_again(store):
    first, _ = pair(store, "How long do refunds take?", 10)
    event = said(store, first, "regenerate")
    assert derive_signals(store, now=LATER).added == {}
    store.retract(event)
    assert derive_signals(store, since=START, now=LATER).added == {}
    assert names(store, first) == []


def test_a_stronger_one_is_added_and_only_it_counts(store):
    first, _ = pair(store, "How long do refunds take?", 10)
    said(store, first, "rephrase", actor="ann")
    assert derive_signals(store, now=LATER).added == {"regenerate": 1}
    assert names(store, first) == ["regenerate"]


def test_two_people_in_one_session_do_not_answer_for_each_other(store):
    first, _ = pair(store, "When do I get my money back?", 60, actor="bob")
    derive_signals(store, now=LATER)
    assert names(store, first) == []


def test_without_a_session_only_an_empty_result_is_known(store):
    one = asked(store, "How long do refunds take?", ["a"], at=START)
    asked(store, "How long do refunds take?", ["a"], at=after(seconds=5))
    empty = asked(store, "Emperor?", ["a"], at=START, grades={"a": "no"})
    assert derive_signals(store, now=after(hours=1)).added == {"zero_result": 1}
    assert (names(store, one), names(store, empty)) == ([], ["zero_result"])


def test_traffic_of_tests_is_passed_over(store):
    for n in range(2):
        common = {"session_id": "s1", "traffic": "eval", "at": after(seconds=n)}
        asked(store, "How long do refunds take?", [], **common)
    assert derive_signals(store, now=after(hours=1)).added == {}


def test_namespaces_never_mix(store):
    other = store.scoped("other")
    for one in (store, other):
        pair(one, "When do I get my money back?", 60)
    assert derive_signals(store, now=LATER).added == {"rephrase": 1}
    assert derive_signals(other, now=LATER).added == {"rephrase": 1}


def test_silence_of_half_an_hour_ends_a_session(store):
    first, then = pair(store, "And what of fees?", 60, documents=["fees"])
    said(store, then, "dwell", value=5_000)
    store.update_trace(then, grounded=True)
    assert derive_signals(store, now=after(minutes=30)).added == {}
    assert derive_signals(store, now=after(minutes=31)).added == {"abandon": 1}
    assert names(store, first) == []
    assert [one.comment for one in heard(store, then)] == [None, "good"]


def test_a_trace_that_comes_late_is_seen_and_refutes_the_silence(store):
    first, then = pair(store, "And what of fees?", 60, documents=["fees"])
    assert derive_signals(store, now=after(hours=2)).added == {"abandon": 1}
    late = asked(
        store, "How much is the fee?", ["fees"], at=after(seconds=150), session_id="s1",
        actor="ann",
    )  # fmt: skip
    run = derive_signals(store, now=after(hours=3))
    assert (run.added, run.withdrawn) == ({"rephrase": 1, "abandon": 1}, 1)
    assert (names(store, first), names(store, then)) == ([], ["rephrase"])
    assert names(store, late) == ["abandon"]


def test_only_what_is_new_is_read(store):
    for n in range(3):
        asked(store, "Old?", ["a"], session_id=f"old{n}", at=START)
    assert derive_signals(store, now=after(days=9)).asks == 3
    asked(store, "New?", ["a"], session_id="new", at=after(days=10))
    assert derive_signals(store, now=after(days=10)).asks == 1


def test_what_was_forgotten_stays_forgotten(store):
    first, _ = pair(store, "When do I get my money back?", 60)
    derive_signals(store, now=LATER)
    store.forget(actor="ann")
    assert derive_signals(store, since=START, now=LATER).added == {}
    assert store.trace(first) is None
