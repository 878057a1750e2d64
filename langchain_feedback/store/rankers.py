"""Learned rankers, and which of them orders pools: rows that are only ever added."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from langchain_feedback.errors import ArtifactError, UnknownRankerError
from langchain_feedback.store.database import insert_or_ignore
from langchain_feedback.store.learning_schema import ranker_activations, rankers

__all__ = [
    "Activation",
    "RankerRecord",
    "activate",
    "add_ranker",
    "before_active",
    "digest_of",
    "newest_activation",
    "read_activations",
    "read_ranker",
    "read_rankers",
]


@dataclass(frozen=True)
class RankerRecord:
    """A ranker as the store holds it."""

    ranker_id: str
    """A digest of what it was made of: the same labels make the same ranker."""
    kind: str
    """Which loader reads the artifact: `linear`, `cross_encoder`, or an estimator's own."""
    artifact: str
    """JSON. Nothing in it runs."""
    sha256: str
    """Of the artifact, when it was made."""
    labels: str
    """A digest of what it learned from."""
    taught: tuple[str, ...]
    """The keys of the questions that it learned from: see `question_key`."""
    groups: int
    """How many reviewed questions taught it something."""
    trained_at: datetime
    """UTC."""

    def check(self) -> None:
        """Make sure that the artifact is what was trained.

        Raises:
            ArtifactError: If it is not.
        """
        if digest_of(self.artifact) != self.sha256:
            msg = (
                f"The artifact of ranker {self.ranker_id!r} is damaged: its SHA-256 is not the "
                "one it was stored with. Train it anew, or roll back."
            )
            raise ArtifactError(msg)


@dataclass(frozen=True)
class Activation:
    """That a ranker was made the active one, or the one that is watched."""

    seq: int
    """Later ones have higher numbers; the highest of a role counts."""
    role: str
    """`active` or `shadow`."""
    ranker_id: str | None
    """None: the base's own order; nothing is watched."""
    action: str
    """`promote`, `rollback` or `shadow`."""
    actor: str | None
    reason: Mapping[str, Any]
    """The figures that it rests on."""
    at: datetime
    """UTC."""


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def add_ranker(connection: Connection, namespace: str, record: RankerRecord) -> bool:
    """Keep a ranker; return whether it is new. Rankers are never changed."""
    known = select(rankers.c.ranker_id).where(rankers.c.ranker_id == record.ranker_id)
    if connection.execute(known).first() is not None:
        return False
    fields = ("ranker_id", "kind", "artifact", "sha256", "labels", "groups", "trained_at")
    row = {name: getattr(record, name) for name in fields}
    row |= {"namespace": namespace, "taught": json.dumps(record.taught)}
    insert_or_ignore(connection, rankers, [row])
    return True


def read_ranker(connection: Connection, namespace: str, ranker_id: str) -> RankerRecord | None:
    """Return a ranker, or None."""
    mine = (rankers.c.namespace == namespace) & (rankers.c.ranker_id == ranker_id)
    row = connection.execute(select(rankers).where(mine)).one_or_none()
    return None if row is None else _record(row)


def read_rankers(connection: Connection, namespace: str) -> list[RankerRecord]:
    """Return all rankers, newest first."""
    rows = connection.execute(
        select(rankers)
        .where(rankers.c.namespace == namespace)
        .order_by(rankers.c.trained_at.desc(), rankers.c.ranker_id)
    )
    return [_record(row) for row in rows]


def read_activations(
    connection: Connection, namespace: str, role: str = "active"
) -> list[Activation]:
    """Return what was made active, or watched, oldest first."""
    rows = connection.execute(_of(namespace, role).order_by(ranker_activations.c.seq))
    return [_activation(row) for row in rows]


def newest_activation(
    connection: Connection, namespace: str, role: str = "active"
) -> Activation | None:
    """Return the activation that counts; None: the base's own order."""
    newest = _of(namespace, role).order_by(ranker_activations.c.seq.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return None if row is None else _activation(row)


def activate(
    connection: Connection,
    namespace: str,
    ranker_id: str | None,
    *,
    action: str,
    at: datetime,
    role: str = "active",
    actor: str | None = None,
    reason: Mapping[str, Any] | None = None,
) -> int:
    """Make a ranker count from now on, by one row; return its number.

    Args:
        connection: A transaction that excludes other writers, so that nobody else activates
            one between what its caller read and this.
        namespace: Whose.
        ranker_id: None: the base's own order; nothing is watched.
        action: `promote`, `rollback` or `shadow`.
        at: When.
        role: `active` or `shadow`.
        actor: Who did it.
        reason: The figures that it rests on, as JSON holds them.

    Raises:
        UnknownRankerError: If there is no such ranker.
    """
    if ranker_id is not None and read_ranker(connection, namespace, ranker_id) is None:
        msg = f"There is no ranker {ranker_id!r} in namespace {namespace!r}: see `loop status`."
        raise UnknownRankerError(msg)
    row = {
        "namespace": namespace, "role": role, "ranker_id": ranker_id, "action": action,
        "actor": actor, "reason": json.dumps(dict(reason or {})), "at": at,
    }  # fmt: skip
    added = insert(ranker_activations).values(row).returning(ranker_activations.c.seq)
    return int(connection.execute(added).scalar_one())


def before_active(activations: Sequence[Activation]) -> str | None:
    """Return what a rollback goes back to: each promotion is undone once, newest first.

    Example:
        >>> from datetime import UTC, datetime
        >>> def made(action, ranker_id):
        ...     return Activation(1, "active", ranker_id, action, None, {}, datetime.now(UTC))
        >>> history = [made("promote", "a"), made("promote", "b")]
        >>> before_active(history)
        'a'
        >>> before_active([*history, made("rollback", "a")]) is None
        True
    """
    before: list[str | None] = [None]
    for one in activations:
        if one.action == "promote":
            before.append(one.ranker_id)
        elif one.action == "rollback" and len(before) > 1:
            before.pop()
    return before[-2] if len(before) > 1 else None


def _of(namespace: str, role: str) -> Any:
    mine = (ranker_activations.c.namespace == namespace) & (ranker_activations.c.role == role)
    return select(ranker_activations).where(mine)


def _record(row: Row[Any]) -> RankerRecord:
    names = set(RankerRecord.__dataclass_fields__) - {"taught"}
    fields = {name: getattr(row, name) for name in names}
    return RankerRecord(taught=tuple(json.loads(row.taught)), **fields)


def _activation(row: Row[Any]) -> Activation:
    names = set(Activation.__dataclass_fields__) - {"reason"}
    fields = {name: getattr(row, name) for name in names}
    return Activation(reason=json.loads(row.reason), **fields)
