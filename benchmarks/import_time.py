"""What an import of this package adds to LangChain's own, and what it loads.

Each name is imported in a fresh process, after `langchain_core.retrievers`, which whoever uses a
retriever has loaded already. Given are the medians of the time on the clock and of the time on
the processor, which a busy machine stretches less, the fastest run, and how much is added for
each second that LangChain's import takes in the same process. The files are compiled and in the
cache of the system, as they are at the second start of any program; the first run warms up and is
left out.

Alembic is loaded by the first `FeedbackStore`, not by an import, and is not in these figures.

    python benchmarks/import_time.py [--json] [--runs 9]
"""

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

NAMES = [
    "import langchain_feedback",
    "from langchain_feedback import locate_quote",
    "from langchain_feedback import DartboardRetriever",
    "from langchain_feedback import FeedbackRetriever",
    "from langchain_feedback import FeedbackRetriever, FeedbackStore",
    "from langchain_feedback import create_reliable_rag",
]
MEASURED = "from langchain_feedback import FeedbackRetriever"
WANTED_S = 0.3
PACKAGES = ["langgraph", "numpy", "sqlalchemy", "alembic", "faiss", "langchain_community"]
PROGRAM = """
import json, sys, time
start, cpu_start = time.perf_counter(), time.process_time()
import langchain_core.retrievers
base, cpu_base = time.perf_counter(), time.process_time()
{name}
end, cpu_end = time.perf_counter(), time.process_time()
json.dump({{
    "base_s": base - start, "added_s": end - base,
    "base_cpu_s": cpu_base - cpu_start, "added_cpu_s": cpu_end - cpu_base,
    "loaded": [package for package in {packages} if package in sys.modules],
}}, sys.stdout)
"""


def once(name: str) -> dict[str, Any]:
    """Import a name in a process of its own."""
    program = PROGRAM.format(name=name, packages=PACKAGES)
    done = subprocess.run(  # noqa: S603  the program above
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def measured(runs: int) -> dict[str, Any]:
    """Import each name in turn, so often, and return the medians."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for _ in range(runs + 1):
        for name in NAMES:
            rows[name].append(once(name))
    return {name: summary(found[1:]) for name, found in rows.items()}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of some runs, and what was loaded in the last."""
    times = {key: [run[key] for run in runs] for key in runs[0] if key.endswith("_s")}
    ratio = statistics.median(run["added_cpu_s"] / run["base_cpu_s"] for run in runs)
    return {
        **{key: round(statistics.median(found), 4) for key, found in times.items()},
        "added_fastest_s": round(min(times["added_s"]), 4),
        "ratio": round(ratio, 3),
        "loaded": runs[-1]["loaded"],
    }


def main() -> None:
    """Print the table, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    names = measured(options.runs)
    row = names[MEASURED]
    unwanted = sorted({"langgraph", "alembic", "faiss", "langchain_community"} & {*row["loaded"]})
    goal = {
        "wanted": {"added_s": WANTED_S, "not_loaded": ["langgraph"]},
        "reached": {"added_s": row["added_s"], "unwanted": unwanted},
        "met": row["added_s"] <= WANTED_S and "langgraph" not in row["loaded"],
    }
    if options.json:
        json.dump({"runs": options.runs, "names": names, "goal": goal}, sys.stdout, indent=2)
        print()
        return
    width = max(map(len, NAMES))
    base = statistics.median(found["base_s"] for found in names.values())
    print(f"{'import langchain_core.retrievers':{width}} {base:9.3f} s")
    columns = f"{'added':>11} {'fastest':>11} {'processor':>11} {'ratio':>6}"
    print(f"{'':{width}} {columns}  loaded with it")
    for name, found in names.items():
        loaded = ", ".join(found["loaded"]) or "-"
        print(
            f"{name:{width}} {found['added_s']:9.3f} s {found['added_fastest_s']:9.3f} s "
            f"{found['added_cpu_s']:9.3f} s {found['ratio']:6.2f}  {loaded}"
        )
    word = "met" if goal["met"] else "not met"
    print(f"FeedbackRetriever adds at most {WANTED_S} s, without langgraph: {word}")


if __name__ == "__main__":
    main()
