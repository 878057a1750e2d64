"""Fit weights to pairs, held at the base's order; what and why stands in `LinearRanker`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from langchain_feedback.ranking._checks import Floats

__all__ = ["Fitted", "fitted"]

_ANCHOR = 4.0
"""The weight of the rank feature before anything is learned; of all others 0."""
_STEPS, _CLOSE, _SMALLEST = 50, 1e-9, 1e-10


class Fitted(NamedTuple):
    """(F,) each: a score is `(features - means) / scales @ weights`."""

    weights: Floats
    means: Floats
    scales: Floats


def fitted(tables: Sequence[Floats], right: Sequence[frozenset[int]], strength: float) -> Fitted:
    """Fit weights to the (C, F) features of each group and the rows of it that are right.

    Column 0 is the one that has the base's order.
    """
    means, scales = _standard(tables)
    pairs = [
        _pairs_of((table - means) / scales, rows)
        for table, rows in zip(tables, right, strict=True)
    ]
    anchor = np.zeros(len(means))
    anchor[0] = _ANCHOR * scales[0]
    weights = _not_turned_round(np.concatenate(pairs), anchor, strength)
    return Fitted(weights, means, scales)


def _standard(tables: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the mean and the scale of each feature; 1 where it is the same everywhere."""
    rows = np.concatenate(tables)
    spread = rows.std(axis=0)
    return rows.mean(axis=0), np.where(spread > _SMALLEST, spread, 1.0)


def _pairs_of(table: Floats, right: frozenset[int]) -> Floats:
    """Return (pairs, F): each right chunk minus each other one."""
    named = np.zeros(len(table), dtype=np.bool_)
    named[list(right)] = True
    differences = table[named][:, None, :] - table[~named][None, :, :]
    return differences.reshape(-1, table.shape[1])


def _not_turned_round(pairs: Floats, anchor: Floats, strength: float) -> Floats:
    """Minimize with a weight of at least 0 on the base's order.

    Reviewed questions are mostly failures, whose first chunk is wrong: that may teach how little
    the order says, never that it says the opposite.
    """
    weights = _minimized(pairs, anchor, strength)
    if weights[0] >= 0:
        return weights
    return np.concatenate([[0.0], _minimized(pairs[:, 1:], anchor[1:], strength)])


def _minimized(pairs: Floats, anchor: Floats, strength: float) -> Floats:
    """Minimize the anchored logistic loss: convex, so Newton with halved steps finds it."""

    def loss(at: Floats) -> float:
        apart = at - anchor
        return float(np.logaddexp(0, -pairs @ at).sum() + strength / 2 * apart @ apart)

    weights: Floats = anchor.copy()
    for _ in range(_STEPS):
        missed = np.exp(-np.logaddexp(0, pairs @ weights))  # 1 / (1 + exp(margin))
        gradient = strength * (weights - anchor) - missed @ pairs
        curvature = (pairs * (missed * (1 - missed))[:, None]).T @ pairs
        step = np.linalg.solve(curvature + strength * np.eye(len(anchor)), gradient)
        length, now = 1.0, loss(weights)
        while length > _SMALLEST and loss(weights - length * step) > now:
            length /= 2
        weights = weights - length * step
        if np.abs(length * step).max() < _CLOSE:
            break
    return weights
