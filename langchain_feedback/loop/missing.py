"""Documents that do not exist: what people ask for and find nothing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection

from langchain_feedback.loop._mending.fixed import was_answered
from langchain_feedback.loop._triage.alike import alike_questions
from langchain_feedback.loop.corrections import about_missing
from langchain_feedback.loop.owners import Owners
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.owner_items import (
    CLOSED,
    OwnerItem,
    change_item,
    move_item_from,
    open_item,
    read_items,
)
from langchain_feedback.store.questions import known_question
from langchain_feedback.store.transactions import clock, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["MissingDocument", "missing_documents"]

_KIND = "missing_document"
_MOST_SHOWN = 20


@dataclass(frozen=True)
class MissingDocument:
    """What people ask for and find nothing, with the item of whoever is to write it."""

    item_id: str
    question: str
    """The one that was first."""
    questions: tuple[str, ...]
    """The different questions, most asked first."""
    question_ids: tuple[int, ...]
    asks: int
    """How often they found nothing in the time looked at."""
    askers: int
    """How many people, or sessions, asked."""
    first_asked: datetime
    """UTC, as `last_asked`."""
    last_asked: datetime
    trace_ids: tuple[str, ...]
    """Newest first."""
    state: str
    """`open`, `acknowledged` (somebody writes it) or `fixed` (it is written)."""
    owner: str


def missing_documents(
    store: "FeedbackStore",
    *,
    days: float = 28,
    owners: Owners | None = None,
    now: datetime | None = None,
) -> list[MissingDocument]:
    """Return what nothing was found for, most asked first, and keep one owner item for each.

    A question found nothing where its search was empty, no chunk was relevant, or a
    `zero_result` says so; what was answered since counts no more, and neither does traffic of
    tests. Questions for one document are put together: see `alike_questions`. Running this again
    opens nothing twice, also as more questions join. A document that was `verified` is `open`
    again once its questions find nothing since; one that a person has withdrawn stays so.

    Args:
        store: Whose questions.
        days: How far to look back, above 0.
        owners: Who is to write what no source exists for: their default.
        now: When; None: now.

    Raises:
        ValueError: If `days` is not above 0.
        StoreError: If the database cannot be written.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> store.record_trace("t1", "May I bring my dog?", [])
        >>> store.record_trace("t2", "may I bring my dog", [])
        >>> [(missing.question, missing.asks) for missing in missing_documents(store)]
        [('May I bring my dog?', 2)]
    """
    if not days > 0:
        msg = f"days must be above 0, got {days!r}"
        raise ValueError(msg)
    with writing(store) as (connection, _):
        at = now or clock(store, connection)
        since = at - timedelta(days=days)
        asks = read_asks(connection, store.namespace, since=since, until=at)
        groups = alike_questions(connection, asks, list(_unanswered(asks)))
        run = _Run(connection, store.namespace, owners, at)
        found = [run.keep(item, group) for item, group in run.matched(groups)]
    return sorted(filter(None, found), key=lambda one: (-one.asks, one.first_asked))


def _unanswered(asks: Iterable[Ask]) -> Iterable[Ask]:
    """Return the asks that found nothing, since their question was answered last."""
    nothing: dict[int, list[Ask]] = defaultdict(list)
    for ask in asks:
        if ask.found_nothing or any(said.signal == "zero_result" for said in ask.said):
            nothing[ask.question_id].append(ask)
        elif was_answered(ask):
            nothing[ask.question_id].clear()
    return (ask for kept in nothing.values() for ask in kept)


class _Run(NamedTuple):
    connection: Connection
    namespace: str
    owners: Owners | None
    now: datetime

    def matched(
        self, groups: Sequence[Sequence[Ask]]
    ) -> Iterable[tuple[OwnerItem | None, list[Ask]]]:
        """Yield each item with all that is asked for it, then what has no item yet."""
        known = self._items()
        mine: dict[str, tuple[OwnerItem, list[Ask]]] = {}
        for group in groups:
            ids = {ask.question_id for ask in group}
            found = [item for item, about in known if about & ids]
            # The oldest: where two groups grow into one, the younger item adds nothing.
            item = min(found, key=_age, default=None)
            if item is None:
                yield None, list(group)
                continue
            mine.setdefault(item.item_id, (item, []))[1].extend(group)
            for younger in found:
                if younger is not item:
                    self._join(younger, item)
        yield from mine.values()

    def keep(self, item: OwnerItem | None, group: Sequence[Ask]) -> MissingDocument | None:
        """Open or refresh the item of some questions; None where it is closed."""
        group = sorted(group, key=lambda ask: (ask.created_at, ask.trace_id))
        facts = _facts(group)
        if item is None:
            item = self._open(group[0], facts)
        elif item.state == "withdrawn":
            return None
        elif item.state in CLOSED:
            if group[-1].created_at <= item.changed_at:
                return None
            self._reopen(item)
        self._refresh(item, facts)
        [item] = read_items(self.connection, self.namespace, item_ids=[item.item_id])
        return _missing(item, group)

    def _items(self) -> list[tuple[OwnerItem, set[int]]]:
        found = []
        for item in read_items(self.connection, self.namespace, kinds=[_KIND]):
            ids = {int(one) for one in item.snapshot.get("question_ids", ())}
            own = known_question(self.connection, self.namespace, item.question)
            found.append((item, ids | ({own} if own is not None else set())))
        return found

    def _open(self, first: Ask, facts: Mapping[str, Any]) -> OwnerItem:
        owner = self.owners.of("") if self.owners else None
        item_id, _ = open_item(
            self.connection,
            self.namespace,
            about=about_missing(self.namespace, first.question_id),
            kind=_KIND,
            now=self.now,
            text="",
            question=first.question,
            trace_id=first.trace_id,
            owner=owner.name if owner else "",
            snapshot={"question": first.question, **facts},
        )
        return read_items(self.connection, self.namespace, item_ids=[item_id])[0]

    def _refresh(self, item: OwnerItem, facts: Mapping[str, Any]) -> None:
        before = item.snapshot.get("question_ids", ())
        ids = list(dict.fromkeys([*before, *facts["question_ids"]]))
        snapshot = {**item.snapshot, **facts, "question_ids": ids}
        times = f"{facts['asks']} times" if facts["asks"] > 1 else "once"
        text = f"Nothing answers this. It was asked {times} since {facts['first_asked'][:10]}."
        # A reviewer's own words stay.
        changed = text if item.opened_by is None else None
        change_item(self.connection, self.namespace, item.item_id, snapshot=snapshot, text=changed)

    def _reopen(self, item: OwnerItem) -> None:
        note = "It was asked again since, and nothing was found."
        self._move(item, "open", note)

    def _join(self, younger: OwnerItem, item: OwnerItem) -> None:
        if younger.state == "open":
            self._move(younger, "withdrawn", f"It is the same as {item.item_id}.")

    def _move(self, item: OwnerItem, state: str, note: str) -> None:
        move_item_from(
            self.connection, self.namespace, item.item_id, state,
            among=[item.state], now=self.now, note=note,
        )  # fmt: skip


def _age(item: OwnerItem) -> tuple[bool, datetime, str, str]:
    asked = str(item.snapshot.get("first_asked", ""))
    return item.state == "withdrawn", item.opened_at, asked, item.item_id


def _facts(group: Sequence[Ask]) -> dict[str, Any]:
    """Return what an item's snapshot says of its asks, oldest first."""
    counts: dict[int, int] = defaultdict(int)
    for ask in group:
        counts[ask.question_id] += 1
    texts = {ask.question_id: ask.question for ask in group}
    ids = sorted(counts, key=lambda one: -counts[one])
    return {
        "question_ids": ids,
        "questions": [texts[one] for one in ids][:_MOST_SHOWN],
        "asks": len(group),
        "askers": len({ask.asker for ask in group}),
        "first_asked": group[0].created_at.isoformat(),
        "last_asked": group[-1].created_at.isoformat(),
        "trace_ids": [ask.trace_id for ask in reversed(group)][:_MOST_SHOWN],
    }


def _missing(item: OwnerItem, group: Sequence[Ask]) -> MissingDocument:
    facts = _facts(group)
    return MissingDocument(
        item_id=item.item_id,
        question=item.question,
        questions=tuple(facts["questions"]),
        question_ids=tuple(facts["question_ids"]),
        asks=len(group),
        askers=facts["askers"],
        first_asked=group[0].created_at,
        last_asked=group[-1].created_at,
        trace_ids=tuple(facts["trace_ids"]),
        state=item.state,
        owner=item.owner,
    )
