"""One index of yours, as the jobs, the health check and the command line need to know it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_feedback.documents import chunk_key
from langchain_feedback.errors import LangChainFeedbackError

if TYPE_CHECKING:
    from langchain_core.vectorstores import VectorStore

    from langchain_feedback.index._managed.wanted import Wanted
    from langchain_feedback.index.catalog import Changes, ChunkCatalog
    from langchain_feedback.index.duplicates import Chunk
    from langchain_feedback.index.foldback import FoldBack
    from langchain_feedback.index.gate import QualityGate
    from langchain_feedback.index.jobs import Shard
    from langchain_feedback.index.retirement import Retirement, RetirementRules
    from langchain_feedback.index.versions import Hook, IndexRegistry, OpenVersion
    from langchain_feedback.index.writer import IndexWriter
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["IndexSetupError", "ManagedIndex"]

_LONGEST = 200
"""Characters of a message that shows what other people's code returned."""


class IndexSetupError(LangChainFeedbackError, ValueError):
    """An index does not say what a job needs to know; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class ManagedIndex:
    """Says where an index lies and what belongs in it; every job takes what it needs.

    Write one function that returns it, and name that function to the command line:
    `langchain-feedback index health --index my_app:index`.

    Attributes:
        vector_store: Where the chunks are. Jobs that only read texts do without.
        name: Of the ledger of what was written; one for each vector store or collection.
        documents: Loads all chunks that belong in the index. It is called once a job.
        foldback: Makes the fold-back of a store, on a vector store of its own.
        open_version: Makes the retriever of a version, as `SwappableRetriever` calls it.
        embeddings: What the index is searched with; None: that of the vector store.
        id_field: Where in a chunk's metadata its key is; None: see `documents.chunk_key`.
        scope_field: Where in a chunk's metadata it says who may see it; equal texts of two
            scopes are no duplicates.
        persist: Called with the vector store after each write, such as `SavedFolder(...).save`.
        hooks: What is told of an activation, such as a `QdrantAlias`.
        rules: Of retirement; None: the defaults.
        drop_junk: Whether what the gate finds wanting stays out of the index, see `wanted`.
        drop_copies: Whether of exact copies only the first is in the index, see `wanted`.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_feedback import FeedbackStore
        >>> def index():
        ...     vectors = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        ...     return ManagedIndex(
        ...         vector_store=vectors,
        ...         documents=lambda: [Document("Refunds take 14 days.", id="refunds-1")],
        ...     )
        >>> managed, store = index(), FeedbackStore("sqlite://")
        >>> managed.writer(store).plan(managed.load()).counts
        {'add': 1, 'replace': 0, 'remove': 0, 'repair': 0, 'keep': 0}
    """

    vector_store: "VectorStore | None" = None
    name: str = "main"
    documents: Callable[[], Iterable[Document]] | None = None
    foldback: "Callable[[FeedbackStore], FoldBack] | None" = None
    open_version: "OpenVersion | None" = None
    embeddings: Embeddings | None = None
    id_field: str | None = None
    scope_field: str | None = None
    persist: "Callable[[VectorStore], object] | None" = None
    hooks: "Sequence[Hook]" = ()
    rules: "RetirementRules | None" = None
    drop_junk: bool = False
    drop_copies: bool = False

    def load(self) -> Iterable[Document]:
        """Return all chunks that belong in the index.

        Raises:
            IndexSetupError: If the index does not say how to load them, or its loader returns
                something else; while they are read, if one of them is no document.
        """
        loaded = self._said("documents")()
        if isinstance(loaded, str) or not isinstance(loaded, Iterable):
            msg = f"ManagedIndex(documents=...) is to return documents, and returned {loaded!r}."
            raise IndexSetupError(msg[:_LONGEST])
        return map(_document, loaded)

    def wanted(
        self,
        store: "FeedbackStore",
        documents: Iterable[Document],
        *,
        drop_junk: bool | None = None,
        drop_copies: bool | None = None,
    ) -> "Wanted":
        """Part what the loader brings into what is to be in the index, and what is not.

        A retired chunk stays out although the loader still brings it; one that is only hidden
        stays where it is. Nothing is written.

        Args:
            store: Knows what was retired.
            documents: All that the loader brings.
            drop_junk: Whether what the gate finds wanting stays out, too, unless somebody
                restored it as it is; None: as the index says.
            drop_copies: Whether of exact copies in one scope only the first stays: the one that
                the catalog saw first, else the loader's first; see `exact_duplicates`. None: as
                the index says.

        Raises:
            IndexSetupError: If the index has no vector store.
            StoreError: If the store cannot be read.
        """
        from langchain_feedback.index._managed.wanted import wanted  # noqa: PLC0415

        return wanted(
            self.gate(store),
            self.writer(store),
            documents,
            drop_junk=self.drop_junk if drop_junk is None else drop_junk,
            drop_copies=self.drop_copies if drop_copies is None else drop_copies,
            scope_field=self.scope_field,
        )

    def differences(self, store: "FeedbackStore", wanted: "Wanted") -> "Changes":
        """Return how the catalog differs from what the loader brings; nothing is written.

        Raises:
            StoreError: If the store cannot be read.
        """
        from langchain_feedback.index._managed.syncing import differences  # noqa: PLC0415

        return differences(store, wanted, self.id_field)

    def take_down(self, store: "FeedbackStore", wanted: "Wanted") -> None:
        """Let the catalog know what the loader brings; junk and copies left out are missing.

        Raises:
            ValueError: If it brings nothing, and the catalog holds something.
            StoreError: If the store cannot be read or written.
        """
        from langchain_feedback.index._managed.syncing import take_down  # noqa: PLC0415

        take_down(self.catalog(store), self.gate(store), wanted)

    def corpus(
        self, store: "FeedbackStore", *, shard: "Shard | None" = None
    ) -> Iterator[Document]:
        """Yield all chunks: those of the loader, or else those that the store knows.

        Args:
            store: Whose chunks, where there is no loader.
            shard: Only sources of this share; chunks without a source go by their id.
        """
        from langchain_feedback.index.jobs import catalog_documents  # noqa: PLC0415

        if self.documents is None:
            yield from catalog_documents(store, shard=shard)
            return
        for document in self.load():
            source = str(document.metadata.get("source") or chunk_key(document, self.id_field))
            if shard is None or shard.holds(source):
                yield document

    def size(self, store: "FeedbackStore") -> int | None:
        """Return how many chunks `corpus` yields; None: only the loader knows."""
        from langchain_feedback.index._managed.known import catalog_size  # noqa: PLC0415

        return catalog_size(store) if self.documents is None else None

    def chunks(self, store: "FeedbackStore") -> "list[Chunk]":
        """Return all chunks to compare: those first that shall stay where two say the same."""
        from langchain_feedback.index._managed.copies import first_ones_first  # noqa: PLC0415
        from langchain_feedback.index._managed.known import catalog_chunks  # noqa: PLC0415

        if self.documents is None:
            return catalog_chunks(store)
        return first_ones_first(store, self.load(), self.id_field, self.scope_field)

    def writer(self, store: "FeedbackStore", **options: Any) -> "IndexWriter":
        """Make what writes to the index; options are those of `IndexWriter`."""
        from langchain_feedback.index.ledger import TableLedger  # noqa: PLC0415  they take long
        from langchain_feedback.index.writer import IndexWriter  # noqa: PLC0415

        ledger = TableLedger(store, self.name)
        options = {"id_field": self.id_field, "persist": self.persist} | options
        return IndexWriter(self._said("vector_store"), ledger, **options)

    def catalog(self, store: "FeedbackStore") -> "ChunkCatalog":
        """Make what compares the documents with what the store knows of them."""
        from langchain_feedback.index.catalog import ChunkCatalog  # noqa: PLC0415

        return ChunkCatalog(store, id_field=self.id_field, scope_field=self.scope_field)

    def gate(self, store: "FeedbackStore") -> "QualityGate":
        """Make the gate that tells junk and what was taken out."""
        from langchain_feedback.index.gate import QualityGate  # noqa: PLC0415

        return QualityGate(store, id_field=self.id_field)

    def retirement(self, store: "FeedbackStore") -> "Retirement":
        """Make what takes chunks out of the index."""
        from langchain_feedback.index.retirement import Retirement  # noqa: PLC0415

        return Retirement(store, self.writer(store), rules=self.rules)

    def folded(self, store: "FeedbackStore") -> "FoldBack":
        """Make the fold-back.

        Raises:
            IndexSetupError: If the index has none.
        """
        return self._said("foldback")(store)  # type: ignore[no-any-return]

    def registry(self, store: "FeedbackStore") -> "IndexRegistry":
        """Make the registry of the index's versions."""
        from langchain_feedback.index.versions import IndexRegistry  # noqa: PLC0415

        return IndexRegistry(store, hooks=self.hooks)

    def embedder(self) -> Embeddings | None:
        """Return what the index is searched with; None where nothing tells."""
        return self.embeddings or getattr(self.vector_store, "embeddings", None)

    def _said(self, name: str) -> Any:
        value = getattr(self, name)
        if value is None:
            msg = f"This needs ManagedIndex({name}=...), which your index does not give."
            raise IndexSetupError(msg)
        return value


def _document(loaded: Any) -> Document:
    if not isinstance(loaded, Document):
        msg = f"ManagedIndex(documents=...) is to return documents, and one of them is {loaded!r}."
        raise IndexSetupError(msg[:_LONGEST])
    return loaded
