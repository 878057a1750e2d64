"""From the bytes of a text file to its text, trusting what the file says about itself first."""

import codecs
import re

from langchain_feedback.errors import UnreadableFileError
from langchain_feedback.local._extra import local_extra

__all__ = ["decode", "decode_html"]

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it starts with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SHORT = 500
"""Bytes below which statistics over letters say little about an encoding."""
_WESTERN = re.compile(r"[\t\n\f\r\x20-\x7e\xa0¡£§©«®°·»½¿À-ÖØ-öø-ÿŒœŠšŽžŸ‘’‚“”„†•…€™–—]*")
_MOST_ACCENTS = 0.5
"""Share of non-ASCII characters above which a text is not written in Latin letters."""


def decode(data: bytes) -> str:
    r"""Decode a text file and turn its line ends into `\n`.

    A byte order mark decides, then UTF-8, then charset-normalizer's guess. That guess is poor on
    a few words, so a short file that reads as Western European (`cp1252`) is taken as that.

    Raises:
        UnreadableFileError: There are NUL bytes, or nothing decodes.

    Example:
        >>> decode("Café\r\n".encode("utf-16"))
        'Café\n'
        >>> decode(b"caf\xe9")
        'café'
    """
    text = _marked(data)
    if text is None:
        _refuse_binary(data)
        text = _first_that_decodes(data, ("utf-8",)) or _guess(data)
    return _plain_line_ends(text)


def decode_html(data: bytes) -> str:
    """Decode a web page: mark, valid non-ASCII UTF-8, the encoding that it declares, a guess.

    UTF-8 comes before the declaration because it cannot be mistaken, while declarations are
    often left over from a template.

    Raises:
        UnreadableFileError: There are NUL bytes, or nothing decodes.
    """
    if _marked(data) is not None:
        return decode(data)
    _refuse_binary(data)
    with local_extra():
        from bs4.dammit import EncodingDetector  # noqa: PLC0415
    declared = EncodingDetector.find_declared_encoding(data, is_html=True)
    names = [*(() if data.isascii() else ("utf-8",)), *_as_browsers_do(declared)]
    text = _first_that_decodes(data, names)
    return decode(data) if text is None else _plain_line_ends(text)


def _marked(data: bytes) -> str | None:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError as error:
                msg = f"it starts as {encoding} and does not go on so: save it as UTF-8"
                raise UnreadableFileError(msg) from error
    return None


def _refuse_binary(data: bytes) -> None:
    if b"\0" in data:
        msg = "it holds NUL bytes, so it is not text: save it as UTF-8 text, or rename or move it"
        raise UnreadableFileError(msg)


def _first_that_decodes(data: bytes, encodings: list[str] | tuple[str, ...]) -> str | None:
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return None


def _as_browsers_do(declared: str | None) -> list[str]:
    """Latin-1 is read as `cp1252`, as the WHATWG encoding standard has it."""
    if declared is None:
        return []
    return ["cp1252", declared] if declared.lower() in {"iso-8859-1", "latin-1"} else [declared]


def _guess(data: bytes) -> str:
    if len(data) < _SHORT:
        text = _first_that_decodes(data, ("cp1252",))
        if text is not None and _reads_as_western(text):
            return text
    with local_extra():
        from charset_normalizer import from_bytes  # noqa: PLC0415
    best = from_bytes(data).best()
    if best is None:
        msg = "it is not text in any known encoding: save it as UTF-8 text, or rename or move it"
        raise UnreadableFileError(msg)
    return str(best)


def _reads_as_western(text: str) -> bool:
    accents = sum(not character.isascii() for character in text)
    return accents <= _MOST_ACCENTS * len(text) and _WESTERN.fullmatch(text) is not None


def _plain_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
