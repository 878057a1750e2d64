"""Asking again: whether what was corrected or written shows in the answers."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from langchain_feedback.judges.base import DocumentGrader
from langchain_feedback.loop._deriving.asking_again import App, Reply, ask_again
from langchain_feedback.loop._mending.fixed import why_fixed
from langchain_feedback.loop._mending.verifying import objections, shows_change
from langchain_feedback.store.alarms import close_alarm, read_alarms
from langchain_feedback.store.owner_items import (
    CLOSED,
    OWNER_STATES,
    OwnerItem,
    change_item,
    move_item_from,
    read_items,
)
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.tracing import read_trace
from langchain_feedback.store.transactions import clock, reading, writing
from langchain_feedback.traces import storable

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Retested", "retest"]

logger = logging.getLogger(__name__)

_WAITING = tuple(state for state in OWNER_STATES if state not in CLOSED)
_MOST_QUESTIONS = 5
_MOST_CHUNKS = 20


@dataclass(frozen=True)
class Retested:
    """What asking again showed of one item."""

    item_id: str
    kind: str
    question: str
    state_before: str
    state: str
    why: tuple[str, ...]
    """What speaks against calling it verified, in sentences; empty where it is."""
    before: Mapping[str, Any]
    """`answer`, `status`, `reason`, `grounded` and `chunks` (`chunk_id`, `content_hash`, `text`,
    `source`, `in_prompt`, `cited`) as they were; empty where nobody kept them."""
    after: Mapping[str, Any]
    """The same as they are now, with `question` and `trace_id`; empty where the app failed."""

    @property
    def verified(self) -> bool:
        """Whether it is answered as it should be."""
        return not self.why


def retest(
    store: "FeedbackStore",
    app: App,
    *,
    item_ids: Sequence[str] | None = None,
    grader: DocumentGrader | None = None,
    id_field: str | None = None,
    now: datetime | None = None,
) -> list[Retested]:
    """Ask the questions of items again, keep how they are answered, and verify what is right.

    The app is a graph, a retriever (any Runnable), or a function of the question. A graph's or
    function's reply is a mapping with `answer`, `status`, `grounded`, `citations`, `documents`
    and `grades`, as `create_reliable_rag` returns it. Runnables are called as traffic of tests:
    it counts for no failure and moves nothing. A function that records traces marks them itself.

    An item is `verified`:

    - *correction, outdated document*, by answers: it is answered and grounded, the wrong text is
      nothing that the answer rests on, there is a sign that the document was changed (it is
      `fixed`, or seen to be), and of the figures that the correction adds the answer has one.
    - by a retriever: the changed text (same chunk or same source, and not there before) is
      found, the wrong one is not, and of those figures the changed text has one.
    - *missing document*, by answers: each of its questions (at most 5) is answered and grounded.
      By a retriever only with a grader that finds a chunk relevant: something is always found.
      Where a reviewer opened it, the answer or chunk must be a text that was not there before.

    What is not verified keeps its state, but for one that was verified: it is open again.

    Args:
        store: Whose items.
        app: What is asked.
        item_ids: Which items; None: all that are neither verified nor withdrawn.
        grader: Judges what a retriever finds for missing documents.
        id_field: The metadata field that holds a chunk's id, if any.
        now: When; None: now.

    Returns:
        One result for each item, oldest first. An app that fails verifies nothing: the error is
        logged and stands in `why`.

    Raises:
        StoreError: If the database cannot be read or written.
    """
    with reading(store) as connection:
        states = _WAITING if item_ids is None else (*_WAITING, "verified")
        items = read_items(connection, store.namespace, item_ids=item_ids, states=states)
        befores = {item.item_id: _before(connection, store.namespace, item) for item in items}
    run = _Run(store, app, grader, id_field, now)
    items.sort(key=lambda item: (item.opened_at, item.item_id))
    return [run.test(item, befores[item.item_id]) for item in items]


@dataclass(frozen=True)
class _Run:
    store: "FeedbackStore"
    app: App
    grader: DocumentGrader | None
    id_field: str | None
    now: datetime | None

    def test(self, item: OwnerItem, before: Mapping[str, Any]) -> Retested:
        replies: list[Reply] = []
        try:
            asked = _questions(item)
            replies += (ask_again(self.app, one, id_field=self.id_field) for one in asked)
            why = self._why(item, replies, before)
        except Exception as error:  # the other items are asked all the same
            logger.exception("The retest of item %s failed", item.item_id)
            why = [storable(f"The app failed: {type(error).__name__}: {error}")]
        after = _after(replies)
        state = self._keep(item, before, after, why)
        return Retested(
            item_id=item.item_id,
            kind=item.kind,
            question=item.question,
            state_before=item.state,
            state=state,
            why=tuple(why),
            before=before,
            after=after,
        )

    def _why(
        self, item: OwnerItem, replies: Sequence[Reply], before: Mapping[str, Any]
    ) -> list[str]:
        changed = item.state in ("fixed", "verified") or shows_change(item, replies[0])
        if not changed:
            with reading(self.store) as connection:
                changed = why_fixed(connection, self.store.namespace, item) is not None
        return objections(
            item, replies, before=before.get("answer"), changed=changed, grader=self.grader
        )

    def _keep(
        self,
        item: OwnerItem,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        why: Sequence[str],
    ) -> str:
        """Keep what was found out, and return the state that the item has now."""
        namespace = self.store.namespace
        with writing(self.store) as (connection, _):
            at = self.now or clock(self.store, connection)
            kept = {
                "at": at.isoformat(), "verified": not why, "why": list(why),
                "before": before, "after": after,
            }  # fmt: skip
            change_item(connection, namespace, item.item_id, retest=kept)
            wanted = "verified" if not why else "open" if item.state == "verified" else item.state
            among = _WAITING if wanted == "verified" else ("verified",)
            note = "Asked again, it is answered." if not why else " ".join(why)
            moved = wanted != item.state and move_item_from(
                connection, namespace, item.item_id, wanted, among=among, now=at, note=note
            )
            if moved and wanted == "verified":
                self._calm(connection, item, at)
            [left] = read_items(connection, namespace, item_ids=[item.item_id])
        return left.state

    def _calm(self, connection: Connection, item: OwnerItem, now: datetime) -> None:
        """Close the alarms that a reviewer raised over a source of which no item is left."""
        namespace = self.store.namespace
        if item.source and not read_items(
            connection, namespace, source=item.source, states=_WAITING, limit=1
        ):
            for alarm in read_alarms(connection, namespace):
                # Complaints and what is gone are measured: those alarms end by themselves.
                if alarm.source == item.source and alarm.kind in ("changed", "reviewer"):
                    close_alarm(connection, namespace, alarm.alarm_id, now)


def _questions(item: OwnerItem) -> list[str]:
    others = item.snapshot.get("questions") or [] if item.kind == "missing_document" else []
    asked = [item.question, *map(str, others)]
    return [one for one in dict.fromkeys(asked) if one.strip()][:_MOST_QUESTIONS]


def _after(replies: Sequence[Reply]) -> dict[str, Any]:
    if not replies:
        return {}
    # A grounded answer of an app may hold anything.
    named: dict[str, Any] = _storable(replies[0].as_dict())
    named["chunks"] = named["chunks"][:_MOST_CHUNKS]
    if others := replies[1:]:
        told = ("question", "answer", "status", "reason", "grounded")
        named["others"] = [
            _storable({name: getattr(one, name) for name in told}) for one in others
        ]
    return named


def _before(connection: Connection, namespace: str, item: OwnerItem) -> dict[str, Any]:
    """Return how it was answered when it was wrong, as far as that was kept."""
    if item.retest and item.retest.get("before"):
        return dict(item.retest["before"])
    trace = read_trace(connection, namespace, item.trace_id) if item.trace_id else None
    facts = ("answer", "status", "reason", "grounded")
    if trace is not None:
        before: dict[str, Any] = {name: getattr(trace, name) for name in facts}
    else:
        before = {name: item.snapshot[name] for name in facts if name in item.snapshot}
    shown = item.snapshot.get("chunks")
    if not shown and trace is not None:
        shown = [_traced(connection, namespace, chunk) for chunk in trace.chunks]
    told = ("chunk_id", "content_hash", "text", "source", "in_prompt", "cited")
    if before or shown:
        kept = [{name: one.get(name) for name in told} for one in shown or ()]
        before["chunks"] = kept[:_MOST_CHUNKS]
    return before


def _traced(connection: Connection, namespace: str, chunk: Any) -> dict[str, Any]:
    mine = (chunks.c.namespace == namespace) & (chunks.c.chunk_id == chunk.chunk_id)
    row = connection.execute(select(chunks).where(mine)).one_or_none()
    names = ("chunk_id", "content_hash", "in_prompt", "cited")
    facts = {name: getattr(chunk, name) for name in names}
    if row is None:
        return facts
    # Another text is not what was answered from.
    text = row.text if row.content_hash == chunk.content_hash else None
    return facts | {"text": text, "source": row.source}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {key: _storable(one) for key, one in value.items()}
    return [_storable(one) for one in value] if isinstance(value, list) else value
