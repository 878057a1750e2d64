"""What tests of the store's upkeep share: histories, and the tables that must follow."""

import json
import math
from random import Random

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from sqlalchemy import func, select

from langchain_feedback.store import schema
from langchain_feedback.store.feedback_store import FeedbackStore

TABLES = ("questions", "traces", "trace_searches", "trace_chunks", "chunks", "signals", "pins")
TABLES += ("credits_", "evidence")

CHUNKS = [Document(f"Chunk {i}.", id=f"c{i}", metadata={"source": "faq.md"}) for i in range(6)]


class Angles(Embeddings):
    """Reads a question's last word as an angle, so that a test knows each cosine."""

    def __init__(self, model="angles", dimension=2):
        self.model, self.dimension = model, dimension
        self.queries, self.batches = 0, []

    def embed_query(self, text):
        self.queries += 1
        return self._vector(text)

    def embed_documents(self, texts):
        self.batches.append(len(texts))
        return [self._vector(text) for text in texts]

    def _vector(self, text):
        angle = math.radians(float(text.split()[-1].strip("?")))
        return [math.cos(angle), math.sin(angle)] + [0.0] * (self.dimension - 2)


def grown(url, seed=0, traces=40, **options):
    """A store with a random history: votes, votes again, citations, retractions, pins."""
    random, store = Random(seed), FeedbackStore(url, **options)
    for number in range(traces):
        trace_id, found = f"t{number}", random.sample(CHUNKS, 4)
        person = {"actor": random.choice(["ann", "ben", "cy", None])}
        if person["actor"] is None and random.random() < 0.7:
            person["session_id"] = random.choice(["s1", "s2"])
        store.record_trace(trace_id, f"Question {random.randrange(8)}?", found, **person)
        events = [vote(store, trace_id, found, random) for _ in range(random.randrange(5))]
        if random.random() < 0.4:
            store.update_trace(trace_id, cited=random.sample(found, 1), answer="An answer.")
        for event_id in events:
            if random.random() < 0.2:
                store.retract(event_id)
    for number in range(4):
        pin = store.pin(
            f"Question {number}?", CHUNKS[number], actor=random.choice("ann ben".split())
        )
        if number == 0:
            store.retract(pin)
    store.rate("still-to-come", 5, actor="ann", pending=True)
    return store


def vote(store, trace_id, found, random):
    options = {"actor": random.choice(["ann", "ben", "cy", None, None]), "comment": "Words."}
    if random.random() < 0.5:
        return store.rate(trace_id, random.choice([1, 2, 3, 4, 5]), **options)
    name = random.choice(["source_click", "source_skipped", "copy", "thumbs_down", "regenerate"])
    target = random.choice(found) if name.startswith("source") else None
    return store.signal(trace_id, name, target=target, **options)


def evidence_of(store):
    """The evidence table with each number bit for bit, under the questions' texts."""
    rows = _rows(
        store,
        select(schema.questions.c.text, schema.evidence)
        .join(schema.evidence, schema.evidence.c.question_id == schema.questions.c.question_id)
        .where(schema.questions.c.namespace == store.namespace),
    )
    return sorted(
        (
            row.text,
            row.chunk_id,
            row.content_hash,
            row.positive.hex(),
            row.negative.hex(),
            row.as_of,
        )
        for row in rows
    )


def credits_of(store):
    credit = schema.credits_.c
    rows = _rows(
        store,
        select(schema.questions.c.text, schema.credits_)
        .join(schema.credits_, credit.question_id == schema.questions.c.question_id)
        .where(schema.questions.c.namespace == store.namespace),
    )
    names = (
        "text",
        "chunk_id",
        "content_hash",
        "actor",
        "family",
        "polarity",
        "weight",
        "voted_at",
    )
    return sorted(tuple(getattr(row, name) for name in names) for row in rows)


def assert_consistent(store):
    """The evidence is what follows from the votes, and nothing hangs in the air."""
    before = evidence_of(store), credits_of(store)
    store.rebuild_evidence()
    assert (evidence_of(store), credits_of(store)) == before


def counts(store):
    return {
        name: _rows(store, select(func.count()).select_from(_table(name)))[0][0] for name in TABLES
    }


def column(store, table, name):
    rows = _rows(store, select(_table(table).c[name]))
    return sorted((row[0] for row in rows), key=str)


def refilled(path, url, keep, change=lambda line: line):
    """A new store of the lines of an export that a test keeps, with its evidence."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    kept = [json.dumps(change(line)) for line in lines if keep(line)]
    part = path.with_name("part.jsonl")
    part.write_text("\n".join(kept), "utf-8")
    store = FeedbackStore(url)
    assert store.import_jsonl(part).problems == ()
    return store


def _table(name):
    return getattr(schema, name)


def _rows(store, statement):
    store.setup()
    with store._database.reading() as connection:
        return connection.execute(statement).all()
