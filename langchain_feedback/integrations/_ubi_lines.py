"""Lines of User Behavior Insights 1.3.0, and what they are in the store's words."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from langchain_feedback.signals import SIGNALS
from langchain_feedback.store.asking import Ask, AskedChunk, Said
from langchain_feedback.store.schema import ANSWER
from langchain_feedback.traces import storable

__all__ = ["ACTIONS", "EventLine", "QueryLine", "digest_of", "event_lines", "query_line"]

ACTIONS: Mapping[str, str] = {
    "click": "source_click",
    "click_through": "source_click",
    **{name: name for name in SIGNALS},
}
"""Which signal an action is. Ours that UBI has no name for keep their own."""

OURS = "langchain_feedback"
"""The attribute that holds what UBI has no field for."""

_LONGEST, _LONGEST_MESSAGE = 100, 1024


def _utc(given: datetime) -> datetime:
    return given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)


def _instant(given: object) -> object:
    """Take a time in ISO 8601; one without a zone is UTC."""
    if not isinstance(given, str):
        msg = "a time is a text in ISO 8601"
        raise ValueError(msg)  # noqa: TRY004  pydantic reports this kind only
    return _utc(datetime.fromisoformat(given))


def _as_text(given: object) -> object:
    whole = isinstance(given, int) and not isinstance(given, bool)
    return storable(str(given)) if whole or isinstance(given, str) else given


Text = Annotated[str, BeforeValidator(_as_text)]
Name = Annotated[Text, StringConstraints(min_length=1)]
Time = Annotated[datetime, BeforeValidator(_instant)]


class _Line(BaseModel):
    """What stands in a line; other fields are ignored."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class _OfQuery(_Line):
    """What an export of ours says besides."""

    actor: Text | None = None
    session_id: Text | None = None
    in_prompt: list[Name] | None = None
    cited: list[Name] | None = None


class _QueryAttributes(_Line):
    ours: _OfQuery | None = Field(None, alias=OURS)
    user_id: Text | None = None


class QueryLine(_Line):
    """A query, and what was found for it."""

    query_id: Name
    user_query: Annotated[Text, StringConstraints(pattern=r"\S")]
    timestamp: Time | None = None
    client_id: Text | None = None
    user_id: Text | None = None
    query_response_hit_ids: list[Name] = []
    query_attributes: _QueryAttributes = _QueryAttributes()


class _OfEvent(_Line):
    event_id: Name
    actor: Text | None = None
    rating: int | None = None
    value: float | None = None
    comment: Text | None = None
    correction: Text | None = None
    reviewer: bool = False


class _Object(_Line):
    object_id: Name


class _Position(_Line):
    ordinal: int | None = None


class _EventAttributes(_Line):
    position: _Position
    object: _Object | None = None
    ours: _OfEvent | None = Field(None, alias=OURS)


class EventLine(_Line):
    """What somebody did with it."""

    action_name: Name
    timestamp: Time
    query_id: Text | None = None
    user_id: Text | None = None
    event_attributes: _EventAttributes | None = None


def digest_of(line: Mapping[str, Any]) -> str:
    """Return the event id of a line that has none: the same however its fields are ordered.

    Example:
        >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
        True
    """
    text = json.dumps(line, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"ubi:{digest[:32]}"


def query_line(ask: Ask, application: str) -> dict[str, Any]:
    """Return a question as UBI has it; the hits are what the last search returned."""
    shown = _shown(ask)
    knows_cited = any(chunk.cited is not None for chunk in shown)
    ours = {
        "actor": _named(ask.asker),
        "session_id": ask.session_id,
        "in_prompt": [chunk.chunk_id for chunk in shown if chunk.in_prompt],
        "cited": [chunk.chunk_id for chunk in shown if chunk.cited] if knows_cited else None,
    }
    return {
        "application": application,
        "query_id": ask.trace_id,
        "client_id": _client(ask),
        "user_query": ask.question,
        "timestamp": _written(ask.created_at),
        "query_response_id": ask.trace_id,
        "query_response_hit_ids": [chunk.chunk_id for chunk in shown],
        "query_attributes": {OURS: {name: v for name, v in ours.items() if v is not None}},
    }


def event_lines(ask: Ask, application: str, *, impressions: bool) -> Iterator[dict[str, Any]]:
    """Return what was shown for a question, and what was said of it."""
    ranks = {chunk.chunk_id: rank for rank, chunk in enumerate(_shown(ask), start=1)}
    same = {"application": application, "query_id": ask.trace_id, "client_id": _client(ask)}
    same |= {"session_id": ask.session_id[:_LONGEST]} if ask.session_id else {}
    if impressions:
        for chunk_id, rank in ranks.items():
            attributes = _attributes(chunk_id, rank)
            yield same | {
                "action_name": "impression",
                "timestamp": _written(ask.created_at),
                "event_attributes": attributes,
            }
    for said in ask.said:
        is_click = said.signal == "source_click"
        event = same | {
            "action_name": "click" if is_click else said.signal,
            "timestamp": _written(said.received_at),
            "event_attributes": _attributes(said.target, ranks.get(said.target, 0))
            | {OURS: _details(ask, said)},
        }
        if actor := _named(said.actor):
            event["user_id"] = actor[:_LONGEST]
        if said.comment:
            event["message"] = said.comment[:_LONGEST_MESSAGE]
        yield event


def _details(ask: Ask, said: Said) -> dict[str, Any]:
    details = {
        "event_id": said.event_id,
        # Who asked speaks where nobody is named.
        "actor": None if said.actor == ask.asker else said.actor,
        "rating": said.rating,
        "value": said.value,
        "comment": said.comment,
        "correction": said.correction,
        "reviewer": said.reviewer or None,
    }
    return {name: value for name, value in details.items() if value is not None}


def _attributes(chunk_id: str, rank: int) -> dict[str, Any]:
    """Return where something happened: UBI requires a position; 0 is the answer's, above all."""
    position = {"position": {"ordinal": rank}}
    return position if chunk_id == ANSWER else position | {"object": {"object_id": chunk_id}}


def _shown(ask: Ask) -> list[AskedChunk]:
    return [chunk for chunk in ask.last_search if chunk.returned]


def _named(actor: str) -> str | None:
    return None if actor.startswith(("session:", "trace:")) else actor


def _client(ask: Ask) -> str:
    return (ask.session_id or ask.asker)[:_LONGEST]


def _written(when: datetime) -> str:
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
