"""Evaluation: what decides, what is set aside, and what the store keeps of it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from sqlalchemy import func, select

from langchain_feedback import FeedbackStore
from langchain_feedback.errors import (
    ArtifactError,
    EvaluationError,
    RankerError,
    UnknownRankerError,
)
from langchain_feedback.loop.cases import freeze_cases, import_cases, read_cases
from langchain_feedback.loop.evaluation import evaluate, read_reports
from langchain_feedback.store.eval_runs import read_scores
from langchain_feedback.store.learning_schema import eval_runs, eval_scores
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.rankers import activate
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.casekit import (
    BASE,
    UPSIDE_DOWN,
    WHEN,
    clicked,
    frozen,
    pool,
    question,
    stored,
)
from tests.unit_tests.loop.kit import asked, said
from tests.unit_tests.loop.learned import decide

AT_2, AT_0 = 1 / np.log2(4), 1.0
"""The nDCG of a right chunk at the third place, and at the first."""


@pytest.fixture
def quick():
    with FeedbackStore("sqlite://") as opened:
        yield opened


def rows(store, table):
    with reading(store) as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


class Puts:
    """A ranker that puts the base's third chunk first in some questions, and last in others."""

    def __init__(self, up=(), down=()):
        self.up = {question(number) for number in up}
        self.down = {question(number) for number in down}

    def score(self, text, candidates):
        scores = -candidates.base_rank.astype(float)
        scores[2] += 100 if text in self.up else -100 if text in self.down else 0
        return scores


def test_a_ranker_that_brings_the_right_chunk_up_is_promoted(store):
    frozen(store, 100)
    report = evaluate(store, stored(store, "good"))
    assert (report.verdict, report.n, report.version) == ("promote", 100, 1)
    assert (report.score, report.baseline_score) == pytest.approx((AT_0, AT_2))
    assert report.gain == pytest.approx(AT_0 - AT_2)
    assert report.p == pytest.approx(1 / 10_001)
    assert report.metrics["mrr"] == pytest.approx((1.0, 1 / 3))
    assert (report.worst_case, report.worst_drop, report.worst_question) == (None, 0.0, None)
    assert report.reasons == ("It gains 50.0 points of nDCG@10 on 100 cases (p < 0.001).",)
    assert (report.ranker_id, report.baseline_id) == ("good", None)


def test_one_that_changes_nothing_or_harms_is_rejected(quick):
    frozen(quick, 100, right=0)
    same = evaluate(quick, stored(quick, "same", BASE))
    assert (same.verdict, same.gain, same.p) == ("reject", 0.0, 1.0)
    bad = evaluate(quick, stored(quick, "bad", UPSIDE_DOWN))
    assert (bad.verdict, bad.p) == ("reject", 1.0)
    assert bad.gain == pytest.approx(1 / np.log2(6) - 1)
    assert bad.worst_drop == pytest.approx(1 - 1 / np.log2(6))
    assert bad.worst_question in {question(number) for number in range(100)}


def test_under_100_cases_it_is_advice_however_large_the_gain(quick):
    frozen(quick, 99)
    report = evaluate(quick, stored(quick, "good"))
    assert (report.verdict, report.p < 0.001) == ("advice", True)
    assert report.reasons[-1] == "100 cases are needed to decide; this is advice only."


def test_a_small_gain_that_may_be_chance_is_rejected(quick):
    frozen(quick, 100)
    lucky = evaluate(quick, Puts(up=[1, 2], down=[3]))
    assert lucky.gain > 0
    assert (lucky.verdict, lucky.p > 0.10) == ("reject", True)
    assert "That may well be chance: p is above 0.10." in lucky.reasons


def test_failures_alone_are_refused_check3(quick):
    frozen(quick, 160, stratum="failing")
    with pytest.raises(EvaluationError, match="All 160 cases are failing questions"):
        evaluate(quick, Puts(up=range(160)))


def test_of_failing_cases_half_count_at_most_and_always_the_same_ones(quick):
    frozen(quick, 80, stratum="failing")
    frozen(quick, 50, start=80)
    record = stored(quick, "good")
    report = evaluate(quick, record)
    assert (report.verdict, report.n, len(report.surplus)) == ("promote", 100, 30)
    assert {one.name: one.n for one in report.strata} == {"failing": 50, "ordinary": 50}
    assert report.reasons[-1] == "30 failing cases did not count: half must be ordinary traffic."
    kinds = {case.case_id: case.stratum for case in read_cases(quick)}
    assert {kinds[one] for one in report.surplus} == {"failing"}
    frozen(quick, 10, start=200)
    later = evaluate(quick, record)
    assert (later.n, len(later.surplus)) == (120, 20)
    assert set(later.surplus) < set(report.surplus)
    assert read_reports(quick)[-1] == later
    frozen(quick, 20, start=300)
    assert (evaluate(quick, record).n, evaluate(quick, record).surplus) == (160, ())


def test_a_case_whose_right_chunk_the_base_did_not_find_counts_for_nobody(quick):
    frozen(quick, 60)
    chunks = {question(number): pool(number) for number in range(60, 160)}
    rows_of_it = [{"question": text, "relevant": [f"lost {text}"]} for text in chunks]
    import_cases(quick, rows_of_it, RunnableLambda(chunks.__getitem__))
    report = evaluate(quick, stored(quick, "good"))
    assert (report.verdict, report.n, report.gain) == ("advice", 60, pytest.approx(AT_0 - AT_2))
    lost = {case.case_id for case in read_cases(quick) if case.question in chunks}
    assert (set(report.out_of_reach), len(lost)) == (lost, 100)
    assert report.reasons[-1] == (
        "100 cases did not count: the right chunk is not in the pool, and no order brings it up."
    )
    [again] = read_reports(quick)
    assert again == report


def test_a_report_of_an_earlier_release_reads_back(quick):
    frozen(quick, 10)
    report = evaluate(quick, stored(quick, "good"))
    with writing(quick) as (connection, _):
        kept = json.loads(connection.execute(select(eval_runs.c.report)).scalar_one())
        del kept["surplus"], kept["out_of_reach"]
        connection.execute(eval_runs.update().values(report=json.dumps(kept)))
    [again] = read_reports(quick)
    assert (again, again.surplus, again.out_of_reach) == (report, (), ())


def test_a_feature_reads_the_metadata_that_a_retriever_gives_it(quick):
    def years(number):
        return [
            Document(one.page_content, id=one.id, metadata=one.metadata | {"year": 2020 + at})
            for at, one in enumerate(pool(number))
        ]

    class Newest:
        def score(self, text, candidates):
            return np.array([one.metadata["year"] for one in candidates.documents], dtype=float)

    pools = {question(number): years(number) for number in range(10)}
    rows_of_it = [{"question": text, "relevant": [found[4].id]} for text, found in pools.items()]
    import_cases(quick, rows_of_it, RunnableLambda(pools.__getitem__))
    clicked(quick, 50, right=4, chunks=years(50))
    assert freeze_cases(quick).by_origin == {"imported": 10, "sampled": 1}
    report = evaluate(quick, Newest())
    assert (report.n, report.score) == (11, pytest.approx(1.0))
    assert "year" not in repr([vars(chunk) for case in read_cases(quick) for chunk in case.pool])
    # What is forgotten, or has another text by now, has a heading and a source.
    quick.forget_chunks(["0-0"])
    with pytest.raises(KeyError, match="year"):
        evaluate(quick, Newest())


def test_without_cases_it_says_how_to_freeze_some(quick):
    with pytest.raises(EvaluationError, match="--step freeze"):
        evaluate(quick, Puts())


def test_kinds_of_questions_weigh_as_much_as_they_are_of_the_traffic(quick):
    frozen(quick, 40, stratum="failing")
    frozen(quick, 60, start=40)
    for number in range(8):  # 2 of 8 asks are of questions that fail
        trace_id = clicked(quick, 1000 + number)
        if number < 2:
            said(quick, trace_id, "thumbs_down")
    report = evaluate(quick, Puts(up=range(40), down=[99]))
    assert report.weights == pytest.approx({"failing": 3 / 10, "ordinary": 7 / 10})
    up, down = AT_0 - AT_2, 1 / np.log2(6) - AT_2
    assert report.gain == pytest.approx(0.3 * up + 0.7 * down / 60)
    strata = {one.name: one for one in report.strata}
    assert (strata["failing"].n, strata["ordinary"].n) == (40, 60)
    assert strata["failing"].gain == pytest.approx(up)
    assert strata["ordinary"].gain == pytest.approx(down / 60)
    assert (strata["failing"].weight, strata["ordinary"].weight) == pytest.approx((0.3, 0.7))


def test_old_traffic_and_tests_do_not_weigh(quick):
    frozen(quick, 2)
    for number, facts in enumerate([{"traffic": "eval"}, {"at": WHEN}]):
        trace_id = asked(quick, f"Failing {number}?", pool(number), actor="a", **facts)
        said(quick, trace_id, "thumbs_down")
    assert evaluate(quick, Puts()).weights == {"failing": 0.5, "ordinary": 0.5}


def test_a_stratum_that_loses_vetoes_a_gain_on_all(quick):
    frozen(quick, 100)
    frozen(quick, 30, start=100, stratum="invoices")
    report = evaluate(quick, Puts(up=range(100), down=range(100, 130)))
    assert (report.verdict, report.gain > 0, report.p < 0.01) == ("reject", True, True)
    assert [one.name for one in report.strata if one.worse] == ["invoices"]
    assert "On 30 cases of the stratum 'invoices'" in report.reasons[-1]


def test_a_document_that_loses_vetoes_from_30_cases_on(quick):
    frozen(quick, 100)
    frozen(quick, 29, start=100, source="terms.md")
    ranker = Puts(up=range(100), down=range(100, 130))
    assert evaluate(quick, ranker).verdict == "promote"
    frozen(quick, 1, start=129, source="terms.md")
    report = evaluate(quick, ranker)
    assert report.verdict == "reject"
    assert [one.name for one in report.strata if one.worse] == ["source:terms.md"]


def test_cases_whose_right_chunk_was_changed_are_set_aside_and_listed(quick):
    frozen(quick, 10)
    changed = [Document("Another text.", id="3-2", metadata={"source": "3.md"})]
    asked(quick, "Anything?", changed, actor="a")
    report = evaluate(quick, Puts(up=range(10)))
    [aside] = [case for case in read_cases(quick) if case.changed]
    assert (report.n, report.set_aside) == (9, (aside.case_id,))
    assert aside.question == question(3)


def test_a_question_that_the_ranker_or_the_baseline_learned_from_proves_nothing(quick):
    frozen(quick, 10)
    ranker = stored(quick, "r", taught=[question_key(question(1))])
    other = stored(quick, "o", UPSIDE_DOWN, taught=[question_key(question(2))])
    report = evaluate(quick, ranker, baseline=other)
    known = {case.case_id for case in read_cases(quick) if case.question in map(question, (1, 2))}
    assert (report.n, set(report.known)) == (8, known)


def test_a_case_like_a_question_that_was_learned_from_proves_nothing_either(quick):
    chunks = pool(1)
    text, again = "How long does a refund by card take?", "How long do refunds by card take"
    rows_of_it = [{"question": text, "relevant": ["1-2"]}]
    import_cases(quick, rows_of_it, RunnableLambda(lambda _: chunks))
    frozen(quick, 3, start=10)
    decide(quick, asked(quick, again, chunks, actor="a"), again, chunks, ["1-2"])
    report = evaluate(quick, stored(quick, "r", taught=[question_key(again)]))
    assert (report.n, len(report.known)) == (3, 1)
    assert evaluate(quick, stored(quick, "s", taught=["another"])).n == 4


def test_what_nothing_was_found_for_does_not_weigh(quick):
    frozen(quick, 2)
    for number in range(8):
        clicked(quick, 100 + number)
        said(quick, asked(quick, f"Lost {number}?", [], actor="a"), "thumbs_down")
    assert evaluate(quick, Puts()).weights == pytest.approx({"failing": 0.1, "ordinary": 0.9})


def test_a_question_counts_as_failing_with_all_of_its_asks(quick):
    frozen(quick, 2)
    for name in ("ann", "bob", "cem"):
        clicked(quick, 100, actor=name)
    said(quick, asked(quick, question(100), pool(100), actor="dee"), "thumbs_down")
    clicked(quick, 101)
    assert evaluate(quick, Puts()).weights["failing"] == pytest.approx(5 / 7)


def test_the_baseline_is_what_is_active(quick):
    frozen(quick, 10)
    stored(quick, "good")
    stored(quick, "bad", UPSIDE_DOWN)
    with writing(quick) as (connection, _):
        activate(connection, "default", "good", action="promote", at=WHEN)
    report = evaluate(quick, "bad")
    assert (report.ranker_id, report.baseline_id) == ("bad", "good")
    assert (report.score, report.baseline_score) == pytest.approx((AT_2, AT_0))
    base = evaluate(quick, None, baseline="bad")
    assert (base.ranker_id, base.baseline_id, base.gain) == (None, "bad", 0.0)


def test_a_set_is_what_it_was_when_more_is_frozen(quick):
    frozen(quick, 10)
    frozen(quick, 5, start=10)
    assert [len(read_cases(quick, version)) for version in (1, 2, None)] == [10, 15, 15]
    assert evaluate(quick, Puts(), version=1).n == 10
    assert evaluate(quick, Puts()).version == 2


def test_the_same_facts_are_one_report_and_it_reads_back_as_it_was(store):
    frozen(store, 10, stratum="failing")
    frozen(store, 12, start=10, right=1)
    record = stored(store, "mixed", UPSIDE_DOWN)
    first = evaluate(store, record, k=3)
    assert evaluate(store, "mixed", k=3).run_id == first.run_id
    assert (rows(store, eval_runs), rows(store, eval_scores)) == (1, 22 * 4)
    [again] = read_reports(store)
    assert again == first
    with reading(store) as connection:
        scores = read_scores(connection, first.run_id)
    ndcg = [one for one in scores if one.metric == "ndcg@3" and one.case_id == first.worst_case]
    assert ndcg[0].baseline - ndcg[0].value == pytest.approx(first.worst_drop)
    other = evaluate(store, record)
    assert (other.run_id != first.run_id, rows(store, eval_runs)) == (True, 2)


def test_a_ranker_that_is_not_in_the_store_leaves_nothing_there(quick):
    frozen(quick, 10)
    assert evaluate(quick, Puts()).run_id is None
    stored(quick, "good")
    assert evaluate(quick, "good", baseline=Puts()).run_id is None
    assert rows(quick, eval_runs) == 0


def test_namespaces_have_their_own_cases_and_reports(quick):
    frozen(quick, 10)
    evaluate(quick, stored(quick, "good"))
    other = quick.scoped("other")
    assert (read_cases(other), read_reports(other)) == ([], [])
    with pytest.raises(UnknownRankerError, match="no ranker 'good' in namespace 'other'"):
        evaluate(other, "good")


def test_what_cannot_be_loaded_is_refused_and_a_loader_of_ones_own_is_asked(quick):
    frozen(quick, 10)
    record = stored(quick, "tree", kind="tree", artifact="{}")
    with pytest.raises(ArtifactError, match="no loader for rankers of the kind 'tree'"):
        evaluate(quick, record)
    asked_for = []

    def load(one):
        asked_for.append(one.ranker_id)
        return Puts(up=range(10))

    assert evaluate(quick, "tree", load=load).gain > 0
    assert asked_for == ["tree"]
    damaged = replace(stored(quick, "x"), artifact="{}")
    with pytest.raises(ArtifactError, match="damaged"):
        evaluate(quick, damaged)


@pytest.mark.parametrize(
    "scores", [np.array([1.0, 2.0]), np.full(5, np.nan), np.ones((5, 1)), np.full(5, np.inf)]
)
def test_a_ranker_must_score_each_chunk(quick, scores):
    class Broken:
        def score(self, text, candidates):
            return scores

    frozen(quick, 1)
    # No `EvaluationError`, which says that the cases cannot tell: it is the ranker that fails.
    with pytest.raises(RankerError, match="one finite score for each of 5 chunks"):
        evaluate(quick, Broken())


def test_forgetting_the_question_takes_its_text_out_of_reports(quick):
    for number in range(3):
        clicked(quick, number, right=0)
    freeze_cases(quick)
    evaluate(quick, stored(quick, "bad", UPSIDE_DOWN), now=datetime.now(UTC))
    [report] = read_reports(quick)
    assert report.worst_question is not None
    quick.forget("u" + report.worst_question.split("thing")[1].split(" ")[0])
    [after] = read_reports(quick)
    assert (after.worst_case, after.worst_question) == (report.worst_case, None)
    with reading(quick) as connection:
        raw = connection.execute(select(eval_runs.c.report)).scalar_one()
    assert "Where is thing" not in raw
    assert after.at - report.at == timedelta()
