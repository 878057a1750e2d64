"""Where the measured cases and data sets lie that tests share with benchmarks."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
_OWN = Path(__file__).parent / "data"


def shared_data(name: str) -> Path:
    """The path of a measured file; the large ones are not in the repository."""
    path = next((p for p in (_OWN / name, _SHARED / name) if p.exists()), _SHARED / name)
    if not path.exists():
        pytest.skip(f"the shared data are not beside this repository: {path}")
    return path


def shared_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a shared JSON Lines file."""
    lines = shared_data(name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def seconds(function: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


_N = 100_000
HOSTILE = {
    "dots and a letter": "." * _N + "a",
    "marks and a letter": "!?" * (_N // 2) + "a",
    "hashes": "#" * _N,
    "bullets": "- " * (_N // 2),
    "initials": "a.a." * (_N // 4),
    "brackets": "(" * _N,
    "braces": "{" * _N,
    "nested objects": '{"a":' * (_N // 5),
    "newlines": "\n" * _N,
    "newlines and spaces": "\n " * (_N // 2) + "x",
    "spaces between letters": "a" + " " * _N + "b",
    "digits": "1" * _N,
    "numbered": "1. " * (_N // 3),
    "quotation marks": "." + '"' * _N + "x",
    "colons": "a:" * (_N // 2),
    "tags": "<think>" * (_N // 7),
    "closed tags": "<think></think>" * (_N // 15),
    "rows": "|\n" * (_N // 2),
    "accents": "e" + "\u0301" * _N,
    "one script": "退" * _N,
    "apostrophes": "a'" * (_N // 2),
}
"""Texts of about 100,000 characters that make a careless pattern backtrack."""
