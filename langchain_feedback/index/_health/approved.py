"""Does the index of accepted questions hold what was approved."""

from langchain_feedback.index._health.base import NAMED, Look, clean, found, skipped
from langchain_feedback.index._health.records import HealthCheck
from langchain_feedback.index._writer.stores import found_in

__all__ = ["check_approved"]

_TODO = "`langchain-feedback index foldback run` writes them, with `--apply`."


def check_approved(look: Look) -> HealthCheck:
    """Ask the index of questions for every entry that is active."""
    name = "questions"
    if look.index.foldback is None:
        return skipped(name, "the index has no fold-back: `ManagedIndex(foldback=...)`")
    foldback = look.index.folded(look.store)
    active = sorted(one.derived_id for one in foldback.list("active"))
    if not active:
        return skipped(name, "no question is approved")
    there = found_in(foldback.vector_store, active)
    missing = [of for of in active if of not in there]
    figures = {"active": len(active), "missing": len(missing)}
    if missing:
        told = ", ".join(missing[:NAMED])
        said = f"{len(missing):,} of {len(active):,} approved questions serve nobody, for they "
        said += f"are not in the index of questions: {told}"
        return found(name, "alarm", said, _TODO, figures)
    return clean(name, f"the {len(active):,} approved questions are in their index", figures)
