"""Answers that were folded back: their rows, whether their sources stand, and who said yes.

An entry is alive while it is `active`, its time is not over, its question is still there and
each of its sources has the text that was approved. All but the first is looked up whenever it
is asked for, so that nothing has to run for an entry to go.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from langchain_core.documents import Document
from sqlalchemy import Connection, delete, insert, select, update

from langchain_feedback.store.care_schema import derived, derived_sources
from langchain_feedback.store.database import upsert
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks, questions, traces

__all__ = [
    "Derived",
    "Source",
    "Standing",
    "approve_derived",
    "forget_derived",
    "put_derived",
    "read_derived",
    "reject_derived",
    "restore_derived",
    "standing_of",
]

Status = Literal["candidate", "active", "expired", "rejected"]
Source = tuple[str, str]
"""The id of a chunk, and the hash of the text that it had."""

_MAX_AGE_DAYS = 180.0
_CHANGED = ("status", "approved_by", "approved_at", "expires_at")


@dataclass(frozen=True)
class Derived:
    """An accepted question with its answer, and what the answer rests on."""

    derived_id: str
    question_id: int | None
    question: str | None
    """Its text; None where retention, or who asked it, took it away."""
    trace_id: str | None
    text: str = field(repr=False)
    """The answer."""
    status: Status
    approved_by: str | None
    approved_at: datetime | None
    expires_at: datetime | None
    votes: dict[str, Any]
    """What the gate rested on."""
    sources: tuple[Source, ...]
    """By chunk id."""


@dataclass(frozen=True)
class Standing:
    """How a source is now."""

    state: Literal["current", "changed", "gone", "hidden"]
    """`hidden`: the text is the same, and the chunk is demoted for the time being."""
    known: tuple[tuple[str | None, Document, datetime], ...] = ()
    """Of a current one: its own id in the index, its text, and when it was last seen, the newest
    first. An index that is rebuilt gives it a new id each time."""


def read_derived(
    connection: Connection,
    namespace: str,
    *,
    ids: Sequence[str] | None = None,
    status: Status | None = None,
) -> list[Derived]:
    """Return entries of a namespace by id; all, or those asked for.

    Args:
        connection: A transaction.
        namespace: Whose.
        ids: Only these.
        status: Only those in this state.
    """
    wanted = [derived.c.namespace == namespace]
    wanted += [derived.c.status == status] if status else []
    there = questions.c.question_id == derived.c.question_id
    statement = select(derived, questions.c.text.label("question")).outerjoin(questions, there)
    rows: list[Any] = []
    for page in [None] if ids is None else batched(sorted(set(ids))):
        among = [] if page is None else [derived.c.derived_id.in_(page)]
        rows += connection.execute(statement.where(*wanted, *among)).mappings()
    sources: dict[str, list[Source]] = defaultdict(list)
    for page in batched(sorted(row["derived_id"] for row in rows)):
        mine = derived_sources.c.derived_id.in_(page)
        for one in connection.execute(select(derived_sources).where(mine)):
            sources[one.derived_id].append((one.chunk_id, one.content_hash))
    taken = set(Derived.__dataclass_fields__) - {"votes", "sources"}
    return [
        Derived(
            votes=json.loads(row["votes"]),
            sources=tuple(sorted(sources[row["derived_id"]])),
            **{name: row[name] for name in taken},
        )
        for row in sorted(rows, key=lambda row: str(row["derived_id"]))
    ]


def put_derived(connection: Connection, namespace: str, entries: Iterable[Derived]) -> None:
    """Keep entries with their sources, in the place of those with the same ids."""
    for entry in sorted(entries, key=lambda entry: entry.derived_id):
        row = {name: getattr(entry, name) for name in Derived.__dataclass_fields__}
        for name in ("question", "sources"):
            del row[name]
        row |= {"namespace": namespace, "votes": json.dumps(entry.votes, sort_keys=True)}
        upsert(connection, derived, [row], key=["derived_id"])
        mine = derived_sources.c.derived_id == entry.derived_id
        connection.execute(delete(derived_sources).where(mine))
        connection.execute(
            insert(derived_sources),
            [
                {"derived_id": entry.derived_id, "chunk_id": chunk_id, "content_hash": text_hash}
                for chunk_id, text_hash in entry.sources
            ],
        )


def standing_of(
    connection: Connection, namespace: str, sources: Iterable[Source]
) -> dict[Source, Standing]:
    """Return how each source is now, as its chunk was last seen."""
    wanted = set(sources)
    rows: dict[str, Any] = {}
    for page in batched(sorted({chunk_id for chunk_id, _ in wanted})):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        for row in connection.execute(select(chunks).where(mine)):
            rows[row.chunk_id] = row
    same: dict[Source, list[Any]] = defaultdict(list)
    for page in batched(sorted({row.cell_id for row in rows.values()})):
        live = (chunks.c.namespace == namespace) & (chunks.c.status == "live")
        newest = chunks.c.last_seen.desc(), chunks.c.chunk_id
        found = select(chunks).where(live, chunks.c.cell_id.in_(page)).order_by(*newest)
        for row in connection.execute(found):
            same[row.cell_id, row.content_hash].append(row)
    return {one: _standing(one, rows.get(one[0]), same) for one in wanted}


def _standing(source: Source, row: Any, same: Mapping[Source, Sequence[Any]]) -> Standing:
    if row is None:
        return Standing("gone")
    if row.content_hash != source[1]:
        return Standing("changed")
    if row.status == "demoted":
        return Standing("hidden")
    copies = same.get((row.cell_id, row.content_hash), ())
    if row.status == "retired" or not copies:
        return Standing("gone")
    return Standing(
        "current",
        tuple(
            (
                # A chunk without an id of its own goes by its cell's: no index knows that one.
                None if one.chunk_id == one.cell_id else one.chunk_id,
                Document(one.text, id=one.document_id, metadata=json.loads(one.metadata)),
                one.last_seen,
            )
            for one in copies
        ),
    )


def approve_derived(
    connection: Connection, namespace: str, derived_id: str, actor: str, now: datetime
) -> dict[str, Any] | None:
    """Let an entry serve from now on; return how it was, for `restore_derived`.

    Returns:
        None where that cannot be: it is not there or serves already, its question is gone, its
        sources are not those that the answer rested on, or the answer is not grounded.
    """
    entry = _locked(connection, namespace, derived_id)
    if entry is None or entry.status == "active" or entry.question is None or not entry.text:
        return None
    stands = standing_of(connection, namespace, entry.sources).values()
    if any(one.state not in ("current", "hidden") for one in stands) or not entry.sources:
        return None
    asked = select(traces.c.grounded).where(traces.c.trace_id == entry.trace_id)
    # Retention may have removed the trace, of which the entry then is the record.
    if connection.execute(asked).scalar_one_or_none() is False or not entry.votes.get("grounded"):
        return None
    days = float(entry.votes.get("max_age_days") or _MAX_AGE_DAYS)
    until = now + timedelta(days=days)
    return _change(connection, entry, ("active", actor, now, until))


def reject_derived(
    connection: Connection, namespace: str, derived_id: str, actor: str, now: datetime
) -> dict[str, Any] | None:
    """Keep an entry from serving for good; return how it was, None where it is not there."""
    entry = _locked(connection, namespace, derived_id)
    if entry is None or entry.status == "rejected":
        return None
    return _change(connection, entry, ("rejected", actor, now, None))


def restore_derived(connection: Connection, namespace: str, before: Mapping[str, Any]) -> None:
    """Put an entry back to how it was, if it is still there."""
    mine = (derived.c.namespace == namespace) & (derived.c.derived_id == before["derived_id"])
    was: dict[str, Any] = {name: before.get(name) for name in _CHANGED}
    for name in ("approved_at", "expires_at"):
        was[name] = datetime.fromisoformat(was[name]) if was[name] else None
    connection.execute(update(derived).where(mine).values(was))


def forget_derived(
    connection: Connection,
    namespace: str,
    question_ids: Collection[int],
    trace_ids: Sequence[str],
) -> list[str]:
    """Remove the entries of questions that go, and the answers that some traces gave.

    An entry of which the answer goes serves its sources on. The job gives it another answer
    where votes approved it; one that a reviewer approved stays without.

    Returns:
        The ids of the entries that were removed.
    """
    mine = derived.c.namespace == namespace
    gone: list[str] = []
    for page in batched(sorted(question_ids)):
        asked = delete(derived).where(mine, derived.c.question_id.in_(page))
        gone += connection.scalars(asked.returning(derived.c.derived_id))
    for named in batched(list(trace_ids)):
        given = mine & derived.c.trace_id.in_(named)
        connection.execute(update(derived).where(given).values(trace_id=None, text=""))
    return gone


def _locked(connection: Connection, namespace: str, derived_id: str) -> Derived | None:
    this = select(derived.c.derived_id).where(derived.c.derived_id == derived_id)
    connection.execute(this.with_for_update())
    return next(iter(read_derived(connection, namespace, ids=[derived_id])), None)


def _change(connection: Connection, entry: Derived, after: Sequence[Any]) -> dict[str, Any]:
    this = derived.c.derived_id == entry.derived_id
    changes = dict(zip(_CHANGED, after, strict=True))
    connection.execute(update(derived).where(this).values(changes))
    before: dict[str, Any] = {"derived_id": entry.derived_id}
    for name in _CHANGED:
        value = getattr(entry, name)
        before[name] = value.isoformat() if isinstance(value, datetime) else value
    return before
