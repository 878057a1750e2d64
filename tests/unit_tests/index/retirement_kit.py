"""What the tests of retirement share: an index, people who vote, and days that pass."""

from datetime import timedelta
from itertools import count

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from sqlalchemy import insert, select, update

from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.retirement import Retirement
from langchain_feedback.index.writer import IndexWriter
from langchain_feedback.store.care_schema import care_actions, care_runs
from langchain_feedback.store.schema import (
    chunks,
    credits_,
    metadata,
    questions,
    signals,
    trace_chunks,
    traces,
)
from langchain_feedback.store.transactions import reading, writing

EMBEDDING = DeterministicFakeEmbedding(size=8)
PEOPLE = tuple(f"person {at}" for at in range(8))
QUESTIONS = tuple(f"Question {at}?" for at in range(6))
JUNK = "Contents"


def empty_index(kind):
    if kind == "memory":
        return InMemoryVectorStore(EMBEDDING)
    from faiss import IndexFlatL2  # noqa: PLC0415
    from langchain_community.docstore.in_memory import InMemoryDocstore  # noqa: PLC0415
    from langchain_community.vectorstores import FAISS  # noqa: PLC0415

    return FAISS(EMBEDDING, IndexFlatL2(8), InMemoryDocstore(), {})


def chunk(key, text=None, source="a.md", **more):
    text = f"Rule {key} of the house takes {key} days to learn by heart." if text is None else text
    return Document(text, id=str(key), metadata={"source": source, **more})


class World:
    """An index whose chunks are known and scored, and people who say what they think."""

    def __init__(self, store, kind="memory", *documents, rules=None):
        self.store, self.kind = store, kind
        self.index = empty_index(kind)
        self.writer = IndexWriter(self.index, TableLedger(store, "handbook"))
        self.retirement = Retirement(store, self.writer, rules=rules)
        self._traces = count()
        if documents:
            self.load(*documents)

    def load(self, *documents):
        self.writer.apply(self.writer.plan(documents))
        ChunkCatalog(self.store).sync(documents, complete=True)
        QualityGate(self.store).score(documents)

    def vote(self, document, rating=1, people=PEOPLE, questions=QUESTIONS, cited=None, **facts):
        """Have each question answered from a document for each person, who rates the answer.

        Or from others, that are `cited`, while the document only stands by.
        """
        prompt = [document] if cited is None else [document, *cited]
        quoted = [document] if cited is None else list(cited)
        for question in questions:
            for person in people:
                trace_id = f"trace-{next(self._traces)}"
                self.store.record_trace(trace_id, question, prompt)
                known = {"status": "answered", "grounded": True} | facts
                self.store.update_trace(trace_id, answer="So.", cited=quoted, **known)
                self.store.rate(trace_id, rating, actor=person)

    def run(self, actor="rita"):
        return self.retirement.apply(self.retirement.plan(), actor=actor)

    def pass_days(self, days):
        """Let everything have happened so many days earlier."""
        columns = (care_actions.c.at, credits_.c.voted_at, signals.c.received_at)
        with writing(self.store) as (connection, _):
            for column in columns:
                key = list(column.table.primary_key)
                for row in connection.execute(select(*key, column.label("then"))).all():
                    same = [one == value for one, value in zip(key, row, strict=False)]
                    earlier = {column.name: row.then - timedelta(days=days)}
                    connection.execute(update(column.table).where(*same).values(earlier))

    def status(self):
        with reading(self.store) as connection:
            rows = connection.execute(select(chunks.c.chunk_id, chunks.c.status))
            return {row.chunk_id: row.status for row in rows}

    def held(self):
        """Return what is in the index, by id, as far as the catalog knows it."""
        found = self.index.get_by_ids(sorted(self.status()))
        return {one.id: (one.page_content, one.metadata) for one in found}

    def ranked(self, query):
        """Return the ids and scores of a search, in order."""
        found = self.index.similarity_search_with_score(query, k=50)
        return [(document.id, round(float(score), 5)) for document, score in found]

    def runs(self):
        with reading(self.store) as connection:
            statement = select(care_runs).order_by(care_runs.c.started_at)
            return [dict(row) for row in connection.execute(statement).mappings()]


def repeated(store, times):
    """Have all that was asked and said so many times more, about questions of their own."""
    tables = (questions, traces, trace_chunks, signals)
    with writing(store) as (connection, _):
        for table in tables:
            rows = [dict(row) for row in connection.execute(select(table)).mappings()]
            for turn in range(1, times + 1):
                connection.execute(insert(table), [row | _another(row, turn) for row in rows])
    store.rebuild_evidence()


def _another(row, turn):
    numbers = {name: row[name] + turn * 1_000 for name in ("question_id", "seq") if name in row}
    names = ("question_key", "trace_id", "event_id")
    texts = {name: f"{row[name]}, {turn}" for name in names if name in row}
    return numbers | texts | ({"memory_seq": None} if "memory_seq" in row else {})


def everything(store):
    """Return every row of every table, but for the runs."""
    with reading(store) as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table)).all()))
            for table in metadata.sorted_tables
            if table is not care_runs
        }


def ids(candidates):
    return [one.chunk_id for one in candidates]
