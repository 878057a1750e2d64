"""How many questions does it take to see that one retriever is better? Simulated on FeedbackQA.

2,150 crowd-written questions over 598 passages, one right passage each. `a` is the order by cosine
of MiniLM vectors; `b` gives some of the questions, drawn by lot, the order of a `LinearRanker`
that learned from 440 reviewed questions of other pages, so many that nDCG@10 rises by 5 or by 2
points in the mean. Lists have 4 places. Needed is what finds that in 80 % of experiments, at 5 %
two-sided. Every list is drawn with `team_draft`; no model is called.

Rows: `offline` is the paired difference in nDCG@10 on labelled questions. `draft` is the team
draft of this package, `textbook` the one in which a coin gives what both offer to one of them.
`ab` gives half of the people each. Behind them stands who tells:

- `clicks_50`, `clicks_10`: that share of people look at sources. They look at place r with
  probability 1 / r and open what they see: the right passage with .8, another one with .15.
- `citations`: the answer quotes the right passage with .8 where it is there, each other one with
  .18, wherever it stands.
- `thumbs_30`: 30 % rate; as right or wrong as FeedbackQA's raters (good with .714 where the right
  passage is there, .35 where it is not), for `ab` also with one flip in ten (`flips`). In a draft
  a thumb speaks for, or against, the teams that the answer quotes.

`table` is what the design says, and `off` by how much this differs. That table comes from an
earlier simulation of which not all was written down. Given were the shares of people who look and
rate, the raters' noise, and the .8 of quotes. The 4 places, the ranker, the .8 and .15 of clicks
and the .18 of quotes were chosen here so that the two agree; `sensitivity` is what a draft with
`clicks_50` needs where people open wrong passages less or more often. Thumbs in a draft do not
agree: the table's grow fourfold from 5 to 2 points, those of any such mixture two and a half.

`same` tests the test: two retrievers of equal quality and different orders, over as many
questions as the 5 points need. `found` is how often a difference is found all the same, which
should be 5 %; with `peeking`, a look after each tenth and a stop at the first that likes what it
sees; `identical`, with lists of which both sides are `a`, so that every pick should be neutral.
`power` is how often the real difference is found.

    python benchmarks/interleaving.py [--data FOLDER] [--runs 500] [--seed 0] [--json]
"""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langchain_feedback.loop._experiments.tests_of import preference
from langchain_feedback.ranking.interleave import coins, team_draft
from langchain_feedback.ranking.linear import LinearRanker, TrainingGroup
from langchain_feedback.ranking.views import Candidates

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "feedbackqa_us"
POOL, PLACES, TOP, FOLDS, TAUGHT = 20, 4, 10, 5, 440
DRAWS = 6
"""Lists that are drawn for each question."""
EFFECTS = (5, 2)
ASTRAY = (0.05, 0.1, 0.15, 0.2)
ALPHA, POWER = 0.05, 0.8
OPENS, OPENS_WRONG, QUOTES, QUOTES_WRONG = 0.8, 0.15, 0.8, 0.18
RATED, GOOD_IF_RIGHT, GOOD_IF_WRONG, FLIPS = 0.3, 0.714, 0.35, 0.1
TABLE: dict[str, dict[str, dict[str, int]]] = {
    "5": {
        "offline": {"ndcg": 106},
        "draft": {"clicks_50": 1_400, "clicks_10": 6_400, "citations": 500, "thumbs_30": 15_500},
        "textbook": {"clicks_50": 4_300, "citations": 1_250},
        "ab": {"clicks_50": 17_300, "thumbs_30": 73_400, "flips": 11_400},
    },
    "2": {
        "offline": {"ndcg": 278},
        "draft": {
            "clicks_50": 3_100,
            "clicks_10": 16_900,
            "citations": 1_200,
            "thumbs_30": 62_000,
        },
        "ab": {"clicks_50": 110_000, "thumbs_30": 456_000, "flips": 71_700},
    },
}
Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Drafter = Callable[[Sequence[int], Sequence[int], str], list[tuple[int, int]]]


@dataclass(frozen=True)
class Data:
    """The questions, and two orders of each pool."""

    gold: Ints
    """(N,) the right passage."""
    a: Ints
    """(N, 20) passages, best first."""
    better: Ints
    """(N, 20) as the ranker has them."""


@dataclass(frozen=True)
class Lists:
    """Mixed lists, of which only the places count that people see."""

    right: NDArray[np.bool_]
    """(M, 4) whether the right passage stands there."""
    team: NDArray[np.int8]
    """(M, 4) 1 for `b`, -1 for `a`, 0 for nobody."""


# -- the data


def load(folder: Path, seed: int) -> Data:
    """Read the folder, and train the ranker: BEIR layout, and embeddings in file order."""
    corpus, asked = (_rows(folder / f"{name}.jsonl") for name in ("corpus", "queries"))
    number = {row["_id"]: at for at, row in enumerate(corpus)}
    lines = (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    named = {query: number[passage] for query, passage, *_ in (line.split("\t") for line in lines)}
    gold = np.array([named[row["_id"]] for row in asked])
    pages = np.unique([row["metadata"]["url"] for row in corpus], return_inverse=True)[1]
    stored = np.load(folder / "embeddings.npz")
    cosines = _unit(stored["queries"]) @ _unit(stored["corpus"]).T
    a = np.argsort(-cosines, axis=1, kind="stable")[:, :POOL]
    passages = [
        Document(f"{row['title']}\n{row['text']}", id=row["_id"], metadata={"title": row["title"]})
        for row in corpus
    ]
    questions = [row["text"] for row in asked]
    return Data(gold, a, _reranked(questions, passages, cosines, a, gold, pages[gold], seed))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    vectors = vectors.astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _reranked(  # noqa: PLR0917
    questions: list[str],
    passages: list[Document],
    cosines: NDArray[np.float32],
    pools: Ints,
    gold: Ints,
    pages: Ints,
    seed: int,
) -> Ints:
    """Let a ranker order each pool that has learned from questions about other pages."""
    row_of = {question: at for at, question in enumerate(questions)}
    column_of = {passage.id: at for at, passage in enumerate(passages)}

    def cosine(question: str, documents: Sequence[Document]) -> list[float]:
        return cosines[row_of[question], [column_of[one.id] for one in documents]].tolist()

    rng = np.random.default_rng(seed)
    fold = rng.permutation(pages.max() + 1)[pages] % FOLDS
    found = (pools == gold[:, None]).any(axis=1)
    better = pools.copy()
    for number in range(FOLDS):
        others = np.flatnonzero((fold != number) & found)
        groups = [
            TrainingGroup(
                questions[at],
                [passages[one] for one in pools[at]],
                range(POOL),
                frozenset(np.flatnonzero(pools[at] == gold[at]).tolist()),
            )
            for at in rng.choice(others, min(TAUGHT, len(others)), replace=False)
        ]
        ranker = LinearRanker.fit(groups, extra_features={"cosine": cosine})
        for at in np.flatnonzero(fold == number):
            pool = Candidates(np.arange(POOL), [passages[one] for one in pools[at]])
            order = np.argsort(-ranker.score(questions[at], pool), kind="stable")
            better[at] = pools[at][order]
    return better


# -- lists


def drafted(a: Sequence[int], b: Sequence[int], seed: str) -> list[tuple[int, int]]:
    """Draw a list as `InterleavedRetriever` does: passages, and whose each is."""
    sides = {"a": -1, "b": 1}
    return [(one.key, sides.get(str(one.team), 0)) for one in team_draft(a, b, PLACES, seed=seed)]


def textbook(a: Sequence[int], b: Sequence[int], seed: str) -> list[tuple[int, int]]:
    """Draw a list as Radlinski et al. do: every passage is somebody's."""
    flips, taken = coins(seed), dict[int, int]()
    while len(taken) < PLACES:
        sides = ((a, -1), (b, 1)) if next(flips) else ((b, 1), (a, -1))
        for side, team in sides:
            pick = next((one for one in side if one not in taken), None)
            if pick is not None:
                taken[pick] = team
    return list(taken.items())[:PLACES]


def lists(data: Data, draw: Drafter, seed: int) -> Lists:
    """Draw lists for every question in which `b` is the ranker."""
    right = np.zeros((DRAWS, len(data.gold), PLACES), dtype=np.bool_)
    team = np.zeros(right.shape, dtype=np.int8)
    for at, (gold, a, b) in enumerate(
        zip(data.gold, data.a.tolist(), data.better.tolist(), strict=True)
    ):
        for number in range(DRAWS):
            drawn = draw(a, b, f"{seed}/{at}/{number}")
            right[number, at] = [passage == gold for passage, _ in drawn]
            team[number, at] = [of for _, of in drawn]
    return Lists(right.reshape(-1, PLACES), team.reshape(-1, PLACES))


# -- people


def tells(right: NDArray[np.bool_], credit: str, astray: float = OPENS_WRONG) -> Floats:
    """Return (M, 4) how likely each place is opened, or quoted, where somebody looks."""
    if credit.startswith("clicks"):
        seen = 1 / np.arange(1, PLACES + 1)
        return np.where(right, OPENS, astray) * seen
    return np.where(right, QUOTES, QUOTES_WRONG)


def shares(found: Lists, credit: str, astray: float = OPENS_WRONG) -> tuple[float, float]:
    """Return how often `b` and `a` win: all that may be opened or quoted, weighed exactly."""
    chance = tells(found.right, credit, astray)
    for_b, for_a = np.zeros(len(chance)), np.zeros(len(chance))
    for places in itertools.product((False, True), repeat=PLACES):
        likely = np.where(places, chance, 1 - chance).prod(axis=1)
        net = found.team[:, list(places)].sum(axis=1)
        for_b += likely * (net > 0)
        for_a += likely * (net < 0)
    if credit.startswith("clicks"):
        looks = int(credit.partition("_")[2]) / 100
        return looks * float(for_b.mean()), looks * float(for_a.mean())
    if credit == "citations":
        return float(for_b.mean()), float(for_a.mean())
    good = np.where(found.right.any(axis=1), GOOD_IF_RIGHT, GOOD_IF_WRONG)
    won = RATED * (good * for_b + (1 - good) * for_a)
    lost = RATED * (good * for_a + (1 - good) * for_b)
    return float(won.mean()), float(lost.mean())


def clicks(found: Lists, rng: np.random.Generator) -> NDArray[np.int8]:
    """Return (M,) 1 where `b` has more clicks, -1 where `a` has, else 0; half of people look."""
    looks = rng.random(len(found.right)) < 0.5  # noqa: PLR2004
    opened = rng.random(found.right.shape) < tells(found.right, "clicks_50")
    return np.sign((opened * found.team).sum(axis=1) * looks).astype(np.int8)


# -- what is needed


def sureness() -> float:
    """Return the square of the sum of both quantiles: 7.85."""
    normal = NormalDist()
    return (normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(POWER)) ** 2


def needed_signs(won: float, lost: float) -> int:
    """Return how many questions a sign test needs, of which these shares are won and lost."""
    net = won - lost
    return round(sureness() * (won + lost - net**2) / net**2)


def needed_rates(a: float, b: float, counted: float = 1.0) -> int:
    """Return how many questions two arms need together, of which a share counts."""
    return round(2 * sureness() * (a * (1 - a) + b * (1 - b)) / (b - a) ** 2 / counted)


def ndcg(order: Ints, gold: Ints) -> Floats:
    """Return (N,) nDCG@10 of orders with one right passage."""
    hit = order[:, :TOP] == gold[:, None]
    return np.where(hit.any(axis=1), 1 / np.log2(hit.argmax(axis=1) + 2), 0.0)


def rates(data: Data, credit: str, share: float) -> tuple[float, float]:
    """Return the success rates of two arms, of which `b` has the ranker for a share."""
    of = []
    for order in (data.a, data.better):
        right = order[:, :PLACES] == data.gold[:, None]
        if credit == "clicks_50":
            of.append(0.5 * float((1 - (1 - tells(right, credit)).prod(axis=1)).mean()))
            continue
        there = float(right.any(axis=1).mean())
        good = (1 - FLIPS, FLIPS) if credit == "flips" else (GOOD_IF_RIGHT, GOOD_IF_WRONG)
        of.append(there * good[0] + (1 - there) * good[1])
    return of[0], of[0] + share * (of[1] - of[0])


def needed(data: Data, drawn: dict[str, Lists], effect: int, seed: int) -> dict[str, Any]:
    """Return the questions that each way needs."""
    gains = ndcg(data.better, data.gold) - ndcg(data.a, data.gold)
    # In the other questions both find the same, and nothing in a draft is anybody's.
    share = effect / 100 / float(gains.mean())
    spread = share * float((gains**2).mean()) - (effect / 100) ** 2
    rows: dict[str, dict[str, int]] = {
        "offline": {"ndcg": round(sureness() * spread / (effect / 100) ** 2)}
    }
    for name, found in drawn.items():
        rows[name] = {}
        for credit in ("clicks_50", "clicks_10", "citations", "thumbs_30"):
            won, lost = shares(found, credit)
            same = 0.0 if name == "draft" else sum(shares(alike(data, seed), credit)) / 2
            rows[name][credit] = needed_signs(
                share * won + (1 - share) * same, share * lost + (1 - share) * same
            )
    rows["ab"] = {
        "clicks_50": needed_rates(*rates(data, "clicks_50", share)),
        "thumbs_30": needed_rates(*rates(data, "thumbs_30", share), RATED),
        "flips": needed_rates(*rates(data, "flips", share), RATED),
    }
    return rows


def sensitivity(data: Data, found: Lists) -> dict[str, int]:
    """Return what a draft with clicks needs for 5 points, by how often clicks go astray."""
    gain = float((ndcg(data.better, data.gold) - ndcg(data.a, data.gold)).mean())
    needs = {}
    for astray in ASTRAY:
        won, lost = shares(found, "clicks_50", astray)
        needs[str(astray)] = needed_signs(0.05 / gain * won, 0.05 / gain * lost)
    return needs


def alike(data: Data, seed: int) -> Lists:
    """Draw lists by the textbook where both find the same: each passage is somebody's."""
    right = data.a[:, :PLACES] == data.gold[:, None]
    rng = np.random.default_rng(seed)
    # Each round gives one of its two places to each.
    first = rng.choice(np.array([-1, 1], dtype=np.int8), (len(right), PLACES // 2))
    return Lists(right, np.stack([first, -first], axis=2).reshape(len(right), PLACES))


# -- the test


def tried(
    found: Lists, share: float, number: int, options: argparse.Namespace, *, equal: bool = False
) -> dict[str, float]:
    """Return how often a difference is found in experiments of so many questions.

    Clicks of half of the people; in a share of the questions the two differ. Two that are
    `equal` have other orders, and a coin says for each question whose is which.
    """
    rng, runs = np.random.default_rng(options.seed + 1), options.runs
    ended, peeked = 0, 0
    looks = [round(number * tenth / 10) for tenth in range(1, 11)]
    for _ in range(runs):
        drawn = rng.integers(0, len(found.right), number)
        signs = clicks(Lists(found.right[drawn], found.team[drawn]), rng)
        signs = np.where(rng.random(number) < share, signs, 0)
        signs = (signs * rng.choice([-1, 1], number) if equal else signs).tolist()
        people = [(str(at), sign) for at, sign in enumerate(signs)]
        liked = [preference(people[:look], alpha=ALPHA).winner(ALPHA) for look in looks]
        ended += liked[-1] is not None
        peeked += any(liked)
    return {"found": ended / runs, "peeking": peeked / runs}


def checked(
    data: Data, found: Lists, effect: int, number: int, options: argparse.Namespace
) -> Any:
    """Try the test on two that are equal, on two that are the same, and on the real ones."""
    gains = ndcg(data.better, data.gold) - ndcg(data.a, data.gold)
    share = effect / 100 / float(gains.mean())
    alone = lists(Data(data.gold, data.a, data.a), drafted, options.seed)
    same = tried(found, 1.0, number, options, equal=True)
    return {
        "questions": number,
        "runs": options.runs,
        "same": {**same, "identical": tried(alone, 1.0, number, options)["found"]},
        "power": tried(found, share, number, options)["found"],
    }


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything."""
    data = load(options.data, options.seed)
    ways: dict[str, Drafter] = {"draft": drafted, "textbook": textbook}
    drawn = {name: lists(data, draw, options.seed) for name, draw in ways.items()}
    gain = 100 * float((ndcg(data.better, data.gold) - ndcg(data.a, data.gold)).mean())
    rows = {str(effect): needed(data, drawn, effect, options.seed) for effect in EFFECTS}
    off = {
        effect: {
            name: {
                credit: round(rows[effect][name][credit] / said - 1, 3)
                for credit, said in of.items()
            }
            for name, of in table.items()
        }
        for effect, table in TABLE.items()
    }
    return {
        "questions": len(data.gold),
        "gain_of_the_ranker": round(gain, 2),
        "model_calls": 0,
        "needed": rows,
        "table": TABLE,
        "off": off,
        "sensitivity": sensitivity(data, drawn["draft"]),
        "test": checked(data, drawn["draft"], 5, rows["5"]["draft"]["clicks_50"], options),
    }


def show(result: dict[str, Any]) -> None:
    """Print tables."""
    print(
        f"{result['questions']:,} questions; the ranker gains "
        f"{result['gain_of_the_ranker']} points."
    )
    for effect, rows in result["needed"].items():
        print(f"\nQuestions needed to find {effect} points (design's table, difference)")
        for name, of in rows.items():
            for credit, number in of.items():
                said = result["table"][effect].get(name, {}).get(credit)
                off = f"{said:>9,} {result['off'][effect][name][credit]:>+6.0%}" if said else ""
                print(f"  {name:9} {credit:10} {number:>9,} {off}")
    needs = ", ".join(f"{astray}: {n:,}" for astray, n in result["sensitivity"].items())
    print(f"\nDraft, clicks_50, 5 points, by how often a wrong passage is opened: {needs}")
    test = result["test"]
    print(f"\n{test['runs']} experiments of {test['questions']:,} questions")
    print(f"  equally good: a difference is found in {test['same']['found']:.1%}")
    print(f"  the same, looked at ten times: {test['same']['peeking']:.1%}")
    print(f"  identical: {test['same']['identical']:.1%}")
    print(f"  5 points: {test['power']:.1%}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description="How many questions an experiment needs.")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with FeedbackQA")
    parser.add_argument("--runs", type=int, default=500, help="experiments for each rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    if not (options.data / "qrels.tsv").is_file():
        sys.exit(f"There is no qrels.tsv in {options.data}: give the folder with --data")
    result = measured(options)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)


if __name__ == "__main__":
    main()
