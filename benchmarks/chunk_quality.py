"""Does the junk gate find junk, and does it leave everything else alone?

Good texts are the Universal Declaration of Human Rights in 16 languages and 12 scripts (in chunks
of three sizes, and as lists), tables made of what Python's standard library knows, and its
source. Junk is made of them: repeated lines, base64, scanning faults, misread encodings,
contents pages, menus and link lists; bare headings and titles without pages are known misses.

The thresholds were chosen on these, on FeedbackQA's passages, and on one half (`looked_at`) of
what `--held-out` reads: descriptions and text files of the installed packages, and the folders
named by `--documents`, halved by the CRC-32 of package, language folder or file. What is gated
there is not all wrong: READMEs have rows of badges and lists of link targets, manuals have
headings without text, keys and check sums, and one of them really is in the wrong encoding.

What nobody looked at is read by `--unseen`: the docstrings of the installed packages, or
descriptions, text files and docstrings of the packages in the folders that it names, on none of
which a threshold, a pattern or a list of words was chosen. Its figures are reported as they come
out, by group and by script, and `--show 20` prints gated chunks, drawn by chance, for a person to
judge. What is fixed after such a look is in `test_quality_ordinary.py`, and the folder then is
no longer unseen: name another.

- `false_flags`: share of good chunks that are gated, by set; `recall`: share of junk gated.
- `seed`: the published blueprint's rules on the same chunks, rebuilt (`chunk_sets/seed.py`).
- `boundary_auc`: whole chunks against random cuts, told apart by sufficiency; `composite_auc`:
  good against junk, by the composite.
- `retrieval`: nDCG@10 of TF-IDF on FeedbackQA, clean and with 35 % junk, in points, mean of ten
  draws of junk. The kinds that the gate promises to find cost this retriever 2.3 points at all,
  and the gate gives all of them back; with the known misses among them it gives back 2.8 of 3.5
  on average, and from 2.3 to 3.6 by draw.
- `slow`: seconds for 10,000 links, one line of 1 MB, and texts that make patterns backtrack.

Times are processor time. Not measured: scans and mojibake of real life, other corpora, dense
vectors.

    python benchmarks/chunk_quality.py [--json] [--data FOLDER] [--held-out]
        [--documents FOLDER ...] [--unseen [SITE_PACKAGES ...]] [--show NUMBER]
"""

import argparse
import functools
import json
import random
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chunk_sets import good, seed
from chunk_sets.documents import chunked, docstrings, package_documents, sampled, script
from chunk_sets.junk import MAKERS
from chunk_sets.retrieval import measure as measure_retrieval

from langchain_feedback.index.quality import SCORING_VERSION, score_batch, score_chunk

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "feedbackqa_us"
MEGABYTE = 1_000_000
HALVES = ("looked_at", "confirmed")
PER_FOLDER = 60
SLOW = {
    "10,000 links": "[a](https://example.org/x) " * 10_000,
    "10,000 addresses": "https://example.org/x " * 10_000,
    "one word of 1 MB": "a" * MEGABYTE,
    "one line of 1 MB": "word " * (MEGABYTE // 5),
    "one Chinese line": "退款" * (MEGABYTE // 2),
    "dots": "." * MEGABYTE + "x",
    "spaces": "a" + " " * MEGABYTE + "b",
    "brackets": "[" * MEGABYTE,
    "misread": "Ð°" * (MEGABYTE // 2),
}

Texts = Sequence[str]


def chance(seed: object) -> random.Random:
    """Return chance that is the same on every run."""
    return random.Random(str(seed))  # noqa: S311  no secret


def good_sets(sample: int) -> dict[str, list[str]]:
    """Return good chunks by set: prose and lists by language, tables, code."""
    sets = {f"prose {language}": texts for language, texts in good.prose().items()}
    sets |= {f"list {language}": texts for language, texts in good.lists().items()}
    sets |= {"tables": good.tables(), "code": good.code()}
    return {name: texts[:sample] for name, texts in sets.items()}


def junk_sets(sample: int) -> dict[str, dict[str, list[str]]]:
    """Return junk chunks by kind and language."""
    return {
        kind: {
            language: list(make(texts[:sample], chance(f"{kind} {language}")))
            for language, texts in good.prose().items()
        }
        for kind, make in MAKERS.items()
    }


def share(gated: Callable[[str], bool], texts: Iterable[str]) -> float | None:
    """Return the share of texts that are gated, None where there is no text."""
    found = [gated(text) for text in texts]
    return round(sum(found) / len(found), 4) if found else None


@functools.cache
def ours(text: str) -> bool:
    """Tell whether our gate takes a text out."""
    return score_chunk(text).gated


def auc(better: Sequence[float], worse: Sequence[float]) -> float:
    """Return how often a value of `better` exceeds one of `worse`; ties count half."""
    left, right = np.array(better)[:, None], np.array(worse)[None, :]
    return round(float(np.mean((left > right) + (left == right) / 2)), 3)


def cut(texts: Texts, dice: random.Random) -> list[str]:
    """Cut pieces out at random places, inside words too."""
    pieces = []
    for text in texts:
        size = min(300, len(text) // 2)
        begin = dice.randrange(1, max(2, len(text) - size))
        pieces.append(text[begin : begin + size])
    return pieces


def rank_figures(sets: dict[str, list[str]], junk: dict[str, dict[str, list[str]]]) -> Any:
    """Return both AUC figures, ours and the seed's."""
    whole = [text for name, texts in sets.items() if name.startswith("prose") for text in texts]
    pieces = cut(whole, chance(0))
    bad = [text for by in junk.values() for texts in by.values() for text in texts][::7]
    some = whole[:: max(1, len(whole) // 1_000)]
    return {
        "boundary_auc": {
            "ours": auc(*([each.sufficiency for each in score_batch(t)] for t in (some, pieces))),
            "seed": auc(*([seed.sufficiency(text) for text in t] for t in (some, pieces))),
        },
        "composite_auc": {
            "ours": auc(*([each.composite for each in score_batch(t)] for t in (some, bad))),
            "seed": auc(*([seed.composite(text) for text in t] for t in (some, bad))),
        },
    }


def held_out(folders: Sequence[Path], limit: int) -> dict[str, Any]:
    """Count what is gated in other people's documents: in the half looked at, and in the other."""
    documents = list(package_documents())
    for folder in folders:
        documents += [
            (f"{folder.name}/{top.name}" if top.is_dir() else folder.name, top.stem, text)
            for top in sorted(folder.iterdir())
            for text in sampled(top, PER_FOLDER)
        ]
    groups: dict[tuple[str, str], list[str]] = {}
    for group, name, text in documents:
        odd = zlib.crc32(name.split("/")[0].encode()) % 2
        groups.setdefault((HALVES[odd], group), []).extend(chunked(text))
    result: dict[str, Any] = {half: {} for half in HALVES}
    for (half, group), chunks in sorted(groups.items()):
        different = list(dict.fromkeys(chunks))
        chosen = chance(0).sample(different, min(limit, len(different)))
        result[half][group] = flags(chosen)
    for half, found in result.items():
        total = sum(each["chunks"] for each in found.values())
        gated = sum(each["gated"] for each in found.values())
        result[half] = {"chunks": total, "gated": gated, "groups": found}
    return result


def unseen(sites: Sequence[str], limit: int, show: int) -> dict[str, Any]:
    """Count what is gated in documents that nobody looked at, by group and by script."""
    documents = [] if sites else list(docstrings())
    for site in sites:
        documents += [*docstrings(site), *package_documents(site)]
    groups: dict[str, list[str]] = {}
    for group, _, text in documents:
        groups.setdefault(group, []).extend(chunked(text))
    result: dict[str, Any] = {"chunks": 0, "gated": 0, "groups": {}, "scripts": {}, "shown": []}
    scripts: dict[str, list[str]] = {}
    gated: list[str] = []
    for group, chunks in sorted(groups.items()):
        different = list(dict.fromkeys(chunks))
        chosen = chance(group).sample(different, min(limit, len(different)))
        result["groups"][group] = counted = flags(chosen)
        result["chunks"] += counted["chunks"]
        result["gated"] += counted["gated"]
        gated += filter(ours, chosen) if show else []
        for text in chosen:
            scripts.setdefault(script(text), []).append(text)
    result["scripts"] = {name: flags(texts) for name, texts in sorted(scripts.items())}
    result["shown"] = chance("shown").sample(gated, min(show, len(gated)))
    return result


def flags(chunks: Texts) -> dict[str, Any]:
    """Count chunks and gated ones, by first reason."""
    gated = [quality.reasons[0] for quality in score_batch(chunks) if quality.gated]
    return {"chunks": len(chunks), "gated": len(gated), "reasons": dict(Counter(gated))}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything that was asked for."""
    sets, junk = good_sets(options.sample), junk_sets(options.sample)
    everything = [text for texts in sets.values() for text in texts]
    result: dict[str, Any] = {
        "scoring_version": SCORING_VERSION,
        "chunks": {name: len(texts) for name, texts in sets.items()},
        "false_flags": {},
        "recall": {},
        "recall_by_language": {},
    }
    gates = {"ours": ours, "seed": functools.cache(seed.gated)}
    for label, gated in gates.items():
        result["false_flags"][label] = {name: share(gated, texts) for name, texts in sets.items()}
        result["recall"][label] = {
            kind: share(gated, [text for texts in by.values() for text in texts])
            for kind, by in junk.items()
        }
        result["recall_by_language"][label] = {
            kind: {language: share(gated, texts) for language, texts in by.items()}
            for kind, by in junk.items()
        }
    started = time.process_time()
    score_batch(everything)
    spent = time.process_time() - started
    result["ms_per_chunk"] = round(1_000 * spent / len(everything), 3)
    result["characters_per_chunk"] = round(sum(map(len, everything)) / len(everything))
    result |= rank_figures(sets, junk)
    result["slow"] = {name: seconds(text) for name, text in SLOW.items()}
    if (options.data / "corpus.jsonl").exists():
        result["retrieval"] = measure_retrieval(options.data, gates, seeds=options.seeds)
    if options.held_out or options.documents:
        result["held_out"] = held_out(options.documents, options.limit)
    if options.unseen is not None:
        result["unseen"] = unseen(options.unseen, options.limit, options.show)
    return result


def seconds(text: str) -> float:
    """Return the processor time of one chunk."""
    started = time.process_time()
    score_chunk(text)
    return round(time.process_time() - started, 3)


def table(result: dict[str, Any]) -> None:
    """Print what a person wants to see."""
    print(f"{'gated':24}{'chunks':>8}{'ours':>9}{'seed':>9}")
    for name, number in result["chunks"].items():
        values = [result["false_flags"][label][name] for label in ("ours", "seed")]
        print(f"{name:24}{number:>8}{values[0]:>9.1%}{values[1]:>9.1%}")
    for kind in result["recall"]["ours"]:
        values = [result["recall"][label][kind] for label in ("ours", "seed")]
        print(f"{'junk: ' + kind:24}{'':>8}{values[0]:>9.1%}{values[1]:>9.1%}")
    for name in ("boundary_auc", "composite_auc"):
        print(f"{name:24}{'':>8}{result[name]['ours']:>9}{result[name]['seed']:>9}")
    print(f"{result['ms_per_chunk']} ms a chunk of {result['characters_per_chunk']} characters")
    print("seconds:", ", ".join(f"{name} {spent}" for name, spent in result["slow"].items()))
    for name, row in result.get("retrieval", {}).items():
        print(f"nDCG@10, {name}: " + ", ".join(f"{label} {value}" for label, value in row.items()))
    for half, found in result.get("held_out", {}).items():
        print(f"{half}: {found['gated']} of {found['chunks']} gated")
        for group, each in found["groups"].items():
            print(f"  {group:22}{each['chunks']:>7}{each['gated']:>6}  {each['reasons']}")
    if found := result.get("unseen"):
        print(f"unseen: {found['gated']} of {found['chunks']} gated")
        for name, each in (found["groups"] | found["scripts"]).items():
            print(f"  {name:22}{each['chunks']:>7}{each['gated']:>6}  {each['reasons']}")
        for text in found["shown"]:
            print(f"----- {score_chunk(text).reasons}\n{text[:400]}")


def main() -> None:
    """Print the tables, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sample", type=int, default=1_000, help="chunks of a set, at most")
    parser.add_argument("--seeds", type=int, default=10, help="draws of junk for the retrieval")
    parser.add_argument("--held-out", action="store_true", help="read the packages' documents")
    parser.add_argument("--documents", type=Path, nargs="*", default=[], help="and these folders")
    parser.add_argument("--unseen", nargs="*", help="docstrings, or all of these site-packages")
    parser.add_argument("--show", type=int, default=0, help="gated chunks of --unseen to print")
    parser.add_argument("--limit", type=int, default=6_000, help="chunks of a group, at most")
    options = parser.parse_args()
    result = measure(options)
    if options.json:
        json.dump(result, sys.stdout, indent=2, ensure_ascii=False)
        print()
        return
    table(result)


if __name__ == "__main__":
    main()
