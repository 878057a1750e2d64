"""Save an index that lives in memory so that a crash leaves the old state or the new one."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_feedback.index.errors import IndexBusyError

__all__ = ["SEALED", "SavedFolder"]

SEALED = ".sealed"
"""Marks a state that a version was made of."""
_POINTER = "CURRENT"


class SavedFolder:
    """A folder of saved states of an index, one of which is current.

    FAISS writes two files, one after the other, so a crash between them loses the index. Here
    each state gets a folder of its own, and a pointer moves to it when it is complete. Make one,
    load what is `current`, and save with the same one: it does not overwrite what another
    process saved since.

    Args:
        folder: Where the states are; it is made if it is missing.
        save: What saves a vector store into an empty folder. None: its own `save_local`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as place:
        ...     states = SavedFolder(place, lambda text, folder: (folder / "x").write_text(text))
        ...     states.current(), states.save("new").name == states.current().name
        (None, True)
    """

    def __init__(
        self, folder: str | Path, save: Callable[[Any, Path], object] | None = None
    ) -> None:
        self.folder = Path(folder)
        self._save = save or _save_local
        self._known = self._named()

    def current(self) -> Path | None:
        """Return the folder of the newest complete state; None before the first.

        Whoever loads a FAISS index from it unpickles a file: nobody else may write there.
        """
        self._known = self._named()
        return self._path_of(self._known)

    def check(self) -> None:
        """Look whether what was loaded is still current; a writer does before it begins.

        Raises:
            IndexBusyError: If another state was saved since.
        """
        if self._named() != self._known:
            msg = (
                f"Another process saved {str(self.folder)!r} since it was loaded here, and this"
                " state has nothing of that: it is not saved. Load the index again, plan again."
            )
            raise IndexBusyError(msg)

    def save(self, vector_store: Any) -> Path:
        """Save a state, make it current, and return its folder.

        Of the others the one before is kept, and what versions were made of.

        Raises:
            IndexBusyError: If another state was saved since this one was loaded.
        """
        self.check()
        before = self._path_of(self._known)
        made = self.folder / uuid4().hex
        made.mkdir(parents=True)
        self._save(vector_store, made)
        for path in made.rglob("*"):
            _to_disk(path)
        _to_disk(made)
        pointer = self.folder / f"{_POINTER}.{made.name}"
        pointer.write_text(made.name, encoding="utf-8")
        _to_disk(pointer)
        pointer.replace(self.folder / _POINTER)
        _to_disk(self.folder)
        self._known = made.name
        self._clear({made, before})
        return made

    def _named(self) -> str | None:
        try:
            return (self.folder / _POINTER).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _path_of(self, name: str | None) -> Path | None:
        return None if name is None else self.folder / name

    def _clear(self, kept: set[Path | None]) -> None:
        for path in self.folder.iterdir():
            if path.is_dir() and path not in kept and not (path / SEALED).exists():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(f"{_POINTER}."):
                # Left behind by a crash just before it was moved.
                path.unlink(missing_ok=True)


def _save_local(vector_store: Any, folder: Path) -> None:
    vector_store.save_local(str(folder))


def _to_disk(path: Path) -> None:
    """Wait until a file or a folder is on the disk, as far as the system can tell."""
    try:
        opened = os.open(path, os.O_RDONLY)
    except PermissionError:
        return  # Windows opens no folders
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
