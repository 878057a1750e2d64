"""What `InterleavedRetriever` and `SplitRetriever` share: two retrievers, and one trace."""

import logging
from typing import Annotated, Any, Self

from langchain_core.runnables.config import run_in_executor
from pydantic import AfterValidator, ConfigDict, Field, PrivateAttr, model_validator

from langchain_feedback.ranking.policies import KernelBelief
from langchain_feedback.retrievers._base_call import takes
from langchain_feedback.retrievers._checking import runnable
from langchain_feedback.retrievers._experiment import ExperimentWatch
from langchain_feedback.retrievers._explain import explained
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._whole_config import WholeConfig
from langchain_feedback.retrievers.feedback import FeedbackRetriever
from langchain_feedback.store.experiments import ExperimentRecord
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.records import TraceChunk

__all__ = ["Arms", "options_for"]

logger = logging.getLogger(__name__)

_PICKED = {"a": "Picked by a", "b": "Picked by b", "both": "Offered by both at once"}


class Arms(WholeConfig):
    """Two retrievers that are compared; see the subclasses."""

    a: Annotated[Any, AfterValidator(runnable)]
    """What people get today: any Runnable from a string to documents."""
    b: Annotated[Any, AfterValidator(runnable)]
    """What may replace it."""
    store: FeedbackStore
    """Where retrievals and votes are kept; that of a `FeedbackRetriever` among the two, too."""
    k: int = Field(default=4, ge=1)
    """The most documents that a call returns."""
    base_k_arg: str | None = "k"
    """The option by which each is told `k`; passed only to what takes an option of that name."""
    id_field: str | None = None
    """The metadata field that holds a chunk's id, where `Document.id` does not."""
    poll_s: float = Field(default=30, ge=0)
    """For so long it goes by what it read of the experiment."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    _once: Once = PrivateAttr(default_factory=lambda: Once(logger))
    _watch: ExperimentWatch | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_arms(self) -> Self:
        for name, side in (("a", self.a), ("b", self.b)):
            if side is None:
                msg = f"{name} is missing: any Runnable from a string to documents"
                raise ValueError(msg)
            if isinstance(side, FeedbackRetriever) and side.store is not self.store:
                msg = f"{name} has another store: give all three the same object"
                raise ValueError(msg)
        return self

    def _running(self, name: str, kind: str) -> ExperimentRecord | None:
        """Return an experiment while it waits for questions."""
        watch = self._watch
        # A copy begins with the watch of its original, and may have another store.
        if watch is None or not watch.is_of(self.store, name):
            watch = self._watch = ExperimentWatch(self.store, name, kind, self._once)
        return watch.running(self.poll_s)

    def explain(self, trace_id: str) -> list[dict[str, Any]]:
        """Say of each chunk of a retrieval why it stood where it did.

        See `FeedbackRetriever.explain`; there is `team`, too: whose pick a chunk was.

        Raises:
            UnknownTraceError: If the store has no such trace.
            StoreError: If the store cannot be read.
        """
        policy = getattr(self.a, "policy", None) or KernelBelief()
        said = explained(self.store, policy, trace_id, self._once)
        record = self.store.trace(trace_id)
        chunks = {(one.attempt, one.chunk_id): one for one in record.chunks} if record else {}
        return [_with_team(one, chunks.get((one["attempt"], one["chunk_id"]))) for one in said]

    async def aexplain(self, trace_id: str) -> list[dict[str, Any]]:
        """Do as `explain`, without blocking the event loop."""
        return await run_in_executor(None, self.explain, trace_id)


def _with_team(said: dict[str, Any], chunk: TraceChunk | None) -> dict[str, Any]:
    """Say whose pick a chunk was, and where no feedback has ranked it, that alone."""
    team = chunk.team if chunk is not None else None
    picked = _PICKED.get(str(team), "")
    why = f"{picked}. {said['why']}" if picked else said["why"]
    if chunk is not None and chunk.multiplier is None:
        end = "." if chunk.returned else "; too far down to be returned."
        why = f"{picked or 'As a retriever without feedback had it'}{end}"
    return said | {"team": team, "why": why}


def options_for(settings: Arms, side: Any, k: int, given: dict[str, Any]) -> dict[str, Any]:
    """Return what a side is called with: `k`, where it takes it, and the caller's own options."""
    name = settings.base_k_arg
    asked = {name: k} if name is not None and name not in given and takes(side, name) else {}
    return asked | given
