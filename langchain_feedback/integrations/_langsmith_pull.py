"""One import: people's feedback on runs becomes ratings of the traces behind them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from langchain_feedback.errors import UnknownTraceError
from langchain_feedback.integrations._langsmith_feedback import OURS, Taken, in_utc, taken
from langchain_feedback.store.feedback_store import FeedbackStore

if TYPE_CHECKING:
    from langsmith.schemas import Feedback

    from langchain_feedback.integrations._langsmith_api import LangSmithApi

__all__ = ["Pulled", "pull"]

_PAGE = 200


@dataclass(frozen=True)
class Pulled:
    """What an import did."""

    imported: int = 0
    """Feedback that the store holds now and did not hold before, or not in this form."""
    known: int = 0
    """Feedback that it held already."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """How much was left out, by reason: `ours` (the bridge sent it), `source` (no person gave
    it), `no run`, `no score` (a comment alone, or a score outside its scale), `no trace` (no run
    below the rated one names a trace), `several traces` (so that nobody can tell which one is
    meant), `unknown trace` (it is not in this store and namespace)."""


def pull(
    store: FeedbackStore,
    api: "LangSmithApi",
    since: datetime,
    scores: Mapping[str, tuple[float, float]],
    sources: Sequence[str],
) -> Pulled:
    """Import the feedback that was given since then, oldest first."""
    skipped: Counter[str] = Counter()
    wanted: list[tuple[Feedback, Taken]] = []
    for feedback in api.feedback_since(list(scores), since):
        if feedback.key not in scores or in_utc(feedback.created_at) < since:
            continue
        if reason := _why_not(feedback, sources):
            skipped[reason] += 1
        elif read := taken(feedback, scores[feedback.key]):
            wanted.append((feedback, read))
        else:
            skipped["no score"] += 1
    wanted.sort(key=lambda one: in_utc(one[0].modified_at))
    known = _known(store, [read.event_id for _, read in wanted])
    imported = 0
    traces: dict[UUID, set[str]] = {}
    for feedback, read in wanted:
        if read.event_id in known:
            continue
        if reason := _take(store, api, feedback, read, traces):
            skipped[reason] += 1
        else:
            imported += 1
    return Pulled(imported, len(known), dict(skipped))


def _why_not(feedback: "Feedback", sources: Sequence[str]) -> str | None:
    source = feedback.feedback_source
    if source is not None and (source.metadata or {}).get("source") == OURS:
        return "ours"
    if source is None or source.type not in sources:
        return "source"
    return "no run" if feedback.run_id is None else None


def _known(store: FeedbackStore, event_ids: Sequence[str]) -> set[str]:
    return {known for page in _pages(event_ids) for known in store.known_events(page)}


def _pages(event_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(event_ids), _PAGE):
        yield event_ids[at : at + _PAGE]


def _take(
    store: FeedbackStore,
    api: "LangSmithApi",
    feedback: "Feedback",
    read: Taken,
    traces: dict[UUID, set[str]],
) -> str | None:
    """Keep one feedback; return why not."""
    run_id = feedback.run_id
    if run_id is None:
        return "no run"
    if run_id not in traces:
        root = feedback.trace_id or run_id
        traces[run_id] = api.trace_ids_of(feedback, root, read.given_at)
    if len(traces[run_id]) != 1:
        return "several traces" if traces[run_id] else "no trace"
    [trace_id] = traces[run_id]
    try:
        _keep(store, trace_id, read)
    except UnknownTraceError:
        return "unknown trace"
    return None


def _keep(store: FeedbackStore, trace_id: str, read: Taken) -> None:
    if read.rating is None:
        store.signal(
            trace_id, "correction", actor=read.actor, comment=read.comment,
            correction=read.correction, event_id=read.event_id, client_time=read.given_at,
        )  # fmt: skip
    else:
        store.rate(
            trace_id, read.rating, actor=read.actor, comment=read.comment,
            correction=read.correction, event_id=read.event_id, client_time=read.given_at,
        )  # fmt: skip
