"""What is checked of a version of an index before it may be searched."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from langchain_feedback.documents import content_hash
from langchain_feedback.index._versions.embedder import (
    PROBES,
    EmbedderFingerprint,
    embeddings_of,
    fingerprint_of,
)
from langchain_feedback.index._versions.replay import (
    Credited,
    Replay,
    found_unrecorded,
    replayed,
)
from langchain_feedback.index._writer.stores import found_in
from langchain_feedback.index.errors import EmbedderMismatchError
from langchain_feedback.index.ledger import Ledger

__all__ = [
    "Check",
    "EmbeddingsOf",
    "check_count",
    "check_embedder",
    "check_ledger",
    "check_probes",
    "check_replay",
]

T = TypeVar("T")

EmbeddingsOf = Callable[[Any], Any]
"""Returns the embedder of a retriever, or None."""

_LEAST_SHARE = 0.95
_MOST_LOST = 0.02
_ROUNDING = 1e-9
_NAMED = 5
_SHOWN = 3
_SMALL = 50
"""Below so many credited chunks one alone is more than two points of a hundred."""


@dataclass(frozen=True)
class Check:
    """One check of a version."""

    ok: bool
    why: str
    """For people."""
    forcible: bool = False
    """Whether a person may want the version all the same: it is a judgement, and no fact."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    lost: tuple[str, ...] = field(default=(), repr=False)
    """Questions that lost a credited chunk. They are people's words, so no registry keeps them:
    who is forgotten would not be forgotten there."""

    def as_json(self) -> dict[str, Any]:
        """Return what the registry keeps of it."""
        return {name: value for name, value in asdict(self).items() if name != "lost"}

    def objection(self) -> str:
        """Return what speaks against the version, for whoever wanted it."""
        told = self.why
        if self.lost:
            more = len(self.lost) - _SHOWN
            named = ", ".join(repr(question) for question in self.lost[:_SHOWN])
            told += f"; lost: {named}{f' and {more} more' if more > 0 else ''}"
        return f"{told}; force=True passes this check" if self.forcible else told


def check_embedder(
    expected: EmbedderFingerprint | None, retriever: Any, read: EmbeddingsOf | None = None
) -> None:
    """Make sure that a retriever embeds questions as its index was made.

    Args:
        expected: What the version was registered with; None: it has no embedder.
        retriever: What `open_version` returned.
        read: Returns its embedder; None: `embeddings_of`.

    Raises:
        EmbedderMismatchError: If it is another embedder, or nobody can tell.
    """
    if expected is None:
        return
    embeddings = (read or embeddings_of)(retriever)
    if embeddings is None:
        msg = (
            f"Nobody can tell with which embedder {type(retriever).__name__} searches; the index "
            f"was made with {expected.name}. Pass `embedder_of=`, a function that returns it."
        )
        raise EmbedderMismatchError(msg)
    if differs := fingerprint_of(embeddings).differs_from(expected):
        msg = (
            f"The index would be searched with another embedder than it was made with: {differs}."
        )
        raise EmbedderMismatchError(msg)


def check_ledger(ledger: Ledger, vector_store: Any) -> Check:
    """Check that everything the ledger calls present is in the index, and nothing is in doubt.

    What is in the index and not in the ledger cannot be listed on most vector stores.
    """
    entries = ledger.entries().values()
    present = {entry.id: entry for entry in entries if entry.state == "present"}
    doubtful = sorted(entry.id for entry in entries if entry.state in ("writing", "removing"))
    there = found_in(vector_store, sorted(present))
    missing = sorted(present.keys() - there.keys())
    texts = {key: entry.fingerprint.content_hash for key, entry in present.items()}
    changed = sorted(key for key, one in there.items() if content_hash(one) != texts.get(key))
    figures = {"present": len(present), "doubtful": len(doubtful), "missing": len(missing)}
    figures |= {"changed": len(changed)}
    wrong = {"in doubt": doubtful, "missing": missing, "changed": changed}
    told = [f"{len(ids)} {what} ({', '.join(ids[:_NAMED])})" for what, ids in wrong.items() if ids]
    why = f"{len(present):,} chunks are in the index as the ledger says"
    if told:
        why = f"index and ledger differ: {'; '.join(told)}: plan and apply again"
    return Check(not told, why, figures=figures)


def check_count(count: int, active: int | None) -> Check:
    """Check that a version has at least 95 % of the chunks of the active one.

    Example:
        >>> check_count(94, 100).why
        '94 chunks, and the active version has 100: below 95 %'
        >>> check_count(95, 100).ok, check_count(1, None).ok, check_count(0, None).ok
        (True, True, False)
    """
    figures = {"chunks": count, "active": active}
    if count < 1:
        return Check(ok=False, why="it has no chunks", forcible=True, figures=figures)
    if active is None:
        return Check(ok=True, why=f"{count:,} chunks, and none is active yet", figures=figures)
    why = f"{count:,} chunks, and the active version has {active:,}"
    if count < _LEAST_SHARE * active - _ROUNDING:
        return Check(ok=False, why=f"{why}: below 95 %", forcible=True, figures=figures)
    return Check(ok=True, why=why, figures=figures)


def check_probes(
    expected: EmbedderFingerprint | None, retriever: Any, read: EmbeddingsOf | None = None
) -> Check:
    """Check that the embedder is the registered one, and that questions get documents."""
    try:
        check_embedder(expected, retriever, read)
        found = [len(found_unrecorded(retriever, text)) for text in PROBES]
    except EmbedderMismatchError as error:
        return Check(ok=False, why=str(error))
    except Exception as error:  # noqa: BLE001  whatever a retriever raises: it is not ready
        return Check(ok=False, why=f"it cannot be searched: {error!r}")
    if not any(found):
        return Check(ok=False, why="it finds nothing for any probe", figures={"found": found})
    return Check(ok=True, why="it is searched with its embedder", figures={"found": found})


def check_replay(
    asked: dict[str, list[Credited]], retriever: Any, active: Callable[[], Any] | None, k: int
) -> Check:
    """Check that credited chunks come up for their questions as often as in the active version.

    At most two points less of a hundred may be among the first `k`. Of fewer than 50 credited
    chunks no one may be lost, then: `why` says so, and `lost` names the questions.

    Args:
        asked: What was credited, by question.
        retriever: The version to come.
        active: Opens the active one; None: there is none. One that is broken is no reason to
            stay with it.
        k: How many documents count.
    """
    ours, error = _tried(lambda: replayed(retriever, asked, k))
    if ours is None:
        return Check(ok=False, why=f"its shadow replay failed: {error!r}")
    theirs, error = None, None
    if active is not None and asked:
        theirs, error = _tried(lambda: replayed(active(), asked, k))
    figures: dict[str, Any] = {"questions": ours.questions, "credited": ours.credited, "k": k}
    figures |= {"found": ours.found, "active_found": None if theirs is None else theirs.found}
    if ours.share is None:
        return Check(ok=True, why="no question has a credited chunk yet", figures=figures)
    why = f"{_told(ours)} credited chunks are in the top {k}"
    if theirs is None or theirs.share is None:
        because = "no version is active" if active is None else f"the active one failed: {error!r}"
        return Check(ok=True, why=f"{why}; {because}", figures=figures)
    why = f"{why}, and {_told(theirs)} in the active version"
    ok = ours.share >= theirs.share - _MOST_LOST - _ROUNDING
    if ok:
        return Check(ok=True, why=why, figures=figures)
    points = 100 * (theirs.share - ours.share)
    why = f"{why}: {points:.0f} points of a hundred fewer, and at most 2 may be"
    if ours.credited < _SMALL:
        why += f" (of so few, fewer than {_SMALL}, one alone is more)"
    lost = tuple(ours.lost_from(theirs))
    return Check(ok=False, why=why, forcible=True, figures=figures, lost=lost)


def _told(replay: Replay) -> str:
    return f"{replay.found} of {replay.credited}"


def _tried(function: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return function(), None
    except Exception as error:  # noqa: BLE001  told in the check
        return None, error
