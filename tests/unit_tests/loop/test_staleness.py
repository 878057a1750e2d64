"""Alarms over sources: complaints that rise, texts that changed, sources that are gone."""

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from sqlalchemy import update

from langchain_feedback.demo.handbook import handbook_documents
from langchain_feedback.loop._triage.complaints import Judged, watch
from langchain_feedback.loop.staleness import check_sources, cusum, open_alarms
from langchain_feedback.store.alarms import close_alarm, raise_alarm, read_alarms
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import traces
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.kit import asked, chunk, said

START = datetime(2026, 1, 5, tzinfo=UTC)
"""A Monday."""
WEEK = timedelta(weeks=1)
OLD = chunk("fee", "The fee is 5 euro.", source="fees.md")
NEW = chunk("fee", "The fee is 6 euro.", source="fees.md")


def week(number: float) -> datetime:
    return START + number * WEEK


def answered(store, at, document=OLD, *, rating=None, question="What is the fee?", **kwargs):
    """An answer that quotes one document, as somebody rated it."""
    usual = {"status": "answered", "grounded": True, "cited": [document.id]}
    trace_id = asked(store, question, [document], at=at, **usual | kwargs)
    if rating is not None:
        said(store, trace_id, "rating", rating=rating)
    return trace_id


def kinds(alarms):
    return sorted((alarm.source, alarm.kind) for alarm in alarms)


# -- the statistic


@given(
    weeks=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30),
    rate=st.floats(0.02, 0.98),
)
def test_the_evidence_is_never_negative_and_rises_with_failures_alone(weeks, rate):
    counted = [(min(pair), max(pair)) for pair in weeks]
    values = cusum(counted, rate)
    assert len(values) == len(counted)
    assert all(value >= 0 and math.isfinite(value) for value in values)
    before = [0.0, *values]
    for (failed, judged), was, value in zip(counted, before, values, strict=False):
        assert value <= was + failed * math.log(2.5) + 1e-9
        if failed == 0:
            assert value <= was
        if failed == judged:
            assert value >= was
    assert cusum(counted[3:], rate, start=before[min(3, len(values))]) == values[3:]


@pytest.mark.parametrize("options", [{"rate": 0.0}, {"rate": 1.0}, {"rate": 0.2, "times": 1.0}])
def test_impossible_rates_are_refused(options):
    with pytest.raises(ValueError, match="rate is in"):
        cusum([(1, 2)], **options)


def weekly(*counts: tuple[int, int]) -> list[Judged]:
    """So many failures of so many answers, week by week."""
    return [
        Judged(week(number + 0.9 * one / judged), failed=one < failed)
        for number, (failed, judged) in enumerate(counts)
        for one in range(judged)
    ]


CALM = [(1, 5)] * 6


def watched(*counts, resets=()):
    return watch(weekly(*counts), usual=0.2, now=week(len(counts)), resets=resets)


def test_an_alarm_is_over_after_two_weeks_without_evidence():
    bad = [*CALM, (4, 5), (4, 5)]
    assert watched(*bad).alarmed
    good = [(0, 5)] * 9
    states = [watched(*bad, *good[:n]) for n in range(len(good))]
    falling = [state.alarmed for state in states]
    assert falling == sorted(falling, reverse=True)
    assert falling[0]
    assert not falling[-1]
    at_zero = next(n for n in range(9) if cusum(good, 0.2, start=5.0)[n] == 0)
    assert falling.index(False) == at_zero + 2


def test_the_week_that_is_not_over_does_not_count():
    answers = weekly(*CALM, (5, 5), (5, 5))
    assert not watch(answers, usual=0.2, now=week(7.99)).alarmed
    assert watch(answers, usual=0.2, now=week(8)).alarmed


def test_a_reset_voids_what_came_before_it():
    assert watched(*CALM, (4, 5), (4, 5)).alarmed
    assert not watched(*CALM, (4, 5), (4, 5), resets=[week(7)]).alarmed
    assert watched(*CALM, (4, 5), (4, 5), resets=[week(6)]).alarmed


def test_what_nobody_asks_any_more_is_no_alarm():
    assert watched(*CALM, (4, 5), (4, 5), *[(0, 0)] * 5).alarmed
    assert not watched(*CALM, (4, 5), (4, 5), *[(0, 0)] * 7).alarmed


def test_an_alarm_says_what_it_saw():
    state = watched(*CALM, (1, 5), (5, 5), (5, 5))
    assert (state.judged, state.failed, state.since) == (10, 10, week(7))
    assert state.rate == pytest.approx(0.2)
    assert state.statistic > 5


def test_a_source_that_always_fails_is_no_worse_than_before():
    assert not watch(weekly(*[(5, 5)] * 20), usual=1.0, now=week(20)).alarmed


def simulated(rng, sources, a_week, *, rises_at=None, weeks=20):
    """Watch sources week by week; return in which week each was alarmed, if it was."""
    found = []
    for _ in range(sources):
        risen = np.arange(weeks) >= (weeks if rises_at is None else rises_at)
        judged = rng.poisson(a_week, weeks)
        failed = rng.binomial(judged, np.where(risen, 0.5, 0.2))
        answers = weekly(*zip(failed.tolist(), judged.tolist(), strict=True))
        states = (watch(answers, usual=0.2, now=week(one + 1)) for one in range(6, weeks))
        found.append(next((n for n, state in enumerate(states, 6) if state.alarmed), None))
    return found


@pytest.mark.parametrize(
    ("a_week", "least_found", "weeks"), [(5, 0.85, 3), (20, 0.98, 1)], ids=["5", "20"]
)
def test_the_statistic_finds_what_the_design_measured_check11(a_week, least_found, weeks):
    # 200 sources, 20 weeks, .2 -> .5: .1 to .8 false alarms a week for all of them.
    rng = np.random.default_rng(7)
    false = simulated(rng, 600, a_week)
    assert 0.1 <= sum(at is not None for at in false) / 14 / 3 <= 0.9
    found = simulated(rng, 300, a_week, rises_at=10)
    late = [at - 10 for at in found if at is not None and at >= 10]
    early = sum(at is not None and at < 10 for at in found)
    assert len(late) / (300 - early) >= least_found
    assert median(late) <= weeks


# -- complaints in a store


def test_a_changed_chunk_is_alarmed_in_the_lab_within_three_weeks_check11():
    """Two chunks of the handbook become wrong in week 10: one with its text, one without."""
    chunks = {document.id: document for document in handbook_documents()}
    rng = np.random.default_rng(11)
    raised = []
    with FeedbackStore("sqlite://") as store:
        for number in range(20):
            if number == 10:
                chunks["sla"] = chunks["sla"].model_copy(update={"page_content": "No credit."})
            for name in ("sla", "cancel", "export"):
                rate = 0.5 if number >= 10 and name != "export" else 0.2
                for one, failed in enumerate(rng.random(20) < rate):
                    answered(store, week(number + 0.5), chunks[name], rating=1 if failed else 5,
                             question=f"About {name}, {number}, {one}?")  # fmt: skip
            now = week(number + 1)
            raised += [(number, one.source, one.kind) for one in check_sources(store, now=now)]
            assert check_sources(store, now=now) == []
    expected = {"handbook/sla": [], "handbook/cancel": []}
    for number, source, kind in raised:
        if kind == "complaints" and number >= 10 and source in expected:
            expected[source].append(number - 10 + 1)
    assert all(weeks and weeks[0] <= 3 for weeks in expected.values()), raised
    # Some answers from the new text were found good in the very week, so that it is no news.
    false = [one for one in raised if one[0] < 10 or one[1] not in expected]
    assert len(false) <= 1, raised


def complained(store, weeks=2, **kwargs):
    """Six calm weeks, and some bad ones; return when they are over."""
    for number in range(6):
        for one in range(5):
            answered(store, week(number + one / 10), rating=1 if one == 0 else 5, **kwargs)
    for number in range(6, 6 + weeks):
        for one in range(4):
            answered(store, week(number + one / 10), rating=1, **kwargs)
    return week(6 + weeks)


def test_complaints_are_alarmed_once_and_closed_once_it_is_over(store):
    now = complained(store)
    [alarm] = check_sources(store, now=now)
    assert (alarm.source, alarm.kind, alarm.closed_at) == ("fees.md", "complaints", None)
    assert alarm.statistic > 5
    assert alarm.evidence == {
        "failures": 8, "judged": 8, "rate": 1.0, "rate_before": pytest.approx(0.29, abs=0.1),
        "since": week(6).date().isoformat(),
    }  # fmt: skip
    assert check_sources(store, now=now) == []
    assert open_alarms(store) == [alarm]
    for number in range(8, 14):
        for one in range(5):
            answered(store, week(number + one / 10), rating=5)
    assert check_sources(store, now=week(14)) == []
    assert open_alarms(store) == []
    # What is over is not raised again from the same answers.
    assert check_sources(store, now=week(14)) == check_sources(store, now=week(15)) == []


def test_two_checks_at_once_raise_one_alarm(store):
    now = complained(store)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: check_sources(store, now=now), range(4)))
    assert len([alarm for alarms in found for alarm in alarms]) == 1
    assert kinds(open_alarms(store)) == [("fees.md", "complaints")]


def test_a_new_text_closes_complaints(store):
    check_sources(store, now=complained(store))
    assert kinds(open_alarms(store)) == [("fees.md", "complaints")]
    answered(store, week(8.1), NEW)
    assert kinds(check_sources(store, now=week(8.2))) == [("fees.md", "changed")]
    assert kinds(open_alarms(store)) == [("fees.md", "changed")]


def test_a_closed_alarm_is_raised_again_by_new_complaints_only(store):
    now = complained(store)
    [alarm] = check_sources(store, now=now)
    with writing(store) as (connection, _):
        close_alarm(connection, store.namespace, alarm.alarm_id, now)
    assert check_sources(store, now=now + WEEK) == []
    for one in range(8):
        answered(store, week(9 + one / 10), rating=1)
    assert kinds(check_sources(store, now=week(10))) == [("fees.md", "complaints")]


def test_complaints_belong_to_the_sources_that_answers_quote(store):
    other = chunk("other", source="other.md")
    now = complained(store)
    # They stood in the prompt of other answers, and one was named by those who complained.
    for number in range(8):
        trace_id = asked(store, "Who?", [other, OLD], at=week(number), cited=["other"])
        said(store, trace_id, "rating", rating=1 if number > 5 else 5)
    assert kinds(check_sources(store, now=now)) == [("fees.md", "complaints")]


@pytest.mark.parametrize(
    "not_its_own", [{"grounded": False}, {"status": "abstained"}, {"traffic": "eval"}]
)
def test_failures_that_are_not_the_documents_own_do_not_count(store, not_its_own):
    assert check_sources(store, now=complained(store, **not_its_own)) == []


def test_a_source_that_people_name_is_blamed_alone(store):
    other = chunk("other", source="other.md")
    for number in range(8):
        for one in range(5):
            trace_id = asked(store, "Who?", [other, OLD], at=week(number + one / 10),
                             cited=["other", "fee"], status="answered")  # fmt: skip
            if number < 6:
                said(store, trace_id, "rating", rating=5)
            else:
                said(store, trace_id, "wrong_source", target="other")
    assert kinds(check_sources(store, now=week(8))) == [("other.md", "complaints")]


def test_where_nobody_praises_silence_has_to_do(store):
    for number in range(8):
        for one in range(5):
            trace_id = answered(store, week(number + one / 10))
            if number >= 6 or one == 0:
                said(store, trace_id, "rephrase")
    assert kinds(check_sources(store, now=week(8))) == [("fees.md", "complaints")]


def test_alarms_of_reviewers_are_left_alone(store):
    with writing(store) as (connection, _):
        raise_alarm(connection, store.namespace, "fees.md", "reviewer", START, {"note": "old"})
    assert check_sources(store, now=week(9)) == []
    assert kinds(open_alarms(store)) == [("fees.md", "reviewer")]


def test_namespaces_do_not_mix(store):
    other = store.scoped("other")
    now = complained(store)
    assert check_sources(other, now=now) == open_alarms(other) == []
    assert len(check_sources(store, now=now)) == 1
    assert open_alarms(other) == []
    assert check_sources(other, now=now) == []
    assert len(open_alarms(store)) == 1


# -- texts that changed


def test_a_changed_text_is_alarmed_until_an_answer_from_it_is_good(store):
    answered(store, week(0))
    answered(store, week(1), NEW)
    [alarm] = check_sources(store, now=week(2))
    assert (alarm.source, alarm.kind, alarm.statistic) == ("fees.md", "changed", None)
    assert (alarm.evidence["chunks"], alarm.evidence["answers"]) == (["fee"], 1)
    answered(store, week(2), NEW, rating=2)
    assert check_sources(store, now=week(3)) == []
    assert len(open_alarms(store)) == 1
    answered(store, week(3), NEW, rating=5)
    assert check_sources(store, now=week(4)) == open_alarms(store) == []
    assert check_sources(store, now=week(4)) == []


def test_the_same_change_is_not_told_twice(store):
    answered(store, week(0), rating=5)
    answered(store, week(1), NEW)
    [alarm] = check_sources(store, now=week(1.5))
    with writing(store) as (connection, _):
        close_alarm(connection, store.namespace, alarm.alarm_id, week(2))
    assert check_sources(store, now=week(3)) == []
    newer = chunk("fee", "The fee is 7 euro.", source="fees.md")
    answered(store, week(3), newer)
    assert kinds(check_sources(store, now=week(4))) == [("fees.md", "changed")]


def test_a_second_change_is_told_by_the_alarm_that_is_open(store):
    answered(store, week(0))
    answered(store, week(0), chunk("tax", "The tax is 1 euro.", source="fees.md"))
    answered(store, week(1), NEW)
    [alarm] = check_sources(store, now=week(1.5))
    answered(store, week(2), chunk("tax", "The tax is 2 euro.", source="fees.md"))
    assert check_sources(store, now=week(2.5)) == []
    [told] = open_alarms(store)
    assert (told.alarm_id, told.evidence["chunks"]) == (alarm.alarm_id, ["fee", "tax"])
    # Good answers from one of the two are not enough.
    answered(store, week(2.6), NEW, rating=5)
    assert check_sources(store, now=week(2.7)) == []
    assert len(open_alarms(store)) == 1


def test_a_change_that_nobody_asks_about_is_closed_after_six_weeks(store):
    answered(store, week(0))
    answered(store, week(1), NEW)
    assert len(check_sources(store, now=week(1.5))) == 1
    assert check_sources(store, now=week(7.4)) == []
    assert len(open_alarms(store)) == 1
    assert check_sources(store, now=week(7.5)) == []
    assert open_alarms(store) == []
    assert check_sources(store, now=week(8)) == []


def test_a_text_that_no_answer_rested_on_may_change(store):
    asked(store, "What?", [OLD], at=week(0), cited=[])
    asked(store, "What?", [OLD], at=week(0))  # nobody knows, and nobody said that it was good
    answered(store, week(1), NEW)
    assert check_sources(store, now=week(2)) == []


def test_a_chunk_without_a_source_has_no_alarm(store):
    answered(store, week(0), Document("One.", id="x"))
    answered(store, week(1), Document("Two.", id="x"))
    assert check_sources(store, now=week(2)) == []


# -- sources that are gone

OTHER = chunk("other", "Nothing about it.", source="other.md")


def lost(store, times=3, question="What is the fee?", document=OTHER):
    """The question is asked again, and finds something else."""
    for one in range(times):
        asked(store, question, [document], at=week(1.2 + one / 10), status="abstained")


def test_a_source_that_its_questions_do_not_find_any_more_is_gone(store):
    answered(store, week(0))
    lost(store)
    [alarm] = check_sources(store, now=week(2))
    assert (alarm.source, alarm.kind) == ("fees.md", "gone")
    assert alarm.evidence == {"last_found": week(0).isoformat(), "asked_since": 3}
    assert check_sources(store, now=week(2)) == []
    asked(store, "Something else?", [OTHER, OLD], at=week(2.1))
    assert check_sources(store, now=week(2.2)) == open_alarms(store) == []


def test_a_source_that_nobody_asks_for_is_not_gone(store):
    answered(store, week(0))
    lost(store, question="Another question?", times=9)
    assert check_sources(store, now=week(9)) == []


@pytest.mark.parametrize(("times", "now"), [(2, 9), (3, 0.9)])
def test_a_source_is_not_gone_at_once(store, times, now):
    answered(store, week(0))
    lost(store, times)
    assert check_sources(store, now=week(now)) == []


def test_a_text_under_another_name_has_moved(store):
    answered(store, week(0))
    lost(store, document=Document(OLD.page_content, id="new", metadata={"source": "moved.md"}))
    assert check_sources(store, now=week(2)) == []


def test_an_alarm_over_what_is_gone_ends_with_what_is_known_of_it(store):
    answered(store, week(0))
    lost(store)
    assert len(check_sources(store, now=week(2))) == 1
    assert check_sources(store, now=week(30)) == open_alarms(store) == []


# -- rows


def test_an_alarm_is_raised_once_while_it_is_open(store):
    with writing(store) as (connection, _):
        one, again = (
            raise_alarm(connection, store.namespace, "a", "reviewer", START, {}) for _ in "12"
        )
        other = raise_alarm(connection, "other", "a", "reviewer", START, {})
        close_alarm(connection, "other", one, START)
    assert (one == again, one != other) == (True, True)
    assert [alarm.alarm_id for alarm in open_alarms(store)] == [one]
    with writing(store) as (connection, _):
        close_alarm(connection, store.namespace, one, week(1))
        close_alarm(connection, store.namespace, one, week(2))
        # At the same instant, too: a verdict that is undone and given again.
        new = raise_alarm(connection, store.namespace, "a", "reviewer", START, {})
    assert [alarm.alarm_id for alarm in open_alarms(store)] == [new]
    with reading(store) as connection:
        closed = read_alarms(connection, store.namespace, closed=True)
    assert {alarm.alarm_id: alarm.closed_at for alarm in closed} == {one: week(1), new: None}


def test_a_store_without_answers_has_no_alarms(store):
    assert check_sources(store) == open_alarms(store) == []


def test_traces_at_odd_times_are_read(store):
    trace_id = answered(store, week(0), rating=1)
    with writing(store) as (connection, _):
        future = {"created_at": week(900)}
        connection.execute(update(traces).where(traces.c.trace_id == trace_id).values(future))
    assert check_sources(store, now=week(1)) == []
