"""What the tests of `FeedbackRetriever` share: chunks, a store on a file, chosen similarities."""

import math

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_feedback import FeedbackRetriever, trace_id_of
from tests.fakes import ListRetriever

REFUND = "How long does a refund take?"
MONEY = "When do I get my money back?"
SERVER = "When does a server reboot?"


class AngleEmbeddings(Embeddings):
    """Puts each text on a circle: the cosine of two texts is that of their angles."""

    def __init__(self, **more):
        self.degrees = {REFUND: 0, MONEY: 10, SERVER: 90} | more
        self.asked = []

    def embed_query(self, text):
        self.asked.append(text)
        angle = math.radians(self.degrees.get(text, 180))
        return [math.cos(angle), math.sin(angle)]

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


def chunks(number=6, start=0):
    return [
        Document(f"Text {at}.", id=f"c{at}", metadata={"source": f"{at}.md"})
        for at in range(start, start + number)
    ]


def ids(documents):
    return [document.id for document in documents]


def marks(document):
    return document.metadata["feedback"]


def run(**metadata):
    return {"metadata": metadata}


def wrap(store, documents=None, **settings):
    """A FeedbackRetriever over a list."""
    base = ListRetriever(documents=chunks() if documents is None else documents)
    return FeedbackRetriever(base_retriever=base, store=store, **{"k": 3} | settings)


def vote(retriever, chunk_id, rating=5, *, question=REFUND, actor="ann", times=1):
    """Ask, and rate one source; several times by as many people."""
    for at in range(times):
        asked = retriever.invoke(question, run(user_id=f"{actor}{at}"), k=20)
        retriever.store.rate(trace_id_of(asked), rating, target=chunk_id)
