"""What the tests of fold-back share: a small index, people who like an answer, and questions."""

import math
from itertools import count

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from sqlalchemy import select

from langchain_feedback import FeedbackRetriever
from langchain_feedback.index.foldback import FoldBack
from langchain_feedback.store.schema import metadata
from langchain_feedback.store.transactions import reading

REFUND = "How long does a refund take?"
MONEY = "When do I get my money back?"
SERVER = "When does a server reboot?"
WEATHER = "Will it rain?"
RIGHT = Document("A refund takes 14 days.", id="right", metadata={"source": "terms.md"})
SECOND = Document("Refunds go to the card.", id="second", metadata={"source": "cards.md"})
EDITED = Document("A refund takes 30 days.", id="right", metadata={"source": "terms.md"})
PEOPLE = ("ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal")


class Angles(Embeddings):
    """Puts each text on a circle.

    REFUND and MONEY are near each other, but too far apart for one's votes to count for the
    other (cosine .82); their source is near neither.
    """

    degrees = {REFUND: 0, MONEY: 35, SERVER: 90, WEATHER: 120, RIGHT.page_content: 200}  # noqa: RUF012

    def embed_query(self, text):
        angle = self.degrees.get(text, 20 + (7 * sum(map(ord, text))) % 61)
        return [math.cos(math.radians(angle)), math.sin(math.radians(angle))]

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


def empty(kind, embeddings):
    """Return an empty vector store."""
    if kind == "memory":
        return InMemoryVectorStore(embeddings)
    from faiss import IndexFlatL2  # noqa: PLC0415
    from langchain_community.docstore.in_memory import InMemoryDocstore  # noqa: PLC0415
    from langchain_community.vectorstores import FAISS  # noqa: PLC0415

    return FAISS(embeddings, IndexFlatL2(2), InMemoryDocstore(), {})


def two_objects(kind, request, embeddings):
    """Return two vector stores on the same data, and one of their kind on others."""
    if kind == "faiss":
        pytest.importorskip("faiss")
        first, other = (empty(kind, embeddings) for _ in range(2))
        parts = (first.index, first.docstore, first.index_to_docstore_id)
        return first, type(first)(embeddings, *parts), other
    if kind == "chroma":
        chroma = pytest.importorskip("langchain_chroma").Chroma
        folder = str(request.getfixturevalue("tmp_path"))
        names = ("handbook", "handbook", "questions")
        return [chroma(name, embeddings, persist_directory=folder) for name in names]
    if kind == "qdrant":
        qdrant = pytest.importorskip("langchain_qdrant").QdrantVectorStore
        package = pytest.importorskip("qdrant_client")
        client, models = package.QdrantClient(":memory:"), package.models
        vectors = models.VectorParams(size=2, distance=models.Distance.COSINE)
        for name in ("handbook", "questions"):
            client.create_collection(name, vectors)
        names = ("handbook", "handbook", "questions")
        return [qdrant(client, name, embeddings) for name in names]
    postgres = pytest.importorskip("langchain_postgres")
    engine = postgres.PGEngine.from_connection_string(request.getfixturevalue("postgres_url"))
    for name in ("handbook", "questions"):
        engine.init_vectorstore_table(name, 2)
    names = ("handbook", "handbook", "questions")
    return [postgres.PGVectorStore.create_sync(engine, embeddings, name) for name in names]


def others():
    return [Document(f"Text {at}.", id=f"c{at}", metadata={"source": "x"}) for at in range(6)]


class World:
    """An index in which REFUND does not find its source, and what people say."""

    def __init__(self, store, kind="memory"):
        self.store, self.kind = store, kind
        self.primary = empty(kind, store.embeddings)
        self.primary.add_documents([*others(), RIGHT, SECOND])
        self.questions = empty(kind, store.embeddings)
        self._traces = count()

    def foldback(self, **settings):
        return FoldBack(self.store, **{"vector_store": self.questions} | settings)

    def retriever(self, **settings):
        base = self.primary.as_retriever()
        return FeedbackRetriever(
            base_retriever=base, store=self.store, **{"k": 2, "fetch_k": 4} | settings
        )

    def answer(self, question=REFUND, cited=(RIGHT,), text="It takes 14 days.", **facts):
        """Have a question answered; return the trace's id."""
        trace_id = f"trace-{next(self._traces)}"
        self.store.record_trace(trace_id, question, list(cited))
        known = {"status": "answered", "grounded": True, "cited": list(cited)} | facts
        self.store.update_trace(trace_id, answer=text, **known)
        return trace_id

    def liked(self, question=REFUND, people=PEOPLE, rating=5, **more):
        """Have it answered once, and rated by these people."""
        trace_id = self.answer(question, **more)
        for person in people:
            self.store.rate(trace_id, rating, actor=person)
        return trace_id

    def replace(self, document):
        """Put another text into the index, under the same id."""
        self.primary.delete([document.id])
        self.primary.add_documents([document])

    def run(self, foldback):
        return foldback.apply(foldback.plan())

    def served(self, foldback=None, question=REFUND, **settings):
        """Make the question's entry active, and return what serves it."""
        self.liked(question, **settings)
        foldback = foldback or self.foldback(resolve=self.primary.get_by_ids)
        self.run(foldback)
        [entry] = [one for one in foldback.list(status="candidate") if one.question == question]
        foldback.approve(entry.derived_id, "rita")
        return foldback


def ids(documents):
    return [document.id for document in documents]


def rows(store):
    """Return everything that the database holds, by table."""
    with reading(store) as connection:
        return {
            name: sorted(map(repr, connection.execute(select(table)).all()))
            for name, table in metadata.tables.items()
            if name.startswith("lcf_")
        }
