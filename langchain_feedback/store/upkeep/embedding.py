"""Reading past questions with another embedder, so that a change of it keeps the memory."""

from collections.abc import Callable, Sequence

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray
from sqlalchemy import bindparam, select, update

from langchain_feedback.store.questions import Question, remember, unembedded_questions
from langchain_feedback.store.schema import questions
from langchain_feedback.store.upkeep.removing import Access, pages_of

__all__ = ["embed_questions"]

MakeQuestion = Callable[[str, Sequence[float]], Question]
"""Makes a question of its text and embedding, with the name of the embedder."""

_SAME = 1e-3
"""So much may a number of a unit vector differ, by rounding."""


def embed_questions(
    access: Access, embeddings: Embeddings, make: MakeQuestion, batch_size: int
) -> int:
    """Embed the questions with feedback that an embedder has not read; return how many."""
    remembered = (questions.c.namespace == access.namespace) & questions.c.memory_seq.is_not(None)
    first = access.read(select(questions.c.text).where(remembered).limit(1))
    if not first:
        return 0
    # Only an embedding shows how long this embedder's vectors are.
    probe = make(first[0], embeddings.embed_query(first[0]))
    with access.reading() as connection:
        todo = unembedded_questions(connection, access.namespace, str(probe.embedder))
    if not todo:
        return 0
    embed = _way_to_embed(embeddings, probe)
    for page in pages_of(todo, batch_size):
        vectors = embed([text for _, text in page])
        made = [make(text, vector) for (_, text), vector in zip(page, vectors, strict=True)]
        with access.page() as (connection, _):
            connection.execute(
                update(questions)
                .where(questions.c.question_id == bindparam("known"))
                .values(vector=bindparam("unit"), embedder=bindparam("by")),
                [
                    {"known": known, "unit": _stored(question.vector), "by": question.embedder}
                    for (known, _), question in zip(page, made, strict=True)
                ],
            )
            known_ids = [known for known, _ in page]
            remember(connection, access.namespace, known_ids, again=True)
    return len(todo)


def _way_to_embed(
    embeddings: Embeddings, probe: Question
) -> Callable[[list[str]], list[list[float]]]:
    """Return a fast way to embed questions as `embed_query` does.

    Some models read queries and documents differently. Then the batches that
    `embed_documents` takes are no way to embed questions.
    """
    [as_document] = embeddings.embed_documents([probe.text])
    unit = np.asarray(as_document, np.float64)
    unit /= np.linalg.norm(unit) or 1.0
    if probe.vector is not None and np.allclose(unit, probe.vector, rtol=0, atol=_SAME):
        return embeddings.embed_documents
    return lambda texts: [embeddings.embed_query(text) for text in texts]


def _stored(vector: NDArray[np.float32] | None) -> bytes | None:
    return None if vector is None else vector.astype("<f4").tobytes()
