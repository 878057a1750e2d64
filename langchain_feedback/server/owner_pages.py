"""What owners are asked to correct: how far it is, and moving it on."""

from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from langchain_feedback.loop.corrections import NEXT_STATES, ItemStateError
from langchain_feedback.server.forms import Form, takes_form
from langchain_feedback.server.site import check_form, go_to, page, reviewer_of, site_of
from langchain_feedback.server.wording import STATES

__all__ = ["owner_routes"]

_MOST = 500


def owner_routes() -> list[Route]:
    """Return the routes of corrections."""
    return [
        Route("/corrections", _corrections, name="corrections"),
        Route("/corrections/{item_id}", takes_form(_move), methods=["POST"], name="move"),
    ]


def _corrections(request: Request) -> Response:
    reviewer_of(request)
    return _show(request, _state(request.query_params.get("state", "")))


def _move(request: Request, form: Form) -> Response:
    reviewer = check_form(request, form)
    shown = _state(form["shown"])
    if form["state"] not in STATES:
        raise HTTPException(400, "There is no such state.")
    corrections = site_of(request).corrections
    try:
        corrections.move(request.path_params["item_id"], form["state"], actor=reviewer.name)
    except ItemStateError as error:  # somebody else was faster
        return _show(request, shown, warning=str(error), status=409)
    return go_to(request, "corrections", urlencode({"state": shown} if shown else {}))


def _show(
    request: Request, state: str, *, warning: str | None = None, status: int = 200
) -> Response:
    corrections = site_of(request).corrections
    return page(
        request,
        "corrections.html",
        status=status,
        items=corrections.items(state=state or None, limit=_MOST),
        counts=corrections.counts(),
        state=state,
        moves=NEXT_STATES,
        done=None,
        warning=warning,
    )


def _state(given: str) -> str:
    return given if given in STATES else ""
