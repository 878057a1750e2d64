"""Which documents went stale: complaints that rise, texts that changed, sources that are gone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from langchain_feedback.loop._triage.complaints import BASELINE, Watched, cusum, watch
from langchain_feedback.loop._triage.resting import asks_between, rests_on
from langchain_feedback.loop._triage.sightings import Change, Seen, changes, gone
from langchain_feedback.store.alarms import (
    SourceAlarm,
    close_alarm,
    note_alarm,
    raise_alarm,
    read_alarms,
)
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["SourceAlarm", "check_sources", "cusum", "open_alarms", "rests_on"]

_WINDOW = BASELINE + timedelta(weeks=20)
_CHANGED_FOR = timedelta(weeks=6)


@dataclass(frozen=True)
class _Facts:
    """What stands against sources now."""

    complaints: Mapping[str, Watched]
    changed: Mapping[str, Sequence[Change]]
    gone: Mapping[str, Mapping[str, Any]]


def open_alarms(store: "FeedbackStore") -> list[SourceAlarm]:
    """Return the open alarms, oldest first."""
    with reading(store) as connection:
        return read_alarms(connection, store.namespace)


def check_sources(store: "FeedbackStore", *, now: datetime | None = None) -> list[SourceAlarm]:
    """Raise what is new, close what is over; return the new alarms. Twice is harmless.

    It looks back 26 weeks. An answer belongs to the sources that it rests on: see `rests_on`.
    Chunks without a source have no alarms.

    - `complaints`: of the answers that people said something of, more fail than before: see
      `cusum`. The first 6 weeks of a source give its rate. It is over once the evidence
      was 0 at the end of two weeks in a row, once no answer was judged for 6 weeks, and once
      the source's text changed. (`evidence`: rates, counts, since when)
    - `changed`: a chunk that an answer quoted, or that a good answer rests on, has another text
      now. It is over once an answer from the new text was found good, and after 6 weeks: by
      then complaints would tell. No change is told twice. (`evidence`: the chunks, the hashes
      of their texts, how many answers rested on the old ones)
    - `gone`: the questions that a source answered were asked again, 3 times and for a week at
      least, and no search found it, nor its text under another name. It is over once it is found
      again, or nothing is left of its answers. (`evidence`: when it was last found)

    Alarms of the kind `reviewer` are raised by verdicts, and not touched here.

    Args:
        store: Where, and whose namespace.
        now: When; None: at this moment.

    Raises:
        StoreError: If the database cannot be read or written.
    """
    now = now or datetime.now(UTC)
    with reading(store) as connection:
        known = read_alarms(connection, store.namespace, closed=True)
        seen = Seen.of(asks_between(connection, store.namespace, now - _WINDOW, now))
        current = _current(connection, store.namespace, seen.hashes)
    facts = _facts(seen, current, known, now)
    with writing(store) as (connection, _):
        # Read anew: another job, or a reviewer, may have been here in between.
        before = read_alarms(connection, store.namespace, closed=True)
        for alarm in before:
            if alarm.closed_at is None and _is_over(alarm, facts, now):
                close_alarm(connection, store.namespace, alarm.alarm_id, now)
        raised = _raise(connection, store.namespace, facts, before, now)
        alarms = read_alarms(connection, store.namespace)
    return [alarm for alarm in alarms if alarm.alarm_id in raised]


def _facts(
    seen: Seen, current: Mapping[str, str], known: Iterable[SourceAlarm], now: datetime
) -> _Facts:
    observed = seen.observed()
    every = [one.failed for answers in observed.values() for one in answers]
    usual = sum(every) / len(every) if every else 0.0
    resets: dict[str, list[datetime]] = defaultdict(list)
    for alarm in known:
        if alarm.kind == "complaints" and alarm.closed_at is not None:
            resets[alarm.source].append(alarm.closed_at)
    complaints = {
        source: watch(
            answers, usual=usual, now=now, resets=[*resets[source], *seen.renewed[source]]
        )
        for source, answers in observed.items()
    }
    changed: dict[str, list[Change]] = defaultdict(list)
    for change in changes(seen, current):
        changed[change.source].append(change)
    return _Facts(complaints, dict(changed), dict(gone(seen, now)))


def _is_over(alarm: SourceAlarm, facts: _Facts, now: datetime) -> bool:
    if alarm.kind == "complaints":
        watched = facts.complaints.get(alarm.source)
        return watched is None or not watched.alarmed
    if alarm.kind == "changed":
        still = {(one.chunk_id, one.is_now) for one in facts.changed.get(alarm.source, ())}
        return now - alarm.raised_at >= _CHANGED_FOR or not still & _told(alarm)
    return alarm.kind == "gone" and alarm.source not in facts.gone


def _raise(
    connection: Connection,
    namespace: str,
    facts: _Facts,
    before: Sequence[SourceAlarm],
    now: datetime,
) -> set[str]:
    """Raise what no open alarm says; return the ids of the new alarms."""
    open_ = {(alarm.source, alarm.kind): alarm for alarm in before if alarm.closed_at is None}
    raised: set[str] = set()
    for source, watched in facts.complaints.items():
        if watched.alarmed and (source, "complaints") not in open_:
            said, height = _complaint(watched), watched.statistic
            raised.add(raise_alarm(connection, namespace, source, "complaints", now, said, height))
    for source, found in facts.gone.items():
        if (source, "gone") not in open_:
            raised.add(raise_alarm(connection, namespace, source, "gone", now, found))
    for source, changed in facts.changed.items():
        told = {pair for alarm in before if alarm.source == source for pair in _told(alarm)}
        new = [one for one in changed if (one.chunk_id, one.is_now) not in told]
        alarm = open_.get((source, "changed"))
        if not new:
            continue
        if alarm is not None and not _is_over(alarm, facts, now):
            said = _change(new, alarm.evidence)
            note_alarm(connection, namespace, alarm.alarm_id, said)
        else:
            raised.add(raise_alarm(connection, namespace, source, "changed", now, _change(new)))
    return raised


def _complaint(watched: Watched) -> dict[str, Any]:
    share = watched.failed / watched.judged if watched.judged else 0.0
    return {
        "failures": watched.failed,
        "judged": watched.judged,
        "rate": round(share, 3),
        "rate_before": watched.rate,
        "since": watched.since.date().isoformat() if watched.since else None,
    }


def _change(new: Iterable[Change], old: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what an alarm says of changes; `texts` keeps which were told."""
    said = dict(old or {"chunks": [], "answers": 0, "texts": {}})
    for one in new:
        said["chunks"] = sorted({*said["chunks"], one.chunk_id})
        said["answers"] += one.answers
        said["texts"] = said["texts"] | {one.chunk_id: one.is_now}
    return said


def _told(alarm: SourceAlarm) -> set[tuple[str, str]]:
    """Return the chunks, and their new texts, that an alarm is about."""
    texts = alarm.evidence.get("texts", {}) if alarm.kind == "changed" else {}
    return set(texts.items())


def _current(connection: Connection, namespace: str, chunk_ids: Iterable[str]) -> dict[str, str]:
    """Return the hash of each chunk's text, as last seen."""
    found: dict[str, str] = {}
    columns = (chunks.c.chunk_id, chunks.c.content_hash)
    for page in batched(sorted(chunk_ids)):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        found |= {
            row.chunk_id: row.content_hash
            for row in connection.execute(select(*columns).where(mine))
        }
    return found
