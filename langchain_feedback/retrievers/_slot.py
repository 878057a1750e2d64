"""One slot more, after the k chunks of a retrieval: what an accepted answer rested on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, copy_document, is_derived
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._pool import Candidate
from langchain_feedback.retrievers._published import Ranked
from langchain_feedback.traces import MARKS_KEY

__all__ = ["ExtraSlot", "Slot", "filled", "noted"]


@runtime_checkable
class ExtraSlot(Protocol):
    """Knows what to serve beside what was retrieved, such as `index.foldback.FoldBack`."""

    def lookup(
        self,
        question: str,
        *,
        shown: Sequence[Document],
        pool: Sequence[Document],
        vector: Sequence[float] | None,
        allow: Callable[[Document], bool] | None,
        resolve: Any,
        id_field: str | None,
    ) -> Sequence[Document]:
        """Return documents that are not among those shown, possibly none."""

    def refuse(self, primary: Any) -> None:
        """Raise `ValueError` where a retriever, or a store's method, is on the slot's index."""


class Slot(NamedTuple):
    """The candidates with those of the slot behind the ones shown."""

    best_first: list[Ranked]
    shown: int
    """How many of them are returned."""
    derived: list[Document]
    """Answers given before: returned last, and no candidates of anything."""


def filled(
    best_first: list[Ranked],
    shown: int,
    look_up: Callable[..., Sequence[Document]],
    once: Once,
    id_field: str | None,
) -> Slot:
    """Fill the slot; a failure leaves it empty.

    Args:
        best_first: The candidates.
        shown: How many of them are returned: these stay as they are.
        look_up: Returns what comes after the documents `shown`, of a `pool`.
        once: Hears of failures.
        id_field: The metadata field that holds a chunk's id, if any.
    """
    primary, rest = best_first[:shown], best_first[shown:]
    try:
        found = look_up(
            shown=[one.chunk.document for one in primary],
            pool=[one.chunk.document for one in best_first],
        )
    except Exception as error:  # noqa: BLE001  the answer goes out without it
        once.warn("foldback", "The extra slot stays empty: %r", error)
        return Slot(best_first, shown, [])
    there = {one.chunk.chunk_id for one in primary}
    extra = [one for one in _candidates(found, rest, id_field) if one.chunk.chunk_id not in there]
    taken = {one.chunk.chunk_id for one in extra}
    rest = [one for one in rest if one.chunk.chunk_id not in taken]
    derived = [document for document in found if is_derived(document)]
    return Slot([*primary, *extra, *rest], shown + len(extra), derived)


def noted(document: Document, trace_id: str) -> Document:
    """Return a copy of a derived document that says which retrieval it belongs to."""
    copied = copy_document(document)
    copied.metadata[MARKS_KEY] = {
        "trace_id": trace_id, "chunk_id": chunk_key(document), "base_rank": None,
        "origin": "foldback", "belief": 0.0, "multiplier": 1.0,
    }  # fmt: skip
    return copied


def _candidates(
    found: Sequence[Document], rest: Sequence[Ranked], id_field: str | None
) -> list[Ranked]:
    """Make candidates of the slot's documents; what the base had further down is that one."""
    known = {one.chunk.chunk_id: one for one in rest}
    made = []
    for document in found:
        if is_derived(document):
            continue
        key = chunk_key(document, id_field)
        one = known.get(key) or Ranked(Candidate(document, key, None, -1), 0.0, 0.0, 1.0)
        made.append(one._replace(chunk=replace(one.chunk, origin="foldback")))
    return made
