"""The files of an export: monthly partitions that a manifest names, so that none is half one.

A file's name holds the digest of its bytes: it never changes, and writing the same rows again
writes nothing. What belongs to an export is what `manifest.json` lists. It is replaced in one
step, when every file of it is complete; only then the files of the export before go. Whoever
reads by the manifest therefore sees one export or the other, and never a mixture.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_feedback.errors import MissingExtraError, StoreError

__all__ = ["FORMAT", "Manifest", "Part", "arrow", "keep", "months_between", "read_manifest"]
__all__ += ["write_part"]

FORMAT = 1
"""Counts up when a column changes its meaning; another format is not read."""

_MANIFEST = "manifest.json"
_DECEMBER = 12
_DEAD_S = 3_600
"""How long nothing was written to the file of an export that must have died."""


@dataclass(frozen=True)
class Part:
    """One file of an export."""

    path: str
    """Below the folder, as `signals/month=2026-11/6f0c...parquet`."""
    rows: int


@dataclass(frozen=True)
class Manifest:
    """What an export holds."""

    namespace: str
    half_life_days: float | None
    """The store's; None: votes do not age."""
    tables: Mapping[str, Sequence[Part]]
    """Every file by its table, oldest month first."""

    @property
    def paths(self) -> list[str]:
        """Every file, below the folder."""
        return [part.path for parts in self.tables.values() for part in parts]

    def rows(self, table: str) -> int:
        """Return how many rows there are of a table."""
        return sum(part.rows for part in self.tables[table])


def arrow() -> Any:
    """Return pyarrow with its Parquet module.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        msg = 'Parquet needs pyarrow. Run: pip install "langchain-feedback[warehouse]"'
        raise MissingExtraError(msg) from error


def months_between(first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield each month from that of one instant to that of another, as [beginning, end).

    Example:
        >>> from datetime import UTC
        >>> days = datetime(2026, 11, 30, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
        >>> [f"{beginning:%Y-%m}" for beginning, _ in months_between(*days)]
        ['2026-11', '2026-12', '2027-01']
    """
    month = _month_of(first)
    while month <= last:
        december = month.month == _DECEMBER
        following = month.replace(
            year=month.year + december, month=1 if december else month.month + 1
        )
        yield month, following
        month = following


def write_part(
    folder: Path, table: str, month: datetime, schema: Any, pages: Iterable[Sequence[Any]]
) -> Part | None:
    """Write the rows of a table and month, page by page; None: there are none.

    The file appears when it is complete, under the name that its bytes give it.

    Args:
        folder: The export's.
        table: Its name.
        month: Its beginning, in UTC.
        schema: Of pyarrow, with the columns in the order of the rows' values.
        pages: Rows, as sequences of values; each page is one row group.
    """
    pyarrow = arrow()
    partial = folder / f".{uuid4().hex}.partial"
    rows, writer = 0, None
    try:
        for page in pages:
            if not page:
                continue
            writer = writer or pyarrow.parquet.ParquetWriter(partial, schema, compression="zstd")
            arrays = [
                pyarrow.array(values, field.type)
                for values, field in zip(zip(*page, strict=True), schema, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            rows += len(page)
        if writer is None:
            return None
        writer.close()
        name = f"{table}/month={month:%Y-%m}/{_digest(partial)}.parquet"
        _settle(partial, folder / name)
    finally:
        if writer is not None and writer.is_open:
            writer.close()
        partial.unlink(missing_ok=True)
    return Part(name, rows)


def keep(folder: Path, manifest: Manifest) -> None:
    """Make an export the one that counts, and remove every file of earlier ones."""
    partial = folder / f".{uuid4().hex}.partial"
    said = {
        "format": FORMAT,
        "namespace": manifest.namespace,
        "half_life_days": manifest.half_life_days,
        "tables": {
            table: [{"path": part.path, "rows": part.rows} for part in parts]
            for table, parts in manifest.tables.items()
        },
    }
    try:
        partial.write_text(json.dumps(said, indent=1) + "\n", "utf-8")
        _settle(partial, folder / _MANIFEST)
    finally:
        partial.unlink(missing_ok=True)
    _sweep(folder)
    listed = {folder / path for path in manifest.paths}
    for table in manifest.tables:
        for path in sorted((folder / table).glob("month=*/*.parquet")):
            if path not in listed:
                path.unlink(missing_ok=True)
                with suppress(OSError):  # others are still in it
                    path.parent.rmdir()


def read_manifest(folder: Path) -> Manifest | None:
    """Return what a folder holds; None: no export was completed there.

    Raises:
        StoreError: If it cannot be read, or is of another format.
    """
    try:
        said = json.loads((folder / _MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        msg = f"The export in {folder} cannot be read: {error}"
        raise StoreError(msg) from error
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        msg = f"The folder {folder} holds no export of format {FORMAT}. Export into another one."
        raise StoreError(msg)
    tables = {
        table: tuple(Part(part["path"], part["rows"]) for part in parts)
        for table, parts in said["tables"].items()
    }
    return Manifest(said["namespace"], said["half_life_days"], tables)


def _month_of(instant: datetime) -> datetime:
    return instant.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _sweep(folder: Path) -> None:
    """Remove what exports that were killed left half written."""
    for path in folder.glob(".*.partial"):
        with suppress(OSError):  # somebody else removed it
            if time.time() - path.stat().st_mtime > _DEAD_S:
                path.unlink()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _settle(partial: Path, path: Path) -> None:
    """Give a complete file its name, once its bytes are on the disk."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    path.parent.mkdir(parents=True, exist_ok=True)
    partial.replace(path)
