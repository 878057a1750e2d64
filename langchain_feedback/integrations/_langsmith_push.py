"""One push: from where the last one stopped to the newest signal."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from langchain_feedback.integrations._langsmith_feedback import (
    PULLED,
    feedback_id_of,
    feedback_of,
)
from langchain_feedback.integrations._langsmith_progress import Bookmark, Progress
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.records import SignalRecord

if TYPE_CHECKING:
    from langchain_feedback.integrations._langsmith_api import LangSmithApi

__all__ = ["Push", "Pushed"]

logger = logging.getLogger(__name__)

_PAGE = 100
_MOST_WAITING = 10_000
_FIRST_WAIT_S = 30.0
_IMPORTED = "imported:"
_REFUSALS = (400, 413, 422)

Outcome = Literal["sent", "taken_back", "skipped", "later"]


@dataclass
class Pushed:
    """What a push did."""

    sent: int = 0
    """Signals that LangSmith holds now as feedback, or holds with what they say."""
    taken_back: int = 0
    """Retracted ones whose feedback is empty now."""
    skipped: int = 0
    """Signals that are not for LangSmith: replaced by newer ones, retracted before they were
    sent, imported from it, or of an imported log, which has no runs."""
    waiting: int = 0
    """Signals whose run, or trace, was not to be found: they are tried again, less and less
    often."""
    given_up: int = 0
    """Signals whose run was not to be found for too long."""
    refused: int = 0
    """Signals that LangSmith does not accept."""
    error: str | None = None
    """Why it stopped before the end; the next push goes on from there."""
    busy: bool = False
    """Whether another process was at it, and nothing was done here."""


class Push:
    """Sends what is new and what is due, in this order: waiting, new, retracted."""

    def __init__(
        self,
        store: FeedbackStore,
        api: "LangSmithApi",
        bookmark: Bookmark,
        progress: Progress,
        done: Pushed,
        *,
        patience: timedelta,
        with_actor: bool,
    ) -> None:
        self._store, self._api, self._bookmark, self._progress = store, api, bookmark, progress
        self._patience, self._with_actor = patience, with_actor
        self.done = done

    def run(self) -> None:
        """Do it.

        Raises:
            Exception: What LangSmith's client raises where it cannot be reached or refuses
                everybody. All that was sent before is noted.
        """
        try:
            self._send_due()
            self._send_new()
            self._send_retracted()
        finally:
            self.done.waiting = len(self._progress.waiting)

    def _send_due(self) -> None:
        due = [seq for seq, when in self._progress.waiting.items() if when <= time.time()]
        for page in (due[at : at + _PAGE] for at in range(0, len(due), _PAGE)):
            found = {record.seq: record for record in self._store.signals_at(page)}
            for seq in page:
                if seq in found:
                    self._send(found[seq])
                else:
                    del self._progress.waiting[seq]  # pruned, or its person was forgotten

    def _send_new(self) -> None:
        while records := self._store.signals_since(self._progress.seq, limit=_PAGE):
            for record in records:
                self._send(record, is_new=True)
                if record.retracted_at is not None:
                    self._progress.pass_over(record.seq, record.retracted_at)
                self._progress.seq = record.seq
            self._bookmark.save(self._progress)

    def _send_retracted(self) -> None:
        progress = self._progress
        while True:
            limit = _PAGE + len(progress.seen)
            records = self._store.retractions_since(progress.retracted_since, limit=limit)
            new = [record for record in records if record.seq not in progress.seen]
            if not new:
                return
            self._take_back_all(new)
            self._bookmark.save(progress)

    def _take_back_all(self, records: Iterable[SignalRecord]) -> None:
        for record in records:
            if record.retracted_at is not None:
                self._send(record)
                self._progress.see(record.seq, record.retracted_at)

    def _send(self, record: SignalRecord, *, is_new: bool = False) -> None:
        """Send one signal, or note when to try again.

        An error leaves everything as it was before.
        """
        try:
            outcome = self._outcome(record)
        except Exception as error:
            if not _is_for_good(error):
                raise
            logger.warning("LangSmith refuses signal %s: %s", record.event_id, error)
            self.done.refused += 1
            self._progress.waiting.pop(record.seq, None)
        else:
            if is_new and record.retracted_at is not None and outcome == "later":
                outcome = "skipped"  # it was never sent
            if outcome == "later":
                self._put_off(record)
            else:
                setattr(self.done, outcome, getattr(self.done, outcome) + 1)
                self._progress.waiting.pop(record.seq, None)
        self._bookmark.renew(self._progress)

    def _outcome(self, record: SignalRecord) -> Outcome:
        foreign = record.event_id.startswith(PULLED) or record.trace_id.startswith(_IMPORTED)
        if foreign or record.superseded:
            return "skipped"
        namespace = self._store.namespace
        if record.retracted_at is not None:
            gone = self._api.take_back(feedback_id_of(record, namespace))
            return "taken_back" if gone else "later"
        if record.asked_at is None:
            return "later"
        run_id = self._api.run_of(record.trace_id, record.asked_at)
        if run_id is None:
            return "later"
        sent = feedback_of(record, namespace, with_actor=self._with_actor)
        return "sent" if self._api.put(run_id, sent, repeats=record.repeats) else "later"

    def _put_off(self, record: SignalRecord) -> None:
        waiting = self._progress.waiting
        age = datetime.now(UTC) - (record.retracted_at or record.received_at)
        if age > self._patience or len(waiting) >= _MOST_WAITING:
            waiting.pop(record.seq, None)
            self.done.given_up += 1
            return
        # The older it is, the less likely is it that its run still comes.
        waiting[record.seq] = time.time() + max(_FIRST_WAIT_S, age.total_seconds())


def _is_for_good(error: BaseException) -> bool:
    """Whether LangSmith refuses what was sent, and will again."""
    seen: BaseException | None = error
    while seen is not None:
        if getattr(getattr(seen, "response", None), "status_code", None) in _REFUSALS:
            return True
        seen = seen.__cause__ or seen.__context__
    return False
