"""What a verdict does, and how it is undone: pins, votes, items for owners, alarms, bursts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, select

from langchain_feedback.errors import UnknownChunkError, UnknownEventError, UnknownTraceError
from langchain_feedback.loop._mending.opening import about_correction, about_missing
from langchain_feedback.loop.owners import Owners
from langchain_feedback.store.alarms import close_alarm, raise_alarm
from langchain_feedback.store.derived_rows import (
    approve_derived,
    reject_derived,
    restore_derived,
)
from langchain_feedback.store.inbox.bursts import settle_burst, unsettle_burst
from langchain_feedback.store.loop_schema import source_alarms
from langchain_feedback.store.owner_items import move_item_from, open_item
from langchain_feedback.store.questions import Question
from langchain_feedback.store.reviewing.items import ReviewEvent, ReviewItem
from langchain_feedback.store.reviewing.verdicts import BLAMELESS
from langchain_feedback.store.schema import chunks, pins
from langchain_feedback.store.voting import Event, add_event, add_pin, retract

__all__ = ["Effects"]


@dataclass(frozen=True)
class Effects:
    """Does and undoes what verdicts mean, in the transaction of the verdict."""

    connection: Connection
    namespace: str
    half_life: float | None
    now: datetime
    owners: Owners | None = None

    def apply(self, item: ReviewItem, verdict: ReviewEvent, asked: Question) -> dict[str, Any]:
        """Do what a verdict says; return what is to be undone with it."""
        if item.kind == "burst":
            return self._settle(item, verdict)
        if item.kind == "foldback":
            return self._fold_back(item, verdict)
        done: dict[str, Any] = {
            "pins": self._pin(item, verdict, asked),
            "signals": self._vote(item, verdict),
            "owner_items": [*self._missing(item, verdict), *self._correct(item, verdict)],
            "alarms": self._alarm(item, verdict),
        }
        return {name: ids for name, ids in done.items() if ids}

    def undo(self, done: Mapping[str, Any]) -> None:
        """Take back what `apply` did, as far as it is still there."""
        for event_id in (*done.get("pins", ()), *done.get("signals", ())):
            try:
                retract(self.connection, self.namespace, event_id, self.now, self.half_life)
            except UnknownEventError:
                continue  # pruned meanwhile
        for item_id in done.get("owner_items", ()):
            note = "A reviewer took the verdict back."
            # What its owner has fixed meanwhile stays fixed.
            move_item_from(
                self.connection, self.namespace, item_id, "withdrawn",
                among=("open", "acknowledged"), now=self.now, note=note,
            )  # fmt: skip
        for alarm_id in done.get("alarms", ()):
            close_alarm(self.connection, self.namespace, alarm_id, self.now)
        if before := done.get("foldback"):
            restore_derived(self.connection, self.namespace, before)
        if burst := done.get("burst"):
            unsettle_burst(self.connection, self.namespace, burst, self.half_life)

    def _settle(self, item: ReviewItem, verdict: ReviewEvent) -> dict[str, Any]:
        """Drop a burst that is confirmed to be one, count what was none."""
        if verdict.verdict == "unclear" or item.guess is None:
            return {}
        accept = verdict.verdict == "reject"
        settle_burst(self.connection, self.namespace, item.guess, accept, self.half_life)
        return {"burst": item.guess}

    def _fold_back(self, item: ReviewItem, verdict: ReviewEvent) -> dict[str, Any]:
        """Let an answer serve again, or never; where its sources changed meanwhile, neither.

        What would be right goes to the document's owner. It is never served.
        """
        done: dict[str, Any] = {"owner_items": self._correct(item, verdict)}
        decide = {"confirm": approve_derived, "reject": reject_derived}.get(str(verdict.verdict))
        if decide and item.guess:
            who, now = verdict.reviewer, self.now
            done["foldback"] = decide(self.connection, self.namespace, item.guess, who, now)
        return {name: made for name, made in done.items() if made}

    def _pin(self, item: ReviewItem, verdict: ReviewEvent, asked: Question) -> list[str]:
        """Pin what is named right, as far as its text is still the one that was looked at."""
        seen = _hashes(item)
        made = []
        for chunk_id in verdict.right_chunks:
            known = self._hash_of(chunk_id)
            if known is None or seen.get(chunk_id, known) != known:
                continue
            try:
                pin_id = add_pin(
                    self.connection, self.namespace, asked, chunk_id,
                    actor=verdict.reviewer, now=self.now,
                )  # fmt: skip
            except UnknownChunkError:
                continue
            made += [pin_id] if self._is_new(pin_id) else []
        return made

    def _is_new(self, pin_id: str) -> bool:
        """Whether a pin was made just now: one that was there before is not ours to undo."""
        made = select(pins.c.created_at).where(pins.c.pin_id == pin_id)
        return bool(self.connection.execute(made).scalar() == self.now)

    def _hash_of(self, chunk_id: str) -> str | None:
        mine = (chunks.c.namespace == self.namespace) & (chunks.c.chunk_id == chunk_id)
        return self.connection.execute(select(chunks.c.content_hash).where(mine)).scalar()

    def _vote(self, item: ReviewItem, verdict: ReviewEvent) -> list[str]:
        """Vote against the suspect that is confirmed, where its trace is still there."""
        if verdict.verdict != "confirm" or not item.guess or not item.trace_id:
            return []
        if verdict.failure_class in BLAMELESS or item.guess in verdict.right_chunks:
            return []
        event = Event(
            item.trace_id, "wrong_source", self.now, item.guess,
            actor=verdict.reviewer, reviewer=True, event_id=f"review:{uuid4()}",
        )  # fmt: skip
        try:
            return [add_event(self.connection, self.namespace, event, self.half_life)]
        except (UnknownTraceError, UnknownChunkError):
            return []

    def _missing(self, item: ReviewItem, verdict: ReviewEvent) -> list[str]:
        if not verdict.none_exists:
            return []
        about = about_missing(self.namespace, item.question_id or 0)
        return self._opened(item, verdict, about, "missing_document", f"Missing: {item.question}")

    def _correct(self, item: ReviewItem, verdict: ReviewEvent) -> list[str]:
        if not verdict.correction:
            return []
        suspect = _suspect(item)
        what = suspect.get("chunk_id") or item.trace_id or item.item_id
        text_hash = suspect.get("content_hash")
        about = about_correction(self.namespace, str(what), text_hash, verdict.correction)
        return self._opened(item, verdict, about, "correction", verdict.correction, suspect)

    def _opened(  # noqa: PLR0917  one row, one call
        self,
        item: ReviewItem,
        verdict: ReviewEvent,
        about: str,
        kind: str,
        text: str,
        suspect: Mapping[str, Any] | None = None,
    ) -> list[str]:
        source = str((suspect or {}).get("source") or "")
        owner = self.owners.of(source) if self.owners else None
        item_id, opened = open_item(
            self.connection, self.namespace, about=about, kind=kind, now=self.now, text=text,
            question=item.question, source=source, chunk_id=(suspect or {}).get("chunk_id"),
            content_hash=(suspect or {}).get("content_hash"), trace_id=item.trace_id,
            owner=owner.name if owner else "", opened_by=verdict.reviewer,
            snapshot={name: item.snapshot.get(name) for name in ("answer", "chunks", "status")},
        )  # fmt: skip
        return [item_id] if opened else []

    def _alarm(self, item: ReviewItem, verdict: ReviewEvent) -> list[str]:
        """Alarm the suspect's document, unless it is right, or was corrected since."""
        suspect = _suspect(item)
        source, chunk_id = str(suspect.get("source") or ""), str(suspect.get("chunk_id"))
        if verdict.failure_class != "stale_document" or not source:
            return []
        if verdict.verdict == "reject" or chunk_id in verdict.right_chunks:
            return []
        if self._hash_of(chunk_id) not in (None, suspect.get("content_hash")):
            return []
        evidence = {"question": item.question, "note": verdict.note}
        alarm_id = raise_alarm(
            self.connection, self.namespace, source, "reviewer", self.now, evidence
        )
        raised = select(source_alarms.c.raised_at).where(source_alarms.c.alarm_id == alarm_id)
        # One that was open before is another verdict's.
        return [alarm_id] if self.connection.execute(raised).scalar() == self.now else []


def _pool(item: ReviewItem) -> Sequence[Mapping[str, Any]]:
    return item.snapshot.get("chunks") or ()


def _hashes(item: ReviewItem) -> dict[str, str]:
    return {str(chunk["chunk_id"]): str(chunk["content_hash"]) for chunk in _pool(item)}


def _suspect(item: ReviewItem) -> Mapping[str, Any]:
    """Return the chunk that the item is about: the guess, else a cited one, else the first."""
    pool = _pool(item)
    named = [chunk for chunk in pool if chunk["chunk_id"] == item.guess]
    return next(iter([*named, *(chunk for chunk in pool if chunk.get("cited")), *pool]), {})
