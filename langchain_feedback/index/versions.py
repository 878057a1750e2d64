"""Versions of an index, side by side: one is built and checked while another one is searched.

The registry's row is the truth. A version goes from `building` over `ready` to `active` and
`retired`; of a namespace one is active, and which one changes in one transaction, only if the
one before is still what its caller thinks it is. `SwappableRetriever` follows the row.
"""

from collections.abc import Iterable

from langchain_core.documents import Document

from langchain_feedback.index._versions.base import Hook, OpenVersion
from langchain_feedback.index._versions.building import Building
from langchain_feedback.index._versions.carry import Carried, carry_evidence
from langchain_feedback.index._versions.checks import check_embedder
from langchain_feedback.index._versions.clearing import Clearing
from langchain_feedback.index._versions.embedder import (
    EmbedderFingerprint,
    embeddings_of,
    fingerprint_of,
)
from langchain_feedback.index._versions.folders import checked_folder, sealed_folder
from langchain_feedback.index._versions.rows import Activation, IndexVersion
from langchain_feedback.index._versions.switching import Switched, Switching
from langchain_feedback.index.errors import (
    EmbedderMismatchError,
    NoActiveVersionError,
    UnknownVersionError,
    VersionConflictError,
    VersionError,
    VersionRefusedError,
)
from langchain_feedback.store.parts.base import twin

__all__ = [
    "Activation",
    "Carried",
    "EmbedderFingerprint",
    "EmbedderMismatchError",
    "Hook",
    "IndexRegistry",
    "IndexVersion",
    "NoActiveVersionError",
    "OpenVersion",
    "Switched",
    "UnknownVersionError",
    "VersionConflictError",
    "VersionError",
    "VersionRefusedError",
    "carry_evidence",
    "check_embedder",
    "checked_folder",
    "embeddings_of",
    "fingerprint_of",
    "sealed_folder",
]


class IndexRegistry(Building, Switching, Clearing):
    """Knows the versions of one index: that of a store's namespace.

    Every method has a twin with an `a` before its name.

    Args:
        store: Whose database, and whose namespace.
        hooks: What is told of each switch after it is kept, in order: `QdrantAlias`,
            `PostgresView`, or any function of an `IndexVersion`.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_feedback import FeedbackStore
        >>> embeddings = DeterministicFakeEmbedding(size=8)
        >>> index = InMemoryVectorStore.from_texts(["Refunds take 14 days."], embeddings)
        >>> registry = IndexRegistry(FeedbackStore("sqlite://"))
        >>> registry.register("v1", embeddings, locator={"folder": "v1"}).status
        'building'
        >>> open_index = lambda version: index.as_retriever()
        >>> registry.ready("v1", open_version=open_index, chunk_count=1).status
        'ready'
        >>> registry.activate("v1", expected=None).active.version
        'v1'
    """

    def carry_evidence(
        self, old: Iterable[Document], new: Iterable[Document], *, id_field: str | None = None
    ) -> Carried:
        """Let chunks of a new version have the evidence of old ones: see `Carried`.

        Equal texts of the same source have it by themselves. Do it when the new version has
        become active: what it makes known may be added to answers from then on.

        Args:
            old: The documents of the version before.
            new: The documents of the new one.
            id_field: The metadata field that holds a chunk's id, if any.
        """
        return carry_evidence(self.store, old, new, id_field=id_field)

    acarry_evidence = twin(carry_evidence)
