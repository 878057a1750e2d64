"""What does a ranker learn from a few reviewed questions? Measured on FeedbackQA.

2,150 crowd-written questions over 598 passages, one right passage each, held out by page: five
folds of whole pages, and what is asked of a page's questions was learned from other pages' only.
A reviewed question is one whose right passage somebody named among the 20 that the base found.
The number is the gain in nDCG@10 over the base's own order, in points (nDCG x 100), mean and
least over runs with other folds and other reviewed questions. Two bases: cosine of MiniLM vectors
(`dense`), and reciprocal rank fusion of it with BM25 (`hybrid`). No model is called.

Rows: `linear` is `LinearRanker`. Beside it `wrong_labels` (in 30 % of the reviewed questions
another passage is named), `without_cosine`, and the two ways that lose: `hardest_negatives` (only
the 4 first other passages count as wrong) with a plain logistic regression without the anchor,
and LightGBM's LambdaMART where `lightgbm` is installed. `ms` is the time to score 20 candidates
seen before, and to train.

The labels are gold labels, not reviewers' choices; the passages are of one kind.

    python benchmarks/ranker.py [--data FOLDER] [--runs 20] [--rows linear,...] [--json] [--seed 0]
"""

import argparse
import functools
import importlib.util
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langchain_feedback.ranking.features import WordWeights, features_of
from langchain_feedback.ranking.linear import LinearRanker, TrainingGroup
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.words import content_words

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "feedbackqa_us"
SIZES = (10, 30, 100)
POOL, TOP, FOLDS, WRONG = 20, 10, 5, 0.3
ROWS = ("linear", "wrong_labels", "without_cosine", "hardest_negatives", "lightgbm")
Floats = NDArray[np.float64]
Scored = Callable[[int], Floats]
"""The scores of a question's pool, by the question's number."""


@dataclass(frozen=True)
class Base:
    """One base retriever over all questions, and what a ranker sees of its pools."""

    pools: NDArray[np.intp]
    """(questions, 20) passages, best first."""
    tables: list[Floats]
    """Of each question: (20, 4) rank, words, title, cosine."""
    groups: list[TrainingGroup]


@dataclass(frozen=True)
class Data:
    """The questions and passages."""

    questions: list[str]
    gold: NDArray[np.intp]
    passages: list[Document]
    pages: list[str]
    cosines: NDArray[np.float32]

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The place of each question."""
        return {question: at for at, question in enumerate(self.questions)}

    @functools.cached_property
    def places(self) -> dict[str | None, int]:
        """The place of each passage, by its id."""
        return {passage.id: at for at, passage in enumerate(self.passages)}


# -- the data


@functools.cache
def load(folder: Path) -> Data:
    """Read the folder: BEIR layout, and embeddings in file order."""
    rows = _rows(folder / "corpus.jsonl")
    passages = [
        Document(f"{row['title']}\n{row['text']}", id=row["_id"], metadata={"title": row["title"]})
        for row in rows
    ]
    number = {row["_id"]: at for at, row in enumerate(rows)}
    texts = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl")}
    lines = (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    gold = {query: number[passage] for query, passage, *_ in (line.split("\t") for line in lines)}
    stored = np.load(folder / "embeddings.npz")
    corpus, queries = (_unit(stored[name]) for name in ("corpus", "queries"))
    return Data(
        questions=list(texts.values()),
        gold=np.array([gold[query] for query in texts]),
        passages=passages,
        pages=[row["metadata"]["url"] for row in rows],
        cosines=queries @ corpus.T,
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    vectors = vectors.astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def bm25(data: Data) -> Floats:
    """Return (questions, passages) scores: BM25 with k1 = 1.2 and b = .75."""
    bags = [Counter(content_words(passage.page_content)) for passage in data.passages]
    lengths = np.array([bag.total() for bag in bags])
    found = Counter(word for bag in bags for word in bag)
    columns: dict[str, Floats] = {}
    for word, held in found.items():
        counts = np.array([bag[word] for bag in bags], dtype=np.float64)
        rarity = np.log(1 + (len(bags) - held + 0.5) / (held + 0.5))
        damped = counts + 1.2 * (0.25 + 0.75 * lengths / lengths.mean())
        columns[word] = rarity * counts * 2.2 / damped
    nothing = np.zeros(len(bags))
    return np.array(
        [
            sum((columns.get(word, nothing) for word in set(content_words(text))), nothing)
            for text in data.questions
        ]
    )


def fused(*orders: NDArray[np.intp]) -> NDArray[np.intp]:
    """Join orders by reciprocal rank fusion, k = 60, of the first 100 of each."""
    scores = np.zeros(orders[0].shape)
    for order in orders:
        rows = np.arange(len(order))[:, None]
        scores[rows, order[:, :100]] += 1 / (61 + np.arange(100))
    return np.argsort(-scores, axis=1, kind="stable")


@functools.cache
def bases(folder: Path) -> dict[str, Base]:
    """Make both bases."""
    data = load(folder)
    dense = np.argsort(-data.cosines, axis=1, kind="stable")
    words = np.argsort(-bm25(data), axis=1, kind="stable")
    weights = WordWeights.of(passage.page_content for passage in data.passages)
    pools = {"dense": dense[:, :POOL], "hybrid": fused(dense, words)[:, :POOL]}
    return {name: _base(data, pool, weights) for name, pool in pools.items()}


def _base(data: Data, pools: NDArray[np.intp], weights: WordWeights) -> Base:
    tables, groups = [], []
    for at, (question, pool) in enumerate(zip(data.questions, pools, strict=True)):
        documents = [data.passages[passage] for passage in pool]
        candidates = Candidates(np.arange(len(pool)), documents)
        cosine = {"cosine": lambda _, __, at=at, pool=pool: data.cosines[at, pool].tolist()}
        tables.append(features_of(question, candidates, weights, cosine))
        right = frozenset(np.flatnonzero(pool == data.gold[at]).tolist())
        groups.append(TrainingGroup(question, documents, range(len(pool)), right))
    return Base(pools, tables, groups)


# -- the rankers


@dataclass(frozen=True)
class Cosine:
    """The feature of one's own: how near a passage is to the question."""

    data: Data

    def __call__(self, question: str, documents: Sequence[Document]) -> list[float]:
        """Return the cosine of each passage."""
        at = self.data.numbers[question]
        return self.data.cosines[at, [self.data.places[d.id] for d in documents]].tolist()


def linear(data: Data, base: Base, taught: Sequence[int], *, cosine: bool = True) -> Scored:
    """Train a `LinearRanker` on some questions."""
    extra = {"cosine": Cosine(data)} if cosine else {}
    ranker = LinearRanker.fit([base.groups[at] for at in taught], extra_features=extra, least=1)
    columns = [0, 1, 2, 3] if cosine else [0, 1, 2]
    means, scales, weights = map(np.array, (ranker.means, ranker.scales, ranker.weights))

    # The features were computed once for all runs; `score` would give the same.
    return lambda at: (base.tables[at][:, columns] - means) / scales @ weights


def wrong_labels(
    data: Data, base: Base, taught: Sequence[int], rng: np.random.Generator
) -> Scored:
    """Do the same where reviewers err: 3 of 10 name another passage of the pool."""
    groups = list(base.groups)
    for at in taught:
        if groups[at].teaches and rng.random() < WRONG:
            [right] = groups[at].right
            named = int(rng.choice([place for place in range(POOL) if place != right]))
            groups[at] = TrainingGroup(
                groups[at].question, groups[at].documents, range(POOL), frozenset({named})
            )
    return linear(data, Base(base.pools, base.tables, groups), taught)


def hardest_negatives(base: Base, taught: Sequence[int]) -> Scored:
    """Train a logistic regression on the named passage against the 4 first others."""
    rows, right = [], []
    for at in taught:
        group = base.groups[at]
        if group.teaches:
            others = [place for place in range(POOL) if place not in group.right][:4]
            chosen = [*group.right, *others]
            rows.append(base.tables[at][chosen])
            right += [place in group.right for place in chosen]
    table, labels = np.concatenate(rows), np.array(right, dtype=np.float64)
    means, scales = table.mean(axis=0), table.std(axis=0) + 1e-9
    weights = logistic(np.column_stack([(table - means) / scales, np.ones(len(table))]), labels)
    return lambda at: (base.tables[at] - means) / scales @ weights[:-1]


def logistic(table: Floats, labels: Floats, penalty: float = 1.0) -> Floats:
    """Fit by Newton's method, with the usual L2 penalty of 1."""
    weights = np.zeros(table.shape[1])
    for _ in range(30):
        chance = 1 / (1 + np.exp(-table @ weights))
        gradient = table.T @ (chance - labels) + penalty * weights
        curvature = (table * (chance * (1 - chance))[:, None]).T @ table
        weights = weights - np.linalg.solve(curvature + penalty * np.eye(len(weights)), gradient)
    return weights


def lightgbm(base: Base, taught: Sequence[int], seed: int) -> Scored:
    """Train LambdaMART on whole pools, with the library's own settings."""
    from lightgbm import LGBMRanker  # noqa: PLC0415  not a dependency

    groups = [base.groups[at] for at in taught if base.groups[at].teaches]
    tables = [base.tables[at] for at in taught if base.groups[at].teaches]
    labels = [[int(place in group.right) for place in range(POOL)] for group in groups]
    ranker = LGBMRanker(random_state=seed, n_jobs=1, verbose=-1)
    ranker.fit(np.concatenate(tables), np.concatenate(labels), group=[POOL] * len(groups))
    return lambda at: ranker.predict(base.tables[at])


# -- the measurement


def ndcg(base: Base, at: int, gold: int, scores: Floats | None = None) -> float:
    """Return nDCG@10 of a question's right passage."""
    pool = base.pools[at]
    order = pool if scores is None else pool[np.argsort(-scores, kind="stable")]
    [found] = [*np.flatnonzero(order[:TOP] == gold), -1][:1]
    return 0.0 if found < 0 else float(1 / np.log2(2 + found))


def gain(data: Data, base: Base, row: str, size: int, seed: int) -> float:
    """Return the points that one run gains, all questions tested."""
    rng = np.random.default_rng([seed, size])
    pages = sorted(set(data.pages))
    folds = {page: at % FOLDS for at, page in enumerate(rng.permutation(pages))}
    fold = np.array([folds[data.pages[gold]] for gold in data.gold])
    gained = []
    for held_out in range(FOLDS):
        taught = rng.permutation(np.flatnonzero(fold != held_out))[:size].tolist()
        scored = trained(data, base, row, taught, rng)
        for at in np.flatnonzero(fold == held_out).tolist():
            gold = int(data.gold[at])
            gained.append(ndcg(base, at, gold, scored(at)) - ndcg(base, at, gold))
    return 100 * float(np.mean(gained))


def trained(
    data: Data, base: Base, row: str, taught: Sequence[int], rng: np.random.Generator
) -> Scored:
    """Train the ranker of a row."""
    if row == "wrong_labels":
        return wrong_labels(data, base, taught, rng)
    if row == "hardest_negatives":
        return hardest_negatives(base, taught)
    if row == "lightgbm":
        return lightgbm(base, taught, int(rng.integers(1 << 30)))
    return linear(data, base, taught, cosine=row == "linear")


def speed(data: Data, base: Base, seed: int) -> dict[str, float]:
    """Return medians in milliseconds: training on 30 questions, scoring 20 candidates."""
    rng = np.random.default_rng(seed)
    taught = rng.permutation(len(data.questions))[:30].tolist()
    started = time.perf_counter()
    ranker = LinearRanker.fit([base.groups[at] for at in taught], least=1)
    fitting = time.perf_counter() - started
    times = []
    for at in rng.permutation(len(data.questions))[:500].tolist():
        pool = Candidates(np.arange(POOL), base.groups[at].documents)
        started = time.perf_counter()
        ranker.score(data.questions[at], pool)
        times.append(time.perf_counter() - started)
    lengths = [len(passage.page_content) for passage in data.passages]
    return {
        "fit_ms": 1e3 * fitting,
        "score_ms": 1e3 * statistics.median(times),
        "median_characters": statistics.median(lengths),
    }


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run everything."""
    data, made = load(folder), bases(folder)
    rows = [row for row in options.rows if row != "lightgbm" or _has_lightgbm()]
    found: dict[str, Any] = {"rows": {}, "base": {}, "model_calls": 0}
    for row in rows:
        for name, base in made.items():
            for size in options.sizes:
                runs = [
                    gain(data, base, row, size, options.seed + run) for run in range(options.runs)
                ]
                told = {"mean": statistics.mean(runs), "min": min(runs), "runs": len(runs)}
                found["rows"].setdefault(row, {}).setdefault(name, {})[str(size)] = told
    for name, base in made.items():
        plain = [ndcg(base, at, int(gold)) for at, gold in enumerate(data.gold)]
        found["base"][name] = float(np.mean(plain))
    return (
        found["rows"].get("linear", {})
        | found
        | {"speed": speed(data, made["dense"], options.seed)}
    )


def _has_lightgbm() -> bool:
    return importlib.util.find_spec("lightgbm") is not None


def show(found: dict[str, Any]) -> None:
    """Print the tables."""
    for name, base in found["base"].items():
        print(f"\n{name}: nDCG@10 {base:.3f} without a ranker; points gained, mean [least run]")
        sizes = list(next(iter(found["rows"].values()))[name])
        print(f"{'reviewed questions':<20}" + "".join(f"{size:>18}" for size in sizes))
        for row, told in found["rows"].items():
            cells = (f"{of['mean']:+.1f} [{of['min']:+.1f}]" for of in told[name].values())
            print(f"{row:<20}" + "".join(f"{cell:>18}" for cell in cells))
    speeds = found["speed"]
    print(
        f"\nTraining on 30 questions {speeds['fit_ms']:.0f} ms, scoring 20 candidates of "
        f"{speeds['median_characters']:.0f} characters {speeds['score_ms']:.2f} ms (medians)."
    )


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--sizes", type=lambda text: [int(n) for n in text.split(",")], default=SIZES
    )
    parser.add_argument("--rows", type=lambda text: text.split(","), default=ROWS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not (options.data / "corpus.jsonl").exists():
        sys.exit(f"There is no FeedbackQA in {options.data}: pass --data FOLDER")
    found = measure(options.data, options)
    print(json.dumps(found, indent=1)) if options.json else show(found)


if __name__ == "__main__":
    main()
