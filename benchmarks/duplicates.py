"""Duplicates among many chunks: time, memory, and what each way calls the same.

Chunks of about 90 words are drawn from the words of the installed packages' descriptions, as
often as they stand there. Then, for each kind, a hundredth of them is stored a second time:
exactly, in other case and spacing, with one word changed, with one word in twenty changed; and
with "within 14 days" where the first says "within 41 days", or "never" where it says "always":
those two are traps, and no duplicates. A changed word may itself be one that turns a statement
("not", "before", "first"): the last line says how often the guard sees such a pair. Each way
runs in a process of its own.

- ours: `exact_duplicates` and `near_duplicates`.
- SHA-256: of the folded text alone.
- datasketch LSH, rensa LSH, where installed: MinHash of 128 values over the same 3-grams,
  threshold .8; what shares a bucket counts.
- SimHash: 64 bits over the same 3-grams, distance 3 at most, by its four quarters.

Then FeedbackQA, where its vectors are at hand: of its pairs with a cosine of .92 or more, how
many the guard tells apart, and how many share their wording.

    python benchmarks/duplicates.py [--json] [--n 100000] [--seed 7] [--data FOLDER]
        [--ways ours SHA-256 ...]
"""

import argparse
import json
import multiprocessing
import random
import re
import resource
import sys
import time
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import distributions
from importlib.util import find_spec
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from langchain_feedback.index.duplicates import (
    Chunk,
    exact_duplicates,
    folded_hash,
    near_duplicates,
)
from langchain_feedback.index.sketches import difference, jaccard, shingles

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
COPIES = ["exact", "case and spaces", "one word", "one word in twenty"]
TRAPS = ["14 or 41 days", "always or never"]
COSINE = 0.92
SENTENCE = "It is always sent within 41 days."

Pairs = set[tuple[int, int]]
Way = Callable[[list[Chunk]], Pairs]


# -- chunks


def words_of_packages() -> Counter[str]:
    """Count the words of what the installed packages say about themselves."""
    words: Counter[str] = Counter()
    for package in sorted(distributions(), key=lambda found: found.metadata["Name"] or ""):
        text = package.metadata.get_payload() or package.metadata.get("Description", "")
        words.update(re.findall(r"[A-Za-z]{2,15}", str(text)[:20_000]))
    return words


def changed(text: str, kind: str, draw: Callable[[], str], rng: random.Random) -> str:
    """Return a copy of a kind; its words stand between spaces."""
    words = text.split(" ")
    if kind == "case and spaces":
        return "  ".join(words).upper() if rng.random() < 0.5 else "\n".join(words)  # noqa: PLR2004
    if kind.startswith("one word"):
        times = 1 if kind == "one word" else len(words) // 20
        # The sentence at the end stays.
        for at in rng.sample(range(len(words) - 7), times):
            words[at] = draw()
        return " ".join(words)
    swaps = {TRAPS[0]: (" 41 ", " 14 "), TRAPS[1]: ("always", "never")}
    return text.replace(*swaps[kind]) if kind in swaps else text


def corpus(n: int, seed: int) -> tuple[list[Chunk], dict[str, Pairs]]:
    """Return n chunks in a random order, and the pairs of each kind by position."""
    rng = random.Random(seed)  # noqa: S311  no secret
    words, counts = zip(*words_of_packages().most_common(30_000), strict=True)
    ends = list(accumulate(counts))

    def draw() -> str:
        return str(words[bisect(ends, rng.random() * ends[-1])])

    kinds = [kind for kind in (*COPIES, *TRAPS) for _ in range(max(1, n // 100))]
    texts = [
        " ".join(draw() for _ in range(rng.randint(70, 100))) + " " + SENTENCE
        for _ in range(n - len(kinds))
    ]
    rows = [(text, "") for text in texts]
    originals = rng.sample(range(len(texts)), len(kinds))
    rows += [
        (changed(texts[of], kind, draw, rng), kind)
        for of, kind in zip(originals, kinds, strict=True)
    ]
    order = rng.sample(range(n), n)
    place = {at: new for new, at in enumerate(order)}
    pairs: dict[str, Pairs] = {kind: set() for kind in (*COPIES, *TRAPS)}
    for at, (of, kind) in enumerate(zip(originals, kinds, strict=True), len(texts)):
        pairs[kind].add(ordered(place[of], place[at]))
    return [Chunk(str(new), rows[at][0]) for new, at in enumerate(order)], pairs


def ordered(one: int, other: int) -> tuple[int, int]:
    """Return a pair, smaller first."""
    return (one, other) if one < other else (other, one)


# -- ways


def ours(chunks: list[Chunk]) -> Pairs:
    """Collapse exact ones, suggest near ones."""
    found = exact_duplicates(chunks) + near_duplicates(chunks)
    return {ordered(int(one.id), int(one.of)) for one in found}


def sha256(chunks: list[Chunk]) -> Pairs:
    """Compare digests of folded texts."""
    return within((at, [folded_hash(chunk.text)]) for at, chunk in enumerate(chunks))


def datasketch_lsh(chunks: list[Chunk]) -> Pairs:
    """Ask datasketch's own index."""
    from datasketch import MinHash, MinHashLSH  # noqa: PLC0415

    index, empty = MinHashLSH(threshold=0.8, num_perm=128), MinHash(128, hashfunc=int)
    pairs: Pairs = set()
    for at, chunk in enumerate(chunks):
        made = empty.copy()
        made.update_batch((shingles(chunk.text) >> np.uint64(32)).tolist())
        pairs |= {ordered(at, other) for other in index.query(made)}
        index.insert(at, made, check_duplication=False)
    return pairs


def rensa_lsh(chunks: list[Chunk]) -> Pairs:
    """Ask rensa's index, which is written in Rust."""
    from rensa import RMinHash, RMinHashLSH  # noqa: PLC0415

    index = RMinHashLSH(threshold=0.8, num_perm=128, num_bands=16)
    pairs: Pairs = set()
    for at, chunk in enumerate(chunks):
        made = RMinHash(num_perm=128, seed=1)
        made.update([format(gram, "x") for gram in shingles(chunk.text).tolist()])
        pairs |= {ordered(at, other) for other in index.query(made)}
        index.insert(at, made)
    return pairs


def simhash(chunks: list[Chunk]) -> Pairs:
    """Compare 64 bits: three that differ leave one quarter alone."""
    bits = np.arange(64, dtype=np.uint64)
    values = []
    for chunk in chunks:
        grams = shingles(chunk.text)
        ones = ((grams[:, None] >> bits) & np.uint64(1)).sum(axis=0)
        values.append(int(sum(1 << at for at in np.flatnonzero(2 * ones > len(grams)).tolist())))
    quarters = ([(at, value >> 16 * at & 0xFFFF) for at in range(4)] for value in values)
    candidates = within(enumerate(quarters))
    return {(a, b) for a, b in candidates if (values[a] ^ values[b]).bit_count() <= 3}  # noqa: PLR2004


def within(keyed: Iterable[tuple[int, list[Any]]]) -> Pairs:
    """Return the pairs that share a key: later ones with the first of each."""
    places: dict[Any, list[int]] = defaultdict(list)
    for at, keys in keyed:
        for key in keys:
            places[key].append(at)
    crowd = 300  # more is chance: a quarter of a SimHash has 65,536 values
    return {pair for place in places.values() for pair in combinations(place[:crowd], 2)}


WAYS: dict[str, tuple[Way, str]] = {
    "ours": (ours, "datasketch"),
    "SHA-256": (sha256, ""),
    "datasketch LSH": (datasketch_lsh, "datasketch"),
    "rensa LSH": (rensa_lsh, "rensa"),
    "SimHash": (simhash, ""),
}


# -- measuring


def measure(name: str, n: int, seed: int) -> dict[str, Any]:
    """Run one way in this process, which must be a fresh one."""
    chunks, kinds = corpus(n, seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, cpu = time.perf_counter(), time.process_time()
    found = WAYS[name][0](chunks)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    planted = set().union(*kinds.values())
    guarded = {kind: guarded_share(chunks, pairs) for kind, pairs in kinds.items()}
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu, 2),
        "peak_mb": round(peak / 1024),
        "of_which_corpus_mb": round(before / 1024),
        "called_the_same": {
            kind: round(len(pairs & found) / len(pairs), 3) for kind, pairs in kinds.items()
        },
        "others": len(found - planted),
        "told_apart_by_the_guard": guarded,
    }


def guarded_share(chunks: list[Chunk], pairs: Pairs) -> float:
    """Return the share of pairs that differ in a number, a negation or a condition."""
    told = [difference(chunks[a].text, chunks[b].text) is not None for a, b in pairs]
    return round(sum(told) / len(told), 3)


def measured(names: list[str], n: int, seed: int) -> dict[str, Any]:
    """Measure each way in a process of its own."""
    context = multiprocessing.get_context("spawn")
    result = {}
    for name in names:
        with context.Pool(1) as pool:
            result[name] = pool.apply(measure, (name, n, seed))
    return result


def feedbackqa(folder: Path) -> dict[str, Any] | None:
    """Look at pairs of passages that vectors call alike; None where the data are missing."""
    folder = folder / "feedbackqa_us"
    if not (folder / "embeddings.npz").exists():
        return None
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    with np.load(folder / "embeddings.npz") as held:
        vectors = held["corpus"].astype(float)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = np.argwhere(np.triu(vectors @ vectors.T, 1) >= COSINE).tolist()
    told = Counter(difference(texts[a], texts[b]) or "nothing" for a, b in alike)
    wording = [jaccard(shingles(texts[a]), shingles(texts[b])) for a, b in alike]
    chunks = [Chunk(str(at), text) for at, text in enumerate(texts)]
    return {
        "passages": len(texts),
        "pairs": len(alike),
        "first_difference": dict(told),
        "share_under_half_their_wording": sum(share < 0.5 for share in wording),  # noqa: PLR2004
        "exact_duplicates": len(exact_duplicates(chunks)),
        "near_duplicates": len(near_duplicates(chunks)),
    }


def goal(result: dict[str, Any]) -> dict[str, Any]:
    """Say whether 100,000 chunks are through in time, and no trap was called a duplicate."""
    row = result["ways"].get("ours")
    if row is None:
        return {}
    traps = {kind: row["called_the_same"][kind] for kind in TRAPS}
    wanted = {"n": 100_000, "seconds": 60, "peak_mb": 1_500, "traps": 0}
    met = row["seconds"] <= wanted["seconds"] and row["peak_mb"] <= wanted["peak_mb"]
    return {
        "wanted": wanted,
        "met": met and not any(traps.values()) and result["n"] >= wanted["n"],
    }


# -- output


def print_table(result: dict[str, Any]) -> None:
    """Print what was measured."""
    print(f"{result['n']:,} chunks of about 90 words; shares of the pairs called the same")
    kinds = [*COPIES, *TRAPS]
    print(
        f"{'':16}{'s':>7}{'MB':>7}" + "".join(f"{kind:>20}" for kind in kinds) + f"{'others':>9}"
    )
    for name, row in result["ways"].items():
        shares = "".join(f"{row['called_the_same'][kind]:>20.3f}" for kind in kinds)
        print(f"{name:16}{row['seconds']:>7.1f}{row['peak_mb']:>7,}{shares}{row['others']:>9,}")
    if "ours" in result["ways"]:
        guarded = result["ways"]["ours"]["told_apart_by_the_guard"]
        print(f"{'guard tells apart':30}" + "".join(f"{guarded[kind]:>20.3f}" for kind in kinds))
    for name in result["absent"]:
        print(f"not installed, so not measured: {name}")
    if result["FeedbackQA"]:
        print(f"FeedbackQA, pairs with a cosine of {COSINE} or more: {result['FeedbackQA']}")
    print(f"goal: {result['goal']}")


def main() -> None:
    """Print a table, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args()
    here = [name for name in options.ways if not (need := WAYS[name][1]) or find_spec(need)]
    result: dict[str, Any] = {
        "n": options.n,
        "absent": [name for name in options.ways if name not in here],
        "ways": measured(here, options.n, options.seed),
        "FeedbackQA": feedbackqa(options.data) if "ours" in here else None,
    }
    result["goal"] = goal(result)
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        print_table(result)


if __name__ == "__main__":
    main()
