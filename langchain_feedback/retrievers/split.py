"""Compare two retrievers, or all that stands behind them, on different people."""

from typing import Any, Literal, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor

from langchain_feedback.claims import Asked
from langchain_feedback.ranking.interleave import arm_of
from langchain_feedback.retrievers._arms import Arms, options_for
from langchain_feedback.retrievers._base_call import aask, ask, checked_k
from langchain_feedback.retrievers._draft import undrafted
from langchain_feedback.retrievers._one_trace import OneTrace
from langchain_feedback.retrievers._whole_config import child_config
from langchain_feedback.store.experiments import ExperimentRecord, label_soon
from langchain_feedback.traces import TRACE_ID_KEY, Retrieved, new_trace_id

__all__ = ["SplitRetriever"]


class SplitRetriever(Arms):
    """Gives some people what one retriever finds and the others what another one finds.

    An A/B experiment: it takes ten to fifty times the questions that `InterleavedRetriever` needs,
    and is for what one list cannot show, such as another prompt or another model behind it:
    `arm` says whom a run serves. Who gets which is decided by a hash of the user id, for as long
    as the experiment runs; where none is known by the session, else by the trace. An experiment
    of another name divides the same people anew.

    The two retrievers record their traces themselves, where they are `FeedbackRetriever`s over
    the same store; otherwise it is done here. Each trace is part of the experiment then, and
    `experiment_report` counts them by arm. Before, once it has the questions that it waits for,
    and while the store cannot be read, everybody gets `a`. An error is raised, whichever of the
    two it comes from: it is what that policy does.

    Example:
        >>> from langchain_core.runnables import RunnableLambda
        >>> from langchain_feedback import FeedbackStore
        >>> from langchain_feedback.loop.experiments import start_experiment
        >>> store = FeedbackStore("sqlite://")
        >>> started = start_experiment(store, "new-index", "ab", effect=5)
        >>> retriever = SplitRetriever(
        ...     a=RunnableLambda(lambda question: [Document("14 days.", id="old")]),
        ...     b=RunnableLambda(lambda question: [Document("14 days.", id="new")]),
        ...     store=store,
        ...     experiment="new-index",
        ... )
        >>> run = {"metadata": {"user_id": "ann"}}
        >>> found = [retriever.invoke("How long?", run)[0].id for _ in range(3)]
        >>> len(set(found)), found[0] == {"a": "old", "b": "new"}[retriever.arm(run["metadata"])]
        (1, True)
    """

    experiment: str
    """The name of an experiment of the kind `ab`."""

    def arm(self, metadata: dict[str, Any]) -> Literal["a", "b"]:
        """Return which of the two a run with these metadata gets: for all else that differs.

        A run without user, session and trace id is nobody's, and gets `a` here; make an id for it
        with `new_trace_id` and hand it over as `feedback_trace_id`.
        """
        asked = Asked.from_run("", metadata)
        known = asked.actor or asked.session_id or asked.trace_id
        running = self._running(self.experiment, "ab") if known else None
        return "a" if running is None else _arm(running, asked)

    async def aarm(self, metadata: dict[str, Any]) -> Literal["a", "b"]:
        """Do as `arm`, without blocking the event loop."""
        return await run_in_executor(None, self.arm, metadata)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        **options: Any,
    ) -> list[Document]:
        part = _Part(self, query, run_manager, k, options)
        with part.trace.claimed():
            side, config, own = part.chosen(self._running(self.experiment, "ab"))
            found = ask(side, query, config, own)
            if (kept := part.kept_below(found)) is not None:
                return kept
            return part.keep(found, part.trace.embedded(self._once))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        **options: Any,
    ) -> list[Document]:
        part = _Part(self, query, run_manager, k, options)
        with part.trace.claimed():
            running = await run_in_executor(None, self._running, self.experiment, "ab")
            side, config, own = part.chosen(running)
            found = await aask(side, query, config, own)
            kept = await run_in_executor(None, part.kept_below, found)
            if kept is not None:
                return kept
            vector = await part.trace.aembedded(self._once)
            return await run_in_executor(None, part.keep, found, vector)


class _Part:
    """One call: which side it gets, and what is kept of it."""

    def __init__(
        self,
        settings: SplitRetriever,
        query: str,
        manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
        k: int | None,
        options: dict[str, Any],
    ) -> None:
        self._settings = settings
        self._config = child_config(options, manager)
        self._options = options
        self._k = settings.k if k is None else checked_k(k)
        asked = Asked.from_run(query, manager.metadata)
        # Who is nobody is divided by the trace, whose id must be known before.
        is_nobody = not (asked.actor or asked.session_id or asked.trace_id)
        self._made = {TRACE_ID_KEY: new_trace_id()} if is_nobody else {}
        self.trace = OneTrace(settings, query, {**manager.metadata, **self._made})
        self._running: ExperimentRecord | None = None
        self._arm: Literal["a", "b"] = "a"

    def chosen(
        self, running: ExperimentRecord | None
    ) -> tuple[Any, RunnableConfig, dict[str, Any]]:
        """Return the side, its config and its options."""
        self._running = running
        if running is not None:
            self._arm = _arm(running, self.trace.asked)
        side = getattr(self._settings, self._arm)
        metadata = (self._config.get("metadata") or {}) | self._made
        config = cast("RunnableConfig", {**self._config, "metadata": metadata})
        return side, config, options_for(self._settings, side, self._k, self._options)

    def kept_below(self, found: list[Document]) -> Retrieved | None:
        """Return it if somebody below recorded it, and make its trace part of the experiment."""
        kept = self.trace.kept_below(found)
        part_of = None if kept is None else self._part_of(kept.trace_id)
        if kept is not None and part_of is not None and self.trace.is_kept:
            label_soon(self._settings.store, kept.trace_id, part_of.experiment_id)
        return kept

    def keep(self, found: list[Document], vector: list[float] | None) -> list[Document]:
        """Record it here."""
        placed = undrafted(found, id_field=self._settings.id_field)
        part_of = self._part_of(self.trace.open().trace_id)
        return self.trace.keep(placed, self._k, experiment=part_of, vector=vector)

    def _part_of(self, trace_id: str) -> ExperimentRecord | None:
        """Return the experiment that a trace is part of.

        A trace id that was used before is replaced: nobody's arm was drawn by the new one then.
        """
        asked = self.trace.asked
        drawn_by_it = asked.actor or asked.session_id or trace_id == asked.trace_id
        return self._running if drawn_by_it else None


def _arm(running: ExperimentRecord, asked: Asked) -> Literal["a", "b"]:
    session = f"session:{asked.session_id}" if asked.session_id else f"trace:{asked.trace_id}"
    return arm_of(running.experiment_id, asked.actor or session, running.settings["share"])
