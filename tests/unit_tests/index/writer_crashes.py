"""Kill a writer after each of its steps, run it again, and print what came of it as JSON.

    python -m tests.unit_tests.index.writer_crashes FOLDER POSTGRES_URL STORE ...

An index is filled once, and copied for each step. A process is forked that kills itself with
SIGKILL right after that step; another one plans and applies again, twice. Forks open everything
for themselves.
"""

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.writer import IndexWriter
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.index.writer_stores import OPEN, documents, preload

__all__ = ["AFTER", "BEFORE", "CHANGES"]

BEFORE = ["1: a", "2: b", "3: c", "4: d", "5: e", "6: f"]
# One text stays, one has other metadata, one is new, one goes, two change under their id.
AFTER = ["1: a", "2: b", "3: c", "4: d", "5: E", "7: g"]
LEASE_S = 0.02
CHANGES = ("claim", "note", "delete", "add_documents", "add_embeddings", "persist")
"""Steps after which it is killed. The others read, or prolong the lease: whoever dies after one
leaves what the step before it left."""
STEPS = (*CHANGES, "renew", "get_by_ids")


def wanted(texts: list[str]) -> list[Any]:
    made = documents(*texts)
    for document in made:
        # Ids by source, so that a changed text replaces the one before it.
        document.id = f"00000000-0000-4000-8000-00000000000{document.metadata['source']}"
        if texts is AFTER and document.page_content == "2: b":
            document.metadata["page"] = 3
    return made


class Counted:
    """Passes calls on, and kills the process after the n-th step that changes something."""

    def __init__(self, inner: Any, seen: "Steps") -> None:
        self.__dict__.update(inner=inner, seen=seen)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return self.seen.counted(name, found) if name in STEPS else found


class Steps:
    """Counts the steps of a run, and ends it."""

    def __init__(self, last: int) -> None:
        self.last, self.names, self.changes = last, [], 0

    def counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            self.names.append(name)
            self.changes += name in CHANGES
            if name in CHANGES and self.changes == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counting


def open_writer(name: str, place: str, last: int = 0) -> tuple[IndexWriter, Any, Steps]:
    opened, steps = OPEN[name](place), Steps(last)
    store = FeedbackStore(f"sqlite:///{place}/feedback.db")
    writer = IndexWriter(
        opened.store,
        Counted(TableLedger(store, "handbook"), steps),
        batch_size=2,
        max_remove_share=0.5,
        lease_s=LEASE_S,
        persist=opened.persist and steps.counted("persist", opened.persist),
    )
    writer.vector_store = Counted(opened.store, steps)
    return writer, opened, steps


def fill(name: str, place: str) -> None:
    writer, _, _ = open_writer(name, place)
    writer.apply(writer.plan(wanted(BEFORE)))


def crash(name: str, place: str, last: int) -> list[str]:
    writer, _, steps = open_writer(name, place, last)
    writer.apply(writer.plan(wanted(AFTER)))
    return steps.names


def rerun(name: str, place: str) -> dict[str, Any]:
    time.sleep(2 * LEASE_S)
    writer, opened, steps = open_writer(name, place)
    first = writer.plan(wanted(AFTER))
    writer.apply(first)
    steps.names.clear()
    second = writer.plan(wanted(AFTER))
    writer.apply(second)
    found = opened.store.similarity_search("e", k=20)
    read = writer.vector_store.get_by_ids([one.id for one in wanted(AFTER)])
    return {
        "first": first.counts,
        "second": second.counts,
        "second_steps": sorted(set(steps.names)),
        "held": sorted(opened.held().values()),
        "found": sorted(one.page_content for one in found),
        "pages": [one.metadata.get("page") for one in read if one.page_content == "2: b"],
    }


def forked(work: Callable[[], Any], place: str) -> tuple[int, Any]:
    """Return the status of a forked process, and what it returned, if it lived to say so."""
    told = Path(place) / "told.json"
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


def crashes(name: str, folder: str, url: str) -> list[dict[str, Any]]:
    """Crash after step 1, 2, 3 and so on, until a run lives to its end."""
    rows: list[dict[str, Any]] = []
    template = Path(folder) / "0"
    template.mkdir(parents=True)
    (template / "postgres.json").write_text(json.dumps([url, "handbook_0"]))
    filled, _ = forked(lambda: fill(name, str(template)), str(template))
    for last in range(1, 100):
        place = Path(folder) / str(last)
        shutil.copytree(template, place)
        (place / "postgres.json").write_text(json.dumps([url, f"handbook_{last}"]))
        status, names = forked(lambda: crash(name, str(place), last), str(place))  # noqa: B023
        again, result = forked(lambda: rerun(name, str(place)), str(place))  # noqa: B023
        rows.append({"filled": filled, "crashed": status, "again": again, "result": result})
        if status == 0:
            rows[-1]["names"] = names
            break
    return rows


def main(folder: str, url: str, *names: str) -> None:
    """Do so with each store, from one process that has everything imported."""
    for name in names:
        preload(name)
    rows = {name: crashes(name, f"{folder}/{name}", url) for name in names}
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
