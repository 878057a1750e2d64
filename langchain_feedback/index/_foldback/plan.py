"""What a fold-back run would change: a plan that can be read, and told from another."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from langchain_feedback.errors import LangChainFeedbackError
from langchain_feedback.index._foldback.gate import Gate, Tally, Vote, tally
from langchain_feedback.index._foldback.mining import Proposal, quotes_are_proved
from langchain_feedback.index._writer import plan as writing_plan
from langchain_feedback.store.derived_rows import Derived, Source, Standing

__all__ = ["Change", "Facts", "FoldBackError", "Plan", "Rules", "after", "changes_of", "digest_of"]

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
    absent: Collection[Source] = ()
    """Sources that the index itself does not hold any more."""


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
    """A SHA-256 of what would be done: equal for the same changes only."""
    absent: frozenset[Source] = field(default=frozenset(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.changes or self.index)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} to {kind}" for kind, count in self.counts.items())
        return f"{counts or 'nothing to do'}; {self.index}; plan {self.digest[:12]}"

    @property
    def counts(self) -> dict[str, int]:
        """How many entries of each kind of change."""
        return dict(sorted(Counter(change.kind for change in self.changes).items()))


def changes_of(facts: Facts, rules: Rules) -> list[Change]:
    """Decide about each entry and each proposal; what stays as it is makes no change."""
    offered = {one.derived_id: one for one in facts.proposals}
    known = {entry.derived_id for entry in facts.entries}
    found = [
        _of_entry(entry, offered.get(entry.derived_id), facts, rules) for entry in facts.entries
    ]
    found += [_of_new(one, facts, rules) for one in facts.proposals if one.derived_id not in known]
    return [change for change in found if change is not None]


def after(change: Change, now: datetime, rules: Rules) -> Derived:
    """Return an entry as a change leaves it, with its times."""
    entry = change.entry
    if change.kind == "expire":
        return replace(entry, votes=entry.votes | {"since": now.isoformat()})
    if change.kind == "refresh":
        return entry
    if entry.status == "active":
        until = now + timedelta(days=rules.max_age_days)
        return replace(entry, approved_by="gate", approved_at=now, expires_at=until)
    return replace(entry, approved_by=None, approved_at=None, expires_at=None)


def digest_of(changes: Sequence[Change], index: writing_plan.Plan) -> str:
    """Return a digest of what would be done; times are no part of it."""
    told: list[Any] = [index.digest]
    for change in changes:
        entry = change.entry
        told.append([change.kind, entry.derived_id, entry.status, entry.text, change.reason])
        told.append([entry.sources, {k: v for k, v in entry.votes.items() if k != "since"}])
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _of_new(one: Proposal, facts: Facts, rules: Rules) -> Change | None:
    said = tally(one.votes)
    if _trouble(one.sources, facts) or said.negative >= said.positive or said.reviewer_against:
        return None
    copies = [copy for source in one.sources for copy in facts.standing[source].known[:1]]
    texts = [document.page_content for _, document, _ in copies]
    # Of a chunk that is demoted for now there is no copy: it waits.
    if len(texts) < len(one.sources) or not quotes_are_proved(one.text, texts):
        return None
    passes = rules.gate.passes(said)
    entry = Derived(
        derived_id=one.derived_id,
        question_id=one.question_id,
        question=one.question,
        trace_id=one.trace_id,
        text=one.text,
        status="active" if passes and rules.auto_approve else "candidate",
        approved_by=None,
        approved_at=None,
        expires_at=None,
        votes=_kept(said, rules) | {"grounded": True},
        sources=one.sources,
    )
    if entry.status == "active":
        return Change("activate", entry, _counted(said))
    return Change("propose", entry, _counted(said))


def _of_entry(
    entry: Derived, offered: Proposal | None, facts: Facts, rules: Rules
) -> Change | None:
    if entry.status == "rejected":
        return None
    trouble = _trouble(entry.sources, facts) or (
        None if entry.question else "its question was removed"
    )
    if entry.status == "expired":
        return _revived(entry, offered, trouble, rules)
    if trouble:
        return _expired(entry, "source", trouble)
    if entry.status == "candidate":
        return _refreshed(entry, offered, rules)
    return _over(entry, offered, facts.now, rules.gate)


def _over(entry: Derived, offered: Proposal | None, now: datetime, gate: Gate) -> Change | None:
    """Say what ends an active entry whose sources stand: its time, or what people say of it."""
    if entry.expires_at is not None and entry.expires_at <= now:
        return _expired(entry, "age", "its approval is too old")
    said = tally(_since(offered, entry.approved_at))
    if said.reviewer_against:
        return _expired(entry, "votes", "a reviewer voted against it")
    if said.negative > said.positive and said.positive + said.negative >= gate.least_votes:
        return _expired(entry, "votes", f"since its approval, {_counted(said)}")
    whole = _answered(entry, offered)
    return None if whole == entry else Change("refresh", whole, "its answer was forgotten")


def _expired(entry: Derived, why: str, reason: str) -> Change:
    votes = entry.votes | {"expired": why}
    # Where the question went, the answer goes too.
    text = entry.text if entry.question else ""
    return Change("expire", replace(entry, status="expired", text=text, votes=votes), reason)


def _refreshed(entry: Derived, offered: Proposal | None, rules: Rules) -> Change | None:
    before, said = entry, tally(_since(offered, _instant(entry.votes.get("since"))))
    votes = entry.votes | _kept(said, rules)
    entry = _answered(entry, offered)
    if rules.auto_approve and rules.gate.passes(said):
        return Change("activate", replace(entry, status="active", votes=votes), _counted(said))
    if replace(entry, votes=votes) == before:
        return None
    return Change("refresh", replace(entry, votes=votes), _counted(said))


def _answered(entry: Derived, offered: Proposal | None) -> Derived:
    """Give an entry an answer where it has none: whoever got the old one was forgotten."""
    if entry.text or offered is None:
        return entry
    return replace(entry, text=offered.text, trace_id=offered.trace_id)


def _revived(
    entry: Derived, offered: Proposal | None, trouble: str | None, rules: Rules
) -> Change | None:
    """Let a source that came back, or a new vote after the time was over, ask a reviewer again."""
    why = entry.votes.get("expired")
    said = tally(_since(offered, _instant(entry.votes.get("since"))))
    wanted = why == "source" or (why == "age" and said.positive > said.negative)
    entry = _answered(entry, offered)
    if trouble or not wanted or not entry.text:
        return None
    votes = {name: of for name, of in entry.votes.items() if name != "expired"}
    votes |= _kept(said, rules) | {"round": int(votes.get("round", 0)) + 1}
    reason = "its sources are back" if why == "source" else "somebody liked it again"
    return Change("revive", replace(entry, status="candidate", votes=votes), reason)


def _trouble(sources: Sequence[Source], facts: Facts) -> str | None:
    """Say what is wrong with the sources of an entry, if anything is."""
    if not sources:
        return "it has no sources"
    for source in sources:
        state = facts.standing[source].state
        if source in facts.absent:
            state = "gone"
        if state in ("changed", "gone"):
            return f"{source[0]} {'changed' if state == 'changed' else 'is gone'}"
    return None


def _kept(said: Tally, rules: Rules) -> dict[str, Any]:
    passes = rules.gate.passes(said)
    return said.as_dict() | {"passes": passes, "max_age_days": rules.max_age_days}


def _since(offered: Proposal | None, since: datetime | None) -> list[Vote]:
    votes = offered.votes if offered else ()
    return [vote for vote in votes if since is None or vote.at > since]


def _instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _counted(said: Tally) -> str:
    people = "1 person" if said.actors == 1 else f"{said.actors} people"
    return f"{said.positive} for, {said.negative} against, of {people}"
