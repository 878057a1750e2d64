"""The page that says whether the loop closes."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from langchain_feedback.loop.health import LoopHealth, ScorePoint, WeekHealth, loop_health
from langchain_feedback.server.figures import day
from langchain_feedback.server.plots import Plot, Series, draw, spark
from langchain_feedback.server.site import page, reviewer_of, site_of
from langchain_feedback.server.wording import RATES

__all__ = ["days_of", "health_routes", "score_plot", "tone_of"]

_DAYS, _MOST_DAYS = 28, 365
_LABELS = 7
_SCORES = 24


@dataclass(frozen=True)
class _Rate:
    """One thing that may go wrong with answers: now, before, and week by week."""

    name: str
    meaning: str
    now: float | None
    before: float | None
    spark: Markup

    @property
    def change(self) -> float | None:
        """How much more there is of it than before, in [-1, 1]."""
        if self.now is None or self.before is None:
            return None
        return self.now - self.before


def health_routes() -> list[Route]:
    """Return the route of the page."""
    return [Route("/health", _health, name="health")]


def _health(request: Request) -> Response:
    reviewer_of(request)
    days = days_of(request)
    health = loop_health(site_of(request).store, days=days)
    return page(
        request,
        "health.html",
        days=days,
        health=health,
        tone=tone_of(health.verdict),
        rates=_rates(health),
        queue_plot=_queue_plot(health.weeks),
        week_labels=sparse([day(week.until) for week in health.weeks]),
        score_plot=score_plot(health.rankers.scores[-_SCORES:]),
        score_labels=score_labels(health.rankers.scores[-_SCORES:]),
    )


def tone_of(verdict: str) -> str:
    """Return the color of a verdict.

    Example:
        >>> [tone_of(one) for one in ("closing", "collecting", "stuck: no run for 2 weeks")]
        ['good', 'accent', 'bad']
    """
    return {"closing": "good", "collecting": "accent"}.get(verdict, "bad")


def days_of(request: Request) -> int:
    """Return how many days a page is to look back."""
    given = request.query_params.get("days", "")
    whole = int(given) if given.isascii() and given.isdecimal() and len(given) <= 4 else _DAYS  # noqa: PLR2004
    return min(max(whole, 1), _MOST_DAYS)


def score_plot(points: Sequence[ScorePoint]) -> Plot | None:
    """Draw how each ranker did when it was tried, over what was active then."""
    if not points:
        return None
    tried = [point.score for point in points]
    before = [point.baseline_score for point in points]
    return draw(
        [Series("What was active then", before, tone=4), Series("The ranker", tried, tone=1)],
        f"nDCG of {len(points)} evaluations, from {tried[0]:.3f} to {tried[-1]:.3f}",
        from_zero=False,
    )


def score_labels(points: Sequence[ScorePoint]) -> list[str]:
    """Return the names of rankers for the x axis."""
    return sparse(["base" if point.number is None else f"#{point.number}" for point in points])


def sparse(labels: Sequence[str]) -> list[str]:
    """Return labels of which so many are empty that the others have room; the last one stays.

    Example:
        >>> sparse(list("abcdefgh"))
        ['', 'b', '', 'd', '', 'f', '', 'h']
    """
    every = -(-len(labels) // _LABELS)
    last = len(labels) - 1
    return [label if (last - at) % every == 0 else "" for at, label in enumerate(labels)]


def _rates(health: LoopHealth) -> list[_Rate]:
    return [
        _Rate(
            name=label,
            meaning=meaning,
            now=getattr(health.week, name),
            before=getattr(health.before, name),
            spark=spark(
                [getattr(week.rates, name) for week in health.weeks], f"{label}, week by week"
            ),
        )
        for name, (label, meaning) in RATES.items()
    ]


def _queue_plot(weeks: Sequence[WeekHealth]) -> Plot:
    return draw(
        [
            Series("Came in", [week.added for week in weeks], "bar", tone=2),
            Series("Cleared", [week.cleared for week in weeks], "bar", tone=1),
            Series("Waiting at the end", [week.waiting for week in weeks], "line", tone=3),
        ],
        f"The queue of {len(weeks)} weeks: {weeks[-1].waiting} items wait now",
    )
