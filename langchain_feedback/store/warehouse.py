"""A store's history as Parquet files, and the evidence that DuckDB works out from them.

The store keeps its evidence step by step. For hundreds of millions of signals the same can be
worked out at one go, outside of the database: to prove that the two agree, to see what another
half-life would make of the votes, or to join feedback with whatever else lies in a warehouse.
Any engine that reads Parquet reads the export, by month:

| table | one row | month of |
| --- | --- | --- |
| `signals` | an event, with comment and correction | `received_at` |
| `traces` | a question asked, with its text and answer | `created_at` |
| `candidates` | a chunk that was considered for a trace | its trace's `created_at` |

Times are UTC. What `forget` removes from the store stays in an export until the next one into the
same folder, which removes the files of the one before.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_feedback.errors import MissingExtraError, StoreError
from langchain_feedback.store.half_life import checked_half_life
from langchain_feedback.store.parts.base import KEPT
from langchain_feedback.store.warehouse_files import Part, arrow, keep, read_manifest
from langchain_feedback.store.warehouse_rows import arrow_schema, write_tables
from langchain_feedback.store.warehouse_sql import COUNTED, VIEWS
from langchain_feedback.store.warehouse_sums import add_up_votes

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Exported", "export_parquet", "rebuild_evidence_with_duckdb"]

_BATCH = 200_000
"""Votes that are added up at a time."""


@dataclass(frozen=True)
class Exported:
    """What an export holds, in rows, and how many of its files are new."""

    signals: int
    traces: int
    candidates: int
    files: int
    written: int
    """0 where nothing changed since the export before."""


def export_parquet(store: "FeedbackStore", folder: str | os.PathLike[str]) -> Exported:
    """Write the history of a namespace as Parquet files, one of each table and month.

    All of it is one state of the database. The export appears as a whole: until then, and after
    a crash, the one before is there; half a file that a crash left goes with the first export
    an hour later. Doing it again writes what changed. One folder takes one namespace, and one
    export at a time.

    Args:
        store: Whose database, and whose namespace.
        folder: Made if it is not there.

    Raises:
        MissingExtraError: If pyarrow is not installed.
        StoreError: If the database cannot be read or the folder not be written, or the folder
            holds another namespace.

    Example:
        >>> import tempfile
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> store.record_trace("t1", "How long?", [Document("14 days.", id="a")])
        >>> event_id = store.rate("t1", 5, target="a", actor="ann")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_parquet(store, folder)
        ...     export_parquet(store, folder).written
        ...     evidence = rebuild_evidence_with_duckdb(folder)
        Exported(signals=1, traces=1, candidates=1, files=3, written=3)
        0
        >>> evidence.column("positive").to_pylist()
        [1.0]
    """
    arrow()
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        before = read_manifest(target)
        if before is not None and before.namespace != store.namespace:
            msg = (
                f"The folder {target} holds an export of namespace {before.namespace!r}, not of "
                f"{store.namespace!r}. Give each namespace a folder of its own."
            )
            raise StoreError(msg)
        store._settle()  # noqa: SLF001  ours
        with store._access.snapshot() as connection:  # noqa: SLF001
            manifest = write_tables(connection, store.namespace, target)
        keep(target, manifest)
    except OSError as error:
        msg = f"The export into {target} failed, and the one before is as it was: {error}"
        raise StoreError(msg) from error
    paths = manifest.paths
    known = set() if before is None else set(before.paths)
    rows = {name: manifest.rows(name) for name in manifest.tables}
    return Exported(**rows, files=len(paths), written=len(set(paths) - known))


def rebuild_evidence_with_duckdb(
    folder: str | os.PathLike[str],
    *,
    half_life_days: float | str | None = KEPT,
    threads: int | None = None,
    memory_limit: str | None = None,
) -> Any:
    """Work out the evidence of an export: what the store's own table holds, bit for bit.

    DuckDB picks the votes in force, what each credits, and one vote of each person, on disk
    where memory is short. What is left ages and is added up as the store does it: by NumPy, and
    exactly before it is rounded.

    Args:
        folder: Of `export_parquet`.
        half_life_days: Another one than the store's; None: votes do not age.
        threads: The most; as many as there are cores without it.
        memory_limit: As DuckDB writes it, such as `"4GB"`; else most of what there is.

    Returns:
        A `pyarrow.Table` in the order of its key: question_id, chunk_id, content_hash (the last
        two empty for how the answers fared), positive, negative, as_of.

    Raises:
        MissingExtraError: If DuckDB or pyarrow is not installed.
        ValueError: If the half-life is not above 0.
        StoreError: If the folder holds no export, or cannot be read.
    """
    arrow()
    duckdb, target = _duckdb(), Path(folder)
    manifest = read_manifest(target)
    if manifest is None:
        msg = f"There is no complete export in {target}. Write one with export_parquet."
        raise StoreError(msg)
    given = manifest.half_life_days if half_life_days == KEPT else half_life_days
    half_life = checked_half_life(given)
    options: dict[str, Any] = {"threads": threads, "memory_limit": memory_limit}
    config = {name: value for name, value in options.items() if value is not None}
    try:
        with duckdb.connect(config=config) as connection:
            for name, parts in manifest.tables.items():
                _open(connection, name, target, parts)
            connection.execute(VIEWS)
            return add_up_votes(connection.sql(COUNTED).to_arrow_reader(_BATCH), half_life)
    except duckdb.Error as error:
        msg = f"DuckDB cannot read the export in {target}: {error}. Was it written anew meanwhile?"
        raise StoreError(msg) from error


def _duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ImportError as error:
        msg = 'This needs DuckDB. Run: pip install "langchain-feedback[warehouse]"'
        raise MissingExtraError(msg) from error


def _open(connection: Any, name: str, folder: Path, parts: Sequence[Part]) -> None:
    if parts:
        paths = [str(folder / part.path) for part in parts]
        connection.read_parquet(paths, hive_partitioning=False).create_view(name)
        return
    connection.register(name, arrow_schema(name).empty_table())
