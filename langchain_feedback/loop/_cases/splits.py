"""Which questions may become cases: none that a ranker learned from, or is to learn from."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from langchain_feedback.loop.labels import ReviewedQuestion
from langchain_feedback.loop.splitting import (
    Splittable,
    alike,
    is_held_out,
    near_duplicate_groups,
    question_sides,
)
from langchain_feedback.loop.training import splittable
from langchain_feedback.store.eval_cases import question_vectors
from langchain_feedback.store.eval_records import CaseDraft, EvalCase
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.rankers import read_rankers

__all__ = ["CaseSplit", "learned_from"]


class CaseSplit:
    """The sides of reviewed questions, and which other ones are like none of them.

    Args:
        connection: A transaction.
        namespace: Whose.
        reviewed: Reviewed questions with a right chunk.
        cases: What is frozen.
        others: What else may be frozen: sampled, or imported.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        reviewed: Sequence[ReviewedQuestion],
        cases: Sequence[EvalCase],
        others: Sequence[CaseDraft] = (),
    ) -> None:
        drafts = [*cases, *others]
        keys = [*(question_key(one.question) for one in reviewed), *(one.key for one in drafts)]
        vectors = question_vectors(connection, namespace, keys)
        named = splittable(reviewed, vectors)
        frozen, more = (
            [Splittable(one.key, one.question, one.right, vectors.get(one.key)) for one in side]
            for side in (cases, others)
        )
        self._held = {case.key for case in cases}
        self._reviewed = {one.key for one in named}
        self._taught = {
            key for ranker in read_rankers(connection, namespace) for key in ranker.taught
        }
        # As `training_groups` does: the two must never differ.
        self._sides = question_sides([*named, *frozen], self._held, self._taught)
        self._groups = near_duplicate_groups([*named, *frozen, *more])
        self._others = {one.key: one for one in others}

    def evaluates(self, draft: CaseDraft) -> bool:
        """Return whether a reviewed question is kept for evaluation."""
        return self._sides[draft.key] == "evaluation"

    def free(self, blocked: Collection[str]) -> list[CaseDraft]:
        """Return others that may be sampled, one of each group, in an order by a digest.

        Nothing like them was reviewed, and the digest that splits reviewed questions holds
        them out: what comes to be reviewed later teaches as much as if nothing were sampled.

        Args:
            blocked: The keys of questions that are frozen, or wait for a reviewer.
        """
        out = self._reviewed | self._taught | set(blocked)
        groups = [keys for keys in self._keys_of_groups() if not keys & out and is_held_out(keys)]
        among = [keys & set(self._others) for keys in groups]
        chosen = [min(keys, key=_chance) for keys in among if keys]
        return [self._others[key] for key in sorted(chosen, key=_chance)]

    def untaught(self) -> list[CaseDraft]:
        """Return the others that are like nothing that a ranker learned from, or is to."""
        train = {key for key, side in self._sides.items() if side == "train"}
        blocked = self._taught | train
        return [
            self._others[key]
            for keys in self._keys_of_groups()
            if not keys & blocked
            for key in sorted(keys & set(self._others))
        ]

    def _keys_of_groups(self) -> list[set[str]]:
        return [{one.key for one in group} for group in self._groups]


def learned_from(
    connection: Connection,
    namespace: str,
    cases: Sequence[EvalCase],
    reviewed: Sequence[ReviewedQuestion],
    taught: Collection[str],
) -> list[EvalCase]:
    """Return the cases that prove nothing of a ranker: it learned from them, or from their like.

    There are hardly any: one is where a later question is like two earlier ones, of which one
    was learned from and the other one was held out.

    Args:
        connection: A transaction.
        namespace: Whose.
        cases: What a ranker is to be tried on.
        reviewed: Reviewed questions with a right chunk.
        taught: The keys of the questions that it learned from.
    """
    keys = [*(question_key(one.question) for one in reviewed), *(case.key for case in cases)]
    vectors = question_vectors(connection, namespace, keys)
    learned: dict[str, list[Splittable]] = defaultdict(list)
    for one in splittable(reviewed, vectors):
        if one.key in taught:
            for name in one.right:
                learned[name].append(one)

    def is_known(case: EvalCase) -> bool:
        this = Splittable(case.key, case.question, case.right, vectors.get(case.key))
        near = (other for name in this.right for other in learned.get(name, ()))
        return case.key in taught or any(alike(this, other) for other in near)

    return [case for case in cases if is_known(case)]


def _chance(key: str) -> str:
    return hashlib.sha256(f"sample:{key}".encode()).hexdigest()
