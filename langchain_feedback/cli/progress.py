"""A progress bar that shows itself only where reading takes longer than a second."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

__all__ = ["reading_progress"]

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
