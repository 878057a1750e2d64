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

NEVER = 10_000


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


def forked(told: Path, work: Callable[[], Any], then: Callable[[], Any]) -> tuple[int, Any]:
    """Return the status of a forked process, and what its first part returned."""
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            told.write_text(json.dumps(work()))
            then()
            os._exit(0)
        except BaseException:  # noqa: BLE001  told by the status
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, json.loads(told.read_text()) if told.exists() else None


def main(url: str, place: str) -> None:
    """Crash after statement 1, 2, 3 and so on until the switch is kept, and then never."""
    folder = Path(place)
    told = folder / "told.json"
    status, _ = forked(told, lambda: fill(url, folder), lambda: crash(url, 1))
    rows: list[dict[str, Any]] = [{"crashed": status}]
    for last in range(2, 200):
        # Each process looks at what the one before has left behind, and then dies as well.
        kept = rows[-2:-1] and rows[-2]["told"]["served"] == ["v2"]
        end = NEVER if kept else last
        status, rows[-1]["told"] = forked(told, lambda: look(url), lambda: crash(url, end))  # noqa: B023
        if rows[-1]["crashed"] == 0:
            break
        rows.append({"crashed": status})
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
