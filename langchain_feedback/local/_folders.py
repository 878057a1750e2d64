"""Find the files of a folder, without hidden ones, and without going round in a loop of links."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from langchain_feedback.errors import UnreadableFileError

__all__ = ["find_files"]


def find_files(folder: Path, kinds: Sequence[str]) -> tuple[list[Path], list[UnreadableFileError]]:
    """List the files of some kinds under a folder, sorted, and the folders that cannot be listed.

    Args:
        folder: A folder, or one file, which is returned whatever its kind.
        kinds: Endings in small letters, such as `.md`.

    Raises:
        UnreadableFileError: There is nothing at the path, or it may not be looked at.
    """
    try:
        is_folder, exists = folder.is_dir(), folder.exists()
    except OSError as error:  # such as a folder above it without permission
        msg = f"Cannot look at {folder}: {error.strerror}. Check the path and its permissions."
        raise UnreadableFileError(msg) from error
    if not exists:
        msg = f"There is no folder or file at {folder}. Check the path."
        raise UnreadableFileError(msg)
    if not is_folder:
        return [folder], []
    problems: list[UnreadableFileError] = []
    return sorted(_walk(folder, kinds, problems)), problems


def _walk(
    folder: Path, kinds: Sequence[str], problems: list[UnreadableFileError]
) -> Iterator[Path]:
    def cannot_list(error: OSError) -> None:
        msg = f"Cannot list the folder {error.filename}: {error.strerror}. Change its permissions."
        problems.append(UnreadableFileError(msg))

    linked: set[Path] = set()
    for here, folders, files in os.walk(folder, onerror=cannot_list, followlinks=True):
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".") and _leads_on(Path(here, name), folder, linked)
        ]
        for name in files:
            if not name.startswith(".") and Path(name).suffix.lower() in kinds:
                yield Path(here, name)


def _leads_on(path: Path, folder: Path, linked: set[Path]) -> bool:
    """Follow a link only out of the tree, which is read anyway, and each target once."""
    if not path.is_symlink():
        return True
    target, top = path.resolve(), folder.resolve()
    known = target in linked or target.is_relative_to(top) or top.is_relative_to(target)
    linked.add(target)
    return not known
