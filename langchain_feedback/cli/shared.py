"""What commands share: the store that they open, who acts, and how they print."""

import getpass
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

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
    "Actor",
    "Database",
    "Days",
    "Json",
    "Limit",
    "Namespace",
    "Owning",
    "Screen",
    "as_url",
    "excerpt",
    "name_of",
    "opened",
    "owners_of",
    "print_json",
    "print_table",
    "say",
    "say_more",
    "say_on_one_line",
    "told",
    "url_of",
    "without_password",
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
Actor = Annotated[
    str, typer.Option("--by", "--actor", help="Your name; without it, the login name.")
]
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
    if not is_made(store):  # to enter it would make one
        store.close()
        shown = without_password(database)
        msg = f"{shown} holds no feedback store. {_how_to_make(shown)}"
        raise ValueError(msg)
    with store:
        yield store


def url_of(database: str) -> str:
    """Return the URL of a database that is there.

    Raises:
        ValueError: If a file is named that does not exist.
    """
    url = as_url(database)
    if not url.startswith("sqlite"):
        return url
    from sqlalchemy import make_url  # noqa: PLC0415

    path = Path(make_url(url).database or "")
    # An empty file would be made into a store, which nobody asked for.
    if not path.is_file() or not path.stat().st_size:
        msg = (
            f"There is no feedback store {path}. Name it with --database FILE or "
            f"LANGCHAIN_FEEDBACK_DATABASE. {_how_to_make(database)}"
        )
        raise ValueError(msg)
    return url


def as_url(database: str) -> str:
    """Return the URL of a database, which may be the name of a file.

    Example:
        >>> as_url("feedback.db"), as_url("sqlite://")
        ('sqlite:///feedback.db', 'sqlite://')
    """
    return database if "://" in database else f"sqlite:///{database}"


def without_password(database: str) -> str:
    """Return a database's address as it may be printed: that may end up in a log.

    Example:
        >>> without_password("postgresql+psycopg://ann:k3y@host/name")
        'postgresql+psycopg://ann:***@host/name'
    """
    if "://" not in database:
        return database
    from sqlalchemy import make_url  # noqa: PLC0415

    return make_url(database).render_as_string(hide_password=True)


def _how_to_make(database: str) -> str:
    # The environment variable holds for `init` as well, where that is where the name is from.
    named = "" if database == DATABASE else f" --database {shlex.quote(database)}"
    python = "In Python FeedbackStore(url).setup() makes one"
    return f"{python}; here: langchain-feedback index init{named}"


def owners_of(path: Path | None) -> Owners | None:
    """Read who owns which document."""
    return None if path is None else Owners.from_toml(path)


def name_of(given: str, option: str = "--by") -> str:
    """Return the name of who acts: as given, else the login name.

    Raises:
        ValueError: If there is neither.
    """
    if given.strip():
        return given.strip()
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        msg = f"Who does it? Give your name: {option} NAME"
        raise ValueError(msg) from error


@contextmanager
def told(*others: type[Exception]) -> Iterator[None]:
    """Say in one line what went wrong."""
    known: tuple[type[Exception], ...] = (LangChainFeedbackError, ValueError, OSError, *others)
    try:
        yield
    except known as error:
        line = Text(plain_text(str(error)), "red")
        Screen(stderr=True).print(line, soft_wrap=True)  # one line, also in a log
        raise typer.Exit(2) from error


class Screen(Console):
    """A terminal, or a pipe that may close: what a command does goes on without it."""

    def on_broken_pipe(self) -> None:
        """Print nothing more; the command ends with the code that it would end with."""
        self.quiet = True
        _print_no_more(sys.stderr if self.stderr else sys.stdout)


def print_json(value: object) -> None:
    """Print JSON."""
    try:
        typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=_as_json))
    except BrokenPipeError:
        _print_no_more(sys.stdout)


def say(words: str, style: str = "") -> None:
    """Print a line."""
    Screen().print(Text(plain_text(words), style))


def say_more(total: int, limit: int) -> None:
    """Say how many rows were not shown, if there are any."""
    if total > limit:
        say(f"{total - limit:,} more: --limit shows more of them.", "dim")


def excerpt(text: str, length: int = 60) -> str:
    """Return how a text begins, on one line.

    Example:
        >>> excerpt("Refunds  take 14 days.", 12)
        'Refunds take...'
    """
    words = " ".join(text[: 4 * length].split())
    return words if len(words) <= length else f"{words[:length].rstrip()}..."


def say_on_one_line(words: str, style: str = "") -> None:
    """Print a line that is to be copied: nothing breaks it but the terminal's own edge."""
    Screen().print(Text(plain_text(words), style), soft_wrap=True)


def _print_no_more(stream: TextIO) -> None:
    # What stands in its buffer would fail again when the process ends.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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
    Screen().print(table)


def _is_figure(value: Any) -> bool:
    # What is not known is an empty cell between figures.
    return isinstance(value, str) and re.fullmatch(r"([+-]?\d+(\.\d+)?%?)?", value) is not None
