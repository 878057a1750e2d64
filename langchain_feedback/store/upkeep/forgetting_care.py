"""Forgetting people and chunks in what index care keeps: its record, its ledger, its scores.

The record of what was done to an index outlives both, so it loses names and texts and stays.
"""

import json
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Select, delete, exists, select, update

from langchain_feedback.store.care_schema import (
    care_actions,
    care_runs,
    chunk_quality,
    derived,
    derived_sources,
    index_entries,
    quality_overrides,
)
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.loop_schema import review_events
from langchain_feedback.store.schema import chunks, questions

__all__ = ["forget_kept_texts", "forget_waiting", "forget_who_acted", "forget_written"]

_FORGOTTEN = {"text": "", "metadata": {}, "content_hash": "", "forgotten": True}
"""What takes the place of a text in the record: nothing can be restored from it."""

_NO_HASHES = {"content_hash": "", "metadata_hash": ""}


def forget_who_acted(connection: Connection, namespace: str, actor: str) -> None:
    """Take the name of who changed an index, or let texts and answers pass, out of the record."""
    acted = care_actions.c.run_id.in_(_runs(namespace)) & (care_actions.c.actor == actor)
    connection.execute(update(care_actions).where(acted).values(actor=None))
    _forget_in_journal(connection, namespace, actor)
    allowed = quality_overrides.c.namespace == namespace
    allowed &= quality_overrides.c.actor == actor
    # The text stays allowed; why is in the person's own words.
    connection.execute(update(quality_overrides).where(allowed).values(actor=None, reason=""))
    approved = (derived.c.namespace == namespace) & (derived.c.approved_by == actor)
    connection.execute(update(derived).where(approved).values(approved_by=""))
    _forget_in_verdicts(connection, namespace, actor)


def forget_kept_texts(
    connection: Connection, namespace: str, ids: Collection[str], hashes: Collection[str]
) -> None:
    """Take some chunks out of the record, the ledger and the scores, once their rows are gone.

    The ids stay: the record says what was done, and the ledger what an index may still hold,
    so that a writer can take it out. What is known by its text alone goes where no other chunk
    has that text. Answers that rest on such a chunk are kept no longer for serving.

    Args:
        connection: A transaction that excludes other writers.
        namespace: Whose.
        ids: The chunks.
        hashes: Of the texts that they had, as far as their rows told.
    """
    of_run, lost = care_actions.c.run_id.in_(_runs(namespace)), set(hashes)
    for page in batched(sorted(ids)):
        told = of_run & care_actions.c.target.in_(page)
        rows = select(care_actions.c.action_id, care_actions.c.before).where(told)
        for row in connection.execute(rows).all():
            before = json.loads(row.before)
            if "text" in before:
                lost.add(before["content_hash"])
                this = update(care_actions).where(care_actions.c.action_id == row.action_id)
                connection.execute(this.values(before=json.dumps(before | _FORGOTTEN)))
        resting = select(derived_sources.c.derived_id).where(derived_sources.c.chunk_id.in_(page))
        mine = (derived.c.namespace == namespace) & derived.c.derived_id.in_(resting)
        connection.execute(update(derived).where(mine).values(text=""))
    written = _written(connection, namespace, ids)
    forget_written(connection, namespace, ids)
    _forget_hashes(connection, namespace, lost - {""})
    _forget_allowed(connection, namespace, (lost | written) - {""})


def forget_written(connection: Connection, namespace: str, ids: Collection[str]) -> None:
    """Leave no hash of some documents in the ledgers, only that an index may hold them."""
    for page in batched(sorted(ids)):
        named = (index_entries.c.namespace == namespace) & index_entries.c.chunk_id.in_(page)
        connection.execute(update(index_entries).where(named).values(_NO_HASHES))


def forget_waiting(connection: Connection, namespace: str) -> None:
    """Drop the answers of entries that do not serve and whose questions retention removed."""
    asked = exists(select(1).where(questions.c.question_id == derived.c.question_id))
    mine = (derived.c.namespace == namespace) & (derived.c.status != "active")
    orphaned = mine & (derived.c.text != "") & ~asked
    connection.execute(update(derived).where(orphaned).values(text="", trace_id=None))


def _forget_in_journal(connection: Connection, namespace: str, actor: str) -> None:
    """Take a name out of the journals of who switched versions, and who allowed texts, when."""
    named = (care_runs.c.namespace == namespace) & care_runs.c.counts.contains('"actor"')
    rows = select(care_runs.c.run_id, care_runs.c.counts).where(named)
    for row in connection.execute(rows).all():
        told = json.loads(row.counts)
        if told.get("actor") == actor:
            this = update(care_runs).where(care_runs.c.run_id == row.run_id)
            connection.execute(this.values(counts=json.dumps(told | {"actor": None})))


def _forget_in_verdicts(connection: Connection, namespace: str, actor: str) -> None:
    """Take a name out of what verdicts keep of an entry, to put it back to how it was."""
    event = review_events.c
    named = (event.namespace == namespace) & event.effects.contains('"approved_by"')
    for row in connection.execute(select(event.seq, event.effects).where(named)).all():
        done = json.loads(row.effects)
        before = done.get("foldback") or {}
        if before.get("approved_by") == actor:
            told = json.dumps(done | {"foldback": before | {"approved_by": ""}})
            this = update(review_events).where(event.seq == row.seq)
            connection.execute(this.values(effects=told))


def _forget_hashes(connection: Connection, namespace: str, hashes: Collection[str]) -> None:
    entry, score = index_entries.c, chunk_quality.c
    for page in batched(sorted(hashes)):
        in_chunks = select(chunks.c.content_hash).where(chunks.c.content_hash.in_(page)).distinct()
        here = in_chunks.where(chunks.c.namespace == namespace)
        lost = set(page) - set(connection.scalars(here))
        made_up = (entry.namespace == namespace) & entry.content_hash.in_(sorted(lost))
        connection.execute(update(index_entries).where(made_up).values(_NO_HASHES))
        # Scores have no namespace: whoever has the same text goes by them.
        written = select(entry.content_hash).where(entry.content_hash.in_(page)).distinct()
        lost -= {*connection.scalars(in_chunks), *connection.scalars(written)}
        connection.execute(delete(chunk_quality).where(score.content_hash.in_(sorted(lost))))


def _forget_allowed(connection: Connection, namespace: str, hashes: Collection[str]) -> None:
    """Forget that texts are allowed which no chunk of the catalog or a ledger has any more."""
    for page in batched(sorted(hashes)):
        left = set(page)
        for table in (chunks, index_entries):
            same = (table.c.namespace == namespace) & table.c.content_hash.in_(page)
            left -= set(connection.scalars(select(table.c.content_hash).where(same).distinct()))
        gone = (quality_overrides.c.namespace == namespace) & (
            quality_overrides.c.content_hash.in_(sorted(left))
        )
        connection.execute(delete(quality_overrides).where(gone))


def _written(connection: Connection, namespace: str, ids: Collection[str]) -> set[str]:
    found: set[str] = set()
    for page in batched(sorted(ids)):
        named = (index_entries.c.namespace == namespace) & index_entries.c.chunk_id.in_(page)
        found |= set(connection.scalars(select(index_entries.c.content_hash).where(named)))
    return found


def _runs(namespace: str) -> Select[Any]:
    return select(care_runs.c.run_id).where(care_runs.c.namespace == namespace)
