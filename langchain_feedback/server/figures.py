"""How figures are said on the pages: times, shares, durations."""

from datetime import UTC, datetime

from markupsafe import Markup

__all__ = ["ago", "day", "days", "percent", "points", "seconds", "short_number", "span", "when"]

_DAY = 60 * 24
_STEPS = ((1, "minute"), (60, "hour"), (_DAY, "day"), (30 * _DAY, "month"), (365 * _DAY, "year"))


def ago(then: datetime, now: datetime | None = None) -> str:
    """Return how long ago something was.

    Example:
        >>> ago(datetime(2026, 3, 1, 9, tzinfo=UTC), datetime(2026, 3, 3, 12, tzinfo=UTC))
        '2 days ago'
    """
    minutes = ((now or datetime.now(UTC)) - then).total_seconds() / 60
    if minutes < 1:
        return "just now"
    size, unit = max(step for step in _STEPS if step[0] <= minutes)
    whole = int(minutes / size)
    return f"{whole} {unit}{'' if whole == 1 else 's'} ago"


def percent(share: float | None) -> str:
    """Return a share in percent.

    Example:
        >>> percent(.256), percent(.001), percent(0), percent(None)
        ('26 %', '< 1 %', '0 %', '–')
    """
    if share is None:
        return "–"
    return "< 1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"  # noqa: PLR2004


def days(number: float | None) -> str:
    """Return a number of days.

    Example:
        >>> days(.2), days(1.4), days(96.6), days(None)
        ('< 1 day', '1 day', '97 days', '–')
    """
    if number is None:
        return "–"
    whole = round(number)
    return "< 1 day" if number < 1 else f"{whole:,} day{'' if whole == 1 else 's'}"


def seconds(duration: float | None) -> str:
    """Return a number of seconds.

    Example:
        >>> seconds(42.4), seconds(95), seconds(None)
        ('42 s', '1:35 min', '–')
    """
    if duration is None:
        return "–"
    whole = round(duration)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"  # noqa: PLR2004


def points(share: float | None) -> str:
    """Return a difference of scores in points, with its sign.

    Example:
        >>> points(.0512), points(-.3), points(0), points(None)
        ('+5.1', '−30.0', '0.0', '–')
    """
    if share is None:
        return "–"
    sign = {True: "+", False: ""}[round(share, 3) > 0]
    return f"{sign}{share * 100:.1f}".replace("-0.0", "0.0").replace("-", "−")


def span(duration: float | None) -> str:
    """Return a duration of any length.

    Example:
        >>> span(42.4), span(95), span(7_200), span(200_000), span(None)
        ('42 s', '1:35 min', '2.0 h', '2 days', '–')
    """
    if duration is None or duration < 3_600:  # noqa: PLR2004
        return seconds(duration)
    if duration < 172_800:  # noqa: PLR2004  two days
        return f"{duration / 3_600:.1f} h"
    return days(duration / 86_400)


def short_number(number: float | None) -> str:
    """Return a number as short as it may be.

    Example:
        >>> [short_number(one) for one in (3.0, .257, .001, 1234.5, None)]
        ['3', '0.26', '< 0.01', '1,234', '–']
    """
    if number is None:
        return "–"
    if number == int(number) or abs(number) >= 100:  # noqa: PLR2004
        return f"{number:,.0f}"
    if 0 < number < 0.01:  # noqa: PLR2004
        return "< 0.01"
    return f"{number:.2f}" if abs(number) < 1 else f"{number:.1f}"


def when(moment: datetime | str | None) -> Markup:
    """Return a time for a page, with how long ago it was."""
    if moment is None:
        return Markup("–")
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    exact = f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), exact, ago(at)
    )


def day(moment: datetime) -> str:
    """Return a day as short as it may be.

    Example:
        >>> day(datetime(2026, 3, 1, 9, tzinfo=UTC))
        '1 Mar'
    """
    at = moment.astimezone(UTC)
    return f"{at.day} {at:%b}"
