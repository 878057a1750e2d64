"""Reading what a request brings, up to a size."""

from contextlib import suppress

from starlette.requests import ClientDisconnect, Request

__all__ = ["BadRequestError", "content_type", "read_body"]


class BadRequestError(Exception):
    """A request that is answered with a status and a plain sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_body(request: Request, most: int) -> bytes:
    """Return a request's body; what is too large is not read to its end.

    Args:
        request: Whose.
        most: How many bytes it may have, whatever it says of itself.

    Raises:
        BadRequestError: If it is larger, or ends early.
    """
    msg = f"A request has at most {most:,} bytes."
    with suppress(ValueError):
        if int(request.headers.get("content-length", "0")) > most:
            raise BadRequestError(413, msg)
    read = bytearray()
    try:
        async for chunk in request.stream():
            read += chunk
            if len(read) > most:
                raise BadRequestError(413, msg)
    except ClientDisconnect as error:
        told = "The request ended early."
        raise BadRequestError(400, told) from error
    return bytes(read)


def content_type(request: Request) -> str:
    """Return the media type of a request, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
