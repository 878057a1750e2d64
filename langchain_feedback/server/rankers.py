"""The page of trained rankers: how each one did, and promoting, watching or rolling back."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from langchain_feedback.errors import (
    ArtifactError,
    OutdatedError,
    PromotionRefusedError,
    UnknownRankerError,
)
from langchain_feedback.loop.health import RankersHealth, loop_health
from langchain_feedback.loop.promotion import promote, rollback, shadow
from langchain_feedback.server.forms import Form, takes_form
from langchain_feedback.server.health import score_labels, score_plot
from langchain_feedback.server.site import check_form, go_to, page, reviewer_of, site_of
from langchain_feedback.store.rankers import Activation, read_activations
from langchain_feedback.store.transactions import reading

__all__ = ["ranker_routes"]

_SCORES, _HISTORY = 24, 20
_DONE = {
    "promote": "It orders the pools from now on; retrievers follow within 30 seconds.",
    "rollback": "Rolled back; retrievers follow within 30 seconds.",
    "shadow": "It is watched from now on: it orders pools, and nobody sees that order.",
    "unshadow": "It is watched no more.",
}


def ranker_routes() -> list[Route]:
    """Return the routes of rankers."""
    return [
        Route("/rankers", _rankers, name="rankers"),
        Route("/rankers/rollback", takes_form(_roll_back), methods=["POST"], name="rollback"),
        Route("/rankers/change", takes_form(_change), methods=["POST"], name="change"),
    ]


def _rankers(request: Request) -> Response:
    reviewer_of(request)
    return _show(request, done=_DONE.get(request.query_params.get("done", "")))


def _change(request: Request, form: Form) -> Response:
    reviewer = check_form(request, form)
    store, ranker_id = site_of(request).store, form["ranker"]
    does = form["does"]
    if does not in ("promote", "shadow", "unshadow"):
        raise HTTPException(400, "There is no such thing to do with a ranker.")
    try:
        if does == "promote":
            force, after = form["force"] == "yes", _newest_shown(form)
            promote(store, ranker_id, actor=reviewer.name, force=force, after=after)
        else:
            shadow(store, ranker_id if does == "shadow" else None, actor=reviewer.name)
    except UnknownRankerError as error:
        raise HTTPException(404, "There is no such ranker.") from error
    except (ArtifactError, OutdatedError) as error:
        # No way around the gate is offered where a look at the new page is all that it needs.
        return _show(request, warning=str(error), status=409)
    except PromotionRefusedError as error:
        return _show(request, warning=str(error), refused=ranker_id, status=409)
    return go_to(request, "rankers", f"done={does}")


def _roll_back(request: Request, form: Form) -> Response:
    reviewer = check_form(request, form)
    try:
        # Two clicks must not roll back twice.
        rollback(site_of(request).store, actor=reviewer.name, after=_newest_shown(form))
    except PromotionRefusedError as error:
        return _show(request, warning=str(error), status=409)
    return go_to(request, "rankers", "done=rollback")


def _newest_shown(form: Form) -> int:
    """Return the number of the activation that the form's page showed as the newest."""
    given = form["newest"]
    return int(given) if given.isascii() and given.isdecimal() else -1


def _show(
    request: Request,
    *,
    done: str | None = None,
    warning: str | None = None,
    refused: str | None = None,
    status: int = 200,
) -> Response:
    store = site_of(request).store
    # First of all: what is promoted meanwhile makes the forms of this page out of date, and does
    # not pass for what the page shows.
    with reading(store) as connection:
        history = read_activations(connection, store.namespace)
    health = loop_health(store)
    points = health.rankers.scores[-_SCORES:]
    return page(
        request,
        "rankers.html",
        status=status,
        health=health,
        rankers=health.rankers,
        names=_names(health.rankers),
        points=points,
        plot=score_plot(points),
        labels=score_labels(points),
        history=_newest(history),
        newest=history[-1].seq if history else 0,
        done=done,
        warning=warning,
        refused=refused,
    )


def _names(rankers: RankersHealth) -> Mapping[str | None, str]:
    """Return what rankers are called."""
    named: dict[str | None, str] = {one.ranker_id: f"#{one.number}" for one in rankers.versions}
    return named | {None: "the base's own order"}


def _newest(history: list[Activation]) -> list[Activation]:
    return history[::-1][:_HISTORY]
