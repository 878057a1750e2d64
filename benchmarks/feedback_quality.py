"""Does feedback help, and does it harm anybody else's question? Measured on real human ratings.

FeedbackQA: 2,150 crowd-written questions over 598 passages, one right passage each, and 579
pairs of a question and a passage that two or three people rated 1, 2, 4 or 5. Every rater is
a person of his own, and every value a rating of that one source, through `FeedbackStore.rate`.
Then each question is asked once through a `FeedbackRetriever` over a cosine base of N passages:
nDCG@10 of the right passage, and the gain over the bare base in points (nDCG x 100) with a
paired bootstrap 95 % interval over questions. The groups:

- A: the questions with ratings. B: other questions whose right passage was rated.
  C: all the rest. Nobody rated anything near them, so there a gain of 0 is right.

The raters judged passages that this base misses: the pool of 20 lacks 9 % of the right ones
that they saw, a pool of 4 lacks 22 %. That is why injection can help on A, and why most of the
gain with a pool of 4 is injection: re-ranking alone cannot reach a passage that is not there.
On A the same questions are rated and asked again, as in any product whose users ask alike.

Two simulations stand beside it:

- Users who ask, see 4 sources, and say something: a rating of the whole answer, clicks on
  sources (rank r is looked at with probability 1/r), or a rating of an answer whose quotes
  are known (it quotes the right passage in 8 of 10 cases where it was shown, else any). `flips`:
  each rating and each attraction to a source is right 9 times of 10. `human`: it is drawn from
  the real ratings, those of right passages for a right one, those of other passages for a wrong
  one, so that about 3 of 10 right ones are turned down and a third of the wrong ones are liked.
  That is harsh: some of those other passages do answer the question. How often two raters
  of one passage agree is printed beside it. What few people say is mostly noise: with
  3 people a question (`--people 3 --asked 200`) clicks alone or citations alone lose under human
  noise (worst seed -3.3 and -4.9), both together gain (+1.1); with 10 each gains alone.
- One person who votes for a wrong passage over and over, on many retrievals.

Not measured: other embeddings and corpora, real clicks, and what a better answer is worth.

    python benchmarks/feedback_quality.py [--data FOLDER] [--pool 20] [--json] [--seed 0]
"""

import argparse
import functools
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from numpy.typing import NDArray

from langchain_feedback import (
    AverageRating,
    FeedbackRetriever,
    FeedbackStore,
    KernelBelief,
    RankingPolicy,
    WilsonFusion,
    new_trace_id,
    trace_id_of,
)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "feedbackqa_us"
FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv", "ratings.jsonl", "embeddings.npz")
RULES = (
    "none",
    "average_same",
    "average_all",
    "wilson",
    "reranking_only",
    "default",
    "calibrated",
)
SIGNALS = {
    "answer_ratings": ("rating",),
    "clicks": ("click",),
    "citations": ("rating", "citation"),
    "clicks_and_citations": ("click", "rating", "citation"),
}
NOISES = ("flips", "human")
GOOD = 4
TOP = 10
SHOWN = 4
RESAMPLES = 5_000


# -- the data


@dataclass(frozen=True)
class Data:
    """The questions, the passages, and what people said."""

    passages: dict[str, Document]
    questions: list[str]
    gold: list[str]
    """The id of the right passage, by question."""
    ratings: list[tuple[int, str, list[int], bool]]
    """Question, passage id, a value for each rater, whether it is the right passage."""
    corpus: NDArray[np.float32]
    vectors: dict[str, NDArray[np.float32]]
    """By question text; unit length."""

    @functools.cached_property
    def groups(self) -> dict[str, list[int]]:
        """The questions of each group."""
        asked = {question for question, *_ in self.ratings}
        rated = {passage for _, passage, *_ in self.ratings}
        groups: dict[str, list[int]] = {"A": [], "B": [], "C": []}
        for question, gold in enumerate(self.gold):
            groups["A" if question in asked else "B" if gold in rated else "C"].append(question)
        return groups

    @functools.cached_property
    def values(self) -> dict[str, dict[bool, list[int]]]:
        """The ratings to draw from, by noise and by whether the thing rated is right."""
        human = {
            right: [
                value for *_, values, gold in self.ratings if gold is right for value in values
            ]
            for right in (True, False)
        }
        return {"flips": {True: [5] * 9 + [1], False: [1] * 9 + [5]}, "human": human}


@functools.cache
def load(folder: Path) -> Data:
    """Read the folder: BEIR layout, ratings, and embeddings in file order."""
    passages = [
        Document(f"{row['title']}\n{row['text']}", id=row["_id"], metadata={"source": row["_id"]})
        for row in _rows(folder / "corpus.jsonl")
    ]
    queries = _rows(folder / "queries.jsonl")
    number = {row["_id"]: i for i, row in enumerate(queries)}
    pairs = (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    right = {query: passage for query, passage, _ in (pair.split("\t") for pair in pairs)}
    with np.load(folder / "embeddings.npz") as stored:
        corpus, vectors = (_unit(stored[name]) for name in ("corpus", "queries"))
    return Data(
        passages={str(document.id): document for document in passages},
        questions=[row["text"] for row in queries],
        gold=[right[row["_id"]] for row in queries],
        ratings=[
            (number[row["query_id"]], row["doc_id"], row["values"], bool(row["is_gold"]))
            for row in _rows(folder / "ratings.jsonl")
        ],
        corpus=corpus,
        vectors={row["text"]: vector for row, vector in zip(queries, vectors, strict=True)},
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    single = vectors.astype(np.float32)
    return single / np.linalg.norm(single, axis=1, keepdims=True)


# -- the parts under test


class Pool(BaseRetriever):
    """The passages nearest to the question by cosine: always as many as the pool holds."""

    data: Any
    size: int

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002
    ) -> list[Document]:
        cosine = self.data.corpus @ self.data.vectors[query]
        documents = list(self.data.passages.values())
        return [documents[i] for i in np.argsort(-cosine, kind="stable")[: self.size]]


class Given(Embeddings):
    """The embeddings that come with the data; counts how often it is asked."""

    def __init__(self, data: Data) -> None:
        self.data, self.calls = data, 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Look the vectors up."""
        self.calls += 1
        return [self.data.vectors[text].tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Look the vector up."""
        return self.embed_documents([text])[0]


class Counter(BaseCallbackHandler):
    """Counts the calls of models."""

    def __init__(self) -> None:
        self.calls = 0

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Count a call of a chat model."""
        self.calls += 1

    def on_llm_start(self, *_: Any, **__: Any) -> None:
        """Count a call of a text model."""
        self.calls += 1


@contextmanager
def opened(data: Data, path: Path) -> Iterator[tuple[FeedbackStore, Given]]:
    """Open the store in a file, with embeddings that are counted."""
    embeddings = Given(data)
    # A slow moment of the machine must not pass for a question without feedback.
    store = FeedbackStore(f"sqlite:///{path}", embeddings=embeddings, timeout_s=30)
    try:
        yield store, embeddings
    finally:
        store.close()


def learner(data: Data, store: FeedbackStore, pool: int, k: int, **options: Any) -> Any:
    """Make the retriever under test."""
    return FeedbackRetriever(
        base_retriever=Pool(data=data, size=pool),
        store=store,
        k=k,
        fetch_k=max(pool, k),
        resolve=lambda ids: [data.passages[i] for i in ids if i in data.passages],
        **options,
    )


def ndcg(found: Sequence[Document], gold: str) -> float:
    """Return nDCG@10 where one passage is right."""
    ranks = [i for i, document in enumerate(found[:TOP]) if document.id == gold]
    return 1 / float(np.log2(2 + ranks[0])) if ranks else 0.0


def asked(
    data: Data, retriever: Any, questions: Sequence[int], counter: Counter
) -> NDArray[np.float64]:
    """Ask the questions; return the nDCG@10 of each."""
    config = {"callbacks": [counter], "metadata": {"user_id": "reader"}}
    return np.array(
        [ndcg(retriever.invoke(data.questions[i], config), data.gold[i]) for i in questions]
    )


# -- real ratings


def record_ratings(data: Data, store: FeedbackStore) -> None:
    """Give each rating to the passage it is about, each by a person of his own."""
    judged: dict[int, list[tuple[str, list[int]]]] = {}
    for question, passage, values, _ in data.ratings:
        judged.setdefault(question, []).append((passage, values))
    for question, rows in judged.items():
        # The trace is what the raters saw: the judged passages, not what this base finds.
        trace_id, shown = new_trace_id(), [data.passages[passage] for passage, _ in rows]
        store.record_trace(trace_id, data.questions[question], shown)
        for passage, values in rows:
            for number, value in enumerate(values):
                actor = f"rater {number} of {question} and {passage}"
                store.rate(trace_id, value, target=data.passages[passage], actor=actor)


def measure(data: Data, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Ask every question under every rule."""
    rated, counter = folder / "rated.db", Counter()
    with opened(data, rated) as (store, _):
        record_ratings(data, store)
    groups = {name: members[: options.sample] for name, members in data.groups.items()}
    questions = [i for members in groups.values() for i in members]
    base = asked(data, Pool(data=data, size=options.pool), questions, counter)
    rules: dict[str, Any] = {"none": _row(groups, base, base, options.seed)}
    embedded = 0
    for name in options.rules:
        # A copy for each rule: none sees the retrievals of another.
        path = Path(shutil.copy(rated, folder / f"{name}.db"))
        with opened(data, path) as (store, embeddings):
            policy, inject = _rule(name, store)
            retriever = learner(data, store, options.pool, TOP, policy=policy, inject=inject)
            embeddings.calls = 0
            scores = asked(data, retriever, questions, counter)
            embedded = max(embedded, embeddings.calls)
        rules[name] = _row(groups, scores, base, options.seed)
    return {
        "pool": options.pool,
        "questions": {name: len(members) for name, members in groups.items()},
        "missed_by_pool": _missed(data, options.pool),
        "rules": rules,
        "model_calls": counter.calls,
        "embedding_calls_per_retrieval": embedded / len(questions),
    }


def _rule(name: str, store: FeedbackStore) -> tuple[RankingPolicy, int]:
    if name == "calibrated":
        # 1,731 ratings make 295 pairs of questions with a say on one passage: few, but some.
        return KernelBelief(kernel=store.fit_kernel()), 3
    return {
        "average_same": (AverageRating(scope="question"), 0),
        "average_all": (AverageRating(scope="all"), 0),
        "wilson": (WilsonFusion(), 0),
        "reranking_only": (KernelBelief(), 0),
        "default": (KernelBelief(), 3),
    }[name]


def _row(
    groups: dict[str, list[int]], scores: NDArray[Any], base: NDArray[Any], seed: int
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    start = 0
    for name, members in groups.items():
        part = slice(start, start := start + len(members))
        row[name] = round(float(scores[part].mean()), 4)
        row[f"{name}_gain"] = interval(scores[part] - base[part], seed)
    return row


def interval(differences: NDArray[Any], seed: int) -> list[float]:
    """Return the mean in points, and its paired bootstrap 95 % interval."""
    random = np.random.default_rng(seed)
    n = len(differences)
    means = [differences[random.integers(n, size=n)].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, (2.5, 97.5))
    return [round(100 * float(value), 2) for value in (differences.mean(), low, high)]


def _missed(data: Data, pool: int) -> dict[str, float]:
    """Return which share of the passages that raters saw the base does not find."""
    base, shares = Pool(data=data, size=pool), {}
    found = {
        i: {document.id for document in base.invoke(data.questions[i])} for i in data.groups["A"]
    }
    for name, right_only in (("judged", False), ("right", True)):
        missed = [
            passage not in found[question]
            for question, passage, _, right in data.ratings
            if right or not right_only
        ]
        shares[name] = round(statistics.mean(missed), 3)
    return shares


# -- simulated users


@dataclass(frozen=True)
class Job:
    """One simulated population."""

    data: Path
    signals: str
    noise: str
    seed: int
    pool: int
    questions: int
    people: int


def simulate(job: Job) -> tuple[float, float, int]:
    """Let people ask and say something; return the gains on their questions and on others.

    Both in points, over the bare base; then the number of model calls.
    """
    data, random, counter = load(job.data), np.random.default_rng(job.seed), Counter()
    order = random.permutation(len(data.questions))
    theirs, others = order[: job.questions].tolist(), order[-job.questions :].tolist()
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(data, Path(folder) / "f.db") as (store, _),
    ):
        retriever = learner(data, store, job.pool, SHOWN)
        for person in range(job.people):
            for question in random.permutation(theirs).tolist():
                config = {
                    "metadata": {"user_id": f"{person} asks {question}"},
                    "callbacks": [counter],
                }
                shown = retriever.invoke(data.questions[question], config)
                _say(job, store, random, data.gold[question], shown)
        learned, bare = learner(data, store, job.pool, TOP), Pool(data=data, size=job.pool)
        gains = [
            asked(data, learned, questions, counter) - asked(data, bare, questions, counter)
            for questions in (theirs, others)
        ]
    own, foreign = (100 * float(gain.mean()) for gain in gains)
    return own, foreign, counter.calls


def _say(
    job: Job, store: FeedbackStore, random: np.random.Generator, gold: str, shown: list[Document]
) -> None:
    values, said = load(job.data).values[job.noise], SIGNALS[job.signals]
    trace_id = trace_id_of(shown)
    right = [document for document in shown if document.id == gold]
    if "click" in said:
        clicked = [
            random.random() < 1 / rank and random.choice(values[document.id == gold]) >= GOOD
            for rank, document in enumerate(shown, start=1)
        ]
        last = max((i for i, click in enumerate(clicked) if click), default=-1)
        for document, click in zip(shown[: last + 1], clicked, strict=False):
            store.signal(trace_id, "source_click" if click else "source_skipped", target=document)
    if "citation" in said:
        quotes_right = right and random.random() < 0.8  # noqa: PLR2004  as the docstring says
        right = right if quotes_right else [shown[random.integers(len(shown))]]
        store.update_trace(trace_id, cited=right)
        right = [document for document in right if document.id == gold]
    if "rating" in said:
        store.rate(trace_id, int(random.choice(values[bool(right)])))


def simulations(data: Data, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Run every population, on all cores."""
    jobs = [
        Job(options.data, signals, noise, seed, options.pool, options.asked, options.people)
        for signals in SIGNALS
        for noise in NOISES
        for seed in range(options.seed, options.seed + options.seeds)
    ]
    # Spawned, since a fork would share this process's threads and connections.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as workers:
        results = dict(zip(jobs, workers.map(simulate, jobs), strict=True))
    rows: dict[str, Any] = {
        signals: {
            noise: {
                whose: _spread(
                    [
                        gains[place]
                        for job, gains in results.items()
                        if (job.signals, job.noise) == (signals, noise)
                    ]
                )
                for place, whose in enumerate(("asked", "others"))
            }
            for noise in NOISES
        }
        for signals in SIGNALS
    }
    facts = {
        "seeds": options.seeds,
        "questions": options.asked,
        "people_a_question": options.people,
        "noise": {noise: _noise(data, noise) for noise in NOISES},
        "rater_agreement": _agreement(data),
        "gains": rows,
    }
    return facts, sum(calls for *_, calls in results.values())


def _spread(gains: list[float]) -> dict[str, Any]:
    return {
        "mean": round(statistics.mean(gains), 2),
        "worst": round(min(gains), 2),
        "by_seed": [round(gain, 2) for gain in gains],
    }


def _noise(data: Data, noise: str) -> dict[str, float]:
    shares = {
        right: statistics.mean(value >= GOOD for value in values)
        for right, values in data.values[noise].items()
    }
    return {"good_if_right": round(shares[True], 3), "good_if_wrong": round(shares[False], 3)}


def _agreement(data: Data) -> float:
    """Return how often two raters of one passage both call it good or both bad."""
    same = [
        (one >= GOOD) == (other >= GOOD)
        for *_, values, _ in data.ratings
        for i, one in enumerate(values)
        for other in values[:i]
    ]
    return round(statistics.mean(same), 3)


# -- one person against the rest


def attack(data: Data, folder: Path, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Let one person vote for a wrong passage, once and often, where the right one is first."""
    base, counter = Pool(data=data, size=options.pool), Counter()
    order = np.random.default_rng(options.seed).permutation(len(data.questions)).tolist()
    questions = [i for i in order if ndcg(base.invoke(data.questions[i]), data.gold[i]) == 1]
    questions = questions[: options.attacked]
    found: dict[int, list[list[str | None]]] = {}
    rows: dict[str, float] = {"before": 1.0}
    for votes in (1, options.votes):
        with opened(data, folder / f"attack{votes}.db") as (store, _):
            for question in questions:
                _vote(data, store, base, question, votes)
            retriever = learner(data, store, options.pool, TOP)
            config = {"callbacks": [counter]}
            lists = [retriever.invoke(data.questions[i], config) for i in questions]
        found[votes] = [[document.id for document in documents] for documents in lists]
        scores = [ndcg(list_, data.gold[i]) for list_, i in zip(lists, questions, strict=True)]
        rows["one_vote" if votes == 1 else "many_votes"] = round(statistics.mean(scores), 4)
    return {
        "questions": len(questions),
        "votes": options.votes,
        "ndcg": rows,
        "same_lists": found[1] == found[options.votes],
    }, counter.calls


def _vote(data: Data, store: FeedbackStore, base: Pool, question: int, votes: int) -> None:
    text = data.questions[question]
    shown = base.invoke(text)[:SHOWN]
    wrong = shown[1]  # the right one is first
    for number in range(votes):
        if number % 10 == 0:  # he comes back, and votes ten times on each retrieval
            trace_id = new_trace_id()
            store.record_trace(trace_id, text, shown)
        store.rate(trace_id, 5, target=wrong, actor="one person")


# -- printing


def _table(result: dict[str, Any]) -> None:
    missed = result["missed_by_pool"]
    print(f"nDCG@10 with a pool of {result['pool']}, and the gain in points [95 % interval]")
    heads = (f"{name} ({n} questions)" for name, n in result["questions"].items())
    print(f"{'':16}" + "".join(f"{head:>28}" for head in heads))
    for name, row in result["rules"].items():
        cells = [f"{row[g]:.3f} {_gain(row[f'{g}_gain'])}" for g in result["questions"]]
        print(f"{name:16}" + "".join(f"{cell:>28}" for cell in cells))
    print(
        f"the pool lacks {missed['judged']:.0%} of the passages that raters saw, and "
        f"{missed['right']:.0%} of the right ones: injection reaches them, re-ranking cannot\n"
        f"chat-model calls: {result['model_calls']}; embedding calls a retrieval: "
        f"{result['embedding_calls_per_retrieval']:.2f}"
    )
    if users := result["simulated_users"]:
        _users(users)
    if one := result["attack"]:
        scores = one["ndcg"]
        print(
            f"\none person votes for a wrong passage ({one['questions']} questions): nDCG@10 "
            f"{scores['before']:.3f} before, {scores['one_vote']:.3f} after one vote, "
            f"{scores['many_votes']:.3f} after {one['votes']:,}"
        )


def _gain(gain: Sequence[float]) -> str:
    mean, low, high = gain
    return f"{mean:+.1f} [{low:.1f}, {high:.1f}]"


def _users(users: dict[str, Any]) -> None:
    print(
        f"\nsimulated users: {users['questions']} questions, {users['people_a_question']} people "
        f"each, {users['seeds']} seeds: gain in points, mean (worst seed)"
    )
    print(
        f"{'':24}"
        + "".join(f"{noise + ', ' + w:>18}" for noise in NOISES for w in ("asked", "others"))
    )
    for signals, rows in users["gains"].items():
        cells = [
            f"{row['mean']:+.1f} ({row['worst']:+.1f})"
            for r in rows.values()
            for row in r.values()
        ]
        print(f"{signals.replace('_', ' '):24}" + "".join(f"{cell:>18}" for cell in cells))
    human = users["noise"]["human"]
    print(
        f"human: {human['good_if_right']:.0%} of right and {human['good_if_wrong']:.0%} of wrong "
        f"passages are called good; two raters agree on {users['rater_agreement']:.0%}"
    )


def main() -> None:
    """Print the table, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--pool", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", nargs="*", choices=RULES[1:], default=RULES[1:])
    parser.add_argument("--sample", type=int, help="questions of each group (all)")
    parser.add_argument("--seeds", type=int, default=5, help="simulated populations; 0: none")
    parser.add_argument("--asked", type=int, default=100, help="questions that they ask")
    parser.add_argument("--people", type=int, default=10, help="how many ask each of them")
    parser.add_argument("--attacked", type=int, default=5, help="questions attacked; 0: none")
    parser.add_argument("--votes", type=int, default=1000, help="votes of the attacker on each")
    options = parser.parse_args()
    if min(options.pool, options.sample or 1) < 1:
        parser.error("--pool and --sample must be at least 1")
    if missing := [name for name in FILES if not (options.data / name).exists()]:
        sys.exit(f"{options.data} lacks {' and '.join(missing)}; pass the folder with --data")
    data = load(options.data)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(data, Path(folder), options)
        result |= {"simulated_users": None, "attack": None}
        if options.seeds:
            result["simulated_users"], calls = simulations(data, options)
            result["model_calls"] += calls
        if options.attacked:
            result["attack"], calls = attack(data, Path(folder), options)
            result["model_calls"] += calls
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    _table(result)


if __name__ == "__main__":
    main()
