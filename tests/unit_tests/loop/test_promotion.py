"""Promotion: earned, recorded, taken back, and never by a schedule what people took back."""

from dataclasses import replace
from datetime import timedelta

import pytest

from langchain_feedback.errors import (
    ArtifactError,
    PromotionRefusedError,
    UnknownRankerError,
)
from langchain_feedback.loop.evaluation import evaluate
from langchain_feedback.loop.promotion import (
    active_ranker,
    promote,
    rollback,
    rolled_back,
    shadow,
)
from langchain_feedback.ranking.loading import load_ranker
from langchain_feedback.store.eval_runs import newest_run
from langchain_feedback.store.learning_schema import rankers
from langchain_feedback.store.rankers import read_activations
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.casekit import BASE, UPSIDE_DOWN, clicked, frozen, pool, stored
from tests.unit_tests.loop.kit import asked, said
from tests.unit_tests.loop.test_evaluation import Puts, quick

__all__ = ["quick"]


def history(store, role="active"):
    with reading(store) as connection:
        return [
            (one.action, one.ranker_id)
            for one in read_activations(connection, store.namespace, role)
        ]


@pytest.fixture
def cases(quick):
    frozen(quick, 100)
    return quick


def test_what_earned_it_is_promoted_by_one_row_that_says_why(store):
    frozen(store, 100)
    report = evaluate(store, stored(store, "good"))
    assert active_ranker(store) is None
    done = promote(store, "good", report, actor="ann")
    assert active_ranker(store).ranker_id == "good"
    assert history(store) == [("promote", "good")]
    with reading(store) as connection:
        assert read_activations(connection, store.namespace) == [done]
    assert (done.actor, done.reason["run_id"], done.reason["n"]) == ("ann", report.run_id, 100)
    assert done.reason["gain"] == pytest.approx(0.5)
    assert "forced" not in done.reason
    assert promote(store, "good", report) == done


def test_without_a_report_the_newest_of_the_store_counts(cases):
    stored(cases, "good")
    with pytest.raises(PromotionRefusedError, match="was not tried against the base's own order"):
        promote(cases, "good")
    evaluate(cases, "good")
    assert promote(cases, "good").reason["verdict"] == "promote"


def test_a_no_is_refused_with_its_reasons(quick):
    frozen(quick, 100, right=0)
    report = evaluate(quick, stored(quick, "bad", UPSIDE_DOWN))
    with pytest.raises(PromotionRefusedError, match=r"'reject'\. It loses 61\.3 points"):
        promote(quick, "bad", report)
    with pytest.raises(PromotionRefusedError, match="It is not better"):
        promote(quick, "bad")
    assert (history(quick), active_ranker(quick)) == ([], None)


def test_advice_is_not_enough(quick):
    frozen(quick, 60)
    report = evaluate(quick, stored(quick, "good"))
    with pytest.raises(PromotionRefusedError, match=r"'advice'.*100 cases are needed"):
        promote(quick, "good", report)


def test_a_report_of_another_ranker_or_against_another_one_is_refused(cases):
    good = evaluate(cases, stored(cases, "good"))
    stored(cases, "other")
    with pytest.raises(PromotionRefusedError, match="of ranker 'good', not of 'other'"):
        promote(cases, "other", good)
    against_base = evaluate(cases, "other")
    promote(cases, "good", good)
    with pytest.raises(PromotionRefusedError, match="not against ranker 'good', which is active"):
        promote(cases, "other", against_base)
    with pytest.raises(PromotionRefusedError, match="was not tried against ranker 'good'"):
        promote(cases, "other")


def test_a_later_no_outweighs_an_earlier_yes(quick):
    frozen(quick, 100, right=4)
    assert evaluate(quick, stored(quick, "upside down", UPSIDE_DOWN)).verdict == "promote"
    # Since then there are questions on which it is wrong.
    frozen(quick, 90, start=100, right=0, source="terms.md")
    assert evaluate(quick, "upside down").verdict == "reject"
    with pytest.raises(PromotionRefusedError, match=r"source:terms\.md"):
        promote(quick, "upside down")


def test_the_same_report_found_again_is_the_newest_again(quick):
    frozen(quick, 100, right=4)
    stored(quick, "upside down", UPSIDE_DOWN)
    first = evaluate(quick, "upside down")
    trace_id = asked(quick, "Else?", pool(999), actor="a")
    said(quick, trace_id, "thumbs_down")
    second = evaluate(quick, "upside down", k=1, now=first.at + timedelta(minutes=1))
    assert second.run_id != first.run_id
    assert promotable(quick, "upside down") == second.run_id
    quick.forget("a")
    again = evaluate(quick, "upside down", now=first.at + timedelta(minutes=2))
    assert again.run_id == first.run_id
    assert promotable(quick, "upside down") == first.run_id


def promotable(store, ranker_id):
    with reading(store) as connection:
        return newest_run(connection, store.namespace, ranker_id, None).run_id


def test_people_may_force_it_and_the_row_says_so(cases):
    evaluate(cases, stored(cases, "bad", UPSIDE_DOWN))
    done = promote(cases, "bad", actor="ann", force=True)
    assert done.reason["forced"] is True
    assert done.reason["against"].startswith("The verdict is 'reject'.")
    stored(cases, "untried")
    assert promote(cases, "untried", force=True).reason == {
        "forced": True,
        "against": "Ranker 'untried' was not tried against ranker 'bad', which is active, on the "
        "newest cases: evaluate it first: langchain-feedback loop evaluate untried",
    }
    assert history(cases) == [("promote", "bad"), ("promote", "untried")]


def test_what_is_unknown_or_damaged_is_not_even_forced(store):
    stored(store, "good")
    with pytest.raises(UnknownRankerError, match="no ranker 'gone'"):
        promote(store, "gone", force=True)
    with writing(store) as (connection, _):
        connection.execute(rankers.update().values(artifact="{}"))
    for attempt in (promote, shadow):
        with pytest.raises(ArtifactError, match="damaged"):
            attempt(store, "good", **({"force": True} if attempt is promote else {}))
    with pytest.raises(UnknownRankerError):
        shadow(store, "gone")
    assert (history(store), history(store, "shadow")) == ([], [])


def test_rollback_goes_back_step_by_step(store):
    for name in ("a", "b", "c"):
        stored(store, name)
        promote(store, name, force=True)
    assert rollback(store, actor="ann").ranker_id == "b"
    assert rollback(store).ranker_id == "a"
    assert active_ranker(store).ranker_id == "a"
    done = rollback(store, actor="ann")
    assert (done.ranker_id, done.action, done.reason) == (None, "rollback", {"from": "a"})
    assert active_ranker(store) is None
    with pytest.raises(PromotionRefusedError, match="nothing to roll back"):
        rollback(store)
    assert len(history(store)) == 6


def test_of_two_who_take_back_the_same_one_goes_one_step(cases):
    for name in ("first", "good"):
        promote(cases, stored(cases, name).ranker_id, force=True)
    with reading(cases) as connection:
        seen = read_activations(connection, cases.namespace)[-1].seq
    assert rollback(cases, after=seen).ranker_id == "first"
    with pytest.raises(PromotionRefusedError, match="made active since"):
        rollback(cases, after=seen)
    with pytest.raises(PromotionRefusedError, match="made active since"):
        promote(cases, "good", after=seen, force=True)
    with pytest.raises(PromotionRefusedError, match="made active since"):
        promote(cases, "good", after=0, force=True)
    assert active_ranker(cases).ranker_id == "first"


def test_nothing_to_roll_back_is_said(quick):
    with pytest.raises(PromotionRefusedError, match="nothing to roll back"):
        rollback(quick)


def test_what_was_rolled_back_is_known_until_somebody_promotes_it_again(quick):
    for name in ("a", "b"):
        stored(quick, name)
        promote(quick, name, force=True)
    assert rolled_back(quick) == set()
    rollback(quick)
    assert rolled_back(quick) == {"b"}
    rollback(quick)
    assert rolled_back(quick) == {"a", "b"}
    promote(quick, "b", force=True)
    assert rolled_back(quick) == {"a"}
    assert rollback(quick).ranker_id is None


def test_a_shadow_is_no_promotion(store):
    stored(store, "a")
    assert shadow(store, None).ranker_id is None
    assert shadow(store, "a", actor="ann").actor == "ann"
    assert shadow(store, "a").seq == shadow(store, "a").seq
    shadow(store, None)
    assert history(store, "shadow") == [("shadow", None), ("shadow", "a"), ("shadow", None)]
    assert (history(store), active_ranker(store)) == ([], None)


def test_namespaces_promote_for_themselves(quick):
    stored(quick, "a")
    promote(quick, "a", force=True)
    other = quick.scoped("other")
    assert active_ranker(other) is None
    with pytest.raises(UnknownRankerError):
        promote(other, "a", force=True)
    with pytest.raises(PromotionRefusedError):
        rollback(other)


def test_who_is_forgotten_promoted_nothing_by_name(quick):
    stored(quick, "a")
    promote(quick, "a", actor="ann", force=True)
    quick.forget("ann")
    with reading(quick) as connection:
        [row] = read_activations(connection, "default")
    assert (row.actor, row.ranker_id) == (None, "a")


def test_of_a_report_that_was_tampered_with_the_stores_own_copy_counts(quick):
    frozen(quick, 100, right=0)
    report = evaluate(quick, stored(quick, "bad", UPSIDE_DOWN))
    with pytest.raises(PromotionRefusedError, match="'reject'"):
        promote(quick, "bad", replace(report, verdict="promote", gain=0.9))
    done = promote(quick, "bad", replace(report, gain=0.9), force=True)
    assert (done.reason["gain"], done.reason["verdict"]) == (report.gain, "reject")


@pytest.mark.parametrize("run_id", [None, "gone"])
def test_a_report_that_the_store_does_not_hold_proves_nothing(quick, run_id):
    frozen(quick, 120, right=0)  # the base is perfect
    record = stored(quick, "cand", BASE)
    assert evaluate(quick, record).verdict == "reject"
    worst = load_ranker("linear", stored(quick, "worst", UPSIDE_DOWN).artifact)
    report = evaluate(quick, record, baseline=worst)
    assert (report.verdict, report.run_id, report.baseline_id) == ("promote", None, None)
    with pytest.raises(PromotionRefusedError, match="does not hold the report"):
        promote(quick, "cand", replace(report, run_id=run_id))
    assert history(quick) == []


def test_another_namespaces_report_proves_nothing(quick):
    frozen(quick, 100)
    report = evaluate(quick, stored(quick, "good"))
    other = quick.scoped("other")
    stored(other, "other's", UPSIDE_DOWN)
    with pytest.raises(PromotionRefusedError, match="does not hold the report"):
        promote(other, "other's", replace(report, ranker_id="other's"))


def test_an_older_set_or_another_depth_decides_nothing(quick):
    frozen(quick, 120, right=4)
    stored(quick, "cand", UPSIDE_DOWN)
    early = evaluate(quick, "cand")
    assert early.verdict == "promote"
    frozen(quick, 200, start=500, right=0)
    with pytest.raises(PromotionRefusedError, match="on version 1 of the cases at nDCG@10"):
        promote(quick, "cand", early)
    with pytest.raises(PromotionRefusedError, match="on the newest cases"):
        promote(quick, "cand")
    assert evaluate(quick, "cand").verdict == "reject"
    old = evaluate(quick, "cand", version=1, now=early.at + timedelta(minutes=5))
    deep = evaluate(quick, "cand", version=1, k=3)
    assert (old.verdict, promotable(quick, "cand")) == ("promote", old.run_id)
    with pytest.raises(PromotionRefusedError, match="'reject'"):
        promote(quick, "cand")
    for report in (old, deep):
        with pytest.raises(PromotionRefusedError, match="evaluate it again"):
            promote(quick, "cand", report)
    assert history(quick) == []


def test_a_newer_no_on_other_traffic_outweighs_the_report_that_is_given(quick):
    frozen(quick, 50, stratum="failing")
    frozen(quick, 60, start=50)
    stored(quick, "cand")

    def load(record):
        return Puts(up=range(12), down=range(50, 54))

    early = evaluate(quick, "cand", load=load)
    assert (early.verdict, early.weights["failing"]) == ("promote", 0.5)
    for number in range(200, 240):
        clicked(quick, number)
    late = evaluate(quick, "cand", load=load, now=early.at + timedelta(minutes=5))
    assert (late.verdict, late.version) == ("reject", early.version)
    with pytest.raises(PromotionRefusedError, match="same two says 'reject'"):
        promote(quick, "cand", early)


def test_at_another_depth_nobody_is_promoted(cases):
    shallow = evaluate(cases, stored(cases, "good"), k=1)
    assert shallow.verdict == "promote"
    for report in (None, shallow):
        with pytest.raises(PromotionRefusedError, match=r"newest cases|at nDCG@1;"):
            promote(cases, "good", report)
    evaluate(cases, "good")
    assert promote(cases, "good").reason["run_id"] != shallow.run_id
