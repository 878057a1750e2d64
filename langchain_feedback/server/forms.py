"""Forms that pages send: read within limits, and only from the session that they were made for."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

__all__ = ["Form", "takes_form"]

_MOST_BYTES, _MOST_FIELDS = 256 * 1024, 500


class Form:
    r"""The fields of a form, none of them trusted.

    Example:
        >>> form = Form(b"verdict=confirm&right=a&right=b&note=+ok%0D%0A")
        >>> form["verdict"], form.all("right"), form["note"], form["missing"]
        ('confirm', ['a', 'b'], ' ok\n', '')
    """

    def __init__(self, body: bytes) -> None:
        text = body.decode("ascii", errors="replace")
        self._fields = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)

    def __getitem__(self, name: str) -> str:
        # Browsers send the line breaks of a text field as CR LF.
        return self._fields.get(name, [""])[0].replace("\r\n", "\n")

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def all(self, name: str) -> list[str]:
        """Return each value of a field that may stand there several times."""
        return self._fields.get(name, [])

    def text(self, name: str) -> str | None:
        """Return what was written into a field, without blanks around it; None for nothing."""
        return self[name].strip() or None


def takes_form(
    endpoint: Callable[[Request, Form], Response],
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Make a Starlette endpoint of a sync function: the form is read here, the rest in a thread.

    A server that forbids blocking calls in its event loop, as LangGraph's does, is content.
    """

    async def call(request: Request) -> Response:
        return await run_in_threadpool(endpoint, request, await _read(request))

    call.__name__, call.__doc__ = endpoint.__name__, endpoint.__doc__
    return call


async def _read(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Send a plain form: application/x-www-form-urlencoded.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, "That is more text than a form may hold (256 KB).")
    try:
        return Form(body)
    except ValueError as error:
        raise HTTPException(400, "That form has too many fields.") from error
