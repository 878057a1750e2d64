"""Experiments: decided before they begin, read once, and fair."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from datetime import timedelta

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_feedback import trace_id_of
from langchain_feedback.errors import ExperimentError, PeekError
from langchain_feedback.loop import experiments
from langchain_feedback.loop._experiments.tests_of import preference, two_rates
from langchain_feedback.loop.experiments import (
    experiment_report,
    list_experiments,
    needed_questions,
    start_experiment,
    stop_experiment,
)
from langchain_feedback.ranking.interleave import team_draft
from langchain_feedback.retrievers.interleaved import InterleavedRetriever
from tests.unit_tests.loop.experiments_kit import LATER, NOW, served, shown
from tests.unit_tests.loop.kit import asked, said

RUNS = 500


def begin(store, horizon=3, **settings):
    return start_experiment(store, "e", horizon=horizon, now=NOW, **settings)


def read(store, **kwargs):
    return experiment_report(store, "e", **{"now": LATER} | kwargs)


# -- the beginning


def test_what_it_needs_is_known_and_kept_before_it_begins(store):
    begun = start_experiment(store, "candidate-7", effect=2, power=0.9, now=NOW)
    assert begun.horizon == begun.settings["needed"] > 3_388
    assert begun.settings | {"credit": "clicks", "effect": 2, "power": 0.9} == begun.settings
    assert (begun.kind, begun.peeks, begun.started_at) == ("interleave", 0, NOW)
    assert begun.is_running
    assert list_experiments(store) == [begun]


def test_a_name_is_used_once(store):
    begin(store)
    with pytest.raises(ExperimentError, match="There is an experiment 'e'"):
        begin(store)
    # Another namespace has its own.
    begin(store.scoped("other"))
    assert [one.name for one in list_experiments(store)] == ["e"]


REFUSED = [
    ({"kind": "abc"}, "kind must be one of interleave, ab"),
    ({"credit": "ratings"}, "credit must be one of clicks, citations for 'interleave'"),
    ({"credit": "likes"}, "credit must be one of"),
    ({"effect": 0}, "effect must be above 0"),
    ({"effect": 101}, "effect must be above 0 and at most 100, got 101"),
    ({"alpha": 1}, "alpha must be between 0 and 1"),
    ({"power": 0}, "power must be between 0 and 1"),
    ({"share": 1}, "share must be between 0 and 1"),
    ({"engaged": 0}, "engaged must be between 0 and 1"),
    ({"horizon": 0}, "horizon must be at least 1"),
    ({"kind": "ab", "base_rate": 0.98}, "cannot rise by 5 points"),
]


def test_settings_that_cannot_work_are_refused_and_begin_nothing(store):
    for settings, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            start_experiment(store, "e", **settings)
    with pytest.raises(ValueError, match="needs a name"):
        start_experiment(store, " ")
    assert list_experiments(store) == []


def test_the_rates_are_those_of_the_log_once_it_holds_enough(store):
    for at in range(100):
        trace_id = asked(store, "How long?", ["c"], actor=f"u{at % 25}", at=NOW)
        if at % 25 < 5:
            said(store, trace_id, "source_click", target="c", at=NOW)
    early = start_experiment(store, "early", "ab", now=NOW)
    assert "design" not in early.settings  # an instant later they are the past
    begun = start_experiment(store, "by-log", "ab", now=LATER)
    # Twenty of a hundred, and each person does the same four times.
    assert begun.settings["base_rate"] == pytest.approx(0.2)
    assert begun.settings["design"] == pytest.approx(4, rel=0.05)
    told = start_experiment(store, "told", "ab", base_rate=0.4, now=LATER)
    assert told.settings["base_rate"] == 0.4
    draft = start_experiment(store, "draft", now=LATER)
    assert draft.settings["engaged"] == pytest.approx(0.2)
    # Who clicks much, or never, says nothing of whom he prefers: more lists would be in vain.
    assert "design" not in draft.settings
    assert draft.horizon == needed_questions("interleave", engaged=draft.settings["engaged"])


# -- reading it


def test_before_its_end_it_tells_nothing(store):
    begun = begin(store)
    shown(store, begun, opens=["from-b"])
    with pytest.raises(PeekError, match="1 of 3 questions were asked"):
        read(store)
    assert list_experiments(store)[0].peeks == 0


def test_who_peeks_sees_counts_no_verdict_and_is_counted(store):
    begun = begin(store)
    for opens in (["from-b"], ["from-a"]):
        shown(store, begun, opens=opens)
    for number in (1, 2):
        found = read(store, peek=True)
        assert (found.questions, found.a.successes, found.b.successes) == (2, 1, 1)
        assert (found.verdict, found.difference, found.is_final) == (None, None, False)
        assert found.peeks == number
        assert "no verdict" in found.why
    shown(store, begun, opens=[])
    assert read(store).peeks == 2


def test_a_peek_at_what_is_over_is_the_one_look(store):
    begun = begin(store, 1)
    shown(store, begun)
    found = read(store, peek=True)
    assert (found.is_final, found.peeks) == (True, 0)


def test_the_last_questions_clicks_have_half_an_hour(store):
    begun = begin(store, 2)
    for at in (NOW, NOW + timedelta(hours=1)):
        shown(store, begun, at=at, opens=["from-b"])
    with pytest.raises(PeekError, match="until 2026-11-02 13:30 UTC"):
        read(store, now=NOW + timedelta(minutes=89))
    assert read(store, now=NOW + timedelta(minutes=90)).is_final


def test_the_first_look_is_the_only_one(store):
    begun = begin(store, 2)
    first, _ = (shown(store, begun, opens=["from-b"]) for _ in range(2))
    found = read(store)
    assert found.b.successes == 2
    store.signal(first, "source_click", target="from-a")
    shown(store, begun, opens=["from-a"])
    assert read(store) == found
    assert read(store, peek=True) == found
    [ended] = list_experiments(store)
    assert ended.ended_at == LATER
    assert asdict(found) == json.loads(json.dumps(dict(ended.result)))


def test_later_questions_than_the_horizon_do_not_count(store):
    begun = begin(store, 2)
    for at, opens in enumerate((["from-a"], ["from-a"], ["from-b"], ["from-b"])):
        shown(store, begun, opens=opens, at=NOW + timedelta(minutes=at))
    found = read(store)
    assert (found.questions, found.a.successes, found.b.successes) == (2, 2, 0)


def test_two_processes_that_read_at_once_read_the_same(store, url):
    begun = begin(store, 40)
    for at in range(40):
        shown(store, begun, actor=f"u{at}", opens=["from-b"])
    code = (
        "import sys\nfrom dataclasses import asdict\n"
        "from langchain_feedback import FeedbackStore\n"
        "from langchain_feedback.loop.experiments import experiment_report\n"
        "from datetime import datetime\n"
        "with FeedbackStore(sys.argv[1]) as store:\n"
        "    now = datetime.fromisoformat(sys.argv[2])\n"
        "    print(asdict(experiment_report(store, 'e', now=now)))\n"
    )
    command = [sys.executable, "-c", code, url]
    running = [
        subprocess.Popen([*command, at.isoformat()], stdout=subprocess.PIPE, text=True)
        for at in (LATER, LATER + timedelta(hours=1))
    ]
    told = [process.communicate(timeout=120)[0] for process in running]
    assert told[0] == told[1] == f"{asdict(read(store))}\n"
    assert read(store).verdict == "b"


def test_a_stopped_one_has_no_verdict_for_ever(store):
    begun = begin(store, 1)
    shown(store, begun, opens=["from-b"])
    stopped = stop_experiment(store, "e", now=LATER)
    assert (stopped.is_running, stopped.ended_at) == (False, LATER)
    with pytest.raises(ExperimentError, match="was stopped before its end"):
        read(store, peek=True)
    assert stop_experiment(store, "e") == stopped


def test_stopping_what_is_over_changes_nothing(store):
    shown(store, begin(store, 1), opens=["from-b"])
    found = read(store)
    assert stop_experiment(store, "e").result is not None
    assert read(store) == found


def test_one_that_is_stopped_while_it_is_read_has_no_verdict_either(store, monkeypatch):
    shown(store, begin(store, 1), opens=["from-b"])

    def late(*found):
        # Somebody else stops it when its questions are counted and nothing is kept yet.
        stop_experiment(store, "e", now=LATER)
        return "too late"

    monkeypatch.setattr(experiments, "said_of", late)
    for _ in range(2):
        with pytest.raises(ExperimentError, match="was stopped before its end"):
            read(store)
    assert list_experiments(store)[0].result is None


def test_pruning_waits_until_it_is_read(store):
    begun = begin(store, 2)
    for at in range(3):
        shown(store, begun, opens=["from-b"], at=NOW + timedelta(minutes=at))
    stray = asked(store, "Where?", ["c"], at=NOW)
    said(store, stray, "source_click", target="c", at=NOW)
    done = store.prune(timedelta(0))
    assert (done.traces, done.signals) == (1, 1)
    found = read(store)
    assert (found.questions, found.b.successes) == (2, 2)
    done = store.prune(timedelta(0))
    assert (done.traces, done.signals) == (3, 3)
    assert read(store) == found


def test_pruning_does_not_wait_for_one_that_was_stopped_or_is_anothers(store):
    begun = begin(store, 2)
    shown(store, begun, opens=["from-b"])
    other = store.scoped("other")
    elsewhere = begin(other, 2)
    shown(other, elsewhere, opens=["from-b"])
    # Its own namespace's experiments alone keep a question.
    shown(store, elsewhere, opens=["from-b"])
    assert store.prune(timedelta(0)).traces == 1
    stop_experiment(store, "e")
    done = store.prune(timedelta(0))
    assert (done.traces, done.signals) == (1, 1)
    assert other.prune(timedelta(0)).traces == 0


def test_an_unknown_name_says_which_there_are(store):
    with pytest.raises(ExperimentError, match="`start_experiment` begins one"):
        read(store)
    begin(store)
    with pytest.raises(ExperimentError, match="There are: 'e'"):
        experiment_report(store, "f")
    with pytest.raises(ExperimentError, match="no experiment 'f'"):
        stop_experiment(store, "f")


# -- what counts


@pytest.mark.parametrize(
    ("opens", "a", "b"),
    [
        (["from-a"], 1, 0),
        (["from-b"], 0, 1),
        (["from-both"], 0, 0),
        (["from-a", "from-b"], 0, 0),
        (["from-a", "from-both"], 1, 0),
        ([], 0, 0),
    ],
)
def test_a_question_goes_to_the_side_with_more_clicks(store, opens, a, b):
    shown(store, begin(store, 1), opens=opens)
    found = read(store)
    assert (found.a.successes, found.b.successes) == (a, b)
    assert (found.a.questions, found.b.questions) == (1, 1)


def test_by_citations_it_is_what_the_answer_quotes_whatever_is_clicked(store):
    begun = begin(store, 3, credit="citations")
    shown(store, begun, cited=["from-a"], opens=["from-b"])
    shown(store, begun, cited=["from-a", "from-both"])
    shown(store, begun, opens=["from-b"])
    found = read(store)
    assert (found.credit, found.a.successes, found.b.successes) == ("citations", 2, 0)


def test_clicks_taken_back_held_or_of_tests_do_not_count(store):
    begun = begin(store, 2)
    taken = shown(store, begun)
    event = store.signal(taken, "source_click", target="from-b")
    store.retract(event)
    shown(store, begun, opens=["from-b"], traffic="eval")
    shown(store, begun)
    found = read(store)
    assert (found.questions, found.b.successes) == (2, 0)


def test_only_the_last_search_of_a_question_was_seen(store):
    begun = begin(store, 1)
    trace_id = shown(store, begun, teams={"x": "a", "y": "b"})
    store.record_trace(trace_id, "How long?", [Document("Text x.", id="x")], attempt=2)
    store.signal(trace_id, "source_click", target="x")
    assert read(store).a.successes == 0


def test_other_ratings_and_other_experiments_do_not_count(store):
    begun = begin(store, 1)
    other = start_experiment(store, "other", horizon=9, now=NOW)
    trace_id = shown(store, begun)
    store.rate(trace_id, 5, target="from-b")
    store.rate(trace_id, 1)
    shown(store, other, opens=["from-b"])
    found = read(store)
    assert (found.questions, found.b.successes) == (1, 0)


def test_a_person_who_is_forgotten_is_out_of_it_and_no_name_is_kept(store):
    begun = begin(store, 2)
    for actor in ("ann", "bob", "cid"):
        shown(store, begun, actor=actor, opens=["from-b"])
    store.forget("ann")
    found = read(store)
    assert (found.questions, found.b.successes) == (2, 2)
    assert "bob" not in json.dumps(dict(list_experiments(store)[0].result))


# -- verdicts


def test_many_people_who_prefer_one_side_decide(store):
    begun = begin(store, 30)
    for at in range(30):
        shown(store, begun, actor=f"u{at}", opens=["from-b" if at % 5 else "from-a"])
    found = read(store)
    assert (found.verdict, found.b.successes, found.a.successes) == ("b", 24, 6)
    assert found.difference.value == pytest.approx(0.6)
    assert 0.2 < found.difference.low < 0.6 < found.difference.high < 1
    assert found.why.startswith("b is better: 24 of 30 questions went to b, 6 to a (+60.0 points")


def test_one_person_decides_nothing_however_often_he_clicks(store):
    begun = begin(store, 60)
    for at in range(60):
        actor = "eve" if at < 40 else f"u{at}"
        opens = ["from-b"] if at < 40 else [["from-a"], ["from-b"]][at % 2]
        shown(store, begun, actor=actor, opens=opens)
    found = read(store)
    assert (found.a.successes, found.b.successes) == (10, 50)
    assert found.verdict == "no preference"
    assert found.difference.people == 21


def test_too_few_people_decide_nothing(store):
    begun = begin(store, 30)
    for at in range(30):
        shown(store, begun, actor=f"u{at}", opens=["from-b"] if at < 19 else [])
    found = read(store)
    assert (found.verdict, found.difference.people) == ("no preference", 19)
    assert found.why.startswith("Too few people to tell")


def test_check4_through_the_retriever_the_better_side_wins_and_the_same_side_never(store):
    right, wrong = Document("14 days.", id="right"), Document("Monthly.", id="wrong")
    sides = {
        "good": RunnableLambda(lambda question: [right, wrong]),
        "bad": RunnableLambda(lambda question: [wrong, right]),
    }
    verdicts = {}
    for a, b in (("bad", "good"), ("good", "bad"), ("good", "good")):
        name = f"{a}-{b}"
        start_experiment(store, name, horizon=40)
        retriever = InterleavedRetriever(
            a=sides[a], b=sides[b], store=store, experiment=name, poll_s=0
        )
        for at in range(40):
            found = retriever.invoke("How long?", {"metadata": {"user_id": f"u{at}"}})
            store.signal(trace_id_of(found), "source_click", target="right")
        later = LATER + timedelta(days=3650)
        verdicts[name] = experiment_report(store, name, now=later).verdict
    assert verdicts == {"bad-good": "b", "good-bad": "a", "good-good": "no preference"}


def test_check4_two_that_are_equally_good_are_told_apart_in_one_of_twenty_runs():
    rng = np.random.default_rng(5)
    found = Counter()
    for run in range(RUNS):
        signs = []
        for question in range(200):
            # Two orders of the same six, each by chance: neither is better.
            a, b = rng.permutation(6).tolist(), rng.permutation(6).tolist()
            drawn = team_draft(a, b, 4, seed=f"{run}/{question}")
            opened = {int(rng.integers(0, 6))} if rng.random() < 0.5 else set()
            won = Counter(one.team for one in drawn if one.key in opened)
            signs.append((f"u{question}", (won["b"] > won["a"]) - (won["b"] < won["a"])))
        found[preference(signs).winner(0.05)] += 1
    share = (found["a"] + found["b"]) / RUNS
    assert 0.03 <= share <= 0.07
    assert min(found["a"], found["b"]) > 0


def test_check4_a_against_itself_is_never_told_apart():
    for run in range(20):
        order = list(range(6))
        drawn = [team_draft(order, order, 4, seed=f"{run}/{at}") for at in range(100)]
        won = [Counter(one.team for one in each[:1]) for each in drawn]
        signs = [(str(at), one["b"] - one["a"]) for at, one in enumerate(won)]
        assert preference(signs).winner(0.05) is None


def test_who_looks_ten_times_finds_far_more_that_is_not_there():
    rng = np.random.default_rng(1)
    once = often = 0
    for _ in range(RUNS):
        signs = [(str(at), int(sign)) for at, sign in enumerate(rng.choice([-1, 1], 200))]
        looks = [preference(signs[:at]).winner(0.05) for at in range(20, 201, 20)]
        once += looks[-1] is not None
        often += any(looks)
    assert once / RUNS <= 0.07
    assert often / RUNS >= 0.12


def test_one_persons_questions_go_together_so_that_equal_arms_stay_equal():
    rng = np.random.default_rng(2)
    found = naive = 0
    for _ in range(RUNS):
        arms = []
        for arm in "ab":
            taste = rng.random(30)
            arms.append(
                [
                    (f"{arm}{at}", bool(rng.random() < taste[at]))
                    for at in range(30)
                    for _ in range(10)
                ]
            )
        found += two_rates(*arms, deals=199).winner(0.05) is not None
        alone = [[(f"{at}", good) for at, (_, good) in enumerate(arm)] for arm in arms]
        naive += two_rates(*alone, deals=199).winner(0.05) is not None
    assert 0.03 <= found / RUNS <= 0.07
    assert naive / RUNS >= 0.25


def lognormal(rng, people):
    return 1 + rng.lognormal(1, 1.5, people).astype(int)


def pareto(rng, people):
    return np.minimum(1 + (2 * rng.pareto(1.2, people)).astype(int), 200)


@pytest.mark.parametrize(
    ("asking", "people"), [(lognormal, 20), (lognormal, 50), (lognormal, 100), (pareto, 20)]
)
def test_check4_some_ask_a_hundred_times_as_often_and_equal_arms_stay_equal(asking, people):
    rng = np.random.default_rng(people)
    found = 0
    for _ in range(RUNS):
        arms = []
        for arm in "ab":
            asked_by = asking(rng, people)
            good = rng.binomial(asked_by, rng.beta(1.2, 1.8, people))
            arms.append(
                [
                    (f"{arm}{at}", number < good[at])
                    for at in range(people)
                    for number in range(asked_by[at])
                ]
            )
        found += two_rates(*arms, deals=199).winner(0.05) is not None
    assert 0.025 <= found / RUNS <= 0.075


# -- A/B


def test_ab_counts_the_people_of_each_arm(store):
    begun = begin(store, 100, kind="ab")
    for at in range(50):
        served(store, begun, at, arm="a", opens=["from-a"] if at % 5 == 0 else [])
        served(store, begun, at, arm="b", opens=["from-a"] if at % 5 else [])
    found = read(store)
    assert (found.a.questions, found.a.successes) == (50, 10)
    assert (found.b.questions, found.b.successes) == (50, 40)
    assert (found.verdict, found.difference.people) == ("b", 100)
    assert found.difference.value == pytest.approx(0.6)
    assert found.why.startswith("b is better: b 40 of 50, a 10 of 50 (+60.0 points")


def test_ab_all_against_none_is_a_difference(store):
    begun = begin(store, 50, kind="ab")
    for at in range(25):
        served(store, begun, at, arm="a")
        served(store, begun, at, arm="b", opens=["from-a"])
    found = read(store)
    assert (found.verdict, found.difference.value) == ("b", 1)
    assert found.difference.p < 0.001
    assert 0 < found.difference.low < found.difference.high == 1


def test_ab_by_ratings_counts_what_was_rated(store):
    begun = begin(store, 60, kind="ab", credit="ratings")
    for at in range(30):
        for arm, good in (("a", at % 2), ("b", at % 2)):
            _, trace_id = served(store, begun, at, arm=arm)
            if at < 25:
                store.rate(trace_id, 5 if good else 2)
                store.rate(trace_id, 3, actor="another")
    found = read(store)
    assert (found.a.questions, found.a.successes) == (25, 12)
    assert (found.b.questions, found.b.successes) == (25, 12)
    assert found.verdict == "no preference"
    assert found.difference.p == 1


def test_ab_by_citations_counts_abstentions_as_failures(store):
    begun = begin(store, 5, kind="ab", credit="citations")
    served(store, begun, 0, arm="a", cited=["from-a"])
    served(store, begun, 1, arm="a", cited=[])
    _, abstained = served(store, begun, 2, arm="a")
    store.update_trace(abstained, status="abstained")
    served(store, begun, 3, arm="a")
    _, ungrounded = served(store, begun, 4, arm="a", cited=["from-a"])
    store.update_trace(ungrounded, grounded=False)
    found = read(store)
    assert (found.questions, found.a.questions, found.a.successes) == (5, 4, 1)
    assert found.verdict == "no preference"
