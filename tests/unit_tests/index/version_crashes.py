"""Kill a process after each statement of an activation, and print what is served, as JSON.

    python -m tests.unit_tests.index.version_crashes URL FOLDER

Forks open everything for themselves. Between `ready` and the commit of the switch the old version
is active, and after it the new one.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import event

from langchain_feedback.index.versions import IndexRegistry
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.index.version_kit import follow, prepared, promote, question

__all__ = ["main"]


def fill(url: str, folder: Path) -> None:
    """Make the first version active, and build the second one."""
    with FeedbackStore(url) as store:
        registry = prepared(store, folder, "v1")
        promote(registry, folder, "v2")


def crash(url: str, last: int) -> int:
    """Activate the second version; end after some statements."""
    with FeedbackStore(url) as store:
        registry, seen = IndexRegistry(store), []
        registry.active()

        @event.listens_for(store._database.engine, "after_cursor_execute")
        def _sent(*_: Any) -> None:
            seen.append(1)
            if len(seen) == last:
                os.kill(os.getpid(), signal.SIGKILL)

        registry.activate("v2", expected="v1")
        return len(seen)


def look(url: str) -> dict[str, Any]:
    """Return what is served, and put the first version back."""
    with FeedbackStore(url) as store:
        registry = IndexRegistry(store)
        found = follow(registry).invoke(question(1))
        told = {
            "served": sorted({one.metadata["feedback"]["index_version"] for one in found}),
            "states": {one.version: one.status for one in registry.versions()},
            "journal": [one.version for one in registry.history()],
        }
        if registry.active().version == "v2":
            registry.rollback()
        return told


def forked(work: Callable[[], Any], folder: Path) -> tuple[int, Any]:
    """Return the status of a forked process, and what it returned, if it lived to say so."""
    told = folder / "told.json"
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            told.write_text(json.dumps(work()))
            os._exit(0)
        except BaseException:  # noqa: BLE001  told by the status
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, json.loads(told.read_text()) if told.exists() else None


def main(url: str, place: str) -> None:
    """Crash after statement 1, 2, 3 and so on, until a run lives to its end."""
    folder = Path(place)
    filled, _ = forked(lambda: fill(url, folder), folder)
    rows: list[dict[str, Any]] = []
    for last in range(1, 200):
        status, _ = forked(lambda: crash(url, last), folder)  # noqa: B023
        looked, told = forked(lambda: look(url), folder)
        rows.append({"filled": filled, "crashed": status, "looked": looked, "told": told})
        if status >= 0:
            break
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
