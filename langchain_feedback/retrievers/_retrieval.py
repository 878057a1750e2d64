"""One retrieval: what is read before the base is asked, and what becomes of its documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor

from langchain_feedback.claims import Asked, Claim, claims_of
from langchain_feedback.retrievers._base_call import is_configured, takes
from langchain_feedback.retrievers._gating import Sieve
from langchain_feedback.retrievers._growing import Call, texts_of
from langchain_feedback.retrievers._known import Known
from langchain_feedback.retrievers._ordering import Chosen, ordered, ranked_by
from langchain_feedback.retrievers._pool import (
    Candidate,
    as_candidates,
    failing,
    fused,
    kernel_of,
    listed,
)
from langchain_feedback.retrievers._published import (
    Ranked,
    enough,
    in_order,
    marked,
    ranked,
    traced,
)
from langchain_feedback.retrievers._reach import Reach
from langchain_feedback.retrievers._slot import Slot, filled, noted
from langchain_feedback.store.records import QuestionEvidence
from langchain_feedback.traces import (
    SEARCHED_FOR_KEY,
    UNRECORDED_KEY,
    Retrieved,
    index_version_of,
    traffic_of,
)

if TYPE_CHECKING:
    from langchain_feedback.retrievers.feedback import FeedbackRetriever

__all__ = ["Retrieval"]

Read = TypeVar("Read")

_LEAST_FETCHED, _FETCHED_PER_K = 20, 4
_FAILED = object()


class Retrieval:
    """One call of a `FeedbackRetriever`: `open`, `look_up`, the base's part, then `finish`."""

    def __init__(
        self,
        settings: "FeedbackRetriever",
        asked: Asked,
        *,
        k: int,
        options: Mapping[str, Any],
        config: RunnableConfig,
        run: Mapping[str, Any],
        texts: int = 0,
    ) -> None:
        """Begin one.

        Args:
            settings: The retriever.
            asked: Who asks, and for what.
            k: How many chunks are returned.
            options: What the base is to be called with, too.
            config: The config of runs below this one.
            run: This run's metadata.
            texts: How many different texts are wanted: what is returned, and the pool, are
                doubled until they hold them or there are no more.
        """
        self._settings, self._store, self._policy = settings, settings.store, settings.policy
        # What another retriever keeps the trace of is ranked, and has no trace of its own.
        self._is_kept = not run.get(UNRECORDED_KEY)
        self._asked = asked if self._is_kept else replace(asked, trace_id=None)
        self._k, self._options = k, options
        self._config, self._run, self._texts = config, run, texts
        self._sieve = Sieve(settings.gate, settings.store, settings.id_field)
        self._reach = Reach(
            settings.resolve, settings.allow, settings.id_field, settings.once, self._sieve
        )
        self._claim: Claim | None = None
        self._evidence = QuestionEvidence()
        self._vector: list[float] | None = None
        self._store_failed = False
        self._rankers = Chosen()
        self._fetch_k = settings.fetch_k or max(_LEAST_FETCHED, _FETCHED_PER_K * k)
        self.widens = False
        """Whether the fallback retriever is asked, too."""

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Give the trace id back if the retrieval fails or is cancelled, for another try."""
        try:
            yield
        except BaseException:
            if self._claim is not None:
                claims_of(self._store).release(self._claim)
            raise

    def open(self) -> None:
        """Find the trace that this search belongs to."""
        self._claim = claims_of(self._store).claim(
            self._asked, lambda trace_id: self._read(lambda: self._store.trace(trace_id))
        )
        if not self._is_kept:
            # Who keeps the trace knows its own question, whatever text is searched for.
            kept = str(self._run.get(SEARCHED_FOR_KEY))
            own = claims_of(self._store).question_of(kept, self._asked.query)
            self._claim.question = own or self._claim.question
        # The store keeps no blank question, and there is nothing to learn of one.
        self._store_failed |= not self.question.strip()

    @property
    def reads_to_open(self) -> bool:
        """Whether `open` looks into the store."""
        return self._asked.trace_id is not None

    @property
    def question(self) -> str:
        """The trace's own question, whatever text is searched for."""
        return cast("Claim", self._claim).question

    @property
    def embeds(self) -> bool:
        """Whether similar questions count, so that the question's embedding is needed."""
        kernel = kernel_of(self._policy)
        return kernel is not None and kernel.minimum < 1 and bool(self.question.strip())

    def look_up(self, vector: list[float] | None) -> None:
        """Read what is known for the question, and decide how far to search."""
        self._vector = vector
        kernel = kernel_of(self._policy)
        # At 1 the store looks for the identical question only, and embeds nothing.
        least = 1.0 if vector is None or kernel is None else kernel.minimum
        read = self._store.evidence_for
        evidence = self._read(lambda: read(self.question, vector=vector, min_similarity=least))
        self._evidence = evidence or self._evidence
        self._rankers = self._settings.rankers.chosen(self._read)
        fallback = self._settings.fallback_retriever
        if fallback is not None and failing(self._policy, self._evidence.questions):
            self.widens = self._may_add or all(takes(fallback, name) for name in self._options)
            self._fetch_k *= 2 if self.widens else 1

    @property
    def base_config(self) -> RunnableConfig:
        """The config of the base's run, whose metadata name the trace."""
        named = {SEARCHED_FOR_KEY: cast("Claim", self._claim).trace_id}
        given = self._config.get("metadata") or {}
        # Who keeps the trace has named it there already.
        metadata = given | named if self._is_kept else named | given
        return cast("RunnableConfig", {**self._config, "metadata": metadata})

    def first_call(self) -> Call:
        """Say what the base retriever is called with."""
        settings = self._settings
        # An option of the caller's own has precedence.
        name = None if settings.base_k_arg in self._options else settings.base_k_arg
        return Call.first(settings.base_retriever, self._options, self._fetch_k, name)

    def next_call(self, call: Call, found: Sequence[Document]) -> Call | None:
        """Say what it is called with after a call, None where that found enough, or all."""
        if self._suffices(self._sieve(found)):
            return None
        following = call.after(found)
        if following is None or following.size == call.size:
            return following
        if self._settings.fetch_k is not None:
            return None
        if self._suffices(found):
            following = self._sieve.within_reach(following, call)
        self._fetch_k = following.size if following else self._fetch_k
        return following

    async def anext_call(self, call: Call, found: Sequence[Document]) -> Call | None:
        """Do as `next_call`, without blocking the event loop."""
        if self._settings.gate is None:
            return self.next_call(call, found)
        return await run_in_executor(None, self.next_call, call, found)

    def _suffices(self, found: Sequence[Document]) -> bool:
        return len(found) >= self._k and texts_of(found) >= self._texts

    @property
    def fallback_options(self) -> dict[str, Any]:
        """What the fallback retriever is called with: of the caller's options what it takes."""
        fallback = self._settings.fallback_retriever
        names = [self._settings.base_k_arg, "k"] if self._settings.base_k_arg else []
        fetched = [name for name in names if name and takes(fallback, name)][:1]
        taken = {name: of for name, of in self._options.items() if takes(fallback, name)}
        return dict.fromkeys(fetched, self._fetch_k) | taken

    def finish(self, found: Sequence[Document], more: Sequence[Document]) -> Retrieved:
        """Rank what was found, record it, and return copies of the best."""
        read = Known(self._store, self._read, self._evidence, self.question)
        pool, wanted = read.credited(
            self._ordered(self._pool(self._sieve(found), self._sieve(more))),
            self._settings, k=self._k, may_add=self._may_add, seen_since=self._reach.seen_since,
        )  # fmt: skip
        there = {chunk.chunk_id for chunk in pool}
        chunks = [*pool, *self._reach.read(wanted, there, self._run, self._settings.inject)]
        cells = [chunk.cell for chunk in chunks]
        scores = self._policy.score(as_candidates(chunks), read.view(self._policy, cells))
        pins = [pin.key for pin in self._evidence.pins]
        best_first = ranked(chunks, scores, in_order(chunks, scores, pins))
        shown = enough(best_first, self._k, self._texts)
        best_first, shown, derived = self._slot(best_first, shown)
        claim, asked = cast("Claim", self._claim), self._asked
        if self._is_kept and claim.question.strip():
            self._store.record_soon(
                claim.trace_id,
                claim.question,
                traced(best_first, shown, getattr(self._policy, "score_key", None)),
                attempt=claim.attempt,
                query=asked.query,
                actor=asked.actor,
                session_id=asked.session_id,
                traffic=traffic_of(self._run),
                index_version=index_version_of(self._run, found),
                **ranked_by(pool, self._rankers),
                vector=self._vector,
                id_field=self._settings.id_field,
            )
        returned = [marked(one, claim.trace_id) for one in best_first[:shown]]
        returned += [noted(document, claim.trace_id) for document in derived]
        return Retrieved(returned, claim.trace_id)

    def _slot(self, best_first: list[Ranked], shown: int) -> Slot:
        """Add what an accepted answer rested on, where that may be shown."""
        settings = self._settings
        extra = settings.foldback
        if extra is None or not self._may_add or not self.question.strip():
            return Slot(best_first, shown, [])
        look_up = partial(
            extra.lookup, self.question, vector=self._vector, allow=self._lets_through,
            resolve=settings.resolve, id_field=settings.id_field,
        )  # fmt: skip
        return filled(best_first, shown, look_up, settings.once, settings.id_field)

    def _lets_through(self, document: Document) -> bool:
        return self._reach.allows(document, self._run) and not self._sieve.hidden([document])

    @property
    def _may_add(self) -> bool:
        """Whether chunks may be shown that the base did not return.

        Options of a call may be what keeps tenants apart, and only `allow` knows.
        """
        if self._settings.allow is not None:
            return True
        configured = is_configured(self._settings.base_retriever, self._config)
        return not self._options and not configured

    def _read(self, function: Callable[[], Read]) -> Read | None:
        """Read the store; after the first failure no more, so that a slow one costs one wait."""
        result = _FAILED if self._store_failed else self._store.try_read(function, _FAILED)
        self._store_failed = result is _FAILED
        return None if result is _FAILED else cast("Read", result)

    def _pool(self, found: Sequence[Document], more: Sequence[Document]) -> list[Candidate]:
        id_field = self._settings.id_field
        if not self.widens:
            return listed(found, self._fetch_k, id_field)
        shown = [one for one in more if one in found or self._reach.allows(one, self._run)]
        return fused(found, shown, self._fetch_k, id_field)

    def _ordered(self, pool: list[Candidate]) -> list[Candidate]:
        """Let the learned ranker order the pool, where there is one."""
        return ordered(pool, self.question, self._rankers, self._settings.once)
