"""What junk costs a retriever, and what a gate gives back: TF-IDF on FeedbackQA."""

import json
import random
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from chunk_sets.junk import MAKERS, MISSES

__all__ = ["measure"]

TOP = 10
_COUNTER = HashingVectorizer(n_features=2**20, alternate_sign=False, norm=None)
SHARE = 0.35

KINDS: dict[str, list[str]] = {
    "clean": [],
    "junk": [kind for kind in MAKERS if kind not in MISSES],
    "junk_and_misses": list(MAKERS),
}

Gate = Callable[[str], bool]


def measure(
    folder: Path, gates: dict[str, Gate], *, seeds: int = 10
) -> dict[str, dict[str, float | list[float]]]:
    """Return nDCG@10 x 100 of the clean corpus and of two with 35 % junk, with each gate; means.

    The junk is made of the passages: in `junk` in equal parts of the kinds that the gate
    promises to find, in `junk_and_misses` of the known misses too. `perfect` takes exactly the
    junk out.
    """
    rows = [json.loads(line) for line in _lines(folder / "corpus.jsonl")]
    passages = {row["_id"]: f"{row['title']}\n{row['text']}" for row in rows}
    gold = dict(line.split("\t")[:2] for line in _lines(folder / "qrels.tsv")[1:])
    asked = {row["_id"]: row["text"] for row in map(json.loads, _lines(folder / "queries.jsonl"))}
    questions = [(asked[key], passage) for key, passage in gold.items()]
    index = _Index(passages, questions)
    perfect = index.ndcg(index.counted)
    measured: dict[str, dict[str, list[float]]] = {}
    for seed in range(seeds):
        for name, kinds in KINDS.items():
            junk = list(_junk(list(passages.values()), kinds, seed).values())
            counted = vstack([index.counted, _COUNTER.transform(junk)]) if junk else index.counted
            texts = [*passages.values(), *junk]
            scores = {"none": index.ndcg(counted) if junk else perfect, "perfect": perfect}
            for label, gated in gates.items():
                kept = np.array([not gated(text) for text in texts])
                scores[label] = scores["none"] if kept.all() else index.ndcg(counted, kept)
            for label, score in scores.items():
                measured.setdefault(name, {}).setdefault(label, []).append(100 * score)
    return {name: _averages(scores) for name, scores in measured.items()}


def _averages(scores: dict[str, list[float]]) -> dict[str, float | list[float]]:
    gains = np.subtract(scores["ours"], scores["none"]).round(2).tolist()
    means = {label: round(float(np.mean(values)), 2) for label, values in scores.items()}
    return means | {"gains_by_seed": gains}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _junk(texts: Sequence[str], kinds: Sequence[str], seed: int) -> dict[str, str]:
    """Make `SHARE` of junk; what a kind cannot make (English hardly breaks) another one makes."""
    wanted = int(len(texts) * SHARE / (1 - SHARE))
    made: dict[str, str] = {}
    for at, kind in enumerate(kinds):
        chance = random.Random(f"{seed} {kind}")  # noqa: S311  no secret
        part = (wanted - len(made)) // (len(kinds) - at)
        found = islice(MAKERS[kind](chance.sample(list(texts), len(texts)), chance), part)
        made |= {f"{kind}-{number}": text for number, text in enumerate(found)}
    return made


class _Index:
    """Passages and questions as counts of words, made once."""

    def __init__(self, passages: dict[str, str], questions: Sequence[tuple[str, str]]) -> None:
        places = {key: at for at, key in enumerate(passages)}
        self.counted = _COUNTER.transform(passages.values())
        self.asked = _COUNTER.transform([question for question, _ in questions])
        self.right = np.array([places[key] for _, key in questions])

    def ndcg(self, counted: csr_matrix, kept: NDArray[np.bool_] | None = None) -> float:
        """Mean of 1 / log2(1 + rank) of the right passage in the first ten (one is right)."""
        kept = np.ones(counted.shape[0], bool) if kept is None else kept
        rows = TfidfTransformer().fit(counted[kept])
        found = np.full((self.asked.shape[0], len(kept)), -1.0)
        found[:, kept] = (rows.transform(self.asked) @ rows.transform(counted[kept]).T).toarray()
        own = found[np.arange(len(found)), self.right][:, None]
        # Of equal scores the first passage counts, as in a stable order.
        ahead = (found > own) | ((found == own) & (np.arange(len(kept)) < self.right[:, None]))
        rank = ahead.sum(axis=1)
        return float(np.mean(np.where((rank < TOP) & (own[:, 0] >= 0), 1 / np.log2(2 + rank), 0)))
