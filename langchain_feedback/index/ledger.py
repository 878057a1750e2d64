"""What was written to an index, and whether it got there: the memory of `IndexWriter`.

An entry is `writing` before the index is touched and `present` after, `removing` before and
`removed` after. Whatever a crash leaves behind is therefore known to be doubtful. A lease lets
one writer at a time work on an index; the one of a process that died ends by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from sqlalchemy import delete, select, update

from langchain_feedback.store.care_schema import index_entries, job_leases
from langchain_feedback.store.database import insert_or_ignore, upsert
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Entry", "Fingerprint", "Ledger", "State", "TableLedger", "in_batches"]

State = Literal["writing", "present", "removing", "removed"]

_ROWS = 500
_KEY = ("namespace", "index_name", "chunk_id")

T = TypeVar("T")


class Fingerprint(NamedTuple):
    """What was written of a document."""

    content_hash: str
    """SHA-256 of the text, in hexadecimal."""
    metadata_hash: str
    """SHA-256 of the metadata, in hexadecimal."""


@dataclass(frozen=True)
class Entry:
    """What the ledger knows of one document of an index."""

    id: str
    fingerprint: Fingerprint
    state: State
    run_id: str
    """The run that changed it last."""


@runtime_checkable
class Ledger(Protocol):
    """Where `IndexWriter` keeps what it did; each call is on the disk when it returns."""

    name: str
    """Which index it is about; digests of plans hold it."""

    def entries(self) -> dict[str, Entry]:
        """Return every entry by the id of its document."""

    def note(self, entries: Sequence[Entry]) -> None:
        """Keep entries, in the place of those with the same id."""

    def claim(self, holder: str, seconds: float) -> bool:
        """Take the lease, or prolong one's own; return whether it is the holder's now."""

    def renew(self, holder: str, seconds: float) -> bool:
        """Prolong one's own lease; return whether nobody else had it in between."""

    def release(self, holder: str) -> None:
        """Give the lease back; one that somebody else has stays."""


class TableLedger:
    """The ledger of an index in the database of a feedback store, within its namespace.

    Args:
        store: Whose database, and whose namespace.
        name: A name of the index, such as its collection's: one ledger for one index.

    Raises:
        ValueError: If the name is blank.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> ledger = TableLedger(FeedbackStore("sqlite://"), "handbook")
        >>> ledger.note([Entry("1", Fingerprint("a", "b"), "present", "run 1")])
        >>> ledger.entries()["1"].state
        'present'
    """

    def __init__(self, store: "FeedbackStore", name: str) -> None:
        if not name.strip():
            msg = "An index needs a name, such as that of its collection."
            raise ValueError(msg)
        self.store, self.name = store, name

    def entries(self) -> dict[str, Entry]:
        """Return every entry by the id of its document.

        Raises:
            StoreError: If the database cannot be read.
        """
        row = index_entries.c
        mine = (row.namespace == self.store.namespace) & (row.index_name == self.name)
        columns = (row.chunk_id, row.content_hash, row.metadata_hash, row.state, row.run_id)
        with reading(self.store) as connection:
            return {
                of: Entry(of, Fingerprint(content, metadata), state, run_id)
                for of, content, metadata, state, run_id in connection.execute(
                    select(*columns).where(mine)
                )
            }

    def note(self, entries: Sequence[Entry]) -> None:
        """Keep entries, all of them or none, in the place of those with the same id.

        Raises:
            StoreError: If the database cannot be written.
        """
        if not entries:
            return
        with writing(self.store, lock="traces") as (connection, _):
            now = clock(self.store, connection)
            # In one order everywhere: two writers never wait for each other's rows.
            for batch in in_batches(sorted(entries, key=lambda entry: entry.id), _ROWS):
                rows = [
                    {
                        "namespace": self.store.namespace,
                        "index_name": self.name,
                        "chunk_id": entry.id,
                        **entry.fingerprint._asdict(),
                        "state": entry.state,
                        "run_id": entry.run_id,
                        "updated_at": now,
                    }
                    for entry in batch
                ]
                upsert(connection, index_entries, rows, key=_KEY)

    def claim(self, holder: str, seconds: float) -> bool:
        """Take the lease, or prolong one's own; return whether it is the holder's now.

        Args:
            holder: A name that no other run of any process has.
            seconds: How long it lasts unless it is prolonged.

        Raises:
            StoreError: If the database cannot be written.
        """
        row = job_leases.c
        with writing(self.store, lock="traces") as (connection, _):
            now = clock(self.store, connection)
            lease = {"holder": holder, "expires_at": now + timedelta(seconds=seconds)}
            free = (row.name == self._lease) & ((row.holder == holder) | (row.expires_at <= now))
            if connection.execute(update(job_leases).where(free).values(**lease)).rowcount:
                return True
            return bool(insert_or_ignore(connection, job_leases, [{"name": self._lease, **lease}]))

    def renew(self, holder: str, seconds: float) -> bool:
        """Prolong one's own lease; return whether nobody else had it in between.

        One that ended is still one's own until somebody takes it.

        Raises:
            StoreError: If the database cannot be written.
        """
        row = job_leases.c
        mine = (row.name == self._lease) & (row.holder == holder)
        with writing(self.store, lock="traces") as (connection, _):
            until = clock(self.store, connection) + timedelta(seconds=seconds)
            return bool(
                connection.execute(
                    update(job_leases).where(mine).values(expires_at=until)
                ).rowcount
            )

    def release(self, holder: str) -> None:
        """Give the lease back; one that somebody else has stays.

        Raises:
            StoreError: If the database cannot be written.
        """
        row = job_leases.c
        mine = (row.name == self._lease) & (row.holder == holder)
        with writing(self.store, lock="traces", durable=False) as (connection, _):
            connection.execute(delete(job_leases).where(mine))

    @property
    def _lease(self) -> str:
        # Length first: no choice of namespace and name can imitate another pair.
        return f"index:{len(self.store.namespace)}:{self.store.namespace}{self.name}"


def in_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into batches of a size, in order.

    Example:
        >>> list(in_batches("abcde", 2))
        ['ab', 'cd', 'e']
    """
    return (items[start : start + size] for start in range(0, len(items), size))
