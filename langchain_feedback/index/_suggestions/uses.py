"""How chunks were used: which stood in prompts, which were quoted, and for which questions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, func, select

from langchain_feedback.index._gating.scores import scores_of
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import ANSWER, chunks, credits_, questions

__all__ = ["Part", "Use", "Uses", "read_credited", "read_parts", "read_uses"]

_NAMELESS = "trace:"


@dataclass(frozen=True)
class Part:
    """A live chunk and its place in its source."""

    chunk_id: str
    cell_id: str
    content_hash: str
    text: str
    source: str
    scope: str
    position: int
    """From 0."""
    start_index: int | None
    """Where its text begins in the source's."""
    reasons: tuple[str, ...] = ()
    """What the checks say of it, where it was scored."""


@dataclass(frozen=True)
class Use:
    """An answer that a chunk was at hand for."""

    trace_id: str
    question_id: int
    question: str
    actor: str
    """Empty: nobody knows who."""
    answer: str
    cited: bool


@dataclass
class Uses:
    """All uses of some chunks, by chunk id, each by trace."""

    of: dict[str, dict[str, Use]] = field(default_factory=lambda: defaultdict(dict))

    def note(self, ask: Ask, parts: Mapping[str, Part]) -> None:
        """Add those of one question asked; a chunk that had another text then is another one."""
        actor = "" if ask.asker.startswith(_NAMELESS) else ask.asker
        for chunk in ask.prompt:
            part = parts.get(chunk.chunk_id)
            if part is None or part.content_hash != chunk.content_hash:
                continue
            self.of[chunk.chunk_id][ask.trace_id] = Use(
                ask.trace_id, ask.question_id, ask.question, actor,
                str(ask.answer or ""), bool(chunk.cited),
            )  # fmt: skip


def read_parts(connection: Connection, namespace: str) -> dict[str, Part]:
    """Return the live chunks whose place is known, by id: a complete sync knows it."""
    row = chunks.c
    columns = (
        row.chunk_id, row.cell_id, row.content_hash, row.text, row.source, row.scope,
        row.position, row.start_index,
    )  # fmt: skip
    statement = (
        select(*columns)
        .where(row.namespace == namespace, row.status == "live")
        .where(row.position.is_not(None), row.source != "")
        .order_by(row.source, row.position, row.chunk_id)
    )
    rows = connection.execute(statement).all()
    scores = scores_of(connection, (one.content_hash for one in rows))
    return {
        one.chunk_id: Part(
            **dict(one._mapping) | {"scope": one.scope or ""},  # noqa: SLF001  a row's own way
            reasons=scores[one.content_hash].reasons if one.content_hash in scores else (),
        )
        for one in rows
    }


def read_uses(
    connection: Connection, namespace: str, parts: Mapping[str, Part], since: datetime
) -> Uses:
    """Return how chunks were used since a time; an answer that was not grounded is no use."""
    uses = Uses()
    for ask in read_asks(connection, namespace, since=since):
        if ask.grounded is not False:
            uses.note(ask, parts)
    return uses


def read_credited(connection: Connection, namespace: str, parts: Iterable[Part]) -> dict[str, int]:
    """Return under how many questions somebody found each chunk good, by chunk id."""
    wanted = {(part.cell_id, part.content_hash): part.chunk_id for part in parts}
    found: dict[str, int] = {}
    row = credits_.c
    for page in batched(sorted({cell_id for cell_id, _ in wanted})):
        statement = (
            select(
                row.chunk_id, row.content_hash, func.count(row.question_id.distinct()).label("n")
            )
            .join(questions, questions.c.question_id == row.question_id)
            .where(questions.c.namespace == namespace, row.chunk_id != ANSWER)
            .where(row.chunk_id.in_(page), row.polarity > 0)
            .group_by(row.chunk_id, row.content_hash)
        )
        for one in connection.execute(statement):
            if chunk_id := wanted.get((one.chunk_id, one.content_hash)):
                found[chunk_id] = one.n
    return found
