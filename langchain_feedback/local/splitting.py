"""Cut sections into chunks that fit a prompt, each with an id that stays the same."""

import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Iterable

from langchain_core.documents import Document

from langchain_feedback.local._extra import local_extra

__all__ = ["split_sections"]

_PARAGRAPH = r"\n[ \t]*\n"
_LINE = r"\n"
_SENTENCE = r"(?<=[.!?])[\"')\]’”»]*[ \t]+|[。！？｡]+[」』）”’]*"
_WORD = r"[ \t\u3000]+"
_ANYWHERE = ""
_SEPARATORS = [_PARAGRAPH, _LINE, _SENTENCE, _WORD, _ANYWHERE]
"""The best places to cut first. What a pattern matches stays with the text before it."""
_TARGETS = re.compile(r"\]\([^()\s]*\)|<[^<>]*>")
"""Link targets and tags, which a heading's line has and its title has not."""


def split_sections(
    sections: Iterable[Document], *, chunk_size: int = 900, chunk_overlap: int = 120
) -> list[Document]:
    r"""Cut sections between paragraphs, else lines, else sentences, else words.

    Each chunk keeps its section's metadata and gets `start_index`, its place in the section's
    text, and an `id`: 16 hexadecimal digits of a SHA-256 over source, page, heading, place, text
    and a count that tells equal ones apart. The same files give the same ids on every run.
    White space, and a section's heading without anything under it, make no chunk.

    Args:
        sections: What `read_folder` returns, or any documents.
        chunk_size: The most characters of a chunk.
        chunk_overlap: The most characters that a chunk repeats of the one before.

    Raises:
        ValueError: A size is negative, `chunk_size` is 0, or the overlap exceeds it.
        MissingExtraError: The `local` extra is not installed.

    Example:
        >>> page = Document("One.\n\nTwo three.", metadata={"source": "a.txt"})
        >>> for chunk in split_sections([page], chunk_size=12, chunk_overlap=0):
        ...     print(chunk.id, chunk.metadata["start_index"], chunk.page_content)
        4a6a90b7edd49de1 0 One.
        6830f79c152e6bfc 6 Two three.
    """
    with local_extra():
        from langchain_text_splitters import RecursiveCharacterTextSplitter  # noqa: PLC0415
    splitter = RecursiveCharacterTextSplitter(
        _SEPARATORS,
        keep_separator="end",
        is_separator_regex=True,
        chunk_size=chunk_size,
        chunk_overlap=chunk_overlap,
        add_start_index=True,
    )
    chunks = [
        chunk
        for section in sections
        for chunk in splitter.split_documents([section])
        if chunk.page_content.strip() and not _is_heading_alone(chunk, section)
    ]
    seen: Counter[str] = Counter()
    return [_with_id(chunk, seen) for chunk in chunks]


def _with_id(chunk: Document, seen: Counter[str]) -> Document:
    where = [chunk.metadata.get(key) for key in ("source", "page", "heading", "start_index")]
    identity = json.dumps([*where, chunk.page_content], default=str)
    digest = hashlib.sha256(f"{identity}#{seen[identity]}".encode()).hexdigest()
    seen[identity] += 1
    return Document(id=digest[:16], page_content=chunk.page_content, metadata=chunk.metadata)


def _is_heading_alone(chunk: Document, section: Document) -> bool:
    """Tell whether a chunk is its section's heading and nothing else."""
    heading = chunk.metadata.get("heading")
    if not heading or section.page_content[: chunk.metadata["start_index"]].strip():
        return False
    titles = str(heading).split(" > ")  # a title may itself hold " > "
    names = {_letters(" > ".join(titles[first:])) for first in range(len(titles))}
    return _letters(html.unescape(_TARGETS.sub("", chunk.page_content))) in names - {""}


def _letters(text: str) -> str:
    return "".join(character for character in text if character.isalnum())
