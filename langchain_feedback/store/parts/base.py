"""What every part of the store stands on: opening, closing, transactions, questions."""

import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from numpy.typing import NDArray
from sqlalchemy import Connection

from langchain_feedback.store.answer_path import Deadline, Outbox
from langchain_feedback.store.database import Database, Lock, MissingTablesError
from langchain_feedback.store.evidence import recredit
from langchain_feedback.store.forks import renew_after_fork
from langchain_feedback.store.half_life import checked_half_life, keep_half_life, read_half_life
from langchain_feedback.store.incoming import NewTrace, TraceUpdate
from langchain_feedback.store.migrations.running import (
    MIGRATIONS,
    load_alembic,
    migrate,
    version_of,
)
from langchain_feedback.store.questions import Question, unit_vector
from langchain_feedback.store.tracing import attach, is_voted, write_trace, write_update
from langchain_feedback.traces import storable

if TYPE_CHECKING:
    from langchain_feedback.store.memory.question_memory import QuestionMemory

__all__ = ["KEPT", "StoreBase", "Vector", "now", "twin"]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
D = TypeVar("D")
Vector = Sequence[float] | NDArray[np.floating]

KEPT: Final = "kept"
"""The half-life that the database holds already."""

_SAID_AGAIN_S = 60
_SETTLED_S = 30

logger = logging.getLogger(__name__)


def now() -> datetime:
    """Return this instant, in UTC."""
    return datetime.now(UTC)


def twin(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make the async twin of a method: it leaves the event loop free."""

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By name, so that a subclass's method is the one that runs.
        return await run_in_executor(None, getattr(self, method.__name__), *args, **kwargs)

    update_wrapper(call, method)
    call.__name__ = f"a{method.__name__}"
    call.__doc__ = f"Do as `{method.__name__}`, without blocking the event loop."
    return call


class StoreBase:
    """Opens the database and knows how to read, write and wait."""

    def __init__(
        self,
        url: str,
        *,
        embeddings: Embeddings | None,
        namespace: str,
        half_life_days: float | str | None,
        timeout_s: float,
    ) -> None:
        if not timeout_s > 0:
            msg = f"timeout_s must be above 0, got {timeout_s!r}"
            raise ValueError(msg)
        kept = half_life_days == KEPT
        self._half_lives = () if kept else (checked_half_life(half_life_days),)
        load_alembic()  # here, since the first answer has no time for it
        self.url, self.embeddings, self.timeout_s = url, embeddings, timeout_s
        self._database, self._deadline = Database(url), Deadline(timeout_s)
        self._is_set_up = False
        self._scope(namespace)
        self._scopes: dict[str, Any] = {namespace: self}
        self._root = namespace
        self._make_locks()
        renew_after_fork(self, "_make_locks")

    def scoped(self, namespace: str) -> Self:
        """Return the store of another namespace, on the same database and connections.

        It is the same object each time. Closing it writes what waits in it; closing the store
        that it came from closes all.
        """
        with self._scopes_lock:
            if namespace not in self._scopes:
                other = object.__new__(type(self))
                vars(other).update(vars(self))
                other._scope(namespace)
                self._scopes[namespace] = other
            return cast("Self", self._scopes[namespace])

    def _scope(self, namespace: str) -> None:
        if not namespace.strip():
            msg = "A namespace needs a name."
            raise ValueError(msg)
        self.namespace = namespace
        self._memories: dict[str, QuestionMemory] = {}
        self._outbox = Outbox(self._write, self._deadline)
        self._said: dict[str, float] = {}
        self._told_exact = False

    def _make_locks(self) -> None:
        self._scopes_lock, self._setting_up = threading.Lock(), threading.Lock()

    # -- opening and closing

    def setup(self) -> None:
        """Make or migrate the tables; other methods call it. Doing it twice is harmless.

        Raises:
            StoreError: If the database cannot be opened.
            StoreVersionError: If a newer release made it.
        """
        with self._setting_up:
            if self._is_set_up:
                return
            with self._database.reading() as connection:
                current = version_of(connection) == len(MIGRATIONS)
            if not current:
                with self._database.writing(lock="all") as connection:
                    migrate(connection)
            for half_life in self._half_lives:
                keep_half_life(self._database, half_life)
            self._is_set_up = True

    def close(self) -> None:
        """Write what still waits, and close every connection. Closing twice is harmless."""
        is_root = self.namespace == self._root
        for scope in list(self._scopes.values()) if is_root else [self]:
            scope._empty()  # noqa: SLF001  another of us
        if is_root:
            self._deadline.close()
            self._database.close()

    def _empty(self) -> None:
        try:
            self._outbox.flush()
        except Exception as error:  # noqa: BLE001  closing goes on
            logger.warning("At closing, what waited was lost (%d): %s", len(self._outbox), error)
        memories, self._memories = self._memories, {}
        for memory in memories.values():
            memory.close()

    def __enter__(self) -> Self:
        self.setup()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    asetup = twin(setup)
    aclose = twin(close)

    # -- the answer path

    def try_read(self, read: Callable[[], T], default: D) -> T | D:
        """Return what a function reads from the store, or the default.

        It waits `timeout_s` at most and raises nothing.
        """
        try:
            found = self._deadline.run(read)
        except Exception as error:  # noqa: BLE001  the answer goes out all the same
            self._say_away("read", error)
            return default
        return found

    def _say_away(self, what: str, error: Exception) -> None:
        """Log the first failure of each kind, and again while it lasts, once a minute."""
        said = self._said.get(what)
        if said is None or time.monotonic() - said > _SAID_AGAIN_S:
            self._said[what] = time.monotonic()
            name = type(error).__name__
            logger.warning("The answer does without the store (%s): %s: %s", what, name, error)

    def _settle(self) -> None:
        """Write what waits and wait for what is under way, so that nothing comes after."""
        self._deadline.settle(_SETTLED_S)
        self._outbox.flush()

    # -- transactions

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._on_tables(), self._database.reading() as connection:
            yield connection

    @contextmanager
    def _on_tables(self) -> Iterator[None]:
        self.setup()
        try:
            yield
        except MissingTablesError:
            # Somebody replaced the database: the next call makes them.
            self._is_set_up = False
            raise

    @contextmanager
    def _writing(
        self, *, lock: Lock = "votes", durable: bool = True
    ) -> Iterator[tuple[Connection, float | None]]:
        """Open a transaction; the second value is the half-life in it."""
        with (
            self._on_tables(),
            self._database.writing(self.namespace, lock=lock, durable=durable) as connection,
        ):
            yield connection, read_half_life(connection)

    def _write(self, new: NewTrace | TraceUpdate) -> None:
        if isinstance(new, TraceUpdate):
            with self._writing(durable=False) as (connection, half_life):
                write_update(connection, self.namespace, new)
                recredit(connection, self.namespace, [new.trace_id], half_life)
            return
        alone = self._database.is_sqlite or self._is_voted(new.trace_id)
        lock: Lock = "votes" if alone else "traces"
        with self._writing(lock=lock, durable=False) as (connection, half_life):
            write_trace(connection, self.namespace, new)
            voted = is_voted(connection, self.namespace, new.trace_id)
            if voted and alone:
                self._credit(connection, new.trace_id, half_life)
        if voted and not alone:
            # A vote came in between, and crediting it needs the lock of votes.
            with self._writing(durable=False) as (connection, half_life):
                self._credit(connection, new.trace_id, half_life)

    def _is_voted(self, trace_id: str) -> bool:
        with self._reading() as connection:
            return is_voted(connection, self.namespace, trace_id)

    def _credit(self, connection: Connection, trace_id: str, half_life: float | None) -> None:
        attach(connection, self.namespace, trace_id)
        recredit(connection, self.namespace, [trace_id], half_life)

    # -- questions

    @property
    def embedder(self) -> str | None:
        """Which model makes the vectors; vectors of another one are never compared."""
        return None if self.embeddings is None else self._embedder

    @property
    def _embedder(self) -> str:
        if self.embeddings is None:
            return "given"
        # LangChain's cache is no model of its own.
        model = getattr(self.embeddings, "underlying_embeddings", self.embeddings)
        names = (getattr(model, name, None) for name in ("model", "model_name"))
        return f"{type(model).__name__}/{next(filter(None, names), '')}"

    def _question(self, text: str, vector: Vector | None, *, embed: bool = False) -> Question:
        if not text.strip():
            msg = "There is no question."
            raise ValueError(msg)
        if vector is None and embed and self.embeddings is not None:
            vector = self.embeddings.embed_query(text)
        if vector is None:
            return Question(storable(text))
        unit = unit_vector(vector)
        return Question(storable(text), unit, f"{self._embedder}:{unit.size}")
