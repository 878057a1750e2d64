"""The page behind a link in an e-mail: it asks once more before it votes.

Mail programs and their scanners follow links, so that a GET shows a form, and only its POST
says something. The page needs no script and loads nothing.
"""

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from langchain_feedback.errors import StoreError, TooManySignalsError
from langchain_feedback.server._bodies import BadRequestError, content_type, read_body
from langchain_feedback.server._events import Desk

__all__ = ["RatingPage"]

_MOST_BYTES = 65_536
_FIELDS = ("token", "signal", "rating", "event_id", "comment")
_FORM = "application/x-www-form-urlencoded"

_ASKED = {
    "thumbs_up": "Was this answer helpful?",
    "thumbs_down": "Was something wrong with this answer?",
    "rating": "Rate this answer",
    "correction": "What would have been right?",
}
_BUTTON = {
    "thumbs_up": "Yes, it helped",
    "thumbs_down": "Yes, something was wrong",
    "rating": "Send the rating {rating} of 5",
    "correction": "Send the correction",
}

_STYLE = """
:root { color-scheme: light dark }
body { font: 1.05rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 12vh auto; padding: 0 1.2rem }
h1 { font-size: 1.5rem; line-height: 1.25 }
label { display: block; margin: 1.2rem 0 .3rem }
textarea { box-sizing: border-box; width: 100%; font: inherit; padding: .5rem; border-radius: .4rem }
button { font: inherit; font-weight: 600; margin-top: 1.2rem; padding: .6rem 1.1rem; border: 0;
  border-radius: .4rem; background: #1a56a8; color: #fff; cursor: pointer }
:focus-visible { outline: 3px solid #e08a00; outline-offset: 2px }
"""  # noqa: E501
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}


class RatingPage:
    """Asks for a vote, and takes it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def respond(self, request: Request) -> Response:
        """Show the form, or keep what it sends."""
        try:
            if request.method != "POST":
                return self._form({name: request.query_params.get(name) for name in _FIELDS})
            if content_type(request) != _FORM:
                msg = "This page takes what its own form sends."
                raise BadRequestError(415, msg)  # noqa: TRY301  one place answers
            given = _fields(await read_body(request, _MOST_BYTES))
            address = request.client.host if request.client else None
            return await run_in_threadpool(self._keep, given, address)
        except BadRequestError as error:
            return _page("This did not work", str(error), error.status)

    def _form(self, given: dict[str, str | None]) -> Response:
        signal, rating = self._checked(given)
        hidden = {"token": given["token"], "signal": signal, "event_id": str(uuid4())}
        hidden |= {"rating": str(rating)} if rating else {}
        fields = "\n".join(
            f'<input type="hidden" name="{name}" value="{escape(value or "")}">'
            for name, value in hidden.items()
        )
        needed = " required" if signal == "correction" else ""
        label = "Your correction" if needed else "Anything to add? (optional)"
        button = _BUTTON[signal].format(rating=rating)
        return _page(
            _ASKED[signal],
            f'<form method="post" action="rate">\n{fields}\n'
            f'<label for="comment">{label}</label>\n'
            f'<textarea id="comment" name="comment" rows="4" maxlength="5000"{needed}>'
            "</textarea>\n"
            f'<button type="submit">{button}</button>\n</form>',
            is_html=True,
        )

    def _keep(self, given: dict[str, str | None], address: str | None) -> Response:
        signal, rating = self._checked(given)
        said = (given["comment"] or "").strip() or None
        event: dict[str, Any] = {
            "event_id": given["event_id"],
            "token": given["token"],
            "signal": signal,
            "rating": rating,
            "correction" if signal == "correction" else "comment": said,
        }
        try:
            [received] = self._desk.receive([event], address)
        except TooManySignalsError as error:
            response = _page("Please try again later", str(error), 429)
            response.headers["retry-after"] = str(error.retry_after_s)
            return response
        except StoreError:
            return _page("Please try again later", "It cannot be kept just now.", 503)
        if received.status == "rejected":
            raise BadRequestError(400, f"It was not kept: {received.reason}")
        return _page("Thank you", "Your feedback was kept. You can close this page.")

    def _checked(self, given: dict[str, str | None]) -> tuple[str, int | None]:
        """Return the signal and its rating.

        Raises:
            BadRequestError: If the link is no good any more, or never was.
        """
        try:
            self._desk.claims(given["token"])
        except ValueError as error:
            raise BadRequestError(403, f"This link does not work: {error}") from error
        signal, rating = given["signal"] or "", given["rating"] or ""
        if signal not in _ASKED or (signal == "rating" and rating not in set("12345")):
            msg = "This link does not say what to send: thumbs_up, thumbs_down or rating=1 to 5."
            raise BadRequestError(400, msg)
        return signal, int(rating) if signal == "rating" else None


def _fields(body: bytes) -> dict[str, str | None]:
    try:
        found = parse_qs(body.decode("utf-8"), max_num_fields=20)
    except ValueError as error:
        msg = "This is no form."
        raise BadRequestError(400, msg) from error
    return {name: found.get(name, [None])[0] for name in _FIELDS}


def _page(title: str, body: str, status: int = 200, *, is_html: bool = False) -> HTMLResponse:
    shown = body if is_html else f"<p>{escape(body)}</p>"
    text = _PAGE.format(title=escape(title), style=_STYLE, body=shown)
    return HTMLResponse(text, status, _HEADERS)
