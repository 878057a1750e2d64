"""Progress bars that show themselves only where something takes longer than a second."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from langchain_feedback.cli.shared import Screen

__all__ = ["counted", "reading_progress", "waiting"]

_QUIET_SECONDS = 1.0


@contextmanager
def reading_progress(console: Console) -> Iterator[Callable[[Path, int, int], None]]:
    """Yield the function that is told of each file before it is read."""
    started = time.monotonic()
    # Without a terminal the bar would leave an empty line behind.
    quiet = not console.is_terminal
    with Progress(console=console, transient=True, auto_refresh=False, disable=quiet) as progress:
        task = progress.add_task("Reading", visible=False)

        def on_file(path: Path, number: int, total: int) -> None:
            slow = time.monotonic() - started > _QUIET_SECONDS
            progress.update(
                task,
                completed=number - 1,
                total=total,
                visible=slow,
                description=f"Reading {path.name[:30]}",
                refresh=slow,
            )

        yield on_file


@contextmanager
def counted(words: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield the function that is told how many more are done.

    Args:
        words: What is done.
        total: How many there are; None: nobody knows.
    """
    started = time.monotonic()
    screen = Screen(stderr=True)
    quiet = not screen.is_terminal
    with Progress(console=screen, transient=True, auto_refresh=False, disable=quiet) as progress:
        task = progress.add_task(words, total=total, visible=False)

        def on_more(count: int) -> None:
            slow = time.monotonic() - started > _QUIET_SECONDS
            done = f"{words}: {progress.tasks[0].completed + count:,.0f}"
            progress.update(task, advance=count, description=done, visible=slow, refresh=slow)

        yield on_more


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Show that something goes on of which nobody knows how far it is."""
    screen = Screen(stderr=True)
    if not screen.is_terminal:
        yield
        return
    with screen.status(words):
        yield
