"""All checks of a version of an index, and what they come to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_feedback.index._versions.checks import (
    Check,
    EmbeddingsOf,
    check_count,
    check_ledger,
    check_probes,
    check_replay,
)
from langchain_feedback.index._versions.replay import credited_questions
from langchain_feedback.index.errors import VersionRefusedError
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.index._versions.rows import IndexVersion
    from langchain_feedback.index.ledger import Ledger
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["checked", "objections"]

_QUESTIONS = 200


def checked(
    store: "FeedbackStore",
    new: "IndexVersion",
    active: "IndexVersion | None",
    open_version: Any,
    *,
    ledger: "Ledger | None",
    vector_store: Any,
    chunk_count: int | None,
    k: int,
    embedder_of: EmbeddingsOf | None,
) -> tuple[dict[str, Check], int]:
    """Check a version against the active one; return what was found, and how many chunks it has.

    Args:
        store: Whose questions are asked again.
        new: The version.
        active: The active one; None: there is none.
        open_version: Opens either.
        ledger: See `IndexRegistry.ready`, as the rest.
        vector_store: What the ledger is about.
        chunk_count: How many chunks it has, where no ledger tells.
        k: How many documents of a search count.
        embedder_of: Returns the embedder of what `open_version` returns.

    Raises:
        ValueError: If nobody says how many chunks it has, or `k` is below 1.
    """
    if ledger is None and chunk_count is None:
        msg = "How many chunks has it? Pass its ledger, or chunk_count."
        raise ValueError(msg)
    if k < 1:
        msg = f"k must be at least 1, got {k!r}"
        raise ValueError(msg)
    opened, found = open_version(new), {}
    if ledger is not None:
        found["ledger"] = check_ledger(ledger, vector_store or _vector_store_of(opened))
        chunk_count = found["ledger"].figures["present"]
    count = int(chunk_count or 0)
    found["count"] = check_count(count, active.chunk_count if active else None)
    found["probes"] = check_probes(new.embedder, opened, embedder_of)
    # Who asks the wrong embedder learns nothing.
    if found["probes"].ok:
        with reading(store) as connection:
            asked = credited_questions(connection, store.namespace, _QUESTIONS)
        open_active = None if active is None else lambda: open_version(active)
        found["replay"] = check_replay(asked, opened, open_active, k)
    return found, count


def objections(checks: Mapping[str, Check], *, force: bool) -> list[str]:
    """Return what speaks against a version, for people; nothing: it may be activated."""
    return [
        f"{name}: {check.objection()}"
        for name, check in checks.items()
        if not check.ok and not (force and check.forcible)
    ]


def _vector_store_of(retriever: Any) -> Any:
    for part in (retriever, getattr(retriever, "base_retriever", None)):
        if (found := getattr(part, "vectorstore", None)) is not None:
            return found
    msg = (
        f"{type(retriever).__name__} does not tell which vector store the ledger is about. Pass "
        "vector_store."
    )
    raise VersionRefusedError(msg)
