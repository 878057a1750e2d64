r"""Show what is cited: marked passages in Markdown, in HTML and in the terminal.

No source is trusted. Everything that a chunk, an answer or a citation says is plain
text in the output: it makes no tag, no link, no heading and no terminal command.
Citations are mappings as the state holds them, numbered from 1 in their order. Only a
verified citation whose offsets still fit the text marks anything; another one is named
as not found in the source.
"""

import html
import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from langchain_feedback.quotes.plain import link_of, plain_text
from langchain_feedback.quotes.segments import (
    Citations,
    answer_segments,
    source_segments,
)

__all__ = ["NOT_FOUND", "to_html", "to_markdown", "to_terminal"]

NOT_FOUND = "not found in the source"
"""What stands before an unverified quote."""

_ELLIPSIS = "…"
_MARKUP = re.compile(r"[!-/:-@\[-`{-~]")
_SPACE = re.compile(r"(?:\\\n|&#32;|\s)*")
_NO_WORD = re.compile(r"(?:\\[\n!-/:-@\[-`{-~]|&#32;|[^\w\\&])*")


class _Piece(NamedTuple):
    text: str
    marked: bool
    starts: list[int]
    """The citations that cover this piece and none before."""
    ends: list[int]


def to_markdown(text: str, citations: Citations, *, chunk_id: str | None = None) -> str:
    r"""Write a chunk or an answer in Markdown, with its proved passages in bold.

    Every ASCII punctuation mark of the text is escaped and its line breaks are hard
    ones, so the text makes no markup. A viewer that by itself turns bare addresses
    into links, as GitHub's does with `name@host`, is out of reach.

    Args:
        text: The chunk's text, or the answer.
        citations: All citations of the answer.
        chunk_id: The chunk's key; None for the answer.

    Example:
        >>> cited = {"chunk_id": "a", "source": "faq.md", "start": 0, "end": 7,
        ...          "quote": "14 days", "verified": True}
        >>> print(to_markdown("14 days. # *Not* a heading.", [cited], chunk_id="a"))
        faq\.md
        <BLANKLINE>
        **14 days**\[1\]\. \# \*Not\* a heading\.
    """
    pieces, rest = _pieces(text, citations, chunk_id)
    written = ""
    for marked, run in groupby(pieces, key=lambda piece: piece.marked):
        parts = [(_markdown(piece.text), _labels(piece.ends, citations)) for piece in run]
        if marked:
            inner = "".join(part + _markdown(label) for part, label in parts[:-1]) + parts[-1][0]
            written += _bold(inner, written[-1:]) + _markdown(parts[-1][1])
        else:
            written += "".join(part + _markdown(label) for part, label in parts)
    if chunk_id is None:
        return _stripped(written) + _markdown(_labels(rest, citations))
    source = _source_name(citations, chunk_id)
    shown, url = _stripped(_markdown(source)), link_of(source)
    name = f"[{shown}](<{url}>)" if url else shown
    notes = [_stripped(_markdown(_note(number, citations))) for number in rest]
    return "\n\n".join(part for part in (name, _stripped(written), *notes) if part)


def to_html(
    text: str, citations: Citations, *, chunk_id: str | None = None, group: int = 1
) -> str:
    """Write a chunk or an answer as an HTML fragment, with its proved passages in `<mark>`.

    Each citation has an anchor in its chunk, `passage-GROUP-NUMBER`, and its part of
    the answer links to it. A source that is an http(s) address is a link as well.
    The classes are `answer`, `source`, `source-name`, `source-text` and `unverified`.

    Args:
        text: The chunk's text, or the answer.
        citations: All citations of the answer.
        chunk_id: The chunk's key; None for the answer.
        group: A number of the answer, where a page shows more than one.

    Example:
        >>> cited = {"claim": "14 days", "answer_start": 0, "answer_end": 7, "verified": True}
        >>> print(to_html("14 days <b>", [cited]))
        <p class="answer" dir="auto"><mark>14 days</mark><sup><a href="#passage-1-1">[1]</a></sup>
         &lt;b&gt;</p>
    """
    anchor = f"passage-{group:d}-"
    pieces, rest = _pieces(text, citations, chunk_id)
    if chunk_id is None:
        body = "".join(_html_part(piece, anchor, citations) for piece in pieces)
        return f'<p class="answer" dir="auto">{body}{_html_links(rest, anchor, citations)}</p>'
    notes = "".join(
        f'<p class="unverified" id="{anchor}{number}">{_html(_note(number, citations))}</p>\n'
        for number in rest
    )
    source = _source_name(citations, chunk_id)
    shown, url = _html(source), link_of(source)
    if url:
        shown = f'<a href="{html.escape(url)}" rel="nofollow noopener noreferrer">{shown}</a>'
    body = "".join(_html_passage(piece, anchor) for piece in pieces)
    return (
        f'<section class="source">\n<p class="source-name">{shown}</p>\n'
        f'<p class="source-text" dir="auto">{body}</p>\n{notes}</section>'
    )


def to_terminal(
    text: str,
    citations: Citations,
    *,
    chunk_id: str | None = None,
    context: int | None = None,
    labels: bool = True,
) -> list[tuple[str, bool]]:
    """Cut a chunk or an answer into plain pieces, each with whether it is marked.

    Args:
        text: The chunk's text, or the answer.
        citations: All citations of the answer.
        chunk_id: The chunk's key; None for the answer.
        context: How many characters to show around a marked piece; None: the whole text.
        labels: Whether the numbers of the citations, and the unverified quotes, are shown.

    Returns:
        Pieces without control characters, for a program to style.

    Example:
        >>> cited = {"chunk_id": "a", "start": 13, "end": 20, "quote": "14 days",
        ...          "verified": True}
        >>> to_terminal("Refunds take 14 days.", [cited], chunk_id="a", context=5)
        [('…take ', False), ('14 days', True), ('[1]', False), ('.', False)]
    """
    pieces, rest = _pieces(text, citations, chunk_id)
    shown: list[tuple[str, bool]] = []
    for i, piece in enumerate(pieces):
        is_whole = context is None or piece.marked
        cut = piece.text if is_whole else _cut(piece.text, context or 0, i, len(pieces))
        shown.append((plain_text(cut), piece.marked))
        if labels:
            shown.append((_labels(piece.ends, citations), False))
    if labels and chunk_id is None:
        shown.append((_labels(rest, citations), False))
    elif labels:
        shown += [(f"\n{plain_text(_note(number, citations))}", False) for number in rest]
    return [(part, marked) for part, marked in shown if part]


def _pieces(
    text: str, citations: Citations, chunk_id: str | None
) -> tuple[list[_Piece], list[int]]:
    """Return the pieces, and the numbers of the citations that cover none of them."""
    if chunk_id is None:
        cut, concerned = answer_segments(text, citations), range(1, len(citations) + 1)
    else:
        cut = source_segments(text, chunk_id, citations)
        here = (n for n, citation in enumerate(citations, 1) if citation["chunk_id"] == chunk_id)
        concerned = list(here)  # type: ignore[assignment]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, segment in enumerate(cut):
        for number in segment.numbers:
            first.setdefault(number, i)
            last[number] = i
    pieces = [
        _Piece(
            segment.text,
            any(citations[number - 1]["verified"] for number in segment.numbers),
            [number for number in segment.numbers if first[number] == i],
            [number for number in segment.numbers if last[number] == i],
        )
        for i, segment in enumerate(cut)
    ]
    return pieces, [number for number in concerned if number not in first]


def _label(number: int, citations: Citations) -> str:
    return f"{number}" if citations[number - 1]["verified"] else f"{number}?"


def _labels(numbers: Iterable[int], citations: Citations) -> str:
    return "".join(f"[{_label(number, citations)}]" for number in numbers)


def _note(number: int, citations: Citations) -> str:
    return f"[{number}] {NOT_FOUND}: {citations[number - 1]['quote']}"


def _source_name(citations: Citations, chunk_id: str) -> str:
    named = (c["source"] for c in citations if c["chunk_id"] == chunk_id)
    return str(next(named, ""))


def _markdown(text: str) -> str:
    escaped = _MARKUP.sub(r"\\\g<0>", plain_text(text)).replace("\n", "\\\n")
    # An indented line is code.
    return escaped.replace("\n ", "\n&#32;")


def _stripped(markdown: str) -> str:
    return _parted(markdown)[1]


def _parted(markdown: str) -> tuple[str, str, str]:
    """Part written Markdown into the white space before, the text, and the one behind."""
    space = _SPACE.match(markdown)
    start, end = space.end() if space else 0, len(markdown)
    while end > start:
        if markdown.endswith("&#32;", start, end):
            end -= len("&#32;")
        elif markdown[end - 1].isspace():
            # A line break has a backslash of its own.
            end -= 1 + (markdown[end - 1] == "\n")
        else:
            break
    return markdown[:start], markdown[start:end], markdown[end:]


def _bold(inner: str, before: str) -> str:
    """Mark a run where Markdown reads stars as bold: not next to white space."""
    lead, core, tail = _parted(inner)
    if not lead and before and unicodedata.category(before)[0] not in "PZ":
        # Nor between a letter and a punctuation mark.
        punctuation = _NO_WORD.match(core)
        lead = punctuation[0] if punctuation else ""
        core = core[len(lead) :]
    return f"{lead}**{core}**{tail}" if core else f"{lead}{tail}"


def _html(text: str) -> str:
    return html.escape(plain_text(text)).replace("\n", "<br>\n")


def _html_passage(piece: _Piece, anchor: str) -> str:
    if not piece.marked:
        return _html(piece.text)
    ids = [f' id="{anchor}{number}"' for number in piece.starts] or [""]
    more = "".join(f"<span{identity}></span>" for identity in ids[1:])
    labels = "".join(f"<sup>[{number}]</sup>" for number in piece.ends)
    return f"<mark{ids[0]}>{more}{_html(piece.text)}</mark>{labels}"


def _html_part(piece: _Piece, anchor: str, citations: Citations) -> str:
    text = f"<mark>{_html(piece.text)}</mark>" if piece.marked else _html(piece.text)
    return text + _html_links(piece.ends, anchor, citations)


def _html_links(numbers: Iterable[int], anchor: str, citations: Citations) -> str:
    return "".join(
        f'<sup><a href="#{anchor}{number}">[{_label(number, citations)}]</a></sup>'
        for number in numbers
    )


def _cut(text: str, context: int, index: int, count: int) -> str:
    """Shorten what stands before, between or behind the marked pieces."""
    head = text[:context] if index > 0 or count == 1 else ""
    tail = text[len(text) - context :] if index < count - 1 else ""
    return text if len(text) <= len(head) + len(tail) else f"{head}{_ELLIPSIS}{tail}"
