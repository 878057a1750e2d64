"""Made-up questions and pools for rankers: a base that is right more often than not."""

import random
from dataclasses import dataclass

import numpy as np
from langchain_core.documents import Document

from langchain_feedback.ranking.linear import TrainingGroup
from langchain_feedback.ranking.views import Candidates

POOL, FIRST = 20, 0.55
"""The right chunk stands first in 55 of 100, and mostly soon after in the others."""
_WORDS = [a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("ck", "mp", "nt", "rd")]


@dataclass(frozen=True)
class Asked:
    """A question, its pool in the base's order, and where the right chunk stands."""

    question: str
    documents: list[Document]
    right: int

    @property
    def group(self):
        return TrainingGroup(
            self.question, self.documents, range(len(self.documents)), frozenset({self.right})
        )

    @property
    def candidates(self):
        return Candidates(np.arange(len(self.documents)), self.documents)


def asked(n, *, first=FIRST, seed=0):
    """`n` questions; each shares more words with its right chunk and title than with others."""
    chance = random.Random(seed)
    return [_one(chance, number, first) for number in range(n)]


def failing(n, *, seed=1):
    """Questions as mining finds them: the right chunk never stands first."""
    return asked(n, first=0.0, seed=seed)


def _one(chance, number, first):
    words = chance.sample(_WORDS, 8)
    later = chance.choices(range(1, POOL), [1 / place for place in range(1, POOL)])[0]
    right = 0 if chance.random() < first else later
    documents = [
        _chunk(chance, f"{number}-{at}", words, of=5 if at == right else 3, titled=at == right)
        for at in range(POOL)
    ]
    return Asked(" ".join(["how", *words, "?"]), documents, right)


def _chunk(chance, name, words, *, of, titled):
    """A chunk that holds about `of` of the question's words."""
    shared = chance.sample(words, min(len(words), max(0, of + chance.randint(-2, 2))))
    title = chance.sample(_WORDS, 3) + (words[:1] if titled and chance.random() < 0.7 else [])
    text = shared + chance.sample(_WORDS, 20)
    chance.shuffle(text)
    return Document(" ".join(text) + ".", id=name, metadata={"title": " ".join(title)})


def ndcg(scores, right):
    """nDCG@10 of the one right chunk."""
    place = np.argsort(-np.asarray(scores), kind="stable").tolist().index(right)
    return 1 / np.log2(2 + place) if place < 10 else 0.0


def gain(score, held_out):
    """Points of nDCG@10 that an order gains over the base's, on questions it did not learn."""
    before = [ndcg(-np.arange(POOL), one.right) for one in held_out]
    after = [ndcg(score(one), one.right) for one in held_out]
    return 100 * (np.mean(after) - np.mean(before))
