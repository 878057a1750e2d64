"""The endpoint to which browsers send what people do with an answer.

`POST v1/signals` takes `{"events": [...]}`, at most 50 events and 64 KB, as `application/json` or
`text/plain` (which a browser sends to another origin without asking first). An event:

| field | |
| --- | --- |
| `event_id` | made by the client, one for each submission: what is sent twice counts once |
| `token` | of the answer: it says which one, and who speaks |
| `signal` | one of `CLIENT_SIGNALS` |
| `target` | the chunk id of a source; absent: the answer |
| `rating` | 1 to 5, of a `rating` |
| `ms` | visible milliseconds, of a `dwell` |
| `rank` | where the source stood in the list, from 0 |
| `comment`, `correction` | at most 5,000 characters |
| `client_time` | ISO 8601 with a zone |

It answers 202 with `{"events": [{"event_id", "status", "reason"}]}` in the same order; a status
is `accepted`, `duplicate`, `pending` or `rejected`, which alone has a reason. It is 429 with
`Retry-After` where a limit is reached: nothing was kept, send it again.
Errors are `{"error": "..."}`.

`v1/rate?token=...&signal=thumbs_up` is for e-mails: a page that asks once more, since programs
follow links. `v1/feedback.js` is the snippet for pages.

Endpoints that touch the database run in threads: servers such as LangGraph's refuse one that
blocks their event loop. Behind a proxy, run uvicorn with `--proxy-headers`; else all people
share one address and its limit.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from langchain_feedback.errors import StoreError, TooManySignalsError
from langchain_feedback.server._bodies import BadRequestError, content_type, read_body
from langchain_feedback.server._events import Desk, parse_events
from langchain_feedback.server._rating_page import RatingPage
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.inbox.events import Received
from langchain_feedback.store.inbox.limits import DEFAULT_LIMITS, Limits
from langchain_feedback.tokens import FeedbackTokens

__all__ = ["mount_signals", "signal_routes"]

MOST_BYTES = 65_536
_TYPES = ("application/json", "text/plain")
_AGAIN_S = 30

Endpoint = Callable[[Request], Awaitable[Response]]


def signal_routes(
    store: FeedbackStore,
    tokens: FeedbackTokens,
    limits: Limits | None = None,
    allow_origins: Sequence[str] = ("*",),
) -> list[Route]:
    """Return the routes for signals: relative, to be mounted anywhere.

    Args:
        store: Where they are kept.
        tokens: Reads the tokens; the graph issues them with the same keys.
        limits: How much is taken; None: `Limits()`.
        allow_origins: Which pages may send, such as `https://docs.example.com`; `*`: all. The
            token says what may be said; cookies play no part.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> from langchain_feedback.tokens import FeedbackTokens
        >>> tokens = FeedbackTokens(["a secret of at least 32 characters"])
        >>> [route.path for route in signal_routes(FeedbackStore("sqlite://"), tokens)]
        ['/v1/signals', '/v1/rate', '/v1/feedback.js']
    """
    desk = Desk(store, tokens, limits or DEFAULT_LIMITS)
    page = RatingPage(desk)
    take = _with_origins(_signals(desk), allow_origins)
    return [
        Route("/v1/signals", take, methods=["POST", "OPTIONS"]),
        Route("/v1/rate", page.respond, methods=["GET", "POST"]),
        Route("/v1/feedback.js", _snippet, methods=["GET"]),
    ]


def mount_signals(
    app: Starlette,
    store: FeedbackStore,
    tokens: FeedbackTokens,
    path: str = "/feedback",
    *,
    limits: Limits | None = None,
    allow_origins: Sequence[str] = ("*",),
) -> None:
    """Add the routes for signals to an application of Starlette's kind, such as FastAPI.

    Args:
        app: Yours; its own authentication applies, if it has one for all routes.
        store: Where signals are kept.
        tokens: Reads the tokens.
        path: Under which they appear: `POST /feedback/v1/signals`.
        limits: See `signal_routes`.
        allow_origins: See `signal_routes`.
    """
    routes = signal_routes(store, tokens, limits, allow_origins)
    app.mount(path, Starlette(routes=routes))


def _signals(desk: Desk) -> Endpoint:
    async def signals(request: Request) -> Response:
        try:
            if content_type(request) not in _TYPES:
                msg = f"Send {' or '.join(_TYPES)}."
                raise BadRequestError(415, msg)  # noqa: TRY301  one place answers
            events = parse_events(await read_body(request, MOST_BYTES))
            address = request.client.host if request.client else None
            received = await run_in_threadpool(desk.receive, events, address)
        except BadRequestError as error:
            return JSONResponse({"error": str(error)}, error.status)
        except TooManySignalsError as error:
            return _later(429, str(error), error.retry_after_s)
        except StoreError:
            # What it says of the database is nobody's business out there.
            return _later(503, "Signals cannot be kept just now; send them again.", _AGAIN_S)
        return JSONResponse({"events": [_told(one) for one in received]}, 202)

    return signals


def _told(one: Received) -> dict[str, str | None]:
    # Who floods is not told what was noticed.
    status = "accepted" if one.status == "held" else one.status
    told = {"event_id": one.event_id, "status": status}
    return told if one.reason is None else told | {"reason": one.reason}


def _later(status: int, message: str, seconds: int) -> Response:
    headers = {"retry-after": str(seconds)}
    return JSONResponse({"error": message, "retry_after_s": seconds}, status, headers)


def _with_origins(endpoint: Endpoint, allowed: Sequence[str]) -> Endpoint:
    async def respond(request: Request) -> Response:
        origin = request.headers.get("origin")
        headers = _cors(origin, request.headers.get("host", ""), allowed)
        if headers is None:
            return JSONResponse({"error": f"Pages of {origin} may not send signals."}, 403)
        if request.method == "OPTIONS":
            asked = {"methods": "POST", "headers": "content-type"}
            more = {f"access-control-allow-{name}": value for name, value in asked.items()}
            return Response(None, 204, headers | more | {"access-control-max-age": "86400"})
        response = await endpoint(request)
        response.headers.update(headers)
        return response

    return respond


def _cors(origin: str | None, host: str, allowed: Sequence[str]) -> dict[str, str] | None:
    """Return the headers that let a page read the answer; None where it may not send.

    Example:
        >>> _cors("https://a.example", "b.example", ["https://a.example"])
        {'access-control-allow-origin': 'https://a.example', 'vary': 'origin'}
        >>> _cors("https://c.example", "b.example", ["https://a.example"]) is None
        True
    """
    if "*" in allowed:
        return {"access-control-allow-origin": "*"}
    if origin is None or urlsplit(origin).netloc == host:
        return {"vary": "origin"}
    if origin not in allowed:
        return None
    return {"access-control-allow-origin": origin, "vary": "origin"}


async def _snippet(_: Request) -> Response:
    headers = {"cache-control": "public, max-age=3600", "x-content-type-options": "nosniff"}
    return Response(_script(), media_type="text/javascript", headers=headers)


@cache
def _script() -> str:
    return (files("langchain_feedback.server") / "static" / "feedback.js").read_text("utf-8")


_script()  # now: an event loop has no time for files
