"""What people say without saying it: signals that follow from what they ask next."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Row, select

from langchain_feedback.loop._deriving.rules import (
    Vector,
    contradicts,
    is_regenerated,
    is_rephrased,
)
from langchain_feedback.signals import signal_kind
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import questions, signals, traces
from langchain_feedback.store.transactions import clock, reading, writing
from langchain_feedback.store.voting import Event, add_event, retract

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["DERIVED", "Derived", "derive_signals"]

DERIVED = ("regenerate", "rephrase", "contradiction", "abandon", "zero_result")
"""The signals that are derived here. None of them moves the ranking."""

_SILENCE = timedelta(minutes=30)
_OVERLAP = timedelta(days=1)
_LONG_READ_MS = 5_000
_PAGE = 200
_BOOKMARK = "derived"
_INSTANT = timedelta(microseconds=1)

_Vectors = Mapping[int, tuple[str | None, Vector]]
"""The vectors of questions, with the model that made each."""


@dataclass(frozen=True)
class Derived:
    """What a run added."""

    added: dict[str, int]
    """How many signals, by name."""
    asks: int
    """How many questions were looked at."""
    withdrawn: int = 0
    """How many signals of earlier runs were taken back: a trace that came late refutes them."""


class _Found(NamedTuple):
    ask: Ask
    signal: str
    comment: str | None = None


def derive_signals(
    store: "FeedbackStore",
    *,
    since: datetime | timedelta | None = None,
    now: datetime | None = None,
) -> Derived:
    """Add the signals that follow from what people asked next; a second run adds nothing.

    Of two questions that one person asks in a session: `regenerate` (the same again within
    30 s), `rephrase` (in other words within 120 s) and `contradiction` (it denies the answer; the
    comment holds its text) go on the first one. Of these one counts for each person, the
    strongest, also beside what a client sent. `abandon` says that half an hour of silence
    followed, which is no failure: a good answer ends a session, too. Its comment is "good"
    where the answer was grounded and read for 5 seconds. `zero_result` says that nothing was
    there to answer from. What evaluations and playgrounds ask is passed over, and without a
    session there are no sequences. `source_skipped` is derived where clicks are received.

    It reads the sessions with questions since a day before the last run began: what came later
    than a day needs `since`. Two runs at once are as one.

    Args:
        store: Where, and whose namespace.
        since: How far back; None: as above, and everything at first.
        now: When; None: the database's clock.

    Raises:
        StoreError: If the database cannot be read or written; what was added before stays.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback import FeedbackStore
        >>> store, found = FeedbackStore("sqlite://"), [Document("By card.", id="card")]
        >>> store.record_trace("t1", "How long does it take?", found, session_id="s1")
        >>> store.record_trace("t2", "How many days?", found, session_id="s1")
        >>> derive_signals(store).added
        {'rephrase': 1}
        >>> derive_signals(store).added
        {}
    """
    noted = store.bookmark(_BOOKMARK)
    with reading(store) as connection:
        now = now or clock(store, connection)
        start = _start(since, now, noted)
        sessions, alone = _fresh(connection, store.namespace, start)
    added: Counter[str] = Counter()
    looked_at, withdrawn = 0, 0
    # The first question of a pair may be older than what is new.
    before = None if start is None else start - _SILENCE
    pages: list[dict[str, Any]] = [{"sessions": page} for page in _paged(sessions)]
    pages += [{"trace_ids": page} for page in _paged(alone)]
    for page in pages:
        with reading(store) as connection:
            until = now + _INSTANT
            asks = read_asks(connection, store.namespace, since=before, until=until, **page)
            vectors = _vectors(connection, store.namespace, {ask.question_id for ask in asks})
        looked_at += len(asks)
        withdrawn += _kept(store, asks, [*_found(asks, vectors, now)], now, added)
    if since is None and (noted is None or noted < now.isoformat()):
        store.move_bookmark(_BOOKMARK, now.isoformat(), expected=noted)
    return Derived(dict(added), looked_at, withdrawn)


def _start(
    since: datetime | timedelta | None, now: datetime, noted: str | None
) -> datetime | None:
    if isinstance(since, timedelta):
        return now - since
    if since is not None or noted is None:
        return since
    return datetime.fromisoformat(noted) - _OVERLAP


def _fresh(
    connection: Connection, namespace: str, start: datetime | None
) -> tuple[list[str], list[str]]:
    """Return the sessions with new questions, and the new questions without a session."""
    mine = [traces.c.namespace == namespace, traces.c.traffic.is_(None)]
    mine += [] if start is None else [traces.c.created_at >= start]
    rows = list(connection.execute(select(traces.c.trace_id, traces.c.session_id).where(*mine)))
    sessions = {row.session_id for row in rows if row.session_id}
    return sorted(sessions), sorted(row.trace_id for row in rows if not row.session_id)


def _paged(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[at : at + _PAGE] for at in range(0, len(names), _PAGE)]


def _found(asks: Sequence[Ask], vectors: _Vectors, now: datetime) -> Iterator[_Found]:
    yield from (_Found(ask, "zero_result") for ask in asks if ask.found_nothing)
    sessions: dict[tuple[str, str], list[Ask]] = defaultdict(list)
    for ask in asks:
        if ask.session_id:
            # Two people of one session are two sequences.
            sessions[ask.session_id, ask.asker].append(ask)
    for session in sessions.values():
        for first, then in pairwise(session):
            yield from _next_says(first, then, vectors)
        ends = [*(ask.created_at for ask in session[1:]), now]
        for ask, end in zip(session, ends, strict=True):
            if end - ask.created_at >= _SILENCE:
                yield _abandoned(ask)


def _next_says(first: Ask, then: Ask, vectors: _Vectors) -> Iterator[_Found]:
    """Yield the strongest that the next question says of the answer before it."""
    of_first, one = vectors.get(first.question_id, (None, None))
    of_then, other = vectors.get(then.question_id, (None, None))
    if is_regenerated(first, then):
        yield _Found(first, "regenerate")
    elif contradicts(first, then):
        yield _Found(first, "contradiction", then.question)
    elif is_rephrased(first, then, *((one, other) if of_first == of_then else (None, None))):
        yield _Found(first, "rephrase", then.question)


def _abandoned(ask: Ask) -> _Found:
    read = max((said.value or 0.0 for said in ask.said if said.signal == "dwell"), default=0.0)
    return _Found(ask, "abandon", "good" if ask.grounded and read >= _LONG_READ_MS else None)


def _kept(
    store: "FeedbackStore",
    asks: Sequence[Ask],
    found: Sequence[_Found],
    now: datetime,
    added: Counter[str],
) -> int:
    """Keep what is new, and take back what no longer follows; return how much that was."""
    follows = {_event_id(store.namespace, one.ask, one.signal) for one in found}
    stale = [event_id for event_id in _may_pass(store.namespace, asks) if event_id not in follows]
    if not found and not stale:
        return 0
    with writing(store, durable=False) as (connection, half_life):
        # Read here, where no other writer is between: another run may be at it.
        there = _there(connection, store.namespace, [ask.trace_id for ask in asks])
        for one in found:
            if not _is_new(one, there):
                continue
            event = Event(
                one.ask.trace_id, one.signal, now, comment=one.comment,
                event_id=_event_id(store.namespace, one.ask, one.signal),
            )  # fmt: skip
            add_event(connection, store.namespace, event, half_life)
            added[one.signal] += 1
        known = {row.event_id for rows in there.values() for row in rows}
        stale = [event_id for event_id in stale if event_id in known]
        for event_id in stale:
            retract(connection, store.namespace, event_id, now, half_life)
    return len(stale)


def _may_pass(namespace: str, asks: Iterable[Ask]) -> Iterator[str]:
    """Yield our signals in force that a late trace, or a late grade, may refute."""
    for ask in asks:
        for said in ask.said:
            ours = said.event_id == _event_id(namespace, ask, said.signal)
            if ours and said.signal in ("abandon", "zero_result"):
                yield said.event_id


def _there(
    connection: Connection, namespace: str, trace_ids: Sequence[str]
) -> dict[str, list[Row[Any]]]:
    """Return what was said of each trace, also what was taken back; not of those that are gone."""
    there: dict[str, list[Row[Any]]] = {}
    for page in batched(trace_ids):
        of_page = (traces.c.namespace == namespace) & traces.c.trace_id.in_(page)
        known = connection.execute(select(traces.c.trace_id).where(of_page)).scalars()
        there |= {trace_id: [] for trace_id in known}
        said = (signals.c.namespace == namespace) & signals.c.trace_id.in_(page)
        for row in connection.execute(select(signals).where(said)):
            there.setdefault(row.trace_id, []).append(row)
    return there


def _is_new(one: _Found, there: Mapping[str, Sequence[Row[Any]]]) -> bool:
    """Whether the asker has not said it, or as much of the same kind, before."""
    if one.ask.trace_id not in there:
        return False  # forgotten meanwhile
    kind = signal_kind(one.signal)
    return not any(
        row.family == kind.family and row.weight >= kind.weight
        for row in there[one.ask.trace_id]
        if row.actor in (None, one.ask.asker)
    )


def _event_id(namespace: str, ask: Ask, signal: str) -> str:
    said = json.dumps([namespace, ask.trace_id, signal])
    return f"derived:{hashlib.sha256(said.encode()).hexdigest()[:32]}"


def _vectors(connection: Connection, namespace: str, ids: Iterable[int]) -> _Vectors:
    found: dict[int, tuple[str | None, Vector]] = {}
    for page in batched(sorted(ids)):
        rows = connection.execute(
            select(questions.c.question_id, questions.c.vector, questions.c.embedder)
            .where(questions.c.namespace == namespace, questions.c.question_id.in_(page))
            .where(questions.c.vector.is_not(None))
        )
        for row in rows:
            found[row.question_id] = row.embedder, np.frombuffer(row.vector, dtype="<f4")
    return found
