"""Strata: how much each kind of question weighs, and how each of them fared."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
from sqlalchemy import Connection

from langchain_feedback.loop._gating.sign_flip import chance_of
from langchain_feedback.ranking._checks import Floats
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.eval_records import EvalCase

__all__ = [
    "FAILING",
    "ORDINARY",
    "Stratum",
    "failing_questions",
    "shares_of",
    "strata_of",
    "traffic",
]

FAILING, ORDINARY = "failing", "ordinary"
LEAST_OF_A_STRATUM = 30
"""Of fewer cases nobody can say whether they fared worse."""
WORSE = 0.05
"""How unlikely a loss of a stratum must be by chance to count; of documents, of any of them."""


@dataclass(frozen=True)
class Stratum:
    """How one kind of question fared."""

    name: str
    """`failing`, `ordinary` or one's own; of a document `source:` and its name."""
    n: int
    weight: float
    """Its share of the traffic; 0 for documents, which only can veto."""
    score: float
    """The mean, in [0, 1]."""
    baseline_score: float
    gain: float
    p_worse: float
    """How likely a loss as large is by chance."""
    worse: bool
    """Whether it has enough cases, and lost more than chance explains.

    Where many documents are looked at one of them loses by chance: see `_most_unlikely`.
    """


def failing_questions(asks: Iterable[Ask]) -> set[int]:
    """Return the questions of which an answer failed, by what people said."""
    return {ask.question_id for ask in asks if ask.is_failure}


def traffic(
    connection: Connection, namespace: str, now: datetime, days: float = 28
) -> dict[str, float]:
    """Return which part of what was asked is of failing questions, and which is ordinary.

    A question is failing if more people complained of an answer to it than praised it. Most
    people say nothing, so that this is a lower bound: the gate minds ordinary traffic more.
    What nothing was found for cannot be ordered, and does not count. One ask of either kind
    is added, so that neither weighs nothing.
    """
    since = now - timedelta(days=days)
    asked = read_asks(connection, namespace, since=since)
    asks = [ask for ask in asked if ask.last_search and ask.created_at <= now]
    bad = failing_questions(asks)
    failing = sum(ask.question_id in bad for ask in asks)
    share = (failing + 1) / (len(asks) + 2)
    return {FAILING: share, ORDINARY: 1 - share}


def shares_of(cases: Sequence[EvalCase], shares: Mapping[str, float]) -> Floats:
    """Return (n,) how much each case weighs, 1 in all: as much of each kind as of the traffic.

    Strata of one's own are ordinary traffic. Where one kind has no cases the other is all.
    """
    kinds = np.array([case.stratum == FAILING for case in cases])
    weights = np.zeros(len(cases))
    for kind, name in ((kinds, FAILING), (~kinds, ORDINARY)):
        if kind.any():
            weights[kind] = shares[name] / kind.sum()
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def strata_of(
    cases: Sequence[EvalCase], weights: Floats, scores: Floats, baselines: Floats
) -> tuple[Stratum, ...]:
    """Return how each stratum fared, and each document with enough cases."""
    kinds = np.array([case.stratum for case in cases])
    sources = np.array([case.source for case in cases])
    found = [
        _stratum(str(name), kinds == name, weights, scores, baselines) for name in np.unique(kinds)
    ]
    documents = []
    for name in np.unique(sources):
        among = sources == name
        if name and LEAST_OF_A_STRATUM <= among.sum() < len(cases):
            documents.append(_stratum(f"source:{name}", among, weights * 0, scores, baselines))
    return (*found, *_most_unlikely(documents))


def _most_unlikely(documents: Sequence[Stratum]) -> list[Stratum]:
    """Return the documents, worse only where that holds although many were looked at.

    By Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979): the most
    unlikely loss counts at 5 % by their number, the next at 5 % by one fewer, and so on, until
    one does not. So one time in twenty at most any document that lost nothing is a veto.
    """
    worse: set[str] = set()
    for at, one in enumerate(sorted(documents, key=_unlikely)):
        if one.p_worse > WORSE / (len(documents) - at):
            break
        worse.add(one.name)
    return [replace(one, worse=one.worse and one.name in worse) for one in documents]


def _unlikely(stratum: Stratum) -> float:
    return stratum.p_worse


def _stratum(
    name: str, among: np.ndarray, weights: Floats, scores: Floats, baselines: Floats
) -> Stratum:
    n = int(among.sum())
    differences = scores[among] - baselines[among]
    p_worse = chance_of(-differences)
    return Stratum(
        name=name,
        n=n,
        weight=float(weights[among].sum()),
        score=float(scores[among].mean()),
        baseline_score=float(baselines[among].mean()),
        gain=float(differences.mean()),
        p_worse=p_worse,
        worse=n >= LEAST_OF_A_STRATUM and p_worse <= WORSE and bool(differences.mean() < 0),
    )
