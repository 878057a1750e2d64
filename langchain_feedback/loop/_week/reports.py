"""What a run of the loop did, step by step."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from langchain_feedback.store.loop_runs import LoopRun

__all__ = ["STEPS", "LoopReport", "Step", "StepReport"]

Step = Literal[
    "derive", "alarms", "missing", "mine", "freeze", "train", "evaluate", "promote", "digest"
]
STEPS: tuple[Step, ...] = get_args(Step)
"""What a week takes, in this order."""


@dataclass(frozen=True)
class StepReport:
    """What one step did."""

    name: str
    state: Literal["done", "skipped", "failed"]
    """`skipped`: it could not, or need not, and that is no failure."""
    words: str
    """What happened, or why not: for people."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The same in numbers and ids, as JSON holds them."""
    seconds: float = 0.0


@dataclass(frozen=True)
class LoopReport:
    """What a run did."""

    run_id: str
    namespace: str
    state: str
    """`done`, or `failed` where a step failed; `running` and `interrupted` of other processes'."""
    steps: tuple[StepReport, ...]
    auto_promote: bool
    """Whether it was allowed to promote."""
    resumed: int
    """How often another process went on with it after an interruption."""
    started_at: datetime
    """UTC, as `finished_at`."""
    finished_at: datetime | None

    @classmethod
    def of(cls, run: LoopRun, *, now: datetime | None = None) -> "LoopReport":
        """Read a stored run.

        Args:
            run: As the store holds it.
            now: When it is looked at: tells a run that goes on from one that was interrupted.
        """
        lost = now is not None and run.state == "running" and not run.is_held(now)
        return cls(
            run_id=run.run_id,
            namespace=run.namespace,
            state="interrupted" if lost else run.state,
            steps=tuple(StepReport(**step) for step in run.report.get("steps", ())),
            auto_promote=run.promotes,
            resumed=int(run.report.get("resumed", 0)),
            started_at=run.started_at,
            finished_at=run.finished_at,
        )

    @property
    def failed(self) -> tuple[StepReport, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.state == "failed")

    def step(self, name: str) -> StepReport | None:
        """Return what a step did; None: it did not run."""
        return next((step for step in self.steps if step.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        finished = self.finished_at
        return asdict(self) | {
            "steps": [asdict(step) for step in self.steps],
            "started_at": self.started_at.isoformat(),
            "finished_at": finished.isoformat() if finished else None,
        }
