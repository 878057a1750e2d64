"""Text and addresses of documents, made harmless for a reader."""

import re
import unicodedata
from urllib.parse import quote, urlsplit

__all__ = ["link_of", "plain_text"]

_LINE_BREAK = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn"))
_JOINERS = "\u200c\u200d"
# Format characters that are seen: signs that stand over or under the number behind them.
_SEEN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
_ADDRESS = re.compile(r"(https?://[^\s\x00-\x1f\x7f]+?)(?:, page [^/]*| > .*)?", re.IGNORECASE)


def plain_text(text: str) -> str:
    r"""Drop what is not seen and could steer a terminal or reorder a line.

    That is: control characters (C0, C1, escapes), bidirectional marks, overrides and
    isolates, invisible and private characters, lone surrogates. Line breaks of any kind
    become `\n` and tabs spaces. The joiners U+200C and U+200D stay between two
    characters outside ASCII, where Persian, Indic scripts and emoji need them, and so
    do the Arabic signs that are seen although they count as format characters.

    Example:
        >>> plain_text("\x1b[31mred\x1b[0m\u202e\tand\r\nplain")
        '[31mred[0m and\nplain'
    """
    text = _LINE_BREAK.sub("\n", text.replace("\t", " "))
    return "".join(
        character
        for i, character in enumerate(text)
        if character in _SEEN
        or character == "\n"
        or unicodedata.category(character) not in _INVISIBLE
        or (character in _JOINERS and _joins(text[max(0, i - 1) : i], text[i + 1 : i + 2]))
    )


def link_of(source: str) -> str | None:
    """Return the http(s) address of a source, safe in an attribute, or None.

    The page or heading that `source_of` puts behind it is left out.

    Example:
        >>> link_of("https://example.org/a.pdf, page 3"), link_of("javascript:alert(1)")
        ('https://example.org/a.pdf', None)
    """
    match = _ADDRESS.fullmatch(source)
    if match is None or plain_text(source) != source:
        return None
    url = quote(match[1], safe=":/?#[]@!$&'()*+,;=%")
    try:
        return url if urlsplit(url).hostname else None
    except ValueError:
        return None


def _joins(before: str, after: str) -> bool:
    neighbors = before + after
    return len(neighbors) == len("xy") and not any(
        character.isascii() or unicodedata.category(character) in _INVISIBLE
        for character in neighbors
    )
