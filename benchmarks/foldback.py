"""Does fold-back help, and whom does it cost a slot? Measured on FeedbackQA.

2,150 crowd-written questions over 598 passages, one right passage each. Of a quarter of the
passages (`--share`) one question counts as answered from it, grounded, and liked by six people,
the fewest that the gate lets through; everything else goes through `FeedbackStore` and `FoldBack`
as in a product. Then every question is asked, and the number is how often (%) the right passage is
among what is shown. The groups:

- asked_again: the accepted questions themselves. others: other questions on the same passages.
  elsewhere: all the rest, of whose passages nothing was accepted.

The rows, all with cosine of MiniLM vectors and k = 4:

- base: the 4 nearest passages. fifth: the 5 nearest, as a slot costs a chunk of prompt, too.
- slot_60, slot_70, slot_80: the 4 nearest, and the slot with that `min_similarity`; `used` is in
  how many questions (%) something was in it. Who gets nothing at .6 is not asked at .7.
- naive: question and answer as documents of the same index; the 4 nearest of all. An answer there
  is the sentence of the passage that shares most words with the question; its vector is that of
  the question. `displaced` is how many of the 4 slots (%) such documents take.

Beside it the same naive folding with TF-IDF over words, where the vector of an answer is its own:
how often (%) an answer stands before its source (`outranks`), and how often the source was among
the first 4 before and is not after (`pushed_out`). `changed` counts the questions of which one of
the first k documents of a `FeedbackRetriever` is another one with `foldback=` than without, among
100 of the others and 100 elsewhere: it must be 0. `ms` is the time of one look-up,
with .6.

Not measured: other embedders and corpora, answers of a model, and what people make of the chunk.

    python benchmarks/foldback.py [--data FOLDER] [--share 0.25] [--seeds 3] [--seed 0] [--json]
"""

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from numpy.typing import NDArray

from langchain_feedback import FeedbackRetriever, FeedbackStore
from langchain_feedback.index.foldback import FoldBack
from langchain_feedback.local.tfidf import TfidfRetriever
from langchain_feedback.words import content_words

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "feedbackqa_us"
K, POOL, PEOPLE = 4, 20, 6
LEAST = (0.6, 0.7, 0.8)
GROUPS = ("asked_again", "others", "elsewhere")


@dataclass(frozen=True)
class Data:
    """The questions and passages, and how near they are to each other."""

    questions: list[str]
    passages: list[Document]
    gold: NDArray[np.intp]
    vectors: NDArray[np.float32]
    """Of the questions; unit length."""
    cosines: NDArray[np.float32]
    """(questions, passages)."""


class Known(Embeddings):
    """Gives the vectors of the questions that the data hold."""

    def __init__(self, data: Data) -> None:
        self._vectors = dict(zip(data.questions, data.vectors.tolist(), strict=True))

    def embed_query(self, text: str) -> list[float]:
        """Return a question's vector."""
        return self._vectors[text]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of questions."""
        return [self._vectors[text] for text in texts]


def load(folder: Path) -> Data:
    """Read the folder: BEIR layout, and embeddings in file order."""
    passages = [
        Document(f"{row['title']}\n{row['text']}", id=row["_id"], metadata={"source": row["_id"]})
        for row in _rows(folder / "corpus.jsonl")
    ]
    place = {str(passage.id): at for at, passage in enumerate(passages)}
    pairs = (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    right = {query: place[passage] for query, passage, _ in (one.split("\t") for one in pairs)}
    rows = _rows(folder / "queries.jsonl")
    first: dict[str, int] = {}
    for at, row in enumerate(rows):
        first.setdefault(row["text"], at)
    # The same question twice, possibly with two right passages, is asked once.
    kept = sorted(first.values())
    with np.load(folder / "embeddings.npz") as stored:
        corpus, queries = (_unit(stored[name]) for name in ("corpus", "queries"))
    return Data(
        [rows[at]["text"] for at in kept],
        passages,
        np.array([right[rows[at]["_id"]] for at in kept], dtype=np.intp),
        queries[kept],
        queries[kept] @ corpus.T,
    )


def accepted_of(data: Data, share: float, rng: np.random.Generator) -> dict[int, int]:
    """Choose the accepted questions: one for each chosen passage, by passage."""
    by_passage: dict[int, list[int]] = {}
    for question, passage in enumerate(data.gold.tolist()):
        by_passage.setdefault(passage, []).append(question)
    # Passages of one question have nobody else who could ask for them.
    several = sorted(passage for passage, asked in by_passage.items() if len(asked) > 1)
    chosen = rng.choice(several, max(1, round(share * len(by_passage))), replace=False)
    return {int(passage): int(rng.choice(by_passage[int(passage)])) for passage in chosen}


def groups_of(data: Data, accepted: dict[int, int], sample: int | None) -> dict[str, list[int]]:
    """Return the questions of each group; of large ones the first `sample`."""
    groups: dict[str, list[int]] = {name: [] for name in GROUPS}
    for question, passage in enumerate(data.gold.tolist()):
        if accepted.get(passage) == question:
            groups["asked_again"].append(question)
        else:
            groups["others" if passage in accepted else "elsewhere"].append(question)
    return {name: asked[:sample] for name, asked in groups.items()}


# -- fold-back


def fold_back(data: Data, accepted: dict[int, int]) -> tuple[FeedbackStore, FoldBack]:
    """Have the questions answered and liked, and run the job."""
    embeddings = Known(data)
    store = FeedbackStore("sqlite://", embeddings=embeddings, timeout_s=60)
    for passage, question in accepted.items():
        trace_id, source = f"trace-{question}", data.passages[passage]
        store.record_trace(trace_id, data.questions[question], [source])
        answer = answer_of(data, passage, question)
        store.update_trace(
            trace_id, answer=answer, status="answered", grounded=True, cited=[source]
        )
        for person in range(PEOPLE):
            store.rate(trace_id, 5, actor=f"person {person}")
    foldback = FoldBack(store, vector_store=InMemoryVectorStore(embeddings), auto_approve=True)
    done = foldback.apply(foldback.plan())
    if done.written != len(accepted):
        msg = f"{done.written} of {len(accepted)} questions were folded back"
        raise RuntimeError(msg)
    return store, foldback


def slots(
    data: Data, foldback: FoldBack, asked: Iterable[int]
) -> tuple[dict[int, list[int]], list[float]]:
    """Return what is in the slot for each question, and how many ms each look-up took."""
    place = {passage.id: at for at, passage in enumerate(data.passages)}
    found, took = {}, []
    for question in asked:
        pool = [data.passages[at] for at in _best(data.cosines[question], POOL)]
        begun = time.perf_counter()
        extra = foldback.lookup(
            data.questions[question], shown=pool[:K], pool=pool, vector=data.vectors[question]
        )
        took.append((time.perf_counter() - begun) * 1_000)
        found[question] = [place[document.id] for document in extra]
    return found, took


def changed(data: Data, store: FeedbackStore, foldback: FoldBack, asked: Sequence[int]) -> int:
    """Count the questions whose first k documents are others with fold-back than without."""
    number = {question: at for at, question in enumerate(data.questions)}

    def base(question: str) -> list[Document]:
        return [data.passages[at] for at in _best(data.cosines[number[question]], POOL)]

    both = [
        FeedbackRetriever(base_retriever=RunnableLambda(base), store=store, k=K, foldback=one)
        for one in (None, foldback)
    ]
    count = 0
    for question in asked:
        without, with_it = (one.invoke(data.questions[question]) for one in both)
        count += [one.id for one in without] != [one.id for one in with_it[:K]]
    return count


# -- naive folding


def answer_of(data: Data, passage: int, question: int) -> str:
    """Return the sentence of a passage that shares most words with a question."""
    text = data.passages[passage].page_content.partition("\n")[2]
    sentences = [one for one in re.split(r"(?<=[.!?])\s+", text) if one.strip()] or [text]
    wanted = set(content_words(data.questions[question]))
    return max(sentences, key=lambda one: len(wanted & set(content_words(one))))


def naive(data: Data, accepted: dict[int, int], question: int) -> tuple[list[int], int]:
    """Return the passages among the first k, and how many slots answers take."""
    answers = list(accepted.values())
    near = np.concatenate([data.cosines[question], data.vectors[answers] @ data.vectors[question]])
    best = _best(near, K)
    passages = [at for at in best if at < len(data.passages)]
    return passages, K - len(passages)


def by_words(documents: Sequence[Document], questions: Sequence[str]) -> NDArray[np.float64]:
    """Return how near each question is to each document by TF-IDF, as the retriever has it."""
    index = TfidfRetriever.from_documents(documents, k=K)
    rows = index.vectorizer.transform(questions) @ index.weights.T
    return np.asarray(rows.toarray())


def naive_words(
    data: Data,
    accepted: dict[int, int],
    groups: dict[str, list[int]],
    before: NDArray[np.float64],
) -> dict[str, dict[str, float]]:
    """Fold answers into a TF-IDF index, and return what becomes of the sources, in %."""
    answers = [
        Document(
            f"{data.questions[question]}\n{answer_of(data, passage, question)}",
            id=f"answer {passage}",
            metadata={"source": "answers"},
        )
        for passage, question in accepted.items()
    ]
    first = len(data.passages)
    answer_to = {passage: first + at for at, passage in enumerate(accepted)}
    after = by_words([*data.passages, *answers], data.questions)
    told = {}
    for name, asked in groups.items():
        outranks, pushed, displaced = [], [], []
        for question in asked:
            source = int(data.gold[question])
            was, now = _found(before[question]), _found(after[question])
            displaced.append(sum(at >= first for at in now) / K)
            pushed.append(source in was and source not in now)
            if source in accepted:
                near = after[question]
                # Of two that are equally near the passage comes first.
                outranks.append(near[answer_to[source]] > near[source])
        told[name] = {"displaced": _percent(displaced), "pushed_out": _percent(pushed)}
        if outranks:
            told[name]["outranks"] = _percent(outranks)
    return told


# -- the runs


def run(
    data: Data, share: float, seed: int, sample: int | None, before: NDArray[np.float64]
) -> dict[str, Any]:
    """Measure one choice of accepted questions."""
    accepted = accepted_of(data, share, np.random.default_rng(seed))
    groups = groups_of(data, accepted, sample)
    asked = [question for group in groups.values() for question in group]
    store, foldback = fold_back(data, accepted)
    with store:
        made: dict[str, tuple[dict[int, list[int]], list[float]]] = {}
        left = asked
        for least in LEAST:
            one = FoldBack(store, vector_store=foldback.vector_store, min_similarity=least)
            found, took = slots(data, one, left)
            nothing: dict[int, list[int]] = {question: [] for question in asked}
            made[f"slot_{round(least * 100)}"] = nothing | found, took
            # Who gets nothing here gets nothing where questions must be more alike.
            left = [question for question in left if found[question]]
        looked_at = [*groups["others"][:100], *groups["elsewhere"][:100]]
        others = changed(data, store, foldback, looked_at)
    folded = {question: naive(data, accepted, question) for question in asked}
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name, group in groups.items():
        hits: dict[str, Callable[[int], bool]] = {
            "base": lambda one: data.gold[one] in _best(data.cosines[one], K),
            "fifth": lambda one: data.gold[one] in _best(data.cosines[one], K + 1),
            "naive": lambda one: data.gold[one] in folded[one][0],
        }
        told = {row: {"hit": _percent(map(hit, group))} for row, hit in hits.items()}
        for row, (found, _) in made.items():
            hit = [hits["base"](one) or data.gold[one] in found[one] for one in group]
            used = [bool(found[one]) for one in group]
            told[row] = {"hit": _percent(hit), "used": _percent(used)}
        told["naive"]["displaced"] = _percent(folded[one][1] / K for one in group)
        rows[name] = told
    return {
        "rows": rows,
        "tfidf": naive_words(data, accepted, groups, before),
        "accepted": len(accepted),
        "questions": {name: len(group) for name, group in groups.items()},
        "changed": others,
        "ms": statistics.median(made["slot_60"][1]),
    }


def averaged(runs: Sequence[Any]) -> Any:
    """Average numbers in the same places."""
    if isinstance(runs[0], dict):
        return {name: averaged([one[name] for one in runs]) for name in runs[0]}
    return round(statistics.fmean(runs), 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print what came out."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--share", type=float, default=0.25, help="of passages with an answer")
    parser.add_argument("--seeds", type=int, default=3, help="choices of accepted questions")
    parser.add_argument("--seed", type=int, default=0, help="the first of these choices")
    parser.add_argument("--sample", type=int, help="questions of each group (all)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    data = load(options.data)
    seeds = range(options.seed, options.seed + options.seeds)
    before = by_words(data.passages, data.questions)
    runs = [run(data, options.share, seed, options.sample, before) for seed in seeds]
    result = averaged(runs)
    result["changed"] = sum(one["changed"] for one in runs)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        _print(result)
    return 0


def _print(result: dict[str, Any]) -> None:
    print(f"{result['accepted']:.0f} accepted questions; hit rate in the first {K}, in %")
    print(f"{'':12}{''.join(f'{name:>14}' for name in GROUPS)}{'used elsewhere':>16}")
    rows = result["rows"]
    for row in rows["others"]:
        hits = "".join(f"{rows[name][row]['hit']:14.1f}" for name in GROUPS)
        used = rows["elsewhere"][row].get("used")
        print(f"{row:12}{hits}{'' if used is None else f'{used:16.1f}'}")
    shares = "".join(f"{rows[name]['naive']['displaced']:14.1f}" for name in GROUPS)
    print(f"{'displaced':12}{shares}  by naive folding, % of the slots")
    for what in ("displaced", "pushed_out", "outranks"):
        values = (result["tfidf"][name].get(what) for name in GROUPS)
        told = "".join(f"{'' if one is None else format(one, '.1f'):>14}" for one in values)
        print(f"{what:12}{told}  by naive folding, TF-IDF")
    print(f"first {K} changed by fold-back: {result['changed']}; {result['ms']:.1f} ms a look-up")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _unit(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    full = rows.astype(np.float32)
    return full / np.linalg.norm(full, axis=1, keepdims=True)


def _best(near: NDArray[np.float32], count: int) -> list[int]:
    return [int(at) for at in np.argsort(-near, kind="stable")[:count]]


def _found(near: NDArray[np.float64]) -> list[int]:
    return [at for at in np.argsort(-near, kind="stable")[:K].tolist() if near[at] > 0]


def _percent(values: Iterable[Any]) -> float:
    listed = [float(value) for value in values]
    return round(100 * statistics.fmean(listed), 2) if listed else 0.0


if __name__ == "__main__":
    sys.exit(main())
