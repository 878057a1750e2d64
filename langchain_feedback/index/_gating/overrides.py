"""What people said is no junk, whatever the checks find: of a text, in a namespace.

Scores have no owner, and stay as they are: another namespace may see the same text otherwise.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, select

from langchain_feedback.index._gating.scores import scores_of
from langchain_feedback.store.care_schema import care_runs, quality_overrides
from langchain_feedback.store.database import upsert
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks

__all__ = [
    "Allowed",
    "allow_texts",
    "allowed_in",
    "among_allowed",
    "disallow_texts",
    "named",
    "note_change",
    "verdicts_of",
]

_JOB = "gate"
"""What the journal of runs calls a change of what is allowed."""


@dataclass(frozen=True)
class Allowed:
    """A text that passes the gate because somebody said so."""

    content_hash: str
    actor: str | None
    """Who said so last; None: that was forgotten."""
    reason: str
    at: datetime
    chunks: tuple[str, ...]
    """Ids of the chunks in the catalog that have the text, in order; there may be none."""


def named(actor: str) -> str:
    """Return who answers for a change.

    Raises:
        ValueError: If that is nobody.
    """
    if not actor.strip():
        msg = "A change to an index needs somebody who answers for it: give an actor."
        raise ValueError(msg)
    return actor


def allow_texts(
    connection: Connection,
    namespace: str,
    hashes: Iterable[str],
    *,
    actor: str,
    reason: str,
    now: datetime,
) -> int:
    """Allow texts by their hashes, and return how many were not allowed before."""
    wanted = sorted(set(hashes))
    known = among_allowed(connection, namespace, wanted)
    said = {"namespace": namespace, "actor": actor, "reason": reason, "at": now}
    for page in batched([said | {"content_hash": of} for of in wanted]):
        upsert(connection, quality_overrides, page, key=("namespace", "content_hash"))
    return len(wanted) - len(known)


def disallow_texts(connection: Connection, namespace: str, hashes: Iterable[str]) -> int:
    """Take back that texts are allowed, and return how many were."""
    row, gone = quality_overrides.c, 0
    for page in batched(sorted(set(hashes))):
        mine = (row.namespace == namespace) & row.content_hash.in_(page)
        gone += connection.execute(delete(quality_overrides).where(mine)).rowcount
    return gone


def note_change(
    connection: Connection, namespace: str, counts: Mapping[str, int], actor: str, now: datetime
) -> None:
    """Keep who changed what is allowed: of what was taken back nothing else tells."""
    run = {
        "run_id": uuid4().hex,
        "namespace": namespace,
        "job": _JOB,
        "dry_run": False,
        "counts": json.dumps({**counts, "actor": actor}),
        "status": "done",
        "started_at": now,
        "finished_at": now,
    }
    connection.execute(insert(care_runs), run)


def allowed_in(connection: Connection, namespace: str) -> list[Allowed]:
    """Return all that is allowed in a namespace, oldest first."""
    row = quality_overrides.c
    mine = row.namespace == namespace
    having = (chunks.c.namespace == namespace) & (
        chunks.c.content_hash.in_(select(row.content_hash).where(mine))
    )
    ids = defaultdict(list)
    named_by = select(chunks.c.content_hash, chunks.c.chunk_id).where(having)
    for of, chunk_id in connection.execute(named_by.order_by(chunks.c.chunk_id)):
        ids[of].append(chunk_id)
    said = select(row.content_hash, row.actor, row.reason, row.at).where(mine)
    return [
        Allowed(of, actor, reason, at, tuple(sorted(ids[of])))
        for of, actor, reason, at in connection.execute(said.order_by(row.at, row.content_hash))
    ]


def among_allowed(connection: Connection, namespace: str, hashes: Iterable[str]) -> set[str]:
    """Return which of some texts are allowed, by hash."""
    row, found = quality_overrides.c, set()
    for page in batched(sorted(set(hashes))):
        mine = (row.namespace == namespace) & row.content_hash.in_(page)
        found |= set(connection.scalars(select(row.content_hash).where(mine)))
    return found


def verdicts_of(
    connection: Connection, namespace: str, hashes: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Return the reasons for which the gate hides texts, by hash; what is allowed has none."""
    scores = scores_of(connection, hashes)
    gated = {of: scored.gating for of, scored in scores.items() if scored.gating}
    allowed = among_allowed(connection, namespace, gated)
    return {of: reasons for of, reasons in gated.items() if of not in allowed}
