"""What the offline groundedness rules decide, and how often they are right.

`LexicalGroundednessChecker` says "no" to what is far from the source, "yes" to a near
copy, and leaves the rest open, here with all words weighing the same and weighed by how
rare they are in the sources. Counted are the share of pairs that it decides and the
precision of either verdict: of the pairs it called so, how many people called so too.

What the rules cannot see is meaning. A swapped fact inside a copied sentence, a changed
subject, a paraphrase that says the opposite: all are left open at best. SummEdits is
made of such minimal edits, and there they decide next to nothing. Not measured: a
model's judgement, and whole answers (the pairs are single claims or short summaries).

    python benchmarks/groundedness.py [--json] [--data FOLDER]
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langchain_feedback.judges.offline import LexicalGroundednessChecker, corpus_idf

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SETS = {"BEGIN": "begin_dev_wow.jsonl", "SummEdits": "summedits_sales_call.jsonl"}
LABELS = {"no": 0, "yes": 1}


def read(path: Path) -> list[dict[str, Any]]:
    """Read the pairs of one data set."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measure(rows: list[dict[str, Any]], *, weighed: bool) -> dict[str, Any]:
    """Judge every pair and count what was decided, and how much of it rightly."""
    sources = dict.fromkeys(row["source"] for row in rows)
    idf = corpus_idf(Document(source) for source in sources) if weighed else None
    checker = LexicalGroundednessChecker(idf=idf)
    counts = Counter(
        (_verdict(checker, row["claim"], row["source"]), row["label"]) for row in rows
    )
    result: dict[str, Any] = {"pairs": len(rows)}
    for verdict, label in LABELS.items():
        said, right = counts[verdict, 0] + counts[verdict, 1], counts[verdict, label]
        result[verdict] = {
            "decided": said,
            "right": right,
            "precision": round(right / said, 4) if said else None,
        }
    decided = result["no"]["decided"] + result["yes"]["decided"]
    return result | {"decided": decided, "decided_share": round(decided / len(rows), 4)}


def _verdict(checker: LexicalGroundednessChecker, claim: str, source: str) -> str:
    request = {"question": "", "answer": claim, "documents": [Document(source)]}
    return str(checker.invoke(request)["verdict"])  # type: ignore[arg-type]


def _said(row: dict[str, Any]) -> str:
    if row["precision"] is None:
        return "never said"
    return f"{row['right']}/{row['decided']} = {row['precision']:.1%}"


def main() -> None:
    """Print the table, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    folder = options.data / "groundedness"
    if missing := [name for name in SETS.values() if not (folder / name).exists()]:
        sys.exit(f"{folder} lacks {' and '.join(missing)}; pass the data folder with --data")
    result = {
        name: {
            "plain": measure(rows, weighed=False),
            "idf": measure(rows, weighed=True),
        }
        for name, rows in ((name, read(folder / file)) for name, file in SETS.items())
    }
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    print(f"{'':28}{'pairs':>6}{'decided':>9}{'right when no':>20}{'right when yes':>20}")
    for name, ways in result.items():
        for way, label in (("plain", "all words alike"), ("idf", "weighed by idf")):
            row = ways[way]
            head = f"{name}, {label}"
            share, no, yes = f"{row['decided_share']:.1%}", _said(row["no"]), _said(row["yes"])
            print(f"{head:28}{row['pairs']:>6}{share:>9}{no:>20}{yes:>20}")


if __name__ == "__main__":
    main()
