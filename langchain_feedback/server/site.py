"""What the pages share: the store behind them, who reviews, and how a page is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.quotes.plain import link_of, plain_text
from langchain_feedback.server import wording
from langchain_feedback.server.auth import Auth, Reviewer
from langchain_feedback.server.forms import Form
from langchain_feedback.server.marks import marked_answer, marked_chunk
from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["FOLDER", "Site", "check_form", "go_to", "page", "path_to", "reviewer_of", "site_of"]

FOLDER = Path(str(files("langchain_feedback.server")))


@dataclass(frozen=True)
class Site:
    """What every page stands on."""

    store: FeedbackStore
    auth: Auth
    queue: ReviewQueue
    corrections: Corrections


def site_of(request: Request) -> Site:
    """Return the site that a request is for."""
    return cast("Site", request.app.state.site)


def path_to(request: Request, name: str, **parameters: Any) -> str:
    """Return the path of a page, wherever the app is mounted.

    Starlette's `url_for` asks the outermost app, which may have a page of the same name.
    """
    inside = request.app.url_path_for(name, **parameters)
    return f"{request.scope.get('root_path', '').rstrip('/')}{inside}"


def go_to(request: Request, name: str, query: str = "", **parameters: Any) -> Response:
    """Send the browser to a page."""
    path = path_to(request, name, **parameters)
    return RedirectResponse(f"{path}?{query}" if query else path, status_code=303)


def reviewer_of(request: Request) -> Reviewer:
    """Return who reviews.

    Raises:
        HTTPException: 401 for nobody, 403 for one of the host's users who may not.
    """
    auth = site_of(request).auth
    if (reviewer := auth.reviewer(request)) is not None:
        return reviewer
    raise HTTPException(403 if auth.is_stranger(request) else 401)


def check_form(request: Request, form: Form) -> Reviewer:
    """Return who sent a form, which was made for the session that he has now.

    Raises:
        HTTPException: 401 or 403 as `reviewer_of`, and 403 for a form of elsewhere.
    """
    reviewer = reviewer_of(request)
    elsewhere = request.headers.get("sec-fetch-site") == "cross-site"
    if elsewhere or not site_of(request).auth.is_csrf(reviewer.session, form["csrf"]):
        raise HTTPException(403, wording.STALE_FORM)
    return reviewer


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **context: Any,
) -> Response:
    """Write a page."""
    auth = site_of(request).auth
    reviewer = auth.reviewer(request)
    text = (
        _environment()
        .get_template(template)
        .render(
            context,
            reviewer=reviewer,
            csrf=auth.csrf(reviewer.session) if reviewer else "",
            nonce=request.state.nonce,
            url=lambda name, **parameters: path_to(request, name, **parameters),
            static=lambda name: f"{path_to(request, 'static', path=name)}?v={_version(name)}",
        )
    )
    return HTMLResponse(text, status_code=status, headers=headers)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(wording.FILTERS, plain=plain_text, link=link_of)
    environment.globals.update(
        wording=wording, marked_answer=marked_answer, marked_chunk=marked_chunk
    )
    return environment


@cache
def _version(name: str) -> str:
    return sha256((FOLDER / "static" / name).read_bytes()).hexdigest()[:12]
