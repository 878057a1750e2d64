"""The four weeks: does the loop close? People ask, a reviewer names, a ranker learns.

Everything goes through the parts that an application uses: `FeedbackRetriever`, the inbox that
takes what browsers send, `ReviewQueue`, `run_loop` with its gate, `retest`, `loop_health`. What
is made up are the people, and how well the app reads. Nothing is decided beforehand: whether a
ranker is promoted, and what the verdict is in the end, comes out of the loop.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_feedback.demo._weeks_clock import age
from langchain_feedback.demo._weeks_desk import PROMPT, Desk, LetterEmbeddings
from langchain_feedback.demo._weeks_people import Asked, Liar, People
from langchain_feedback.demo._weeks_records import (
    Exam,
    FourWeeksRun,
    FourWeeksSettings,
    Tried,
    Week,
)
from langchain_feedback.demo._weeks_staff import OWNERS, HandbookOwner, Reviewers
from langchain_feedback.demo.handbook import handbook_documents
from langchain_feedback.loop.digest import week_as_markdown
from langchain_feedback.loop.evaluation import evaluate
from langchain_feedback.loop.health import LoopHealth, loop_health
from langchain_feedback.loop.job import LoopReport, run_loop
from langchain_feedback.loop.retesting import retest
from langchain_feedback.loop.staleness import check_sources
from langchain_feedback.ranking.loading import load_ranker
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.rankers import read_rankers
from langchain_feedback.store.transactions import reading

__all__ = ["Exam", "FourWeeksRun", "FourWeeksSettings", "Tried", "Week", "run_four_weeks"]

_RUNS_AFTER, _REVIEWED_AFTER, _DAYS = 5, 6, 7
"""The job runs on Friday night, and its items are looked at on Saturday."""

_TIMEOUT_S = 60.0
"""On a busy computer, too, the lab's retrievals wait for their feedback."""

_CHANCES = ("app", "ask", "review")
"""Each has chance of its own: one more question of the people slips nobody's pen."""

_CHANGED, _MISSING, _LIED_ABOUT = "refund-window", "payment", "sla"
_RULE_CHANGES = 2
_LIAR_COMES = (2, 3)
_NEW_RULE = {_CHANGED: ("thirty days", "It is thirty days now, not fourteen.")}

_WRITES = {
    _CHANGED: Document(
        "Ask for a refund within thirty days of the first payment.",
        id=_CHANGED,
        metadata={"source": f"handbook/{_CHANGED}", "heading": "Refund window"},
    ),
    _MISSING: Document(
        "Pay by card, by direct debit or by bank transfer. A bank transfer needs the number of "
        "the invoice as its reference.",
        id=_MISSING,
        metadata={"source": f"handbook/{_MISSING}", "heading": "Ways to pay"},
    ),
}


def run_four_weeks(
    settings: FourWeeksSettings | None = None,
    *,
    database: Path | None = None,
    on_week: Callable[[Week], None] | None = None,
) -> FourWeeksRun:
    """Live through four weeks of a help desk, and return what became of it.

    A week is seven days of questions and signals. After the fifth `run_loop(auto_promote=True)`
    does its work, after the sixth a reviewer does his. Between two days the whole database is made
    a day older.

    - From the first day people ask for what no document answers.
    - In the second week a rule changes, and its document does not; and somebody votes against
      a chunk again and again.
    - At the start of each week the owner of the handbook writes what the loop asked him for.

    Args:
        settings: The numbers of it, and the seed of all chance.
        database: A SQLite file to make and to keep; without it, one in a temporary folder.
        on_week: Is told of each week as it ends.

    Raises:
        ValueError: If `database` exists.
    """
    settings = settings or FourWeeksSettings()
    with (
        _new_file(database) as path,
        FeedbackStore(
            f"sqlite:///{path}", embeddings=LetterEmbeddings(), timeout_s=_TIMEOUT_S
        ) as store,
    ):
        lab = _Lab(store, settings)
        before = lab.exam()
        weeks: list[Week] = []
        for number in range(1, settings.weeks + 1):
            weeks.append(lab.week(number))
            if on_week is not None:
                on_week(weeks[-1])
        scores = _scores(store, [week.active for week in weeks])
        return FourWeeksRun(settings, before, tuple(weeks), scores, loop_health(store))


class _Lab:
    """Everybody who takes part."""

    def __init__(self, store: FeedbackStore, settings: FourWeeksSettings) -> None:
        self._store, self._settings = store, settings
        app, ask, review = (random.Random(f"{settings.seed}:{who}") for who in _CHANCES)  # noqa: S311
        truth: dict[str, tuple[str, str]] = {}
        self._truth = truth
        self._desk = Desk(store, handbook_documents(), app)
        self._people = People(self._desk, ask, truth)
        self._liar = Liar(self._desk, _LIED_ABOUT)
        self._reviewers = Reviewers(self._desk, review, truth, settings.reviewer_errors)
        self._owner = HandbookOwner(self._desk, _WRITES)

    def exam(self) -> Exam:
        """Ask what nobody asks, and look where the right chunk stands."""
        places = np.array(self._desk.places(self._people.exam()))
        return Exam(
            ndcg=float(np.mean(1 / np.log2(2 + places))),
            first=float(np.mean(places == 0)),
            in_prompt=float(np.mean(places < PROMPT)),
        )

    def week(self, number: int) -> Week:
        """Live through a week, and tell of it."""
        if number == _RULE_CHANGES:
            self._truth |= _NEW_RULE
        held = self._liar.held
        written = self._owner.work()
        verified, alarms = self._look_after(written)
        asked = self._days(number, 0, _RUNS_AFTER)
        report = run_loop(
            self._store, auto_promote=True, owners=OWNERS, ordinary=self._settings.ordinary
        )
        told = week_as_markdown(self._store, report)
        alarms += [(one["source"], one["kind"]) for one in _facts(report, "alarms")["raised"]]
        self._desk.restart()
        asked += self._days(number, _RUNS_AFTER, _REVIEWED_AFTER)
        reviewed = self._reviewers.week(self._settings.reviewed)
        asked += self._days(number, _REVIEWED_AFTER, _DAYS)
        health = loop_health(self._store)
        return Week(
            number=number,
            asks=len(asked),
            wrong=1 - sum(one.good for one in asked) / len(asked),
            held=self._liar.held - held,
            alarms=tuple(alarms),
            written=tuple(written),
            verified=tuple(verified),
            reviewed=reviewed,
            tried=_tried(report, health),
            promoted=bool(_facts(report, "promote")),
            active=health.rankers.active,
            failed=tuple(f"{step.name}: {step.words}" for step in report.failed),
            exam=self.exam(),
            verdict=health.verdict,
            why=health.why,
            report=told,
        )

    def _look_after(self, written: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """Ask again what documents were written for, as one does after a deployment."""
        if not written:
            return [], []
        tested = retest(self._store, self._desk.try_out)
        raised = check_sources(self._store)
        return (
            sorted(one.question for one in tested if one.verified),
            [(alarm.source, alarm.kind) for alarm in raised],
        )

    def _days(self, number: int, since: int, until: int) -> list[Asked]:
        """Let people ask for some days of a week."""
        asked: list[Asked] = []
        for day in range(since, until):
            if (number, day) != (1, 0):
                age(self._store, 1)
            asked += self._people.day(self._settings.asks)
            if (number, day) == _LIAR_COMES:
                self._liar.day()
        return asked


def _facts(report: LoopReport, step: str) -> Mapping[str, Any]:
    found = report.step(step)
    return found.facts if found is not None and found.state == "done" else {}


def _tried(report: LoopReport, health: LoopHealth) -> Tried | None:
    found = _facts(report, "evaluate")
    if not found:
        return None
    groups = {one.ranker_id: one.groups for one in health.rankers.versions}
    return Tried(
        ranker_id=found["ranker_id"],
        groups=groups[found["ranker_id"]],
        cases=found["cases"],
        verdict=found["verdict"],
        gain=found["gain"],
    )


def _scores(store: FeedbackStore, active: Sequence[str | None]) -> tuple[float, ...]:
    """Try what was active at each week's end on the newest cases; no report of it is kept."""
    with reading(store) as connection:
        records = {one.ranker_id: one for one in read_rankers(connection, store.namespace)}
    scores: dict[str | None, float] = {}
    for ranker_id in filter(None, dict.fromkeys(active)):
        record = records[ranker_id]
        ranker = load_ranker(record.kind, record.artifact)
        report = evaluate(store, ranker, baseline=None)
        scores |= {ranker_id: report.score, None: report.baseline_score}
    return tuple(scores[ranker_id] for ranker_id in active) if scores else ()


@contextmanager
def _new_file(path: Path | None) -> Iterator[Path]:
    if path is None:
        # A store that is not closed in time must not fail the run that is already done.
        with TemporaryDirectory(prefix="weeks-", ignore_cleanup_errors=True) as folder:
            yield Path(folder) / "feedback.db"
        return
    if path.exists():
        msg = f"{path} exists, and the weeks start from nothing. Name a file that does not exist."
        raise ValueError(msg)
    yield path
