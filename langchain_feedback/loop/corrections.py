"""What the owners of documents are asked to correct or to write, from `open` to `verified`.

A correction is what somebody says would be right. It goes to the document's owner and is
shown to reviewers; no index, no prompt and no evidence ever holds it. The answer gets better
once the document says so.
"""

from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from langchain_core.documents import Document
from sqlalchemy import Connection

from langchain_feedback.errors import LangChainFeedbackError, UnknownItemError
from langchain_feedback.loop._mending.fixed import why_fixed
from langchain_feedback.loop._mending.opening import (
    about_correction,
    about_missing,
    open_correction,
)
from langchain_feedback.loop.owners import Owners
from langchain_feedback.store.owner_items import (
    OWNER_STATES,
    OwnerEvent,
    OwnerItem,
    count_items,
    move_item_from,
    read_events,
    read_items,
)
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import clock, reading, writing
from langchain_feedback.store.voting import target_of
from langchain_feedback.traces import storable

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "NEXT_STATES",
    "Corrections",
    "ItemStateError",
    "OwnerEvent",
    "OwnerItem",
    "about_correction",
    "about_missing",
]

NEXT_STATES = MappingProxyType(
    {
        "open": ("acknowledged", "fixed", "withdrawn"),
        "acknowledged": ("open", "fixed", "withdrawn"),
        "fixed": ("open", "acknowledged", "verified", "withdrawn"),
        "verified": ("open",),
        "withdrawn": ("open",),
    }
)
"""Which states a person may give an item, by its state. Only a retest verifies what nobody has
fixed."""


class ItemStateError(LangChainFeedbackError, ValueError):
    """An item cannot get this state from the one that it has; the message says which it can."""


class Corrections:
    """The items of a store, in one namespace; every method has a twin with an `a` before its name.

    Args:
        store: Where they are.
        owners: Who is asked; None: nobody is named yet.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback import FeedbackStore
        >>> store = FeedbackStore("sqlite://")
        >>> refund = Document("Within 14 days.", id="refund", metadata={"source": "faq.md"})
        >>> store.record_trace("t1", "How long?", [refund], answer="14 days.")
        >>> corrections = Corrections(store)
        >>> item = corrections.correct("t1", "It is 30 days.", chunk=refund, actor="ann")
        >>> item.source, corrections.move(item.item_id, "acknowledged").state
        ('faq.md', 'acknowledged')
        >>> store.record_trace("t2", "And how?", [refund.model_copy(
        ...     update={"page_content": "Within 30 days."})])
        >>> [fixed.item_id == item.item_id for fixed in corrections.check_fixed()]
        [True]
        >>> [event.state for event in corrections.history(item.item_id)]
        ['open', 'acknowledged', 'fixed']
    """

    def __init__(self, store: "FeedbackStore", owners: Owners | None = None) -> None:
        self.store, self.owners = store, owners

    def correct(
        self,
        trace_id: str,
        text: str,
        *,
        chunk: Document | str | None = None,
        actor: str | None = None,
        now: datetime | None = None,
    ) -> OwnerItem:
        """Hand a correction to the owner of the document; the same one twice is one item.

        Args:
            trace_id: The answer that was wrong.
            text: What would be right.
            chunk: The retrieved chunk that says it wrongly, or its id; None: the one that the
                answer cites, if it cites one only, and else no document is named.
            actor: Which reviewer says so. Never take this from a client.
            now: When; None: now.

        Raises:
            ValueError: If there is no text.
            UnknownTraceError: If there is no such trace.
            UnknownChunkError: If the trace did not retrieve the chunk.
        """
        with writing(self.store) as (connection, _):
            item_id = open_correction(
                connection, self.store.namespace, trace_id, text, self.owners,
                chunk=None if chunk is None else target_of(chunk),
                actor=actor, now=now or clock(self.store, connection),
            )  # fmt: skip
        return self.item(item_id)

    def items(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        owner: str | None = None,
        limit: int = 200,
    ) -> list[OwnerItem]:
        """Return items, newest first; each argument that is given narrows them down."""
        with reading(self.store) as connection:
            return read_items(
                connection,
                self.store.namespace,
                states=None if state is None else [state],
                kinds=None if kind is None else [kind],
                owner=owner,
                limit=limit,
            )

    def counts(self) -> dict[str, int]:
        """Return how many items each state has."""
        with reading(self.store) as connection:
            found = count_items(connection, self.store.namespace)
        return {state: found.get(state, 0) for state in OWNER_STATES}

    def item(self, item_id: str) -> OwnerItem:
        """Return an item.

        Raises:
            UnknownItemError: If there is none of this id.
        """
        with reading(self.store) as connection:
            return _known(connection, self.store.namespace, item_id)

    def history(self, item_id: str) -> list[OwnerEvent]:
        """Return the states that an item got, oldest first.

        Raises:
            UnknownItemError: If there is none of this id.
        """
        with reading(self.store) as connection:
            _known(connection, self.store.namespace, item_id)
            return read_events(connection, self.store.namespace, item_id)

    def move(
        self,
        item_id: str,
        state: str,
        *,
        actor: str | None = None,
        note: str | None = None,
        now: datetime | None = None,
    ) -> OwnerItem:
        """Give an item another state, and keep who did it; the state that it has changes nothing.

        An `open` item is `acknowledged`, `fixed`, then `verified`; all but a verified one may
        be `withdrawn`, and each may be `open` again. See `retest` for who verifies else.

        Raises:
            ValueError: If there is no such state.
            ItemStateError: If it cannot get this state now.
            UnknownItemError: If there is none of this id.
        """
        if state not in OWNER_STATES:
            msg = f"There is no state {state!r}. There are: {', '.join(OWNER_STATES)}."
            raise ValueError(msg)
        with writing(self.store) as (connection, _):
            item = _known(connection, self.store.namespace, item_id)
            if item.state != state:
                moved = state in NEXT_STATES[item.state] and move_item_from(
                    connection, self.store.namespace, item_id, state,
                    among=[item.state], now=now or clock(self.store, connection),
                    actor=None if actor is None else storable(actor),
                    note=None if note is None else storable(note),
                )  # fmt: skip
                if not moved:
                    raise ItemStateError(_refused(item, state))
            return _known(connection, self.store.namespace, item_id)

    def check_fixed(self, *, now: datetime | None = None) -> list[OwnerItem]:
        """Find out which documents were changed or written since; return what is `fixed` now.

        It reads what the store has seen. The wrong chunk has another text, or one like it came
        up in its place, or its question is searched for again and no longer finds it; for a
        missing document: its question was answered since. Twice in a row changes nothing.
        """
        namespace, waiting = self.store.namespace, ("open", "acknowledged")
        fixed = []
        with writing(self.store) as (connection, _):
            at = now or clock(self.store, connection)
            for item in read_items(connection, namespace, states=waiting):
                why = why_fixed(connection, namespace, item)
                if why and move_item_from(
                    connection, namespace, item.item_id, "fixed",
                    among=waiting, now=at, note=why,
                ):  # fmt: skip
                    fixed.append(_known(connection, namespace, item.item_id))
        return fixed

    acorrect = twin(correct)
    aitems = twin(items)
    acounts = twin(counts)
    aitem = twin(item)
    ahistory = twin(history)
    amove = twin(move)
    acheck_fixed = twin(check_fixed)


def _known(connection: Connection, namespace: str, item_id: str) -> OwnerItem:
    found = read_items(connection, namespace, item_ids=[item_id])
    if not found:
        msg = f"No item {item_id!r} in namespace {namespace!r}"
        raise UnknownItemError(msg)
    return found[0]


def _refused(item: OwnerItem, state: str) -> str:
    allowed = ", ".join(NEXT_STATES[item.state])
    return (
        f"Item {item.item_id!r} is {item.state!r} and cannot be {state!r} next, only: {allowed}."
    )
