"""One call of two retrievers that are compared: its trace, and what is kept of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langchain_feedback.claims import Asked, Claim, claims_of
from langchain_feedback.retrievers._draft import Placed, marked_copy, recorded
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

__all__ = ["OneTrace", "trace_kept"]

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

    @property
    def reads_to_open(self) -> bool:
        """Whether `open` looks into the store."""
        return self._asked.trace_id is not None

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


def trace_kept(found: Sequence[Document]) -> str | None:
    """Return the id under which a `FeedbackRetriever` below has recorded this, None: none has."""
    if isinstance(found, Retrieved):
        return found.trace_id
    ids = {marks_of(one).get("trace_id") for one in found}
    trace_id = ids.pop() if len(ids) == 1 else None
    return trace_id if isinstance(trace_id, str) else None
