"""What junk costs a retriever, and what a gate gives back: TF-IDF on FeedbackQA."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from chunk_sets.junk import MAKERS, MISSES

__all__ = ["measure"]

TOP = 10
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
    perfect = _ndcg(passages, questions)
    measured: dict[str, dict[str, list[float]]] = {}
    for seed in range(seeds):
        for name, kinds in KINDS.items():
            corpus = passages | _junk(list(passages.values()), kinds, seed)
            base = _ndcg(corpus, questions) if kinds else perfect
            scores = {"none": base, "perfect": perfect}
            for label, gated in gates.items():
                kept = {key: text for key, text in corpus.items() if not gated(text)}
                same = len(kept) == len(corpus)
                scores[label] = scores["none"] if same else _ndcg(kept, questions)
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
    chance = random.Random(seed)  # noqa: S311  no secret
    wanted = int(len(texts) * SHARE / (1 - SHARE))
    made: dict[str, str] = {}
    for at, kind in enumerate(kinds):
        part = (wanted - len(made)) // (len(kinds) - at)
        found = list(MAKERS[kind](chance.sample(list(texts), len(texts)), chance))[:part]
        made |= {f"{kind}-{number}": text for number, text in enumerate(found)}
    return made


def _ndcg(corpus: dict[str, str], questions: Sequence[tuple[str, str]]) -> float:
    """Mean of 1 / log2(1 + rank) of the right passage in the first ten (one is right)."""
    keys = np.array(list(corpus))
    vectorizer = TfidfVectorizer()
    matrix = vectorizer.fit_transform(corpus.values())
    found = vectorizer.transform([question for question, _ in questions]) @ matrix.T
    gains = []
    for row, (_, right) in zip(found.toarray(), questions, strict=True):
        best = keys[np.argsort(-row, kind="stable")[:TOP]]
        rank = np.flatnonzero(best == right)
        gains.append(1 / np.log2(2 + rank[0]) if rank.size else 0.0)
    return float(np.mean(gains))
