"""The steps of a week: each does one thing, and says in words what came of it."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_feedback.loop._gating.trying import Loader
from langchain_feedback.loop._week.ranker import FIGURES, candidate_of, facts_of, loader_of
from langchain_feedback.loop._week.reports import Step, StepReport
from langchain_feedback.loop.cases import freeze_cases
from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.derive import derive_signals
from langchain_feedback.loop.evaluation import evaluate
from langchain_feedback.loop.mining import mine
from langchain_feedback.loop.missing import missing_documents
from langchain_feedback.loop.outbox import deliver, write_digests
from langchain_feedback.loop.promotion import promote
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.loop.staleness import check_sources, open_alarms
from langchain_feedback.loop.training import train_ranker
from langchain_feedback.ranking.estimating import LinearEstimator

if TYPE_CHECKING:
    from langchain_feedback.loop.owners import Owners
    from langchain_feedback.ranking.estimating import Estimator
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["DOING", "NEEDS", "Outcome", "Week"]

_NO_RANKER = "There is no ranker yet."
_MOST_NAMED = 5
_ESTIMATOR = ("kind", "least", "settings")


@dataclass(frozen=True)
class Week:
    """What the steps are to work with: see `run_loop`."""

    store: "FeedbackStore"
    auto_promote: bool
    estimator: "Estimator | None"
    load: Loader | None
    owners: "Owners | None"
    outbox: Path | None
    days: float
    limit: int
    ordinary: int
    double: float
    now: datetime | None

    @property
    def options(self) -> str:
        """A digest of what decides what the steps do."""
        estimator = self.estimator or LinearEstimator()
        told: list[Any] = [getattr(estimator, name, None) for name in _ESTIMATOR]
        told += [None if self.owners is None else [repr(owner) for owner in self.owners]]
        told += [float(self.days), self.limit, self.ordinary, float(self.double), self.now]
        text = json.dumps(told, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Outcome:
    """What came of a step."""

    words: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    done: bool = True
    """Whether it did something; False: there was a reason not to."""


Before = Mapping[str, StepReport]
"""What the earlier steps did."""


def _derive(week: Week, _: Before) -> Outcome:
    derived = derive_signals(week.store, now=week.now)
    named = ", ".join(f"{count} {name}" for name, count in derived.added.items()) or "no signals"
    words = f"Derived {named} from {_count(derived.asks, 'question')}."
    return Outcome(words, {"added": derived.added, "asks": derived.asks})


def _alarms(week: Week, _: Before) -> Outcome:
    raised = check_sources(week.store, now=week.now)
    fixed = Corrections(week.store).check_fixed(now=week.now)
    open_ = open_alarms(week.store)
    new = _listed(f"{alarm.source} ({alarm.kind})" for alarm in raised)
    words = f"New alarms: {new or 'none'}. Open alarms: {len(open_)}."
    words += f" Corrected meanwhile: {_count(len(fixed), 'document')}." if fixed else ""
    facts = {
        "raised": [{"source": alarm.source, "kind": alarm.kind} for alarm in raised],
        "open": len(open_),
        "fixed": [item.item_id for item in fixed],
    }
    return Outcome(words, facts)


def _missing(week: Week, _: Before) -> Outcome:
    found = missing_documents(week.store, owners=week.owners, now=week.now)
    asks = sum(one.asks for one in found)
    times = "once" if asks == 1 else f"{asks} times"
    words = f"Missing: {_count(len(found), 'document')}, asked for {times}."
    # No texts of questions: `forget` does not look into the rows of runs.
    facts = {"items": [one.item_id for one in found], "asks": asks}
    return Outcome(words if found else "No document is missing.", facts)


def _mine(week: Week, _: Before) -> Outcome:
    queue = ReviewQueue(week.store, double=week.double, owners=week.owners)
    mined = mine(
        week.store, days=week.days, limit=week.limit, ordinary=week.ordinary, now=week.now,
        queue=queue,
    )  # fmt: skip
    words = f"Added {_count(mined.added, 'item')} to the review queue; {mined.waiting} wait."
    return Outcome(words, {"added": mined.added, "waiting": mined.waiting})


def _freeze(week: Week, _: Before) -> Outcome:
    frozen = freeze_cases(week.store, now=week.now)
    strata = dict(sorted(frozen.by_stratum.items()))
    kinds = _listed(f"{count} {name}" for name, count in strata.items())
    words = f"Added {_count(frozen.added, 'evaluation case')}"
    words += f", retired {frozen.retired}. " if frozen.retired else ". "
    words += f"There are {kinds} (version {frozen.version})." if kinds else "There are none yet."
    facts = {"version": frozen.version, "added": frozen.added, "retired": frozen.retired}
    return Outcome(words, facts | {"strata": strata})


def _train(week: Week, _: Before) -> Outcome:
    record = train_ranker(week.store, estimator=week.estimator, now=week.now)
    words = f"Ranker {record.ranker_id} has learned from {_count(record.groups, 'question')}."
    return Outcome(words, {"ranker_id": record.ranker_id, "groups": record.groups})


def _evaluate(week: Week, before: Before) -> Outcome:
    candidate = candidate_of(week.store, before)
    if candidate is None or candidate.out:
        return Outcome(candidate.out if candidate else _NO_RANKER, done=False)
    if candidate.waits:
        return Outcome(candidate.waits, candidate.facts, done=False)
    load = week.load or loader_of(week.estimator)
    report = evaluate(week.store, candidate.ranker_id, load=load, now=week.now)
    words = f"Ranker {candidate.ranker_id}: {report.verdict}. {' '.join(report.reasons)}"
    found = {name: getattr(report, name) for name in FIGURES}
    return Outcome(words, facts_of(report.ranker_id, report.run_id, report.verdict, found))


def _promote(week: Week, before: Before) -> Outcome:
    candidate = candidate_of(week.store, before)
    if candidate is None or candidate.out:
        return Outcome(candidate.out if candidate else _NO_RANKER, done=False)
    if candidate.lacks:
        words = f"Ranker {candidate.ranker_id} stays out: {candidate.lacks}."
        return Outcome(words, done=False)
    if not week.auto_promote:
        words = (
            f"Ranker {candidate.ranker_id} earned its promotion. A person decides: "
            f"langchain-feedback loop promote --to {candidate.ranker_id}"
        )
        return Outcome(words, {"waits": candidate.ranker_id}, done=False)
    # Whoever acted since this one was looked at knows better.
    promote(week.store, candidate.ranker_id, actor="loop", after=candidate.after)
    words = f"Ranker {candidate.ranker_id} is active now."
    return Outcome(words, {"ranker_id": candidate.ranker_id})


def _digest(week: Week, _: Before) -> Outcome:
    if week.owners is None:
        words = "No owners are named, so nobody is told what to correct or write."
        return Outcome(words, done=False)
    new = write_digests(week.store, week.owners, now=week.now)
    sent = deliver(week.store, week.owners, folder=week.outbox, now=week.now)
    words = f"Messages to owners: {new} new, {sent.sent} sent, {sent.waiting} waiting."
    words += f" {sent.failed} were given up: see the log." if sent.failed else ""
    facts = {"new": new, "sent": sent.sent, "waiting": sent.waiting, "failed": sent.failed}
    return Outcome(words, facts)


DOING: Mapping[Step, Callable[[Week, Before], Outcome]] = {
    "derive": _derive,
    "alarms": _alarms,
    "missing": _missing,
    "mine": _mine,
    "freeze": _freeze,
    "train": _train,
    "evaluate": _evaluate,
    "promote": _promote,
    "digest": _digest,
}
"""What each step does."""

NEEDS: Mapping[Step, tuple[Step, ...]] = {
    # What is to be tried on a question must not be taught by it.
    "train": ("freeze",),
    "evaluate": ("freeze", "train"),
    "promote": ("freeze", "train", "evaluate"),
}
"""Which steps a step cannot do without."""


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _listed(names: Iterable[str]) -> str:
    counted = Counter(names)
    shown = ", ".join(list(counted)[:_MOST_NAMED])
    more = len(counted) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
