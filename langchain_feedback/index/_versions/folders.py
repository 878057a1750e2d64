"""Versions that are folders: only what was registered is opened.

Loading a FAISS index unpickles a file, and a pickle can run anything. So the registry holds a
digest of the folder, and whoever opens it compares first.
"""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_feedback.index._writer.folders import SEALED
from langchain_feedback.index.errors import VersionRefusedError

if TYPE_CHECKING:
    from langchain_feedback.index._versions.rows import IndexVersion

__all__ = ["checked_folder", "sealed_folder"]

_FOLDER, _DIGEST = "folder", "sha256"


def sealed_folder(folder: str | Path) -> dict[str, Any]:
    """Return the locator of a version that was saved into a folder: its path and its digest.

    A mark is left in the folder, so that a `SavedFolder` that it is a state of keeps it.

    Args:
        folder: Complete, and never written to again: such as `SavedFolder(...).current()`.

    Raises:
        VersionRefusedError: If it holds no file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as place:
        ...     _ = (Path(place) / "index.faiss").write_bytes(b"vectors")
        ...     sealed_folder(place)["sha256"][:12]
        '2b741fbf09d5'
    """
    path = Path(folder).resolve()
    digest = _digest(path)
    with suppress(PermissionError):  # what nobody may write to, nobody clears away
        (path / SEALED).touch()
    return {_FOLDER: str(path), _DIGEST: digest}


def checked_folder(version: "IndexVersion") -> Path:
    """Return the folder of a version, if it is what was registered.

    Call it in `open_version`, right before the files are read. It keeps out what was changed
    since, and not somebody who may write there while they are read.

    Args:
        version: One whose locator `sealed_folder` made.

    Raises:
        VersionRefusedError: If the folder is gone, or any file in it is another one now.
    """
    folder, sealed = version.locator.get(_FOLDER), version.locator.get(_DIGEST)
    if not isinstance(folder, str) or not isinstance(sealed, str):
        msg = f"Version {version.version!r} has no sealed folder: {dict(version.locator)}."
        raise VersionRefusedError(msg)
    path = Path(folder)
    if _digest(path) != sealed:
        msg = (
            f"The folder {folder} of version {version.version!r} is not what was registered: it "
            "was changed since. It is not opened; build a new version."
        )
        raise VersionRefusedError(msg)
    return path


def _digest(folder: Path) -> str:
    """Return the SHA-256 of all names and contents below a folder."""
    files = sorted((path.relative_to(folder).as_posix(), path) for path in _files(folder))
    if not files:
        msg = f"The folder {folder} of a version holds no file."
        raise VersionRefusedError(msg)
    told = hashlib.sha256()
    for name, path in files:
        with path.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        # Lengths first: no choice of names and contents can imitate another pair.
        told.update(f"{len(name)}:{name}{content}".encode("utf-8", "surrogateescape"))
    return told.hexdigest()


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.rglob("*") if path.is_file() and path != folder / SEALED]
