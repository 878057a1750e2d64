"""The app: the signals endpoint, the pages and the metrics, to run alone or to mount anywhere."""

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.owners import Owners
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.server.auth import Auth
from langchain_feedback.server.health import health_routes
from langchain_feedback.server.metrics import metric_routes
from langchain_feedback.server.owner_pages import owner_routes
from langchain_feedback.server.pages import HANDLERS, door_routes
from langchain_feedback.server.rankers import ranker_routes
from langchain_feedback.server.review import review_routes
from langchain_feedback.server.security import SecurityHeaders
from langchain_feedback.server.signals import signal_routes
from langchain_feedback.server.site import FOLDER, Site
from langchain_feedback.server.sources import source_routes
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.tokens import FeedbackTokens

if TYPE_CHECKING:
    from langchain_feedback.store.inbox.limits import Limits

__all__ = ["create_app"]


def create_app(
    store: FeedbackStore,
    *,
    tokens: FeedbackTokens | None = None,
    owners: Owners | None = None,
    auth: Auth | None = None,
    limits: "Limits | None" = None,
    metrics_token: str | None = None,
) -> Starlette:
    """Make the app. It opens the store with the first request, and needs no lifespan.

    Args:
        store: Where signals go and what is reviewed; its owner closes it.
        tokens: Let browsers send signals, and sign reviewers' links. None: there are neither.
        owners: Who is asked to correct which document.
        auth: Who reviews; None: the host's users with the permission `reviewer`, signed links,
            and without keys whoever sits at this machine.
        limits: How many signals are taken from one sender; None: `Limits()`.
        metrics_token: Who sends it may read `/metrics`; None: see `server.metrics`.

    Example:
        >>> from starlette.applications import Starlette
        >>> from starlette.routing import Mount
        >>> from langchain_feedback import FeedbackStore
        >>> app = Starlette(routes=[Mount("/feedback", create_app(FeedbackStore("sqlite://")))])
    """
    static = StaticFiles(directory=FOLDER / "static")
    signals = [] if tokens is None else signal_routes(store, tokens, limits)
    app = Starlette(
        routes=[
            *door_routes(), *review_routes(), *source_routes(), *owner_routes(), *health_routes(),
            *ranker_routes(), *metric_routes(metrics_token), *signals,
            Mount("/static", static, name="static"),
        ],
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers=HANDLERS,
    )  # fmt: skip
    app.state.site = Site(
        store=store,
        auth=auth or Auth(tokens),
        queue=ReviewQueue(store, owners=owners),
        corrections=Corrections(store, owners),
    )
    return app
