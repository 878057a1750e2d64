"""Votes: ratings, other signals, pins, and taking them back."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from langchain_core.documents import Document

from langchain_feedback.store import voting
from langchain_feedback.store.parts.base import StoreBase, now, twin

__all__ = ["Votes"]


class Votes(StoreBase):
    """The part of the store that keeps what people say."""

    def rate(
        self,
        trace_id: str,
        rating: int,
        *,
        target: Document | str | None = None,
        actor: str | None = None,
        comment: str | None = None,
        correction: str | None = None,
        event_id: str | None = None,
        client_time: datetime | None = None,
        pending: bool = False,
        reviewer: bool = False,
        id_field: str | None = None,
    ) -> str:
        """Keep a rating of an answer, or of one source.

        Args:
            trace_id: The retrieval that it is about: `trace_id_of(documents)`.
            rating: 1 to 5. 4 and 5 are votes for, 1 and 2 against, 3 neither.
            target: A returned document or its chunk id; None: the whole answer.
            actor: Who rates; None: who asked. A person's newest vote counts.
            comment: Words for the reviewers.
            correction: What would have been right, for the document's owner.
            event_id: Makes a repeated submission harmless: what is said again under the same id,
                of the same trace and target, changes nothing.
            client_time: When it was given, with a zone.
            pending: Whether it may wait for a trace that is still to come.
            reviewer: Whether a reviewer gave it. Never take this from a client.
            id_field: The metadata field that holds a chunk's id, if any.

        Returns:
            The event id, for `retract`.

        Raises:
            ValueError: If the rating is not a whole number from 1 to 5.
            UnknownTraceError: If there is no such trace.
            UnknownChunkError: If the target was not retrieved for it.
            EventReusedError: If the event id was used for another trace or target.
        """
        return self._add(
            trace_id, "rating", voting.target_of(target, id_field), pending=pending,
            rating=rating, actor=actor, comment=comment, correction=correction,
            event_id=event_id, client_time=client_time, reviewer=reviewer,
        )  # fmt: skip

    def signal(
        self,
        trace_id: str,
        name: str,
        *,
        target: Document | str | None = None,
        actor: str | None = None,
        comment: str | None = None,
        correction: str | None = None,
        value: float | None = None,
        event_id: str | None = None,
        client_time: datetime | None = None,
        pending: bool = False,
        id_field: str | None = None,
    ) -> str:
        """Keep any other signal, by its name in `signals.SIGNALS`; see `rate`.

        A `dwell` says in `value` for how many milliseconds the answer was looked at.

        Raises:
            ValueError: If there is no such signal.
            EventReusedError: If the event id was used for another trace or target.
        """
        return self._add(
            trace_id, name, voting.target_of(target, id_field), pending=pending, actor=actor,
            comment=comment, correction=correction, value=value, event_id=event_id,
            client_time=client_time,
        )  # fmt: skip

    def retract(self, event_id: str) -> None:
        """Take back a rating, a signal or a pin.

        Raises:
            UnknownEventError: If there is none of this id.
        """
        with self._writing() as (connection, half_life):
            voting.retract(connection, self.namespace, event_id, now(), half_life)

    def pin(
        self,
        question: str,
        target: Document | str,
        *,
        actor: str | None = None,
        id_field: str | None = None,
    ) -> str:
        """Name the right chunk for a question, as a reviewer. Never take this from a client.

        For the identical question it comes first until it is retracted or its text changes;
        for similar questions it is evidence of weight 3. It does not age.

        Returns:
            The pin id, for `retract`.

        Raises:
            UnknownChunkError: If `target` is an id that the store never saw.
        """
        asked = self._question(question, None, embed=True)
        with self._writing() as (connection, _):
            return voting.add_pin(
                connection, self.namespace, asked, target,
                actor=actor, now=now(), id_field=id_field,
            )  # fmt: skip

    def _add(
        self,
        trace_id: str,
        name: str,
        target: str,
        *,
        pending: bool,
        **fields: Any,
    ) -> str:
        event = voting.Event(trace_id, name, now(), target, **fields)
        self._outbox.flush(trace_id)
        with self._writing() as (connection, half_life):
            # One clock for all: a vote from a clock that is ahead would age all others.
            event = replace(event, received_at=self._database.now(connection))
            return voting.add_event(connection, self.namespace, event, half_life, pending=pending)

    arate = twin(rate)
    asignal = twin(signal)
    aretract = twin(retract)
    apin = twin(pin)
