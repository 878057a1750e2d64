"""Plots as SVG, made here: no library, no script, and no text in them that could not scale.

The drawing stretches to its frame; axes and legends are HTML around it, so that they are as
large on a telephone as elsewhere. Colors are classes of the sheet, `tone-1` and so on.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

__all__ = ["Plot", "Series", "draw", "spark"]

_SLOT, _HEIGHT = 100, 100
_TICKS = 3
_STEPS = (1, 2, 3, 4, 5, 10)
_TINY, _SAME = 1e-9, 1e-6


@dataclass(frozen=True)
class Series:
    """One row of values."""

    name: str
    values: Sequence[float | None]
    """One for each place of the x axis; None where there is none."""
    kind: Literal["line", "bar", "dot"] = "line"
    tone: int = 1


@dataclass(frozen=True)
class Plot:
    """A drawing, and what stands around it."""

    svg: Markup
    ticks: tuple[float, ...]
    """The values of the y axis, evenly spaced, highest first."""
    series: tuple[Series, ...]


def draw(series: Sequence[Series], label: str, *, from_zero: bool = True) -> Plot:
    """Draw series over the same places.

    Args:
        series: All with the same number of values; bars stand beside each other.
        label: What a screen reader says instead.
        from_zero: Whether the y axis begins at 0: bars mislead otherwise.

    Raises:
        ValueError: If the series are not as long as each other.

    Example:
        >>> plot = draw([Series("Waiting", [3, None, 8])], "Items that wait")
        >>> plot.ticks, plot.svg.count("<path")
        ((8.0, 4.0, 0.0), 5)
    """
    if len({len(one.values) for one in series}) > 1:
        msg = "All series of a plot have the same places."
        raise ValueError(msg)
    known = [value for one in series for value in one.values if value is not None]
    low, high = _range(known, from_zero=from_zero)
    scale = _Scale(low, high)
    bars = [one for one in series if one.kind == "bar"]
    parts = [_grid(len(series[0].values) if series else 0)]
    parts += [_bars(one, at, len(bars), scale) for at, one in enumerate(bars)]
    parts += [_line(one, scale) for one in series if one.kind == "line"]
    parts += [_dots(one, scale) for one in series if one.kind != "bar"]
    places = len(series[0].values) if series else 1
    ticks = tuple(high - (high - low) * at / (_TICKS - 1) for at in range(_TICKS))
    return Plot(_svg(places, label, parts), ticks, tuple(series))


def spark(values: Sequence[float | None], label: str, tone: int = 1) -> Markup:
    """Draw a small line without axes, from 0; the last value has a dot.

    Example:
        >>> "<path" in spark([.1, .2, None, .1], "Complaints")
        True
    """
    one = Series(label, values, tone=tone)
    scale = _Scale(*_range([value for value in values if value is not None], from_zero=True))
    last = [None] * (len(values) - 1) + list(values[-1:])
    parts = [_line(one, scale), _dots(Series(label, last, "dot", tone), scale)]
    return _svg(len(values), label, parts, "spark")


class _Scale:
    def __init__(self, low: float, high: float) -> None:
        self._low, self._reach = low, high - low

    def y(self, value: float) -> float:
        """Return how far down a value stands."""
        return _HEIGHT - (value - self._low) / self._reach * _HEIGHT


def _range(values: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    """Return where the y axis begins and ends, so that all ticks are round numbers.

    Example:
        >>> _range([3, 7], from_zero=True), _range([0.512, 0.548], from_zero=False)
        ((0.0, 8.0), (0.51, 0.57))
    """
    if not values:
        return 0.0, 1.0
    bottom, top = (0.0 if from_zero else min(values)), max(values)
    gaps = _TICKS - 1
    step = ((top - bottom) or abs(top)) / gaps
    # Closer than this they are the same to anybody who looks; counts have no halves.
    step = max(step, abs(bottom) * _SAME, abs(top) * _SAME)
    if step < _SAME or all(isinstance(value, int) for value in values):
        step = max(step, 1.0)
    while True:
        step = _round_up(step)
        low = math.floor(bottom / step + _TINY) * step
        if low + step * gaps >= top - step * _TINY:
            return _short(low), _short(low + step * gaps)
        step *= 1.01


def _short(value: float) -> float:
    return float(f"{value:.12g}")


def _round_up(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return next(step * power for step in _STEPS if step * power >= size * (1 - _TINY))


def _svg(places: int, label: str, parts: Iterable[Markup], kind: str = "plot") -> Markup:
    # Stretched, so that strokes are told not to scale; a dot is a stroke without length.
    return Markup(
        '<svg class="{}-svg" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(kind, max(places, 1) * _SLOT, _HEIGHT, label, Markup("").join(parts))


def _grid(places: int) -> Markup:
    lines = [
        Markup('<path class="grid" d="M0 {:g}H{}"/>').format(
            _HEIGHT * at / (_TICKS - 1), max(places, 1) * _SLOT
        )
        for at in range(_TICKS)
    ]
    return Markup('<g aria-hidden="true">{}</g>').format(Markup("").join(lines))


def _x(at: int) -> float:
    return at * _SLOT + _SLOT / 2


def _line(one: Series, scale: _Scale) -> Markup:
    """Draw a line; a gap where a value is missing."""
    steps, is_on = [], False
    for at, value in enumerate(one.values):
        if value is not None:
            steps.append(f"{'L' if is_on else 'M'}{_x(at):g} {scale.y(value):.2f}")
        is_on = value is not None
    return Markup('<path class="line tone-{}" d="{}"/>').format(one.tone, "".join(steps))


def _dots(one: Series, scale: _Scale) -> Markup:
    drawn = "".join(
        f"M{_x(at):g} {scale.y(value):.2f}h0"
        for at, value in enumerate(one.values)
        if value is not None
    )
    return Markup('<path class="dots tone-{}" d="{}"/>').format(one.tone, drawn)


def _bars(one: Series, at: int, count: int, scale: _Scale) -> Markup:
    width = _SLOT * 0.56 / count
    rects = []
    for place, value in enumerate(one.values):
        if value:
            top = scale.y(value)
            left = _x(place) + (at - count / 2) * width
            rects.append(
                Markup('<rect x="{:.1f}" y="{:.2f}" width="{:.1f}" height="{:.2f}"/>').format(
                    left, top, width * 0.92, _HEIGHT - top
                )
            )
    return Markup('<g class="bars tone-{}">{}</g>').format(one.tone, Markup("").join(rects))
