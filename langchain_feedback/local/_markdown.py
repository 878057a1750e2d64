"""Sections of a Markdown file, each in the file's own wording."""

import io
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from langchain_feedback.local._extra import local_extra
from langchain_feedback.local._sections import HeadingTrail, Section

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["markdown_sections"]

_FRONT_MATTER = re.compile(
    r"""
    ---[ \t]*\n
    (?: (?: [ \t]* (?: \#.* )? \n )*             # blank lines and comments
        (?: [\w.-]+ | "[^"\n]*" | '[^'\n]*' )   # a key
        [ \t]*: (?: [ \t].* )? \n
        (?: .*\n )*?                            # anything
      | (?: [ \t]*\n )*                        # or nothing at all
    )
    (?: --- | \.\.\. )[ \t]*(?: \n | \Z )
    """,
    re.VERBOSE,
)
"""Without a key after the first rule, two rules are rules of Markdown."""


def markdown_sections(text: str) -> list[Section]:
    r"""Cut Markdown at its headings; each section is a slice of the source with its heading line.

    Headings are those that CommonMark sees at the top level: `#` and underlined ones, not lines
    in code fences, quotations or lists. YAML front matter is dropped.

    Example:
        >>> for section in markdown_sections("Hello\n# A\none\n\nB\n-\n*two*"):
        ...     print(section.heading, repr(section.text))
        None 'Hello\n'
        A '# A\none\n\n'
        A > B 'B\n-\n*two*'
    """
    front_matter = _FRONT_MATTER.match(text)
    text = text[front_matter.end() :] if front_matter else text
    lines = list(io.StringIO(text))  # cuts at "\n" alone, as the parser's line numbers do
    starts: list[tuple[int, str | None]] = [(0, None), *_headings(text)]
    ends = [*(line for line, _ in starts[1:]), len(lines)]
    sections = (
        Section("".join(lines[line:end]), heading)
        for (line, heading), end in zip(starts, ends, strict=True)
    )
    return [section for section in sections if section.text.strip()]


def _headings(text: str) -> Iterator[tuple[int, str | None]]:
    """Yield the line, counted from 0, and the heading trail of every top-level heading."""
    with local_extra():
        from markdown_it import MarkdownIt  # noqa: PLC0415
    tokens = MarkdownIt("commonmark").parse(text)
    trail = HeadingTrail()
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            title = _words(inline.children or ())
            yield token.map[0], trail.enter(int(token.tag[1:]), title)


def _words(tokens: Sequence["Token"]) -> str:
    """Read inline tokens as a reader sees them: no markers, no link targets."""
    breaks = {"softbreak": " ", "hardbreak": " ", "html_inline": ""}
    return "".join(breaks.get(token.type, token.content) for token in tokens)
