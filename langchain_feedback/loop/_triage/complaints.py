"""Whether answers that rest on a source fail oftener than they used to: a CUSUM by week."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

__all__ = ["BASELINE", "LIMIT", "Judged", "Watched", "cusum", "watch"]

LIMIT = 5.0
"""The evidence from which on there is an alarm."""

BASELINE = timedelta(weeks=6)
"""How long the rate is learned that later weeks are compared with."""

_TIMES, _LOWEST, _HIGHEST = 2.5, 0.02, 0.95
_PRIOR = 20.0
"""How many judged answers the rate of all sources counts in that of one."""
_WEEK = timedelta(weeks=1)
_CALM_WEEKS = 2
_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Judged:
    """An answer that people said something of."""

    at: datetime
    failed: bool


@dataclass(frozen=True)
class Watched:
    """What the weeks of one source show."""

    alarmed: bool
    """Whether the evidence went above the limit, and it is not over."""
    statistic: float
    """The evidence at the end of the last whole week, or, where it is alarmed, at its height."""
    rate: float
    """The failure rate that it is compared with."""
    since: datetime | None
    """Since when there is evidence without a break."""
    judged: int
    """Answers since then, in whole weeks."""
    failed: int


def cusum(
    weeks: Iterable[tuple[int, int]], rate: float, *, times: float = _TIMES, start: float = 0.0
) -> list[float]:
    """Return the evidence, after each week, that answers fail `times` as often as before.

    A one-sided CUSUM of log-likelihood ratios (Page, "Continuous inspection schemes",
    Biometrika 41, 1954): each judged answer adds `log(times)` if it failed, else
    `log((1 - times rate) / (1 - rate))`, and after each week less than 0 becomes 0. A
    week at a time, since after each answer it would raise four times as many false alarms.

    Args:
        weeks: How many answers failed, and how many were judged, week by week.
        rate: How often they failed before, in (0, 1).
        times: The rise that is looked for, above 1; `times * rate` counts as .95 at most.
        start: The evidence before.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> [round(value, 2) for value in cusum([(1, 5), (3, 5), (4, 5), (0, 5)], 0.2)]
        [0.0, 1.81, 5.0, 2.65]
    """
    if not 0 < rate < 1 or not times > 1:
        msg = f"rate is in (0, 1) and times above 1, got {rate!r} and {times!r}"
        raise ValueError(msg)
    risen = max(rate, min(times * rate, _HIGHEST))
    up, down = math.log(risen / rate), math.log((1 - risen) / (1 - rate))
    values, value = [], start
    for failed, judged in weeks:
        value = max(0.0, value + failed * up + (judged - failed) * down)
        values.append(value)
    return values


def watch(
    answers: Sequence[Judged], *, usual: float, now: datetime, resets: Sequence[datetime] = ()
) -> Watched:
    """Watch the whole weeks of one source, Monday to Sunday in UTC.

    The first 6 weeks give its rate, drawn toward the usual one by 20 answers. From then on
    the evidence is followed. Above 5 it is an alarm; what is above 5 counts as 5
    afterwards, so that good weeks are soon seen. The alarm is over once the evidence was 0 at
    the end of two weeks in a row, once nothing was judged for 6 weeks, and from a reset on.

    With 200 sources of a failure rate of .2 over 20 weeks, it raises .3 to 1 false alarms a week
    for all 200 (.6 on average). Where a rate rises to .5, it finds that in 89 % of the cases at 5
    judged answers a week, half of them within 3 weeks, and in all at 20, half of them within one
    (simulated; `tests/unit_tests/loop/test_staleness.py` repeats it).

    Args:
        answers: The judged answers, oldest first.
        usual: The failure rate of all sources, in [0, 1].
        now: When. The week that is not over does not count.
        resets: When evidence became void: the text changed, or somebody closed an alarm.
    """
    if not answers:
        return Watched(alarmed=False, statistic=0.0, rate=usual, since=None, judged=0, failed=0)
    learned = _monday(answers[0].at) + BASELINE
    early = [one.failed for one in answers if one.at < learned]
    rate = (sum(early) + _PRIOR * usual) / (len(early) + _PRIOR)
    state = _State(min(max(rate, _LOWEST), 1 - _LOWEST), learned)
    monday, times = learned, [one.at for one in answers]
    while monday + _WEEK <= now:
        low, high = (bisect_left(times, end) for end in (monday, monday + _WEEK))
        within = [at for at in resets if monday <= at < monday + _WEEK]
        state.follow(monday, answers[low:high], max(within, default=None))
        monday += _WEEK
    if now - times[-1] > BASELINE or any(monday <= at <= now for at in resets):
        state.calm(monday)
    return state.watched()


class _State:
    def __init__(self, rate: float, monday: datetime) -> None:
        self.rate = rate
        self.calm(monday)

    def calm(self, at: datetime) -> None:
        self.value = self.height = 0.0
        self.alarmed, self.zeros = False, 0
        self.since, self.judged, self.failed = at, 0, 0

    def follow(self, monday: datetime, answers: Sequence[Judged], reset: datetime | None) -> None:
        if reset is not None:
            self.calm(reset)
            answers = [one for one in answers if one.at >= reset]
        if self.value == 0 and not self.alarmed:
            self.calm(reset or monday)
        failed = sum(one.failed for one in answers)
        self.judged, self.failed = self.judged + len(answers), self.failed + failed
        [self.value] = cusum([(failed, len(answers))], self.rate, start=self.value)
        self.zeros = 0 if self.value else self.zeros + 1
        if self.value >= LIMIT:
            self.alarmed, self.height = True, max(self.height, self.value)
            self.value = LIMIT
        elif self.alarmed and self.zeros >= _CALM_WEEKS:
            self.calm(monday + _WEEK)

    def watched(self) -> Watched:
        return Watched(
            alarmed=self.alarmed,
            statistic=round(self.height if self.alarmed else self.value, 3),
            rate=round(self.rate, 3),
            since=self.since if self.value or self.alarmed else None,
            judged=self.judged,
            failed=self.failed,
        )


def _monday(at: datetime) -> datetime:
    return _MONDAY + (at - _MONDAY) // _WEEK * _WEEK
