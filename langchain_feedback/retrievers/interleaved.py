"""Compare two retrievers on live questions: each answer's sources are drafted from both."""

import asyncio
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.runnables.config import run_in_executor

from langchain_feedback.retrievers._arms import Arms, options_for
from langchain_feedback.retrievers._base_call import aask, ask, checked_k
from langchain_feedback.retrievers._draft import drafted, undrafted
from langchain_feedback.retrievers._one_trace import OneTrace
from langchain_feedback.retrievers._whole_config import child_config
from langchain_feedback.store.experiments import ExperimentRecord
from langchain_feedback.traces import Retrieved

__all__ = ["InterleavedRetriever"]


class InterleavedRetriever(Arms):
    """Mixes what two retrievers find into one list, so that the reader's clicks compare them.

    Each list is drawn by team draft (see `ranking.interleave`): what one of the two offers is its
    pick, what both offer at the same moment is neither's. Whoever opens a source, or an answer
    that quotes it, speaks for the team that picked it; `experiment_report` counts that. The coin
    is tossed by the trace id: the same search of one trace gives the same list.

    With `experiment`, the name of one that `start_experiment` has begun, lists are mixed until it
    has the questions that it waits for. Before, after, and while the store cannot be read, `a`
    answers alone, as if this were not here. Without `experiment`, all lists are mixed, and no
    report counts them.

    What has one id and one text, or one text and source, is one chunk. Two indexes that give the
    same id to different texts hold different chunks: that is logged once, and those of `b` are
    named by a digest of text and source instead.

    `a` and `b` may be a `FeedbackRetriever` each, over the same store, such as one with
    `ranker=None` and one with a candidate; they are ranked as ever, and the trace is kept here,
    once, with what each of the two returned. An error of `b` is logged once, and `a` answers
    alone; one of `a` is raised. Both are asked in every mixed call, in async ones at once. Three
    embeddings of the question may be made, where both are `FeedbackRetriever`s with one.

    Results are copies, as those of a `FeedbackRetriever`: rate and explain them in the same
    way. In `metadata["feedback"]`, `team` is `a`, `b`, `both`, or None.

    Example:
        >>> from langchain_core.runnables import RunnableLambda
        >>> from langchain_feedback import FeedbackStore, trace_id_of
        >>> refund, plan = Document("14 days.", id="r"), Document("Monthly.", id="p")
        >>> retriever = InterleavedRetriever(
        ...     a=RunnableLambda(lambda question: [refund, plan]),
        ...     b=RunnableLambda(lambda question: [plan, refund]),
        ...     store=FeedbackStore("sqlite://"),
        ... )
        >>> found = retriever.invoke("How long?")
        >>> sorted((one.metadata["feedback"]["team"], one.id) for one in found)
        [('a', 'r'), ('b', 'p')]
        >>> event_id = retriever.store.signal(trace_id_of(found), "source_click", target="r")
    """

    experiment: str | None = None
    """The name of an experiment of the kind `interleave`."""

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        **options: Any,
    ) -> list[Document]:
        config, size = child_config(options, run_manager), self._size(k)
        for_a, for_b = (options_for(self, side, size, options) for side in (self.a, self.b))
        trace = OneTrace(self, query, run_manager.metadata)
        with trace.claimed():
            experiment, mixes = self._opened(trace)
            if not mixes:
                found = ask(self.a, query, config, for_a)
                if (kept := trace.kept_below(found)) is not None:
                    return kept
                return self._undrawn(trace, found, size, trace.embedded(self._once))
            below = trace.config_below(config)
            mine = ask(self.a, query, below, for_a)
            try:
                theirs = ask(self.b, query, below, for_b)
            except Exception as error:  # noqa: BLE001  an experiment costs nobody an answer
                self._warn_of_b(error)
                return self._undrawn(trace, mine, size, trace.embedded(self._once))
            vector = trace.embedded(self._once)
            return self._drawn(trace, (mine, theirs), size, experiment, vector)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        **options: Any,
    ) -> list[Document]:
        config, size = child_config(options, run_manager), self._size(k)
        for_a, for_b = (options_for(self, side, size, options) for side in (self.a, self.b))
        trace = OneTrace(self, query, run_manager.metadata)
        with trace.claimed():
            experiment, mixes = await run_in_executor(None, self._opened, trace)
            if not mixes:
                found = await aask(self.a, query, config, for_a)
                if (kept := trace.kept_below(found)) is not None:
                    return kept
                alone = await trace.aembedded(self._once)
                return await run_in_executor(None, self._undrawn, trace, found, size, alone)
            below = trace.config_below(config)
            mine, theirs, vector = await asyncio.gather(
                aask(self.a, query, below, for_a),
                aask(self.b, query, below, for_b),
                trace.aembedded(self._once),
                return_exceptions=True,
            )
            if isinstance(mine, BaseException):
                raise mine
            if isinstance(theirs, BaseException):
                if not isinstance(theirs, Exception):
                    raise theirs
                self._warn_of_b(theirs)
                return await run_in_executor(None, self._undrawn, trace, mine, size, vector)
            return await run_in_executor(
                None, self._drawn, trace, (mine, theirs), size, experiment, vector
            )

    def _size(self, k: int | None) -> int:
        return self.k if k is None else checked_k(k)

    def _opened(self, trace: OneTrace) -> tuple[ExperimentRecord | None, bool]:
        """Return the experiment that runs, and whether this list is mixed."""
        running = None
        if self.experiment is not None:
            running = self._running(self.experiment, "interleave")
            if running is None:
                return None, False
        trace.open()
        if trace.store_failed:
            # `a` may keep its trace itself.
            trace.give_back()
        return running, not trace.store_failed

    def _undrawn(self, trace: OneTrace, found: list[Document], k: int, vector: Any) -> Retrieved:
        """Record what `a` found, and return it."""
        embedded = None if isinstance(vector, BaseException) else vector
        return trace.keep(undrafted(found, id_field=self.id_field), k, vector=embedded)

    def _drawn(
        self,
        trace: OneTrace,
        found: tuple[list[Document], list[Document]],
        k: int,
        experiment: ExperimentRecord | None,
        vector: Any,
    ) -> Retrieved:
        placed = drafted(*found, seed=trace.seed, id_field=self.id_field, once=self._once)
        embedded = None if isinstance(vector, BaseException) else vector
        return trace.keep(placed, k, experiment=experiment, vector=embedded)

    def _warn_of_b(self, error: Exception) -> None:
        self._once.warn("b", "`b` failed, and `a` answers alone: %r", error)
