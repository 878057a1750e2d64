"""Read a folder of your own files into documents, one for each section or page."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from langchain_core.documents import Document

from langchain_feedback.errors import (
    EmptyFolderError,
    MissingExtraError,
    UnreadableFileError,
)
from langchain_feedback.local._decoding import decode, decode_html
from langchain_feedback.local._folders import find_files
from langchain_feedback.local._html import html_sections
from langchain_feedback.local._markdown import markdown_sections
from langchain_feedback.local._pdf import pdf_sections
from langchain_feedback.local._sections import Section

__all__ = ["KINDS", "ReadResult", "read_file", "read_folder"]

OnFile = Callable[[Path, int, int], None]


def _plain(data: bytes) -> list[Section]:
    return [Section(decode(data))]


def _markdown(data: bytes) -> list[Section]:
    return markdown_sections(decode(data))


def _html(data: bytes) -> list[Section]:
    return html_sections(decode_html(data))


_READERS: dict[str, Callable[[bytes], list[Section]]] = {
    ".txt": _plain,
    ".text": _plain,
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _html,
    ".htm": _html,
    ".pdf": pdf_sections,
}
KINDS = tuple(_READERS)
"""The endings of the files that are read, in small letters."""


@dataclass(frozen=True)
class ReadResult:
    """What a folder held."""

    sections: list[Document]
    """One document a section or page, in the order of the files' paths."""
    problems: list[UnreadableFileError] = field(default_factory=list)
    """One error for each file or folder that could not be read; only with `skip_errors`."""


def read_folder(
    folder: Path, *, on_file: OnFile | None = None, skip_errors: bool = False
) -> ReadResult:
    r"""Read every text, Markdown, HTML and PDF file under a folder.

    Hidden files and folders (those that start with a dot) and other kinds of files are skipped,
    and so are files of white space only. Links to folders are followed where they lead outside,
    once each, so that a loop ends.

    Args:
        folder: A folder, or one file, which is then read as a folder of one.
        on_file: Called before each file with its path, its number from 1, and how many there are.
        skip_errors: Return the files that cannot be read as `problems` instead of raising.

    Raises:
        EmptyFolderError: There is no file of a kind that is read, or no text in any of them.
        UnreadableFileError: The folder does not exist, or a file cannot be read. Everything is
            read first: one bad file raises its own error, several raise one that lists them.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "faq.md").write_text("# Refunds\nFive days.\n")
        ...     read_folder(Path(folder)).sections[0].metadata
        {'source': 'faq.md', 'heading': 'Refunds'}
    """
    folder = Path(folder)
    paths, problems = find_files(folder, KINDS)
    root = folder.parent if paths == [folder] else folder
    sections: list[Document] = []
    for number, path in enumerate(paths, start=1):
        if on_file is not None:
            on_file(path, number, len(paths))
        try:
            sections.extend(read_file(path, root))
        except UnreadableFileError as error:
            problems.append(error)
    if problems and not skip_errors:
        raise _combined(problems)
    if not sections:
        raise _empty(folder, paths, problems)
    return ReadResult(sections, problems)


def read_file(path: Path, root: Path | None = None) -> list[Document]:
    """Read one file into its sections or pages; none if it holds only white space.

    Args:
        path: A file of one of the `KINDS`.
        root: The folder that `metadata["source"]` is relative to; without it, the file's own.

    Raises:
        UnreadableFileError: The file cannot be opened, decoded or parsed.
        NoTextError: It is a PDF file without text.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        msg = f"Cannot read {path}: its kind is not one of {', '.join(KINDS)}. Convert it first."
        raise UnreadableFileError(msg)
    source = path.relative_to(root or path.parent).as_posix()
    return [
        Document(page_content=section.text, metadata=section.metadata(source))
        for section in _sections(path, reader)
        if section.text.strip()
    ]


def _sections(path: Path, reader: Callable[[bytes], list[Section]]) -> list[Section]:
    try:
        return reader(_bytes(path))
    except MissingExtraError:
        raise
    except UnreadableFileError as error:
        msg = f"Cannot read {path}: {error}."
        raise type(error)(msg) from error
    except Exception as error:  # parsers raise anything over a damaged file
        kind = path.suffix.lower().lstrip(".")
        msg = (
            f"Cannot read {path}: it looks damaged, or is not {kind} at all"
            f" ({type(error).__name__}: {error}). Open it and save it again."
        )
        raise UnreadableFileError(msg) from error


def _bytes(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # reading a pipe would never end
            msg = "it is not a regular file: move it elsewhere"
            raise UnreadableFileError(msg)
        return path.read_bytes()
    except PermissionError as error:
        msg = "you have no permission: change its permissions, or run as another user"
        raise UnreadableFileError(msg) from error
    except OSError as error:
        what = "it is a link that leads nowhere" if path.is_symlink() else error.strerror
        msg = f"{what}: mend or remove it"
        raise UnreadableFileError(msg) from error


def _combined(problems: list[UnreadableFileError]) -> UnreadableFileError:
    if len(problems) == 1:
        return problems[0]
    lines = "\n".join(f"- {problem}" for problem in problems)
    return UnreadableFileError(f"{len(problems)} files or folders cannot be read:\n{lines}")


def _empty(
    folder: Path, paths: list[Path], problems: list[UnreadableFileError]
) -> EmptyFolderError:
    kinds = ", ".join(KINDS)
    if not paths:
        found = f"There is no file of a kind that can be read in {folder}."
    elif problems:
        found = f"No text could be read in {folder}. The first error: {problems[0]}"
    else:
        found = f"There is no text in {folder}: the files that can be read are blank."
    return EmptyFolderError(f"{found} Put files with text there; the kinds are {kinds}.")
