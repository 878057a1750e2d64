"""Evidence from an export, by DuckDB, against the store's own: is it equal, and how fast.

A store is filled with `--signals` events on a quarter as many traces, over two years: ratings of
answers with and without citations, ratings, clicks and skips of sources, copies; by named people,
sessions and nobody; a tenth taken back. The rows are put into the tables, and
`rebuild_evidence()` makes the evidence of them, which is what step by step gives (a test of the
store's shows that). Then the history is exported, and the evidence worked out anew from the files.
`equal` says whether the two tables are the same, bit for bit; `cells` how many rows they have.

    python benchmarks/warehouse.py [--json] [--signals 20000] [--threads N] [--memory 4GB]
        [--url sqlite:///new.db]
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from langchain_feedback import FeedbackStore
from langchain_feedback.signals import SIGNALS, vote_of_rating
from langchain_feedback.store import schema
from langchain_feedback.store.transactions import reading, writing
from langchain_feedback.store.warehouse import export_parquet, rebuild_evidence_with_duckdb

SHOWN = 4
"""Chunks of a trace, and signals on it."""
PAGE = 20_000
FIRST = datetime(2025, 1, 1, tzinfo=UTC)
DAYS = 730
OF_ANSWERS = ["rating", "thumbs_up", "thumbs_down", "copy", "regenerate"]
OF_SOURCES = ["rating", "source_click", "source_click", "source_skipped", "wrong_source"]
CELL = ("question_id", "chunk_id", "content_hash")

Rows = dict[str, list[dict[str, Any]]]


def rows_of(number: int, rng: random.Random, asked: int) -> Rows:
    """Make a trace with its candidates and the signals on it."""
    question, when = number % asked + 1, FIRST + timedelta(days=rng.random() * DAYS)
    trace = {
        "trace_id": f"t{number}",
        "namespace": "default",
        "question_id": question,
        "actor": rng.choice([None, f"p{rng.randrange(2000)}"]),
        "session_id": rng.choice([None, f"s{number % 997}"]),
        "grounded": rng.choice([None, True, False]),
        "created_at": when,
    }
    cited = rng.random() < 0.5  # noqa: PLR2004
    chunks = [
        {
            "trace_id": trace["trace_id"],
            "attempt": 1,
            "chunk_id": f"c{(question * 7 + rank) % 50_000}",
            "cell_id": f"cell{(question * 7 + rank) % 50_000}",
            "content_hash": f"h{(question * 7 + rank) % 50_000}",
            "final_rank": rank,
            "belief": 0.0,
            "origin": "base",
            "returned": True,
            "in_prompt": True,
            "cited": rank == number % SHOWN if cited else None,
            "grade": rng.choice([None, "yes", "no"]),
        }
        for rank in range(SHOWN)
    ]
    signals = [signal(trace, chunks, rng) for _ in range(SHOWN)]
    return {"traces": [trace], "trace_chunks": chunks, "signals": signals}


def signal(
    trace: dict[str, Any], chunks: list[dict[str, Any]], rng: random.Random
) -> dict[str, Any]:
    """Make one event on a trace."""
    about = rng.choice([None, *chunks])
    name = rng.choice(OF_ANSWERS if about is None else OF_SOURCES)
    rating = rng.randint(1, 5) if name == "rating" else None
    kind = SIGNALS[name]
    when = trace["created_at"] + timedelta(seconds=rng.random() * 86_400)
    return {
        "namespace": "default",
        "event_id": f"{rng.getrandbits(96):x}",
        "trace_id": trace["trace_id"],
        "attached": True,
        "family": kind.family,
        "signal": name,
        "target": "" if about is None else about["chunk_id"],
        "rating": rating,
        "polarity": kind.polarity if rating is None else vote_of_rating(rating),
        "weight": kind.weight,
        "actor": rng.choice([None, f"p{rng.randrange(2000)}"]),
        "reviewer": False,
        "received_at": when,
        "retracted_at": when if rng.random() < 0.1 else None,  # noqa: PLR2004
    }


def pages(signals: int, seed: int) -> Iterator[Rows]:
    """Yield the rows of the history, some thousand traces at a time."""
    rng = random.Random(seed)  # noqa: S311  no secret
    count = max(1, signals // SHOWN)
    asked = max(1, count // 10)
    texts = [
        {
            "question_id": at,
            "namespace": "default",
            "question_key": str(at),
            "text": f"Question {at}?",
        }
        for at in range(1, asked + 1)
    ]
    yield {"questions": texts}
    for start in range(0, count, PAGE // SHOWN):
        page: Rows = {"traces": [], "trace_chunks": [], "signals": []}
        for number in range(start, min(count, start + PAGE // SHOWN)):
            for name, rows in rows_of(number, rng, asked).items():
                page[name] += rows
        yield page


def fill(store: FeedbackStore, signals: int, seed: int) -> None:
    """Put a history into a store."""
    for page in pages(signals, seed):
        with writing(store, durable=False) as (connection, _):
            for name, rows in page.items():
                connection.execute(insert(getattr(schema, name)), rows)


def difference(store: FeedbackStore, table: Any) -> int:
    """Count the cells that are not the same in the store and in a table."""
    rebuilt = iter(row for batch in table.to_batches() for row in batch.to_pylist())
    differ = 0
    with reading(store) as connection:
        number, *names = (schema.evidence.c[name] for name in CELL)
        bytewise = "C" if connection.dialect.name == "postgresql" else "BINARY"
        order = [number, *(name.collate(bytewise) for name in names)]
        streamed = connection.execution_options(yield_per=PAGE)
        for kept in streamed.execute(select(schema.evidence).order_by(*order)):
            found = next(rebuilt, None)
            differ += found is None or tuple(found.values()) != tuple(kept)
    return differ + sum(1 for _ in rebuilt)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Fill a store, and work its evidence out in both ways."""
    found: dict[str, Any] = {"signals": options.signals // SHOWN * SHOWN}
    url = options.url or f"sqlite:///{folder / 'feedback.db'}"
    with FeedbackStore(url) as store:
        fill(store, options.signals, options.seed)
        began = time.perf_counter()
        store.rebuild_evidence()
        found["rebuild_s"] = time.perf_counter() - began
        began = time.perf_counter()
        done = export_parquet(store, folder / "export")
        found["export_s"] = time.perf_counter() - began
        files = list((folder / "export").rglob("*.parquet"))
        found["files"] = done.files
        found["megabytes"] = sum(path.stat().st_size for path in files) / 1e6
        began = time.perf_counter()
        limits = {"threads": options.threads, "memory_limit": options.memory}
        table = rebuild_evidence_with_duckdb(folder / "export", **limits)
        found["duckdb_s"] = time.perf_counter() - began
        found["cells"] = table.num_rows
        found["differ"] = difference(store, table)
        found["equal"] = found["differ"] == 0 and table.num_rows > 0
    found["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {name: round(value, 2) if isinstance(value, float) else value
            for name, value in found.items()}  # fmt: skip


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--signals", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--memory", default=None, help="such as 4GB")
    parser.add_argument("--url", default=None, help="an empty database; else a SQLite file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:16} {value:>14,}")
    return 0 if found["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
