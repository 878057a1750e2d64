"""What fails together, and which documents it rests on."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from langchain_feedback.loop.citations import never_cited
from langchain_feedback.loop.clusters import failure_clusters
from langchain_feedback.loop.sources import source_reports
from langchain_feedback.loop.staleness import open_alarms
from langchain_feedback.server.site import page, reviewer_of, site_of

__all__ = ["source_routes"]

_DAYS, _MOST_DAYS = 28, 365


def source_routes() -> list[Route]:
    """Return the routes of clusters and sources."""
    return [
        Route("/clusters", _clusters, name="clusters"),
        Route("/sources", _sources, name="sources"),
    ]


def _clusters(request: Request) -> Response:
    reviewer_of(request)
    days = _days(request)
    clusters = failure_clusters(site_of(request).store, days=days)
    return page(request, "clusters.html", days=days, clusters=clusters)


def _sources(request: Request) -> Response:
    reviewer_of(request)
    store, days = site_of(request).store, _days(request)
    return page(
        request,
        "sources.html",
        days=days,
        alarms=open_alarms(store),
        sources=source_reports(store, days=days),
        unused=never_cited(store, days=days),
    )


def _days(request: Request) -> int:
    given = request.query_params.get("days", "")
    whole = int(given) if given.isascii() and given.isdecimal() and len(given) <= 4 else _DAYS  # noqa: PLR2004
    return min(max(whole, 1), _MOST_DAYS)
