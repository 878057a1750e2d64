"""A SIGKILL after any step of a writer: the next run completes the index, a third does nothing.

One process imports everything and forks: for the filled index, for each crash, for each rerun.
"""

import json
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit_tests.index import writer_crashes
from tests.unit_tests.index.writer_stores import NEEDS, OPEN

ROOT = Path(__file__).resolve().parents[3]
NOTHING = {"add": 0, "replace": 0, "remove": 0, "repair": 0}
PUTS = {
    "faiss": ["get_by_ids", "delete", "add_embeddings"],  # embedded before it is deleted
    "chroma": ["get_by_ids", "get_by_ids", "delete", "add_documents"],  # the embedder is asked
}


@pytest.fixture(scope="module")
def crashed(tmp_path_factory, request):
    """What came of all stores that are installed, by name."""
    names = [name for name in OPEN if all(map(find_spec, NEEDS[name]))]
    postgres = request.getfixturevalue("postgres_server") if "postgres" in names else None
    with postgres.database() if postgres else nullcontext("") as url:
        yield _crashed(tmp_path_factory.mktemp("crashes"), url, names)


def _crashed(folder, url, names):
    module = "tests.unit_tests.index.writer_crashes"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, str(folder), url, *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name: (rows, done.stderr) for name, rows in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", OPEN)
def test_a24_check4_a_process_killed_after_any_step_is_completed_by_the_next_run(name, crashed):
    if name not in crashed:
        pytest.skip(f"{' or '.join(NEEDS[name])} is missing")
    (*rows, lived), told = crashed[name]
    puts, there = PUTS.get(name, ["add_documents"]), ["get_by_ids", "delete"]
    if name in ("faiss", "memory"):  # they live in memory
        saved = ["renew", "persist", "note"]
        batches = ["renew", *puts, "renew", *puts, *saved, "note", "renew", *there, *saved]
    else:
        batch = ["renew", *puts, "renew", "note"]
        batches = [*batch, *batch, "note", "renew", *there, "renew", "note"]
    assert lived["names"] == ["get_by_ids", "claim", "get_by_ids", "note", *batches], told
    assert lived["crashed"] == 0
    assert len(rows) == sum(step in writer_crashes.CHANGES for step in lived["names"]) >= 9
    assert {row["crashed"] for row in rows} == {-9}
    assert any(row["result"]["first"]["repair"] for row in rows)
    for row in [*rows, lived]:
        assert row["again"] == 0, told
        assert row["result"]["held"] == row["result"]["found"] == sorted(writer_crashes.AFTER)
        assert row["result"]["second"] == {**NOTHING, "keep": 6}
        assert row["result"]["second_steps"] == ["get_by_ids"]
        assert row["result"]["pages"] == [3]
