"""Questions: which are the same, where their vectors stand, and who is told of new ones."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, or_, select, update

from langchain_feedback.store.database import insert_or_ignore, upsert
from langchain_feedback.store.memory.question_memory import MemoryChanges
from langchain_feedback.store.schema import questions, settings
from langchain_feedback.traces import storable

__all__ = [
    "Question",
    "forget_memory",
    "known_embedders",
    "known_question",
    "memory_changes",
    "question_id_of",
    "question_key",
    "read_setting",
    "remember",
    "unembedded_questions",
    "unit_vector",
    "write_setting",
]


# Statements of the hot path, made once: that takes longer than running them.
_SETTING = select(settings.c.value).where(settings.c.name == bindparam("wanted"))
_QUESTION = select(questions.c.question_id, questions.c.embedder, questions.c.memory_seq).where(
    questions.c.namespace == bindparam("of"), questions.c.question_key == bindparam("wanted")
)


@dataclass(frozen=True)
class Question:
    """A question on its way into the store, with its vector where there is one."""

    text: str
    vector: NDArray[np.float32] | None = None
    embedder: str | None = None


def question_key(text: str) -> str:
    r"""Return what identical questions share: a digest of the normalised text.

    The text in NFC and case-folded, white space collapsed, without outer spaces and
    closing `?`, `!` and `.`; nothing else, since any word may change a question.

    Example:
        >>> question_key("How long does a refund take?") == question_key(" how LONG does a\n"
        ...     "refund take ??")
        True
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    bare = re.sub(r"\s+", " ", folded).strip().rstrip("?!. ")
    return hashlib.sha256(bare.encode("utf-8", "surrogatepass")).hexdigest()


def unit_vector(vector: Sequence[float] | NDArray[np.floating]) -> NDArray[np.float32]:
    """Return a vector at length one, as float32; zeros stay zeros.

    Raises:
        ValueError: If it is not one row of finite numbers.
    """
    row = np.asarray(vector, dtype=np.float64)
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        msg = f"An embedding is one row of finite numbers, got shape {row.shape}"
        raise ValueError(msg)
    length = float(np.linalg.norm(row))
    return (row / length if length else row).astype(np.float32)


def known_question(connection: Connection, namespace: str, text: str) -> int | None:
    """Return the id of the identical question, or None."""
    found = _find(connection, namespace, question_key(storable(text)))
    return None if found is None else int(found.question_id)


def question_id_of(connection: Connection, namespace: str, question: Question) -> int:
    """Return the id of a question, which is stored where it is new or lacks its vector."""
    key = question_key(question.text)
    row = {
        "namespace": namespace,
        "question_key": key,
        "text": question.text,
        "vector": None if question.vector is None else question.vector.astype("<f4").tobytes(),
        "embedder": question.embedder,
    }
    found = _find(connection, namespace, key)
    if found is None:
        insert_or_ignore(connection, questions, [row])
        found = _find(connection, namespace, key)
    if row["vector"] is not None and found.embedder != question.embedder:
        changed = {"vector": row["vector"], "embedder": question.embedder}
        mine = questions.c.question_id == found.question_id
        connection.execute(update(questions).where(mine).values(changed))
        if found.memory_seq is not None:
            remember(connection, namespace, [found.question_id], again=True)
    return int(found.question_id)


def remember(
    connection: Connection, namespace: str, question_ids: Iterable[int], *, again: bool = False
) -> None:
    """Let similar questions find these from now on: somebody voted on them."""
    among = questions.c.question_id.in_(list(question_ids))
    wanted = among if again else among & questions.c.memory_seq.is_(None)
    new = connection.execute(select(questions.c.question_id).where(wanted)).scalars()
    if ids := sorted(new):
        epoch, seq = _memory_state(connection, namespace, change=True)
        marked = update(questions).where(questions.c.question_id == bindparam("known"))
        connection.execute(
            marked.values(memory_seq=bindparam("seq")),
            [{"known": known, "seq": at} for at, known in enumerate(ids, start=seq + 1)],
        )
        _set_memory_state(connection, namespace, epoch, seq + len(ids))


def forget_memory(connection: Connection, namespace: str) -> None:
    """Make every process read the questions anew: some are gone."""
    epoch, seq = _memory_state(connection, namespace, change=True)
    _set_memory_state(connection, namespace, epoch + 1, seq)


def memory_changes(
    connection: Connection, namespace: str, embedder: str, after_seq: int
) -> MemoryChanges:
    """Return the questions that a memory lacks: those that got feedback after `after_seq`."""
    epoch, seq = _memory_state(connection, namespace)
    rows: list[Any] = []
    if seq != after_seq:
        found = connection.execute(
            select(questions.c.question_id, questions.c.vector)
            .where(questions.c.namespace == namespace, questions.c.memory_seq > after_seq)
            .where(questions.c.embedder == embedder)
            .order_by(questions.c.memory_seq)
        )
        rows = list(found)
    vectors = np.frombuffer(b"".join(row.vector for row in rows), dtype="<f4")
    return MemoryChanges(
        epoch=epoch,
        seq=seq,
        question_ids=np.array([row.question_id for row in rows], dtype=np.int64),
        vectors=vectors.reshape(len(rows), -1) if rows else np.zeros((0, 0), np.float32),
    )


def known_embedders(connection: Connection, namespace: str) -> list[str]:
    """Return whose vectors there are of questions with feedback."""
    there = (questions.c.namespace == namespace) & questions.c.memory_seq.is_not(None)
    rows = connection.execute(select(questions.c.embedder).where(there).distinct()).scalars()
    return sorted(filter(None, rows))


def unembedded_questions(
    connection: Connection, namespace: str, embedder: str
) -> list[tuple[int, str]]:
    """Return the questions with feedback that this embedder has not read yet."""
    other = or_(questions.c.embedder.is_(None), questions.c.embedder != embedder)
    rows = connection.execute(
        select(questions.c.question_id, questions.c.text)
        .where(questions.c.namespace == namespace, questions.c.memory_seq.is_not(None), other)
        .order_by(questions.c.question_id)
    )
    return [(row.question_id, row.text) for row in rows]


def read_setting(connection: Connection, name: str) -> str | None:
    """Return a setting, or None."""
    return connection.execute(_SETTING, {"wanted": name}).scalar()


def write_setting(connection: Connection, name: str, value: str) -> None:
    """Keep a setting."""
    upsert(connection, settings, [{"name": name, "value": value}], key=["name"])


def _find(connection: Connection, namespace: str, key: str) -> Any:
    return connection.execute(_QUESTION, {"of": namespace, "wanted": key}).one_or_none()


def _memory_state(
    connection: Connection, namespace: str, *, change: bool = False
) -> tuple[int, int]:
    name = f"memory:{namespace}"
    if change:
        # Two writers of traces may be here at once: one number must not be given twice.
        insert_or_ignore(connection, settings, [{"name": name, "value": "0:0"}])
        locked = select(settings.c.value).where(settings.c.name == name).with_for_update()
        kept = connection.execute(locked).scalar()
    else:
        kept = read_setting(connection, name)
    epoch, _, seq = (kept or "0:0").partition(":")
    return int(epoch), int(seq)


def _set_memory_state(connection: Connection, namespace: str, epoch: int, seq: int) -> None:
    write_setting(connection, f"memory:{namespace}", f"{epoch}:{seq}")
