"""One call of two retrievers that are compared: its trace, and what is kept of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor

from langchain_feedback.claims import Asked, Claim, claims_of
from langchain_feedback.retrievers._draft import Placed, marked_copy, recorded
from langchain_feedback.retrievers._embedding import aembed, embed
from langchain_feedback.retrievers._once import Once
from langchain_feedback.store.experiments import ExperimentRecord
from langchain_feedback.traces import (
    SEARCHED_FOR_KEY,
    UNRECORDED_KEY,
    Retrieved,
    marks_of,
    traffic_of,
)

if TYPE_CHECKING:
    from langchain_feedback.retrievers._arms import Arms

__all__ = ["OneTrace"]

_FAILED = object()


class OneTrace:
    """The trace of one call: `open`, then `keep`."""

    def __init__(self, settings: "Arms", query: str, run: Mapping[str, Any]) -> None:
        """Begin one.

        Args:
            settings: The retriever.
            query: What is searched for.
            run: The run's metadata.
        """
        self._settings, self._store, self._run = settings, settings.store, run
        self._asked = Asked.from_run(query, run)
        self._claim: Claim | None = None
        self._claimed_before = self._holder()
        self.store_failed = False
        """Whether the store could not be read."""

    @property
    def is_kept(self) -> bool:
        """Whether nobody above keeps the trace."""
        return not self._run.get(UNRECORDED_KEY)

    @property
    def asked(self) -> Asked:
        """Who asks, and for what."""
        return self._asked

    def open(self) -> Claim:
        """Find the trace that this search belongs to; again, it is the same one."""
        if self._claim is None:
            self._claim = claims_of(self._store).claim(self._asked, self._known)
        return self._claim

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Give the trace id back if the retrieval fails or is cancelled, for another try."""
        try:
            yield
        except BaseException:
            self.give_back()
            raise

    def give_back(self) -> None:
        """Let another retrieval have the trace id."""
        if self._claim is not None:
            claims_of(self._store).release(self._claim)
            self._claim = None

    @property
    def question(self) -> str:
        """The trace's own question, whatever text is searched for."""
        return self.open().question

    @property
    def seed(self) -> str:
        """What the coin is tossed by: the same search of the same trace, the same throws."""
        claim = self.open()
        return f"{claim.trace_id}/{claim.attempt}"

    def embedded(self, once: Once) -> list[float] | None:
        """Return the vector that the question is kept with, None where nothing is kept."""
        return embed(self._embeddings, self.question, once)

    async def aembedded(self, once: Once) -> list[float] | None:
        """Do as `embedded`, without blocking the event loop."""
        await run_in_executor(None, self.open)
        return await aembed(self._embeddings, self.question, once)

    @property
    def _embeddings(self) -> Embeddings | None:
        return self._store.embeddings if self.is_kept and self.question.strip() else None

    def kept_below(self, found: list[Document]) -> Retrieved | None:
        """Return what a retriever found if one below it has kept the trace, None if none has.

        Its documents say so, as a rule. Where none is left, or a step after it has made them
        anew, the trace id of the run tells: somebody below has claimed it since this began.
        """
        if isinstance(found, Retrieved):
            return found
        # Another program's mark under this name may be anything, even unhashable.
        marks = [marks_of(one).get("trace_id") for one in found]
        ids = {one if isinstance(one, str) else None for one in marks}
        if ids <= {None}:
            holder = self._holder()
            is_new = holder is not None and holder is not self._claimed_before
            ids = {holder.trace_id} if holder is not None and is_new else set()
        trace_id = ids.pop() if len(ids) == 1 else None
        return None if trace_id is None else Retrieved(found, trace_id)

    def _holder(self) -> Claim | None:
        """Return who has the run's own trace id."""
        trace_id = self._asked.trace_id
        return None if trace_id is None else claims_of(self._store).holder(trace_id)

    def config_below(self, config: RunnableConfig) -> RunnableConfig:
        """Return the config of runs whose trace is kept here."""
        named = {SEARCHED_FOR_KEY: self.open().trace_id, UNRECORDED_KEY: True}
        return cast(
            "RunnableConfig", {**config, "metadata": (config.get("metadata") or {}) | named}
        )

    def keep(
        self,
        placed: Sequence[Placed],
        k: int,
        *,
        experiment: ExperimentRecord | None = None,
        vector: Sequence[float] | None = None,
    ) -> Retrieved:
        """Record a list, and return copies of the first `k`."""
        claim, asked = self.open(), self._asked
        if self.is_kept and claim.question.strip():
            self._store.record_soon(
                claim.trace_id,
                claim.question,
                recorded(placed, k),
                attempt=claim.attempt,
                query=asked.query,
                actor=asked.actor,
                session_id=asked.session_id,
                traffic=traffic_of(self._run),
                experiment=None if experiment is None else experiment.experiment_id,
                vector=vector,
                id_field=self._settings.id_field,
            )
        return Retrieved([marked_copy(one, claim.trace_id) for one in placed[:k]], claim.trace_id)

    def _known(self, trace_id: str) -> Any:
        # After the first failure no more, so that a slow store costs one wait.
        if self.store_failed:
            return None
        found = self._store.try_read(lambda: self._store.trace(trace_id), _FAILED)
        self.store_failed = found is _FAILED
        return None if found is _FAILED else found
