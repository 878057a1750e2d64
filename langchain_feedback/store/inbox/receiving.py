"""Taking in what clients send: each event once, and none spoils the others.

All of a batch is one transaction. What can be wrong with an event is looked at before anything
is written, so that nothing has to be undone: an event is accepted, known already, parked until
its trace arrives, held as part of a burst, or rejected with a reason.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, insert, select

from langchain_feedback.store.evidence import batched, recredit
from langchain_feedback.store.inbox.events import Incoming, Received, checked, usable_id
from langchain_feedback.store.inbox.holding import hold_bursts
from langchain_feedback.store.inbox.limits import Limits, Spent, count_in
from langchain_feedback.store.inbox.skips import derive_skips
from langchain_feedback.store.schema import ANSWER, signals, trace_chunks, traces
from langchain_feedback.store.tracing import attach
from langchain_feedback.store.voting import Event

__all__ = ["Incoming", "Received", "Sender", "receive"]


@dataclass(frozen=True)
class Sender:
    """Who sends a batch, and how much he may."""

    limits: Limits
    token: str | None = None
    address: str | None = None
    is_asker: Callable[[str, str], bool] | None = None
    """Whether an event's actor is who asked, under another name."""


@dataclass(frozen=True)
class _Asked:
    """Of a trace in the store."""

    actor: str | None
    session_id: str | None

    @property
    def asker(self) -> str | None:
        """Who asked: the actor, else `session:...`."""
        return self.actor or (f"session:{self.session_id}" if self.session_id else None)


def receive(
    connection: Connection,
    namespace: str,
    events: Sequence[Incoming],
    sender: Sender,
    *,
    now: datetime,
    half_life: float | None,
) -> list[Received]:
    """Keep a batch, and what follows from it.

    Args:
        connection: A transaction that excludes other writers of votes in the namespace.
        namespace: Whose.
        events: As they were sent.
        sender: Who.
        now: When they are received.
        half_life: In days.

    Returns:
        What became of each, in their order.

    Raises:
        TooManySignalsError: If the sender is over a limit; the transaction must not be kept.
    """
    batch = _Batch(connection, namespace, events)
    received = [batch.take(event, sender, now) for event in events]
    count_in(connection, namespace, batch.spent(sender, len(events)), sender.limits, now)
    batch.keep(now)
    held = set[str]()
    changed = {event.trace_id for event, _ in batch.new if event.trace_id in batch.asked}
    if sender.limits.burst is not None and batch.new:
        # What one click says of the sources above it is judged with it.
        changed |= hold_bursts(connection, namespace, batch.ids, sender.limits.burst, now)
        held = batch.held()
    recredit(connection, namespace, sorted(changed), half_life)
    return [
        replace(one, status="held") if one.event_id in held and one.status == "accepted" else one
        for one in received
    ]


class _Batch:
    """One batch on its way into the store."""

    def __init__(self, connection: Connection, namespace: str, events: Sequence[Incoming]) -> None:
        self._connection, self._namespace = connection, namespace
        self.new: list[tuple[Event, Incoming]] = []
        named = {one.trace_id for one in events if isinstance(one.trace_id, str)}
        trace_ids = sorted(named)
        self.asked = {
            row.trace_id: _Asked(row.actor, row.session_id)
            for page in batched(trace_ids)
            for row in connection.execute(
                select(traces.c.trace_id, traces.c.actor, traces.c.session_id).where(
                    traces.c.namespace == namespace, traces.c.trace_id.in_(page)
                )
            )
        }
        self._sources = {
            (row.trace_id, row.chunk_id)
            for page in batched(sorted(self.asked))
            for row in connection.execute(
                select(trace_chunks.c.trace_id, trace_chunks.c.chunk_id).where(
                    trace_chunks.c.trace_id.in_(page)
                )
            )
        }
        self._known = self._known_among(events)

    @property
    def ids(self) -> list[str]:
        """The events that are kept, but for those that were derived."""
        return [str(event.event_id) for event, _ in self.new]

    def take(self, incoming: Incoming, sender: Sender, now: datetime) -> Received:
        """Look at one event; keep it in mind if it is new."""
        event_id = usable_id(incoming.event_id)
        try:
            event = self._event(incoming, sender, now)
        except (ValueError, OverflowError) as error:
            return Received(event_id, "rejected", str(error))
        about = event.trace_id, event.target
        if str(event_id) in self._known:
            if self._known[str(event_id)] == about:
                return Received(event_id, "duplicate")
            return Received(event_id, "rejected", "event_id was used for something else")
        is_there = event.trace_id in self.asked
        if is_there and event.target != ANSWER and about not in self._sources:
            return Received(event_id, "rejected", "target is no source of this answer")
        self._known[str(event_id)] = about
        self.new.append((event, incoming))
        return Received(event_id, "accepted" if is_there else "pending")

    def spent(self, sender: Sender, events: int) -> Spent:
        """Return what is to be counted for whom: what is sent twice costs once."""
        tokens = Counter(token for _, one in self.new if (token := one.token or sender.token))
        actors = Counter(one.actor for _, one in self.new if one.actor)
        return Spent(tokens, actors, sender.address, events)

    def keep(self, now: datetime) -> None:
        """Write what is new, and what it says of other sources."""
        rows = [
            event.as_row(self._namespace) | {"attached": event.trace_id in self.asked}
            for event, _ in self.new
        ]
        if not rows:
            return
        self._connection.execute(insert(signals), rows)
        there = [(event, one) for event, one in self.new if event.trace_id in self.asked]
        for trace_id in sorted({event.trace_id for event, _ in there}):
            attach(self._connection, self._namespace, trace_id)
        clicks = [(event, one.rank) for event, one in there if event.signal == "source_click"]
        if clicks:
            askers = {trace_id: asked.asker for trace_id, asked in self.asked.items()}
            derive_skips(self._connection, self._namespace, clicks, askers, now)

    def held(self) -> set[str]:
        """Return which of the new events are held."""
        mine = (signals.c.namespace == self._namespace) & (signals.c.state == "held")
        return {
            event_id
            for page in batched(self.ids)
            for event_id in self._connection.execute(
                select(signals.c.event_id).where(mine, signals.c.event_id.in_(page))
            ).scalars()
        }

    def _known_among(self, events: Sequence[Incoming]) -> dict[str, tuple[str, str]]:
        ids = sorted({known for one in events if (known := usable_id(one.event_id))})
        mine = signals.c.namespace == self._namespace
        about = select(signals.c.event_id, signals.c.trace_id, signals.c.target)
        return {
            row.event_id: (row.trace_id, row.target)
            for page in batched(ids)
            for row in self._connection.execute(about.where(mine, signals.c.event_id.in_(page)))
        }

    def _event(self, incoming: Incoming, sender: Sender, now: datetime) -> Event:
        event = checked(incoming, now)
        asked = self.asked.get(event.trace_id)
        if not (event.actor and asked and asked.asker and sender.is_asker):
            return event
        # One person, one vote: under his own name, whichever way he spoke.
        same = sender.is_asker(event.actor, asked.asker)
        return replace(event, actor=None) if same else event
