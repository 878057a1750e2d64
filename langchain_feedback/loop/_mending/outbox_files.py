"""Messages as files: a line of JSON, a mail that can be sent, an issue that can be opened."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from langchain_feedback.loop._mending.digest import as_markdown, as_text, subject_of
from langchain_feedback.loop.owners import Owner

__all__ = ["write_file"]

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")


def write_file(folder: Path, owner: Owner, digest: Mapping[str, Any]) -> Path:
    """Write a digest as its owner's channel wants it; twice is once. Return the file.

    Raises:
        OSError: If it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name(owner.name)
    if owner.channel == "outbox":
        return _append(folder / f"{name}.jsonl", digest)
    week = f"{name}-{digest['week']}-{digest['delivery_id'][:8]}"
    if owner.channel == "email":
        return _replace(folder / f"{week}.eml", bytes(_mail(owner, digest)))
    return _replace(folder / f"{week}.md", as_markdown(digest).encode())


def file_name(name: str) -> str:
    """Return a name that is a file's on every system, and another one for each name.

    Example:
        >>> file_name("billing"), file_name("../billing")
        ('billing', 'billing-5d7761b0')
    """
    if _PLAIN.fullmatch(name) and not name.endswith("."):
        return name
    kept = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    return f"{kept or 'owner'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _append(path: Path, digest: Mapping[str, Any]) -> Path:
    line = json.dumps(digest, ensure_ascii=False).encode() + b"\n"
    known = path.read_bytes() if path.exists() else b""
    # Who wrote it and died before he could say so has written it all the same.
    marked = f'"delivery_id": "{digest["delivery_id"]}"'.encode()
    if any(marked in one for one in known.split(b"\n")[:-1]):
        return path
    torn = b"" if not known or known.endswith(b"\n") else b"\n"
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with open(opened, "ab", buffering=0) as file:  # noqa: PTH123  one write, at the end
        file.write(torn + line)
        os.fsync(file.fileno())
    return path


def _replace(path: Path, content: bytes) -> Path:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return beside.replace(path)


def _mail(owner: Owner, digest: Mapping[str, Any]) -> EmailMessage:
    mail = EmailMessage()
    mail["To"] = owner.address
    mail["Subject"] = subject_of(digest)
    # So that a mail that is sent twice is shown once, and a program opens it as a draft.
    mail["Message-ID"] = f"<{digest['delivery_id']}@langchain-feedback>"
    mail["X-Unsent"] = "1"
    mail.set_content(as_text(digest))
    return mail
