"""One section of a file, and the trail of headings above it."""

from dataclasses import dataclass, field

__all__ = ["HeadingTrail", "Section"]


@dataclass(frozen=True)
class Section:
    """A stretch of a file's text under one heading, or one page."""

    text: str
    heading: str | None = None
    """The headings from the top down, as in `Billing > Refunds`."""
    page: int | None = None
    """The page, counted from 1; only for PDF files."""

    def metadata(self, source: str) -> dict[str, str | int]:
        """Say where the section stands; keys without a value are left out."""
        found = {"source": source, "heading": self.heading, "page": self.page}
        return {key: value for key, value in found.items() if value is not None}


@dataclass
class HeadingTrail:
    """The headings that are open at a place in a file.

    Example:
        >>> trail = HeadingTrail()
        >>> trail.enter(1, "Billing"), trail.enter(2, "Refunds"), trail.enter(1, "Support")
        ('Billing', 'Billing > Refunds', 'Support')
    """

    _open: list[tuple[int, str]] = field(default_factory=list)

    def enter(self, level: int, title: str) -> str | None:
        """Open a heading of a level (1 is the highest) and return the whole trail."""
        self._open = [entry for entry in self._open if entry[0] < level]
        self._open.append((level, " ".join(title.split())))
        return " > ".join(title for _, title in self._open if title) or None
