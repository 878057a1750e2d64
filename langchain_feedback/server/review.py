"""The queue: the next item, and what a reviewer makes of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast, get_args
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from langchain_feedback.errors import ClaimLostError, ReviewError
from langchain_feedback.loop.review import ReviewItem, Verdict
from langchain_feedback.server.auth import Reviewer
from langchain_feedback.server.forms import Form, takes_form
from langchain_feedback.server.site import check_form, go_to, page, reviewer_of, site_of
from langchain_feedback.server.wording import DONE, LOST, VERDICTS

__all__ = ["LostClaim", "review_routes"]

_PROGRESS_OF = timedelta(days=7)
_ID = re.compile(r"[\w-]{1,80}")
_CHUNK = dict.fromkeys(
    ("chunk_id", "text", "source", "heading", "url", "rank", "base_rank", "grade", "origin")
) | {"in_prompt": False, "cited": False}


class LostClaim(HTTPException):
    """A verdict came too late; what was written with it is shown again."""

    def __init__(self, words: str, form: Form) -> None:
        super().__init__(409, words)
        fields = (("What would be right", "correction"), ("Note", "note"))
        self.kept = [(label, form[name]) for label, name in fields if form.text(name)]


@dataclass(frozen=True)
class _Done:
    """What has just been done."""

    words: str
    item_id: str | None
    can_undo: bool


@dataclass(frozen=True)
class _Standing:
    """How an item stands that is not one's own."""

    title: str
    words: str
    can_claim: bool = False


def review_routes() -> list[Route]:
    """Return the routes of the queue."""
    return [
        Route("/queue", _queue, name="queue"),
        Route("/items/{item_id}", _item, name="item"),
        Route("/items/{item_id}/decide", takes_form(_decide), methods=["POST"], name="decide"),
        Route("/items/{item_id}/skip", takes_form(_skip), methods=["POST"], name="skip"),
        Route("/items/{item_id}/find", takes_form(_find), methods=["POST"], name="find"),
        Route("/items/{item_id}/claim", takes_form(_claim), methods=["POST"], name="claim"),
        Route("/undo", takes_form(_undo), methods=["POST"], name="undo"),
    ]


def _queue(request: Request) -> Response:
    reviewer = reviewer_of(request)
    item = site_of(request).queue.claim(reviewer.name)
    if item is None:
        return page(
            request, "queue_empty.html",
            progress=_progress(request), done=_done(request), warning=None,
        )  # fmt: skip
    return _show(request, item, reviewer)


def _item(request: Request) -> Response:
    reviewer = reviewer_of(request)
    item = site_of(request).queue.item(request.path_params["item_id"])
    return _show(request, item, reviewer)


def _decide(request: Request, form: Form) -> Response:
    reviewer = check_form(request, form)
    queue, item = site_of(request).queue, _claimed(request, form, reviewer)
    verdict = form["verdict"]
    if verdict not in get_args(Verdict):
        raise HTTPException(400, "That is no verdict.")
    try:
        queue.decide(
            item,
            cast("Verdict", verdict),
            right_chunks=form.all("right"),
            none_exists="none_exists" in form,
            failure_class=cast("Any", form.text("failure_class")),
            note=form.text("note"),
            correction=form.text("correction"),
        )
    except ClaimLostError as error:
        raise LostClaim(str(error), form) from error
    except (ReviewError, ValueError) as error:
        return _show(request, item, reviewer, form=form, warning=str(error), status=422)
    return go_to(request, "queue", urlencode({"done": item.item_id, "did": verdict}))


def _skip(request: Request, form: Form) -> Response:
    reviewer = check_form(request, form)
    item = _claimed(request, form, reviewer)
    try:
        site_of(request).queue.skip(item)
    except ClaimLostError as error:
        raise LostClaim(str(error), form) from error
    return go_to(request, "queue", urlencode({"done": item.item_id, "did": "skip"}))


def _find(request: Request, form: Form) -> Response:
    """Show the item again, as it was filled in, with what a search finds."""
    reviewer = check_form(request, form)
    queue = site_of(request).queue
    item = queue.claim(reviewer.name, item_id=request.path_params["item_id"])
    if item is None:
        raise LostClaim(LOST, form)
    sought = form.text("find")
    found = [_chunk(one) for one in queue.find(sought)] if sought else []
    return _show(request, item, reviewer, form=form, found=found)


def _claim(request: Request, form: Form) -> Response:
    reviewer = check_form(request, form)
    item_id = request.path_params["item_id"]
    if site_of(request).queue.claim(reviewer.name, item_id=item_id) is None:
        raise LostClaim(LOST, form)
    return go_to(request, "item", item_id=item_id)


def _undo(request: Request, form: Form) -> Response:
    reviewer = check_form(request, form)
    queue = site_of(request).queue
    item = queue.undo(reviewer.name)
    if item is None:
        return go_to(request, "queue", "did=nothing")
    queue.claim(reviewer.name, item_id=item.item_id)
    return go_to(request, "item", "did=undo", item_id=item.item_id)


def _claimed(request: Request, form: Form, reviewer: Reviewer) -> ReviewItem:
    """Return the item as the form has it: whether the claim still holds, the queue decides."""
    item = site_of(request).queue.item(request.path_params["item_id"])
    return replace(item, claimed_by=reviewer.name, claim_token=form["claim"])


# -- showing


def _show(
    request: Request,
    item: ReviewItem,
    reviewer: Reviewer,
    *,
    form: Form | None = None,
    found: Sequence[Mapping[str, Any]] = (),
    warning: str | None = None,
    status: int = 200,
) -> Response:
    is_mine = item.state == "open" and item.claimed_by == reviewer.name and _is_claimed(item)
    form = form or Form(b"")
    pool = [_chunk(one) for one in item.snapshot.get("chunks") or ()]
    right, events = form.all("right"), []
    if not is_mine and item.state != "open":
        events = site_of(request).queue.events(item.item_id)
        right = [chunk for event in events for chunk in event.right_chunks or ()]
    known = {one["chunk_id"] for one in pool}
    found = [one for one in found if one["chunk_id"] not in known]
    known |= {one["chunk_id"] for one in found}
    # What was ticked after a search before stays ticked, though it is not found again.
    ticked = [_chunk({"chunk_id": one}) for one in dict.fromkeys(right) if one not in known]
    targets = {one["chunk_id"]: f"chunk-{number}" for number, one in enumerate(pool, 1)}
    citations = item.snapshot.get("citations") or ()
    return page(
        request,
        "queue.html",
        status=status,
        item=item,
        is_mine=is_mine,
        pool_chunks=pool,
        found=[*found, *ticked],
        events=events,
        targets=targets,
        anchors={n: targets.get(one["chunk_id"], "main") for n, one in enumerate(citations, 1)},
        right=right,
        find=form["find"],
        none_exists="none_exists" in form,
        failure_class=form["failure_class"],
        correction=form["correction"],
        note=form["note"],
        verdicts=VERDICTS.get(item.kind, VERDICTS["answer"]),
        standing=_standing(item),
        progress=_progress(request),
        done=_done(request),
        warning=warning,
    )


def _is_claimed(item: ReviewItem) -> bool:
    return item.claimed_until is not None and item.claimed_until > datetime.now(UTC)


def _standing(item: ReviewItem) -> _Standing:
    if item.state == "open" and _is_claimed(item):
        until = f"{item.claimed_until:%H:%M} UTC"
        return _Standing("Taken", f"{item.claimed_by} looks at it until {until}.")
    if item.state == "open":
        return _Standing("Waiting", "Nobody looks at it now.", can_claim=True)
    if item.state == "expired":
        return _Standing(
            "Expired", "Nobody decided it in time. Mining finds it again if it lasts."
        )
    return _Standing("Decided", "It has its verdict.")


def _chunk(one: Any) -> dict[str, Any]:
    """Return a chunk with all that a page says of one."""
    fields = asdict(one) if is_dataclass(one) and not isinstance(one, type) else dict(one)
    return _CHUNK | fields


def _progress(request: Request) -> Any:
    return site_of(request).queue.progress(since=datetime.now(UTC) - _PROGRESS_OF)


def _done(request: Request) -> _Done | None:
    did = request.query_params.get("did", "")
    if did not in DONE or request.method != "GET":
        return None
    item_id = request.query_params.get("done", "")
    decided = did not in ("skip", "undo", "nothing")
    return _Done(DONE[did], item_id if _ID.fullmatch(item_id) else None, can_undo=decided)
