"""What a retirement did, kept for good: each run, each chunk with its text, each way back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from langchain_core.documents import Document
from sqlalchemy import Connection, insert, select, update

from langchain_feedback.index._gating.overrides import allow_texts, verdicts_of
from langchain_feedback.index._retirement.plan import Candidate, RetirementPlan
from langchain_feedback.index._retirement.said import JOB
from langchain_feedback.store.care_schema import care_actions, care_runs
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks

__all__ = [
    "Action",
    "Restored",
    "Retired",
    "actions_of",
    "allow_restored",
    "begin_run",
    "finish_run",
    "note_actions",
    "note_restored",
    "set_status",
]


@dataclass(frozen=True)
class Action:
    """What was done to a chunk, and what brings it back."""

    action_id: str
    run_id: str
    action: str
    """`demote`, `remove` or `restore`."""
    target: str
    """The chunk's id in the store."""
    before: dict[str, Any]
    """`id` in the index, `text`, `metadata`, `content_hash` and `status`."""
    reason: str
    statistics: dict[str, Any]
    actor: str | None
    undone_by: str | None
    at: datetime

    @property
    def document(self) -> Document:
        """The chunk as it stood in the index."""
        before = self.before
        return Document(before["text"], id=before["id"], metadata=before["metadata"])


@dataclass(frozen=True)
class Retired:
    """What a run did."""

    run_id: str
    """Empty where there was nothing to do."""
    digest: str
    """Of the plan that it carried out."""
    demoted: tuple[str, ...] = ()
    """Ids of chunks that are hidden since."""
    removed: tuple[str, ...] = ()
    """Ids of chunks that are no longer in the index."""


@dataclass(frozen=True)
class Restored:
    """What came back."""

    run_id: str
    chunks: tuple[str, ...]
    """Ids of chunks that are shown again; each was looked up in the index."""


def begin_run(
    connection: Connection,
    namespace: str,
    now: datetime,
    *,
    digest: str | None,
    counts: Mapping[str, int],
    dry: bool = False,
) -> str:
    """Note a run, a dry one as done, and return its id."""
    run = {
        "run_id": uuid4().hex,
        "namespace": namespace,
        "job": JOB,
        "dry_run": dry,
        "plan_digest": digest,
        "counts": json.dumps(dict(counts)),
        "status": "done" if dry else "running",
        "started_at": now,
        "finished_at": now if dry else None,
    }
    connection.execute(insert(care_runs), run)
    return str(run["run_id"])


def finish_run(connection: Connection, run_id: str, status: str, now: datetime) -> None:
    """Note how a run ended: `done` or `failed`."""
    mine = care_runs.c.run_id == run_id
    connection.execute(update(care_runs).where(mine).values(status=status, finished_at=now))


def note_actions(
    connection: Connection, run_id: str, plan: RetirementPlan, actor: str, now: datetime
) -> None:
    """Keep what a plan takes away, in full, before it is touched."""
    changed = [("demote", "live", one) for one in plan.demote]
    changed += [("remove", "demoted", one) for one in plan.remove]
    rows = [
        {
            "action_id": uuid4().hex,
            "run_id": run_id,
            "action": action,
            "target": one.chunk_id,
            "before": json.dumps(_before(one, status)),
            "reason": one.reason,
            "statistics": json.dumps(one.statistics, sort_keys=True),
            "actor": actor,
            "at": now,
        }
        for action, status, one in changed
    ]
    if rows:
        connection.execute(insert(care_actions), rows)


def note_restored(
    connection: Connection, run_id: str, undone: Sequence[Action], actor: str, now: datetime
) -> None:
    """Keep that chunks are back, and mark all that was done to each as undone."""
    for target in sorted({one.target for one in undone}):
        mine = [one for one in undone if one.target == target]
        action_id = uuid4().hex
        row = {
            "action_id": action_id,
            "run_id": run_id,
            "action": "restore",
            "target": target,
            "before": json.dumps(mine[-1].before),
            "reason": f"restored from {mine[-1].action}",
            "statistics": json.dumps(mine[-1].statistics, sort_keys=True),
            "actor": actor,
            "at": now,
        }
        connection.execute(insert(care_actions), row)
        taken = care_actions.c.action_id.in_([one.action_id for one in mine])
        connection.execute(update(care_actions).where(taken).values(undone_by=action_id))


def allow_restored(
    connection: Connection, namespace: str, undone: Sequence[Action], actor: str, now: datetime
) -> None:
    """Let what comes back pass the gate, as far as that was, or would be, a reason to hide it."""
    hashes = {str(one.before["content_hash"]): one for one in undone}
    wanting = {of for of, reasons in verdicts_of(connection, namespace, hashes).items() if reasons}
    wanting |= {of for of, one in hashes.items() if one.statistics.get("gated")}
    allow_texts(connection, namespace, wanting, actor=actor, reason="restored", now=now)


def actions_of(
    connection: Connection,
    namespace: str,
    *,
    named: str | None = None,
    targets: Sequence[str] | None = None,
) -> list[Action]:
    """Return what retirements of a namespace did, oldest first.

    Args:
        connection: A transaction.
        namespace: Whose.
        named: Only the action, or the actions of the run, with this id.
        targets: Only what was done to these chunks.
    """
    done = care_actions.c
    wanted = [care_runs.c.namespace == namespace, care_runs.c.job == JOB]
    if named is not None:
        wanted.append((done.action_id == named) | (done.run_id == named))
    statement = select(care_actions).join(care_runs, care_runs.c.run_id == done.run_id)
    pages = [None] if targets is None else list(batched(sorted(set(targets))))
    rows: list[Any] = []
    for page in pages:
        among = [] if page is None else [done.target.in_(page)]
        rows += connection.execute(statement.where(*wanted, *among)).mappings()
    rows.sort(key=lambda row: (row["at"], row["action"], row["target"]))
    parsed = ("before", "statistics")
    return [Action(**dict(row) | {name: json.loads(row[name]) for name in parsed}) for row in rows]


def set_status(
    connection: Connection, namespace: str, hashes: Mapping[str, str], status: str
) -> None:
    """Say where chunks stand, by id; of those whose text is not the one given, nothing."""
    for chunk_id, content_hash in sorted(hashes.items()):
        mine = (chunks.c.namespace == namespace) & (chunks.c.chunk_id == chunk_id)
        same = chunks.c.content_hash == content_hash
        connection.execute(update(chunks).where(mine, same).values(status=status))


def _before(one: Candidate, status: str) -> dict[str, Any]:
    document = one.document
    if document is None:  # a plan takes away only what it saw
        msg = f"The chunk {one.chunk_id!r} was not seen in the index."
        raise ValueError(msg)
    return {
        "id": one.index_id,
        "text": document.page_content,
        "metadata": document.metadata,
        "content_hash": one.content_hash,
        "status": status,
    }
