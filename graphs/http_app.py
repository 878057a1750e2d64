"""The review pages and the signals endpoint under /feedback, beside a LangGraph server's graphs.

By environment: `LANGCHAIN_FEEDBACK_DATABASE` names the store (`sqlite:///feedback.db`, made with
the first request), `LANGCHAIN_FEEDBACK_NAMESPACE` whose feedback it is, `LANGCHAIN_FEEDBACK_KEYS`
the keys of tokens and reviewers' links, `LANGCHAIN_FEEDBACK_OWNERS` a file of who owns what.
With `"enable_custom_route_auth": true` under `http` in `langgraph.json` the server's own
authentication guards all of it, the signals endpoint too: a user with the permission `reviewer`
may review. Without the extra `server` the graphs are served all the same.
"""

import os
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from graphs.defaults import default_store
from langchain_feedback import FeedbackStore, FeedbackTokens
from langchain_feedback.loop.owners import Owners


def pages() -> ASGIApp:
    """Return the pages, or one that says what they need."""
    try:
        from langchain_feedback.server.app import create_app  # noqa: PLC0415  an extra
    except ImportError as error:
        return _missing(f'The pages need {error.name}: pip install "langchain-feedback[server]"')
    owners = os.environ.get("LANGCHAIN_FEEDBACK_OWNERS")
    return create_app(
        default_store() or FeedbackStore(),
        tokens=FeedbackTokens.from_env(),
        owners=Owners.from_toml(owners) if owners else None,
    )


def _missing(words: str) -> ASGIApp:
    def say(_: Request) -> Response:
        return PlainTextResponse(words, HTTPStatus.SERVICE_UNAVAILABLE)

    return Starlette(routes=[Route("/{path:path}", say, methods=["GET", "POST"])])


app = Starlette(routes=[Mount("/feedback", pages())])
