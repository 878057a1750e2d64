"""The verdict over the loop's numbers: one word or two, and why in a sentence."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from langchain_feedback.loop._gating.gate import LEAST_CASES
from langchain_feedback.loop._health.records import (
    QueueHealth,
    RankerHealth,
    RankersHealth,
    RunHealth,
    SignalHealth,
    WeekHealth,
)
from langchain_feedback.ranking.linear import LEAST_GROUPS

__all__ = ["Facts", "verdict_of"]

_GROWS, _TRIES = 3, 3
_LONG = timedelta(weeks=2)
_LONG_DAYS = 14
_FEW_SIGNALS = 20
_HALF = 0.5
_MAY_BE_TRIED = ("untested", "shadow", "advice", "rejected", "recommended")


class Facts(NamedTuple):
    """What the verdict rests on."""

    queue: QueueHealth
    weeks: Sequence[WeekHealth]
    signals: SignalHealth
    rankers: RankersHealth
    run: RunHealth | None
    reviewed_at: datetime | None
    """When the last verdict was given."""
    at: datetime


def verdict_of(facts: Facts) -> tuple[str, str]:
    """Return the verdict, and why.

    What is stuck is said first, the nearest to the source of all the rest before others:
    a run that failed, signals that do not count, a queue that grows or that nobody looks at,
    rankers that gain nothing. Then `closing`: an active ranker whose promotion rests on an
    evaluation with the verdict `promote`. Else the loop is `collecting`, and says what it waits
    for.
    """
    for look in _STUCK:
        if (found := look(facts)) is not None:
            return f"stuck: {found[0]}", found[1]
    return _closing(facts) or ("collecting", _waits_for(facts))


_Found = tuple[str, str] | None


def _run_failed(facts: Facts) -> _Found:
    run = facts.run
    if run is None or run.state not in ("failed", "interrupted"):
        return None
    if run.broken:
        return "the last run failed", f"Its step {run.broken}"
    after = f"after the step {run.step}" if run.step else "in its first step"
    how = "failed" if run.state == "failed" else "was interrupted"
    return f"the last run {how}", f"It {how} {after}; `loop run` tries again."


def _no_run(facts: Facts) -> _Found:
    run = facts.run
    if run is None or run.state == "running" or facts.at - run.started_at < _LONG:
        return None
    days = (facts.at - run.started_at).days
    return "no run for 2 weeks", f"The last run was {days} days ago; is its schedule gone?"


def _signals_held(facts: Facts) -> _Found:
    signals = facts.signals
    if signals.received < _FEW_SIGNALS or (signals.held or 0) <= _HALF:
        return None
    why = f"{_percent(signals.held)} of {signals.received:,} signals wait until their bursts are reviewed."  # noqa: E501
    return "most signals are held back", why


def _signals_pending(facts: Facts) -> _Found:
    signals = facts.signals
    if signals.received < _FEW_SIGNALS or (signals.pending or 0) <= _HALF:
        return None
    why = (
        f"{_percent(signals.pending)} of {signals.received:,} signals are of answers that the "
        "store does not know: are traces written where signals arrive?"
    )
    return "most signals are of unknown answers", why


def _queue_grows(facts: Facts) -> _Found:
    ends = [week.waiting for week in facts.weeks[-_GROWS - 1 :]]
    rises = len(ends) > _GROWS and all(one < two for one, two in pairwise(ends))
    if not rises:
        return None
    why = (
        f"It went from {ends[0]} to {ends[-1]} items; {facts.weeks[-1].cleared} were cleared in "
        "the last week."
    )
    return f"queue grows for {_GROWS} weeks", why


def _not_reviewed(facts: Facts) -> _Found:
    oldest, last = facts.queue.oldest_days, facts.reviewed_at
    waits = oldest is not None and oldest >= _LONG_DAYS
    if not waits or (last is not None and facts.at - last < _LONG):
        return None
    count = facts.queue.waiting + facts.queue.claimed
    items = "1 item waits" if count == 1 else f"{count} items wait"
    return "nothing reviewed for 2 weeks", f"{items}, the oldest for {oldest:.0f} days."


def _no_gain(facts: Facts) -> _Found:
    tried = [one for one in facts.rankers.versions if one.verdict in ("promote", "reject")]
    newest = tried[:_TRIES]
    if len(newest) < _TRIES or any(one.verdict == "promote" for one in newest):
        return None
    numbers = ", ".join(f"{_points(one.gain)}" for one in newest)
    why = f"The last {_TRIES} on the evaluation set, newest first: {numbers} points against what was active."  # noqa: E501
    return f"no gain in {_TRIES} rankers", why


def _orders_nothing(facts: Facts) -> _Found:
    rankers, active = facts.rankers, _active(facts.rankers)
    if active is None or rankers.asked < _FEW_SIGNALS or rankers.ordered:
        return None
    return "the active ranker orders nothing", (
        f"Ranker #{active.number} is active, and ordered none of {rankers.asked} questions since: "
        'retrievers follow with ranker="active", and need its ranker_features; their log says why.'
    )


_STUCK: tuple[Callable[[Facts], _Found], ...] = (
    _run_failed,
    _no_run,
    _signals_held,
    _signals_pending,
    _queue_grows,
    _not_reviewed,
    _orders_nothing,
    _no_gain,
)


def _closing(facts: Facts) -> _Found:
    active = _active(facts.rankers)
    if active is None or not active.is_earned:
        return None
    cleared, waiting = facts.weeks[-1].cleared, facts.weeks[-1].waiting
    items = "1 item was" if cleared == 1 else f"{cleared} items were"
    return "closing", (
        f"The active ranker #{active.number} gains {_points(active.gain)} points on "
        f"{active.cases} cases; {items} cleared in the last week, {waiting} "
        f"{'waits' if waiting == 1 else 'wait'}."
    )


def _waits_for(facts: Facts) -> str:
    newest = next(iter(facts.rankers.versions), None)
    if newest is not None:
        return _waits_after(newest, facts.run.refused if facts.run else None)
    named = facts.queue.named
    if named < LEAST_GROUPS:
        return (
            f"{named} of {LEAST_GROUPS} reviewed questions that a ranker needs name a right chunk."
        )
    return f"{named} reviewed questions name a right chunk; `loop run` trains a ranker."


def _waits_after(newest: RankerHealth, refused: str | None) -> str:
    name, gain = f"#{newest.number}", _points(newest.gain)
    if refused and newest.state in _MAY_BE_TRIED:
        return f"Ranker {name} could not be tried: {refused}"
    words = {
        "active": f"Ranker {name} is active, and no evaluation earned it that.",
        "recommended": (
            f"Ranker {name} gains {gain} points on {newest.cases} cases; "
            "`loop promote` makes it the active one."
        ),
        "advice": (
            f"Ranker {name} was tried on {newest.cases} of the {LEAST_CASES} cases that a "
            f"promotion needs ({gain} points so far)."
        ),
        "untested": f"Ranker {name} is trained; `loop evaluate` tries it.",
        "shadow": f"Ranker {name} is watched only.",
    }
    return words.get(newest.state, f"The newest ranker, {name}, was {newest.state}.")


def _active(rankers: RankersHealth) -> RankerHealth | None:
    return next((one for one in rankers.versions if one.ranker_id == rankers.active), None)


def _points(gain: float | None) -> str:
    return "?" if gain is None else f"{gain * 100:+.1f}"


def _percent(share: float | None) -> str:
    return f"{(share or 0) * 100:.0f} %"
