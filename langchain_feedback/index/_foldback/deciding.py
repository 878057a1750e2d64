"""A person's word on an entry of the fold-back: yes or no, with its review item closed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from langchain_core.documents import Document
from sqlalchemy import Connection

from langchain_feedback.errors import UnknownItemError
from langchain_feedback.index._foldback.plan import FoldBackError
from langchain_feedback.index._foldback.writing import close_items
from langchain_feedback.store.chunks import take_snapshots
from langchain_feedback.store.derived_rows import (
    approve_derived,
    read_derived,
    reject_derived,
)
from langchain_feedback.store.transactions import clock, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["decide"]


def decide(
    store: "FeedbackStore",
    derived_id: str,
    actor: str,
    *,
    serve: bool,
    seen: Sequence[Document] = (),
    id_field: str | None = None,
) -> None:
    """Let an entry serve, or keep it from serving for good.

    Args:
        store: Where it is.
        derived_id: Which.
        actor: Who says so.
        serve: Whether it may.
        seen: Sources that the index was just asked for, because the catalog had another text.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        UnknownItemError: If there is no such entry.
        FoldBackError: If it cannot be served.
        ValueError: If the actor has no name.
    """
    name = actor.strip()
    if not name:
        msg = "A reviewer needs a name."
        raise ValueError(msg)
    with writing(store) as (connection, _):
        was = _status(connection, store.namespace, derived_id)
        now = clock(store, connection)
        take_snapshots(connection, store.namespace, seen, now, id_field)
        change = approve_derived if serve else reject_derived
        before = change(connection, store.namespace, derived_id, name, now)
        if before is None and was != ("active" if serve else "rejected"):
            msg = (
                f"{derived_id} cannot be served: a source changed or is gone, its question was "
                "removed, or its answer is not grounded. Run the job, and look again."
            )
            raise FoldBackError(msg)
        close_items(
            connection, store.namespace, [derived_id], now, reviewer=name,
            verdict="confirm" if serve else "reject", effects={"foldback": before},
        )  # fmt: skip


def _status(connection: Connection, namespace: str, derived_id: str) -> str:
    known = read_derived(connection, namespace, ids=[derived_id])
    if not known:
        msg = f"No folded-back answer {derived_id!r} in namespace {namespace!r}"
        raise UnknownItemError(msg)
    return known[0].status
