"""Keep junk out of an index, and hide what is in it: one gate for both sides.

Before indexing, `split` judges texts and keeps the results by content hash. At query time
`hidden` judges nothing: it looks up what is known of the chunks that a search returned, in one
statement, so it works alike with every vector store, whatever filters that takes or ignores.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import (
    BaseDocumentCompressor,
    BaseDocumentTransformer,
    Document,
)
from langchain_core.runnables.config import run_in_executor
from pydantic import ConfigDict, SkipValidation

from langchain_feedback.documents import chunk_key, content_hash, text_key
from langchain_feedback.index._gating.allowing import Allowing
from langchain_feedback.index._gating.overrides import Allowed, among_allowed
from langchain_feedback.index._gating.scores import Scored, keep_scores, scored_as, scores_of
from langchain_feedback.index._gating.standing import Standing, standings
from langchain_feedback.index.ledger import in_batches
from langchain_feedback.index.quality import score_chunk
from langchain_feedback.store.forks import renew_after_fork
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import clock, reading, writing
from langchain_feedback.traces import storable

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Allowed", "GateCounts", "QualityFilter", "QualityGate"]

_BLOCK = 1_000
"""Texts that are judged before they are written."""

_ASKED = 2_000
"""Chunks of one look-up."""


@dataclass(frozen=True)
class GateCounts:
    """What a gate saw of retrieved documents in its life."""

    checked: int = 0
    hidden: int = 0
    unknown: int = 0
    """Those whose text nobody has scored; they passed unless they were demoted."""


class QualityGate(Allowing):
    """Says which chunks are junk, and why, and which are to stay hidden.

    A chunk is hidden that a gating check found wanting (`garbled`, `repeated`, `navigation`,
    `no_statement`) and that nobody allowed, or that was `demoted` or `retired`, as long as its
    text is the one that this was said of. Nothing here is a weight: what passes is ranked as
    before.

    Args:
        store: Keeps the results; demotions are read in its namespace.
        id_field: A metadata field that holds a stable id, as `FeedbackRetriever` has it.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> gate = QualityGate(FeedbackStore("sqlite://"))
        >>> found = [Document("Refunds take 14 days."), Document("Contents")]
        >>> kept, dropped = gate.split(found)
        >>> [document.page_content for document in kept], dropped[0][1]
        (['Refunds take 14 days.'], ['no_statement'])
        >>> gate.hidden(found)
        {1: ('no_statement',)}
        >>> gate.allow(found[1:], actor="rita", reason="It is the title that people ask for.")
        1
        >>> gate.hidden(found), len(gate.split(found)[0])
        ({}, 2)
    """

    def __init__(self, store: "FeedbackStore", *, id_field: str | None = None) -> None:
        self.store, self.id_field = store, id_field
        self._counts = GateCounts()
        self._make_locks()
        renew_after_fork(self, "_make_locks")

    def _make_locks(self) -> None:
        self._counting = threading.Lock()

    @property
    def counts(self) -> GateCounts:
        """How many documents `hidden` saw, hid and did not know, since this gate was made."""
        return self._counts

    def split(
        self, documents: Iterable[Document]
    ) -> tuple[list[Document], list[tuple[Document, list[str]]]]:
        """Part documents into what is worth indexing and what is not; scores are kept.

        Args:
            documents: The chunks, before `add_documents`.

        Returns:
            Those to index, also what somebody allowed, and those not to, each with the reasons;
            both in order, the very objects that were given.

        Raises:
            StoreError: If the database cannot be read or written.
        """
        documents = list(documents)
        kept: list[Document] = []
        dropped: list[tuple[Document, list[str]]] = []
        verdicts = self.score(documents)
        gated = [one for one, scored in zip(documents, verdicts, strict=True) if scored.gated]
        allowed = self._among_allowed(gated)
        for document, scored in zip(documents, verdicts, strict=True):
            if scored.gated and content_hash(document) not in allowed:
                dropped.append((document, list(scored.gating)))
            else:
                kept.append(document)
        return kept, dropped

    def score(self, documents: Iterable[Document]) -> list[Scored]:
        """Return what the checks say of each document; unknown texts are judged and kept.

        A text that is known under the present `SCORING_VERSION` is not judged again. Texts are
        written as they are judged: what was done before a crash need not be done again. What
        somebody allowed is told as the checks see it, here and in the health check's share of
        gated chunks: that measures the corpus, not what is shown.

        Raises:
            StoreError: If the database cannot be read or written.
        """
        hashed = [(content_hash(document), document) for document in documents]
        with reading(self.store) as connection:
            known = scores_of(connection, (of for of, _ in hashed))
        new = {of: document.page_content for of, document in hashed if of not in known}
        for batch in in_batches(list(new.items()), _BLOCK):
            judged = {of: score_chunk(text) for of, text in batch}
            with writing(self.store, lock="traces", durable=False) as (connection, _):
                keep_scores(connection, judged, clock(self.store, connection))
            known |= {of: scored_as(quality) for of, quality in judged.items()}
        return [known[of] for of, _ in hashed]

    def hidden(self, documents: Sequence[Document]) -> dict[int, tuple[str, ...]]:
        """Tell which retrieved documents are not to be shown.

        One statement for 2,000 documents. A text that nobody has scored passes, and is counted.

        Returns:
            The reasons of each that is hidden, by its position.

        Raises:
            StoreError: If the database cannot be read.
        """
        found: dict[int, tuple[str, ...]] = {}
        unknown = 0
        for batch in in_batches(list(enumerate(documents)), _ASKED):
            asked = [self._standing(document) for _, document in batch]
            with reading(self.store) as connection:
                known = standings(connection, self.store.namespace, asked)
            unknown += sum(known.is_unknown(one) for one in asked)
            for (at, _), one in zip(batch, asked, strict=True):
                if reasons := known.reasons(one):
                    found[at] = reasons
        self._count(len(documents), len(found), unknown)
        return found

    asplit = twin(split)
    ascore = twin(score)
    ahidden = twin(hidden)

    def _among_allowed(self, documents: Sequence[Document]) -> set[str]:
        """Return the hashes of those texts that somebody allowed; nothing is asked for none."""
        if not documents:
            return set()
        with reading(self.store) as connection:
            hashes = map(content_hash, documents)
            return among_allowed(connection, self.store.namespace, hashes)

    def _standing(self, document: Document) -> Standing:
        # An id that no database holds must not cost the look-up of all the others.
        key = storable(chunk_key(document, self.id_field))
        return Standing(key, text_key(document), content_hash(document))

    def _count(self, checked: int, hidden: int, unknown: int) -> None:
        with self._counting:
            now = self._counts
            self._counts = GateCounts(
                now.checked + checked, now.hidden + hidden, now.unknown + unknown
            )


class QualityFilter(BaseDocumentCompressor, BaseDocumentTransformer):
    """Leaves junk out, wherever LangChain takes a compressor or a transformer.

    As a compressor, behind a retriever, it drops what the gate says is hidden: a look-up, and
    nothing is judged; a slow or broken store costs the filter, never the answer. It cannot
    fetch more in place of what it drops: `FeedbackRetriever(gate=...)` does. As a transformer,
    before indexing, it judges what is new and keeps the rest, as `QualityGate.split` does.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> junk_filter = QualityFilter(gate=QualityGate(FeedbackStore("sqlite://")))
        >>> found = [Document("Refunds take 14 days."), Document("Contents")]
        >>> [document.page_content for document in junk_filter.transform_documents(found)]
        ['Refunds take 14 days.']
        >>> len(junk_filter.compress_documents(found, "How long?"))
        1
    """

    gate: SkipValidation[QualityGate]
    """What is junk, and where that is known from."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the documents that are not hidden, in order.

        Args:
            documents: What was retrieved.
            query: Not used: junk is junk under any question.
            callbacks: Not used: nothing here is a run of its own.
        """
        del query, callbacks
        nothing: Mapping[int, Any] = {}
        hidden = self.gate.store.try_read(lambda: self.gate.hidden(documents), nothing)
        return [document for at, document in enumerate(documents) if at not in hidden]

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Do as `compress_documents`, without blocking the event loop."""
        return await run_in_executor(None, self.compress_documents, documents, query, callbacks)

    def transform_documents(
        self, documents: Sequence[Document], **kwargs: Any
    ) -> Sequence[Document]:
        """Judge documents and return those that are worth indexing, in order.

        Args:
            documents: The chunks, before `add_documents`.
            kwargs: Not used.

        Raises:
            StoreError: If the database cannot be read or written.
        """
        del kwargs
        return self.gate.split(documents)[0]
