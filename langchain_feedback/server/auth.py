"""Who reviews: the host's own user, somebody with a signed link, or whoever sits at this machine.

Nobody else gets in. A form is good for the session that it was made for.
"""

import ipaddress
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from langchain_feedback.errors import TokenError
from langchain_feedback.tokens import FeedbackTokens
from langchain_feedback.traces import storable

__all__ = ["Auth", "Reviewer", "is_loopback", "reviewer_name"]

_COOKIE = "lcf_reviewer"
_LONGEST_NAME = 80


@dataclass(frozen=True)
class Reviewer:
    """Who reviews, for the length of a request."""

    name: str
    session: str
    """What his forms are bound to."""
    can_leave: bool
    """Whether he signed in here, and may sign out here."""


class Auth:
    """Tells who reviews.

    In this order: the host's user (`scope["user"]`, put there by its authentication) if he has
    the permission; the cookie that a signed link or the question for a name left behind. Names
    are asked for only where no keys are set, the host knows nobody, and the request comes from
    this machine and was sent to it by that name.

    Args:
        tokens: Sign the links and the sessions. None: there are no links, and sessions end with
            the process.
        permission: What the host's users need, as one of their scopes or permissions.
        session: How long a cookie is good for.

    Example:
        >>> auth = Auth(FeedbackTokens(["a key of at least 32 characters...."]))
        >>> auth.accepts("ann", auth.invite("ann")), auth.accepts("ben", auth.invite("ann"))
        (True, False)
    """

    def __init__(
        self,
        tokens: FeedbackTokens | None = None,
        *,
        permission: str = "reviewer",
        session: timedelta = timedelta(hours=8),
    ) -> None:
        self.has_links = tokens is not None
        self.permission, self.session = permission, session
        self._tokens = tokens or FeedbackTokens([secrets.token_urlsafe(32)])

    # -- who it is

    def reviewer(self, request: Request) -> Reviewer | None:
        """Return who reviews, or None for nobody that may."""
        if (name := self._host_reviewer(request)) is not None:
            return Reviewer(name, f"host:{name}", can_leave=False)
        name, token = _split(request.cookies.get(_COOKIE, ""))
        if not name or not self.accepts(name, token) or not (self.has_links or _asks(request)):
            return None
        return Reviewer(name, token, can_leave=True)

    def asks_name(self, request: Request) -> bool:
        """Return whether it is enough to say one's name here."""
        return not self.has_links and _asks(request)

    def may_measure(self, request: Request) -> bool:
        """Return whether somebody who is known here may read the metrics.

        A reviewer may, and a host's user with the permission `metrics`.
        """
        user = _host_user(request)
        if user is not None and "metrics" in _permissions(request, user):
            return True
        return self.reviewer(request) is not None

    def is_stranger(self, request: Request) -> bool:
        """Return whether the host knows who it is, and he may not review."""
        return _host_user(request) is not None and self._host_reviewer(request) is None

    def _host_reviewer(self, request: Request) -> str | None:
        user = _host_user(request)
        if user is None or self.permission not in _permissions(request, user):
            return None
        return reviewer_name(_identity(user))

    # -- signed links and sessions

    def invite(
        self, name: str, *, lifetime: timedelta | None = None, now: datetime | None = None
    ) -> str:
        """Return the token of a reviewer's link, `/login?reviewer=NAME&token=TOKEN`."""
        subject = f"reviewer:{name}"
        return self._tokens.issue(subject, scope="review", lifetime=lifetime, now=now)

    def accepts(self, name: str, token: str) -> bool:
        """Return whether a token lets this reviewer in."""
        return self._is_about(token, f"reviewer:{name}")

    def sign_in(self, request: Request, response: Response, name: str) -> None:
        """Let a browser in: set the cookie."""
        value = f"{quote(name, safe='')}.{self.invite(name, lifetime=self.session)}"
        response.set_cookie(
            _COOKIE, value, max_age=int(self.session.total_seconds()), **_cookie_place(request)
        )

    def sign_out(self, request: Request, response: Response) -> None:
        """Take the cookie back."""
        response.delete_cookie(_COOKIE, **_cookie_place(request))

    # -- forms

    def csrf(self, session: str) -> str:
        """Return what a form of this session carries."""
        return self._tokens.issue(f"csrf:{session}", scope="review", lifetime=self.session)

    def is_csrf(self, session: str, token: str) -> bool:
        """Return whether a form was made for this session."""
        return self._is_about(token, f"csrf:{session}")

    def _is_about(self, token: str, subject: str) -> bool:
        try:
            claims = self._tokens.read(token, scope="review")
        except TokenError:
            return False
        return self._tokens.matches(claims, subject)


def reviewer_name(text: str) -> str | None:
    """Return a name as it is kept, or None where it is none.

    Example:
        >>> reviewer_name("  Ann  Lee "), reviewer_name(" "), reviewer_name("x" * 81)
        ('Ann Lee', None, None)
    """
    name = " ".join(storable(text).split())
    return name if name and name.isprintable() and len(name) <= _LONGEST_NAME else None


def is_loopback(request: Request) -> bool:
    """Return whether a request comes from this machine, and names it.

    One that a proxy passed on, or that a page of elsewhere sent to a name that it let point
    here (DNS rebinding), does not.
    """
    forwarded = any(name in request.headers for name in ("forwarded", "x-forwarded-for"))
    if forwarded or request.client is None or not _is_local(request.client.host):
        return False
    try:
        named = request.url.hostname or ""
    except ValueError:
        return False
    return named == "localhost" or _is_local(named)


def _asks(request: Request) -> bool:
    return _host_user(request) is None and is_loopback(request)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_user(request: Request) -> Any | None:
    user = request.scope.get("user")
    return user if getattr(user, "is_authenticated", False) else None


def _identity(user: Any) -> str:
    try:
        return str(user.identity)
    except NotImplementedError:  # Starlette's own users have a name only
        return str(user.display_name)


def _permissions(request: Request, user: Any) -> set[str]:
    scopes = getattr(request.scope.get("auth"), "scopes", None) or ()
    return {str(one) for one in (*scopes, *(getattr(user, "permissions", None) or ()))}


def _split(cookie: str) -> tuple[str, str]:
    # A token holds no point, and a quoted name may.
    name, _, token = cookie.rpartition(".")
    return unquote(name), token


def _cookie_place(request: Request) -> dict[str, Any]:
    return {
        "path": request.scope.get("root_path", "") or "/",
        "secure": request.url.scheme == "https",
        "httponly": True,
        "samesite": "lax",
    }
