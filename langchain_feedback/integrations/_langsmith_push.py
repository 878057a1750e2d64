"""One push: from where the last one stopped to the newest signal."""

import logging
import time
from collections.abc import Iterable, Iterator
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
_MOST_IN_A_ROW = 3
_FIRST_WAIT_S = 30.0
_LONGEST_WAIT_S = 3600.0
_IMPORTED = "imported:"
_REFUSALS = (400, 413, 422)
_OF_EVERYBODY = (401, 403, 408, 429)

Outcome = Literal["sent", "taken_back", "skipped", "refused", "given_up"]


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
    """Signals whose run, or trace, was not to be found, or that LangSmith failed at: they are
    tried again, less and less often."""
    failed: int = 0
    """Those of them that LangSmith failed at."""
    given_up: int = 0
    """Signals whose run was not to be found for too long, or that LangSmith failed at for too
    long while it took others."""
    refused: int = 0
    """Signals that LangSmith does not accept."""
    error: str | None = None
    """What failed last. If it stopped at that, the next push goes on from there."""
    busy: bool = False
    """Whether another process was at it, and nothing was done here."""


class Push:
    """Sends what is new and what is due, in this order: new, waiting, retracted.

    A signal that LangSmith fails at is put off, so that it does not hold up the others. After
    some traces in a row that all fail it stops, since then it is LangSmith that is away.
    """

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
        self._in_a_row: dict[str, Exception] = {}  # by trace, since a signal last arrived
        self._failed: dict[int, str] = {}  # event ids
        self._arrived = False

    def run(self) -> None:
        """Do it.

        Raises:
            Exception: What LangSmith's client raises where it cannot be reached, refuses
                everybody or fails at everything. All that was sent before is noted.
        """
        try:
            self._send_new()
            self._send_due()
            self._send_retracted()
        finally:
            self._give_up()
            self.done.waiting = len(self._progress.waiting)
            self.done.failed = len(self._progress.failing)

    def _send_due(self) -> None:
        due = [seq for seq, when in self._progress.waiting.items() if when <= time.time()]
        for page in (due[at : at + _PAGE] for at in range(0, len(due), _PAGE)):
            found = {record.seq: record for record in self._store.signals_at(page)}
            for seq in page:
                if seq in found:
                    self._send(found[seq])
                else:
                    self._progress.drop(seq)  # pruned, or its person was forgotten

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
        if len(self._in_a_row) >= _MOST_IN_A_ROW:
            raise next(reversed(self._in_a_row.values()))
        if _is_foreign(record) or record.superseded:
            self._note(record, "skipped")
        else:
            self._api.project_id  # noqa: B018  where that fails, it fails for every signal
            self._try(record, is_new=is_new)
        self._bookmark.renew(self._progress)

    def _try(self, record: SignalRecord, *, is_new: bool) -> None:
        try:
            outcome = self._outcome(record)
        except Exception as error:
            if _is_for_good(error):
                logger.warning("LangSmith refuses signal %s: %s", record.event_id, error)
                self._note(record, "refused")
            elif _is_everybodys(error):
                raise
            else:
                self._fail(record, error)
            return
        if outcome != "later":
            self._arrived = True
            self._in_a_row.clear()
            self._note(record, outcome)
        elif is_new and record.retracted_at is not None:
            self._note(record, "skipped")  # it was never sent
        else:
            self._put_off(record)

    def _note(self, record: SignalRecord, outcome: Outcome) -> None:
        setattr(self.done, outcome, getattr(self.done, outcome) + 1)
        self._progress.drop(record.seq)

    def _outcome(self, record: SignalRecord) -> Literal["sent", "taken_back", "later"]:
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
        """Wait for its run."""
        waiting = self._progress.waiting
        age = datetime.now(UTC) - (record.retracted_at or record.received_at)
        if age > self._patience or len(waiting) >= _MOST_WAITING:
            self._note(record, "given_up")
            return
        self._progress.failing.pop(record.seq, None)
        # The older it is, the less likely is it that its run still comes.
        waiting[record.seq] = time.time() + max(_FIRST_WAIT_S, age.total_seconds())

    def _fail(self, record: SignalRecord, error: Exception) -> None:
        """Wait for LangSmith to get over it."""
        waiting, now = self._progress.waiting, time.time()
        if record.seq not in waiting and len(waiting) >= _MOST_WAITING:
            raise error
        for_s = now - self._progress.failing.setdefault(record.seq, now)
        waiting[record.seq] = now + min(max(_FIRST_WAIT_S, for_s), _LONGEST_WAIT_S)
        self._failed[record.seq] = record.event_id
        self._in_a_row[record.trace_id] = error
        self.done.error = f"{type(error).__name__}: {error}"

    def _give_up(self) -> None:
        """Give up what failed for too long; never while LangSmith takes nothing at all."""
        if not self._arrived:
            return
        oldest = time.time() - self._patience.total_seconds()
        for seq, event_id in self._failed.items():
            if self._progress.failing.get(seq, oldest) < oldest:
                logger.warning("LangSmith keeps failing at signal %s: it is given up", event_id)
                self._progress.drop(seq)
                self.done.given_up += 1


def _is_foreign(record: SignalRecord) -> bool:
    return record.event_id.startswith(PULLED) or record.trace_id.startswith(_IMPORTED)


def _is_for_good(error: BaseException) -> bool:
    """Whether LangSmith refuses what was sent, and will again."""
    return any(_status_of(cause) in _REFUSALS for cause in _causes(error))


def _is_everybodys(error: BaseException) -> bool:
    """Whether any other signal would fare the same: the network, the key, too many calls."""
    return any(
        _status_of(cause) in _OF_EVERYBODY or _is_of_the_network(cause) for cause in _causes(error)
    )


def _is_of_the_network(error: BaseException) -> bool:
    # Whatever `requests` raises is an OSError: also over a status, or over what is no JSON.
    told = getattr(error, "response", None) is not None or isinstance(error, ValueError)
    return isinstance(error, OSError) and not told


def _status_of(error: BaseException) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
