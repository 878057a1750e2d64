"""Which chunks there are: what came, what was edited, what went, and where each one stands.

The store knows a chunk from the answers that it was in. The catalog adds those that no question
has found yet, and what only the whole index can say: the place among the chunks of a source,
the day when it first came, and whether it is still there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.runnables.config import run_in_executor
from sqlalchemy import Connection, Row, bindparam, select, update

from langchain_feedback.documents import chunk_key, content_hash, unique_documents
from langchain_feedback.index.ledger import in_batches
from langchain_feedback.store.chunks import take_snapshots
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import clock, reading, writing
from langchain_feedback.traces import storable

if TYPE_CHECKING:
    from datetime import datetime

    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Changes", "ChunkCatalog"]

_PAGE = 500
_MOST = 2**31
"""Of an integer, in every database."""

_CARE = ("position", "start_index", "scope", "status", "first_seen", "changed_at")

_KNOWN = select(
    chunks.c.chunk_id, chunks.c.content_hash, *(chunks.c[name] for name in _CARE)
).where(
    chunks.c.namespace == bindparam("of"), chunks.c.chunk_id.in_(bindparam("ids", expanding=True))
)

_CHANGE = (
    update(chunks)
    .where(chunks.c.namespace == bindparam("of"), chunks.c.chunk_id == bindparam("id"))
    .values({name: bindparam(f"new_{name}") for name in _CARE})
)


@dataclass(frozen=True)
class Changes:
    """What differs from the last time, as ids of chunks, in order."""

    new: tuple[str, ...] = ()
    """Not in the catalog before."""
    changed: tuple[str, ...] = ()
    """Known under the same id with another text; not listed where an answer showed it before.
    Without ids of their own, documents go by their text: then an edit is a new chunk and a
    missing one."""
    missing: tuple[str, ...] = ()
    """Live before, and not among all the documents now; only a complete sync can say."""
    returned: tuple[str, ...] = ()
    """Missing before, and there again."""
    unchanged: int = 0
    """How many are as they were."""

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.missing or self.returned)


@dataclass
class _Found:
    """The same, while it is being found out."""

    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)


class ChunkCatalog:
    """Keeps account of the chunks of an index, in a store's namespace.

    Args:
        store: Whose database, and whose namespace: one index each, see `store.scoped`.
        id_field: A metadata field that holds a stable id, as `FeedbackRetriever` has it.
        scope_field: A metadata field that says whose a chunk is, such as a tenant.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> catalog = ChunkCatalog(FeedbackStore("sqlite://"))
        >>> before = [Document("14 days.", id="a"), Document("By mail.", id="b")]
        >>> catalog.sync(before, complete=True).new
        ('a', 'b')
        >>> catalog.sync([Document("10 days.", id="a")], complete=True)
        Changes(new=(), changed=('a',), missing=('b',), returned=(), unchanged=0)
    """

    def __init__(
        self,
        store: "FeedbackStore",
        *,
        id_field: str | None = None,
        scope_field: str | None = None,
    ) -> None:
        self.store, self.id_field, self.scope_field = store, id_field, scope_field

    def sync(self, documents: Iterable[Document], *, complete: bool = False) -> Changes:
        """Take down the chunks as they are now, and tell what differs from before.

        An edited chunk is live again, whatever its former text was demoted for; an unchanged
        one keeps its status. It is written in steps of 500, each as a whole: after a crash,
        a further run does the rest, and reports only that.

        Args:
            documents: Chunks of the index. Of several with one id the first counts.
            complete: Whether these are all. Only then are others missing, and are positions
                known: the order of `metadata["start_index"]` where all chunks of a source
                have one, else the order given.

        Raises:
            ValueError: If a complete sync holds nothing, while the catalog holds something: a
                loader failed, or the wrong namespace was opened.
            StoreError: If the database cannot be read or written.
        """
        documents = unique_documents(documents, self.id_field)
        if complete and not documents:
            self._refuse_nothing()
        places = _places(documents, self.id_field) if complete else {}
        found, known = _Found(), set[str]()
        for batch in in_batches(documents, _PAGE):
            known.update(self._take(batch, places, found))
        missing = self._miss(known) if complete else []
        touched = len(found.new) + len(found.changed) + len(found.returned)
        return Changes(
            tuple(found.new),
            tuple(found.changed),
            tuple(missing),
            tuple(found.returned),
            len(documents) - touched,
        )

    def _refuse_nothing(self) -> None:
        with reading(self.store) as connection:
            if connection.execute(self._live().limit(1)).first() is None:
                return
        msg = (
            "A complete sync without any document would miss every chunk of the namespace "
            f"{self.store.namespace!r}: look at the loader first"
        )
        raise ValueError(msg)

    def _take(
        self, documents: Sequence[Document], places: Mapping[str, int], found: _Found
    ) -> list[str]:
        ids = [chunk_key(document, self.id_field) for document in documents]
        with writing(self.store, lock="traces") as (connection, _):
            now = clock(self.store, connection)
            rows = _known(connection, self.store.namespace, ids)
            take_snapshots(connection, self.store.namespace, documents, now, self.id_field)
            changes = []
            for key, document in zip(ids, documents, strict=True):
                before = rows.get(key)
                after = self._after(document, before, places.get(key), now)
                _tell(found, key, before, document)
                if before is None or after != {name: getattr(before, name) for name in _CARE}:
                    named = {f"new_{name}": value for name, value in after.items()}
                    changes.append({"of": self.store.namespace, "id": key, **named})
            if changes:
                connection.execute(_CHANGE, sorted(changes, key=lambda row: str(row["id"])))
        return ids

    def _after(
        self, document: Document, before: Row[Any] | None, place: int | None, now: "datetime"
    ) -> dict[str, Any]:
        """Return what the catalog is to say of a chunk."""
        edited = _is_edited(before, document)
        status = "live" if before is None or edited else before.status
        start = document.metadata.get("start_index")
        scope = document.metadata.get(self.scope_field) if self.scope_field else None
        if place is None and before is not None and not edited:
            place = before.position
        return {
            "position": place,
            "start_index": start if _is_count(start) else None,
            "scope": None if scope is None else storable(str(scope)),
            "status": "live" if status == "missing" else status,
            "first_seen": (before and before.first_seen) or now,
            "changed_at": now if edited else before and before.changed_at,
        }

    def _miss(self, there: set[str]) -> list[str]:
        """Mark what is not there, and return it."""
        with writing(self.store, lock="traces") as (connection, _):
            live = connection.scalars(self._live().order_by(chunks.c.chunk_id))
            missing = [key for key in live if key not in there]
            for batch in in_batches(missing, _PAGE):
                of_batch = (chunks.c.namespace == self.store.namespace) & chunks.c.chunk_id.in_(
                    batch
                )
                connection.execute(update(chunks).where(of_batch).values(status="missing"))
        return missing

    def _live(self) -> Any:
        """Select the catalog's live chunks; those only seen in answers are not its own."""
        return select(chunks.c.chunk_id).where(
            chunks.c.namespace == self.store.namespace,
            chunks.c.status == "live",
            chunks.c.first_seen.is_not(None),
        )

    async def async_(self, documents: Iterable[Document], *, complete: bool = False) -> Changes:
        """Do as `sync`, without blocking the event loop; `async` is Python's own word."""
        return await run_in_executor(None, self.sync, documents, complete=complete)


def _known(connection: Connection, namespace: str, ids: Sequence[str]) -> dict[str, Row[Any]]:
    rows = connection.execute(_KNOWN, {"of": namespace, "ids": list(ids)})
    return {row.chunk_id: row for row in rows}


def _tell(found: _Found, key: str, before: Row[Any] | None, document: Document) -> None:
    if before is None or before.first_seen is None:
        found.new.append(key)
    elif _is_edited(before, document):
        found.changed.append(key)
    elif before.status == "missing":
        found.returned.append(key)


def _is_edited(before: Row[Any] | None, document: Document) -> bool:
    return before is not None and before.content_hash != content_hash(document)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def _places(documents: Sequence[Document], id_field: str | None) -> dict[str, int]:
    """Return where each chunk stands among those of its source, from 0, by its id."""
    sources: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        if source := str(document.metadata.get("source") or ""):
            sources[source].append(document)
    places: dict[str, int] = {}
    for of_source in sources.values():
        starts = [document.metadata.get("start_index") for document in of_source]
        if all(map(_is_count, starts)):
            of_source.sort(key=lambda document: int(document.metadata["start_index"]))
        places |= {chunk_key(document, id_field): at for at, document in enumerate(of_source)}
    return places
