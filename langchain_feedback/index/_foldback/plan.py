"""What a fold-back run would change: a plan that can be read, and told from another."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from langchain_feedback.errors import LangChainFeedbackError
from langchain_feedback.index._foldback.gate import Gate
from langchain_feedback.index._foldback.mining import Proposal
from langchain_feedback.index._foldback.resolving import Said
from langchain_feedback.index._writer import plan as writing_plan
from langchain_feedback.store.derived_rows import Derived, Source, Standing

__all__ = ["BY_VOTES", "Change", "Facts", "FoldBackError", "Plan", "Rules", "digest_of"]

BY_VOTES = "gate"
"""Who said yes where no person did."""

Kind = Literal["propose", "activate", "refresh", "expire", "revive"]


class FoldBackError(LangChainFeedbackError):
    """An entry cannot be what it is asked to be; nothing was done."""


@dataclass(frozen=True)
class Rules:
    """What decides about an entry."""

    gate: Gate
    auto_approve: bool
    max_age_days: float


@dataclass(frozen=True)
class Facts:
    """What is known when a plan is made."""

    now: datetime
    entries: Sequence[Derived]
    proposals: Sequence[Proposal]
    standing: Mapping[Source, Standing]
    doubted: frozenset[Source] = frozenset()
    """Sources that only the index itself can tell of."""


@dataclass(frozen=True)
class Change:
    """What would become of one entry."""

    kind: Kind
    entry: Derived
    """As it would be, but for the times."""
    reason: str

    def __str__(self) -> str:
        asked = f"{self.entry.question!r}" if self.entry.question else self.entry.derived_id
        return f"{self.kind} {asked}: {self.reason}"


@dataclass(frozen=True)
class Plan:
    """The entries that a run would change, and what it would write to the questions' index."""

    changes: tuple[Change, ...]
    index: writing_plan.Plan
    """New questions, and those that go."""
    digest: str
    """A SHA-256 of what would be done: equal for the same changes only. How many votes there
    are for what is proposed to a reviewer makes no other plan."""
    said: Said = field(default_factory=Said, repr=False, compare=False)
    """By the index that documents are retrieved from."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.index)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} to {kind}" for kind, count in self.counts.items())
        return f"{counts or 'nothing to do'}; {self.index}; plan {self.digest[:12]}"

    @property
    def counts(self) -> dict[str, int]:
        """How many entries of each kind of change."""
        return dict(sorted(Counter(change.kind for change in self.changes).items()))


def digest_of(changes: Sequence[Change], index: writing_plan.Plan) -> str:
    """Return a digest of what would be done; times are no part of it.

    Nor are the figures of what goes on waiting for a reviewer, who sees those of that time: or
    nothing could ever be applied where people vote all day.
    """
    told: list[Any] = [index.digest]
    for change in changes:
        entry = change.entry
        told.append([change.kind, entry.derived_id, entry.status, entry.sources])
        if entry.status != "candidate" or change.kind == "revive":
            figures = {name: of for name, of in entry.votes.items() if name != "since"}
            told.append([entry.text, change.reason, figures])
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
