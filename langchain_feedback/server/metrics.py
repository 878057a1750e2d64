"""The loop's numbers for Prometheus, at `{mount}/metrics`.

They are read from the database whenever somebody asks, so that each of several workers says the
same. All are gauges: what is counted is what happened in the last seven days, or how things stand
now. A rate may be absent where nothing is known.

Who may read them: a host's user with the permission `reviewer` or `metrics`; a reviewer who is
signed in; whoever sends `Authorization: Bearer TOKEN`, where a token is set (by `create_app`, or
by `LANGCHAIN_FEEDBACK_METRICS_TOKEN`); and where none is set, and no keys are, whoever asks from
this machine. There are no names of people, and no text of anybody, in them.
"""

import hmac
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from langchain_feedback.loop.health import LoopHealth, loop_health
from langchain_feedback.server.site import site_of
from langchain_feedback.server.wording import RATES

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import CollectorRegistry

    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["LoopCollector", "metric_routes", "registry_of"]

_PREFIX = "langchain_feedback_"
_DAYS, _DAY_S = 7, 86_400
_MISSING = 'Metrics need prometheus-client: pip install "langchain-feedback[telemetry]"\n'

_Values = Iterable[tuple[Mapping[str, str], float | None]]


def metric_routes(token: str | None = None) -> list[Route]:
    """Return the route of metrics.

    Args:
        token: Who sends it may read them; None: that of `LANGCHAIN_FEEDBACK_METRICS_TOKEN`.
    """
    variable = os.environ.get("LANGCHAIN_FEEDBACK_METRICS_TOKEN")
    # Read from a file, it ends with a new line, which no header does.
    token = (token or "").strip() or (variable or "").strip() or None

    def metrics(request: Request) -> Response:
        if (refused := _refused(request, token)) is not None:
            return refused
        try:
            from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  an extra
        except ImportError:
            return PlainTextResponse(_MISSING, 501)
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(
            encode(registry_of(site_of(request).store)), headers={"content-type": kind}
        )

    return [Route("/metrics", metrics, name="metrics")]


def registry_of(store: "FeedbackStore") -> "CollectorRegistry":
    """Return a registry of its own with the numbers of a store, for your own endpoint.

    Raises:
        ImportError: If prometheus-client is not installed.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> from prometheus_client import generate_latest
        >>> text = generate_latest(registry_of(FeedbackStore("sqlite://"))).decode()
        >>> 'langchain_feedback_state{namespace="default",state="collecting"} 1.0' in text
        True
    """
    from prometheus_client.registry import CollectorRegistry  # noqa: PLC0415  an extra

    registry = CollectorRegistry(auto_describe=False)
    registry.register(LoopCollector(store))
    return registry


class LoopCollector:
    """Reads the loop's numbers each time that it is asked: a collector of prometheus-client."""

    def __init__(self, store: "FeedbackStore") -> None:
        self._store = store

    def collect(self) -> Iterator["GaugeMetricFamily"]:
        """Yield the metrics."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415  an extra

        namespace = self._store.namespace
        for name, words, values in _metrics(loop_health(self._store, days=_DAYS)):
            known = [(labels, value) for labels, value in values if value is not None]
            if known:
                labels = ["namespace", *known[0][0]]
                family = GaugeMetricFamily(_PREFIX + name, words, labels=labels)
                for own, value in known:
                    family.add_metric([namespace, *own.values()], value)
                yield family


def _metrics(health: LoopHealth) -> Iterator[tuple[str, str, _Values]]:
    """Yield name, help and values of each metric."""
    word = health.verdict.partition(":")[0]
    states = ("closing", "collecting", "stuck")
    yield (
        "state",
        "1 for how the loop is",
        [({"state": one}, float(one == word)) for one in states],
    )
    yield from _queue(health)
    yield from _said(health)
    yield from _learned(health)
    if health.run is not None:
        begun = health.run.started_at.timestamp()
        yield "last_run_timestamp_seconds", "When the last run of the loop began", _one(begun)
        failed = float(health.run.state in ("failed", "interrupted"))
        yield "last_run_failed", "1 if the last run of the loop did not end well", _one(failed)


def _queue(health: LoopHealth) -> Iterator[tuple[str, str, _Values]]:
    queue, week = health.queue, health.weeks[-1]
    items = [({"state": "waiting"}, queue.waiting), ({"state": "claimed"}, queue.claimed)]
    yield "queue_items", "Items of the review queue", items
    oldest = None if queue.oldest_days is None else queue.oldest_days * _DAY_S
    yield "queue_oldest_seconds", "How long the oldest item waits", _one(oldest)
    yield "queue_added_7d", "Items that came in", _one(week.added)
    yield "queue_cleared_7d", "Items that got their verdict", _one(week.cleared)
    yield "review_seconds_median_7d", "From claim to verdict", _one(queue.median_seconds)
    yield "review_agreement", "Cohen's kappa of two reviewers", _one(queue.agreement)
    shares = _labeled("verdict", queue.verdicts)
    yield "review_verdict_ratio_7d", "Shares of the verdicts", shares
    yield "reviewed_questions", "Reviewed questions that name a right chunk", _one(queue.named)
    judged = {"grades": health.judges.grades, "grounded": health.judges.grounded}
    right = _labeled("judge", {name: one.accuracy for name, one in judged.items()})
    yield "judge_accuracy_ratio_7d", "How often a judge says what reviewers say", right


def _said(health: LoopHealth) -> Iterator[tuple[str, str, _Values]]:
    signals = health.signals
    yield "asks_7d", "Questions that people asked", _one(health.week.asks)
    yield "signals_7d", "Signals that clients sent", _one(signals.received)
    per_100 = _labeled("signal", signals.per_100)
    yield "signals_per_100_asks_7d", "Signals for every 100 questions", per_100
    shares = {"pending": signals.pending, "held": signals.held, "dropped": signals.dropped}
    yield "signals_ratio_7d", "Shares of the signals that do not count", _labeled("state", shares)
    lags = {"0.5": signals.lag_p50_seconds, "0.95": signals.lag_p95_seconds}
    yield "signal_lag_seconds_7d", "From question to signal", _labeled("quantile", lags)
    spans = {"7d": health.week, "28d_before": health.before}
    rates = [
        ({"rate": name, "window": window}, getattr(found, name))
        for window, found in spans.items()
        for name in RATES
    ]
    yield "answers_ratio", "What goes wrong with answers", rates
    lag = health.corrections.median_days
    seconds = None if lag is None else lag * _DAY_S
    yield "correction_lag_seconds_7d", "From a complaint to a good answer", _one(seconds)
    yield (
        "failing_questions_7d",
        "Questions that people complain of",
        _one(health.corrections.failing),
    )
    items = _labeled("state", health.corrections.owner_items)
    yield "owner_items", "What owners of documents are asked", items
    yield "source_alarms", "Open alarms over sources", _one(health.corrections.alarms)


def _learned(health: LoopHealth) -> Iterator[tuple[str, str, _Values]]:
    rankers = health.rankers
    active = next((one for one in rankers.versions if one.state == "active"), None)
    newest = next(iter(rankers.versions), None)
    yield "rankers", "Trained rankers", _one(len(rankers.versions))
    number = float(active.number) if active else 0.0
    yield "active_ranker", "Number of the ranker that is active, 0 for none", _one(number)
    tried = {"active": active, "newest": newest}
    scores = {name: one.score if one else None for name, one in tried.items()}
    yield "ranker_score", "Mean nDCG of the evaluation that counts", _labeled("ranker", scores)
    gains = {name: one.gain if one else None for name, one in tried.items()}
    yield "ranker_gain", "Against what was active then", _labeled("ranker", gains)
    yield "evaluation_cases", "Frozen cases", _one(rankers.cases)


def _one(value: float | None) -> _Values:
    return [({}, value)]


def _labeled(label: str, values: Mapping[str, float | None]) -> _Values:
    return [({label: name}, value) for name, value in values.items()]


def _refused(request: Request, token: str | None) -> Response | None:
    """Return what is said to somebody who may not read them; None: he may."""
    auth = site_of(request).auth
    if auth.may_measure(request) or _has_token(request, token):
        return None
    if token is None and auth.asks_name(request):
        return None
    words = "Send the metrics token: Authorization: Bearer TOKEN\n"
    return PlainTextResponse(words, 401, {"www-authenticate": "Bearer"})


def _has_token(request: Request, token: str | None) -> bool:
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if token is None or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(sent.strip().encode(), token.encode())
