"""Which questions that found nothing ask for one and the same document."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from langchain_feedback.loop.clusters import cluster_asks
from langchain_feedback.store.asking import Ask
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import questions
from langchain_feedback.words import content_words

__all__ = ["alike_questions"]

_OVERLAP = 0.3
_TOP = 10
_SAMPLE, _LEAST_PAIRS = 40, 10
_COSINE, _WORDS = 0.75, 0.5


def alike_questions(
    connection: Connection, asks: Iterable[Ask], lost: Sequence[Ask]
) -> list[list[Ask]]:
    """Put together the asks that want the same document, largest group first.

    By what they found: see `cluster_asks`; only where that tells questions apart. In a small
    index all find the same few chunks, and so it is not used where half of all the pairs of
    different questions overlap as much. Then by the questions themselves: a cosine of .75
    of the stored vectors, or, without vectors, half of their words in common. On FeedbackQA (30
    passages, up to 8 questions each) 82 % of the pairs put together so by MiniLM's vectors, and
    74 % by words, were of one passage; of all such pairs these were 31 % and 11 %.

    Args:
        connection: A transaction.
        asks: All that was asked, for comparison.
        lost: What found nothing.
    """
    of: dict[int, list[Ask]] = defaultdict(list)
    for ask in lost:
        of[ask.question_id].append(ask)
    groups = [[question_id] for question_id in of]
    searched = [ask for ask in lost if ask.last_search]
    if searched and _tells_apart(asks):
        groups = _joined(groups, [one.question_ids for one in cluster_asks(searched)])
    groups.sort(key=lambda group: -sum(len(of[one]) for one in group))
    merged = _by_question(groups, of, _vectors(connection, list(of)))
    found = [[ask for one in group for ask in of[one]] for group in merged]
    return sorted(found, key=len, reverse=True)


def _tells_apart(asks: Iterable[Ask]) -> bool:
    """Whether different questions find different chunks, as a rule."""
    newest = {ask.question_id: ask for ask in asks if ask.last_search}
    found = [
        {chunk.chunk_id for chunk in ask.last_search[:_TOP]}
        for ask in list(newest.values())[-_SAMPLE:]
    ]
    shares = [len(one & two) / len(one | two) for one, two in combinations(found, 2)]
    return len(shares) >= _LEAST_PAIRS and median(shares) < _OVERLAP


def _joined(groups: list[list[int]], clusters: Iterable[Sequence[int]]) -> list[list[int]]:
    """Merge the groups that a cluster holds questions of."""
    at = {question_id: group for group in groups for question_id in group}
    for cluster in clusters:
        known = [one for one in cluster if one in at]
        for one in known[1:]:
            into, group = at[known[0]], at[one]
            if into is not group:
                into += group
                at.update(dict.fromkeys(group, into))
    return list({id(group): group for group in at.values()}.values())


def _by_question(
    groups: Sequence[list[int]], of: dict[int, list[Ask]], vectors: dict[int, NDArray[np.float32]]
) -> list[list[int]]:
    """Let each question that stands alone join the first group whose leader it is like."""
    words = {one: set(content_words(asks[0].question)) for one, asks in of.items()}

    def alike(one: int, two: int) -> bool:
        if one in vectors and two in vectors and vectors[one].size == vectors[two].size:
            return float(vectors[one] @ vectors[two]) >= _COSINE
        either = words[one] | words[two]
        return bool(either) and len(words[one] & words[two]) >= _WORDS * len(either)

    leaders: list[list[int]] = []
    for group in groups:
        into = next((led for led in leaders if alike(led[0], group[0])), None)
        if into is not None and len(group) == 1:
            into += group
        else:
            leaders.append(list(group))
    return leaders


def _vectors(connection: Connection, ids: Sequence[int]) -> dict[int, NDArray[np.float32]]:
    """Return the stored vectors, of the model that made most of them."""
    rows: list[Any] = []
    for page in batched(list(ids)):
        named = questions.c.question_id.in_(page) & questions.c.vector.is_not(None)
        columns = (questions.c.question_id, questions.c.vector, questions.c.embedder)
        rows += connection.execute(select(*columns).where(named))
    models = [row.embedder for row in rows]
    model = max(models, key=models.count, default=None)
    return {
        row.question_id: np.frombuffer(row.vector, dtype="<f4")
        for row in rows
        if row.embedder == model
    }
