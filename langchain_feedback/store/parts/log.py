"""The log of signals: for whoever passes them on to somewhere else."""

from collections.abc import Sequence
from datetime import datetime

from langchain_feedback.store import signal_log
from langchain_feedback.store.jsonlines.imported_rows import known_events
from langchain_feedback.store.parts.base import StoreBase, twin
from langchain_feedback.store.records import SignalRecord

__all__ = ["Log"]


class Log(StoreBase):
    """The part of the store that others follow."""

    def signals_since(self, seq: int = 0, *, limit: int = 500) -> list[SignalRecord]:
        """Return the signals that came after one, in order of arrival.

        Who has read up to a `seq` misses none: a later signal never gets a lower number.

        Args:
            seq: The number of the last signal that is known; 0: from the beginning.
            limit: The most that are returned.
        """
        with self._reading() as connection:
            return signal_log.read_signals(connection, self.namespace, after=seq, limit=limit)

    def signals_at(self, seqs: Sequence[int]) -> list[SignalRecord]:
        """Return some signals as they are now, as far as they are still there."""
        with self._reading() as connection:
            return signal_log.read_signals(connection, self.namespace, among=seqs)

    def retractions_since(self, when: datetime, *, limit: int = 500) -> list[SignalRecord]:
        """Return the signals that were taken back since then, in the order of that.

        Args:
            when: An instant with a zone, which belongs to it. Retracting sets a clock's time,
                and clocks of several machines differ: read again some time from before.
            limit: The most that are returned.
        """
        with self._reading() as connection:
            return signal_log.read_signals(
                connection, self.namespace, retracted_since=when, limit=limit
            )

    def known_events(self, event_ids: Sequence[str]) -> set[str]:
        """Return those of some event ids that the store holds."""
        with self._reading() as connection:
            return known_events(connection, self.namespace, event_ids)

    def bookmark(self, name: str) -> str | None:
        """Return what a follower of this namespace's log has noted, or None."""
        with self._reading() as connection:
            return signal_log.read_bookmark(connection, self.namespace, name)

    def move_bookmark(self, name: str, value: str, *, expected: str | None) -> bool:
        """Note how far a follower of the log has come.

        Args:
            name: The follower's own.
            value: What to note.
            expected: What `bookmark` returned: where that has changed, nothing is noted.

        Returns:
            Whether it was noted.
        """
        with self._writing(durable=False) as (connection, _):
            return signal_log.move_bookmark(connection, self.namespace, name, value, expected)

    asignals_since = twin(signals_since)
    asignals_at = twin(signals_at)
    aretractions_since = twin(retractions_since)
    aknown_events = twin(known_events)
    abookmark = twin(bookmark)
    amove_bookmark = twin(move_bookmark)
