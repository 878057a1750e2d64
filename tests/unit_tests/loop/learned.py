"""Reviewed questions in a real store, made as people make them: asked, queued, decided."""

from langchain_core.documents import Document

from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.store.reviewing.items import Candidate
from tests.unit_tests.loop.kit import asked

__all__ = ["decide", "pool_of", "reviewed"]


def pool_of(number, size=6, right=3):
    """A pool in which the right chunk has the question's own word, further down."""
    return [
        Document(
            f"The {'answer to topic' if at == right else 'text of'} {word(number, at, right)}.",
            id=f"q{number}-{at}",
            metadata={"source": f"{number}.md", "title": f"Part {at}"},
        )
        for at in range(size)
    ]


def word(number, at, right):
    return f"alpha{number}" if at == right else f"other{number}x{at}"


def reviewed(store, number, *, question=None, right=3, pool=None, vector=None, queue=None):
    """Ask a question, put it into the queue, and name its right chunk; return the item's id."""
    question = question or f"What is the answer to topic alpha{number}?"
    pool = pool_of(number) if pool is None else pool
    trace_id = asked(store, question, pool, actor=f"u{number}", answer="An answer.", vector=vector)
    named = () if right is None else (pool[right].id,)
    return decide(store, trace_id, question, pool, named, queue=queue)


def decide(store, trace_id, question, pool, right, *, queue=None, **verdict):
    record = store.trace(trace_id)
    texts = {document.id: document for document in pool}
    chunks = [
        {
            "chunk_id": chunk.chunk_id, "cell_id": chunk.cell_id,
            "content_hash": chunk.content_hash, "rank": chunk.final_rank,
            "base_rank": chunk.base_rank, "text": texts[chunk.chunk_id].page_content,
            "source": texts[chunk.chunk_id].metadata.get("source", ""), "heading": "",
        }
        for chunk in record.chunks
    ]  # fmt: skip
    queue = queue or ReviewQueue(store, double=0)
    made = Candidate(
        "answer", question, 1.0, {"chunks": chunks, "answer": "An answer."},
        trace_id=trace_id, guess=record.chunks[0].chunk_id,
    )  # fmt: skip
    assert queue.add([made]) == 1
    item = queue.claim("ann")
    given = {"none_exists": True} if not right else {"right_chunks": list(right)}
    # The guess is the first chunk: it is confirmed to be wrong, unless it is right.
    said = "reject" if item.guess in right else "confirm"
    queue.decide(item, said, **(given | verdict))
    return item.item_id
