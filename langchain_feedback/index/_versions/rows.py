"""The rows of the versions of an index, and the journal of which of them was active when."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, delete, insert, select, update

from langchain_feedback.index._versions.embedder import EmbedderFingerprint
from langchain_feedback.index.errors import UnknownVersionError
from langchain_feedback.store.care_schema import care_runs, index_versions
from langchain_feedback.store.database import insert_or_ignore

__all__ = [
    "Activation",
    "IndexVersion",
    "add_row",
    "before_active",
    "change_row",
    "delete_row",
    "note_activation",
    "read_activations",
    "read_active",
    "read_row",
    "read_rows",
    "switch",
]

_JOB = "activation"
_JSON = ("locator", "checks")


@dataclass(frozen=True)
class IndexVersion:
    """A build of an index, as the registry holds it."""

    version: str
    status: str
    """`building`, `ready`, `active` or `retired`."""
    locator: Mapping[str, Any]
    """What is needed to open it: a collection, a table, a folder. JSON."""
    embedder: EmbedderFingerprint | None
    """With which embedder it must be searched; None: it has none, such as one of words."""
    chunk_count: int
    checks: Mapping[str, Any] = field(repr=False)
    """What was checked before it was ready: by name `ok`, `why` and figures. JSON."""
    created_at: datetime
    """UTC."""
    activated_at: datetime | None
    """When it became active last."""
    retired_at: datetime | None
    """When it ceased to be, last."""

    @property
    def key(self) -> tuple[str, datetime]:
        """What tells it from another build that has had the same name."""
        return self.version, self.created_at


@dataclass(frozen=True)
class Activation:
    """That a version became the active one."""

    seq: int
    """From 1 in its namespace; later ones have higher numbers."""
    action: str
    """`activate` or `rollback`."""
    version: str
    before: str | None
    """What was active until then."""
    actor: str | None
    at: datetime
    """UTC."""


def add_row(connection: Connection, namespace: str, version: IndexVersion) -> bool:
    """Keep a new version; return whether there was none of that name."""
    row = {
        "namespace": namespace,
        "version": version.version,
        "status": version.status,
        "locator": json.dumps(version.locator),
        "embedder": version.embedder.to_json() if version.embedder else "",
        "dimension": version.embedder.dimension if version.embedder else 0,
        "chunk_count": version.chunk_count,
        "checks": json.dumps(version.checks),
        "created_at": version.created_at,
    }
    return bool(insert_or_ignore(connection, index_versions, [row]))


def read_row(connection: Connection, namespace: str, version: str) -> IndexVersion:
    """Return a version.

    Raises:
        UnknownVersionError: If there is none of that name.
    """
    row = connection.execute(select(index_versions).where(_one(namespace, version))).one_or_none()
    if row is None:
        msg = f"There is no version {version!r} of the index in namespace {namespace!r}."
        raise UnknownVersionError(msg)
    return _read(row)


def read_rows(connection: Connection, namespace: str) -> list[IndexVersion]:
    """Return every version, oldest first."""
    rows = connection.execute(
        select(index_versions)
        .where(index_versions.c.namespace == namespace)
        .order_by(index_versions.c.created_at, index_versions.c.version)
    )
    return [_read(row) for row in rows]


def read_active(connection: Connection, namespace: str) -> IndexVersion | None:
    """Return the active version, or None."""
    mine = (index_versions.c.namespace == namespace) & (index_versions.c.status == "active")
    row = connection.execute(select(index_versions).where(mine)).one_or_none()
    return None if row is None else _read(row)


def change_row(connection: Connection, namespace: str, version: str, **changes: Any) -> None:
    """Change columns of a version."""
    told = {name: json.dumps(of) if name in _JSON else of for name, of in changes.items()}
    connection.execute(update(index_versions).where(_one(namespace, version)).values(told))


def delete_row(connection: Connection, namespace: str, version: str) -> None:
    """Forget a version."""
    connection.execute(delete(index_versions).where(_one(namespace, version)))


def switch(
    connection: Connection, namespace: str, version: str, before: str | None, at: datetime
) -> bool:
    """Make a version active in the place of another one; return whether both were as expected.

    A transaction in which it returns False must not be kept.
    """
    row = index_versions.c
    if before is not None:
        active = _one(namespace, before) & (row.status == "active")
        retired = update(index_versions).where(active).values(status="retired", retired_at=at)
        if not connection.execute(retired).rowcount:
            return False
    # A partial unique index lets one version of a namespace be active, whatever happens here.
    was_active = (row.status == "retired") & row.activated_at.is_not(None)
    able = _one(namespace, version) & ((row.status == "ready") | was_active)
    made = update(index_versions).where(able)
    made = made.values(status="active", activated_at=at, retired_at=None)
    return bool(connection.execute(made).rowcount)


def note_activation(connection: Connection, namespace: str, new: Activation) -> None:
    """Add to the journal; nothing in it is ever changed."""
    told = {
        "seq": new.seq,
        "action": new.action,
        "version": new.version,
        "before": new.before,
        "actor": new.actor,
    }
    row = {
        "run_id": uuid4().hex,
        "namespace": namespace,
        "job": _JOB,
        "dry_run": False,
        "counts": json.dumps(told),
        "status": "done",
        "started_at": new.at,
        "finished_at": new.at,
    }
    connection.execute(insert(care_runs).values(row))


def read_activations(connection: Connection, namespace: str) -> list[Activation]:
    """Return the journal, oldest first."""
    mine = (care_runs.c.namespace == namespace) & (care_runs.c.job == _JOB)
    rows = connection.execute(select(care_runs.c.counts, care_runs.c.started_at).where(mine)).all()
    found = [Activation(**json.loads(row.counts), at=row.started_at) for row in rows]
    # By number: a clock may go back.
    return sorted(found, key=lambda one: one.seq)


def before_active(history: Sequence[Activation]) -> str | None:
    """Return what a rollback goes back to: each activation is undone once, newest first.

    Example:
        >>> from datetime import UTC, datetime
        >>> def made(action, version, before):
        ...     return Activation(1, action, version, before, None, datetime.now(UTC))
        >>> history = [made("activate", "v1", None), made("activate", "v2", "v1")]
        >>> before_active(history)
        'v1'
        >>> before_active([*history, made("rollback", "v1", "v2")]) is None
        True
    """
    before: list[str | None] = []
    for one in history:
        if one.action == "activate":
            before.append(one.before)
        elif before:
            before.pop()
    return before[-1] if before else None


def _one(namespace: str, version: str) -> Any:
    return (index_versions.c.namespace == namespace) & (index_versions.c.version == version)


def _read(row: Row[Any]) -> IndexVersion:
    return IndexVersion(
        version=row.version,
        status=row.status,
        locator=json.loads(row.locator),
        embedder=EmbedderFingerprint.from_json(row.embedder) if row.embedder else None,
        chunk_count=row.chunk_count,
        checks=json.loads(row.checks),
        created_at=row.created_at,
        activated_at=row.activated_at,
        retired_at=row.retired_at,
    )
