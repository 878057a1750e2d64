"""Can a version be opened here, and is it searched with the embedder that it was made with."""

from typing import TYPE_CHECKING, Any

from langchain_feedback.index._versions.checks import check_embedder
from langchain_feedback.index._versions.embedder import embeddings_of
from langchain_feedback.index.errors import EmbedderMismatchError

if TYPE_CHECKING:
    from langchain_feedback.index._versions.base import OpenVersion
    from langchain_feedback.index._versions.rows import IndexVersion

__all__ = ["opened", "unopened"]


def opened(open_version: "OpenVersion", version: "IndexVersion") -> tuple[Any, str]:
    """Open a version; return its retriever, and why it could not be opened, of which one is.

    Args:
        open_version: As `SwappableRetriever` has it.
        version: Which.
    """
    try:
        return open_version(version), ""
    except Exception as error:  # noqa: BLE001  whatever an app's own code raises
        return None, f"it cannot be opened: {type(error).__name__}: {error}".rstrip(".")


def unopened(open_version: "OpenVersion", version: "IndexVersion") -> str:
    """Return why a version cannot be searched; empty if it can, as far as opening it tells.

    Where the retriever does not tell its embedder, that is no reason: `IndexRegistry.ready` was
    told how to read it, and nobody else is.
    """
    retriever, why = opened(open_version, version)
    if why or embeddings_of(retriever) is None:
        return why
    try:
        check_embedder(version.embedder, retriever)
    except EmbedderMismatchError as error:
        return str(error).rstrip(".")
    return ""
