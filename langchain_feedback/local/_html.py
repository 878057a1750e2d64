"""Sections of a web page, as text a reader would see."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langchain_feedback.local._extra import local_extra
from langchain_feedback.local._sections import HeadingTrail, Section

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag
    from bs4.element import PageElement

__all__ = ["html_sections"]

_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_LINE_ENDS = _HEADINGS | set(
    "address article aside blockquote body br caption center dd details dialog dir div dl dt"
    " fieldset figcaption figure footer form head header hr html legend li main menu ol option p"
    " pre search section select summary table tbody tfoot thead tr ul".split()
)
_UNSEEN = "script, style, noscript, template, nav, title, a.headerlink"
"""`a.headerlink` is the paragraph sign that Sphinx and MkDocs put behind a heading."""
_XML_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*>")
"""Beautiful Soup warns of it, rightly only where a page is not HTML after all."""
_LAYOUT = ["table", "pre", *sorted(_HEADINGS)]
"""A cell with one of these in it lays out the page; its lines stay lines."""


def html_sections(markup: str) -> list[Section]:
    """Cut a web page at `h1` to `h6`; the heading's text starts its section.

    Scripts, styles, templates and navigation are dropped. The page's `<title>` is the top heading
    where there is no `<h1>`. Blocks and `<br>` end a line, cells of a row are joined by ` | `.

    Example:
        >>> page = "<title>Plans</title><p>Hello<br>you<h2>Price</h2><tr><td>S<td>5 EUR</tr>"
        >>> for section in html_sections(page):
        ...     print(section.heading, section.text.splitlines())
        Plans ['Plans', 'Hello', 'you']
        Plans > Price ['Price', 'S | 5 EUR']
    """
    with local_extra():
        from bs4 import BeautifulSoup  # noqa: PLC0415
    soup = BeautifulSoup(_XML_DECLARATION.sub("", f"{markup}\n"), "html.parser")
    title = soup.title.get_text() if soup.title else ""
    for tag in soup.select(_UNSEEN):
        tag.decompose()
    page = _Page(around_layout=_around_layout(soup))
    if title.strip() and not any(tag.get_text(strip=True) for tag in soup("h1")):
        page.open_heading(1)
        page.write(title)
        page.close_heading()
        page.break_line("h1")
    page.read(soup)
    page.close_section()
    return page.done


def _around_layout(soup: "BeautifulSoup") -> set[int]:
    """List the tags with a table, heading or preformatted text in them, by their `id`."""
    found: set[int] = set()
    for tag in soup.find_all(_LAYOUT):
        for parent in tag.parents:
            if id(parent) in found:
                break
            found.add(id(parent))
    return found


def _walk(soup: "BeautifulSoup") -> Iterator[tuple["PageElement", bool]]:
    """Yield each node when it opens (True) and each tag when it closes (False).

    A loop, not a recursion: unclosed tags nest as deep as a page is long.
    """
    from bs4 import Tag  # noqa: PLC0415

    stack: list[tuple[PageElement, bool]] = [(soup, True)]
    while stack:
        node, opens = stack.pop()
        yield node, opens
        if opens and isinstance(node, Tag):
            stack.append((node, False))
            stack.extend((child, True) for child in reversed(node.contents))


@dataclass
class _Page:
    """What has been read of a page so far."""

    around_layout: set[int]
    trail: HeadingTrail = field(default_factory=HeadingTrail)
    done: list[Section] = field(default_factory=list)
    heading: str | None = None
    pieces: list[str] = field(default_factory=list)
    heading_level: int = 0  # of the heading that is being read, else 0
    preformatted: int = 0
    cells: list[bool] = field(default_factory=list)  # the open cells; True where one holds data
    row_is_empty: bool = True

    def read(self, soup: "BeautifulSoup") -> None:
        from bs4.element import NavigableString, Tag  # noqa: PLC0415

        for node, opens in _walk(soup):
            if isinstance(node, Tag):
                (self.enter if opens else self.leave)(node)
            elif type(node) is NavigableString:  # its subclasses are comments and the like
                self.write(str(node))

    def enter(self, tag: "Tag") -> None:
        self.break_line(tag.name)
        if tag.name in {"td", "th"}:
            self.open_cell(holds_data=id(tag) not in self.around_layout)
        elif tag.name in _HEADINGS and not self.heading_level:
            self.open_heading(int(tag.name[1]))
        self.preformatted += tag.name == "pre"

    def leave(self, tag: "Tag") -> None:
        self.preformatted -= tag.name == "pre"
        if tag.name in {"td", "th"}:
            self.cells.pop()
        elif tag.name in _HEADINGS and self.heading_level:
            self.close_heading()
        self.break_line(tag.name)

    def break_line(self, name: str) -> None:
        """End the line at a block or `<br>`; within a cell that holds data, only at a row."""
        if name in {"tr", "table"}:
            self.row_is_empty = True
        elif name not in _LINE_ENDS:
            return
        elif self.cells and self.cells[-1]:
            self.write(" ")
            return
        if self.pieces and not self.pieces[-1].endswith("\n"):
            self.pieces.append("\n")

    def open_cell(self, *, holds_data: bool) -> None:
        self.cells.append(holds_data)
        if not holds_data:
            self.break_line("table")
        elif not self.row_is_empty:
            self.pieces.append("| " if self.pieces[-1:] and self.pieces[-1][-1] == " " else " | ")
        self.row_is_empty = not holds_data

    def open_heading(self, level: int) -> None:
        self.close_section()
        self.heading_level = level

    def close_heading(self) -> None:
        title = "".join(self.pieces)
        if title.strip():
            self.heading = self.trail.enter(self.heading_level, title)
        self.heading_level = 0

    def write(self, text: str) -> None:
        if not self.preformatted:
            text = re.sub(r"\s+", " ", text)
            if not self.pieces or self.pieces[-1][-1].isspace():
                text = text.lstrip()
        if text:
            self.pieces.append(text)

    def close_section(self) -> None:
        lines = "".join(self.pieces).split("\n")
        text = "\n".join(line.rstrip() for line in lines).strip("\n")
        if text.strip():
            self.done.append(Section(text, self.heading))
        self.pieces = []
