"""The numbers of the loop's health, as records: `loop.health` fills them in."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from langchain_feedback.loop.judging import JudgeAccuracy

__all__ = [
    "CorrectionHealth",
    "LoopHealth",
    "QueueHealth",
    "RankerHealth",
    "RankersHealth",
    "Rates",
    "RunHealth",
    "ScorePoint",
    "SignalHealth",
    "WeekHealth",
]


@dataclass(frozen=True)
class Rates:
    """How the answers of a time fared. A share is in [0, 1], or None where nothing is known."""

    asks: int
    """Questions that people asked; evaluations and playgrounds do not count."""
    zero_result: float | None
    """Of the asks: nothing was found that they could be answered from."""
    abstained: float | None
    """Of the asks: no answer was given."""
    not_grounded: float | None
    """Of the answers that were checked: their sources do not say what they say."""
    rephrased: float | None
    """Of the asks: the next one said it again, in other words, or contradicted the answer."""
    complained: float | None
    """Of the asks: somebody says that the answer or a source was wrong."""


@dataclass(frozen=True)
class WeekHealth:
    """Seven days, which end when the numbers were read or whole weeks before."""

    since: datetime
    until: datetime
    rates: Rates
    waiting: int
    """Items of the queue that waited at the end."""
    added: int
    cleared: int
    """Items that got their verdict."""


@dataclass(frozen=True)
class QueueHealth:
    """How the review queue stands, and what reviewers say."""

    waiting: int
    """Items that nobody looks at now."""
    claimed: int
    oldest_days: float | None
    """Since when the oldest item waits, looked at or not."""
    decided: int
    """In this time, as all that follows but `named` and `agreement`."""
    cleared_a_week: float
    median_seconds: float | None
    """From claim to verdict."""
    verdicts: Mapping[str, float]
    """What share of the verdicts in force says `confirm`, `reject` and `unclear`."""
    double_reviewed: int
    """Items that two people looked at without seeing each other's verdict, ever."""
    agreement: float | None
    """Cohen's kappa of those; None without any."""
    named: int
    """Reviewed questions, ever, for which a right chunk was named: what rankers learn from."""


@dataclass(frozen=True)
class SignalHealth:
    """What people say, and how soon."""

    received: int
    """From clients, in this time; derived signals do not count here."""
    per_100: Mapping[str, float]
    """Signals in force for every 100 asks, by name, derived ones too; the most frequent first."""
    pending: float | None
    """Which share of `received` waits for its answer's trace."""
    held: float | None
    """Which share of `received` is held back with its burst, until somebody has looked."""
    dropped: float | None
    """Which share of `received` a reviewer dropped."""
    lag_p50_seconds: float | None
    """From the question to the signal: half of them came within."""
    lag_p95_seconds: float | None


@dataclass(frozen=True)
class CorrectionHealth:
    """Whether what went wrong goes right later."""

    failing: int
    """Questions that somebody complained of in this time."""
    answered: int
    """Those of them to which a good answer was given after the first complaint: somebody praised
    it, or it quotes its sources and nobody complained."""
    median_days: float | None
    """From the first complaint to that answer."""
    owner_items: Mapping[str, int]
    """What owners of documents are asked, by state."""
    owner_open: int
    """Those that are neither verified nor withdrawn."""
    alarms: int
    """Open alarms over sources."""


@dataclass(frozen=True)
class RankerHealth:
    """One trained ranker, and what became of it."""

    ranker_id: str
    number: int
    """1 for the first that was trained."""
    kind: str
    groups: int
    """How many reviewed questions taught it."""
    trained_at: datetime
    state: str
    """`active`, `rolled back`, `replaced`, `shadow`; of one that never was active `recommended`,
    `rejected` or `advice` by its newest evaluation, or `untested`."""
    cases: int
    """How many cases it was tried on, by the evaluation that this and what follows are of: the
    one that promoted it, where it is active; else its newest. 0: none."""
    score: float | None
    """Mean nDCG, in [0, 1]."""
    baseline_score: float | None
    """Of what was active then, on the same cases."""
    gain: float | None
    p: float | None
    """One-sided: how often chance alone would show this gain."""
    verdict: str | None
    """`promote`, `reject` or `advice`."""
    is_earned: bool
    """Whether it is active, and was promoted by an evaluation that said so: not by force."""
    reasons: tuple[str, ...]
    worst_question: str | None
    """The question that it answers worse than what was active, by most; None where there is none,
    or its person was forgotten."""
    worst_drop: float
    """How much of its nDCG that question loses, at least 0."""
    evaluated_at: datetime | None


@dataclass(frozen=True)
class ScorePoint:
    """One evaluation, for a plot over time."""

    at: datetime
    ranker_id: str | None
    """None: the base's own order was tried."""
    number: int | None
    """Of the ranker, as in `RankerHealth`."""
    version: int
    """Of the cases: scores on different versions are of different questions."""
    cases: int
    score: float
    baseline_score: float | None
    verdict: str


@dataclass(frozen=True)
class RankersHealth:
    """Every trained ranker, and how well each one did."""

    active: str | None
    """None: the base's own order."""
    shadow: str | None
    """Which one is watched; None: none."""
    before: str | None
    """What a rollback goes back to; None: the base's own order."""
    versions: tuple[RankerHealth, ...]
    """Newest first."""
    scores: tuple[ScorePoint, ...]
    """Oldest first."""
    trained: int
    """In this time, as the next three."""
    promoted: int
    rejected: int
    """Rankers whose evaluation said so."""
    rolled_back: int
    cases: int
    """Cases that are frozen and not retired."""
    asked: int
    """Questions since the active one was made active; 0 where there is none."""
    ordered: int
    """Those of them whose pool it ordered: a process that cannot load it, or does not follow,
    keeps the base's order."""


@dataclass(frozen=True)
class RunHealth:
    """The last run of the loop, and how many there were."""

    state: str
    """`running`, `done`, `failed`, or `interrupted`: its lease ran out before its end."""
    step: str
    """The last step that is done; empty before one."""
    started_at: datetime
    finished_at: datetime | None
    runs: int
    """In this time."""
    failed: int
    """Those of them that failed."""
    trainings: int
    """Those of them that were to train a ranker; the same labels make the same one again, and
    too few make none: `RankersHealth.trained` counts what came of them."""
    refused: str | None
    """Why the newest try of a ranker was refused; None: it was not."""
    broken: str | None
    """Of a run that failed: the first step that did, and what it said."""


@dataclass(frozen=True)
class LoopHealth:
    """Whether the loop closes, and the numbers that say so."""

    verdict: str
    """`closing`, `collecting`, or `stuck: ` and where."""
    why: str
    """In a sentence or two."""
    at: datetime
    """When the numbers were read, UTC."""
    days: float
    """How far back they look."""
    week: Rates
    """The last seven days."""
    before: Rates
    """The four weeks before those: what they are compared with."""
    weeks: tuple[WeekHealth, ...]
    """Oldest first; at least four."""
    queue: QueueHealth
    signals: SignalHealth
    corrections: CorrectionHealth
    rankers: RankersHealth
    judges: JudgeAccuracy
    run: RunHealth | None
    """None: the loop never ran."""
