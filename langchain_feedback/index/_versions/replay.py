"""Shadow replay: do the chunks that people credited still come up for their questions?

The newest questions with credited chunks are asked again, of the version to come and of the
active one, side by side. Nothing is recorded, and nobody sees an answer.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from sqlalchemy import Connection, func, or_, select

from langchain_feedback.documents import content_hash
from langchain_feedback.store.schema import ANSWER, chunks, evidence, pins, questions, traces
from langchain_feedback.traces import UNRECORDED_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Credited",
    "Replay",
    "credited_questions",
    "found_unrecorded",
    "is_contained",
    "replayed",
]

_IDS = 500


@dataclass(frozen=True)
class Credited:
    """A chunk that people credited under a question, as it was last seen."""

    content_hash: str
    text: str
    """Empty where no retrieval has seen it."""
    source: str

    def is_in(self, document: Document) -> bool:
        """Whether a document is this chunk, or one of the same source that holds its text."""
        if content_hash(document) == self.content_hash:
            return True
        source = str(document.metadata.get("source") or "")
        return source == self.source and is_contained(self.text, document.page_content)


@dataclass(frozen=True)
class Replay:
    """How many credited chunks a version found."""

    found: int
    credited: int
    """Pairs of a question and a chunk that was credited under it."""
    questions: int
    hits: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)
    """The pairs that it found, each as a question and the hash of the chunk's text."""

    def lost_from(self, other: "Replay") -> list[str]:
        """Return the questions of which another replay found a chunk that this one did not.

        Example:
            >>> one, two = ("How long?", "a"), ("Where?", "b")
            >>> Replay(1, 2, 2, frozenset({one})).lost_from(Replay(2, 2, 2, frozenset({one, two})))
            ['Where?']
        """
        return sorted({question for question, _ in other.hits - self.hits})

    @property
    def share(self) -> float | None:
        """Found of credited, in [0, 1]; None where nothing is credited."""
        return self.found / self.credited if self.credited else None


def is_contained(text: str, longer: str) -> bool:
    r"""Whether a text stands in another one, but for white space. An empty one stands in none.

    Example:
        >>> is_contained("14 days", "A refund takes 14\n days."), is_contained("", "A refund.")
        (True, False)
    """
    words = " ".join(text.split())
    return bool(words) and words in " ".join(longer.split())


def credited_questions(
    connection: Connection, namespace: str, limit: int
) -> dict[str, list[Credited]]:
    """Return the questions that were asked last of those with credited chunks, newest first.

    A chunk is credited where more was said for it than against it, or a reviewer pinned it.
    Questions of evaluations and playgrounds do not count.

    Args:
        connection: An open transaction.
        namespace: Whose.
        limit: How many questions.
    """
    liked = select(evidence.c.question_id).where(
        evidence.c.positive > evidence.c.negative, evidence.c.chunk_id != ANSWER
    )
    pinned = select(pins.c.question_id).where(pins.c.retracted_at.is_(None))
    asked = (
        select(questions.c.question_id, questions.c.text)
        .join(traces, traces.c.question_id == questions.c.question_id)
        .where(questions.c.namespace == namespace, traces.c.traffic.is_(None))
        .where(or_(questions.c.question_id.in_(liked), questions.c.question_id.in_(pinned)))
        .group_by(questions.c.question_id, questions.c.text)
        .order_by(func.max(traces.c.created_at).desc(), questions.c.question_id.desc())
        .limit(limit)
    )
    texts = {row.question_id: row.text for row in connection.execute(asked)}
    cells = _credited_cells(connection, list(texts))
    seen = _seen(connection, namespace, {cell for of in cells.values() for cell in of})
    return {
        text: [seen.get(cell) or Credited(cell[1], "", "") for cell in cells[question_id]]
        for question_id, text in texts.items()
        if cells[question_id]
    }


def replayed(retriever: Any, asked: dict[str, list[Credited]], k: int) -> Replay:
    """Ask a retriever the questions again, and count the credited chunks among its first `k`.

    Args:
        retriever: Any Runnable from a string to documents.
        asked: What was credited, by question.
        k: How many documents count.
    """
    found, hits = 0, set()
    for question, credited in asked.items():
        documents = found_unrecorded(retriever, question)[:k]
        there = [one for one in credited if any(one.is_in(document) for document in documents)]
        found += len(there)
        hits |= {(question, one.content_hash) for one in there}
    return Replay(found, sum(map(len, asked.values())), len(asked), frozenset(hits))


def found_unrecorded(retriever: Any, question: str) -> "Sequence[Document]":
    """Return what a retriever finds; nothing is recorded.

    Of a `FeedbackRetriever` its base is asked: what counts is what the index finds by itself.
    """
    base = retriever.base_retriever if hasattr(retriever, "explain") else retriever
    found: Sequence[Document] = base.invoke(question, {"metadata": {UNRECORDED_KEY: True}}) or ()
    return found


def _credited_cells(
    connection: Connection, question_ids: list[int]
) -> dict[int, list[tuple[str, str]]]:
    found: dict[int, dict[tuple[str, str], None]] = defaultdict(dict)
    tables = (
        (pins, pins.c.retracted_at.is_(None)),
        (evidence, (evidence.c.positive > evidence.c.negative) & (evidence.c.chunk_id != ANSWER)),
    )
    for table, counted in tables:
        columns = (table.c.question_id, table.c.chunk_id, table.c.content_hash)
        mine = table.c.question_id.in_(question_ids)
        for question_id, *cell in connection.execute(select(*columns).where(mine, counted)):
            found[question_id][cell[0], cell[1]] = None
    return {question_id: sorted(found[question_id]) for question_id in question_ids}


def _seen(
    connection: Connection, namespace: str, cells: set[tuple[str, str]]
) -> dict[tuple[str, str], Credited]:
    """Return each chunk as it was last seen."""
    ids, found = sorted({cell[0] for cell in cells}), {}
    for start in range(0, len(ids), _IDS):
        rows = connection.execute(
            select(chunks.c.cell_id, chunks.c.content_hash, chunks.c.text, chunks.c.source)
            .where(chunks.c.namespace == namespace)
            .where(chunks.c.cell_id.in_(ids[start : start + _IDS]))
            .order_by(chunks.c.last_seen)
        )
        for cell_id, text_hash, text, source in rows:
            found[cell_id, text_hash] = Credited(text_hash, text, source)
    return found
