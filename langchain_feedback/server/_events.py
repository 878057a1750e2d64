"""From the JSON of a request to events: each by itself, and each with a token."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from langchain_feedback.server._bodies import BadRequestError
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.inbox.events import Incoming, Received, usable_id
from langchain_feedback.store.inbox.limits import DEFAULT_LIMITS, Limits
from langchain_feedback.tokens import FeedbackTokens, TokenClaims

__all__ = ["MOST_EVENTS", "Desk", "parse_events"]

MOST_EVENTS = 50


def parse_events(body: bytes) -> list[Any]:
    """Return the events of a request's body, as they are.

    Raises:
        BadRequestError: If the body is none.

    Example:
        >>> parse_events(b'{"events": [{"event_id": "e1"}]}')
        [{'event_id': 'e1'}]
    """
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        msg = "The body is no JSON."
        raise BadRequestError(400, msg) from error
    events = found.get("events") if isinstance(found, dict) else None
    if not isinstance(events, list) or not 1 <= len(events) <= MOST_EVENTS:
        msg = f'The body is {{"events": [...]}} with 1 to {MOST_EVENTS} of them.'
        raise BadRequestError(400, msg)
    return events


@dataclass
class Desk:
    """Takes in what browsers send: reads the tokens, and hands the rest to the store."""

    store: FeedbackStore
    tokens: FeedbackTokens
    limits: Limits = field(default=DEFAULT_LIMITS)

    def receive(self, events: Sequence[Any], address: str | None) -> list[Received]:
        """Keep a batch; return what became of each event, in their order.

        Raises:
            TooManySignalsError: If the sender is over a limit.
            StoreError: If the database cannot be written.
        """
        speakers: dict[str, TokenClaims] = {}
        read = [self._read(raw, speakers) for raw in events]
        good = [one for one in read if isinstance(one, Incoming)]
        kept: Iterator[Received] = iter(
            self.store.receive(
                good, address=address, limits=self.limits, is_asker=self._is_asker(speakers)
            )
        )
        return [next(kept) if isinstance(one, Incoming) else one for one in read]

    def claims(self, token: object) -> TokenClaims:
        """Return what a token says.

        Raises:
            ValueError: If it is none, altered or expired.
        """
        if not isinstance(token, str):
            msg = "token is missing"
            raise ValueError(msg)  # noqa: TRY004  all that is wrong is told in one way
        return self.tokens.read(token)

    def _read(self, raw: Any, speakers: dict[str, TokenClaims]) -> Incoming | Received:
        event_id = usable_id(raw.get("event_id")) if isinstance(raw, dict) else None
        try:
            return self._incoming(raw, speakers)
        except ValueError as error:
            return Received(event_id, "rejected", str(error))

    def _incoming(self, raw: Any, speakers: dict[str, TokenClaims]) -> Incoming:
        if not isinstance(raw, dict):
            msg = "an event is an object"
            raise ValueError(msg)  # noqa: TRY004
        claims = self.claims(raw.get("token"))
        if raw.get("trace_id") not in (None, claims.subject):
            msg = "this token is of another answer"
            raise ValueError(msg)
        if claims.actor:
            speakers[claims.actor] = claims
        given = {name: raw.get(name) for name in ("event_id", "signal", "comment", "correction")}
        return Incoming(
            trace_id=claims.subject,
            actor=claims.actor,
            token=raw["token"],
            target="" if raw.get("target") is None else raw["target"],
            client_time=_time(raw.get("client_time")),
            rank=_rank(raw.get("rank")),
            **_numbers(raw),
            **given,  # type: ignore[arg-type]  # the store looks at each
        )

    def _is_asker(self, speakers: dict[str, TokenClaims]) -> Callable[[str, str], bool]:
        return lambda sent, asked: self.tokens.is_actor(speakers[sent], asked)


def _numbers(raw: dict[str, Any]) -> dict[str, Any]:
    """Return rating and time: each has a name of its own, and `value` stands for either."""
    signal, value = raw.get("signal"), raw.get("value")
    rating, spent = raw.get("rating"), raw.get("ms")
    if signal == "rating":
        return {"rating": value if rating is None else rating}
    if signal == "dwell":
        return {"value": value if spent is None else spent}
    return {"rating": rating, "value": value}


def _rank(given: Any) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    msg = "rank must be a whole number from 0"
    raise ValueError(msg)


def _time(given: Any) -> Any:
    if isinstance(given, str):
        with suppress(ValueError):
            return datetime.fromisoformat(given)
    return given


def _no_number(name: str) -> NoReturn:
    msg = f"{name} is no number"
    raise ValueError(msg)
