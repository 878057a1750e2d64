"""Fold-back: an accepted question brings its sources along when it is asked again.

The answer's text does not go into the index, where it would outrank its own source and take
slots of other people's questions. The accepted *question* is indexed, in an index of its own;
whoever asks alike gets one extra slot after the k chunks of the primary index, with a source
that the accepted answer rested on.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from langchain_core.documents import Document
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore

from langchain_feedback.index._foldback.deciding import decide
from langchain_feedback.index._foldback.gate import Gate
from langchain_feedback.index._foldback.job import Applied, Job
from langchain_feedback.index._foldback.lookup import Asked, known_of, nearest, slot_of
from langchain_feedback.index._foldback.plan import Change, FoldBackError, Plan, Rules
from langchain_feedback.index._foldback.primary import rests_on
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.writer import IndexWriter
from langchain_feedback.retrievers._reach import Resolve
from langchain_feedback.store.derived_rows import Derived, read_derived
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Applied", "Change", "Derived", "FoldBack", "FoldBackError", "Gate", "Plan", "Serve"]

Serve = Literal["sources", "answer"]
Status = Literal["candidate", "active", "expired", "rejected"]

# Inside of the class, `list` is the method.
Documents = list[Document]
Entries = list[Derived]


class FoldBack:
    """Serves what accepted answers rested on, in one extra slot, until a source changes.

    `plan` finds grounded answers whose quotes are proved, and what people said of them. Enough
    votes (see `Gate`) make an entry active where `auto_approve` is set; else it waits in the
    review queue, and a reviewer's word takes the place of the votes, never that of grounding.
    What is decided in the queue is found from the next `apply` on, which writes the question
    into the index; `approve` writes it at once.
    Every look-up asks anew whether each source still has the text that was approved.

    Args:
        store: Where traces, votes and entries are, and whose namespace.
        vector_store: An index of its own for the accepted questions, with embeddings: never the
            one that documents are retrieved from. It can be dropped whole.
        serve: `"sources"`: one source; `"answer"`: all its sources, and the answer as a derived
            document, which nothing is ever quoted from.
        min_similarity: The least cosine of two questions, in [-1, 1]. .7 suits all-MiniLM-L6-v2:
            other embedders need another one.
        auto_approve: Whether votes alone are enough.
        gate: How many votes.
        max_age_days: After how many days an approval is over, above 0; use does not renew it.
        resolve: Reads chunks from the primary index by their ids, such as `get_by_ids`, and so
            sees at once what changed there: it alone decides whether a source still has its
            text, so give it one that reads the newest state. Where it fails, nothing is served,
            and no text is held to be another one. Without it a source counts as it was last
            seen by anybody, for 30 days; a process that searches an older state of the index
            then hides what was approved on the newer one.
        id_field: The metadata field that holds a chunk's id, if any.
        name: What this index is called in the ledger.
        persist: What puts this index on the disk where it lives in memory, such as
            `SavedFolder(folder).save`; see `IndexWriter`.

    Raises:
        ValueError: If a setting is out of range, or the vector store is also the primary one.
        UnsupportedIndexError: If the vector store cannot be written to safely.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> chunk = Document("A refund takes 14 days.", id="refund")
        >>> store.record_trace("t1", "How long does a refund take?", [chunk])
        >>> store.update_trace(
        ...     "t1", answer="14 days.", status="answered", grounded=True, cited=["refund"])
        >>> event_id = store.rate("t1", 5, actor="ann")
        >>> questions = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        >>> foldback = FoldBack(store, vector_store=questions)
        >>> foldback.apply(foldback.plan()).counts
        {'propose': 1}
        >>> [entry] = foldback.list(status="candidate")
        >>> foldback.approve(entry.derived_id, "rita").status
        'active'
        >>> foldback.lookup("How long does a refund take?")[0].page_content
        'A refund takes 14 days.'
        >>> bool(foldback.plan())
        False
    """

    def __init__(
        self,
        store: "FeedbackStore",
        *,
        vector_store: VectorStore,
        serve: Serve = "sources",
        min_similarity: float = 0.7,
        auto_approve: bool = False,
        gate: Gate | None = None,
        max_age_days: float = 180,
        resolve: Resolve | None = None,
        id_field: str | None = None,
        name: str = "foldback",
        persist: Callable[[VectorStore], object] | None = None,
    ) -> None:
        if serve not in get_args(Serve) or not -1 <= min_similarity <= 1 or not max_age_days > 0:
            msg = (
                f"serve is one of {get_args(Serve)}, min_similarity in [-1, 1], max_age_days "
                f"above 0; got {serve!r}, {min_similarity!r}, {max_age_days!r}"
            )
            raise ValueError(msg)
        if vector_store.embeddings is None:
            msg = "The vector store needs embeddings: questions are compared by their vectors."
            raise ValueError(msg)
        self.store, self.vector_store, self.serve = store, vector_store, serve
        self.min_similarity, self.resolve, self.id_field = min_similarity, resolve, id_field
        rules = Rules(gate or Gate(), auto_approve, max_age_days)
        writer = IndexWriter(vector_store, TableLedger(store, name), persist=persist)
        self._job = Job(store, writer, rules, resolve, id_field)
        self.refuse(resolve)

    def refuse(self, primary: Any) -> None:
        """Make sure that what documents are retrieved from is another index.

        Args:
            primary: A vector store, a retriever, or a method of one.

        Raises:
            ValueError: If it is the index of accepted questions.
        """
        if rests_on(primary, self.vector_store):
            msg = (
                "The index of accepted questions must be one of its own: in the primary index "
                "they would take the slots of documents."
            )
            raise ValueError(msg)

    # -- the job

    def plan(self) -> Plan:
        """Return what a run would change; nothing is written.

        Raises:
            StoreError: If the store cannot be read.
        """
        return self._job.plan()

    def apply(self, plan: Plan | str) -> Applied:
        """Carry out a plan, and nothing else; an empty one writes nothing.

        A crash after the entries are changed leaves the index to the next run; till then what
        expired is hidden all the same.

        Args:
            plan: A plan, or its digest.

        Raises:
            PlanChangedError: If something changed since that would make it another plan.
            IndexBusyError: If another process writes to the index of questions.
            StoreError: If the store cannot be written.
        """
        return self._job.apply(plan)

    # -- people's word

    def list(self, status: Status | None = None) -> Entries:
        """Return the entries of the namespace; all, or those in one state."""
        with reading(self.store) as connection:
            return read_derived(connection, self.store.namespace, status=status)

    async def alist(self, status: Status | None = None) -> Entries:
        """Do as `list`, without blocking the event loop."""
        return await run_in_executor(None, self.list, status)

    def approve(self, derived_id: str, actor: str) -> Derived:
        """Let an entry serve from now on, whatever its votes; its review item is closed.

        Its question is written into the index at once. (A verdict in the review queue makes an
        entry active as well, and the next `apply` writes it.)

        Raises:
            UnknownItemError: If there is no such entry.
            FoldBackError: If its sources changed, its answer is not grounded, or its question
                is gone.
            IndexBusyError: If another process saved the index of questions since it was loaded
                here (`persist` with a `SavedFolder`): nothing was done, load it again. Or if
                another process writes to it just now: then the entry is active, and the next
                run writes it.
            ValueError: If the actor has no name.
        """
        self._job.check()
        seen, id_field = self._job.seen(derived_id), self.id_field
        decide(self.store, derived_id, actor, serve=True, seen=seen, id_field=id_field)
        return self._written(derived_id)

    def reject(self, derived_id: str, actor: str) -> Derived:
        """Keep an entry from serving for good; its review item is closed.

        It holds at once in any process, whatever their indexes hold.

        Raises:
            UnknownItemError: If there is no such entry.
            IndexBusyError: If another process saved the index of questions since it was loaded
                here, or writes to it just now. It is rejected all the same, and the next run
                takes it out of the index.
            ValueError: If the actor has no name.
        """
        decide(self.store, derived_id, actor, serve=False)
        return self._written(derived_id)

    def _written(self, derived_id: str) -> Derived:
        return next(entry for entry in self._job.write() if entry.derived_id == derived_id)

    # -- the answer path

    def lookup(
        self,
        question: str,
        *,
        shown: Sequence[Document] = (),
        pool: Sequence[Document] = (),
        vector: Sequence[float] | None = None,
        allow: Callable[[Document], bool] | None = None,
        resolve: Resolve | None = None,
        id_field: str | None = None,
    ) -> Documents:
        """Return what goes into the extra slot for a question, possibly nothing.

        Args:
            question: What is asked.
            shown: The chunks that the slot comes after: none of them is returned again.
            pool: All that the primary index returned, which tells what changed there.
            vector: The question's vector as `store.embeddings` makes it, if it is known. Used
                where the vector store has the same embeddings.
            allow: Tells whether a source may be shown.
            resolve: As the setting, where that is not given.
            id_field: As the setting, where that is not given.

        Raises:
            Exception: What the vector store or the embeddings raise; a `FeedbackRetriever` leaves
                the slot empty then. A feedback store that fails raises nothing.
        """
        if not question.strip():
            return []
        if self.vector_store.embeddings is not self.store.embeddings:
            vector = None
        near = nearest(self.vector_store, question, vector, self.min_similarity)
        ids = [derived_id for derived_id, _ in near]
        resolve, id_field = self.resolve or resolve, self.id_field or id_field
        can_ask = resolve is not None
        known = None
        if ids:
            read = partial(known_of, self.store, ids, can_ask=can_ask)
            known = self.store.try_read(read, None)
        if known is None:
            return []
        asked = Asked(shown, pool, allow or _all, resolve, id_field)
        answers = self.serve == "answer"
        slots = (
            slot_of(known.entries[derived_id], known, asked, answers=answers)
            for derived_id in ids
            if derived_id in known.entries
        )
        return next(filter(None, slots), [])

    aplan = twin(plan)
    aapply = twin(apply)
    aapprove = twin(approve)
    areject = twin(reject)
    alookup = twin(lookup)


def _all(_: Document) -> bool:
    return True
