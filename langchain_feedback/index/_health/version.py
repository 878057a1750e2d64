"""Can the version that is searched be opened: a process that starts now has to."""

from langchain_feedback.index._health.base import Look, clean, found, skipped
from langchain_feedback.index._health.records import HealthCheck

__all__ = ["check_version"]

_TODO = (
    "Readers that have it open go on; one that starts now has nothing to search. Put back what it "
    "needs, or go back: `langchain-feedback index versions rollback`."
)


def check_version(look: Look) -> HealthCheck:
    """Open the active version as a reader does; `embedder` compares what it is searched with."""
    name = "version"
    if look.index.open_version is None:
        return skipped(name, "the index opens no versions: `ManagedIndex(open_version=...)`")
    active, _, why = look.searched
    if active is None:
        return skipped(name, "no version is active: see `IndexRegistry.activate`")
    figures = {"version": active.version}
    if why:
        said = f"of version {active.version!r}, which is active: {why}"
        return found(name, "alarm", said, _TODO, figures)
    return clean(name, f"version {active.version!r} was opened", figures)
