"""Signed webhooks: how a message is signed, how its receiver checks it, and how it is sent.

The header `X-Feedback-Signature: t=1767225600,v1=fa7eaa...` holds the time in seconds since 1970
and the HMAC-SHA256, in hexadecimal, of that time, a full stop and the body's bytes, by the secret
that both sides know. Without this package a receiver checks it so::

    t, v1 = (part.split("=", 1)[1] for part in header.split(","))
    good = hmac.new(secret.encode(), t.encode() + b"." + body, "sha256").hexdigest()
    assert hmac.compare_digest(good, v1) and abs(time.time() - int(t)) < 300

A message may come twice: `Idempotency-Key` is the same then, and the body may be newer.
"""

import hmac
import re
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import httpx

from langchain_feedback.traces import storable

__all__ = ["SIGNATURE_HEADER", "Outcome", "post_signed", "sign", "verify_signature"]

SIGNATURE_HEADER = "X-Feedback-Signature"

_FORM = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")
_LONGEST_REASON = 300
_LATER = (408, 429)


class Outcome(NamedTuple):
    """What became of one attempt to deliver something."""

    kind: Literal["sent", "later", "failed"]
    """`later`: it may work another time; `failed`: it will not."""
    reason: str = ""
    after_s: float = 0.0
    """How long the receiver asks to wait, in seconds."""


def sign(body: bytes, secret: str, at: int) -> str:
    """Return the signature header of a body.

    Args:
        body: What is sent, byte for byte.
        secret: What the receiver knows, too.
        at: The time, in seconds since 1970.

    Example:
        >>> sign(b"{}", "secret", 1767225600)[:27]
        't=1767225600,v1=fa7eaa06bf9'
    """
    signed = hmac.new(secret.encode(), f"{at}.".encode() + body, "sha256")
    return f"t={at},v1={signed.hexdigest()}"


def verify_signature(
    header: str,
    body: bytes,
    secret: str,
    *,
    tolerance_s: float = 300,
    now: float | None = None,
) -> bool:
    """Tell whether a message comes from who knows the secret, and is not an old one sent again.

    Args:
        header: The value of `X-Feedback-Signature`.
        body: What came, byte for byte: before JSON was read.
        secret: What the sender signs with.
        tolerance_s: How old it may be, and how far the clocks may differ.
        now: In seconds since 1970; None: now.

    Example:
        >>> header = sign(b"{}", "secret", 1767225600)
        >>> verify_signature(header, b"{}", "secret", now=1767225660)
        True
        >>> verify_signature(header, b"{ }", "secret", now=1767225660)
        False
        >>> verify_signature(header, b"{}", "secret", now=1767229200)
        False
    """
    form = _FORM.fullmatch(header)
    if form is None:
        return False
    at = int(form[1])
    fresh = abs((time.time() if now is None else now) - at) <= tolerance_s
    return hmac.compare_digest(sign(body, secret, at), header) and fresh


def post_signed(
    url: str,
    body: bytes,
    *,
    secret: str,
    key: str,
    timeout_s: float = 10,
    pauses: Sequence[float] = (1.0, 4.0),
) -> Outcome:
    """Send a body, and send it again after each pause while that may help.

    A status of 2xx is success; 408, 429, 5xx and errors of the network may pass; any other is
    final. Redirects are not followed: the message would reach an address that nobody wrote down.

    Args:
        url: http or https.
        body: JSON.
        secret: What it is signed with.
        key: The same for each attempt at one message.
        timeout_s: For each step of an attempt: to connect, to write, to read the answer.
        pauses: How long to wait before each further attempt, in seconds.
    """
    if not url.lower().startswith(("http://", "https://")):
        return Outcome("failed", "Only http and https are spoken.")
    outcome = Outcome("later")
    with httpx.Client(timeout=timeout_s, follow_redirects=False) as client:
        for pause in (0.0, *pauses):
            time.sleep(pause)
            outcome = _attempt(client, url, body, secret, key)
            if outcome.kind != "later" or outcome.after_s > 0:
                break
    return outcome


def _attempt(client: httpx.Client, url: str, body: bytes, secret: str, key: str) -> Outcome:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "langchain-feedback",
        "Idempotency-Key": key,
        # Each attempt has its own time, or a late one would seem old.
        SIGNATURE_HEADER: sign(body, secret, int(time.time())),
    }
    try:
        # What the receiver answers is not read: its status says it all.
        with client.stream("POST", url, content=body, headers=headers) as response:
            return _outcome(response)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        return Outcome("failed", _short(f"No such address: {error}"))
    except httpx.HTTPError as error:
        return Outcome("later", _short(f"{type(error).__name__}: {error}"))


def _outcome(response: httpx.Response) -> Outcome:
    status = response.status_code
    said = _short(f"HTTP {status} {response.reason_phrase}".strip())
    if response.is_success:
        return Outcome("sent")
    if response.has_redirect_location:
        where = response.headers["location"].split("?")[0]
        return Outcome("failed", _short(f"{said}: it redirects to {where}; write that down"))
    if status in _LATER or response.is_server_error:
        wanted = response.headers.get("retry-after", "")
        return Outcome(
            "later", said, float(wanted) if wanted.isascii() and wanted.isdigit() else 0
        )
    return Outcome("failed", said)


def _short(text: str) -> str:
    return storable(text)[:_LONGEST_REASON]
