"""What the flywheel lab is told, and what it tells."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from langchain_feedback.demo.handbook import golden_questions

__all__ = ["FlywheelRun", "FlywheelSettings", "Moment", "Policy", "Signal"]

DIGITS = 3
"""To how many digits scores are told, and compared."""


class Signal(StrEnum):
    """What is known of what people thought."""

    THUMBS = "thumbs"
    """One rating of the whole answer: 5 if all the evidence is in it, else 1."""
    CLICKS = "clicks"
    """One rating of each of the two sources: 5 if it is evidence, else 1."""
    CITED = "cited"
    """One rating of the whole answer, and which of its sources it quotes: the evidence."""


class Policy(StrEnum):
    """How ratings become an order."""

    AVERAGE = "average"
    """The classic rule, `AverageRating`: mean rating over 3, on the four candidates as found."""
    DEFAULT = "default"
    """What `FeedbackRetriever` and `FeedbackStore` do when they are told nothing."""


@dataclass(frozen=True)
class FlywheelSettings:
    """What to run.

    Raises:
        ValueError: If there is no such signal or policy, or `events` is negative.

    Example:
        >>> FlywheelSettings(events=-1)
        Traceback (most recent call last):
        ValueError: The number of events must be a whole number of at least 0, got -1
    """

    signal: Signal = Signal.CITED
    policy: Policy = Policy.DEFAULT
    reviewer: bool = False
    """Whether each ten events somebody pins the evidence that two bad answers lack."""
    events: int = 100
    """How often a question is asked, answered and rated; at least 0."""

    def __post_init__(self) -> None:
        # A plain "thumbs" is as good as Signal.THUMBS.
        object.__setattr__(self, "signal", Signal(self.signal))
        object.__setattr__(self, "policy", Policy(self.policy))
        if isinstance(self.events, bool) or not isinstance(self.events, int) or self.events < 0:
            msg = f"The number of events must be a whole number of at least 0, got {self.events!r}"
            raise ValueError(msg)


class Moment(NamedTuple):
    """How things stand after an event; lists go by question, in the handbook's order."""

    orders: tuple[tuple[str, ...], ...]
    """Ids of all candidates as the next retrieval ranks them."""
    scores: Mapping[str, float]
    """Multiplier of each candidate, by `chunk@question`: 1 is neutral, three digits."""
    recall: tuple[float, ...]
    """The share of the evidence that is among the first two chunks, in [0, 1]."""
    wrong: tuple[int, ...]
    """How many answers were wrong so far."""
    pins: int
    """How many chunks the reviewer has pinned so far."""
    last_order_change: int
    """The number of the last event that changed an order, from 1; 0: none did."""
    last_score_change: int
    """The number of the last event that changed a score in its first three digits."""

    @property
    def mean_recall(self) -> float:
        """The mean over the questions, in [0, 1]."""
        return sum(self.recall) / len(self.recall)


@dataclass(frozen=True)
class FlywheelRun:
    """A finished run, with all that can be known of it."""

    settings: FlywheelSettings
    moments: tuple[Moment, ...]
    """One for each event, and first how things stood before: `moments[n]` is after event n."""

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints: lists go by question, as in `questions`."""
        first, last = self.moments[0], self.moments[-1]
        return asdict(self.settings) | {
            "questions": [golden.question for golden in golden_questions()],
            "mean_recall_before": round(first.mean_recall, DIGITS),
            "mean_recall_after": round(last.mean_recall, DIGITS),
            "recall_by_question_before": list(first.recall),
            "recall_by_question": list(last.recall),
            "wrong_answers": sum(last.wrong),
            "wrong_by_question": list(last.wrong),
            "last_order_change_event": last.last_order_change,
            "last_score_change_event": last.last_score_change,
            "pins": last.pins,
            "scores": dict(last.scores),
        }
