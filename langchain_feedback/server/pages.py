"""Signing in, signing out, and what is said when something does not work."""

import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from langchain_feedback.errors import StoreError, UnknownItemError
from langchain_feedback.server.auth import reviewer_name
from langchain_feedback.server.forms import Form, takes_form
from langchain_feedback.server.site import check_form, go_to, page, site_of
from langchain_feedback.server.wording import ERRORS

__all__ = ["HANDLERS", "door_routes"]

logger = logging.getLogger(__name__)


def door_routes() -> list[Route]:
    """Return the routes that lead in and out."""
    return [
        Route("/", _start, name="start"),
        Route("/login", _login, name="login"),
        Route("/login", takes_form(_give_name), methods=["POST"], name="give_name"),
        Route("/logout", takes_form(_logout), methods=["POST"], name="logout"),
    ]


def _start(request: Request) -> Response:
    return go_to(request, "queue")


def _login(request: Request) -> Response:
    """Let in who comes with a signed link; show the door to everybody else."""
    auth = site_of(request).auth
    name, token = (request.query_params.get(field, "") for field in ("reviewer", "token"))
    if not token:
        return go_to(request, "queue") if auth.reviewer(request) else _door(request, 200)
    kept = reviewer_name(name)
    if not auth.has_links or kept is None or not auth.accepts(name, token):
        return _door(request, 401, "This link does not fit: it ran out, or it was cut or changed.")
    response = go_to(request, "queue")
    auth.sign_in(request, response, kept)
    return response


def _give_name(request: Request, form: Form) -> Response:
    auth = site_of(request).auth
    if not auth.asks_name(request) or not _is_from_here(request):
        raise HTTPException(403, "A name is not enough here.")
    name = reviewer_name(form["name"])
    if name is None:
        return _door(request, 422, "Give a name of at most 80 characters.")
    response = go_to(request, "queue")
    auth.sign_in(request, response, name)
    return response


def _logout(request: Request, form: Form) -> Response:
    check_form(request, form)
    response = go_to(request, "login")
    site_of(request).auth.sign_out(request, response)
    return response


def _is_from_here(request: Request) -> bool:
    """Return whether our own page sent it; there is no session yet that a form could be of."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    own = f"{request.url.scheme}://{request.url.netloc}"
    return site in (None, "same-origin", "none") and origin in (None, own)


def _door(request: Request, status: int, problem: str | None = None) -> Response:
    auth = site_of(request).auth
    return page(
        request,
        "login.html",
        status=status,
        asks_name=auth.asks_name(request),
        has_links=auth.has_links,
        hours=round(auth.session.total_seconds() / 3600),
        permission=auth.permission,
        problem=problem,
    )


# -- what does not work


def _on_http_error(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    if status == 401:  # noqa: PLR2004
        return _door(request, 401)
    title, words = ERRORS.get(status, ERRORS[500])
    said = getattr(error, "detail", "")
    plain = HTTPException(status).detail
    headers = getattr(error, "headers", None)
    return page(
        request,
        "error.html",
        status=status,
        headers=headers,
        title=title,
        words=said if said and said != plain else words,
        number=status,
        kept=getattr(error, "kept", ()),
    )


def _on_unknown_item(request: Request, _: Exception) -> Response:
    return _on_http_error(request, HTTPException(404))


def _on_store_error(request: Request, error: Exception) -> Response:
    # The message may name a host or a file: it is for the log.
    logger.error("A review page could not be shown: %s", error)
    return _on_http_error(request, HTTPException(503))


HANDLERS = {
    HTTPException: _on_http_error,
    UnknownItemError: _on_unknown_item,
    StoreError: _on_store_error,
}
"""The app's exception handlers; sync ones run in a thread."""
