"""OpenTelemetry: count what a store takes in, and how long its database takes.

```python
from langchain_feedback import FeedbackStore
from langchain_feedback.integrations.telemetry import instrument

store = instrument(FeedbackStore("sqlite:///feedback.db"))
```

Only the API is used (extra `telemetry`): where numbers go is up to the provider that your program
sets up, and without one nothing is counted. The store and the retrievers know nothing of it.

| metric | kind | attributes |
| --- | --- | --- |
| `langchain_feedback.searches` | counter | `namespace`, `attempt` (`first`, `rewritten`) |
| `langchain_feedback.search.chunks` | histogram: how many were returned | `namespace` |
| `langchain_feedback.answers` | counter | `namespace`, `status`, `grounded` |
| `langchain_feedback.signals` | counter | `namespace`, `signal`, `outcome` |
| `langchain_feedback.ratings` | histogram, 1 to 5 | `namespace`, `target` (`answer`, `source`) |
| `langchain_feedback.store.duration` | histogram in seconds | `operation`, `error.type` |
| `langchain_feedback.store.fallbacks` | counter: answers without the store | `operation` |

`outcome` is `accepted`, `duplicate`, `pending`, `held` or `rejected`. No attribute holds a
question, a chunk or a person. Each process counts what it does itself; what the database holds
(the queue, rates, rankers) is told by `server.metrics`, or by `loop.health.loop_health` for
gauges of your own.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_feedback.errors import MissingExtraError
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.inbox.events import Incoming, Received

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, MeterProvider

__all__ = ["instrument"]

_NAME = "langchain_feedback"
_FASTEST_FIRST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_RATINGS = (1, 2, 3, 4, 5)
_CHUNKS = (0, 1, 2, 4, 8, 16, 32, 64)

S = TypeVar("S", bound=FeedbackStore)


def instrument(store: S, *, meter_provider: "MeterProvider | None" = None) -> S:
    """Count what a store does from now on; return the same store. Twice is as once.

    Args:
        store: The scopes of it that exist, and those that come, are counted too.
        meter_provider: Where the numbers go; None: the program's global provider, also one that
            is set later.

    Raises:
        MissingExtraError: If opentelemetry-api is not installed.

    Example:
        >>> store = instrument(FeedbackStore("sqlite://"))
        >>> store.record_trace("t1", "How long?", [])
        >>> store.rate("t1", 5) != ""
        True
    """
    meters = _Meters.of(meter_provider)
    for scope in store._scopes.values():  # noqa: SLF001  ours
        scope._meters = meters  # noqa: SLF001
        kind = type(scope)
        if not issubclass(kind, _Counted):
            # Scopes that come later are made of their root's class and what it holds, so that
            # each one counts under its own name.
            members = {"__module__": kind.__module__, "__doc__": kind.__doc__}
            scope.__class__ = type(kind.__name__, (_Counted, kind), members)
    return store


@dataclass(frozen=True)
class _Meters:
    """The instruments of one provider."""

    searches: "Counter"
    chunks: "Histogram"
    answers: "Counter"
    signals: "Counter"
    ratings: "Histogram"
    duration: "Histogram"
    fallbacks: "Counter"

    @classmethod
    def of(cls, provider: "MeterProvider | None") -> "_Meters":
        """Make them."""
        try:
            from opentelemetry.metrics import get_meter  # noqa: PLC0415  an extra
        except ImportError as error:
            msg = (
                "Telemetry needs opentelemetry-api. "
                'Run: pip install "langchain-feedback[telemetry]"'
            )
            raise MissingExtraError(msg) from error
        meter = get_meter(_NAME, meter_provider=provider)

        def counter(name: str, unit: str, words: str) -> "Counter":
            return meter.create_counter(f"{_NAME}.{name}", unit, words)

        def histogram(name: str, unit: str, words: str, edges: Sequence[float]) -> "Histogram":
            return meter.create_histogram(
                f"{_NAME}.{name}", unit, words, explicit_bucket_boundaries_advisory=edges
            )

        return cls(
            searches=counter("searches", "{search}", "Searches that were recorded"),
            chunks=histogram("search.chunks", "{chunk}", "Chunks that one returned", _CHUNKS),
            answers=counter("answers", "{answer}", "Answers, and how they ended"),
            signals=counter("signals", "{signal}", "What people said of answers"),
            ratings=histogram("ratings", "1", "Ratings from 1 to 5", _RATINGS),
            duration=histogram(
                "store.duration", "s", "How long the database took", _FASTEST_FIRST
            ),
            fallbacks=counter("store.fallbacks", "{answer}", "Answers without the store"),
        )


class _Counted(FeedbackStore):
    """Stands before a store's own class and counts what passes."""

    _meters: _Meters

    def record_trace(
        self, trace_id: str, question: str, documents: Iterable[Any], **options: Any
    ) -> None:
        """Count a search."""
        found = list(documents)
        with self._timed("record_trace"):
            super().record_trace(trace_id, question, found, **options)
        self._count_search(found, options)

    def record_soon(
        self, trace_id: str, question: str, documents: Iterable[Any], **options: Any
    ) -> None:
        """Count a search."""
        found = list(documents)
        with self._timed("record_soon"):
            super().record_soon(trace_id, question, found, **options)
        self._count_search(found, options)

    def update_trace(self, trace_id: str, **facts: Any) -> None:
        """Count an answer."""
        with self._timed("update_trace"):
            super().update_trace(trace_id, **facts)
        self._count_answer(facts)

    def update_soon(self, trace_id: str, **facts: Any) -> None:
        """Count an answer."""
        with self._timed("update_soon"):
            super().update_soon(trace_id, **facts)
        self._count_answer(facts)

    def rate(self, trace_id: str, rating: int, **options: Any) -> str:
        """Count a rating."""
        with self._timed("rate"):
            event_id = super().rate(trace_id, rating, **options)
        self._count_signal("rating", "accepted", rating, is_source=bool(options.get("target")))
        return event_id

    def signal(self, trace_id: str, name: str, **options: Any) -> str:
        """Count a signal."""
        with self._timed("signal"):
            event_id = super().signal(trace_id, name, **options)
        self._count_signal(name, "accepted")
        return event_id

    def receive(self, events: Sequence[Incoming], **options: Any) -> list[Received]:
        """Count each event of a batch, and what became of it."""
        with self._timed("receive"):
            received = super().receive(events, **options)
        for event, one in zip(events, received, strict=True):
            is_vote = one.status in ("accepted", "pending")
            rating = event.rating if is_vote else None
            # Where it was rejected, its name may be anything that a client thought of.
            name = "unknown" if one.status == "rejected" else event.signal
            self._count_signal(name, one.status, rating, is_source=bool(event.target))
        return received

    def _say_away(self, what: str, error: Exception) -> None:
        self._meters.fallbacks.add(1, {"operation": what})
        super()._say_away(what, error)

    # -- counting

    @contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        start, failed = time.perf_counter(), {}
        try:
            yield
        except Exception as error:
            failed = {"error.type": type(error).__name__}
            raise
        finally:
            took = time.perf_counter() - start
            self._meters.duration.record(took, {"operation": operation} | failed)

    def _count_search(self, found: Sequence[Any], options: dict[str, Any]) -> None:
        mine = {"namespace": self.namespace}
        attempt = "rewritten" if options.get("attempt", 1) > 1 else "first"
        self._meters.searches.add(1, mine | {"attempt": attempt})
        # A traced chunk says whether it was returned; a document always was.
        returned = sum(bool(getattr(one, "returned", True)) for one in found)
        self._meters.chunks.record(returned, mine)

    def _count_answer(self, facts: dict[str, Any]) -> None:
        if (status := facts.get("status")) is None:
            return
        grounded = {True: "yes", False: "no"}.get(cast("bool", facts.get("grounded")), "unknown")
        attributes = {"namespace": self.namespace, "status": str(status), "grounded": grounded}
        self._meters.answers.add(1, attributes)

    def _count_signal(
        self, name: str, outcome: str, rating: int | None = None, *, is_source: bool = False
    ) -> None:
        mine = {"namespace": self.namespace}
        self._meters.signals.add(1, mine | {"signal": name, "outcome": outcome})
        if rating is not None:
            target = "source" if is_source else "answer"
            self._meters.ratings.record(rating, mine | {"target": target})
