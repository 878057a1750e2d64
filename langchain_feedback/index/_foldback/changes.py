"""What becomes of each entry of the fold-back: facts in, changes out; nothing here writes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from langchain_feedback.index._foldback.gate import Gate, Tally, Vote, tally
from langchain_feedback.index._foldback.mining import Proposal, quotes_are_proved
from langchain_feedback.index._foldback.plan import BY_VOTES, Change, Facts, Rules
from langchain_feedback.store.derived_rows import Derived, Source

__all__ = ["after", "changes_of"]


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
        return replace(entry, approved_by=BY_VOTES, approved_at=now, expires_at=until)
    return replace(entry, approved_by=None, approved_at=None, expires_at=None)


def _of_new(one: Proposal, facts: Facts, rules: Rules) -> Change | None:
    said = tally(one.votes)
    if _trouble(one.sources, facts) or said.negative >= said.positive or said.reviewer_against:
        return None
    if not _is_proved(one, facts):
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
    whole = _answered(entry, offered, facts)
    if entry.status == "expired":
        waits = any(facts.standing[source].state != "current" for source in entry.sources)
        return None if trouble or waits else _revived(whole, offered, rules)
    if trouble:
        return _expired(entry, "source", trouble)
    if entry.status == "candidate":
        return _refreshed(entry, whole, offered, rules)
    # What a reviewer said yes to is the answer that was shown: no other one takes its place.
    by_votes = entry.approved_by == BY_VOTES
    ended = _over(entry, offered, facts.now, rules.gate)
    if ended is not None or whole == entry or not by_votes:
        return ended
    return Change("refresh", whole, "its answer was forgotten")


def _over(entry: Derived, offered: Proposal | None, now: datetime, gate: Gate) -> Change | None:
    """Say what ends an active entry whose sources stand: its time, or what people say of it."""
    if entry.expires_at is not None and entry.expires_at <= now:
        return _expired(entry, "age", "its approval is too old")
    said = tally(_since(offered, entry.approved_at))
    if said.reviewer_against:
        return _expired(entry, "votes", "a reviewer voted against it")
    if said.negative > said.positive and said.positive + said.negative >= gate.least_votes:
        return _expired(entry, "votes", f"since its approval, {_counted(said)}")
    return None


def _expired(entry: Derived, why: str, reason: str) -> Change:
    votes = entry.votes | {"expired": why}
    # Where the question went, the answer goes too.
    text = entry.text if entry.question else ""
    return Change("expire", replace(entry, status="expired", text=text, votes=votes), reason)


def _refreshed(
    entry: Derived, whole: Derived, offered: Proposal | None, rules: Rules
) -> Change | None:
    said = tally(_since(offered, _instant(entry.votes.get("since"))))
    votes = entry.votes | _kept(said, rules)
    if rules.auto_approve and rules.gate.passes(said) and whole.text:
        return Change("activate", replace(whole, status="active", votes=votes), _counted(said))
    if whole.text != entry.text:
        # A reviewer is asked about this one, not about the one that is in the queue.
        return Change("revive", replace(whole, votes=_next_round(votes)), _counted(said))
    return (
        None
        if votes == entry.votes
        else Change("refresh", replace(entry, votes=votes), _counted(said))
    )


def _answered(entry: Derived, offered: Proposal | None, facts: Facts) -> Derived:
    """Give an entry an answer where it has none: whoever got the old one was forgotten."""
    if entry.text or offered is None or not _is_proved(offered, facts):
        return entry
    return replace(entry, text=offered.text, trace_id=offered.trace_id)


def _is_proved(one: Proposal, facts: Facts) -> bool:
    copies = [copy for source in one.sources for copy in facts.standing[source].known[:1]]
    texts = [document.page_content for _, document, _ in copies]
    # Of a chunk that is demoted for now there is no copy: it waits.
    return len(texts) == len(one.sources) and quotes_are_proved(one.text, texts)


def _revived(entry: Derived, offered: Proposal | None, rules: Rules) -> Change | None:
    """Let a source that came back, or a new vote after the time was over, ask a reviewer again."""
    why = entry.votes.get("expired")
    said = tally(_since(offered, _instant(entry.votes.get("since"))))
    wanted = why == "source" or (why == "age" and said.positive > said.negative)
    if not wanted or not entry.text:
        return None
    votes = {name: of for name, of in entry.votes.items() if name != "expired"}
    votes = _next_round(votes | _kept(said, rules))
    reason = "its sources are back" if why == "source" else "somebody liked it again"
    return Change("revive", replace(entry, status="candidate", votes=votes), reason)


def _trouble(sources: Sequence[Source], facts: Facts) -> str | None:
    """Say what is wrong with the sources of an entry, if anything is."""
    if not sources:
        return "it has no sources"
    for source in sources:
        state = facts.standing[source].state
        if state in ("changed", "gone"):
            return f"{source[0]} {'changed' if state == 'changed' else 'is gone'}"
    return None


def _kept(said: Tally, rules: Rules) -> dict[str, Any]:
    passes = rules.gate.passes(said)
    return said.as_dict() | {"passes": passes, "max_age_days": rules.max_age_days}


def _next_round(votes: Mapping[str, Any]) -> dict[str, Any]:
    return {**votes, "round": int(votes.get("round", 0)) + 1}


def _since(offered: Proposal | None, since: datetime | None) -> list[Vote]:
    votes = offered.votes if offered else ()
    return [vote for vote in votes if since is None or vote.at > since]


def _instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _counted(said: Tally) -> str:
    people = "1 person" if said.actors == 1 else f"{said.actors} people"
    return f"{said.positive} for, {said.negative} against, of {people}"
