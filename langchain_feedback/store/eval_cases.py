"""Cases: questions whose right chunks are known, with their pools, that rankers are tried on.

A case is frozen: nothing of it changes, and it outlives its trace and its review item. It is
retired when its label is taken back, and removed when its person or its chunk is forgotten.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, exists, func, or_, select, update

from langchain_feedback.store.database import upsert
from langchain_feedback.store.eval_records import CaseChunk, CaseDraft, EvalCase, RightChunk
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.learning_schema import eval_cases
from langchain_feedback.store.schema import chunks, questions, traces

__all__ = [
    "add_cases",
    "case_id_of",
    "case_questions",
    "chunk_rows",
    "forget_case_chunks",
    "forget_cases",
    "newest_version",
    "prune_cases",
    "question_vectors",
    "read_cases",
    "retire_cases",
    "still_asked",
]


class _Label(Protocol):
    """What says where it comes from."""

    @property
    def question_id(self) -> int | None: ...
    @property
    def trace_id(self) -> str | None: ...


LabelT = TypeVar("LabelT", bound=_Label)

_STORED = ("question", "origin", "stratum", "question_id", "item_id", "trace_id")


def case_id_of(namespace: str, draft: CaseDraft) -> str:
    """Return the id of a case: the same question with the same label is the same case."""
    label = sorted([one.name, one.content_hash] for one in draft.relevant)
    said = json.dumps([namespace, draft.key, draft.origin, label])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


# -- reading


def newest_version(connection: Connection, namespace: str) -> int:
    """Return the version of the newest set; 0 before the first."""
    mine = eval_cases.c.namespace == namespace
    return int(
        connection.execute(select(func.max(eval_cases.c.version)).where(mine)).scalar() or 0
    )


def read_cases(
    connection: Connection, namespace: str, version: int | None = None
) -> list[EvalCase]:
    """Return the cases of a set that are not retired, in the order of their ids.

    A set holds those of the ones before it.

    Args:
        connection: A transaction.
        namespace: Whose.
        version: Which set; None: the newest.
    """
    wanted = [eval_cases.c.namespace == namespace, eval_cases.c.retired_at.is_(None)]
    wanted += [] if version is None else [eval_cases.c.version <= version]
    rows = connection.execute(select(eval_cases).where(*wanted).order_by(eval_cases.c.case_id))
    found = [_case(row) for row in rows.mappings()]
    now = chunk_rows(
        connection, namespace, (one.chunk_id for case in found for one in case.relevant)
    )
    return [_marked(case, now) for case in found]


def case_questions(connection: Connection, namespace: str) -> dict[str, str]:
    """Return the questions of all cases that are not forgotten, also of retired ones."""
    columns = (eval_cases.c.case_id, eval_cases.c.question)
    rows = connection.execute(select(*columns).where(eval_cases.c.namespace == namespace))
    return {row.case_id: row.question for row in rows}


def chunk_rows(
    connection: Connection, namespace: str, chunk_ids: Iterable[str]
) -> dict[str, Mapping[Any, Any]]:
    """Return what is known of some chunks now, by id."""
    found: dict[str, Mapping[Any, Any]] = {}
    for page in batched(sorted(set(chunk_ids))):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        for row in connection.execute(select(chunks).where(mine)).mappings():
            found[row["chunk_id"]] = row
    return found


def question_vectors(
    connection: Connection, namespace: str, keys: Iterable[str]
) -> dict[str, NDArray[np.float32]]:
    """Return the stored vectors of some questions, by key, of the model that made most."""
    rows: list[Any] = []
    columns = (questions.c.question_key, questions.c.vector, questions.c.embedder)
    for page in batched(sorted(set(keys))):
        mine = (questions.c.namespace == namespace) & questions.c.question_key.in_(page)
        there = select(*columns).where(mine, questions.c.vector.is_not(None))
        rows += connection.execute(there)
    models = [row.embedder for row in rows]
    model = max(sorted(set(models), key=str), key=models.count, default=None)
    return {
        row.question_key: np.frombuffer(row.vector, dtype="<f4")
        for row in rows
        if row.embedder == model
    }


def still_asked(connection: Connection, namespace: str, labels: Sequence[LabelT]) -> list[LabelT]:
    """Return those of some labels of whose question there is a trace."""
    question_ids = sorted({one.question_id for one in labels if one.question_id is not None})
    trace_ids = sorted({one.trace_id for one in labels if one.trace_id is not None})
    asked: set[int] = set()
    there: set[str] = set()
    mine = traces.c.namespace == namespace
    for page in batched(question_ids):
        found = select(traces.c.question_id).where(mine, traces.c.question_id.in_(page))
        asked |= set(connection.execute(found.distinct()).scalars())
    for part in batched(trace_ids):
        named = select(traces.c.trace_id).where(mine, traces.c.trace_id.in_(part))
        there |= set(connection.execute(named).scalars())
    return [one for one in labels if one.question_id in asked or one.trace_id in there]


# -- writing


def add_cases(
    connection: Connection,
    namespace: str,
    drafts: Iterable[CaseDraft],
    *,
    version: int,
    at: datetime,
) -> list[str]:
    """Freeze cases as part of a set; a retired one that is there again comes back."""
    rows = {}
    for draft in drafts:
        case_id = case_id_of(namespace, draft)
        rows[case_id] = {name: getattr(draft, name) for name in _STORED} | {
            "case_id": case_id,
            "namespace": namespace,
            "version": version,
            "relevant": json.dumps([asdict(one) for one in draft.relevant]),
            "pool": json.dumps([asdict(one) for one in draft.pool]),
            "frozen_at": at,
            "retired_at": None,
        }
    upsert(connection, eval_cases, [rows[one] for one in sorted(rows)], key=["case_id"])
    return sorted(rows)


def retire_cases(connection: Connection, case_ids: Collection[str], at: datetime) -> None:
    """Take cases out of all sets: their labels were taken back."""
    for page in batched(sorted(case_ids)):
        this = eval_cases.c.case_id.in_(page) & eval_cases.c.retired_at.is_(None)
        connection.execute(update(eval_cases).where(this).values(retired_at=at))


# -- forgetting


def forget_cases(
    connection: Connection,
    namespace: str,
    trace_ids: Collection[str],
    question_ids: Collection[int],
) -> None:
    """Remove the cases that somebody's questions made.

    Args:
        connection: A transaction.
        namespace: Whose.
        trace_ids: Traces of the person: what was sampled from them goes.
        question_ids: Questions that nobody else asked: all of their cases go.
    """
    mine = eval_cases.c.namespace == namespace
    for ids in batched(sorted(question_ids)):
        connection.execute(delete(eval_cases).where(mine, eval_cases.c.question_id.in_(ids)))
    for page in batched(sorted(trace_ids)):
        his = mine & eval_cases.c.trace_id.in_(page)
        sampled = eval_cases.c.origin == "sampled"
        connection.execute(delete(eval_cases).where(his, sampled))
        connection.execute(update(eval_cases).where(his).values(trace_id=None))


def forget_case_chunks(connection: Connection, namespace: str, doomed: Collection[str]) -> None:
    """Take the texts of some chunks out of pools; a case that one of them answers goes."""
    columns = (eval_cases.c.case_id, eval_cases.c.relevant, eval_cases.c.pool)
    rows = select(*columns).where(eval_cases.c.namespace == namespace)
    for row in connection.execute(rows).all():
        this = eval_cases.c.case_id == row.case_id
        if any(one["chunk_id"] in doomed for one in json.loads(row.relevant)):
            connection.execute(delete(eval_cases).where(this))
            continue
        pool = json.loads(row.pool)
        cut = [
            one | {"text": "", "heading": ""} if one["chunk_id"] in doomed else one for one in pool
        ]
        if cut != pool:
            connection.execute(update(eval_cases).where(this).values(pool=json.dumps(cut)))


def prune_cases(connection: Connection, namespace: str, before: datetime) -> int:
    """Remove cases that were retired before, and those whose traces are gone.

    Nothing would say any more whose question such a one is, and so nobody could forget it. Of
    a sampled case that is its own trace, of a reviewed one any trace of its question.
    """
    its_own = traces.c.trace_id == eval_cases.c.trace_id
    any_one = traces.c.question_id == eval_cases.c.question_id
    has_its_own = exists(select(1).where(its_own))
    has_any = has_its_own | exists(select(1).where(any_one))
    origin = eval_cases.c.origin
    old = ((origin == "sampled") & ~has_its_own) | ((origin == "reviewed") & ~has_any)
    gone = or_(eval_cases.c.retired_at < before, old)
    removed = delete(eval_cases).where(eval_cases.c.namespace == namespace, gone)
    return int(connection.execute(removed).rowcount)


def _case(row: Mapping[Any, Any]) -> EvalCase:
    names = (*_STORED, "case_id", "version", "frozen_at")
    return EvalCase(
        relevant=tuple(RightChunk(**one) for one in json.loads(row["relevant"])),
        pool=tuple(CaseChunk(**one) for one in json.loads(row["pool"])),
        **{name: row[name] for name in names},
    )


def _marked(case: EvalCase, now: Mapping[str, Mapping[Any, Any]]) -> EvalCase:
    changed = any(
        one.content_hash
        and one.chunk_id in now
        and now[one.chunk_id]["content_hash"] != one.content_hash
        for one in case.relevant
    )
    return replace(case, changed=True) if changed else case
