"""The inbox: what clients send, within limits, and what is held back of it."""

from collections.abc import Callable, Sequence

from langchain_feedback.store.inbox.bursts import HeldBurst, read_bursts
from langchain_feedback.store.inbox.events import Incoming, Received
from langchain_feedback.store.inbox.limits import DEFAULT_LIMITS, Limits
from langchain_feedback.store.inbox.receiving import Sender, receive
from langchain_feedback.store.parts.base import StoreBase, twin

__all__ = ["Inbox"]


class Inbox(StoreBase):
    """The part of the store that takes in what nobody vouches for."""

    def receive(
        self,
        events: Sequence[Incoming],
        *,
        token: str | None = None,
        address: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        is_asker: Callable[[str, str], bool] | None = None,
    ) -> list[Received]:
        """Keep a batch of events from a client, in one transaction; an event counts once.

        An event that cannot be kept says why and spoils no other. One whose trace is still to
        come waits for it. A `source_click` also says that the sources above it were passed over
        (`source_skipped`). Too many votes of one sign on one chunk or question from few people
        are held back until a reviewer has looked: see `bursts`, and `Burst` for the numbers.

        `rate` and `signal` are for servers that know who speaks: they are neither limited nor
        held back, except that what they kept within the hour belongs to a burst as well.

        Args:
            events: What was sent. Make `trace_id` and `actor` yourself, from a token.
            token: What all came with that name no token of their own.
            address: The client's network address: only its digest is counted, for two hours;
                of IPv6 the /64.
            limits: How much is taken.
            is_asker: Whether an event's actor (the first argument) is who asked (the second: the
                trace's actor, or `session:` and its session) under another name. Then it is
                kept without one, as the asker's: one person, one vote.

        Returns:
            What became of each event, in their order.

        Raises:
            TooManySignalsError: If the token, an actor or the address is over its limit.
                Nothing of the batch was kept or counted.
            StoreError: If the database cannot be written.

        Example:
            >>> from langchain_core.documents import Document
            >>> from langchain_feedback import FeedbackStore
            >>> store = FeedbackStore("sqlite://")
            >>> found = [Document("A refund takes 14 days.", id="refunds")]
            >>> store.record_trace("t1", "How long does a refund take?", found)
            >>> good = Incoming("e1", "t1", "source_click", target="refunds", actor="ann")
            >>> bad = Incoming("e2", "t1", "source_click", target="keys", actor="ann")
            >>> [(one.status, one.reason) for one in store.receive([good, bad])]
            [('accepted', None), ('rejected', 'target is no source of this answer')]
            >>> [one.status for one in store.receive([good])]
            ['duplicate']
        """
        if not events:
            return []
        for trace_id in dict.fromkeys(event.trace_id for event in events):
            self._outbox.flush(trace_id)
        sender = Sender(limits, token, address, is_asker)
        with self._writing() as (connection, half_life):
            now = self._database.now(connection)
            return receive(
                connection, self.namespace, events, sender, now=now, half_life=half_life
            )

    def bursts(self) -> list[HeldBurst]:
        """Return the bursts that are held back, oldest first, each once."""
        with self._reading() as connection:
            return read_bursts(connection, self.namespace)

    areceive = twin(receive)
    abursts = twin(bursts)
