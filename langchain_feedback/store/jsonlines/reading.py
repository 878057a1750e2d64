"""Reading the lines that `jsonl` describes: what is wrong with one costs no other."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn

from pydantic import Field, TypeAdapter, ValidationError

from langchain_feedback.errors import StoreError
from langchain_feedback.store.jsonlines.lines import (
    ChunkLine,
    Line,
    PinLine,
    RecipeLine,
    SignalLine,
)

__all__ = ["Bad", "Good", "read_lines", "why"]

_OURS: TypeAdapter[ChunkLine | SignalLine | PinLine] = TypeAdapter(
    Annotated[ChunkLine | SignalLine | PinLine, Field(discriminator="type")]
)


class Good(NamedTuple):
    """A line that can be imported."""

    number: int
    """From 1."""
    line: Line
    event_id: str
    """The same each time that this line is read; different for equal lines of one file."""


class Bad(NamedTuple):
    """A line that cannot be imported."""

    number: int
    """From 1."""
    reason: str


def read_lines(path: str | os.PathLike[str]) -> Iterator[Good | Bad]:
    """Read a file of feedback, line by line.

    Raises:
        StoreError: If the file cannot be read.
    """
    seen: Counter[str] = Counter()
    try:
        with Path(path).open("rb") as file:
            for number, raw in enumerate(file, start=1):
                yield _read(number, raw, seen)
    except OSError as error:
        msg = f"{os.fspath(path)} cannot be read: {error.strerror or error}"
        raise StoreError(msg) from error


def why(error: Exception) -> str:
    """Say in one line what is wrong with a line.

    Example:
        >>> try:
        ...     RecipeLine.model_validate({"query": "How long?", "relevance": 7})
        ... except ValidationError as error:
        ...     why(error)
        'relevance: Input should be less than or equal to 5, got 7'
    """
    if not isinstance(error, ValidationError):
        return str(error).partition("\n")[0]
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    got = "" if first["type"] == "missing" else f", got {first['input']!r:.60}"
    return f"{where}: {first['msg']}{got}".removeprefix(": ")


def _read(number: int, raw: bytes, seen: Counter[str]) -> Good | Bad:
    try:
        text = raw.decode("utf-8").strip("\ufeff\r\n\t ")
    except UnicodeDecodeError as error:
        return Bad(number, f"not UTF-8: {error.reason} at byte {error.start}")
    if not text:
        return Bad(number, "an empty line")
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    seen[digest] += 1
    try:
        return Good(number, _parsed(text), f"imported:{digest}:{seen[digest]}")
    except (ValueError, RecursionError) as error:
        return Bad(number, why(error) if isinstance(error, ValueError) else "nested too deeply")


def _parsed(text: str) -> Line:
    try:
        found = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        msg = f"not JSON: {error}"
        raise ValueError(msg) from error
    if not isinstance(found, dict):
        msg = f"not an object, but {text:.60}"
        raise ValueError(msg)  # noqa: TRY004  the line is wrong, not an argument
    return _OURS.validate_python(found) if "type" in found else RecipeLine.model_validate(found)


def _no_number(name: str) -> NoReturn:
    msg = f"not JSON: {name} is no number"
    raise ValueError(msg)
