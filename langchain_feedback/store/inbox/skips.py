"""Sources that somebody passed over on the way to the one that he opened.

A source that was shown above the lowest one that a person opened, and that he did not open,
was looked at and left: "skip above" (Joachims, "Optimizing search engines using clickthrough
data", KDD 2002). Opened later, it counts as opened: the newest event of a key is in force.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, insert, select

from langchain_feedback.store.schema import signals, trace_chunks
from langchain_feedback.store.voting import Event

__all__ = ["Shown", "derive_skips", "passed_over", "read_shown"]

_CLICKS = ("source_click", "source_skipped")


class Shown:
    """The sources of an answer, in the order in which they were shown."""

    def __init__(self, prompt: Sequence[str], cited: Sequence[str]) -> None:
        self._lists = [list(prompt), list(cited)]

    def around(self, target: str, rank: int | None) -> list[str]:
        """Return the list in which a source stood at a rank, from 0; empty where none fits.

        Without a rank it is taken for all that the answer was written from. With one, a page
        may also list only what the answer quotes; any other list is unknown to us, and nobody
        can say what stood above.

        Example:
            >>> shown = Shown(["a", "b", "c"], cited=["a", "c"])
            >>> shown.around("c", None), shown.around("c", 1), shown.around("c", 7)
            (['a', 'b', 'c'], ['a', 'c'], [])
        """
        for listed in self._lists:
            if target in listed and rank in (None, listed.index(target)):
                return listed
        return []


def passed_over(shown: Sequence[str], opened: set[str]) -> list[str]:
    """Return the sources above the lowest opened one that were not opened.

    Example:
        >>> passed_over(["a", "b", "c", "d"], {"a", "c"})
        ['b']
    """
    lowest = max((shown.index(one) for one in opened if one in shown), default=0)
    return [one for one in shown[:lowest] if one not in opened]


def read_shown(connection: Connection, trace_ids: Sequence[str]) -> dict[str, Shown]:
    """Return what the last search of some traces put before the reader."""
    found = connection.execute(
        select(trace_chunks)
        .where(trace_chunks.c.trace_id.in_(trace_ids))
        .where(trace_chunks.c.returned, trace_chunks.c.in_prompt)
        .order_by(trace_chunks.c.attempt, trace_chunks.c.final_rank)
    )
    by_search: dict[str, dict[int, list[tuple[str, bool]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in found:
        by_search[row.trace_id][row.attempt].append((row.chunk_id, bool(row.cited)))
    shown = {}
    for trace_id, searches in by_search.items():
        last = searches[max(searches)]
        cited = [chunk_id for chunk_id, is_cited in last if is_cited]
        shown[trace_id] = Shown([chunk_id for chunk_id, _ in last], cited)
    return shown


def derive_skips(
    connection: Connection,
    namespace: str,
    clicks: Sequence[tuple[Event, int | None]],
    askers: Mapping[str, str | None],
    now: datetime,
) -> None:
    """Keep what new clicks, each with its rank, say of the sources above them.

    Doing it again changes nothing: the events' ids follow from trace, person and source.

    Args:
        connection: A transaction that excludes other writers of the namespace.
        namespace: Whose.
        clicks: Already kept, on traces that are there.
        askers: Who asked, by trace: an event without an actor is his.
        now: When they are received.
    """
    shown = read_shown(connection, sorted({click.trace_id for click, _ in clicks}))
    newest = {
        (click.trace_id, click.actor or askers.get(click.trace_id)): (click, rank)
        for click, rank in clicks
    }
    said = _said(connection, namespace, sorted({trace_id for trace_id, _ in newest}), askers)
    rows = []
    for (trace_id, voter), (click, rank) in newest.items():
        listed = shown[trace_id].around(click.target, rank) if trace_id in shown else []
        opened, known = said[trace_id, voter]
        for target in passed_over(listed, opened):
            if target not in known:
                event = Event(
                    trace_id, "source_skipped", now, target,
                    actor=click.actor, event_id=_id(trace_id, voter, target),
                )  # fmt: skip
                rows.append(event.as_row(namespace) | {"attached": True})
    if rows:
        connection.execute(insert(signals), rows)


def _said(
    connection: Connection,
    namespace: str,
    trace_ids: Sequence[str],
    askers: Mapping[str, str | None],
) -> dict[tuple[str, str | None], tuple[set[str], set[str]]]:
    """Return by trace and person the sources opened, and those of which a skip is known."""
    said: dict[tuple[str, str | None], tuple[set[str], set[str]]] = defaultdict(
        lambda: (set(), set())
    )
    rows = connection.execute(
        select(signals.c.trace_id, signals.c.actor, signals.c.signal, signals.c.target)
        .where(signals.c.namespace == namespace, signals.c.trace_id.in_(trace_ids))
        .where(signals.c.signal.in_(_CLICKS))
    )
    for row in rows:
        voter = row.actor or askers.get(row.trace_id)
        said[row.trace_id, voter][_CLICKS.index(row.signal)].add(row.target)
    return said


def _id(trace_id: str, voter: str | None, target: str) -> str:
    told = "\0".join((trace_id, voter or "", target)).encode()
    return f"skipped:{hashlib.sha256(told).hexdigest()[:32]}"
