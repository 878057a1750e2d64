"""What a `FeedbackRetriever` adds to the retriever that it wraps.

Each question goes to the bare base, to the base with the over-fetch (20 in place of 4), and to
the `FeedbackRetriever`, in turn, in one process, sync and async, with an empty store and
with one that holds ratings of the questions asked. Bases are LangChain's `InMemoryVectorStore`
and FAISS over the same chunks, with fake embeddings, so that no model hides the difference.
What is added is the over-fetch, one embedding of the question for the store, the look-up,
the ranking, copies of the documents, and the trace, written before the call returns.

Not measured: a real embedding model (tens of milliseconds, which dwarf all of this: the store
embeds the question once more, unless both share a cache), and a store with many
questions (`benchmarks/store.py`).

    python benchmarks/overhead.py [--runs 200] [--chunks 1000] [--json]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of

DIMENSION = 384
K, FETCH = 4, 20
WARM_UP = 20
CONFIG: Any = {"metadata": {"user_id": "reader"}}


class Timed(Embeddings):
    """Fake embeddings; adds up how long the store waited for them, and counts the calls."""

    def __init__(self) -> None:
        self.fake = DeterministicFakeEmbedding(size=DIMENSION)
        self.seconds, self.calls = 0.0, 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Embed a question."""
        started = time.perf_counter()
        vector = self.fake.embed_query(text)
        self.seconds += time.perf_counter() - started
        self.calls += 1
        return vector

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a question without a thread of its own."""
        return self.embed_query(text)


def vector_stores(chunks: list[Document]) -> dict[str, VectorStore]:
    """Index the chunks; FAISS only where its extra is installed."""
    fake = DeterministicFakeEmbedding(size=DIMENSION)
    stores: dict[str, VectorStore] = {
        "InMemoryVectorStore": InMemoryVectorStore.from_documents(chunks, fake)
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from langchain_community.vectorstores import FAISS  # noqa: PLC0415  an extra
        stores["FAISS"] = FAISS.from_documents(chunks, fake)
    except ImportError:
        print("FAISS is not installed and left out", file=sys.stderr)
    return stores


@contextmanager
def opened(retriever: BaseRetriever, questions: list[str], *, filled: bool) -> Iterator[Any]:
    """Yield the retriever with feedback, and the embeddings of its store."""
    with tempfile.TemporaryDirectory() as folder:
        embeddings = Timed()
        url = f"sqlite:///{Path(folder) / 'feedback.db'}"
        store = FeedbackStore(url, embeddings=embeddings, timeout_s=10)
        wrapped = FeedbackRetriever(base_retriever=retriever, store=store, k=K, fetch_k=FETCH)
        store.setup()
        for number, question in enumerate(questions if filled else ()):
            found = wrapped.invoke(question, CONFIG)
            for place, document in enumerate(found):
                actor = f"person {number}"
                store.rate(trace_id_of(found), 1 + 4 * (place % 2), target=document, actor=actor)
        embeddings.seconds, embeddings.calls = 0.0, 0
        yield wrapped, embeddings
        store.close()


def measure_sync(ways: dict[str, Callable[[str], Any]], questions: list[str]) -> dict[str, Any]:
    """Time each way on each question, in turn."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for question in questions:
        for way, ask in ways.items():
            started = time.perf_counter()
            ask(question)
            times[way].append(time.perf_counter() - started)
    return times


async def measure_async(
    ways: dict[str, Callable[[str], Any]], questions: list[str]
) -> dict[str, Any]:
    """Time each way on each question, in turn, in one event loop."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for question in questions:
        for way, ask in ways.items():
            started = time.perf_counter()
            await ask(question)
            times[way].append(time.perf_counter() - started)
    return times


def measure(vectors: VectorStore, questions: list[str], *, filled: bool) -> dict[str, Any]:
    """Compare on one base with one store."""
    bare = vectors.as_retriever(search_kwargs={"k": K})
    wide = vectors.as_retriever(search_kwargs={"k": FETCH})
    rows: dict[str, Any] = {}
    for mode in ("sync", "async"):
        with opened(bare, questions, filled=filled) as (wrapped, embeddings):
            parts = {"bare": bare, "overfetch": wide, "feedback": wrapped}
            call = "invoke" if mode == "sync" else "ainvoke"
            ways = {way: _asking(part, call) for way, part in parts.items()}
            rounds = [questions[:WARM_UP], questions]
            if mode == "sync":
                _, times = (measure_sync(ways, asked) for asked in rounds)
            else:
                _, times = (asyncio.run(measure_async(ways, asked)) for asked in rounds)
            rows[mode] = _row(times, embeddings)
    return rows


def _asking(part: Any, call: str) -> Callable[[str], Any]:
    return lambda question: getattr(part, call)(question, CONFIG)


def _row(times: dict[str, list[float]], embeddings: Timed) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for way, seconds in times.items():
        p50, p95 = np.percentile(1000 * np.array(seconds), (50, 95))
        row[way] = {"p50_ms": round(float(p50), 3), "p95_ms": round(float(p95), 3)}
    bare, feedback = np.array(times["bare"]), np.array(times["feedback"])
    row["ratio"] = round(float(np.median(feedback / bare)), 2)
    row["added_ms"] = round(1000 * float(np.median(feedback - bare)), 3)
    row["embedding_ms"] = round(1000 * embeddings.seconds / max(1, embeddings.calls), 3)
    row["embedding_calls"] = embeddings.calls / (len(bare) + min(WARM_UP, len(bare)))
    return row


def _table(result: dict[str, Any]) -> None:
    print(
        f"{'ms a call, p50 / p95':38}{f'bare, k = {K}':>16}{f'bare, k = {FETCH}':>16}"
        f"{'with feedback':>16}{'ratio':>7}{'added':>8}{'embedding':>11}"
    )
    for base, stores in result["bases"].items():
        for filled, rows in stores.items():
            for mode, row in rows.items():
                cells = [
                    f"{row[way]['p50_ms']:.2f} / {row[way]['p95_ms']:.2f}"
                    for way in ("bare", "overfetch", "feedback")
                ]
                label = f"{base}, {filled} store, {mode}"
                print(
                    f"{label:38}" + "".join(f"{cell:>16}" for cell in cells) + f"{row['ratio']:>7}"
                    f"{row['added_ms']:>8.2f}{row['embedding_ms']:>11.2f}"
                )


def main() -> None:
    """Print the table, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--chunks", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if min(options.runs, options.chunks - FETCH) < 1:
        parser.error(f"--runs must be at least 1 and --chunks above {FETCH}")
    chunks = [
        Document(f"Part {i}. {'The desk keeps a record of each return. ' * 20}", id=f"chunk-{i}")
        for i in range(options.chunks)
    ]
    questions = [f"What does part {i} say?" for i in range(options.runs)]
    result = {
        "runs": options.runs,
        "chunks": options.chunks,
        "bases": {
            name: {
                state: measure(vectors, questions, filled=state == "filled")
                for state in ("empty", "filled")
            }
            for name, vectors in vector_stores(chunks).items()
        },
    }
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    _table(result)


if __name__ == "__main__":
    main()
