"""How a fold-back run writes: entries, their review items, and the record of what went."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, insert, select, update

from langchain_feedback.index._foldback.plan import Change
from langchain_feedback.store.care_schema import care_actions, care_runs
from langchain_feedback.store.derived_rows import Derived, Source, Standing, put_derived
from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.reviewing.claiming import release_item
from langchain_feedback.store.reviewing.items import Candidate, add_items, item_id_of
from langchain_feedback.store.reviewing.verdicts import add_event

__all__ = ["carry_out", "close_items"]

_KEEP_ITEMS = timedelta(days=28)


def carry_out(
    connection: Connection,
    namespace: str,
    changes: Sequence[Change],
    *,
    entries: Sequence[Derived],
    before: Mapping[str, Derived],
    standing: Mapping[Source, Standing],
    now: datetime,
    digest: str,
) -> str:
    """Write what a plan changes in one transaction; return the id of the run.

    Args:
        connection: The transaction.
        namespace: Whose.
        changes: What the plan changes.
        entries: The entries as they are from now on, in the same order.
        before: The entries as they were, by id.
        standing: How their sources are.
        now: When.
        digest: The plan's.
    """
    put_derived(connection, namespace, entries)
    over = [change for change in changes if change.kind in ("expire", "activate", "revive")]
    close_items(connection, namespace, [one.entry.derived_id for one in over], now)
    waiting = [
        _candidate(entry, change.reason, standing)
        for change, entry in zip(changes, entries, strict=True)
        if entry.status == "candidate"
    ]
    required = {item_id_of(namespace, one): 1 for one in waiting}
    until = now + _KEEP_ITEMS
    added = set(
        add_items(connection, namespace, waiting, now=now, expires_at=until, required=required)
    )
    for one in waiting:
        if item_id_of(namespace, one) not in added:
            _tell(connection, namespace, one, until)
    return _recorded(connection, namespace, changes, before=before, now=now, digest=digest)


def close_items(
    connection: Connection,
    namespace: str,
    derived_ids: Sequence[str],
    now: datetime,
    *,
    reviewer: str = "",
    verdict: str | None = None,
    effects: Mapping[str, Any] | None = None,
) -> None:
    """Close the open review items of some entries: with a verdict, or as what is over."""
    row = review_items.c
    mine = (row.namespace == namespace) & (row.kind == "foldback") & (row.state == "open")
    found = connection.execute(select(row.item_id, row.guess).where(mine)).all()
    for item_id in (one.item_id for one in found if one.guess in set(derived_ids)):
        if verdict is None:
            add_event(connection, namespace, item_id, reviewer, "expire", now)
            release_item(connection, item_id, state="expired")
            continue
        add_event(
            connection, namespace, item_id, reviewer, "decide", now,
            verdict=verdict, none_exists=False, right_chunks=[], effects=dict(effects or {}),
        )  # fmt: skip
        release_item(connection, item_id, state="decided", decided_at=now)


def _tell(connection: Connection, namespace: str, one: Candidate, until: datetime) -> None:
    """Have an item say what people say by now; one that nobody decided in time is asked again."""
    row = review_items.c
    this = (row.item_id == item_id_of(namespace, one)) & row.state.in_(("open", "expired"))
    told = {
        "priority": one.priority,
        "snapshot": json.dumps({"question": one.question} | dict(one.snapshot)),
        "state": "open",
        "expires_at": until,
    }
    connection.execute(update(review_items).where(this).values(told))


def _candidate(entry: Derived, reason: str, standing: Mapping[Source, Standing]) -> Candidate:
    votes = entry.votes
    return Candidate(
        kind="foldback",
        question=str(entry.question),
        # What has votes enough comes first, then what is liked best.
        priority=float(votes["lower"]) + bool(votes["passes"]),
        snapshot={
            "answer": entry.text,
            "status": "answered",
            "grounded": True,
            "round": int(votes.get("round", 0)),
            "why": [f"{reason[0].upper()}{reason[1:]}."],
            "chunks": [
                _chunk(source, at, standing[source]) for at, source in enumerate(entry.sources)
            ],
        },
        question_id=entry.question_id,
        trace_id=entry.trace_id,
        guess=entry.derived_id,
    )


def _chunk(source: Source, rank: int, stands: Standing) -> dict[str, Any]:
    document = stands.known[0][1] if stands.known else None
    return {
        "chunk_id": source[0],
        "content_hash": source[1],
        "text": document.page_content if document else "",
        "source": str(document.metadata.get("source") or "") if document else "",
        "rank": rank,
        "cited": True,
    }


def _recorded(
    connection: Connection,
    namespace: str,
    changes: Sequence[Change],
    *,
    before: Mapping[str, Derived],
    now: datetime,
    digest: str,
) -> str:
    run_id = uuid4().hex
    kinds = [change.kind for change in changes]
    run = {
        "run_id": run_id,
        "namespace": namespace,
        "job": "foldback",
        "dry_run": False,
        "plan_digest": digest,
        "counts": json.dumps({kind: kinds.count(kind) for kind in sorted(set(kinds))}),
        "status": "done",
        "started_at": now,
        "finished_at": now,
    }
    connection.execute(insert(care_runs), run)
    rows = [
        {
            "action_id": uuid4().hex,
            "run_id": run_id,
            "action": "expire",
            "target": change.entry.derived_id,
            "before": json.dumps(_was(before[change.entry.derived_id])),
            "reason": change.reason,
            "statistics": json.dumps(change.entry.votes, sort_keys=True),
            "at": now,
        }
        for change in changes
        if change.kind == "expire"
    ]
    if rows:
        connection.execute(insert(care_actions), rows)
    return run_id


def _was(entry: Derived) -> dict[str, Any]:
    # No names and no words: people may want to be forgotten, and this record stays.
    approved = entry.approved_at.isoformat() if entry.approved_at else None
    return {
        "status": entry.status,
        "approved_at": approved,
        "sources": entry.sources,
    }
