"""One database, two kinds of transaction: reading and writing, on SQLite and PostgreSQL."""

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Table, create_engine, event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    IntegrityError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.pool import StaticPool

from langchain_feedback.errors import MissingExtraError, StoreError, StoreRejectedError

__all__ = ["Database", "Lock", "insert_or_ignore", "upsert"]

Lock = Literal["votes", "traces"]
"""What a writer excludes: `votes` everybody, `traces` only the writers of votes."""

_WAIT_S = 30
"""How long a writer waits for its turn before it gives up."""


class Database:
    """Opens an engine as the store needs it and turns its errors into `StoreError`.

    SQLite: write-ahead log, so that readers never wait for a writer; writers begin with
    `BEGIN IMMEDIATE`, so that none has to upgrade half way; votes are on the disk before
    they are acknowledged. PostgreSQL: writers take an advisory lock, so that two votes
    never compute one cell at the same time.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._alone = threading.RLock() if self.engine.pool.__class__ is StaticPool else None
        self._pid = os.getpid()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one state of the database.

        Raises:
            StoreError: If it cannot be read.
        """
        with self._told("read"), self._turn(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(
        self, namespace: str = "", *, lock: Lock = "votes", durable: bool = True
    ) -> Iterator[Connection]:
        """Open a transaction that is kept as a whole or not at all.

        Args:
            namespace: Whose writers it excludes (on SQLite: everybody's).
            lock: Whom it excludes.
            durable: Whether it is on the disk when this returns. What is not may be lost
                in a power cut (not when a process dies); the next durable one saves it, too.

        Raises:
            StoreRejectedError: If the database refuses a value.
            StoreError: If it cannot be written.
        """
        with self._told("written"), self._turn(), self.engine.connect() as opened:
            connection = opened.execution_options(lcf_write="FULL" if durable else "NORMAL")
            with connection.begin():
                if not self.is_sqlite:
                    self._lock(connection, lock, namespace)
                yield connection

    def close(self) -> None:
        """Close every connection; closing twice is harmless."""
        with self._turn():
            self.engine.dispose()

    def _lock(self, connection: Connection, lock: Lock, namespace: str) -> None:
        digest = hashlib.sha256(f"langchain-feedback:{namespace}".encode()).digest()
        key = int.from_bytes(digest[:8], "big", signed=True)
        shared = "_shared" if lock == "traces" else ""
        connection.execute(text(f"SELECT pg_advisory_xact_lock{shared}(:key)"), {"key": key})

    def _turn(self) -> Any:
        if os.getpid() != self._pid:
            # A forked worker must not speak on its parent's connections.
            self.engine.dispose(close=False)
            self._pid = os.getpid()
        return self._alone or nullcontext()

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            where = self.engine.url.render_as_string(hide_password=True)
            msg = f"The feedback store {where} could not be {what}: {cause}"
            refused = isinstance(error, (DataError, IntegrityError))
            raise (StoreRejectedError if refused else StoreError)(msg) from error


def insert_or_ignore(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> int:
    """Insert the rows that are new. Of a single row, return whether it was: 1 or 0."""
    if not rows:
        return 0
    statement = _insert(connection.dialect.name, table, ())
    # Drivers count the rows of one insert, and not those of many.
    return int(connection.execute(statement, rows[0] if len(rows) == 1 else list(rows)).rowcount)


def upsert(
    connection: Connection, table: Table, rows: Sequence[dict[str, Any]], *, key: Sequence[str]
) -> None:
    """Insert whole rows, or replace those of the same key."""
    if rows:
        connection.execute(_insert(connection.dialect.name, table, tuple(key)), list(rows))


@cache
def _insert(dialect: str, table: Table, key: tuple[str, ...]) -> Any:
    """Make the statement once: that takes longer than running it."""
    dialects = {"sqlite": sqlite, "postgresql": postgresql}
    statement: Any = dialects[dialect].insert(table)
    if not key:
        return statement.on_conflict_do_nothing()
    changed = {c.name: statement.excluded[c.name] for c in table.c if c.name not in key}
    return statement.on_conflict_do_update(index_elements=list(key), set_=changed)


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(url, parsed.database)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() != "postgresql":
            msg = f"The store speaks SQLite and PostgreSQL, not {parsed.drivername!r}"
            raise ValueError(msg)
        options: dict[str, Any] = {"connect_timeout": 5}
        return create_engine(parsed, pool_pre_ping=True, connect_args=options)
    except (ArgumentError, NoSuchModuleError) as error:
        msg = (
            f"Not a database URL: {url!r}. Use sqlite:///feedback.db or "
            "postgresql+psycopg://user:password@host/name"
        )
        raise ValueError(msg) from error
    except ImportError as error:
        msg = 'PostgreSQL needs a driver. Run: pip install "langchain-feedback[postgres]"'
        raise MissingExtraError(msg) from error


def _sqlite(url: str, path: str | None) -> Engine:
    in_memory = not path or path == ":memory:" or "mode=memory" in path
    options: dict[str, Any] = {"timeout": _WAIT_S, "check_same_thread": False}
    # In memory, a second connection would be a second, empty database.
    pool: dict[str, Any] = {"poolclass": StaticPool} if in_memory else {}
    engine = create_engine(url, connect_args=options, **pool)

    @event.listens_for(engine, "connect")
    def _connected(dbapi_connection: Any, _: Any) -> None:
        # Transactions are begun below, not by the driver.
        dbapi_connection.isolation_level = None
        cursor = dbapi_connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        synchronous = connection.get_execution_options().get("lcf_write")
        if synchronous is None:
            connection.exec_driver_sql("BEGIN")
            return
        connection.exec_driver_sql(f"PRAGMA synchronous={synchronous}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
