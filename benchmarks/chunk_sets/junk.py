"""Junk made of good texts, as loaders, scanners and web pages really leave it behind.

Each maker takes good chunks of one language and a `random.Random`, and gives junk chunks.
"""

import base64
import random
from collections.abc import Callable, Iterator, Sequence

__all__ = ["MAKERS", "MISREADINGS", "MISSES", "misread", "scanned"]

MISREADINGS = (
    *(("utf-8", table) for table in ("cp1252", "latin-1", "cp1251", "mac_roman", "cp437")),
    ("cp1251", "latin-1"),
    ("cp1253", "cp1252"),
    ("latin-1", "utf-8"),
)
"""Written in the one, read in the other."""

_CONFUSED = {
    "l": "1", "o": "0", "e": "c", "i": "|", "s": "5", "B": "8", "m": "rn", "n": "ri", "a": "@",
    "t": "†", "h": "li", "g": "9", "u": "ii", "d": "cl", "r": "^", "c": "(", "z": "2", "S": "$",
}  # fmt: skip
CONFUSED = 0.6
_SPECKS = "|~^'`.,:;!¦§¬°*_\\/#%■•"


def scanned(text: str, chance: random.Random, rate: float) -> str:
    """Read `text` as a bad scanner would: each character goes wrong with probability `rate`."""
    made = []
    for character in text:
        if character.isspace() or chance.random() > rate:
            made.append(character)
        elif character in _CONFUSED and chance.random() < CONFUSED:
            made.append(_CONFUSED[character])
        else:
            speck = chance.choice(_SPECKS)
            made.append(chance.choice([speck, speck + character, character + " ", speck + speck]))
    return "".join(made)


def misread(text: str, written: str, read: str) -> str | None:
    """Return `text` written in one encoding and read in another, None where it cannot be."""
    try:
        raw = text.encode(written)
    except UnicodeEncodeError:
        return None
    if read == "cp1252":
        # As browsers read it: bytes without a character are C1 controls.
        return "".join(_browser(byte) for byte in raw)
    return raw.decode(read, errors="replace")


def _browser(byte: int) -> str:
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


def _repeated(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    for text in texts:
        line = " ".join(text.split()[: chance.randint(3, 12)])[: chance.randint(20, 90)]
        glue = chance.choice(["\n", "\n\n", " ", " | "])
        yield glue.join([line] * max(6, 600 // len(line)))


def _base64(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    for text in texts:
        raw = chance.randbytes(chance.randint(150, 700))
        plain = text.encode() if chance.randrange(2) else raw
        width = chance.choice([64, 76, 100_000])
        code = base64.b64encode(plain).decode()
        yield "\n".join(code[at : at + width] for at in range(0, len(code), width))


def _ocr(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    for text in texts:
        yield scanned(text, chance, chance.uniform(0.12, 0.25))


def _mojibake(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    for text in texts:
        foreign = len(text) - len(text.encode("ascii", "ignore"))
        if foreign < len(text) / 100:
            continue
        ways = [misread(text, *way) for way in MISREADINGS]
        broken = [way for way in ways if way is not None and way != text]
        yield chance.choice(broken)


def _titles(texts: Sequence[str], chance: random.Random, number: int) -> list[str]:
    found = []
    for text in chance.choices(texts, k=number):
        words = text.split()
        at = chance.randrange(max(1, len(words) - 4))
        # Words of scripts without spaces are whole clauses.
        longest = 50 if words[at].isascii() or len(words) > len(text) / 15 else 12
        title = " ".join(words[at : at + chance.randint(2, 6)])[:longest].strip(" .,;:。،।、")
        found.append(title[:1].upper() + title[1:])
    return found


def _contents(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Four ways that pages of contents come in, with what stands where."""
    for at in range(len(texts)):
        titles = _titles(texts, chance, chance.randint(6, 16))
        page, lines = 1, []
        for number, title in enumerate(titles, 1):
            page += chance.randint(0, 9)
            lines.append(
                [
                    f"{title} {'.' * chance.randint(5, 40)} {page}",
                    f"{number}. {title} {'. ' * chance.randint(4, 20)}{page}",
                    f"{title} {page}",
                    f"- [{title}](#section-{number})",
                ][at % 4]
            )
        yield "\n".join(lines)


def _navigation(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    for at in range(len(texts)):
        titles = [title[:24] for title in _titles(texts, chance, chance.randint(6, 12))]
        host = "https://example.org/"
        yield [
            " | ".join(titles),
            "\n".join(f"[{title}]({host}{number})" for number, title in enumerate(titles)),
            " ".join(f"[{title}](/{number})" for number, title in enumerate(titles)),
            "\n".join(f"{host}{number}/{chance.randrange(10**6)}" for number in range(9)),
            " › ".join(titles[:5]) + "\n" + " · ".join(titles),
        ][at % 5]


def _headings(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    for title in _titles(texts, chance, len(texts)):
        yield chance.choice(["", "# ", "## "]) + title


def _bare_contents(texts: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Titles without links, leaders and pages: known to look like any list."""
    for _ in texts:
        yield "\n".join(_titles(texts, chance, chance.randint(6, 16)))


MISSES = frozenset({"headings", "bare_contents"})
"""Kinds of which nothing is promised."""

MAKERS: dict[str, Callable[[Sequence[str], random.Random], Iterator[str]]] = {
    "repeated": _repeated,
    "base64": _base64,
    "ocr": _ocr,
    "mojibake": _mojibake,
    "contents": _contents,
    "navigation": _navigation,
    "headings": _headings,
    "bare_contents": _bare_contents,
}
"""By kind."""
