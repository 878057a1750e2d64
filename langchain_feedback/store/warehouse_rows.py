"""Which rows of a namespace an export holds, in which month, and with which types."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Select, func, select
from sqlalchemy.types import BigInteger, Boolean, Float, Integer

from langchain_feedback.store.columns import UTCDateTime
from langchain_feedback.store.half_life import read_half_life
from langchain_feedback.store.schema import questions, signals, trace_chunks, traces
from langchain_feedback.store.warehouse_files import (
    Manifest,
    Part,
    arrow,
    months_between,
    write_part,
)

__all__ = ["TABLES", "arrow_schema", "write_tables"]

TABLES = ("signals", "traces", "candidates")

_PAGE = 50_000
"""Rows in memory at a time, and of one row group."""


def arrow_schema(table: str) -> Any:
    """Return the columns of a table as pyarrow has them."""
    pyarrow = arrow()
    return pyarrow.schema([(column.name, _type(pyarrow, column)) for column in _columns()[table]])


def write_tables(connection: Connection, namespace: str, folder: Path) -> Manifest:
    """Write every file of an export, and return what it is to hold."""
    tables = {name: tuple(_parts(connection, namespace, folder, name)) for name in TABLES}
    return Manifest(namespace, read_half_life(connection), tables)


def _columns() -> dict[str, list[Any]]:
    of_signals = [column for column in signals.c if column.name != "namespace"]
    of_traces = [column for column in traces.c if column.name != "namespace"]
    return {
        "signals": of_signals,
        "traces": [*of_traces, questions.c.text.label("question")],
        "candidates": list(trace_chunks.c),
    }


def _statement(table: str, namespace: str) -> tuple[Select[Any], Any, Sequence[Any]]:
    """Return the rows of a table, the instant that they are filed under, and their order."""
    columns = _columns()[table]
    if table == "signals":
        mine = select(*columns).where(signals.c.namespace == namespace)
        return mine, signals.c.received_at, [signals.c.seq]
    mine = select(*columns).where(traces.c.namespace == namespace)
    if table == "traces":
        joined = mine.join(questions, questions.c.question_id == traces.c.question_id)
        return joined, traces.c.created_at, [traces.c.trace_id]
    joined = mine.join(traces, traces.c.trace_id == trace_chunks.c.trace_id)
    return joined, traces.c.created_at, list(trace_chunks.primary_key.columns)


def _parts(connection: Connection, namespace: str, folder: Path, table: str) -> Iterator[Part]:
    rows, instant, order = _statement(table, namespace)
    found = rows.with_only_columns(func.min(instant), func.max(instant))
    first, last = connection.execute(found).one()
    if first is None:
        return
    schema = arrow_schema(table)
    streamed = connection.execution_options(yield_per=_PAGE)
    for beginning, end in months_between(first, last):
        of_month = rows.where(instant >= beginning, instant < end).order_by(*order)
        pages = streamed.execute(of_month).partitions()
        part = write_part(folder, table, beginning, schema, pages)
        if part is not None:
            yield part


def _type(pyarrow: Any, column: Column[Any]) -> Any:
    if isinstance(column.type, UTCDateTime):
        return pyarrow.timestamp("us", tz="UTC")
    if isinstance(column.type, Boolean):
        return pyarrow.bool_()
    if isinstance(column.type, BigInteger | Integer):
        return pyarrow.int64()
    return pyarrow.float64() if isinstance(column.type, Float) else pyarrow.string()
