"""What the four weeks are told, and what they tell."""

from dataclasses import dataclass

from langchain_feedback.loop.health import LoopHealth

__all__ = ["Exam", "FourWeeksRun", "FourWeeksSettings", "Tried", "Week"]


@dataclass(frozen=True)
class FourWeeksSettings:
    """What to run.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> FourWeeksSettings(reviewer_errors=2)
        Traceback (most recent call last):
        ValueError: weeks and asks must be above 0, ... got FourWeeksSettings(...)
    """

    seed: int = 8
    """Of all chance."""
    weeks: int = 4
    asks: int = 70
    """How often somebody comes with a question, a day."""
    reviewed: int = 40
    """How many items the reviewer looks at, a week; 0: nobody reviews anything."""
    ordinary: int = 16
    """How many of them are drawn from all that was asked, whether it failed or not, as far as
    there is room in the queue: see `run_loop`."""
    reviewer_errors: float = 0.1
    """How often he names a wrong chunk."""

    def __post_init__(self) -> None:
        fine = (
            min(self.weeks, self.asks) > 0 <= min(self.reviewed, self.ordinary)
            and 0 <= self.reviewer_errors <= 1
        )
        if not fine:
            msg = (
                "weeks and asks must be above 0, reviewed and ordinary at least 0, "
                "reviewer_errors in [0, 1]; "
                f"got {self!r}"
            )
            raise ValueError(msg)


@dataclass(frozen=True)
class Exam:
    """How questions fare that nobody ever asked: nothing can have been learned by heart."""

    ndcg: float
    """Mean `1 / log2(2 + place)` of the chunk that answers, over all questions."""
    first: float
    """How often it stood first."""
    in_prompt: float
    """How often the app had it to read."""


@dataclass(frozen=True)
class Tried:
    """How the week's ranker fared before the gate."""

    ranker_id: str
    groups: int
    """How many reviewed questions taught it."""
    cases: int
    verdict: str
    """`promote`, `reject` or `advice`."""
    gain: float
    """In nDCG@10, against what was active."""


@dataclass(frozen=True)
class Week:
    """What happened in a week."""

    number: int
    asks: int
    """Questions asked, the second try of a person and those of the liar included."""
    wrong: float
    """Which share of people's questions got a wrong answer, or none."""
    held: int
    """Votes of the liar that were held back."""
    alarms: tuple[tuple[str, str], ...]
    """Source and kind of the alarms that were raised."""
    written: tuple[str, ...]
    """Chunks that the owner wrote or corrected."""
    verified: tuple[str, ...]
    """Questions of owners' items that are answered since."""
    reviewed: int
    """Verdicts of the first reviewer."""
    tried: Tried | None
    promoted: bool
    active: str | None
    """The ranker that orders pools at the end of the week; None: the base's own order stands."""
    failed: tuple[str, ...]
    """What steps of the week's run failed, and why: it should be none."""
    exam: Exam
    """At the end of the week."""
    verdict: str
    """Of `loop_health`, at the end of the week."""
    why: str
    report: str
    """What the week's run did, as Markdown: before the reviewer came."""


@dataclass(frozen=True)
class FourWeeksRun:
    """What became of it."""

    settings: FourWeeksSettings
    before: Exam
    """Before anybody asked anything."""
    weeks: tuple[Week, ...]
    scores: tuple[float, ...]
    """By week: what ordered pools at its end, tried on the last set of cases; weighted mean
    nDCG@10. All are of the same questions, none of which any ranker learned from. Empty where
    no ranker was ever active."""
    health: LoopHealth
    """In the end."""
