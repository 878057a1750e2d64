r"""What does a ranker learn from a few reviewed questions? Measured on FeedbackQA.

2,150 crowd-written questions over 598 passages, one right passage each, held out by page: five
folds of whole pages, and what is asked of a page's questions was learned from other pages' only.
A reviewed question is one whose right passage somebody named among the 20 that the base found.
The number is the gain in nDCG@10 over the base's own order, in points (nDCG x 100), mean and
least over runs with other folds and other reviewed questions; all held-out questions count, also
those whose right passage the base does not find. Two bases: cosine of MiniLM vectors (`dense`),
and reciprocal rank fusion of it with BM25 (`hybrid`). No model is called.

| row | what is learned from | how |
| --- | --- | --- |
| `linear` | the named passage above the 19 others | `LinearRanker` |
| `wrong_labels` | the same, but in 3 of 10 questions another passage is named | the same |
| `failing_only` | as `linear`, if the right passage is not first: what mining finds | the same |
| `failing_wrong_labels` | both at once | the same |
| `without_cosine` | as `linear` | the same, without the feature that needs vectors |
| `without_title` | as `linear` | the same, without the share of words in titles |
| `logistic` | as `linear` | logistic regression on single passages, without the anchor |
| `lightgbm` | as `linear` | LambdaMART, the library's own settings |
| `raw_ratings...` | ratings of single passages by two or three people, nobody reviewed | |
| `hardest_tree`, `lightgbm_hardest` | the named passage above the 4 first others | no anchor |
| `hardest_logistic` | the same, of failing questions | logistic regression |
| `hardest_linear` | the same, of failing questions | `LinearRanker` |
| `confirmed_negatives` | the first passage, confirmed as wrong, below the 19 others | anchored |

The last five are the trap: whoever takes the hardest negatives, which stand first by definition,
learns that first is wrong. `lightgbm` and the tree (scikit-learn) run where they are installed.

Also printed: milliseconds to train on 30 questions, and to score 20 candidates seen before.
And a check: the same ranker in a `FeedbackRetriever` gives the lists that are scored here.

Not measured: the labels are gold labels, not reviewers' choices; the passages are of one kind,
and one title names the page and the section.

    python benchmarks/ranker.py [--data FOLDER] [--runs 20] [--rows linear,...] [--strength 20] \
        [--json] [--seed 0]
"""

import argparse
import functools
import importlib.util
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from numpy.typing import NDArray

from langchain_feedback import FeedbackRetriever, FeedbackStore
from langchain_feedback.ranking._anchored import fitted
from langchain_feedback.ranking.features import PairScorer, Scorer, WordWeights, features_of
from langchain_feedback.ranking.linear import LinearRanker, TrainingGroup
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.retrievers.cosine import CosineFeature
from langchain_feedback.words import content_words

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "feedbackqa_us"
SIZES = (10, 30, 100)
POOL, TOP, FOLDS, WRONG, HARDEST, STRENGTH = 20, 10, 5, 0.3, 4, 20.0
ALL, NO_COSINE, NO_TITLE = (0, 1, 2, 3), (0, 1, 2), (0, 1, 3)
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Data:
    """The questions and passages."""

    questions: list[str]
    gold: Indices
    passages: list[Document]
    pages: Indices
    """The page of each question's right passage, by number."""
    vectors: dict[str, NDArray[np.float32]]
    """Of unit length, by text: of questions and of passages."""
    cosines: NDArray[np.float32]
    ratings: dict[int, dict[int, float]]
    """Of a question: the mean rating of passages."""


@dataclass(frozen=True)
class Base:
    """One base retriever over all questions, and what a ranker sees of its pools."""

    pools: Indices
    """(questions, 20) passages, best first."""
    tables: Floats
    """(questions, 20, 4) rank, words, title, cosine."""
    right: Flags
    """(questions, 20) which is the right passage."""
    rated: Flags
    """(questions, 20) which have ratings."""
    good: Flags
    """(questions, 20) which have ratings of 4 and more on average."""

    @property
    def plain(self) -> Floats:
        """nDCG@10 of each question in the base's own order."""
        return ndcg(self.right, np.broadcast_to(-np.arange(POOL), self.right.shape))


@dataclass(frozen=True)
class Labels:
    """What a model learns from: pools, and which of their passages are right."""

    tables: Floats
    right: Flags
    used: Flags
    """The others are left out."""

    def groups(self) -> tuple[list[Floats], list[frozenset[int]]]:
        """Return the pools that have a right passage and another, and the rows that are right."""
        tables, right = [], []
        for table, named, used in zip(self.tables, self.right, self.used, strict=True):
            if named[used].any() and not named[used].all():
                tables.append(table[used])
                right.append(frozenset(np.flatnonzero(named[used]).tolist()))
        return tables, right


Model = Callable[[Floats], Floats]
"""(questions, 20, F) features to scores."""


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
    asked = {query: at for at, query in enumerate(texts)}
    lines = (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    named = {query: number[passage] for query, passage, *_ in (line.split("\t") for line in lines)}
    gold = np.array([named[query] for query in texts])
    pages = np.unique([row["metadata"]["url"] for row in rows], return_inverse=True)[1]
    ratings: dict[int, dict[int, float]] = {}
    for row in _rows(folder / "ratings.jsonl"):
        of = ratings.setdefault(asked[row["query_id"]], {})
        of[number[row["doc_id"]]] = statistics.mean(row["values"])
    stored = np.load(folder / "embeddings.npz")
    corpus, queries = (_unit(stored[name]) for name in ("corpus", "queries"))
    named = [*texts.values(), *(passage.page_content for passage in passages)]
    vectors = dict(zip(named, [*queries, *corpus], strict=True))
    asked = list(texts.values())
    return Data(asked, gold, passages, pages[gold], vectors, queries @ corpus.T, ratings)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    vectors = vectors.astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def bm25(data: Data) -> Floats:
    """Return (questions, passages) scores: BM25 with k1 = 1.2 and b = .75."""
    bags = [Counter(content_words(passage.page_content)) for passage in data.passages]
    lengths = np.array([bag.total() for bag in bags])
    columns: dict[str, Floats] = {}
    for word, held in Counter(word for bag in bags for word in bag).items():
        counts = np.array([bag[word] for bag in bags], dtype=np.float64)
        rarity = np.log(1 + (len(bags) - held + 0.5) / (held + 0.5))
        damped = counts + 1.2 * (0.25 + 0.75 * lengths / lengths.mean())
        columns[word] = rarity * counts * 2.2 / damped
    nothing = np.zeros(len(bags))
    return np.array(
        [
            sum((columns.get(word, nothing) for word in sorted(set(content_words(text)))), nothing)
            for text in data.questions
        ]
    )


def fused(*orders: Indices) -> Indices:
    """Join orders by reciprocal rank fusion, k = 60, of the first 100 of each."""
    scores = np.zeros(orders[0].shape)
    for order in orders:
        rows = np.arange(len(order))[:, None]
        scores[rows, order[:, :100]] += 1 / (61 + np.arange(order[:, :100].shape[1]))
    return np.argsort(-scores, axis=1, kind="stable")


@functools.cache
def bases(folder: Path) -> dict[str, Base]:
    """Make both bases."""
    data = load(folder)
    dense = np.argsort(-data.cosines, axis=1, kind="stable")
    words = np.argsort(-bm25(data), axis=1, kind="stable")
    weights = word_weights(data)
    pools = {"dense": dense[:, :POOL], "hybrid": fused(dense, words)[:, :POOL]}
    return {name: _base(data, pool, weights) for name, pool in pools.items()}


def word_weights(data: Data) -> WordWeights:
    """Count the words of all passages, as a store counts those of its chunks."""
    return WordWeights.of(passage.page_content for passage in data.passages)


def _base(data: Data, pools: Indices, weights: WordWeights) -> Base:
    extra = cosine_of(data)
    tables = [
        features_of(question, candidates(data, pool), weights, extra)
        for question, pool in zip(data.questions, pools, strict=True)
    ]
    values = np.full(pools.shape, np.nan)
    for at, of in data.ratings.items():
        values[at] = [of.get(int(passage), np.nan) for passage in pools[at]]
    right = pools == data.gold[:, None]
    return Base(pools, np.stack(tables), right, ~np.isnan(values), values >= 4)  # noqa: PLR2004


def candidates(data: Data, pool: Indices) -> Candidates:
    """Return a pool as a ranker gets it."""
    return Candidates(np.arange(len(pool)), [data.passages[passage] for passage in pool])


class Given(Embeddings):
    """Hands out the vectors of the folder."""

    def __init__(self, vectors: dict[str, NDArray[np.float32]]) -> None:
        self._vectors = vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text of the folder."""
        return self._vectors[text].tolist()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return their vectors."""
        return [self.embed_query(text) for text in texts]


def cosine_of(data: Data) -> dict[str, Scorer | PairScorer]:
    """Return the package's own feature: how near a passage is to the question."""
    return {"cosine": CosineFeature(embeddings=Given(data.vectors))}


# -- what is learned from


def named(base: Base, taught: Indices, _: np.random.Generator) -> Labels:
    """Return the right passage against the rest of the pool."""
    right = base.right[taught]
    return Labels(base.tables[taught], right, np.ones_like(right))


def wrongly_named(base: Base, taught: Indices, rng: np.random.Generator) -> Labels:
    """Return the same where reviewers err: 3 of 10 name another passage of the pool."""
    labels = named(base, taught, rng)
    right = labels.right.copy()
    for at in np.flatnonzero(rng.random(len(right)) < WRONG):
        right[at] = np.arange(POOL) == rng.choice(np.flatnonzero(~right[at]))
    return replace(labels, right=right)


def hardest(base: Base, taught: Indices, rng: np.random.Generator) -> Labels:
    """Return the right passage against the 4 others that stand first."""
    labels = named(base, taught, rng)
    others = ~labels.right
    return replace(labels, used=labels.right | (others & (others.cumsum(axis=1) <= HARDEST)))


def confirmed(base: Base, taught: Indices, rng: np.random.Generator) -> Labels:
    """Return the first passage, which a reviewer confirmed to be wrong, against the rest."""
    labels = named(base, taught, rng)
    return replace(labels, right=np.broadcast_to(np.arange(POOL) > 0, labels.right.shape))


def rated(base: Base, taught: Indices, _: np.random.Generator) -> Labels:
    """Return what people rated as good against what they rated as bad."""
    return Labels(base.tables[taught], base.good[taught], base.rated[taught])


# -- the models


def anchored(labels: Labels, _: int, strength: float = STRENGTH) -> Model:
    """Fit what `LinearRanker.fit` fits; the features are those that it would compute."""
    weights, means, scales = fitted(*labels.groups(), strength)
    return lambda tables: (tables - means) / scales @ weights


def logistic(labels: Labels, _: int) -> Model:
    """Fit a logistic regression by Newton's method, with the usual L2 penalty of 1."""
    rows, right = labels.tables[labels.used], labels.right[labels.used].astype(np.float64)
    means, scales = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    table = np.column_stack([(rows - means) / scales, np.ones(len(rows))])
    weights = np.zeros(table.shape[1])
    penalty = np.append(np.ones(len(means)), 1e-9)  # none on the intercept
    for _step in range(30):
        chance = 1 / (1 + np.exp(-table @ weights))
        gradient = table.T @ (chance - right) + penalty * weights
        curvature = (table * (chance * (1 - chance))[:, None]).T @ table
        weights = weights - np.linalg.solve(curvature + np.diag(penalty), gradient)
    return lambda tables: (tables - means) / scales @ weights[:-1]


def tree(labels: Labels, seed: int) -> Model:
    """Fit a decision tree of three levels."""
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415  the extra `local`

    found = DecisionTreeClassifier(max_depth=3, random_state=seed)
    found.fit(labels.tables[labels.used], labels.right[labels.used])
    return lambda tables: found.predict_proba(tables.reshape(-1, tables.shape[-1]))[:, -1].reshape(
        tables.shape[:-1]
    )


def lightgbm(labels: Labels, seed: int) -> Model:
    """Train LambdaMART with the library's own settings."""
    from lightgbm import LGBMRanker  # noqa: PLC0415  not a dependency

    tables, right = labels.groups()
    graded = [[int(at in of) for at in range(len(t))] for t, of in zip(tables, right, strict=True)]
    found = LGBMRanker(random_state=seed, n_jobs=1, verbose=-1)
    found.fit(np.concatenate(tables), np.concatenate(graded), group=[len(t) for t in tables])
    return lambda tables: found.predict(tables.reshape(-1, tables.shape[-1])).reshape(
        tables.shape[:-1]
    )


@dataclass(frozen=True)
class Row:
    """One way to learn."""

    labels: Callable[[Base, Indices, np.random.Generator], Labels]
    model: Callable[[Labels, int], Model]
    asked: str = "reviewed"
    """Which questions: `reviewed`, `failing` (the right passage is not first), or `rated`."""
    columns: tuple[int, ...] = ALL
    needs: str | None = None
    """A package."""


ROWS = {
    "linear": Row(named, anchored),
    "wrong_labels": Row(wrongly_named, anchored),
    "failing_only": Row(named, anchored, "failing"),
    "failing_wrong_labels": Row(wrongly_named, anchored, "failing"),
    "without_cosine": Row(named, anchored, columns=NO_COSINE),
    "without_title": Row(named, anchored, columns=NO_TITLE),
    "logistic": Row(named, logistic),
    "lightgbm": Row(named, lightgbm, needs="lightgbm"),
    "raw_ratings": Row(rated, anchored, "rated"),
    "raw_ratings_logistic": Row(rated, logistic, "rated"),
    "raw_ratings_lightgbm": Row(rated, lightgbm, "rated", needs="lightgbm"),
    "hardest_tree": Row(hardest, tree, needs="sklearn"),
    "hardest_logistic": Row(hardest, logistic, "failing"),
    "hardest_linear": Row(hardest, anchored, "failing"),
    "lightgbm_hardest": Row(hardest, lightgbm, needs="lightgbm"),
    "confirmed_negatives": Row(confirmed, anchored, "failing"),
}


# -- the measurement


def ndcg(right: Flags, scores: Floats) -> Floats:
    """Return nDCG@10 of each question: 1 / log2(2 + place), 0 below the first ten."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    return np.take_along_axis(right, order, axis=1) @ (1 / np.log2(2 + np.arange(TOP)))


def folds_of(data: Data, rng: np.random.Generator) -> Indices:
    """Return the fold of each question: whole pages go together."""
    pages = np.unique(data.pages)
    fold = np.empty(data.pages.max() + 1, dtype=np.intp)
    fold[rng.permutation(pages)] = np.arange(len(pages)) % FOLDS
    return fold[data.pages]


def askable(base: Base, asked: str) -> Flags:
    """Return which questions a row may learn from."""
    if asked == "rated":
        both = (base.rated & base.good).any(axis=1) & (base.rated & ~base.good).any(axis=1)
        return np.asarray(both)
    reviewed = base.right.any(axis=1)
    return np.asarray(reviewed & ~base.right[:, 0] if asked == "failing" else reviewed)


def gain(data: Data, base: Base, row: Row, size: int, seed: int) -> float:
    """Return the points that one run gains, all questions tested."""
    rng, noise = np.random.default_rng([seed, size]), np.random.default_rng([seed, size, 1])
    fold, may = folds_of(data, rng), askable(base, row.asked)
    gained = -base.plain
    for held_out in range(FOLDS):
        taught = rng.permutation(np.flatnonzero((fold != held_out) & may))[:size]
        labels = row.labels(base, taught, noise)
        model = row.model(replace(labels, tables=labels.tables[..., row.columns]), seed)
        tested = fold == held_out
        gained[tested] += ndcg(base.right[tested], model(base.tables[tested][..., row.columns]))
    return 100 * float(gained.mean())


def speed(data: Data, base: Base, seed: int) -> dict[str, float]:
    """Return milliseconds to train on 30 questions, and the median to score 20 candidates."""
    rng = np.random.default_rng(seed)
    words = word_weights(data)
    started = time.perf_counter()
    ranker = LinearRanker.fit(groups_of(data, base, reviewed_ones(base, 30, rng)), words=words)
    fitting = time.perf_counter() - started
    times = []
    for at in rng.permutation(len(data.questions))[:500].tolist():
        pool = candidates(data, base.pools[at])
        started = time.perf_counter()
        ranker.score(data.questions[at], pool)
        times.append(time.perf_counter() - started)
    lengths = [len(passage.page_content) for passage in data.passages]
    return {
        "fit_ms": 1e3 * fitting,
        "score_ms": 1e3 * statistics.median(times),
        "median_characters": statistics.median(lengths),
    }


def reviewed_ones(base: Base, size: int, rng: np.random.Generator) -> Indices:
    """Draw reviewed questions."""
    return rng.permutation(np.flatnonzero(askable(base, "reviewed")))[:size]


def groups_of(data: Data, base: Base, taught: Indices) -> list[TrainingGroup]:
    """Return reviewed questions as `LinearRanker.fit` takes them."""
    return [
        TrainingGroup(
            data.questions[at],
            candidates(data, base.pools[at]).documents,
            range(POOL),
            frozenset(np.flatnonzero(base.right[at]).tolist()),
        )
        for at in taught
    ]


# -- the same in a retriever


class Calls(BaseCallbackHandler):
    """Counts what is asked of models."""

    def __init__(self) -> None:
        self.models = 0

    def on_llm_start(self, *_: Any, **__: Any) -> None:
        """Count."""
        self.models += 1

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Count."""
        self.models += 1


def in_a_retriever(data: Data, base: Base, seed: int, asked: int = 20) -> dict[str, int]:
    """Put a trained ranker into a retriever: are its lists those that are scored here?"""
    rng = np.random.default_rng(seed)
    taught, words, calls = reviewed_ones(base, 30, rng), word_weights(data), Calls()
    ranker = LinearRanker.fit(
        groups_of(data, base, taught), words=words, extra_features=cosine_of(data)
    )
    model = anchored(named(base, taught, rng), seed)
    place = {question: at for at, question in enumerate(data.questions)}
    found = RunnableLambda(lambda q: list(candidates(data, base.pools[place[q]]).documents))
    same = 0
    with FeedbackStore("sqlite://") as store:
        store.setup()  # its tables take longer than an answer waits for a store
        retriever = FeedbackRetriever(base_retriever=found, store=store, k=TOP, ranker=ranker)
        for at in rng.permutation(len(data.questions))[:asked]:
            given = retriever.invoke(data.questions[at], {"callbacks": [calls]})
            order = np.argsort(-model(base.tables[at]), kind="stable")[:TOP]
            same += [one.id for one in given] == [
                data.passages[passage].id for passage in base.pools[at][order]
            ]
    return {"lists": asked, "same": same, "model_calls": calls.models}


# -- all of it


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run everything."""
    data, made = load(folder), bases(folder)
    rows = {name: ROWS[name] for name in options.rows if _installed(ROWS[name].needs)}
    found: dict[str, Any] = {name: {} for name in rows}
    strong = functools.partial(anchored, strength=options.strength)
    for name, named_row in rows.items():
        row = replace(named_row, model=strong) if named_row.model is anchored else named_row
        for kind, base in made.items():
            found[name][kind] = {
                str(size): told(data, base, row, size, options) for size in options.sizes
            }
    retriever = in_a_retriever(data, made["dense"], options.seed)
    return found.get("linear", {}) | {
        "rows": found,
        "absent": sorted(set(options.rows) - set(rows)),
        "base": {kind: float(base.plain.mean()) for kind, base in made.items()},
        "in_the_pool": {kind: float(base.right.any(axis=1).mean()) for kind, base in made.items()},
        "speed": speed(data, made["dense"], options.seed),
        "retriever": retriever,
        "model_calls": retriever["model_calls"],
    }


def told(
    data: Data, base: Base, row: Row, size: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the gains of one row at one size."""
    runs = [gain(data, base, row, size, options.seed + run) for run in range(options.runs)]
    return {"mean": statistics.mean(runs), "min": min(runs), "runs": len(runs)}


def _installed(package: str | None) -> bool:
    return package is None or importlib.util.find_spec(package) is not None


def show(found: dict[str, Any]) -> None:
    """Print the tables."""
    for name, base in found["base"].items():
        print(
            f"\n{name}: nDCG@10 {base:.3f} without a ranker, the right passage among its {POOL} "
            f"in {found['in_the_pool'][name]:.0%}; points gained, mean [least run]"
        )
        sizes = list(next(iter(found["rows"].values()))[name])
        print(f"{'reviewed questions':<22}" + "".join(f"{size:>18}" for size in sizes))
        for row, of in found["rows"].items():
            cells = (f"{one['mean']:+.1f} [{one['min']:+.1f}]" for one in of[name].values())
            print(f"{row:<22}" + "".join(f"{cell:>18}" for cell in cells))
    if found["absent"]:
        print(f"\nNot installed, so not measured: {', '.join(found['absent'])}")
    speeds, check = found["speed"], found["retriever"]
    print(
        f"\nTraining on 30 questions {speeds['fit_ms']:.0f} ms, scoring 20 candidates of "
        f"{speeds['median_characters']:.0f} characters {speeds['score_ms']:.2f} ms (median).\n"
        f"In a FeedbackRetriever {check['same']} of {check['lists']} lists are the same, "
        f"{check['model_calls']} model calls."
    )


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--sizes", type=lambda text: [int(n) for n in text.split(",")], default=SIZES
    )
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS))
    parser.add_argument("--strength", type=float, default=STRENGTH, help="of the anchor")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := sorted(set(options.rows) - set(ROWS)):
        parser.error(f"there is no row {', '.join(unknown)}: choose from {', '.join(ROWS)}")
    if not (options.data / "corpus.jsonl").exists():
        sys.exit(f"There is no FeedbackQA (corpus.jsonl) in {options.data}: pass --data FOLDER")
    found = measure(options.data, options)
    print(json.dumps(found, indent=1)) if options.json else show(found)


if __name__ == "__main__":
    main()
