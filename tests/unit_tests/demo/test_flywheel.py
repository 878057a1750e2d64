"""The flywheel lab against what was measured elsewhere, and against twenty lines of Python."""

import json
import sys
from itertools import pairwise

import pytest

from langchain_feedback.demo.flywheel import run_flywheel
from langchain_feedback.demo.flywheel_plot import compared_settings, plot_runs
from langchain_feedback.demo.flywheel_records import FlywheelSettings
from langchain_feedback.demo.handbook import golden_questions, handbook_documents, stop_words
from langchain_feedback.errors import MissingExtraError
from langchain_feedback.local.tfidf import TfidfRetriever
from langchain_feedback.retrievers.feedback import FeedbackRetriever
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.flywheel_reference import flywheel as reference
from tests.shared import shared_data

EXPECTED = json.loads(shared_data("handbook/expected.json").read_text(encoding="utf-8"))
LABELS = ("export", "refund", "down", "credit", "cancel")
GOLDEN = golden_questions()
CANDIDATES = [EXPECTED["candidates"][golden.question] for golden in GOLDEN]
EVIDENCE = [set(golden.evidence) for golden in GOLDEN]
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def run():
    """Run each setting once for all tests."""
    runs = {}

    def cached(**settings):
        wanted = FlywheelSettings(**settings)
        if wanted not in runs:
            runs[wanted] = run_flywheel(wanted)
        return runs[wanted]

    return cached


@pytest.fixture(scope="module", params=["thumbs", "clicks"])
def classic(request, run):
    return run(signal=request.param, policy="average")


class TestTheClassicRule:
    def test_the_base_finds_the_expected_candidates(self, classic):
        assert [list(order) for order in classic.moments[0].orders] == CANDIDATES

    def test_it_never_finds_what_two_questions_need(self):
        chunks = handbook_documents()
        base = TfidfRetriever.from_documents(chunks, k=len(chunks), stop_words=stop_words())
        missed = [
            evidence - {document.id for document in base.invoke(golden.question)}
            for golden, evidence in zip(GOLDEN, EVIDENCE, strict=True)
        ]
        assert missed == [set(), {"refund-timing"}, {"incidents", "sla"}, set(), set()]

    def test_thumbs_give_every_expected_number(self, run):
        expected = EXPECTED["thumbs_on_answer"]
        data = run(signal="thumbs", policy="average").as_json()
        assert data["recall_by_question_before"] == expected["recall_at_2_before"]
        assert data["recall_by_question"] == expected["recall_at_2_after"]
        assert data["mean_recall_before"] == expected["mean_before"]
        assert data["mean_recall_after"] == expected["mean_after"]
        assert data["wrong_by_question"] == expected["wrong"]
        assert data["wrong_answers"] == 41
        assert data["last_order_change_event"] == expected["last_order_change_event"]
        assert data["last_score_change_event"] == expected["last_score_change_event"]
        assert expected["scores"].items() <= data["scores"].items()

    def test_clicks_give_every_expected_number(self, run):
        expected = EXPECTED["clicks_on_each_source"]
        data = run(signal="clicks", policy="average").as_json()
        assert data["recall_by_question"] == expected["recall_at_2_after"]
        assert data["mean_recall_after"] == expected["mean_after"]
        assert data["wrong_by_question"] == expected["wrong"]
        assert data["last_order_change_event"] == expected["last_order_change_event"]
        assert expected["scores"].items() <= data["scores"].items()

    def test_all_202_settings_agree_with_the_reference(self, classic):
        # A run of 100 events passes through how each shorter run ends.
        assert len(classic.moments) == 101
        for events, moment in enumerate(classic.moments):
            told = reference(CANDIDATES, EVIDENCE, classic.settings.signal, events)
            scores = {
                f"{chunk}@{label}": round(score, 3)
                for label, of in zip(LABELS, told["scores"], strict=True)
                for chunk, score in of.items()
            }
            assert [list(order) for order in moment.orders] == told["orders"], events
            assert moment.scores == scores, events
            assert list(moment.recall) == told["recall"], events
            assert list(moment.wrong) == told["wrong"], events
            assert moment.last_order_change == told["last_order_change_event"], events
            assert moment.last_score_change == told["last_score_change_event"], events

    @pytest.mark.parametrize("events", [0, 1, 4, 9])
    def test_a_shorter_run_ends_where_a_longer_one_passes(self, classic, events):
        settings = FlywheelSettings(classic.settings.signal, "average", events=events)
        assert run_flywheel(settings).moments == classic.moments[: events + 1]

    def test_ratings_of_whole_answers_carry_an_unrelated_chunk_along(self, run):
        data = run(signal="thumbs", policy="average").as_json()
        assert data["scores"]["sizing@cancel"] == 1.667


class TestOurs:
    def test_the_sources_that_answers_cite_are_credited_and_sizing_stays_neutral(self, run):
        cited = run(signal="cited")
        answers = {moment.orders[LABELS.index("cancel")][:2] for moment in cited.moments}
        assert answers == {("cancel", "sizing")}  # it was in every answer
        assert all(moment.scores["sizing@cancel"] == 1 for moment in cited.moments)
        assert cited.moments[-1].scores["cancel@cancel"] > 1.5
        whole_answers = run(signal="thumbs", events=30)
        assert whole_answers.moments[-1].scores["sizing@cancel"] > 1.4

    def test_without_a_reviewer_what_retrieval_misses_stays_missed(self, run):
        data = run(signal="cited").as_json()
        assert (data["mean_recall_before"], data["mean_recall_after"]) == (0.5, 0.7)
        assert data["wrong_by_question"] == [0, 20, 20, 1, 0]

    @pytest.mark.parametrize("signal", ["thumbs", "clicks"])
    def test_so_it_does_for_the_other_signals(self, run, signal):
        assert run(signal=signal, events=30).moments[-1].wrong == (0, 6, 6, 1, 0)

    def test_with_a_reviewer_every_answer_becomes_right(self, run):
        reviewed = run(reviewer=True)
        data = reviewed.as_json()
        assert (data["mean_recall_before"], data["mean_recall_after"]) == (0.5, 1.0)
        assert data["wrong_answers"] <= 6
        assert reviewed.moments[20].mean_recall == 1
        assert reviewed.moments[20].wrong == reviewed.moments[100].wrong

    @pytest.mark.parametrize("policy", ["default", "average"])
    @pytest.mark.parametrize("signal", ["thumbs", "clicks"])
    def test_a_reviewer_helps_the_other_rules_as_well(self, run, signal, policy):
        last = run(signal=signal, policy=policy, reviewer=True, events=30).moments[-1]
        assert last.mean_recall == 1
        assert sum(last.wrong) <= 6

    def test_the_reviewer_pins_each_ten_events_what_the_worst_two_lack(self, run):
        moments = run(reviewer=True).moments
        pinned = [at for at, (old, new) in enumerate(pairwise(moments), 1) if old.pins < new.pins]
        assert pinned == [10]
        assert moments[10].pins == 3
        assert moments[10].orders[1][0] == "refund-timing"
        assert moments[10].orders[2][:2] == ("incidents", "sla")
        assert moments[9].orders[0] == moments[10].orders[0]

    def test_scores_tell_of_chunks_that_are_no_longer_returned(self, run):
        last = run(reviewer=True).moments[-1]
        assert "seats" not in last.orders[1][:4]
        assert last.scores["seats@refund"] < 1

    def test_two_runs_are_the_same_to_the_last_digit_told(self, run):
        again = run_flywheel(FlywheelSettings(reviewer=True, events=25))
        assert again.moments == run(reviewer=True).moments[:26]


class TestTheFile:
    def test_a_database_is_kept_and_has_the_feedback_of_the_last_moment(self, tmp_path):
        path = tmp_path / "kept.db"
        settings = FlywheelSettings(reviewer=True, events=23)
        last = run_flywheel(settings, database=path).moments[-1]
        base = TfidfRetriever.from_documents(handbook_documents(), k=4, stop_words=stop_words())
        with FeedbackStore(f"sqlite:///{path}") as store:
            retriever = FeedbackRetriever(base_retriever=base, store=store, k=4)
            for golden, order in zip(GOLDEN, last.orders, strict=True):
                found = retriever.invoke(golden.question)
                assert tuple(document.id for document in found) == order[:4]

    def test_without_one_nothing_is_left_behind(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        run_flywheel(FlywheelSettings(events=1))
        assert list(tmp_path.iterdir()) == []

    def test_a_database_that_exists_is_not_written_to(self, tmp_path):
        path = tmp_path / "mine.db"
        path.write_text("mine")
        with pytest.raises(ValueError, match=r"mine\.db exists"):
            run_flywheel(database=path)
        assert path.read_text() == "mine"

    def test_a_database_in_no_folder_is_told(self, tmp_path):
        with pytest.raises(ValueError, match="no folder"):
            run_flywheel(database=tmp_path / "nowhere" / "mine.db")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"events": -1}, "at least 0, got -1"),
        ({"events": 2.5}, "whole number"),
        ({"events": True}, "whole number"),
        ({"signal": "stars"}, "'stars' is not a valid Signal"),
        ({"policy": "best"}, "'best' is not a valid Policy"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        FlywheelSettings(**settings)


class TestThePicture:
    @pytest.mark.parametrize("events", [0, 7])
    def test_it_is_written(self, tmp_path, events):
        runs = {name: run_flywheel(of) for name, of in compared_settings(events).items()}
        plot_runs(runs, tmp_path / "lab.png")
        assert (tmp_path / "lab.png").read_bytes().startswith(PNG)

    def test_it_compares_the_three_rules(self):
        compared = [
            (str(of.policy), str(of.signal), of.reviewer, of.events)
            for of in compared_settings(30).values()
        ]
        assert compared == [
            ("average", "thumbs", False, 30),
            ("default", "cited", False, 30),
            ("default", "cited", True, 30),
        ]

    def test_a_name_that_says_no_kind_of_picture_is_told(self, run, tmp_path):
        with pytest.raises(ValueError, match=r"\.png"):
            plot_runs({"one": run()}, tmp_path / "lab.docx")

    def test_a_folder_that_is_not_there_is_told(self, run, tmp_path):
        with pytest.raises(ValueError, match="no folder"):
            plot_runs({"one": run()}, tmp_path / "nowhere" / "lab.png")

    @pytest.mark.parametrize("number", [0, 4])
    def test_too_few_or_too_many_runs_are_refused(self, run, tmp_path, number):
        runs = {str(at): run() for at in range(number)}
        with pytest.raises(ValueError, match="Between one and 3"):
            plot_runs(runs, tmp_path / "lab.png")

    def test_without_its_extra_it_says_what_to_install(self, run, tmp_path, monkeypatch):
        for name in [*sys.modules]:
            if name.split(".")[0] == "matplotlib":
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(MissingExtraError, match=r"langchain-feedback\[plot\]"):
            plot_runs({"one": run()}, tmp_path / "lab.png")
