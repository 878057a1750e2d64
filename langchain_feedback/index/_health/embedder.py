"""Is the index searched with the embedder that it was made with."""

from langchain_feedback.index._health.base import Look, clean, found, skipped
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.index._versions.embedder import embeddings_of, fingerprint_of

__all__ = ["check_embedder"]

_TODO = (
    "Search with the embedder that the version was made with, or build a new version with the "
    "new one: vectors of two models of one size compare without any error, and mean nothing."
)


def check_embedder(look: Look) -> HealthCheck:
    """Compare the index's embedder with the fingerprint of the active version.

    With `open_version` it is that of the active version as it is opened. Three short questions
    are embedded.
    """
    name = "embedder"
    active, retriever, why = look.searched
    if active is None:
        why = "no version is active, so nobody noted an embedder: see `IndexRegistry.register`"
        return skipped(name, why)
    figures = {"version": active.version}
    if active.embedder is None:
        return skipped(name, f"version {active.version!r} was registered without one", figures)
    if why:
        return skipped(name, "the active version cannot be opened: see `version`", figures)
    # Where versions are opened, `vector_store` is not what is searched.
    is_opened = look.index.open_version is not None
    embeddings = embeddings_of(retriever) if is_opened else look.index.embedder()
    if (embeddings := embeddings or look.index.embeddings) is None:
        why = "the index does not tell its embedder: give `ManagedIndex(embeddings=...)`"
        return skipped(name, why, figures)
    expected, now = active.embedder, fingerprint_of(embeddings)
    figures |= {"registered": expected.name, "now": now.name}
    if differs := now.differs_from(expected):
        said = (
            f"the index is not searched with what version {active.version!r} was made: {differs}"
        )
        return found(name, "alarm", said, _TODO, figures)
    return clean(name, f"version {active.version!r} is searched with {now.name}", figures)
