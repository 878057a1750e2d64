"""Checks of the numbers that come in: a wrong one is named, and never ranks anything."""

from math import isfinite
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Floats",
    "amounts",
    "cosines",
    "finite_number",
    "floats",
    "in_range",
    "not_negative",
    "one_of",
    "same_shape",
]

Floats: TypeAlias = NDArray[np.float64]

_ROUNDING = 1e-2
"""How far a cosine of vectors in half precision may stray beyond 1."""


def floats(name: str, value: ArrayLike, ndim: int | None = None) -> Floats:
    """Return `value` as finite float64 numbers, of `ndim` dimensions where that is given.

    Raises:
        ValueError: If it is something else; the message begins with `name`.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{name} must be an array of numbers, got {value!r}"
        raise ValueError(msg) from error
    if ndim is not None and array.ndim != ndim:
        msg = f"{name} must have {ndim} dimension(s), got the shape {array.shape}"
        raise ValueError(msg)
    if not np.isfinite(array).all():
        msg = f"{name} must be finite numbers, got NaN or infinity"
        raise ValueError(msg)
    return array


def amounts(name: str, value: ArrayLike, ndim: int | None = None) -> Floats:
    """Return `value` as float64 numbers of at least 0: weights and counts."""
    array = floats(name, value, ndim)
    if (array < 0).any():
        msg = f"{name} must be at least 0, got {array.min()}"
        raise ValueError(msg)
    return array


def in_range(name: str, value: ArrayLike, low: float, high: float) -> Floats:
    """Return `value` as float64 numbers from `low` to `high`."""
    array = floats(name, value)
    if (array < low).any() or (array > high).any():
        msg = f"{name} must be from {low:g} to {high:g}, got {array.min()} to {array.max()}"
        raise ValueError(msg)
    return array


def cosines(name: str, value: ArrayLike) -> Floats:
    """Return `value` (one dimension) as cosines, without what rounding adds beyond 1."""
    array = floats(name, value, 1)
    return np.clip(in_range(name, array, -1 - _ROUNDING, 1 + _ROUNDING), -1.0, 1.0)


def same_shape(**shapes: tuple[int, ...]) -> None:
    """Raise a `ValueError` that names the shapes, unless all are equal."""
    if len(set(shapes.values())) > 1:
        said = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        msg = f"These must have one shape: {said}"
        raise ValueError(msg)


def finite_number(value: Any) -> float | None:
    """Return a real number as a float; None for all else, NaN and infinity included."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def not_negative(name: str, value: Any) -> None:
    """Raise a `ValueError` unless a setting is a finite number of at least 0."""
    number = finite_number(value)
    if number is None or number < 0:
        msg = f"{name} must be a number of at least 0, got {value!r}"
        raise ValueError(msg)


def one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise a `ValueError` unless a setting is one of the choices."""
    if value not in choices:
        msg = f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}"
        raise ValueError(msg)
