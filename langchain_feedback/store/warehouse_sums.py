"""From the votes that count to what each cell adds up to, exactly as the store does it."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from langchain_feedback.ranking.belief import decay
from langchain_feedback.store.warehouse_files import arrow

__all__ = ["add_up_votes"]

_CELL = ("question_id", "chunk_id", "content_hash")


def add_up_votes(batches: Iterable[Any], half_life: float | None) -> Any:
    """Add up votes that come cell by cell, in batches of pyarrow.

    Args:
        batches: With the columns question_id, chunk_id, content_hash, share (what a vote
            credits, above 0 in favor) and voted_us (microseconds since 1970).
        half_life: In days; None: votes do not age.

    Returns:
        A table with one row for each cell, in their order.
    """
    pyarrow = arrow()
    schema = pyarrow.schema(
        [
            ("question_id", pyarrow.int64()),
            ("chunk_id", pyarrow.string()),
            ("content_hash", pyarrow.string()),
            ("positive", pyarrow.float64()),
            ("negative", pyarrow.float64()),
            ("as_of", pyarrow.timestamp("us", tz="UTC")),
        ]
    )
    tables = [
        _added_up(pyarrow, votes, half_life, schema) for votes in _whole_cells(pyarrow, batches)
    ]
    return pyarrow.concat_tables(tables) if tables else schema.empty_table()


def _whole_cells(pyarrow: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """Cut votes in the order of their cells into tables that part no cell."""
    rest = None
    for batch in batches:
        table = pyarrow.Table.from_batches([batch])
        table = table if rest is None else pyarrow.concat_tables([rest, table])
        last = int(_starts(table)[-1]) if table.num_rows else 0
        whole, rest = table.slice(0, last), table.slice(last)
        if whole.num_rows:
            yield whole
    if rest is not None and rest.num_rows:
        yield rest


def _starts(votes: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where each cell begins."""
    is_new = np.zeros(votes.num_rows, dtype=bool)
    is_new[0] = True
    for name in _CELL:
        values = votes.column(name).to_numpy()
        is_new[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(is_new)


def _added_up(pyarrow: Any, votes: Any, half_life: float | None, schema: Any) -> Any:
    starts = _starts(votes)
    counts = np.diff(np.append(starts, votes.num_rows))
    voted = votes.column("voted_us").to_numpy()
    newest = np.maximum.reduceat(voted, starts)
    # As `timedelta.total_seconds` has it.
    days = (np.repeat(newest, counts) - voted) / 1_000_000 / 86_400
    share = votes.column("share").to_numpy()
    weights = np.abs(share) * decay(days, half_life)
    cells = votes.take(starts).select(list(_CELL))
    sums = [
        _sums(np.where(share * sign > 0, weights, 0.0), starts, counts) for sign in (1.0, -1.0)
    ]
    as_of = pyarrow.array(newest, pyarrow.int64()).cast(schema.field("as_of").type)
    return pyarrow.Table.from_arrays([*cells.columns, *sums, as_of], schema=schema)


def _sums(weights: Any, starts: Any, counts: Any) -> Any:
    """Add up each cell exactly before rounding; of two numbers a plain sum is that already."""
    sums = np.add.reduceat(weights, starts)
    for at in np.flatnonzero(counts > 2):  # noqa: PLR2004
        sums[at] = math.fsum(weights[starts[at] : starts[at] + counts[at]])
    return sums
