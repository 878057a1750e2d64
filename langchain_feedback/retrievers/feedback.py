"""The retriever that learns: any base retriever, ranked anew by what people said before."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SkipValidation,
    model_validator,
)

from langchain_feedback.claims import Asked
from langchain_feedback.ranking.features import PairScorer, Scorer
from langchain_feedback.ranking.policies import KernelBelief, RankingPolicy
from langchain_feedback.retrievers._base_call import aask, ask, checked_k
from langchain_feedback.retrievers._checking import (
    check_parts,
    plain_function,
    ranker_like,
    runnable,
)
from langchain_feedback.retrievers._embedding import aembed, embed
from langchain_feedback.retrievers._explain import explained
from langchain_feedback.retrievers._gating import Gate
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._ordering import LoadRanker, Rankers
from langchain_feedback.retrievers._reach import Allow, Resolve
from langchain_feedback.retrievers._retrieval import Retrieval
from langchain_feedback.retrievers._slot import ExtraSlot
from langchain_feedback.retrievers._whole_config import WholeConfig, child_config
from langchain_feedback.store.feedback_store import FeedbackStore

if TYPE_CHECKING:
    from langchain_feedback.retrievers._growing import Call

__all__ = ["FeedbackRetriever"]

logger = logging.getLogger(__name__)


class FeedbackRetriever(WholeConfig):
    """Ranks what any retriever finds by what people said of it under similar questions.

    No chat model is asked, and the question is embedded at most once. Each retrieval is
    recorded in the store under a trace id, which the documents carry, so that a rating goes
    to what it is about. A broken or slow store costs the adjustment, never the answer.

    The run's metadata say who asks: `user_id`, and `session_id` or else `thread_id`. Under
    `feedback_trace_id` the caller may hand over an id made with `new_trace_id()`; a further
    search for the same question joins its trace with a higher `feedback_attempt`.

    Results are copies, with `relevance_score` and `feedback` (`trace_id`, `chunk_id`,
    `base_rank`, `origin`, `belief`, `multiplier`, and `ranker_rank` where a learned ranker
    ordered the pool) in their metadata; what else stands in a dict under `feedback` is kept.
    `trace_id_of` also knows the id of an empty result. `k` may be given in each call, and every
    other option of a call is handed to the base retriever.

    A pinned chunk comes first for its question, and well-liked chunks are added that the base
    did not find. If a filter in `search_kwargs`, or a function of your own, keeps tenants
    apart, then give each tenant a `store.scoped(...)`, or give `allow`. Without `allow`
    nothing is added in a call that passes options, such as `filter=`, to the base.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of
        >>> texts = ["Refunds take 14 days.", "Servers reboot at night.", "Plans are monthly."]
        >>> embeddings = DeterministicFakeEmbedding(size=8)
        >>> base = InMemoryVectorStore.from_texts(texts, embeddings).as_retriever()
        >>> store = FeedbackStore("sqlite://", embeddings=embeddings)
        >>> retriever = FeedbackRetriever(base_retriever=base, store=store)
        >>> found = retriever.invoke("How long?", {"metadata": {"user_id": "ann"}})
        >>> event_id = store.rate(trace_id_of(found), 5, target=found[2])
        >>> again = retriever.invoke("how long")
        >>> [text.page_content for text in again].index(found[2].page_content)
        1
        >>> round(again[1].metadata["feedback"]["multiplier"], 3)
        1.222
    """

    base_retriever: Annotated[Any, AfterValidator(runnable)]
    """Any Runnable from a string to documents."""
    store: FeedbackStore
    """Where retrievals and votes are kept. Its namespace is the only one that is read."""
    k: int = Field(default=4, ge=1)
    """The most documents that a call returns, but for those of `foldback`."""
    fetch_k: int | None = Field(default=None, ge=1)
    """How many the base is asked for, and the most of its documents that are ranked; None:
    the greater of 20 and 4 `k`. It is kept to: a pool smaller than `k`, or one of which a `gate`
    hides too much, returns fewer than `k`, and what is added. Doubled where the fallback
    retriever is asked too. A FAISS index with a `filter`, and no `fetch_k` of its own, is
    searched until that leaves `k`, or to its end."""
    base_k_arg: str | None = "k"
    """The option by which the base is told `fetch_k`; passed only if the base takes an option
    of that name. None: never; the base then returns as many as it always does."""
    policy: RankingPolicy = Field(default_factory=KernelBelief)
    """How feedback becomes an order."""
    inject: int = Field(default=3, ge=0)
    """The most chunks that are added to what the base found, for a belief of .1 or more."""
    ranker: Annotated[Any, AfterValidator(ranker_like)] = "active"
    """What orders the pool before feedback acts on it: `active` is the learned ranker that was
    promoted in this namespace, if any, followed within 30 seconds; or one of your own; None: the
    base's order stands. One that fails costs its order, never the answer. A policy that reads a
    score of the base's own (`score_key`) keeps to that."""
    ranker_features: SkipValidation[Mapping[str, Scorer | PairScorer]] = Field({}, repr=False)
    """Features of your own that stored rankers were trained with, by name."""
    load_ranker: SkipValidation[LoadRanker | None] = None
    """Makes a ranker of what the store holds of it, for estimators of your own; it gives None
    for those of this package."""
    allow: Annotated[Allow | None, AfterValidator(plain_function)] = None
    """Tells whether a chunk that the base did not return may be shown in a run with these
    metadata. An error counts as a refusal. In async calls it runs in a worker thread."""
    gate: SkipValidation[Gate | None] = None
    """Hides junk, unless it is pinned, and has the base asked for more, up to 1,000 and unless
    `fetch_k` is set, until `k` others remain: `index.gate.QualityGate(store)`."""
    foldback: SkipValidation[ExtraSlot | None] = None
    """Adds to the `k` chunks, in one slot more, what an accepted answer to such a question rested
    on: `index.foldback.FoldBack(store, ...)`. As for all that is added, see `allow`."""
    resolve: Annotated[Resolve | None, AfterValidator(plain_function)] = None
    """Reads chunks from the index by their ids, such as `vector_store.get_by_ids`: those that
    are gone or changed are not added, nor are those that have no id of their own. Without it,
    chunks seen in the last 30 days are added as they were. In async calls it runs in a worker
    thread."""
    fallback_retriever: Annotated[Any, AfterValidator(runnable)] = None
    """Another search, asked too where answers to such questions failed more often than not."""
    id_field: str | None = None
    """The metadata field that holds a chunk's id, where `Document.id` does not."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    _once: Once = PrivateAttr(default_factory=lambda: Once(logger))
    _rankers: Rankers | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        check_parts(self)
        return self

    @property
    def once(self) -> Once:
        """Says things once in this retriever's life."""
        return self._once

    @property
    def rankers(self) -> Rankers:
        """Knows the ranker to go by."""
        parts = (self.store, self.ranker, self.ranker_features, self.load_ranker)
        if self._rankers is None or not self._rankers.is_made_of(*parts):
            self._rankers = Rankers(*parts, self._once)
        return self._rankers

    def explain(self, trace_id: str) -> list[dict[str, Any]]:
        """Say of each chunk of a retrieval why it stood where it did.

        Args:
            trace_id: See `trace_id_of`.

        Returns:
            One dict for each candidate, in final order, with those that were considered and
            not returned, of each search of the trace: `chunk_id`, `source`, `attempt`,
            `returned`, `base_rank` (from 0; None: the base did not return it), `final_rank`,
            `origin`, `ranker_rank` (in the pool as a learned ranker ordered it), `belief`,
            `multiplier`, `evidence`, `why`. All but `evidence` are as they
            were at the retrieval; `evidence` is what is known now, by past question:
            `question`, `similarity`, `kernel` (its weight, from 0 to 1), `positive`,
            `negative` and `signals` (`signal`, `rating`, `polarity`, `weight`, `actor`,
            `received_at`).

        Raises:
            UnknownTraceError: If the store has no such trace.
            StoreError: If the store cannot be read.
        """
        return explained(self.store, self.policy, trace_id, self._once)

    async def aexplain(self, trace_id: str) -> list[dict[str, Any]]:
        """Do as `explain`, without blocking the event loop."""
        return await run_in_executor(None, self.explain, trace_id)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        _feedback_texts: int = 0,
        **options: Any,
    ) -> list[Document]:
        config = child_config(options, run_manager)
        retrieval = self._retrieval(
            query, run_manager.metadata, config, k, options, texts=_feedback_texts
        )
        with retrieval.claimed():
            retrieval.open()
            wanted = self.store.embeddings if retrieval.embeds else None
            retrieval.look_up(embed(wanted, retrieval.question, self._once))
            base_config = retrieval.base_config
            call: Call | None = retrieval.first_call()
            while call is not None:
                found = ask(self.base_retriever, query, base_config, call.options)
                call = retrieval.next_call(call, found)
            more: list[Document] = []
            if retrieval.widens:
                try:
                    more = ask(self.fallback_retriever, query, config, retrieval.fallback_options)
                except Exception as error:  # noqa: BLE001
                    self._warn_of_fallback(error)
            return retrieval.finish(found, more)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        _feedback_texts: int = 0,
        **options: Any,
    ) -> list[Document]:
        config = child_config(options, run_manager)
        retrieval = self._retrieval(
            query, run_manager.metadata, config, k, options, texts=_feedback_texts
        )
        with retrieval.claimed():
            if retrieval.reads_to_open:
                await run_in_executor(None, retrieval.open)
            else:
                retrieval.open()
            wanted = self.store.embeddings if retrieval.embeds else None
            vector = await aembed(wanted, retrieval.question, self._once)
            await run_in_executor(None, retrieval.look_up, vector)
            base_config = retrieval.base_config
            call: Call | None = retrieval.first_call()
            while call is not None:
                found = await aask(self.base_retriever, query, base_config, call.options)
                call = await retrieval.anext_call(call, found)
            more: list[Document] = []
            if retrieval.widens:
                try:
                    options = retrieval.fallback_options
                    more = await aask(self.fallback_retriever, query, config, options)
                except Exception as error:  # noqa: BLE001
                    self._warn_of_fallback(error)
            return await run_in_executor(None, retrieval.finish, found, more)

    def _retrieval(
        self,
        query: str,
        metadata: dict[str, Any],
        config: RunnableConfig,
        k: int | None,
        options: dict[str, Any],
        *,
        texts: int,
    ) -> Retrieval:
        return Retrieval(
            self,
            Asked.from_run(query, metadata),
            k=self.k if k is None else checked_k(k),
            options=options,
            config=config,
            run=metadata,
            texts=texts,
        )

    def _warn_of_fallback(self, error: Exception) -> None:
        self._once.warn("fallback", "The fallback retriever failed, the base did not: %r", error)
