"""What a writer would do to an index: a plan that can be read, kept, and told from another."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document

from langchain_feedback.index._writer.stores import fingerprint
from langchain_feedback.index.ledger import Entry, Fingerprint

__all__ = ["Plan", "Request", "planned"]


@dataclass(frozen=True)
class Request:
    """What a plan was made for, to make it again before it runs."""

    documents: Mapping[str, Document]
    """What shall be in the index, by id."""
    removed: frozenset[str] = frozenset()
    """What shall not be in it, whatever the ledger knows."""
    complete: bool = True
    """Whether everything else that the ledger knows shall go."""


@dataclass(frozen=True)
class Plan:
    """The documents that a writer would touch, by their ids in order, and those that stay."""

    index: str
    add: tuple[str, ...]
    """New ones."""
    replace: tuple[str, ...]
    """Ones whose text or metadata are others now, or that the ledger does not know."""
    remove: tuple[str, ...]
    """Ones that are no longer wanted."""
    repair: tuple[str, ...]
    """Ones that a crash left in doubt, or that are gone or changed behind the writer's back."""
    keep: tuple[str, ...]
    """Ones that are as they should be: not touched."""
    digest: str
    """A SHA-256 of what would be done: equal for the same changes to the same index only."""
    known: int = 0
    """How many documents the ledger had in the index."""
    lost: int = 0
    """How many of those, removed by no earlier run, would go."""
    request: Request = field(default_factory=lambda: Request({}), repr=False, compare=False)
    entries: Mapping[str, Entry] = field(default_factory=dict, repr=False, compare=False)
    """Of what would go."""

    def __bool__(self) -> bool:
        return bool(self.add or self.replace or self.remove or self.repair)

    def __str__(self) -> str:
        told = ", ".join(f"{n:,} to {name}" for name, n in self.counts.items() if name != "keep")
        return f"{self.index}: {told}; {len(self.keep):,} stay; digest {self.digest[:12]}"

    @property
    def counts(self) -> dict[str, int]:
        """How many documents of each kind."""
        kinds = ("add", "replace", "remove", "repair", "keep")
        return {name: len(getattr(self, name)) for name in kinds}

    @property
    def written(self) -> tuple[str, ...]:
        """The ids that would be written: embedded, and put in the place of what is there."""
        return self.add + self.replace + self.repair

    @property
    def removed_share(self) -> float:
        """The share of the known documents that would go, in [0, 1]."""
        return self.lost / self.known if self.known else 0.0


def planned(
    index: str, request: Request, entries: Mapping[str, Entry], there: Mapping[str, Fingerprint]
) -> Plan:
    """Compare what is wanted with what the ledger knows and with what is in the index.

    Args:
        index: The ledger's name of it.
        request: What is wanted.
        entries: The ledger's entries by id.
        there: Of what was found in the index, of all ids in question.
    """
    kinds: dict[str, list[str]] = {name: [] for name in ("add", "replace", "repair", "keep")}
    for key, document in request.documents.items():
        kinds[_kind(document, entries.get(key), there.get(key))].append(key)
    known = {key for key, entry in entries.items() if entry.state != "removed"}
    unwanted = set(entries) - request.documents.keys() if request.complete else set()
    remove = sorted(key for key in unwanted | request.removed if key in known or key in there)
    changes = {name: sorted(kinds[name]) for name in ("add", "replace", "repair")}
    return Plan(
        index=index,
        **{name: tuple(keys) for name, keys in kinds.items()},
        remove=tuple(remove),
        digest=_digest(index, request, changes | {"remove": remove}),
        known=len(known),
        # What an earlier run began to remove was let through then.
        lost=sum(key in known and entries[key].state != "removing" for key in remove),
        request=request,
        entries={key: entries.get(key) or Entry(key, there[key], "present", "") for key in remove},
    )


def _kind(document: Document, entry: Entry | None, there: Fingerprint | None) -> str:
    if entry is None or entry.state == "removed":
        # Nobody knows with which metadata and which embedder it got there.
        return "add" if there is None else "replace"
    if entry.state != "present" or there is None:
        return "repair"
    if entry.fingerprint != fingerprint(document):
        return "replace"
    # Of metadata a store may return another form than it was given.
    return "keep" if there.content_hash == entry.fingerprint.content_hash else "repair"


def _digest(index: str, request: Request, changes: Mapping[str, list[str]]) -> str:
    told: dict[str, Any] = {"index": index, "remove": changes["remove"]}
    for name in ("add", "replace", "repair"):
        told[name] = [(key, *fingerprint(request.documents[key])) for key in changes[name]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
