"""What the tests of the gate share: junk and good chunks, and standings written as a job would."""

import math

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from sqlalchemy import update

from langchain_feedback import FeedbackRetriever
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import writing
from tests.fakes import ListRetriever

QUESTION = "How long does a refund take?"
PLACES = "Rome Oslo Bern Kiev Riga Lima Cairo Tokyo Delhi Quito Dakar Minsk Sofia".split()


def name(at):
    """A name for each number, without a digit: those are no junk."""
    return f"{PLACES[at % len(PLACES)]} {PLACES[at // len(PLACES)]}"


def junk(number):
    return [Document(f"Contents {name(at)}", metadata={"source": "toc"}) for at in range(number)]


def good(number):
    return [
        Document(
            f"Refunds to the office in {name(at)} take {at + 10} days from the day of request.",
            metadata={"source": f"{at // 4}.md"},
        )
        for at in range(number)
    ]


class JunkFirst(Embeddings):
    """Puts every junk text nearer to every question than any good one."""

    def __init__(self, size):
        self.size = size

    def embed_query(self, text):
        return self._vector(0.0)

    def embed_documents(self, texts):
        # Apart from each other, so that no two stores break a tie in two ways.
        spread = [sum(map(ord, text)) % 97 / 1000 for text in texts]
        base = [0.1 if text.startswith("Contents") else 0.8 for text in texts]
        return [self._vector(at + more) for at, more in zip(base, spread, strict=True)]

    def _vector(self, angle):
        return [math.cos(angle), math.sin(angle), *[0.0] * (self.size - 2)]


def set_status(store, status, *ids):
    """Do what a retirement does, by itself the owner of this column."""
    mine = (chunks.c.namespace == store.namespace) & chunks.c.chunk_id.in_(ids)
    with writing(store, lock="traces") as (connection, _):
        done = connection.execute(update(chunks).where(mine).values(status=status))
        assert done.rowcount == len(ids)


def texts(documents):
    return [document.page_content for document in documents]


def over(documents, store, **settings):
    """Return a retriever over a list, four documents at a time, and its base."""
    base = ListRetriever(documents=documents)
    return FeedbackRetriever(base_retriever=base, store=store, **{"k": 4} | settings), base
