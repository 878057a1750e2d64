"""LangChain's record manager on the feedback store, for people's own calls of `index(...)`.

`index` asks it which documents it wrote, so as to skip what is there and to delete what is
gone. It only remembers: it does not see whether the index still holds what was written, as
`IndexWriter` does. Times are those of the database's server, which all writers share.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_core.indexing import RecordManager
from langchain_core.runnables.config import run_in_executor
from sqlalchemy import delete, select

from langchain_feedback.store.care_schema import index_records
from langchain_feedback.store.database import upsert
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["StoreRecordManager"]

_KEY = ("namespace", "index_name", "key")


class StoreRecordManager(RecordManager):
    """Remembers what `langchain_core.indexing.index` wrote, within the store's namespace.

    Use `cleanup="scoped_full"`: `incremental` deletes and embeds anew most of a file that has
    more chunks than a batch, at each run. And use a `key_encoder` that makes UUIDs of content
    and source where the index wants them, as Qdrant does.

    Args:
        store: Whose database, and whose namespace.
        namespace: A name of the index, such as its collection's: one for each index.

    Raises:
        ValueError: If the name is blank.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.indexing import index
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_feedback import FeedbackStore
        >>> records = FeedbackStore("sqlite://").record_manager("handbook")
        >>> vectors = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        >>> chunks = [Document("Refunds take 14 days.", metadata={"source": "refunds.md"})]
        >>> how = {"cleanup": "scoped_full", "source_id_key": "source", "key_encoder": "sha256"}
        >>> [index(chunks, records, vectors, **how)["num_added"] for _ in range(2)]
        [1, 0]
    """

    def __init__(self, store: "FeedbackStore", namespace: str) -> None:
        if not namespace.strip():
            msg = "An index needs a name, such as that of its collection."
            raise ValueError(msg)
        super().__init__(namespace)
        self.store = store

    def create_schema(self) -> None:
        """Make or migrate the store's tables; other methods do so, too."""
        self.store.setup()

    async def acreate_schema(self) -> None:
        """Do as `create_schema`, without blocking the event loop."""
        await run_in_executor(None, self.create_schema)

    def get_time(self) -> float:
        """Return the server's time, in seconds since 1970, exact to the microsecond.

        Raises:
            StoreError: If the database cannot be read.
        """
        with reading(self.store) as connection:
            return clock(self.store, connection).timestamp()

    async def aget_time(self) -> float:
        """Do as `get_time`, without blocking the event loop."""
        return await run_in_executor(None, self.get_time)

    def update(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """Remember that documents were written now, all of them or none.

        Args:
            keys: Their keys; of one that comes twice the last counts.
            group_ids: What each comes from, such as its source.
            time_at_least: Refuse if the server's clock is behind this: it went back, and what
                is written now would be taken for old, and deleted.

        Raises:
            ValueError: If there are not as many groups as keys, or the clock is behind.
            StoreError: If the database cannot be written.
        """
        groups = [None] * len(keys) if group_ids is None else list(group_ids)
        if len(groups) != len(keys):
            msg = f"{len(keys)} keys need as many group_ids, not {len(groups)}"
            raise ValueError(msg)
        if not keys:
            return
        with writing(self.store, lock="traces") as (connection, _):
            now = clock(self.store, connection)
            if time_at_least is not None and now.timestamp() < time_at_least:
                msg = f"The server's clock went back: {now.timestamp()} < {time_at_least}"
                raise ValueError(msg)
            # In one order everywhere: two writers never wait for each other's rows.
            latest = sorted(dict(zip(keys, groups, strict=True)).items())
            for batch in batched([self._row(*one, now) for one in latest]):
                upsert(connection, index_records, batch, key=_KEY)

    async def aupdate(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """Do as `update`, without blocking the event loop."""
        more: dict[str, Any] = {"group_ids": group_ids, "time_at_least": time_at_least}
        await run_in_executor(None, self.update, keys, **more)

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """Tell of each key whether it is remembered.

        Raises:
            StoreError: If the database cannot be read.
        """
        known: set[str] = set()
        with reading(self.store) as connection:
            for batch in batched(list(dict.fromkeys(keys))):
                there = self._mine & index_records.c.key.in_(batch)
                known.update(connection.scalars(select(index_records.c.key).where(there)))
        return [key in known for key in keys]

    async def aexists(self, keys: Sequence[str]) -> list[bool]:
        """Do as `exists`, without blocking the event loop."""
        return await run_in_executor(None, self.exists, keys)

    def list_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return the remembered keys, those first that were written first.

        Args:
            before: Only those last written before this time.
            after: Only those last written after it.
            group_ids: Only those of these groups; None or none at all: of every group.
            limit: The most that are returned; None or 0: all of them.

        Raises:
            StoreError: If the database cannot be read.
        """
        row = index_records.c
        wanted = select(row.key).where(self._mine).order_by(row.updated_at, row.key)
        if before:
            wanted = wanted.where(row.updated_at < _instant(before))
        if after:
            wanted = wanted.where(row.updated_at > _instant(after))
        if group_ids:
            wanted = wanted.where(row.group_id.in_(group_ids))
        if limit:
            wanted = wanted.limit(limit)
        with reading(self.store) as connection:
            return list(connection.scalars(wanted))

    async def alist_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Do as `list_keys`, without blocking the event loop."""
        more: dict[str, Any] = {"before": before, "after": after, "group_ids": group_ids}
        return await run_in_executor(None, self.list_keys, **more, limit=limit)

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Forget keys, all of them or none; unknown ones are no error.

        Raises:
            StoreError: If the database cannot be written.
        """
        with writing(self.store, lock="traces") as (connection, _):
            for batch in batched(sorted(set(keys))):
                gone = self._mine & index_records.c.key.in_(batch)
                connection.execute(delete(index_records).where(gone))

    async def adelete_keys(self, keys: Sequence[str]) -> None:
        """Do as `delete_keys`, without blocking the event loop."""
        await run_in_executor(None, self.delete_keys, keys)

    @property
    def _mine(self) -> "ColumnElement[bool]":
        row = index_records.c
        return (row.namespace == self.store.namespace) & (row.index_name == self.namespace)

    def _row(self, key: str, group: str | None, now: datetime) -> dict[str, Any]:
        return {
            "namespace": self.store.namespace,
            "index_name": self.namespace,
            "key": key,
            "group_id": group,
            "updated_at": now,
        }


def _instant(seconds: float) -> datetime:
    """Return the instant of a time; of `get_time`'s the very one that it came from."""
    return datetime.fromtimestamp(seconds, UTC)
