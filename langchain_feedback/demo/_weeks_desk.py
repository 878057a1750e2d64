"""The help desk of the four weeks: an index that errs, and an app that answers from it."""

import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_feedback.demo._weeks_questions import need_of
from langchain_feedback.documents import chunk_key
from langchain_feedback.retrievers.feedback import FeedbackRetriever
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.traces import TRACE_ID_KEY, UNRECORDED_KEY
from langchain_feedback.words import tokens

__all__ = ["PROMPT", "SHOWN", "Desk", "LetterEmbeddings", "Reply"]

SHOWN = 4
"""How many sources stand below an answer."""
PROMPT = 3
"""How many of them the answer is written from."""

_READS_WELL = 0.9
_GIVES_UP = 0.1
_GIVES_UP_ON_NOTHING = 0.9
_SIZE = 1024


class LetterEmbeddings(Embeddings):
    """Texts that share groups of three letters are near each other: a weak, honest embedder.

    Example:
        >>> embed = LetterEmbeddings().embed_query
        >>> refund, refunds, keys = map(np.array, map(embed, ("refund", "refunds", "keys")))
        >>> float(refund @ refunds) > float(refund @ keys)
        True
    """

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector of length one for each text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text."""
        padded = (f" {word} " for word in tokens(text))
        threes = [word[at : at + 3] for word in padded for at in range(len(word) - 2)]
        places = [zlib.crc32(three.encode()) % _SIZE for three in threes]
        counts = np.bincount(places, minlength=_SIZE).astype(float)
        row: list[float] = (counts / max(np.linalg.norm(counts), 1.0)).tolist()
        return row


@dataclass(frozen=True)
class Reply:
    """What somebody got who asked."""

    trace_id: str
    documents: tuple[Document, ...]
    """The sources, in the order that they are shown in."""
    answer: Document | None
    """The chunk that the answer is a quote of; None: the app said that it does not know."""


class Desk:
    """An index, a `FeedbackRetriever` over it, and an app that quotes what it reads.

    The index looks at texts and not at headings, as many do. The app reads the first three
    chunks; nine times in ten it finds the one that answers among them, else it quotes the first
    one. It stands in for a model, whose reading nothing here is about.

    Args:
        store: What the retriever learns from.
        documents: What is known at first.
        chance: Decides when the app reads badly.
    """

    def __init__(
        self, store: FeedbackStore, documents: Iterable[Document], chance: random.Random
    ) -> None:
        self.store = store
        self._chance = chance
        self._index = InMemoryVectorStore(LetterEmbeddings())
        self._ids: list[str] = []
        self.publish(*documents)
        self.restart()

    @property
    def documents(self) -> dict[str, Document]:
        """What is published now, by chunk id."""
        found = self._index.get_by_ids(self._ids)
        return {str(document.id): document for document in found}

    def publish(self, *documents: Document) -> None:
        """Put documents into the index, in place of those with the same ids."""
        self._ids = list(dict.fromkeys([*self._ids, *map(chunk_key, documents)]))
        self._index.add_documents(list(documents))

    def restart(self) -> None:
        """Deploy anew: the retriever reads which ranker is active."""
        base = self._index.as_retriever()
        self.retriever = FeedbackRetriever(
            base_retriever=base, store=self.store, k=SHOWN, resolve=self._index.get_by_ids
        )

    def ask(self, question: str, right: str, *, actor: str, session: str) -> Reply:
        """Answer a question of a person, and keep how.

        Args:
            question: What is asked.
            right: The chunk that answers it: what the app finds if it reads well.
            actor: Who asks.
            session: In which visit.
        """
        trace_id = str(UUID(int=self._chance.getrandbits(128), version=4))
        about = {TRACE_ID_KEY: trace_id, "user_id": actor, "session_id": session}
        found = self.retriever.invoke(question, {"metadata": about})
        answer = self._read(found[:PROMPT], right)
        self._keep(trace_id, found, answer)
        return Reply(trace_id, tuple(found), answer)

    def try_out(self, question: str) -> dict[str, Any]:
        """Answer a question for a test, as `retest` wants it; here the app reads well."""
        right = need_of(question).chunk_id
        found = self.retriever.invoke(question, {"metadata": {"source": "eval"}})
        answer = next((one for one in found[:PROMPT] if one.id == right), None)
        quoted = [] if answer is None else [{"chunk_id": answer.id, "verified": True}]
        grades = [
            {"chunk_id": one.id, "verdict": "yes" if one is answer else "no"} for one in found
        ]
        return {
            "answer": answer.page_content if answer else "",
            "status": "answered" if answer else "abstained",
            "reason": "" if answer else "none_relevant",
            "grounded": answer is not None or None,
            "documents": found,
            "citations": quoted,
            "grades": grades,
        }

    def places(self, questions: Iterable[tuple[str, str]]) -> list[int]:
        """Return where the right chunk stands for each question and its chunk, from 0.

        Nothing is kept of it; a chunk that is not there counts as one behind the last.
        """
        found = []
        for question, right in questions:
            ranked = self.retriever.invoke(
                question, {"metadata": {UNRECORDED_KEY: True}}, k=len(self._ids)
            )
            ids = [chunk_key(one) for one in ranked]
            found.append(ids.index(right) if right in ids else len(ids))
        return found

    def _read(self, prompt: list[Document], right: str) -> Document | None:
        """Return the chunk that the app quotes."""
        found = next((one for one in prompt if one.id == right), None)
        if found is not None and self._chance.random() < _READS_WELL:
            return found
        is_there = right in self._ids
        gives_up = _GIVES_UP if is_there else _GIVES_UP_ON_NOTHING
        return None if not prompt or self._chance.random() < gives_up else prompt[0]

    def _keep(self, trace_id: str, found: list[Document], answer: Document | None) -> None:
        prompt = found[:PROMPT]
        grades = {chunk_key(one): "no" for one in prompt}
        if answer is None:
            self.store.update_trace(
                trace_id, in_prompt=prompt, grades=grades, status="abstained",
                reason="none_relevant", answer="I do not know.",
            )  # fmt: skip
            return
        self.store.update_trace(
            trace_id, in_prompt=prompt, cited=[answer], answer=answer.page_content,
            grades=grades | {chunk_key(answer): "yes"}, status="answered", grounded=True,
        )  # fmt: skip
