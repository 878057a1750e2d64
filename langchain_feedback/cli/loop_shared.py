"""What the commands of the loop share: the store they open, and how they print."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from langchain_feedback.errors import LangChainFeedbackError
from langchain_feedback.loop.owners import Owners
from langchain_feedback.quotes.plain import plain_text

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "DATABASE",
    "Database",
    "Days",
    "Json",
    "Limit",
    "Namespace",
    "Owning",
    "load",
    "opened",
    "owners_of",
    "print_json",
    "print_table",
    "say",
    "told",
    "url_of",
]


Database = Annotated[
    str,
    typer.Option(
        envvar="LANGCHAIN_FEEDBACK_DATABASE",
        help="The feedback store: a file, or postgresql+psycopg://...",
    ),
]
Namespace = Annotated[str, typer.Option(help="Whose feedback.")]
Owning = Annotated[
    Path | None,
    typer.Option(envvar="LANGCHAIN_FEEDBACK_OWNERS", help="Who owns what: owners.toml."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Days = Annotated[float, typer.Option(min=0.01, help="How far back, in days.")]
Limit = Annotated[int, typer.Option(min=1, help="The most rows.")]
DATABASE = "feedback.db"
"""Where a store is, unless told otherwise."""

_LONGEST = 200


@contextmanager
def opened(database: str, namespace: str) -> Iterator["FeedbackStore"]:
    """Open the store of a command; a file that is not there is an error, not a new one."""
    # They take half a second to load, and other commands do without them.
    from langchain_feedback.store.feedback_store import FeedbackStore  # noqa: PLC0415
    from langchain_feedback.store.transactions import is_made  # noqa: PLC0415

    store = FeedbackStore(url_of(database), namespace=namespace)
    if not is_made(store):
        msg = f"{database} holds no feedback store: a FeedbackStore makes it."
        raise ValueError(msg)
    with store:
        yield store


def url_of(database: str) -> str:
    """Return the URL of a database that is there.

    Raises:
        ValueError: If a file is named that does not exist.
    """
    if "://" not in database:
        database = f"sqlite:///{database}"
    if not database.startswith("sqlite"):
        return database
    from sqlalchemy import make_url  # noqa: PLC0415

    path = Path(make_url(database).database or "")
    # An empty file would be made into a store, which nobody asked for.
    if not path.is_file() or not path.stat().st_size:
        msg = (
            f"There is no feedback store {path}. Name it with --database FILE or "
            "LANGCHAIN_FEEDBACK_DATABASE; a FeedbackStore makes it."
        )
        raise ValueError(msg)
    return database


def owners_of(path: Path | None) -> Owners | None:
    """Read who owns which document."""
    return None if path is None else Owners.from_toml(path)


def load(path: str, option: str = "--app") -> Any:
    """Make what `module:factory` names; a module of the working folder will do.

    Raises:
        ValueError: If there is no such thing.
    """
    module, _, factory = path.partition(":")
    if not module or not factory:
        msg = f"{option} is module:factory, such as my_app:make; got {path!r}"
        raise ValueError(msg)
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        named = getattr(import_module(module), factory)
    except (ImportError, AttributeError) as error:
        msg = f"{option} {path}: {error}"
        raise ValueError(msg) from error
    # A compiled graph or a retriever is there already; a function makes one.
    is_made = hasattr(named, "invoke") or not callable(named)
    return named if is_made else named()


@contextmanager
def told(*others: type[Exception]) -> Iterator[None]:
    """Say in one line what went wrong."""
    known: tuple[type[Exception], ...] = (LangChainFeedbackError, ValueError, OSError, *others)
    try:
        yield
    except known as error:
        Console(stderr=True).print(Text(plain_text(str(error)), "red"))
        raise typer.Exit(2) from error


def print_json(value: object) -> None:
    """Print JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=_as_json))


def say(words: str, style: str = "") -> None:
    """Print a line."""
    Console().print(Text(plain_text(words), style))


def _as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str) -> None:
    """Print rows, or what to say where there are none."""
    if not rows:
        say(nothing, "dim")
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    for at, name in enumerate(head):
        is_number = all(isinstance(row[at], int | float) or _is_figure(row[at]) for row in rows)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain_text(str(value))[:_LONGEST]) for value in row))
    Console().print(table)


def _is_figure(value: Any) -> bool:
    # What is not known is an empty cell between figures.
    return isinstance(value, str) and re.fullmatch(r"([+-]?\d+(\.\d+)?%?)?", value) is not None
