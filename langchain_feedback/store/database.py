"""One database, two kinds of transaction: reading and writing, on SQLite and PostgreSQL."""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any, Literal

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    func,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.pool import StaticPool

from langchain_feedback.errors import MissingExtraError, StoreError, StoreRejectedError
from langchain_feedback.store.forks import renew_after_fork

__all__ = ["Database", "Lock", "MissingTablesError", "insert_or_ignore", "upsert"]

Lock = Literal["all", "votes", "traces"]
"""Whom a writer excludes on PostgreSQL: all writers of the database, all of its namespace, or
the writers of votes in it. On SQLite it is always all."""

_SPOKEN = "sqlite:///feedback.db or postgresql+psycopg://user:password@host/name"

_WAIT_S = 30
"""How long a writer waits for its turn before it gives up."""


class MissingTablesError(StoreError):
    """The tables are gone: the database was replaced while it was open."""


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
        self._turn: AbstractContextManager[Any] = nullcontext()
        self._inherited: list[Any] = []
        self._take_turns()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Speak on connections of its own, with locks that nobody holds."""
        # Not to be closed here either, not even as garbage: they are the parent's.
        self._inherited.append(self.engine.pool)
        self.engine.dispose(close=False)
        self._take_turns()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction for reading; on SQLite it sees one state of the database.

        Raises:
            StoreError: If it cannot be read.
        """
        with self._told("read"), self._turn, self.engine.connect() as connection:
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
        with self._told("written"), self._turn, self.engine.connect() as opened:
            connection = opened.execution_options(lcf_write="FULL" if durable else "NORMAL")
            with connection.begin():
                if not self.is_sqlite:
                    self._lock(connection, lock, namespace)
                yield connection

    def now(self, connection: Connection) -> datetime:
        """Return this instant in UTC, by the clock that all writers of the database share."""
        if self.is_sqlite:
            return datetime.now(UTC)
        instant: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return instant.astimezone(UTC)

    def close(self) -> None:
        """Close every connection; closing twice is harmless."""
        with self._turn:
            self.engine.dispose()

    def _lock(self, connection: Connection, lock: Lock, namespace: str) -> None:
        everybody = "" if lock == "all" else "_shared"
        mine = "_shared" if lock == "traces" else ""
        connection.execute(text(f"SET LOCAL lock_timeout = '{_WAIT_S}s'"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock{everybody}({_key()})"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock{mine}({_key(namespace)})"))

    def _take_turns(self) -> None:
        # A database in memory is one connection.
        if self.engine.pool.__class__ is StaticPool:
            self._turn = threading.RLock()

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, UnicodeEncodeError) as error:
            cause = getattr(error, "orig", None) or error
            where = self.engine.url.render_as_string(hide_password=True)
            msg = f"The feedback store {where} could not be {what}: {cause}"
            raise _kind_of(error, cause)(msg) from error


def _key(namespace: str | None = None) -> int:
    """Return the number of an advisory lock: a namespace's, or the whole store's."""
    name = "langchain-feedback" + ("" if namespace is None else f":{namespace}")
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def _kind_of(error: Exception, cause: Any) -> type[StoreError]:
    """Tell what will pass from what a database refuses for good."""
    if "no such table" in str(cause) or getattr(cause, "sqlstate", None) == "42P01":
        return MissingTablesError
    if isinstance(error, DBAPIError):
        for_good = (DataError, IntegrityError, ProgrammingError, NotSupportedError)
        return StoreRejectedError if isinstance(error, for_good) else StoreError
    # A value that no column can take fails before it is sent.
    refused = isinstance(error, (StatementError, UnicodeEncodeError))
    return StoreRejectedError if refused else StoreError


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
    """Insert rows, or replace those of the same key; columns that they do not name stay."""
    if rows:
        changed = tuple(sorted(set(rows[0]) - set(key)))
        statement = _insert(connection.dialect.name, table, tuple(key), changed)
        connection.execute(statement, list(rows))


@cache
def _insert(
    dialect: str, table: Table, key: tuple[str, ...], changed: tuple[str, ...] = ()
) -> Any:
    """Make the statement once: that takes longer than running it."""
    # The engine has loaded its own dialect; the others would only cost time at import.
    statement: Any = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    if not key:
        # Otherwise the count is asked for when psycopg has forgotten it.
        return statement.on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    values = {name: statement.excluded[name] for name in changed}
    return statement.on_conflict_do_update(index_elements=list(key), set_=values)


def _engine(url: str) -> Engine:
    try:
        parsed = _parsed(url)
        if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
            return _sqlite(parsed)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.drivername != "postgresql+psycopg":
            msg = f"The store speaks {_SPOKEN}; not {parsed.drivername!r}"
            raise ValueError(msg)
        options: dict[str, Any] = {"connect_timeout": 5}
        # Locks are taken first; a statement after them must see what came before.
        return create_engine(
            parsed,
            pool_pre_ping=True,
            pool_size=10,
            isolation_level="READ COMMITTED",
            connect_args=options,
        )
    except (ArgumentError, NoSuchModuleError) as error:
        msg = f"Not a database URL: {url!r}. Use {_SPOKEN}"
        raise ValueError(msg) from error
    except ImportError as error:
        msg = 'PostgreSQL needs a driver. Run: pip install "langchain-feedback[postgres]"'
        raise MissingExtraError(msg) from error


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except ValueError as error:
        raise ArgumentError(str(error)) from error


def _sqlite(url: URL) -> Engine:
    in_memory = not url.database or ":memory:" in url.database
    in_memory |= url.query.get("mode") == "memory"
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
