"""What a retirement would hide and remove: facts in, a plan out; nothing here reads or writes."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from langchain_core.documents import Document

from langchain_feedback.index._retirement.rules import RetirementRules, Tally

__all__ = ["Candidate", "Facts", "Held", "RetirementPlan", "SourceChunk", "planned"]


@dataclass(frozen=True)
class Candidate:
    """A chunk that may go, and why."""

    chunk_id: str
    index_id: str
    """Its id in the index."""
    content_hash: str
    source: str
    scope: str
    gated: tuple[str, ...]
    """The reasons for which the gate finds it wanting; none: votes alone speak against it."""
    said: Tally
    condemned: bool
    """Whether the votes alone are enough."""
    kept_by: str = ""
    """What speaks for it: `praised`, `pinned`, `derived` or `restored`; empty: nothing."""
    hidden_since: datetime | None = None
    """When a run hid it; None: it is shown."""
    document: Document | None = field(default=None, repr=False, compare=False)
    """As it stands in the index; None: it is not there, or with another text."""

    @property
    def reason(self) -> str:
        """Why, in words."""
        told = [f"gated: {', '.join(self.gated)}"] if self.gated else []
        if self.condemned:
            said = self.said
            told.append(
                f"{said.positive:.4g} of {said.votes:.4g} votes for it, by {said.actors} people"
                f" on {said.questions} questions"
            )
        return "; ".join(told)

    @property
    def statistics(self) -> dict[str, Any]:
        """The figures that it rests on, as JSON holds them."""
        return self.said.as_dict() | {"gated": list(self.gated)}


@dataclass(frozen=True)
class Held:
    """A chunk that is not touched although something speaks against it: for people to look at."""

    chunk_id: str
    source: str
    reason: str
    """Why it was a candidate."""
    because: str
    """Why it stays: `last_chunk` or `half_of_source` of its source, `no_source` is known,
    `not_in_index` under its id and with its text, `unkeepable` metadata that could not be
    restored, or, of a hidden chunk, what speaks for it now; `acquitted`: nothing speaks against
    it any more."""


@dataclass(frozen=True)
class SourceChunk:
    """A chunk of a source in question."""

    chunk_id: str
    source: str
    scope: str
    length: int
    """Of its text, in code points."""
    live: bool
    """Whether it is shown and in the index; otherwise a retirement hid or removed it."""
    gated: bool


@dataclass(frozen=True)
class Facts:
    """What a plan is made from."""

    now: datetime
    chunks: int
    """How many are live in the namespace."""
    candidates: Sequence[Candidate]
    siblings: Sequence[SourceChunk]
    """All chunks of the candidates' sources, themselves included."""


@dataclass(frozen=True)
class RetirementPlan:
    """The chunks that a run would hide, and those that it would remove from the index."""

    index: str
    demote: tuple[Candidate, ...]
    """To hide: they stay in the index, and are back at once if they are restored."""
    remove: tuple[Candidate, ...]
    """To remove: hidden for long enough, and nothing speaks for them."""
    held: tuple[Held, ...]
    """For people to look at; a run does nothing about them."""
    waiting: int
    """How many more there are than one run may touch."""
    digest: str
    """A SHA-256 of what would be done: equal for the same changes to the same index only."""
    run_id: str = ""
    """Of the dry run that made it."""

    def __bool__(self) -> bool:
        return bool(self.demote or self.remove)

    def __str__(self) -> str:
        told = ", ".join(f"{n:,} {name}" for name, n in self.counts.items())
        return f"{self.index}: {told}; digest {self.digest[:12]}"

    @property
    def counts(self) -> dict[str, int]:
        """How many chunks of each kind, and how many are held for which reason."""
        counts = {"demote": len(self.demote), "remove": len(self.remove), "waiting": self.waiting}
        held = Counter(one.because for one in self.held)
        return counts | {f"held_{name}": held[name] for name in sorted(held)}


def planned(index: str, namespace: str, facts: Facts, rules: RetirementRules) -> RetirementPlan:
    """Decide which candidates go; see `Retirement` for the rules.

    Args:
        index: The ledger's name of the index.
        namespace: Whose chunks they are.
        facts: What is known.
        rules: How much is enough.
    """
    room = rules.most_at_once(facts.chunks)
    sources = _Sources(facts.siblings, rules.least_kept_share)
    held: list[Held] = []
    demote: list[Candidate] = []
    remove: list[Candidate] = []
    waiting = 0
    for one in sorted((one for one in facts.candidates if one.hidden_since is None), key=_worst):
        if one.kept_by or not (one.gated or one.condemned):
            continue
        if because := _unready(one) or sources.refusal(one):
            held.append(_held(one, because))
        elif len(demote) == room:
            waiting += 1
        else:
            sources.take(one)
            demote.append(one)
    for one in sorted((one for one in facts.candidates if one.hidden_since), key=_oldest):
        if not _is_due(one, facts.now, rules):
            continue
        if because := _unready(one) or _doubt(one) or sources.shortage(one):
            held.append(_held(one, because))
        elif len(remove) == room:
            waiting += 1
        else:
            remove.append(one)
    digest = _digest([index, namespace], demote, remove)
    return RetirementPlan(index, tuple(demote), tuple(remove), tuple(held), waiting, digest)


class _Sources:
    """How much of each source is left while a plan takes chunks away."""

    def __init__(self, siblings: Iterable[SourceChunk], least_share: float) -> None:
        self.least_share = least_share
        self.whole: Counter[tuple[str, str]] = Counter()
        self.left: dict[tuple[str, str], dict[str, SourceChunk]] = defaultdict(dict)
        for one in siblings:
            self.whole[one.scope, one.source] += one.length
            if one.live:
                self.left[one.scope, one.source][one.chunk_id] = one

    def refusal(self, one: Candidate) -> str:
        """Say why a shown chunk has to stay; empty: it may go."""
        left = self.left[one.scope, one.source]
        rest = [other for other in left.values() if other.chunk_id != one.chunk_id]
        had_good = any(not other.gated for other in left.values())
        # What only junk is left of has lost its last chunk.
        if not rest or (had_good and all(other.gated for other in rest)):
            return "last_chunk"
        return self._too_short(one, rest)

    def shortage(self, one: Candidate) -> str:
        """Say why a hidden chunk has to stay in the index; empty: it may go."""
        rest = list(self.left[one.scope, one.source].values())
        return self._too_short(one, rest) if rest else "last_chunk"

    def take(self, one: Candidate) -> None:
        """Note that a chunk goes."""
        self.left[one.scope, one.source].pop(one.chunk_id, None)

    def _too_short(self, one: Candidate, rest: Sequence[SourceChunk]) -> str:
        kept = sum(other.length for other in rest)
        enough = kept >= self.least_share * self.whole[one.scope, one.source]
        return "" if enough else "half_of_source"


def _unready(one: Candidate) -> str:
    if not one.source:
        return "no_source"
    if one.document is None:
        return "not_in_index"
    return "" if _is_keepable(one.document.metadata) else "unkeepable"


def _is_keepable(metadata: Mapping[str, Any]) -> bool:
    """Whether JSON gives back the very same."""
    try:
        return bool(json.loads(json.dumps(metadata)) == metadata)
    except (TypeError, ValueError):
        return False


def _is_due(one: Candidate, now: datetime, rules: RetirementRules) -> bool:
    hidden = one.hidden_since
    return hidden is not None and now - hidden >= timedelta(days=rules.hidden_days)


def _doubt(one: Candidate) -> str:
    """Say what speaks for a hidden chunk since; empty: nothing."""
    return one.kept_by or ("" if one.gated or one.condemned else "acquitted")


def _held(one: Candidate, because: str) -> Held:
    return Held(one.chunk_id, one.source, one.reason, because)


def _worst(one: Candidate) -> tuple[Any, ...]:
    return not one.gated, one.said.upper, one.chunk_id


def _oldest(one: Candidate) -> tuple[Any, ...]:
    return one.hidden_since, one.chunk_id


def _digest(of: list[str], demote: Sequence[Candidate], remove: Sequence[Candidate]) -> str:
    # Without the figures: a vote that changes nothing else makes no other plan.
    told = [
        [(one.chunk_id, one.index_id, one.content_hash, one.gated) for one in changed]
        for changed in (demote, remove)
    ]
    return hashlib.sha256(json.dumps([of, *told]).encode()).hexdigest()
