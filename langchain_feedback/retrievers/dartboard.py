"""Retrieve a set of documents that together say most about a question, without repeats."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    Callbacks,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever, RetrieverLike
from langchain_core.runnables import RunnableConfig
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, Field, SkipValidation, model_validator

from langchain_feedback.retrievers._base_call import aask, ask, names
from langchain_feedback.retrievers._choosing import Chooser, checked_k
from langchain_feedback.retrievers._growing import TEXTS, Call, texts_of
from langchain_feedback.traces import marks_of

__all__ = ["DartboardCompressor", "DartboardRetriever"]


class DartboardCompressor(Chooser, BaseDocumentCompressor):
    """Keep the `k` documents that together say most about the question.

    For `ContextualCompressionRetriever`, `DocumentCompressorPipeline`, or after any retriever of
    yours. It selects by relevant information gain (`ranking.dartboard`); what it returns are
    copies with the gain as `metadata["relevance_score"]`, best first, and the near-duplicates
    in the pool as `metadata["feedback"]["duplicates"]`, each with `chunk_id` and `similarity`.

    Texts are compared by vectors: those of `vector_store` where it can give them, else made by
    `embeddings`, with one embedding for the question. A `cross_encoder` supplies the
    question's side alone (the paper's hybrid).

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> compressor = DartboardCompressor(embeddings=DeterministicFakeEmbedding(size=8), k=2)
        >>> found = [Document("Export it."), Document("Export it."), Document("Cancel it.")]
        >>> kept = compressor.compress_documents(found, "How do I get my data out?")
        >>> sorted(document.page_content for document in kept)
        ['Cancel it.', 'Export it.']
    """

    model_config = ConfigDict(extra="forbid")

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Select from documents, in the order of their gain.

        Args:
            documents: The pool; equally good texts keep its order.
            query: The question.
            callbacks: Not used: nothing here is a run of its own.

        Raises:
            ValueError: The vectors' lengths differ, or the scores are not of `score_scale`.
        """
        del callbacks
        return self._chosen(query, documents, self.k)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Select as `compress_documents` does, without blocking the event loop."""
        del callbacks
        return await self._achosen(query, documents, self.k)


class DartboardRetriever(Chooser, BaseRetriever):
    """Retrieve more than `k` documents and keep the `k` that together say most.

    The pool is `k * oversampling` documents of the base. Where they hold fewer than `k` distinct
    texts, as in an index with copies, it is doubled until they do or the base has no more
    (`adaptive`). `k` and every other option of a call (`filter`) reach the base; a growing pool
    embeds the question anew each time.

    Give it a `base_retriever` or a `vector_store`. The base's own vector store is found where it
    has one; vectors and settings are those of `DartboardCompressor`, and so is what it returns.

    With a `FeedbackRetriever`: put that outside, `FeedbackRetriever(base_retriever=this)`. Its
    pool then holds no repeats, feedback has the last word on the order, and what it records is
    what was returned. Inside, as this one's `base_retriever`, its feedback says only what is in
    the pool (injected and pinned chunks too), and the documents keep its notes. It is asked
    once and grows the pool itself, unless its `fetch_k` is set, so that each call is one search
    of one trace. Use it so where diversity matters more than the order, and rate single sources,
    not whole answers: the whole pool counts as returned.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        >>> _ = store.add_texts(["Export it."] * 30 + ["Cancel it."])
        >>> retriever = DartboardRetriever(vector_store=store, k=2)
        >>> sorted(document.page_content for document in retriever.invoke("Export my data"))
        ['Cancel it.', 'Export it.']
    """

    base_retriever: SkipValidation[RetrieverLike | None] = Field(default=None, repr=False)
    """Any retriever. Default: similarity search of `vector_store`."""
    oversampling: int = Field(default=3, ge=1)
    """The pool is this many times `k`."""
    adaptive: bool = True
    """Let the pool grow until it holds `k` distinct texts."""
    base_k_arg: str | None = "k"
    """The option by which the base takes the number of documents; passed only where the base
    takes it. None: the base decides, and the pool is what it gives."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _has_a_base(self) -> Self:
        if self.base_retriever is None and self.vector_store is None:
            msg = "DartboardRetriever needs a `base_retriever` or a `vector_store`."
            raise ValueError(msg)
        if isinstance(self.base_retriever, VectorStore):
            msg = "That is a vector store: pass it as `vector_store`."
            raise ValueError(msg)  # noqa: TRY004  pydantic reports a ValueError
        if self.vector_store is not None and not isinstance(self.vector_store, VectorStore):
            msg = "That is no vector store: pass a retriever as `base_retriever`."
            raise ValueError(msg)
        return self

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        **options: Any,
    ) -> list[Document]:
        k = self.k if k is None else checked_k(k)
        plan = self._plan(k, options)
        pool: list[Document] = []
        while plan is not None:
            config = RunnableConfig(callbacks=run_manager.get_child())
            pool = ask(plan.base, query, config, plan.call.options)
            plan = plan.after(pool)
        return self._chosen(query, pool, k)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        **options: Any,
    ) -> list[Document]:
        k = self.k if k is None else checked_k(k)
        plan = self._plan(k, options)
        pool: list[Document] = []
        while plan is not None:
            config = RunnableConfig(callbacks=run_manager.get_child())
            pool = await aask(plan.base, query, config, plan.call.options)
            plan = plan.after(pool)
        return await self._achosen(query, pool, k)

    def _plan(self, k: int, options: dict[str, Any]) -> "_Plan | None":
        """Make the first call of the base, None where nothing is asked for."""
        if not k:
            return None
        base = self._base()
        if self.adaptive and names(base, TEXTS):
            options = options | {TEXTS: k}
        call = Call.first(base, options, k * self.oversampling, self.base_k_arg)
        return _Plan(base, call, k, self.adaptive)

    def _base(self) -> RetrieverLike:
        if self.base_retriever is not None:
            return self.base_retriever
        # One of the two is there: the constructor has seen to it.
        return cast("VectorStore", self.vector_store).as_retriever()

    def _vector_store(self) -> VectorStore | None:
        return self.vector_store or _store_of(self.base_retriever)


class _Plan(NamedTuple):
    """One call of the base, and what for."""

    base: RetrieverLike
    call: Call
    k: int
    adaptive: bool

    def after(self, pool: Sequence[Document]) -> "_Plan | None":
        """Plan the next call, None where this pool suffices or is all there is."""
        if not self.adaptive or texts_of(pool) >= self.k or any(map(_is_recorded, pool)):
            return None
        call = self.call.after(pool)
        return None if call is None else self._replace(call=call)


def _is_recorded(document: Document) -> bool:
    """Say whether a `FeedbackRetriever` found it.

    Each search of that is recorded as another; where it can be told to, it grows its pool itself.
    """
    return "trace_id" in marks_of(document)


def _store_of(base: Any) -> VectorStore | None:
    """Find the vector store behind a retriever."""
    for name in ("vectorstore", "vector_store"):
        if isinstance(store := getattr(base, name, None), VectorStore):
            return store
    for name in ("bound", "base_retriever"):
        if (inner := getattr(base, name, None)) is not None:
            return _store_of(inner)
    return None
