"""Writing the lines that `jsonl` describes, without holding more than a page of them."""

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Column, Connection, RowMapping, Table, select

from langchain_feedback.errors import StoreError
from langchain_feedback.store.jsonlines.lines import (
    CandidateLine,
    ChunkLine,
    PinLine,
    SignalLine,
    TraceLine,
)
from langchain_feedback.store.schema import (
    chunks,
    pins,
    questions,
    signals,
    trace_chunks,
    trace_searches,
    traces,
)
from langchain_feedback.store.upkeep.removing import Access

__all__ = ["export_jsonl"]

_PAGE = 500


def export_jsonl(access: Access, path: str | os.PathLike[str]) -> int:
    """Write all feedback of a namespace; return the number of lines.

    The file appears when it is complete: until then it has another name.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}.part")
    try:
        with access.snapshot() as connection, partial.open("w", encoding="utf-8") as file:
            number = 0
            for line in _lines(connection, access.namespace):
                text = json.dumps(line, ensure_ascii=False, allow_nan=False, default=_as_json)
                file.write(f"{text}\n")
                number += 1
        partial.replace(target)
    except OSError as error:
        msg = f"{target} cannot be written: {error.strerror or error}"
        raise StoreError(msg) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return number


def _lines(connection: Connection, namespace: str) -> Iterator[dict[str, Any]]:
    for page in _pages(connection, chunks, chunks.c.chunk_id, namespace):
        for row in page:
            parsed = {name: json.loads(row[name]) for name in ("metadata", "dropped")}
            yield {"type": "chunk"} | _fields(ChunkLine, row) | parsed
    for page in _pages(connection, signals, signals.c.seq, namespace):
        found = _traces(connection, [row["trace_id"] for row in page])
        for row in page:
            trace = found.get(row["trace_id"]) if row["attached"] else None
            yield {"type": "signal"} | _fields(SignalLine, row) | {"trace": trace}
    for page in _pages(connection, pins, pins.c.pin_id, namespace):
        texts = _texts(connection, [row["question_id"] for row in page])
        for row in page:
            asked = {"question": texts[row["question_id"]]}
            yield {"type": "pin"} | _fields(PinLine, row) | asked


def _pages(
    connection: Connection, table: Table, key: Column[Any], namespace: str
) -> Iterator[Sequence[RowMapping]]:
    rows = select(table).where(table.c.namespace == namespace).order_by(key).limit(_PAGE)
    page = connection.execute(rows).mappings().all()
    while page:
        yield page
        page = connection.execute(rows.where(key > page[-1][key.name])).mappings().all()


def _traces(connection: Connection, trace_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    searched: dict[str, dict[int, str]] = defaultdict(dict)
    mine = trace_searches.c.trace_id.in_(trace_ids)
    for search in connection.execute(select(trace_searches).where(mine)):
        searched[search.trace_id][search.attempt] = search.query
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for chunk in connection.execute(
        select(trace_chunks)
        .where(trace_chunks.c.trace_id.in_(trace_ids))
        .order_by(trace_chunks.c.attempt, trace_chunks.c.final_rank)
    ).mappings():
        found[chunk["trace_id"]].append(_fields(CandidateLine, chunk))
    asked = connection.execute(
        select(traces, questions.c.text.label("question"))
        .join(questions, questions.c.question_id == traces.c.question_id)
        .where(traces.c.trace_id.in_(trace_ids))
    ).mappings()
    return {
        trace["trace_id"]: _fields(TraceLine, trace)
        | {"searches": searched[trace["trace_id"]], "chunks": found[trace["trace_id"]]}
        for trace in asked
    }


def _texts(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    named = select(questions.c.question_id, questions.c.text)
    rows = connection.execute(named.where(questions.c.question_id.in_(ids)))
    return {row.question_id: row.text for row in rows}


def _fields(model: Any, row: RowMapping) -> dict[str, Any]:
    """Return the columns that a kind of line has."""
    return {name: _finite(row[name]) for name in model.model_fields if name in row}


def _finite(value: Any) -> Any:
    """Return a value that JSON can hold: a retriever's score may be infinite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _as_json(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    msg = f"{type(value).__name__} has no form in JSON"
    raise TypeError(msg)
