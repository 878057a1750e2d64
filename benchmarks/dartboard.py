"""Dartboard selection: time and memory, exactness, copies in the index, and two-part questions.

- speed: the best time and the peak of memory of one selection from n texts, on one BLAS
  thread, 384 dimensions, sigma .1. Ours and the loops are given the distances, whose own cost
  stands beside them; the others are given vectors, langchain-core's MMR as lists, as vector
  stores hand them over, and as an array. The loops are the one in circulation, written here
  from the formula: each step takes the text with the largest logarithm of the total; with SciPy's
  `logsumexp`, as it is found in the wild, and with the same in plain NumPy.
- order: on random pools (half of them with copies) whether every choice has the largest gain,
  computed in 60 digits; ties within 1e-12 of the gain count as right. For the loop also on pools
  stored five times.
- copies: 60 texts about 12 topics, each stored five times; distinct texts among the top k.
- questions: how often the top 4 of a pool of 12 hold every part of a question. Generated passages
  state facts about topics; a two-part question lies between two facts, nearer to one. Clean
  corpora hold a fact once, the others in six versions. Then FeedbackQA, where its vectors are at
  hand: its own single-fact questions, and pairs of them, put together as the mean of their
  vectors.

Not measured: answers. A set that covers more is not yet a better answer.

    python benchmarks/dartboard.py [--json] [--data FOLDER] [--n 15 30 ...] [--k 3 5 ...]
        [--questions 1000] [--cases 100] [--seed 7]
"""

# ruff: noqa: E402  threads are limited before NumPy is loaded
import os

for _library in ("OPENBLAS", "MKL", "OMP"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from langchain_feedback import DartboardRetriever
from langchain_feedback.ranking.dartboard import cosine_distances, select
from tests.exact_dartboard import exact_gains

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SIZES, KS = [15, 30, 100, 200, 500, 1000, 2000], [3, 5, 10, 20]
DIMENSIONS = 384
SIGMA = 0.1
SIGMAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0)
MMR_BALANCE = 0.5
POOL = 12
TOP = 4
WHOLE_POOL = "whole pool"
OURS, DISTANCES = "select", "distances"
LOOP, LEAN_LOOP = "loop (SciPy's logsumexp)", "loop (plain NumPy)"
MMR, MMR_ARRAY = "langchain-core MMR (lists)", "langchain-core MMR (array)"
PYVERSITY_MMR, PYVERSITY_DPP = "pyversity MMR", "pyversity DPP"

Floats = NDArray[np.float64]
LogSumExp = Callable[[Floats], Floats]


# -- what is compared


def plain_log_sum(terms: Floats) -> Floats:
    """Return the logarithm of the sum of exponentials of each row."""
    largest = terms.max(axis=1, keepdims=True)
    sums: Floats = np.log(np.exp(terms - largest).sum(axis=1)) + largest[:, 0]
    return sums


def scipy_log_sum() -> LogSumExp:
    """Return SciPy's."""
    from scipy.special import logsumexp  # noqa: PLC0415

    return lambda terms: logsumexp(terms, axis=1)


def loop(to_query: Floats, between: Floats, k: int, sigma: float, log_sum: LogSumExp) -> list[int]:
    """Select greedily by the logarithm of the total, the most relevant text first."""
    log_weights = -(to_query**2) / (2 * sigma**2)
    log_kernel = -(between**2) / (2 * sigma**2)
    chosen = [int(log_weights.argmax())]
    covered = log_kernel[chosen[0]]
    while len(chosen) < min(k, len(to_query)):
        totals = log_sum(np.maximum(covered, log_kernel) + log_weights)
        totals[chosen] = -np.inf
        chosen.append(int(totals.argmax()))
        covered = np.maximum(covered, log_kernel[chosen[-1]])
    return chosen


def contestants(question: Floats, vectors: Floats, k: int) -> dict[str, Callable[[], Any]]:
    """Return one call of each; those whose package is absent are missing."""
    to_query, between = cosine_distances(question, vectors)
    lists = vectors.tolist()
    calls: dict[str, Callable[[], Any]] = {
        OURS: lambda: select(to_query, between, k, sigma=SIGMA),
        DISTANCES: lambda: cosine_distances(question, vectors),
        LEAN_LOOP: lambda: loop(to_query, between, k, SIGMA, plain_log_sum),
        MMR: lambda: maximal_marginal_relevance(question, lists, MMR_BALANCE, k),
        MMR_ARRAY: lambda: maximal_marginal_relevance(question, vectors, MMR_BALANCE, k),  # type: ignore[arg-type]
    }
    try:
        log_sum = scipy_log_sum()
        calls[LOOP] = lambda: loop(to_query, between, k, SIGMA, log_sum)
    except ImportError:
        pass
    try:
        from pyversity import Strategy, diversify  # noqa: PLC0415
    except ImportError:
        return calls
    scores = vectors @ question
    for name, strategy in ((PYVERSITY_MMR, Strategy.MMR), (PYVERSITY_DPP, Strategy.DPP)):
        calls[name] = lambda strategy=strategy: diversify(  # type: ignore[misc]
            vectors, scores, k, strategy, MMR_BALANCE
        )
    return calls


# -- speed


def microseconds(call: Callable[[], Any]) -> float:
    """Return the best time of a call: of 3 to 60, in about a quarter of a second."""
    call()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 0.25 and len(times) < 60):  # noqa: PLR2004
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return round(min(times) * 1e6, 1)


def peak_kib(call: Callable[[], Any]) -> float:
    """Return the most memory that a call holds at a time, in KiB, its arguments aside."""
    tracemalloc.start()
    try:
        call()
        return round(tracemalloc.get_traced_memory()[1] / 1024, 1)
    finally:
        tracemalloc.stop()


def speed(sizes: Sequence[int], ks: Sequence[int], rng: np.random.Generator) -> dict[str, Any]:
    """Measure each contestant at each size."""
    rows: dict[str, Any] = {}
    for n in sizes:
        vectors, facts = passages(rng, topics=max(n // 12, 2), facts=3, versions=4)
        vectors = vectors[rng.permutation(len(vectors))[:n]]
        question = asked(rng, facts[:1], [1.0])
        rows[str(n)] = {}
        for k in ks:
            calls = contestants(question, vectors, k)
            rows[str(n)][str(k)] = {
                name: {"us": microseconds(call), "peak_kib": peak_kib(call)}
                for name, call in calls.items()
            }
    return rows


def goals(rows: dict[str, Any]) -> dict[str, Any]:
    """Return by how much ours is faster than each, at its worst size; below 1 it is slower."""

    def ratios(other: str, sizes: Callable[[int], bool] = bool) -> list[float]:
        return [
            row[other]["us"] / row[OURS]["us"]
            for n, by_k in rows.items()
            for row in by_k.values()
            if other in row and sizes(int(n))
        ]

    def at(n: str, k: str, other: str) -> float | None:
        row = rows.get(n, {}).get(k, {})
        return round(row[other]["us"] / row[OURS]["us"], 1) if other in row else None

    result: dict[str, Any] = {
        "loop / ours, n = 30, k = 10": {name: at("30", "10", name) for name in (LOOP, LEAN_LOOP)},
        "loop / ours, n = 1000, k = 20": {
            name: at("1000", "20", name) for name in (LOOP, LEAN_LOOP)
        },
    }
    for name in (MMR, MMR_ARRAY):
        result[f"{name} / ours, smallest"] = round(min(ratios(name)), 2)
    pyversity = ratios(PYVERSITY_MMR, lambda n: n <= 200)  # noqa: PLR2004
    if pyversity:
        result["ours / pyversity MMR up to n = 200, largest"] = round(1 / min(pyversity), 2)
    return result


# -- order


def random_pool(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the distances of a small pool, half of the time with copies."""
    vectors = rng.normal(size=(int(rng.integers(4, 13)), int(rng.integers(3, 7))))
    if rng.random() < 0.5:  # noqa: PLR2004
        vectors = vectors[rng.integers(0, len(vectors), len(vectors))]
    return cosine_distances(rng.normal(size=vectors.shape[1]), vectors)


def five_copies(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the distances of six texts that are stored five times."""
    vectors = np.vstack([rng.normal(size=(6, 5))] * 5)
    return cosine_distances(rng.normal(size=5), vectors)


def is_exact(chosen: list[int], to_query: Floats, between: Floats, sigma: float) -> bool:
    """Say whether each choice has the largest gain that there is."""
    steps = exact_gains(to_query, between, chosen, sigma)
    return all(gain >= largest * (1 - type(gain)("1e-12")) for gain, largest, *_ in steps)


def order(cases: int, rng: np.random.Generator) -> dict[str, Any]:
    """Count the pools that are put into a wrong order, by sigma."""
    result: dict[str, Any] = {}
    kinds = {"random": (random_pool, cases, 12), "stored five times": (five_copies, cases, 6)}
    for kind, (make, n, k) in kinds.items():
        pools = [make(rng) for _ in range(n)]
        result[kind] = {"pools": n}
        for sigma in SIGMAS:
            wrong = {OURS: 0, LEAN_LOOP: 0}
            for to_query, between in pools:
                ours = select(to_query, between, k, sigma=sigma).indices.tolist()
                theirs = loop(to_query, between, k, sigma, plain_log_sum)
                wrong[OURS] += not is_exact(ours, to_query, between, sigma)
                wrong[LEAN_LOOP] += not is_exact(theirs, to_query, between, sigma)
            result[kind][str(sigma)] = wrong
    return result


# -- generated passages


def unit(vectors: Floats) -> Floats:
    """Divide rows by their length."""
    scaled: Floats = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def passages(
    rng: np.random.Generator, *, topics: int, facts: int, versions: int
) -> tuple[Floats, Floats]:
    """Return passages, fact by fact, and the facts' directions.

    Versions of a fact have a cosine of about .85, facts of a topic .5, others 0.
    """
    about = np.repeat(unit(rng.normal(size=(topics, DIMENSIONS))), facts, axis=0)
    directions = unit(about + 0.95 * unit(rng.normal(size=about.shape)))
    said = np.repeat(directions, versions, axis=0)
    return unit(said + 0.42 * unit(rng.normal(size=said.shape))), directions


def asked(rng: np.random.Generator, facts: Floats, weights: Sequence[float]) -> Floats:
    """Return a question about facts: in other words than theirs."""
    meant = unit(np.array(weights) @ facts)
    question: Floats = unit(meant + 0.9 * unit(rng.normal(size=meant.shape)))
    return question


# -- ways to choose k of a pool


def by_similarity(question: Floats, pool: Floats, k: int) -> list[int]:
    """Return the nearest."""
    found: list[int] = np.argsort(-(pool @ question), kind="stable")[:k].tolist()
    return found


def by_mmr(question: Floats, pool: Floats, k: int) -> list[int]:
    """Return langchain-core's MMR."""
    return maximal_marginal_relevance(question, list(pool), MMR_BALANCE, k)


def by_dartboard(sigma: float) -> Callable[[Floats, Floats, int], list[int]]:
    """Return our selection at a sigma."""

    def choose(question: Floats, pool: Floats, k: int) -> list[int]:
        distances = cosine_distances(question, pool)
        chosen: list[int] = select(*distances, k, sigma=sigma).indices.tolist()
        return chosen

    return choose


WAYS: dict[str, Callable[[Floats, Floats, int], list[int]]] = {
    "similarity": by_similarity,
    f"MMR {MMR_BALANCE}": by_mmr,
    **{f"Dartboard {sigma}": by_dartboard(sigma) for sigma in (0.05, 0.1, 0.2, 0.3, 0.5)},
}


def covered(
    corpus: Floats, questions: Floats, wanted: Sequence[Sequence[Sequence[int]]]
) -> dict[str, float]:
    """Return how often the top hold a passage of each part, by way.

    Args:
        corpus: Passages, unit rows.
        questions: Unit rows.
        wanted: For each question its parts, each as the places of the passages that state it.
    """
    hits = dict.fromkeys([*WAYS, WHOLE_POOL], 0)
    for question, parts in zip(questions, wanted, strict=True):
        pool = np.array(by_similarity(question, corpus, POOL))
        for name, choose in WAYS.items():
            top = set(pool[choose(question, corpus[pool], TOP)].tolist())
            hits[name] += all(top & set(part) for part in parts)
        hits[WHOLE_POOL] += all(set(pool.tolist()) & set(part) for part in parts)
    return {name: round(n / len(questions), 4) for name, n in hits.items()}


def generated_questions(n: int, versions: int, rng: np.random.Generator) -> dict[str, Any]:
    """Ask single-fact and two-part questions of one generated corpus."""
    corpus, facts = passages(rng, topics=40, facts=5, versions=versions)
    places = np.arange(len(corpus)).reshape(-1, versions).tolist()
    single = rng.integers(0, len(facts), size=(n, 1))
    pairs = np.array([rng.choice(len(facts), size=2, replace=False) for _ in range(n)])
    result = {}
    for name, chosen in (("single-fact", single), ("two-part", pairs)):
        questions = np.array(
            [asked(rng, facts[row], [1.0, rng.uniform(0.7, 1.0)][: len(row)]) for row in chosen]
        )
        result[name] = covered(corpus, questions, [[places[at] for at in row] for row in chosen])
    return result


def feedbackqa_questions(folder: Path, n: int, rng: np.random.Generator) -> dict[str, Any] | None:
    """Ask FeedbackQA's questions, and pairs of them; None where its data are not at hand."""
    folder = folder / "feedbackqa_us"
    if not (folder / "embeddings.npz").exists():
        return None
    with np.load(folder / "embeddings.npz") as held:
        corpus, questions = (unit(held[name].astype(float)) for name in ("corpus", "queries"))
    names = [_names(folder / f"{name}.jsonl") for name in ("corpus", "queries")]
    gold: dict[int, int] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, passage, *_ = line.split("\t")
        gold[names[1][query]] = names[0][passage]
    single = rng.choice(sorted(gold), size=min(n, len(gold)), replace=False)
    pairs = np.array([rng.choice(sorted(gold), size=2, replace=False) for _ in range(n)])
    pairs = pairs[[gold[int(one)] != gold[int(two)] for one, two in pairs]]
    return {
        "single-fact": covered(corpus, questions[single], [[[gold[int(at)]]] for at in single]),
        "two-part": covered(
            corpus,
            unit(questions[pairs].mean(axis=1)),
            [[[gold[int(at)]] for at in pair] for pair in pairs],
        ),
    }


def _names(path: Path) -> dict[str, int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {str(json.loads(line)["_id"]): at for at, line in enumerate(lines)}


# -- copies


class Known(Embeddings):
    """Vectors by text."""

    def __init__(self) -> None:
        self.vectors: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Look them up."""
        return [self.vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Look it up."""
        return self.vectors[text]


def copies(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return the mean number of distinct texts among the top k of an index of copies."""
    corpus, facts = passages(rng, topics=12, facts=5, versions=1)
    embeddings = Known()
    embeddings.vectors = {f"text {at}": row.tolist() for at, row in enumerate(corpus)}
    store = InMemoryVectorStore(embeddings)
    store.add_documents([Document(text) for text in list(embeddings.vectors) for _ in range(5)])
    for at in range(n):
        fact = facts[rng.integers(0, len(facts), 1)]
        embeddings.vectors[f"question {at}"] = asked(rng, fact, [1.0]).tolist()
    result = {}
    for k in (3, 5, 10):
        fixed = {"vector_store": store, "k": k, "adaptive": False, "deduplicate": False}
        retrievers: dict[str, Any] = {
            "similarity": store.as_retriever(search_kwargs={"k": k}),
            f"MMR {MMR_BALANCE}, pool 3 k": store.as_retriever(
                search_type="mmr", search_kwargs={"k": k, "fetch_k": 3 * k}
            ),
            "Dartboard, exact rule alone, pool 3 k": DartboardRetriever(**fixed),
            "DartboardRetriever": DartboardRetriever(vector_store=store, k=k),
        }
        result[str(k)] = {
            name: round(statistics.mean(_distinct(retriever, at) for at in range(n)), 3)
            for name, retriever in retrievers.items()
        }
    return result


def _distinct(retriever: Any, at: int) -> int:
    return len({document.page_content for document in retriever.invoke(f"question {at}")})


# -- output


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything that is installed and at hand."""
    # A generator for each part: the others' options change nothing.
    streams = map(np.random.default_rng, np.random.SeedSequence(options.seed).spawn(6))
    rows = speed(options.n, options.k, next(streams))
    n = options.questions
    wanted = [LOOP, PYVERSITY_MMR, PYVERSITY_DPP]
    some = next(iter(next(iter(rows.values())).values()))
    return {
        "absent": [name for name in wanted if name not in some],
        "speed": rows,
        "goals": goals(rows),
        "order": order(options.cases, next(streams)),
        "copies": copies(min(n, 100), next(streams)),
        "questions": {
            "clean": generated_questions(n, 1, next(streams)),
            "six versions": generated_questions(n, 6, next(streams)),
            "FeedbackQA": feedbackqa_questions(options.data, n, next(streams)),
        },
    }


def print_speed(rows: dict[str, Any]) -> None:
    """Print times and peaks."""
    names = [OURS, DISTANCES, LOOP, LEAN_LOOP, MMR, MMR_ARRAY, PYVERSITY_MMR, PYVERSITY_DPP]
    print("time of one selection in microseconds (and peak of memory in KiB)")
    for n, by_k in rows.items():
        print(f"  n = {n}")
        for name in names:
            cells = [row[name] for row in by_k.values() if name in row]
            told = "".join(f"{c['us']:>12,.0f} ({c['peak_kib']:,.0f})" for c in cells)
            if cells:
                print(f"    {name:28}{told}")
    print(f"    columns: k = {', '.join(next(iter(rows.values())))}")


def print_rest(result: dict[str, Any]) -> None:
    """Print everything else."""
    print("\npools in a wrong order, by sigma (ours, loop)")
    for kind, row in result["order"].items():
        told = "  ".join(f"{s}: {row[str(s)][OURS]}, {row[str(s)][LEAN_LOOP]}" for s in SIGMAS)
        print(f"  {kind} ({row['pools']}): {told}")
    print("\ndistinct texts among the top k of an index that holds each text five times")
    for k, row in result["copies"].items():
        print(f"  k = {k}: " + ", ".join(f"{name} {value:g}" for name, value in row.items()))
    print(f"\nquestions whose every part is in the top {TOP} of a pool of {POOL}, in percent")
    print(f"  {'':28}" + "".join(f"{name:>15}" for name in [*WAYS, WHOLE_POOL]))
    for corpus, kinds in result["questions"].items():
        for kind, shares in (kinds or {}).items():
            told = "".join(f"{100 * share:>15.1f}" for share in shares.values())
            print(f"  {corpus + ', ' + kind:28}{told}")
    print()
    for what, value in result["goals"].items():
        print(f"{what}: {value}")
    for name in result["absent"]:
        print(f"not installed, so not measured: {name}")


def main() -> None:
    """Print the tables, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--n", type=int, nargs="+", default=SIZES)
    parser.add_argument("--k", type=int, nargs="+", default=KS)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    result = run(options)
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    print_speed(result["speed"])
    print_rest(result)


if __name__ == "__main__":
    main()
