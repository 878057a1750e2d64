"""The pages of a PDF file that hold text."""

import io
import logging

from langchain_feedback.errors import NoTextError, UnreadableFileError
from langchain_feedback.local._extra import local_extra
from langchain_feedback.local._sections import Section

__all__ = ["pdf_sections"]


def pdf_sections(data: bytes) -> list[Section]:
    """Read the text of each page; pages without text are left out.

    Raises:
        NoTextError: No page has text, as in a scan.
        UnreadableFileError: The file is locked with a password.
        Exception: Whatever pypdf raises over a damaged file.
    """
    texts = [_storable(text) for text in _page_texts(data)]
    sections = [
        Section(text, page=number) for number, text in enumerate(texts, start=1) if text.strip()
    ]
    if not sections:
        msg = (
            "none of its pages has text. It looks scanned and needs OCR first,"
            " for example with: ocrmypdf in.pdf out.pdf"
        )
        raise NoTextError(msg)
    return sections


def _page_texts(data: bytes) -> list[str]:
    with local_extra():
        from pypdf import PdfReader  # noqa: PLC0415
        from pypdf.errors import DependencyError, FileNotDecryptedError  # noqa: PLC0415
    # What pypdf has to say of a file's syntax is not for the reader of the file.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        return [page.extract_text() for page in PdfReader(io.BytesIO(data)).pages]
    except (DependencyError, FileNotDecryptedError) as error:
        msg = f"it is encrypted ({error}): save a copy without a password"
        raise UnreadableFileError(msg) from error


def _storable(text: str) -> str:
    """Drop what no database or file takes: NUL, and halves of surrogate pairs."""
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return joined.replace("\0", "")
