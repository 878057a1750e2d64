"""Files that appear when they are complete, and never in the place of another one unasked."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_feedback.errors import StoreError

__all__ = ["as_line", "write_file", "write_folder"]


def as_line(value: Mapping[str, Any]) -> str:
    r"""Return one line of JSON.

    Example:
        >>> as_line({"query": "Grüße\n"})
        '{"query": "Grüße\\n"}\n'
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


def write_file(path: Path, parts: Iterable[str], *, overwrite: bool) -> tuple[Path]:
    """Write a text file as a whole or not at all; return its path.

    Raises:
        ValueError: If it exists, and `overwrite` is false; or its folder does not.
        StoreError: If it cannot be written.
    """
    _check(path, overwrite=overwrite, is_folder=False)
    partial = _partial(path)
    with _told(path, partial):
        _write(partial, parts)
        partial.replace(path)
    return (path,)


def write_folder(
    path: Path, files: Mapping[str, Iterable[str]], *, overwrite: bool
) -> tuple[Path, ...]:
    """Write text files into a folder that appears with all of them; return their paths.

    In a folder that is there already (an empty one, or with `overwrite`) each file is replaced
    once all are complete. Other files in it stay.

    Raises:
        ValueError: If it exists and holds something, and `overwrite` is false; or its parent
            does not exist.
        StoreError: If it cannot be written.
    """
    _check(path, overwrite=overwrite, is_folder=True)
    partial = _partial(path)
    with _told(path, partial):
        for name, parts in files.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            _write(partial / name, parts)
        if path.exists():
            for name in files:
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (partial / name).replace(path / name)
        else:
            partial.rename(path)
    return tuple(path / name for name in files)


def _check(path: Path, *, overwrite: bool, is_folder: bool) -> None:
    if not path.parent.is_dir():
        msg = f"There is no folder {path.parent} to write into."
        raise ValueError(msg)
    if path.exists() and path.is_dir() != is_folder:
        msg = f"{path} is {'a file' if is_folder else 'a folder'}; this needs another name."
        raise ValueError(msg)
    is_taken = any(path.iterdir()) if is_folder and path.exists() else path.exists()
    if is_taken and not overwrite:
        msg = f"{path} exists. Overwrite it (overwrite=True, --overwrite), or use another name."
        raise ValueError(msg)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex[:8]}.part")


def _write(path: Path, parts: Iterable[str]) -> None:
    # The same bytes on every system.
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _told(path: Path, partial: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise StoreError(msg) from error
    finally:
        with suppress(OSError):
            partial.unlink()
        shutil.rmtree(partial, ignore_errors=True)
