"""Signed tokens that let a browser speak about one answer, and about nothing else.

A token is 62 characters of base64url: 30 bytes that say what it allows, and a 16 byte MAC
(HMAC-SHA-256, cut; RFC 2104). Nothing in it is secret and nothing is stored: it names its trace,
says until when it is good, and holds a keyed hash of who asked in place of the name.
"""

import base64
import hmac
import logging
import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, Self
from uuid import UUID

from langchain_feedback.errors import ExpiredTokenError, InvalidTokenError
from langchain_feedback.traces import storable

__all__ = ["FeedbackTokens", "Scope", "TokenClaims"]

Scope = Literal["signal", "owner", "review"]

_SCOPES: Final[dict[str, int]] = {"signal": 1, "owner": 2, "review": 3}
_VERSION = 1
_PAYLOAD = struct.Struct(">BB16sI8s")
"""Version, scope, subject, the second at which it expires, hash of who asked."""

_MAC_SIZE, _ACTOR_SIZE, _SUBJECT_SIZE = 16, 8, 16
_LENGTH = 62
_NOBODY = bytes(_ACTOR_SIZE)
_LAST_SECOND = 2**32 - 1  # in 2106

_SHORTEST_KEY, _FEWEST_BYTES = 32, 8
_HOW = 'Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'

logger = logging.getLogger(__name__)
_said = set[str]()


@dataclass(frozen=True)
class TokenClaims:
    """What a token says, once it is found to be good."""

    scope: Scope
    """What it allows."""
    subject: str
    """Its trace's id; for other scopes than `signal` a digest: see `FeedbackTokens.matches`."""
    expires_at: datetime
    """From when on it is refused."""
    actor: str | None
    """`token:` and 16 hexadecimal digits that stand for who asked; None where nobody is named."""


class _Key(NamedTuple):
    """A secret, as one key for each use: no output of one is ever good for another."""

    mac: bytes
    actor: bytes
    subject: bytes

    @classmethod
    def of(cls, secret: bytes) -> "_Key":
        return cls(*(_hash(secret, f"langchain-feedback {use} v1") for use in cls._fields))


class FeedbackTokens:
    """Issues and reads tokens.

    To rotate, put a new key in front and drop the old one when its last token has expired. A
    person's name in `TokenClaims.actor` is another one under a new key.

    Args:
        keys: Secrets of 32 bytes or more, newest first. The first signs, all verify.
        lifetime: How long a token is good, unless `issue` says so.

    Raises:
        ValueError: If there is no key, a key is weak, or the lifetime is not above 0.

    Example:
        >>> from langchain_feedback.traces import new_trace_id
        >>> tokens = FeedbackTokens(["a secret that was made by secrets.token_urlsafe"])
        >>> trace_id = new_trace_id()
        >>> token = tokens.issue(trace_id, actor="ann")
        >>> len(token), tokens.read(token).subject == trace_id
        (62, True)
    """

    def __init__(
        self, keys: Sequence[str | bytes], *, lifetime: timedelta = timedelta(days=30)
    ) -> None:
        if isinstance(keys, str | bytes) or not keys:
            msg = f"keys is a list of secrets, newest first, with one at least. {_HOW}"
            raise ValueError(msg)
        self._keys = [_Key.of(_checked(key)) for key in keys]
        self.lifetime = _positive(lifetime)

    @classmethod
    def from_env(cls, name: str = "LANGCHAIN_FEEDBACK_KEYS") -> Self | None:
        """Read the keys from an environment variable, separated by commas.

        Returns:
            None where it is not set or blank; the log says so once.

        Raises:
            ValueError: If a key is weak.
        """
        keys = [key.strip() for key in os.environ.get(name, "").split(",") if key.strip()]
        if keys:
            return cls(keys)
        if name not in _said:
            _said.add(name)
            logger.warning("%s is not set: there are no feedback tokens. %s", name, _HOW)
        return None

    def issue(
        self,
        subject: str,
        *,
        actor: str | None = None,
        scope: Scope = "signal",
        lifetime: timedelta | None = None,
        now: datetime | None = None,
    ) -> str:
        """Make a token.

        What a plain `FeedbackRetriever` returned takes one line:
        `tokens.issue(trace_id_of(documents), actor=user_id)`. Graphs issue theirs
        (`create_reliable_rag(tokens=...)`).

        Args:
            subject: A trace id; for other scopes than `signal` any text, such as a name.
            actor: Who asked: a user id, or `session:` and a session's. It is kept as a hash.
            scope: What it allows: signals on the trace, an owner's item, or reviewing.
            lifetime: How long it is good; it is rounded up to whole seconds.
            now: This instant, with a zone; None: the clock's.

        Returns:
            62 characters that need no escaping in URLs, headers, attributes and JSON.

        Raises:
            ValueError: If a trace id is no UUID as `new_trace_id` writes it, there is no such
                scope, the lifetime is not above 0 or ends after 2106, or `now` has no zone.
        """
        key = self._keys[0]
        _check_scope(scope)
        about = _trace(subject) if scope == "signal" else _digest(key, scope, subject)
        ends = _instant(now) + (self.lifetime if lifetime is None else _positive(lifetime))
        if (second := math.ceil(ends.timestamp())) > _LAST_SECOND:
            msg = f"A token cannot last until {ends:%Y}: pass a shorter lifetime."
            raise ValueError(msg)
        asker = _actor(key, actor) if actor else _NOBODY
        payload = _PAYLOAD.pack(_VERSION, _SCOPES[scope], about, second, asker)
        return _text(payload + _mac(key, payload))

    def read(
        self, token: str, *, scope: Scope = "signal", now: datetime | None = None
    ) -> TokenClaims:
        """Return what a token says.

        Args:
            token: As it came from a client: anything at all.
            scope: What it must allow.
            now: This instant, with a zone; None: the clock's.

        Raises:
            InvalidTokenError: If it is none, was changed in any character, was signed with a key
                that is not among these, or allows something else.
            ExpiredTokenError: If it was good once.
        """
        _check_scope(scope)
        version, code, about, second, asker = _PAYLOAD.unpack(self._opened(token))
        if version != _VERSION or code != _SCOPES[scope]:
            msg = f"This feedback token is for something else than {scope!r}."
            raise InvalidTokenError(msg)
        if (ends := datetime.fromtimestamp(second, UTC)) <= _instant(now):
            msg = f"This feedback token expired on {ends:%Y-%m-%d at %H:%M} UTC."
            raise ExpiredTokenError(msg)
        subject = str(UUID(bytes=about)) if scope == "signal" else about.hex()
        actor = None if asker == _NOBODY else f"token:{asker.hex()}"
        return TokenClaims(scope, subject, ends, actor)

    def matches(self, claims: TokenClaims, subject: str) -> bool:
        """Return whether a token was issued for a subject: a trace id, a name, an item.

        Example:
            >>> tokens = FeedbackTokens(["a secret that was made by secrets.token_urlsafe"])
            >>> claims = tokens.read(tokens.issue("ann", scope="review"), scope="review")
            >>> tokens.matches(claims, "ann"), tokens.matches(claims, "ben")
            (True, False)
        """
        if claims.scope == "signal":
            return hmac.compare_digest(claims.subject.encode(), storable(subject).encode())
        digests = [_digest(key, claims.scope, subject) for key in self._keys]
        return _is_among(claims.subject, digests)

    def is_actor(self, claims: TokenClaims, actor: str) -> bool:
        """Return whether a token was issued to somebody: the `actor` that `issue` was given.

        Example:
            >>> tokens = FeedbackTokens(["a secret that was made by secrets.token_urlsafe"])
            >>> token = tokens.issue("01890a5d-ac96-774b-bcce-b302099a8057", actor="ann")
            >>> tokens.is_actor(tokens.read(token), "ann")
            True
        """
        if claims.actor is None or not actor:
            return False
        given = claims.actor.removeprefix("token:")
        return _is_among(given, [_actor(key, actor) for key in self._keys])

    def _opened(self, token: object) -> bytes:
        """Return the payload of a token that one of the keys signed."""
        raw = _bytes(token)
        payload, mac = raw[: _PAYLOAD.size], raw[_PAYLOAD.size :]
        if not raw or not any(hmac.compare_digest(mac, _mac(key, payload)) for key in self._keys):
            msg = "This is no feedback token of this server, or it was changed on its way."
            raise InvalidTokenError(msg)
        return payload


def _checked(key: str | bytes) -> bytes:
    secret = key.encode() if isinstance(key, str) else key
    if len(secret) < _SHORTEST_KEY or len(set(secret)) < _FEWEST_BYTES:
        # Never the key itself: it may stand in a log.
        msg = f"A key is weak: it needs {_SHORTEST_KEY} random characters or more. {_HOW}"
        raise ValueError(msg)
    return secret


def _positive(lifetime: timedelta) -> timedelta:
    if lifetime <= timedelta(0):
        msg = f"A token's lifetime must be above 0, got {lifetime!r}"
        raise ValueError(msg)
    return lifetime


def _check_scope(scope: str) -> None:
    if scope not in _SCOPES:
        msg = f"There is no scope {scope!r}. There are: {', '.join(_SCOPES)}."
        raise ValueError(msg)


def _instant(now: datetime | None) -> datetime:
    if now is not None and now.tzinfo is None:
        msg = f"now needs a zone, got the naive {now!r}"
        raise ValueError(msg)
    return datetime.now(UTC) if now is None else now


def _trace(trace_id: str) -> bytes:
    """Return the bytes of a trace id, from which the same text can be made again."""
    try:
        found = UUID(trace_id)
    except (ValueError, AttributeError, TypeError):
        found = None
    if found is None or str(found) != trace_id:
        msg = f"A trace id must be a UUID as `new_trace_id()` makes it, got {trace_id!r:.60}"
        raise ValueError(msg)
    return found.bytes


def _hash(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _mac(key: _Key, payload: bytes) -> bytes:
    return hmac.digest(key.mac, payload, "sha256")[:_MAC_SIZE]


def _actor(key: _Key, actor: str) -> bytes:
    return _hash(key.actor, storable(actor))[:_ACTOR_SIZE]


def _digest(key: _Key, scope: str, subject: str) -> bytes:
    return _hash(key.subject, f"{scope}:{storable(subject)}")[:_SUBJECT_SIZE]


def _is_among(digits: str, digests: Sequence[bytes]) -> bool:
    return any(hmac.compare_digest(digits, digest.hex()) for digest in digests)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _bytes(token: object) -> bytes:
    """Return the bytes of a token; none where it is not written as `_text` writes it."""
    if not isinstance(token, str) or len(token) != _LENGTH:
        return b""
    try:
        raw = base64.urlsafe_b64decode(f"{token}==")
    except ValueError:
        return b""
    # base64 ignores some characters and the last bits: several texts would be one token.
    return raw if _text(raw) == token else b""
