"""A retriever over whichever version of an index is active: it follows a swap by itself.

An alias of a vector store moves the documents, and leaves the embedder of the questions behind.
Here a version is opened whole, with its embedder, which is checked; and a request is answered
from one version, the one that it began with.
"""

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langchain_core.runnables.utils import ConfigurableFieldSpec
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation

from langchain_feedback.documents import copy_document
from langchain_feedback.index._versions.following import Follower, Opened
from langchain_feedback.index.versions import IndexRegistry, IndexVersion
from langchain_feedback.retrievers._whole_config import WholeConfig, child_config
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.traces import (
    INDEX_VERSION_KEY,
    MARKS_KEY,
    SEARCHED_FOR_KEY,
    TRACE_ID_KEY,
    Retrieved,
    marks_of,
)

__all__ = ["VERSION_MARK", "SwappableRetriever"]

VERSION_MARK = "index_version"
"""The key in a document's `metadata["feedback"]` that names the version it was found in."""


class SwappableRetriever(WholeConfig):
    """Searches the active version of an index, and follows the registry from version to version.

    A version that cannot be opened, or that is opened with another embedder than it was made
    with, is no reason to stop: the one before goes on, and the log says so once. The request
    that finds a new version opens it; all others go on with the old one meanwhile.

    All searches of one request, known by the trace id that came with it or that the first one
    was recorded under, are made in the version that the first one was made in, for up to five
    minutes, and of the newest thousand requests. Documents are copies that name their version
    in `metadata["feedback"]["index_version"]`.

    Let `open_version` return a `FeedbackRetriever` with `resolve=`, and give this one its
    `store`: then chunks that feedback adds are of the same version as well, traces record the
    version (`traces.index_version`), and a graph finds the store. `k` and other options of a
    call are handed on.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_feedback import FeedbackStore
        >>> from langchain_feedback.index.versions import IndexRegistry
        >>> embeddings = DeterministicFakeEmbedding(size=8)
        >>> made = {
        ...     "v1": InMemoryVectorStore.from_texts(["Refunds take 14 days."], embeddings),
        ...     "v2": InMemoryVectorStore.from_texts(["Refunds take 10 days."], embeddings),
        ... }
        >>> def open_index(version):
        ...     return made[version.version].as_retriever()
        >>> registry = IndexRegistry(FeedbackStore("sqlite://"))
        >>> for name in made:
        ...     _ = registry.register(name, embeddings)
        ...     _ = registry.ready(name, open_version=open_index, chunk_count=1)
        >>> _ = registry.activate("v1", expected=None)
        >>> live = SwappableRetriever(registry=registry, open_version=open_index, check_every=0)
        >>> live.invoke("How long?")[0].page_content
        'Refunds take 14 days.'
        >>> _ = registry.activate("v2", expected="v1")
        >>> live.invoke("How long?")[0].page_content
        'Refunds take 10 days.'
    """

    registry: SkipValidation[IndexRegistry]
    """Says which version is active."""
    open_version: SkipValidation[Callable[[IndexVersion], Any]]
    """Opens a version by its `locator`: returns any Runnable from a string to documents. In
    async calls it runs in a worker thread."""
    check_every: float = Field(default=1.0, ge=0)
    """After how many seconds the registry is looked at again; 0: with each call."""
    embedder_of: SkipValidation[Callable[[Any], Any] | None] = None
    """Returns the embedder of what `open_version` returned; None: that of its vector store."""
    store: FeedbackStore | None = None
    """The store of the `FeedbackRetriever` that `open_version` returns, if it does."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    _follower: Follower = PrivateAttr()

    def model_post_init(self, _: Any, /) -> None:
        """Make what follows the registry; nothing is read or opened yet."""
        self._follower = Follower(
            self.registry, self.open_version, self.check_every, self.embedder_of
        )

    @property
    def base_retriever(self) -> Any:
        """What is open now, for those who look which options it takes; opened where it is not.

        On an event loop nothing is opened: there it is None before the first search.
        """
        opened = self._follower.held()
        return None if opened is None else opened.retriever

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """What `config["configurable"]` changes of the open version."""
        return [] if self.base_retriever is None else list(self.base_retriever.config_specs)

    def current(self) -> IndexVersion:
        """Return the version that the next request is answered from; opens it where it is new.

        A program may call it when it starts, so that the first question does not wait.

        Raises:
            NoActiveVersionError: If none is active.
            EmbedderMismatchError: If it has another embedder than it was made with.
            StoreError: If the registry cannot be read.
        """
        return self._follower.current().version

    async def acurrent(self) -> IndexVersion:
        """Do as `current`, without blocking the event loop."""
        return await run_in_executor(None, self.current)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        opened = self._follower.of_request(_request_of(run_manager.metadata))
        config = _child_config(options, run_manager, opened)
        found = opened.retriever.invoke(query, config, **options)
        return self._kept(found, opened)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        follower = self._follower
        request = _request_of(run_manager.metadata)
        opened = follower.at_once(request)
        if opened is None:
            opened = await run_in_executor(None, follower.of_request, request)
        config = _child_config(options, run_manager, opened)
        found = await _asked(opened.retriever, query, config, options)
        return self._kept(found, opened)

    def _kept(self, found: Any, opened: Opened) -> list[Document]:
        """Return copies that name the version, in which searches for the same trace go on."""
        documents = _marked(found, opened)
        if isinstance(documents, Retrieved):
            # The id that it was recorded under: nobody may have named one before.
            self._follower.began(documents.trace_id, opened)
        return documents


async def _asked(
    retriever: Any, query: str, config: RunnableConfig, options: Mapping[str, Any]
) -> Any:
    own = getattr(type(retriever), "_aget_relevant_documents", None)
    if options and own is BaseRetriever._aget_relevant_documents:  # noqa: SLF001
        # LangChain's own async hook runs the sync one in a thread, but takes no options.
        return await run_in_executor(config, retriever.invoke, query, config, **options)
    return await retriever.ainvoke(query, config, **options)


def _marked(found: Any, opened: Opened) -> list[Document]:
    """Return copies that name the version; what is a retrieval of ours stays one."""
    documents = [copy_document(document) for document in found or ()]
    for document in documents:
        marks = marks_of(document) | {VERSION_MARK: opened.version.version}
        document.metadata[MARKS_KEY] = marks
    return Retrieved(documents, found.trace_id) if isinstance(found, Retrieved) else documents


def _request_of(run: Mapping[str, Any]) -> str | None:
    """Return the trace id of the request, as a caller or a `FeedbackRetriever` above names it."""
    found = (run.get(name) for name in (TRACE_ID_KEY, SEARCHED_FOR_KEY))
    return next((name for name in found if isinstance(name, str) and name), None)


def _child_config(
    options: dict[str, Any],
    manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
    opened: Opened,
) -> RunnableConfig:
    """Take the run's config out of the options, and tell runs below this one the version."""
    config = child_config(options, manager)
    told = {INDEX_VERSION_KEY: opened.version.version}
    return {**config, "metadata": {**(config.get("metadata") or {}), **told}}
