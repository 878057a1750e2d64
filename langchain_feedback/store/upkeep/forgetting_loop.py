"""Forgetting a person in what the loop keeps: review items, their history, owners' items.

Snapshots outlive the traces and signals that they show, and so they are gone through here.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, select, update

from langchain_feedback.store.derived_rows import forget_derived
from langchain_feedback.store.eval_cases import forget_case_chunks, forget_cases
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.learning_schema import ranker_activations
from langchain_feedback.store.loop_schema import (
    owner_events,
    owner_items,
    review_events,
    review_items,
    source_alarms,
)
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.schema import pins, questions, signals, traces
from langchain_feedback.store.upkeep.forgetting_care import forget_written

__all__ = [
    "drop_items",
    "forget_asked",
    "forget_chunk_texts",
    "forget_lost_words",
    "forget_reviewer",
]

_OF_THE_ASKER = ("answer", "searches", "asked_at", "citations", "said")
"""What a snapshot holds of one person's conversation."""


def forget_asked(
    connection: Connection, namespace: str, trace_ids: Sequence[str], own: Collection[str]
) -> None:
    """Take some traces of a person out of what the loop keeps, before they are removed.

    An item whose question nobody else asked goes, with the pins that its verdict made; so does
    an open one, which mining finds again by other people's traces. Of one that is closed the
    label stays, without the person's answer and words. Cases to try rankers on go with their
    question, or with the trace that they were sampled from.

    Args:
        connection: A transaction that excludes other writers of votes.
        namespace: Whose.
        trace_ids: Those that are about to go.
        own: All traces of the person.
    """
    private = _private_questions(connection, namespace, trace_ids, own)
    forget_cases(connection, namespace, trace_ids, private)
    _forget_review_items(connection, namespace, trace_ids, private)
    gone = forget_derived(connection, namespace, private, trace_ids)
    forget_written(connection, namespace, gone)
    keys = _keys(connection, private)
    for row in [
        *_rows(connection, owner_items, namespace, trace_ids),
        *_nameless(connection, namespace, keys),
    ]:
        is_private = question_key(row["question"]) in keys
        if is_private and row["kind"] == "missing_document":
            # Where others ask alike, it is opened anew from their questions.
            _drop_owner_item(connection, row["item_id"])
            continue
        changed: dict[str, Any] = {"trace_id": None, "retest": None}
        changed["snapshot"] = _without(row["snapshot"], is_private=is_private)
        changed |= {"question": ""} if is_private else {}
        this = owner_items.c.item_id == row["item_id"]
        connection.execute(update(owner_items).where(this).values(changed))


def forget_reviewer(connection: Connection, namespace: str, actor: str) -> None:
    """Take the name of who reviewed, or promoted, out of the loop; what was done stays."""
    his = (review_events.c.namespace == namespace) & (review_events.c.reviewer == actor)
    connection.execute(update(review_events).where(his).values(reviewer=""))
    claimed = (review_items.c.namespace == namespace) & (review_items.c.claimed_by == actor)
    free = {"claimed_by": None, "claimed_until": None, "claim_token": None}
    connection.execute(update(review_items).where(claimed).values(free))
    acted = (ranker_activations.c.namespace == namespace) & (ranker_activations.c.actor == actor)
    connection.execute(update(ranker_activations).where(acted).values(actor=None))
    mine = owner_items.c.namespace == namespace
    opened = mine & (owner_items.c.opened_by == actor)
    connection.execute(update(owner_items).where(opened).values(opened_by=None))
    ids = select(owner_items.c.item_id).where(mine)
    moved = (owner_events.c.actor == actor) & owner_events.c.item_id.in_(ids)
    connection.execute(update(owner_events).where(moved).values(actor=None))


def forget_lost_words(connection: Connection, namespace: str) -> None:
    """Take words out of snapshots whose signals are gone: nobody can tell whose they were.

    That is also what makes it right after pruning, which removes signals and leaves items.
    """
    mine = review_items.c.namespace == namespace
    quoted = review_items.c.snapshot.contains('"event_id"', autoescape=True)
    found = select(review_items.c.item_id, review_items.c.snapshot).where(mine, quoted)
    said = {row.item_id: json.loads(row.snapshot) for row in connection.execute(found)}
    ids = {one.get("event_id") for snapshot in said.values() for one in snapshot.get("said", [])}
    there = _events_there(connection, namespace, sorted(filter(None, ids)))
    for item_id, snapshot in said.items():
        kept = [one for one in snapshot.get("said", []) if one.get("event_id") in there]
        if kept != snapshot.get("said", []):
            _write(connection, review_items, item_id, json.dumps(snapshot | {"said": kept}))
    _forget_lost_questions(connection, namespace)


def forget_chunk_texts(connection: Connection, namespace: str, doomed: Collection[str]) -> None:
    """Take the texts of some chunks out of snapshots, and what answers quoted of them.

    The ids and hashes stay, and with them the verdicts. Cases to try rankers on lose the text,
    and go where such a chunk is the right one.
    """
    forget_case_chunks(connection, namespace, doomed)
    for table in (review_items, owner_items):
        rows = select(table.c.item_id, table.c.snapshot).where(table.c.namespace == namespace)
        for row in connection.execute(rows).all():
            snapshot = json.loads(row.snapshot)
            if changed := _without_chunks(snapshot, doomed):
                _write(connection, table, row.item_id, json.dumps(changed))
    retested = (owner_items.c.namespace == namespace) & owner_items.c.retest.is_not(None)
    for row in connection.execute(select(owner_items).where(retested)).all():
        sides = json.loads(row.retest)
        cut = {
            name: (isinstance(side, dict) and _without_chunks(side, doomed)) or side
            for name, side in sides.items()
        }
        if cut != sides:
            this = update(owner_items).where(owner_items.c.item_id == row.item_id)
            connection.execute(this.values(retest=json.dumps(cut)))


def _without_chunks(snapshot: Mapping[str, Any], doomed: Collection[str]) -> dict[str, Any] | None:
    """Return a snapshot without the texts of some chunks; None where it holds none."""
    pool = snapshot.get("chunks") or []
    if not any(chunk.get("chunk_id") in doomed for chunk in pool):
        return None
    chunks = [
        chunk | {"text": "", "heading": ""} if chunk.get("chunk_id") in doomed else chunk
        for chunk in pool
    ]
    citations = [
        one for one in snapshot.get("citations") or [] if one.get("chunk_id") not in doomed
    ]
    quoted = {"citations": citations} if "citations" in snapshot else {}
    return {**snapshot, "chunks": chunks, **quoted}


def drop_items(connection: Connection, item_ids: Sequence[str]) -> int:
    """Remove review items with their history; return how many there were."""
    for page in batched(item_ids):
        connection.execute(delete(review_events).where(review_events.c.item_id.in_(page)))
        connection.execute(delete(review_items).where(review_items.c.item_id.in_(page)))
    return len(item_ids)


def _forget_review_items(
    connection: Connection, namespace: str, trace_ids: Sequence[str], private: Collection[int]
) -> None:
    gone = []
    rows = {row["item_id"]: row for row in _rows(connection, review_items, namespace, trace_ids)}
    # Whose trace an item had may have been forgotten before: then it has none any more.
    asked = review_items.c.question_id.in_(list(private))
    mine = select(review_items).where(review_items.c.namespace == namespace, asked)
    rows |= {row["item_id"]: row for row in connection.execute(mine).mappings()}
    for row in rows.values():
        if row["question_id"] in private:
            _forget_effects(connection, namespace, row["item_id"])
        if row["question_id"] in private or row["state"] == "open":
            gone.append(row["item_id"])
            continue
        this = review_items.c.item_id == row["item_id"]
        changed = {"trace_id": None, "snapshot": _without(row["snapshot"], is_private=False)}
        connection.execute(update(review_items).where(this).values(changed))
    drop_items(connection, gone)


def _forget_effects(connection: Connection, namespace: str, item_id: str) -> None:
    """Remove the pins that keep a question's text, and what alarms say of it."""
    found = select(review_events.c.effects).where(review_events.c.item_id == item_id)
    for effects in connection.execute(found.where(review_events.c.effects.is_not(None))).scalars():
        done = json.loads(effects)
        made = pins.c.pin_id.in_(done.get("pins", [])) & (pins.c.namespace == namespace)
        connection.execute(delete(pins).where(made))
        raised = source_alarms.c.alarm_id.in_(done.get("alarms", []))
        mine = raised & (source_alarms.c.namespace == namespace)
        connection.execute(update(source_alarms).where(mine).values(evidence="{}"))


def _forget_lost_questions(connection: Connection, namespace: str) -> None:
    """Take questions that are gone out of the lists of those that a missing document has."""
    mine = owner_items.c.namespace == namespace
    lists = mine & (owner_items.c.kind == "missing_document")
    found = select(owner_items.c.item_id, owner_items.c.snapshot).where(lists)
    for row in connection.execute(found).all():
        snapshot = json.loads(row.snapshot)
        texts = [str(text) for text in snapshot.get("questions") or ()]
        keys = [question_key(text) for text in texts]
        known = _known(connection, namespace, keys)
        kept = [text for text, key in zip(texts, keys, strict=True) if key in known]
        if kept != texts:
            _write(
                connection, owner_items, row.item_id, json.dumps(snapshot | {"questions": kept})
            )


def _private_questions(
    connection: Connection, namespace: str, trace_ids: Sequence[str], own: Collection[str]
) -> set[int]:
    """Return the questions of some traces that nobody else asked."""
    asked = select(traces.c.question_id).where(traces.c.trace_id.in_(trace_ids)).distinct()
    ids = set(connection.execute(asked).scalars())
    mine = (traces.c.namespace == namespace) & traces.c.question_id.in_(ids)
    rows = connection.execute(select(traces.c.question_id, traces.c.trace_id).where(mine))
    return ids - {row.question_id for row in rows if row.trace_id not in own}


def _keys(connection: Connection, question_ids: Collection[int]) -> set[str]:
    named = questions.c.question_id.in_(list(question_ids))
    return set(connection.execute(select(questions.c.question_key).where(named)).scalars())


def _known(connection: Connection, namespace: str, keys: Sequence[str]) -> set[str]:
    mine = (questions.c.namespace == namespace) & questions.c.question_key.in_(keys)
    return set(connection.execute(select(questions.c.question_key).where(mine)).scalars())


def _events_there(connection: Connection, namespace: str, ids: Sequence[str]) -> set[str]:
    there: set[str] = set()
    for page in batched(ids):
        named = (signals.c.namespace == namespace) & signals.c.event_id.in_(page)
        there |= set(connection.execute(select(signals.c.event_id).where(named)).scalars())
    return there


def _rows(
    connection: Connection, table: Table, namespace: str, trace_ids: Sequence[str]
) -> Iterable[Mapping[Any, Any]]:
    mine: ColumnElement[bool] = table.c.namespace == namespace
    named = mine & table.c.trace_id.in_(trace_ids)
    return connection.execute(select(table).where(named)).mappings().all()


def _nameless(
    connection: Connection, namespace: str, keys: Collection[str]
) -> list[Mapping[Any, Any]]:
    """Return the owners' items of some questions that have no trace, or no longer."""
    mine = (owner_items.c.namespace == namespace) & owner_items.c.trace_id.is_(None)
    found = select(owner_items).where(mine, owner_items.c.question != "")
    rows = connection.execute(found).mappings() if keys else ()
    return [row for row in rows if question_key(row["question"]) in keys]


def _without(snapshot: str, *, is_private: bool) -> str:
    """Return a snapshot without what it holds of the person who asked."""
    kept = {key: one for key, one in json.loads(snapshot).items() if key not in _OF_THE_ASKER}
    return json.dumps({"chunks": kept.get("chunks", [])} if is_private else kept)


def _write(connection: Connection, table: Table, item_id: str, snapshot: str) -> None:
    this = update(table).where(table.c.item_id == item_id)
    connection.execute(this.values(snapshot=snapshot))


def _drop_owner_item(connection: Connection, item_id: str) -> None:
    connection.execute(delete(owner_events).where(owner_events.c.item_id == item_id))
    connection.execute(delete(owner_items).where(owner_items.c.item_id == item_id))
