"""The loop's numbers, and what is said of them, on both databases."""

import json
import random
from dataclasses import asdict, replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from langchain_feedback import FeedbackStore
from langchain_feedback.loop._health.verdict import Facts, verdict_of
from langchain_feedback.loop.health import loop_health
from langchain_feedback.loop.judging import judge_accuracy
from langchain_feedback.loop.staleness import open_alarms
from langchain_feedback.store.alarms import raise_alarm
from langchain_feedback.store.asking import read_asks
from langchain_feedback.store.inbox.events import Incoming
from langchain_feedback.store.learning_schema import loop_runs
from langchain_feedback.store.reviewing.items import read_events
from langchain_feedback.store.reviewing.verdicts import add_event
from langchain_feedback.store.schema import signals, traces
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.health_kit import (
    DAY,
    NOW,
    frozen,
    made_active,
    queued,
    ran,
    trained,
    tried,
)
from tests.unit_tests.loop.kit import asked, said

HOUR = timedelta(hours=1)
WEEK = 7 * DAY


@pytest.fixture
def memory():
    with FeedbackStore("sqlite://") as store:
        yield store


def health(store, **options):
    return loop_health(store, now=NOW, **options)


# -- what it says


def test_an_empty_store_collects_and_every_number_is_there(store):
    found = health(store)
    assert found.verdict == "collecting"
    assert found.why.startswith("0 of 30")
    assert (found.week.asks, found.week.zero_result, found.run) == (0, None, None)
    assert (found.queue.oldest_days, found.signals.pending) == (None, None)
    assert len(found.weeks) == 4
    as_json = json.loads(json.dumps(asdict(found), default=str))
    assert as_json["rankers"]["versions"] == []


@pytest.mark.parametrize("days", [0, -1, float("nan")])
def test_days_above_zero_are_asked_for(memory, days):
    with pytest.raises(ValueError, match="days must be above 0"):
        loop_health(memory, days=days)


def test_closing_is_an_active_ranker_that_was_measured_to_gain(store):
    trained(store, "r1", at=NOW - 3 * DAY)
    run_id = tried(store, "r1", "promote", at=NOW - 2 * DAY, gain=0.042, n=132)
    assert health(store).why == (
        "Ranker #1 gains +4.2 points on 132 cases; `loop promote` makes it the active one."
    )
    made_active(store, "r1", by=run_id, at=NOW - DAY)
    found = health(store)
    assert found.verdict == "closing"
    assert found.why.startswith("The active ranker #1 gains +4.2 points on 132 cases")


def test_an_active_ranker_tried_against_itself_again_stays_measured(store):
    trained(store, "r1", at=NOW - 3 * DAY)
    run_id = tried(store, "r1", "promote", at=NOW - 2 * DAY, gain=0.042)
    made_active(store, "r1", by=run_id, at=NOW - 2 * DAY)
    tried(store, "r1", "reject", at=NOW - DAY, baseline="r1", gain=0.0)
    found = health(store)
    assert (found.verdict, found.rankers.rejected) == ("closing", 0)
    assert len(found.rankers.scores) == 2


def test_closing_rests_on_the_evaluation_that_it_was_promoted_by_and_on_no_later_one(store):
    for name in ("r1", "r2"):
        trained(store, name, at=NOW - 5 * DAY)
    run_id = tried(store, "r1", "promote", at=NOW - 4 * DAY, gain=0.042, n=132)
    made_active(store, "r1", by=run_id, at=NOW - 3 * DAY)
    tried(store, "r1", "reject", at=NOW - 2 * DAY, baseline="r2", gain=-0.02, n=150)
    found = health(store)
    assert found.verdict == "closing"
    assert "gains +4.2 points on 132 cases" in found.why
    made_active(store, "r2", by=tried(store, "r2", "reject", at=NOW - DAY), forced=True)
    assert health(store).verdict == "collecting"
    tried(store, "r2", "promote", baseline="r1", gain=0.5)  # whatever is measured afterwards
    assert health(store).verdict == "collecting"
    made_active(store, "r1", action="rollback")
    found = health(store)
    assert (found.verdict, found.rankers.versions[1].is_earned) == ("closing", True)


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [("reject", {}), ("advice", {}), ("promote", {"forced": True}), ("promote", {"by": "gone"})],
)
def test_a_gain_that_did_not_pass_the_gate_closes_nothing(store, verdict, reason):
    trained(store, "r1")
    by = tried(store, "r1", verdict, gain=0.001, p=0.48)
    made_active(store, "r1", **({"by": by} | reason))
    found = health(store)
    assert (found.verdict, found.why) == (
        "collecting", "Ranker #1 is active, and no evaluation earned it that.",
    )  # fmt: skip


def test_a_ranker_that_was_forced_without_a_gain_closes_nothing(store):
    trained(store, "r1")
    tried(store, "r1", "reject", gain=-0.01)
    made_active(store, "r1")
    found = health(store)
    assert (found.verdict, found.why) == (
        "collecting", "Ranker #1 is active, and no evaluation earned it that.",
    )  # fmt: skip


def test_collecting_says_what_it_waits_for(store):
    for number in range(30):
        queued(store, number, at=NOW - DAY, decided=NOW - HOUR, right=["a"])
        if number == 28:
            assert health(store).why.startswith("29 of 30")
    assert "trains a ranker" in health(store).why
    trained(store, "r1", at=NOW - 2 * DAY)
    assert "`loop evaluate` tries it" in health(store).why
    tried(store, "r1", "advice", at=NOW - DAY, n=64, gain=0.031)
    assert health(store).why == (
        "Ranker #1 was tried on 64 of the 100 cases that a promotion needs (+3.1 points so far)."
    )
    tried(store, "r1", "reject", gain=-0.01)
    assert health(store).why == "The newest ranker, #1, was rejected."


def test_three_rankers_without_a_gain_are_stuck_and_one_with_it_is_not(store):
    for number, verdict in enumerate(["promote", "reject", "reject", "reject"]):
        trained(store, f"r{number}", at=NOW - (10 - number) * DAY)
        assert health(store).verdict == "collecting"
        tried(store, f"r{number}", verdict, at=NOW - (9 - number) * DAY, gain=-number / 100)
    found = health(store)
    assert found.verdict == "stuck: no gain in 3 rankers"
    assert "-3.0, -2.0, -1.0 points" in found.why
    trained(store, "r9", at=NOW - DAY)
    tried(store, "r9", "promote", at=NOW, gain=0.02)
    assert health(store).verdict == "collecting"


def test_advice_is_no_try_that_gained_nothing(store):
    for number in range(3):
        trained(store, f"r{number}", at=NOW - (10 - number) * DAY)
        tried(store, f"r{number}", "advice", at=NOW - (9 - number) * DAY, gain=-0.1, n=50)
    assert health(store).verdict == "collecting"


def test_a_queue_that_grows_for_three_weeks_is_stuck(store):
    for week in range(3):
        for number in range(2):
            queued(store, f"{week}-{number}", at=NOW - week * WEEK - DAY)
        assert health(store).verdict == (
            "stuck: queue grows for 3 weeks" if week == 2 else "collecting"
        )
    assert health(store).why == "It went from 0 to 6 items; 0 were cleared in the last week."


def test_a_queue_that_is_cleared_as_fast_as_it_fills_is_not_stuck(store):
    for week in range(5):
        for number in range(3):
            at = NOW - week * WEEK - 2 * DAY
            queued(store, f"{week}-{number}", at=at, decided=at + DAY if number else None,
                   expired=None if number else at + DAY)  # fmt: skip
    found = health(store)
    assert found.verdict == "collecting"
    assert [(one.waiting, one.added, one.cleared) for one in found.weeks] == [(0, 3, 2)] * 4
    assert found.queue.cleared_a_week == 2


def test_a_queue_that_nobody_looks_at_is_stuck(store):
    for day in (15, 16, 29):
        queued(store, day, at=NOW - day * DAY)
    found = health(store)
    assert found.verdict == "stuck: nothing reviewed for 2 weeks"
    assert found.why == "3 items wait, the oldest for 29 days."
    queued(store, "done", at=NOW - 5 * DAY, decided=NOW - 4 * DAY)
    assert health(store).verdict == "collecting"


@pytest.mark.parametrize(
    ("state", "lease", "verdict"),
    [
        ("failed", 0, "stuck: the last run failed"),
        ("running", -1, "stuck: the last run was interrupted"),
        ("running", 1, "collecting"),
        ("done", 0, "collecting"),
    ],
)
def test_a_run_that_did_not_end_well_is_stuck(store, state, lease, verdict):
    ran(store, at=NOW - 7 * DAY)
    ran(store, at=NOW - HOUR, state=state, step="mine", lease=HOUR + lease * HOUR / 2)
    found = health(store)
    assert found.verdict == verdict
    assert (found.run.runs, found.run.failed) == (2, int(state == "failed"))
    if verdict != "collecting":
        assert "after the step mine" in found.why


def test_the_step_that_failed_is_named_with_what_it_said(store):
    steps = [
        {"name": "derive", "state": "done", "words": "Nothing.", "facts": {}},
        {"name": "evaluate", "state": "failed", "words": "It cannot be loaded.", "facts": {}},
    ]
    ran(store, at=NOW - HOUR, state="failed", step="digest")
    with writing(store) as (connection, _):
        connection.execute(update(loop_runs).values(report=json.dumps({"steps": steps})))
    assert health(store).why == "Its step evaluate: It cannot be loaded."


@pytest.mark.parametrize(("number", "by"), [(20, None), (19, None), (20, "r1")])
def test_a_ranker_that_orders_nothing_closes_nothing(store, number, by):
    trained(store, "r1", at=NOW - 3 * DAY)
    run_id = tried(store, "r1", "promote", at=NOW - 2 * DAY)
    made_active(store, "r1", by=run_id, at=NOW - DAY)
    for at in range(number):
        trace_id = asked(store, f"Question {at}?", ["a"], actor=f"u{at}", at=NOW - HOUR)
        if by and not at:
            with writing(store) as (connection, _):
                this = update(traces).where(traces.c.trace_id == trace_id)
                connection.execute(this.values(ranker_id=by))
    found = health(store)
    is_stuck = number == 20 and by is None
    assert (found.verdict == "stuck: the active ranker orders nothing") == is_stuck
    assert (found.rankers.asked, found.rankers.ordered) == (number, int(by is not None))
    assert is_stuck == ("ordered none of 20 questions" in found.why)


def test_a_schedule_that_is_gone_is_stuck_and_its_absence_is_not(store):
    assert health(store).verdict == "collecting"
    ran(store, at=NOW - 15 * DAY)
    assert health(store).verdict == "stuck: no run for 2 weeks"
    assert "15 days ago" in health(store).why
    ran(store, at=NOW - 13 * DAY)
    assert health(store).verdict == "collecting"


def test_a_flood_that_waits_for_review_is_stuck(store):
    asked(store, "How long?", ["a"], trace_id="t", actor="ann", at=NOW - HOUR)
    for number in range(30):
        said(store, "t", "copy", actor=f"u{number}", at=NOW - HOUR)
    with writing(store) as (connection, _):
        most = update(signals).where(signals.c.seq % 3 > 0)
        connection.execute(most.values(state="held", burst_id="b"))
    found = health(store)
    assert found.verdict == "stuck: most signals are held back"
    assert found.why.startswith("67 % of 30 signals")
    assert found.signals.per_100 == {"copy": 1000}


def test_signals_of_unknown_answers_are_stuck(store):
    events = [Incoming(f"e{number}", f"gone{number}", "copy") for number in range(20)]
    assert {one.status for one in store.receive(events)} == {"pending"}
    found = loop_health(store)
    assert found.verdict == "stuck: most signals are of unknown answers"
    assert (found.signals.received, found.signals.pending) == (20, 1.0)


def test_what_is_stuck_is_said_before_closing_and_the_nearest_to_the_source_first(memory):
    trained(memory, "r1", at=NOW - 3 * DAY)
    run_id = tried(memory, "r1", "promote", at=NOW - 2 * DAY)
    made_active(memory, "r1", by=run_id, at=NOW - DAY)
    queued(memory, "old", at=NOW - 20 * DAY)
    ran(memory, state="failed")
    found = health(memory)
    facts = Facts(
        found.queue, found.weeks, found.signals, found.rankers, found.run, None, found.at
    )
    assert verdict_of(facts)[0] == "stuck: the last run failed"
    assert verdict_of(facts._replace(run=None))[0] == "stuck: nothing reviewed for 2 weeks"
    calm = replace(found.queue, oldest_days=None)
    assert verdict_of(facts._replace(run=None, queue=calm))[0] == "closing"


# -- the numbers


def test_versions_tell_what_became_of_each(store):
    for number in range(1, 7):
        trained(store, f"r{number}", at=NOW - (30 - number) * DAY, groups=30 + number)
    tried(store, "r1", "promote", at=NOW - 20 * DAY)
    tried(store, "r2", "promote", at=NOW - 19 * DAY)
    tried(store, "r3", "reject", at=NOW - 18 * DAY, gain=-0.02, p=0.9,
          reasons=["gain is not above 0"],
          worst_case="case-3", worst_drop=0.6)  # fmt: skip
    tried(store, "r5", "advice", at=NOW - 17 * DAY, n=40)
    made_active(store, "r1", at=NOW - 16 * DAY)
    made_active(store, "r2", at=NOW - 15 * DAY)
    made_active(store, "r1", action="rollback", at=NOW - 14 * DAY)
    made_active(store, "r6", role="shadow", action="shadow", at=NOW - 13 * DAY)
    frozen(store, 7)
    rankers = health(store).rankers
    assert {one.number: one.state for one in rankers.versions} == {
        1: "active", 2: "rolled back", 3: "rejected", 4: "untested", 5: "advice", 6: "shadow",
    }  # fmt: skip
    assert [one.number for one in rankers.versions] == [6, 5, 4, 3, 2, 1]
    assert (rankers.active, rankers.shadow, rankers.cases) == ("r1", "r6", 7)
    assert (rankers.trained, rankers.promoted, rankers.rejected, rankers.rolled_back) == (
        5, 2, 1, 1,
    )  # fmt: skip
    third = rankers.versions[3]
    assert (third.worst_question, third.worst_drop, third.p) == ("Question 3?", 0.6, 0.9)
    assert third.reasons == ("gain is not above 0",)
    assert [one.number for one in rankers.scores] == [1, 2, 3, 5]


def test_promoted_again_after_a_rollback_is_active_again_and_later_replaced(store):
    for name in ("r1", "r2"):
        trained(store, name, at=NOW - (5 if name == "r1" else 4) * DAY)
    made_active(store, "r1", at=NOW - 3 * DAY)
    made_active(store, None, action="rollback", at=NOW - 2 * DAY)
    assert health(store).rankers.versions[1].state == "rolled back"
    assert health(store).rankers.active is None
    made_active(store, "r1", at=NOW - DAY)
    assert health(store).rankers.versions[1].state == "active"
    made_active(store, "r2", at=NOW)
    assert [one.state for one in health(store).rankers.versions] == ["active", "replaced"]


def test_a_damaged_report_spoils_no_other_number(store):
    trained(store, "r1")
    tried(store, "r1", "reject", score="high", gain=None, worst_case=["?"], n=True)
    found = health(store).rankers
    assert (found.versions[0].score, found.versions[0].cases, found.scores) == (None, 0, ())


def test_rates_are_those_that_triage_would_find(store):
    """Against the records that triage reads one by one, over a random history."""
    chance = random.Random(4)
    grades = [None, {"a": "no", "b": "no"}, {"a": "yes", "b": "no"}, {"a": "unknown", "b": "no"}]
    for number in range(60):
        reason = chance.choice([None, None, "no_documents", "step_limit"])
        found = chance.choice([["a", "b"], ["a", "b"], []])
        trace_id = asked(
            store, f"Question {number % 7}?", found,
            actor=f"u{number % 4}", at=NOW - chance.random() * 30 * DAY, reason=reason,
            status="abstained" if reason else "answered",
            grounded=chance.choice([None, True, False]),
            traffic=chance.choice([None, None, None, "eval"]),
        )  # fmt: skip
        if found and (graded := chance.choice(grades)):
            store.update_trace(trace_id, grades=graded)
        if found and chance.random() < 0.3:  # a second search, of which the grades count
            asked(store, f"Question {number % 7}?", ["c"], trace_id=trace_id, attempt=2,
                  actor=f"u{number % 4}", grades=chance.choice([None, {"c": "no"}]))  # fmt: skip
        for _ in range(chance.randrange(4)):
            name = chance.choice(
                ["thumbs_up", "thumbs_down", "rephrase", "correction", "copy", "regenerate"]
            )
            event_id = store.signal(
                trace_id, name, actor=chance.choice(["x", "y"]),
                correction="Ten days." if name == "correction" else None,
            )  # fmt: skip
            if chance.random() < 0.2:
                store.retract(event_id)
    found = health(store)
    for week in found.weeks:
        with reading(store) as connection:
            asks = read_asks(connection, "default", since=week.since, until=week.until)
        checked = [ask.grounded for ask in asks if ask.grounded is not None]
        assert week.rates.asks == len(asks) > 3
        expected = {
            "zero_result": sum(ask.found_nothing for ask in asks) / len(asks),
            "abstained": sum(ask.status == "abstained" for ask in asks) / len(asks),
            "not_grounded": checked.count(False) / len(checked),
            "rephrased": sum(
                any(one.family == "reformulation" for one in ask.said) for ask in asks
            ) / len(asks),
            "complained": sum(bool(ask.against) for ask in asks) / len(asks),
        }  # fmt: skip
        assert {name: getattr(week.rates, name) for name in expected} == pytest.approx(expected)
    assert len({week.rates.zero_result for week in found.weeks}) > 1
    assert found.week == found.weeks[-1].rates


def test_the_last_week_is_compared_with_the_four_before_it(store):
    for days, status in ((1, "abstained"), (6, "answered"), (8, "answered"), (34, "abstained")):
        asked(store, "How long?", ["a"], at=NOW - days * DAY, status=status)
    asked(store, "How long?", ["a"], at=NOW - 36 * DAY)
    found = health(store)
    assert (found.week.asks, found.week.abstained) == (2, 0.5)
    assert (found.before.asks, found.before.abstained) == (2, 0.5)


def test_what_is_asked_at_this_moment_counts_and_other_namespaces_do_not(store):
    asked(store, "How long?", ["a"], at=NOW)
    asked(store.scoped("other"), "How long?", ["a"], at=NOW)
    trained(store.scoped("other"), "r1")
    queued(store.scoped("other"), 1, at=NOW - DAY)
    found = health(store)
    assert (found.week.asks, found.weeks[-1].rates.asks) == (1, 1)
    assert (found.rankers.versions, found.queue.waiting) == ((), 0)


def test_signals_are_told_by_kind_with_their_lag(store):
    for number in range(4):
        asked(store, f"Q{number}?", ["a"], trace_id=f"t{number}", at=NOW - DAY)
    for number, seconds in enumerate((10, 20, 30, 400)):
        at = NOW - DAY + timedelta(seconds=seconds)
        said(store, f"t{number}", "thumbs_up", actor="u", at=at)
    said(store, "t0", "abandon", at=NOW - HOUR)
    said(store, "t0", "rating", rating=1, actor="r", reviewer=True, at=NOW - HOUR)
    taken_back = said(store, "t1", "copy", at=NOW - DAY)
    store.retract(taken_back)
    found = health(store).signals
    assert (found.received, found.per_100) == (5, {"thumbs_up": 100, "abandon": 25})
    assert (found.pending, found.held) == (0, 0)
    assert found.lag_p50_seconds == pytest.approx(20)
    assert 300 < found.lag_p95_seconds <= 400


def test_correction_lag_runs_from_the_first_complaint_to_the_first_good_answer(store):
    def complained(question, day, actor="ann"):
        trace_id = asked(store, question, ["a"], actor=actor, at=NOW - day * DAY)
        said(store, trace_id, "thumbs_down", actor=actor, at=NOW - day * DAY)

    complained("Praised?", 10)
    complained("Praised?", 9)
    praised = asked(store, "Praised?", ["a"], at=NOW - 6 * DAY)
    said(store, praised, "thumbs_up", actor="bob", at=NOW - 6 * DAY)
    complained("Proved?", 10)
    asked(store, "Proved?", ["a"], at=NOW - 8 * DAY, grounded=True, cited=["a"])
    complained("Still wrong?", 10)
    asked(store, "Still wrong?", ["a"], at=NOW - 8 * DAY, grounded=True)  # quotes nothing
    again = asked(store, "Still wrong?", ["a"], at=NOW - 7 * DAY, grounded=True, cited=["a"])
    said(store, again, "thumbs_down", actor="bob", at=NOW - 7 * DAY)
    asked(store, "Good before?", ["a"], at=NOW - 11 * DAY, grounded=True, cited=["a"])
    complained("Good before?", 10)
    changed_his_mind = asked(store, "Fine?", ["a"], at=NOW - 10 * DAY)
    said(store, changed_his_mind, "thumbs_down", actor="ann", at=NOW - 10 * DAY)
    said(store, changed_his_mind, "thumbs_up", actor="ann", at=NOW - 9 * DAY)
    found = health(store).corrections
    assert (found.failing, found.answered) == (4, 2)
    assert found.median_days == pytest.approx(3)  # of 4 and 2
    assert health(store, days=5).corrections.failing == 0


def test_what_evaluations_are_answered_mends_nothing(store):
    complaint = asked(store, "Mended?", ["a"], at=NOW - 10 * DAY)
    said(store, complaint, "thumbs_down", actor="ann", at=NOW - 10 * DAY)
    tried_out = asked(store, "Mended?", ["a"], at=NOW - 9 * DAY, traffic="eval", grounded=True,
                      cited=["a"])  # fmt: skip
    said(store, tried_out, "thumbs_up", actor="bot", at=NOW - 9 * DAY)
    assert (health(store).corrections.failing, health(store).corrections.answered) == (1, 0)
    asked(store, "Mended?", ["a"], at=NOW - 8 * DAY, grounded=True, cited=["a"])
    assert health(store).corrections.median_days == pytest.approx(2)


def test_runs_that_were_to_train_stand_against_rankers_that_were_trained(store):
    for day, steps in ((40, ["train"]), (9, ["derive", "train"]), (5, ["mine"]), (2, ["train"])):
        ran(store, at=NOW - day * DAY, asked=steps)
    trained(store, "r1", at=NOW - 9 * DAY)
    found = health(store)
    assert (found.run.runs, found.run.trainings, found.rankers.trained) == (3, 2, 1)


def test_owners_and_alarms_are_counted(store):
    with writing(store) as (connection, _):
        raise_alarm(connection, "default", "faq.md", "changed", NOW, {})
    assert len(open_alarms(store)) == 1
    found = health(store).corrections
    assert (found.alarms, found.owner_items, found.owner_open) == (1, {}, 0)


def test_the_queue_tells_verdicts_agreement_and_names(store):
    queued(store, 1, at=NOW - 3 * DAY, decided=NOW - DAY, right=["a"])
    queued(store, 2, at=NOW - 3 * DAY, decided=NOW - DAY, verdict="reject")
    queued(store, 3, at=NOW - 60 * DAY, decided=NOW - 50 * DAY, right=["a"])
    queued(store, 4, at=NOW - 2 * DAY)
    found = health(store).queue
    assert found.verdicts == {"confirm": 0.5, "reject": 0.5, "unclear": 0.0}
    assert (found.decided, found.named, found.waiting) == (2, 2, 1)
    assert found.oldest_days == pytest.approx(2)
    assert (found.median_seconds, found.agreement) == (30, None)


# -- judges


def pool(**grades):
    return [
        {"chunk_id": name, "grade": grade, "content_hash": name} for name, grade in grades.items()
    ]


def test_grades_are_compared_with_what_reviewers_named(store):
    yesterday = NOW - DAY
    queued(store, 1, at=yesterday, decided=NOW, right=["a", "z"],
           snapshot={"chunks": pool(a="yes", b="no", c="yes", d=None)})  # fmt: skip
    queued(store, 2, at=yesterday, decided=NOW, right=["b"], snapshot={"chunks": pool(b="no")})
    queued(store, 3, at=yesterday, decided=NOW, none_exists=True,
           snapshot={"chunks": pool(a="no", b="unknown")})  # fmt: skip
    queued(store, 4, at=yesterday, decided=NOW, snapshot={"chunks": pool(a="yes")})  # names none
    queued(store, 5, at=yesterday, snapshot={"chunks": pool(a="yes")})  # waits
    found = judge_accuracy(store, now=NOW)
    assert found.items == 3
    assert asdict(found.grades) == {
        "yes_right": 1, "yes_wrong": 1, "no_right": 2, "no_wrong": 1,
    }  # fmt: skip
    assert (found.grades.accuracy, found.grades.precision, found.grades.recall) == (0.6, 0.5, 0.5)
    assert found.grades.agreement == pytest.approx(1 / 6)
    assert health(store).judges == found
    assert judge_accuracy(store, days=0.5, now=NOW + DAY).items == 0


def test_grounded_is_compared_with_what_went_wrong(store):
    yesterday = NOW - DAY
    cases = [
        (True, "reject", None), (False, "reject", None), (True, "confirm", "generation"),
        (False, "confirm", "generation"), (True, "confirm", "retrieval"), (None, "reject", None),
        (True, "unclear", None),
    ]  # fmt: skip
    for number, (grounded, verdict, failure_class) in enumerate(cases):
        queued(store, number, at=yesterday, decided=NOW, verdict=verdict,
               failure_class=failure_class, snapshot={"grounded": grounded})  # fmt: skip
    queued(store, "mined", at=yesterday, decided=NOW, found_class="generation",
           snapshot={"grounded": False})  # fmt: skip
    found = judge_accuracy(store, now=NOW)
    assert asdict(found.grounded) == {
        "yes_right": 1, "yes_wrong": 1, "no_right": 2, "no_wrong": 1,
    }  # fmt: skip
    assert (found.items, found.grades.judged, found.grades.accuracy) == (5, 0, None)


def test_a_verdict_that_was_taken_back_says_nothing_of_judges(store):
    item_id = queued(store, 1, at=NOW - DAY, decided=NOW, right=["a"],
                     snapshot={"chunks": pool(a="yes")})  # fmt: skip
    with writing(store) as (connection, _):
        add_event(connection, "default", item_id, "ann", "undo", NOW, undoes=read_events(
            connection, "default", item_id)[0].seq)  # fmt: skip
    assert judge_accuracy(store, now=NOW).items == 0
    assert health(store).queue.named == 0
