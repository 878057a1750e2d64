"""What the commands of `langchain-feedback index` share: the index, and how they fail."""

import sysconfig
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import langchain_feedback
from langchain_feedback.cli.loading import load, where
from langchain_feedback.cli.shared import say, told

if TYPE_CHECKING:
    from langchain_feedback.index.managed import ManagedIndex

__all__ = [
    "FINDINGS",
    "Index",
    "Rows",
    "index_of",
    "index_option",
    "say_when_loaded",
    "some_index_of",
    "watched",
]

FINDINGS = 1
"""What a command ends with that found something, or would change something; 2: it failed."""

Index = Annotated[
    str | None,
    typer.Option(
        "--index",
        metavar="MODULE:FACTORY",
        help="What makes a ManagedIndex. Without it, the `index` under tool.langchain-feedback in "
        "the pyproject.toml of this folder or of one above it.",
    ),
]
Rows = Annotated[
    int, typer.Option("--limit", min=1, help="The most rows that are shown; --json has all.")
]
_OPTION = "--index"
_TABLE = "[tool.langchain-feedback]"
_LIBRARY = str(Path(langchain_feedback.__file__).parent)


def index_of(given: str | None) -> "ManagedIndex":
    """Make the index that is named, or that of the project.

    Raises:
        ValueError: If there is none, or it cannot be made.
    """
    managed = some_index_of(given)
    if managed is None:
        msg = (
            "Which index? Name what makes a ManagedIndex with --index module:factory, or in "
            f'pyproject.toml under {_TABLE}: index = "module:factory"'
        )
        raise ValueError(msg)
    return managed


def some_index_of(given: str | None) -> "ManagedIndex | None":
    """Make the index that is named, or that of the project; None: there is none.

    Raises:
        ValueError: If it cannot be made.
    """
    option, folder = _OPTION, None
    if given is None:
        found = _of_project()
        if found is None:
            return None
        given, folder = found
        option = f"index of {folder / 'pyproject.toml'}:"
    from langchain_feedback.index.managed import ManagedIndex  # noqa: PLC0415  takes long

    managed = load(given, option, folder=folder)
    if not isinstance(managed, ManagedIndex):
        msg = (
            f"{option} {given} makes a {type(managed).__name__}, and a ManagedIndex is needed: "
            "see langchain_feedback.index.managed."
        )
        raise ValueError(msg)  # noqa: TRY004  told like all that is wrong with it
    return managed


def index_option(given: str | None) -> list[str]:
    """Return the words that a further command needs to find an index, as far as one is needed."""
    return [] if given is not None or _of_project() else [_OPTION, "MODULE:FACTORY"]


def say_when_loaded() -> None:
    """Say who has what was just saved: an index in memory is as it was loaded."""
    say("A process that has this index in memory searches it as it was until it loads it anew.")


def _of_project() -> tuple[str, Path] | None:
    """Return the index that the nearest pyproject.toml names, and its folder."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
        except ValueError as error:
            msg = f"{path} cannot be read: {error}"
            raise ValueError(msg) from error
        named = tools.get("langchain-feedback", {}).get("index")
        if isinstance(named, str):
            return named, folder
        if named is not None:
            msg = f'{path}: {_TABLE} has index = "module:factory"; got {named!r}'
            raise ValueError(msg)
    return None


@contextmanager
def watched() -> Iterator[None]:
    """Say in one line what went wrong, here or in other people's parts of an index."""
    with told():
        try:
            yield
        except Exception as error:
            if isinstance(error, typer.Exit) or not _is_theirs(error):
                raise
            msg = f"{type(error).__name__}: {error}{where(error)}"
            raise OSError(msg) from error


def _is_theirs(error: Exception) -> bool:
    """Whether an error came up in a loader or a vector store, and says nothing of this library."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1].filename if frames else _LIBRARY
    if last.startswith((_LIBRARY, "<")):
        return False
    return "site-packages" in last or not last.startswith(sysconfig.get_path("stdlib"))
