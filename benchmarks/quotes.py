"""How matchers find honest quotes in their source, and whether altered ones get past them.

Each matcher gets a chunk and a quote, and says where the quote stands or that it does
not stand there. Counted are the honest quotes that it finds, those of them with the
exact span (white space and emphasis marks at the very ends aside), and the altered
quotes that it accepts. Two sets of cases:

- shared: the hand-made cases of `quote_cases.jsonl`; those of the level `fuzzy`, a text
  with spaces lost, are left out: a strict matcher may refuse them.
- generated: passages of 5 to 25 words from 900-character chunks of real text (FeedbackQA,
  else the descriptions of the installed packages), quoted as a person would type them. The
  chunk is dressed up as PDFs, Markdown and web pages dress text: curly quotes, line breaks,
  hyphenation, no-break spaces, decomposed accents (put into some words first), ligatures,
  zero-width characters, bold; one to three of these a case. Altered quotes have one word
  or digit changed, or a negation put in or left out. The descriptions are Markdown source
  and code, whose quotes carry markup of their own: the goal is set for prose.

Time is the median of one call a quote; for `locate_quote` with the chunk new, and with the
chunk known from an earlier quote ("warm"). langchain-classic's matcher tries up to 100
errors, one more each time, which can take minutes: it gets fewer generated cases and is
stopped after half a second, which counts as a refusal ("gave up"). Not measured: whether
a quote supports what it is quoted for.

    python benchmarks/quotes.py [--json] [--data FOLDER] [--generated 1000] [--seed 7]
        [--patience 0.5]
"""

import argparse
import json
import random
import re
import statistics
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from langchain_feedback import locate_quote
from langchain_feedback.quotes.folding import fold

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CHUNK_SIZE, FEWEST_WORDS = 900, 50
SLOW_CASES = 25
GOAL = {"altered_accepted": 0, "exact_share": 0.99, "median_ms": 2.0}
OURS = "locate_quote"

Span = tuple[int, int]
Matcher = Callable[[str, str], Span | None]


class Case(NamedTuple):
    """A chunk, a quote, and where it stands: nowhere, if it was altered."""

    name: str
    chunk: str
    quote: str
    spans: list[Span]


# -- the matchers


def ours(chunk: str, quote: str) -> Span | None:
    """Find it with this package."""
    found = locate_quote(chunk, quote)
    return (found.start, found.end) if found else None


def plain(chunk: str, quote: str) -> Span | None:
    """Find it with `in`."""
    at = chunk.find(quote)
    return (at, at + len(quote)) if at >= 0 else None


def nfkc(chunk: str, quote: str) -> Span | None:
    """Find it after NFKC, case folding and collapsing white space, with an offset map."""
    text, places = _nfkc(chunk)
    sought, _ = _nfkc(quote.strip())
    at = text.find(sought)
    if at < 0 or not sought:
        return (0, 0) if at == 0 else None
    return places[at][0], places[at + len(sought) - 1][1]


def _nfkc(text: str) -> tuple[str, list[Span]]:
    folded: list[str] = []
    places: list[Span] = []
    for match in re.finditer(r"\s+|[^\s\u0300-\u036f][\u0300-\u036f]*|.", text, re.DOTALL):
        piece = unicodedata.normalize("NFKC", match.group()).casefold()
        piece = " " if piece.isspace() else piece
        if piece == " " and folded and folded[-1] == " ":
            continue
        folded.extend(piece)
        places.extend([match.span()] * len(piece))
    return "".join(folded), places


def rapidfuzz_matcher(cutoff: int) -> Matcher:
    """Find it with rapidfuzz: the best window that is similar enough."""
    from rapidfuzz import fuzz  # noqa: PLC0415

    def find(chunk: str, quote: str) -> Span | None:
        found = fuzz.partial_ratio_alignment(quote, chunk, score_cutoff=cutoff)
        return (found.dest_start, found.dest_end) if found else None

    return find


def langchain_matcher(patience_s: float) -> Matcher:
    """Find it as `create_citation_fuzzy_match_runnable` does: a fuzzy regular expression."""
    import regex  # noqa: PLC0415
    from langchain_classic.chains.openai_functions import citation_fuzzy_match  # noqa: PLC0415

    search = regex.search

    def find(chunk: str, quote: str) -> Span | None:
        stop = time.monotonic() + patience_s

        def patient(pattern: str, text: str) -> Any:
            return search(pattern, text, timeout=max(stop - time.monotonic(), 0.001))

        fact = citation_fuzzy_match.FactWithEvidence(fact="", substring_quote=[quote])
        try:
            with mock.patch.object(regex, "search", patient):
                spans: Any = fact.get_spans(chunk)  # it is annotated as giving strings
                return next(iter(spans), None)
        except regex.error:  # the quote goes into the pattern as it is
            return None

    return find


def langextract_matcher(*, exact: bool) -> Matcher:
    """Find it with langextract's aligner, taking any alignment or only `MATCH_EXACT`."""
    from langextract import resolver  # noqa: PLC0415
    from langextract.core import data  # noqa: PLC0415

    aligner = resolver.WordAligner()

    def find(chunk: str, quote: str) -> Span | None:
        extraction = data.Extraction("quote", quote)
        try:
            [[found]] = aligner.align_extractions([[extraction]], chunk)
        except ValueError:  # no token to align
            return None
        place = found.char_interval
        if place is None or (exact and found.alignment_status != data.AlignmentStatus.MATCH_EXACT):
            return None
        return place.start_pos, place.end_pos

    return find


SLOW = "langchain-classic fuzzy match"
MATCHERS: dict[str, Callable[[float], Matcher]] = {
    OURS: lambda _: ours,
    "in": lambda _: plain,
    "NFKC, case fold, spaces": lambda _: nfkc,
    "rapidfuzz partial_ratio 90": lambda _: rapidfuzz_matcher(90),
    "rapidfuzz partial_ratio 95": lambda _: rapidfuzz_matcher(95),
    "langextract, any alignment": lambda _: langextract_matcher(exact=False),
    "langextract, MATCH_EXACT": lambda _: langextract_matcher(exact=True),
    SLOW: langchain_matcher,
}


# -- the cases


def shared_cases(path: Path) -> tuple[list[Case], list[Case]]:
    """Read the hand-made cases: honest ones and altered ones."""
    honest: list[Case] = []
    altered: list[Case] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["level"] == "fuzzy":
            continue
        chunk, spans = row["chunk"], []
        for text in filter(None, [row["expect"], *row.get("also", [])]):
            start = row.get("start", chunk.index(text))
            spans.append((start, start + len(text)))
        case = Case(row["id"], chunk, row["quote"], spans)
        (honest if spans else altered).append(case)
    return honest, altered


def real_text(folder: Path) -> tuple[str, str]:
    """Return the name and the text of what the generated cases are made from."""
    corpus = folder / "feedbackqa_us" / "corpus.jsonl"
    if corpus.exists():
        lines = corpus.read_text(encoding="utf-8").splitlines()
        return "FeedbackQA", "\n\n".join(json.loads(line)["text"] for line in lines)
    found = (d.metadata.json for d in metadata.distributions())
    texts = sorted({str(about.get("description", "")) for about in found})
    return "descriptions of the installed packages", "\n\n".join(texts)


_TYPED = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "‑": "-"})
_EMPHASIS = r"[*_`\s]+|</?b>"
_OPEN, _CLOSED = re.compile(rf"(?:{_EMPHASIS})+"), re.compile(rf"(?:{_EMPHASIS})+$")
_CORE = re.compile(r"[^\W_](?:.*[^\W_])?[\u0300-\u036f]*%?", re.DOTALL)
_NEGATION = re.compile(r"(?:not|no|never|without)", re.IGNORECASE)
_VERB = re.compile(r"(?:is|are|was|were|be|can|may|should|must|will|has|have|do|does)")
_ACCENTS = str.maketrans("aeou", "áéöü")
_LIGATURES = [("ffi", "ﬃ"), ("ffl", "ﬄ"), ("ff", "ﬀ"), ("fi", "ﬁ"), ("fl", "ﬂ")]
DRESSES = [
    *("curly quotes", "line breaks", "hyphenation", "no-break spaces"),
    *("decomposed", "ligatures", "zero-width", "bold"),
]
_DIGITS = "0123456789"


def generated_cases(text: str, n: int, seed: int) -> tuple[list[Case], list[Case]]:
    """Make n honest and n altered cases, always the same for one text and seed."""
    rng = random.Random(seed)  # noqa: S311
    chunks = list(_chunks(text))
    vocabulary = sorted({w for chunk in chunks for w in chunk if re.fullmatch("[a-z]{4,}", w)})
    honest: list[Case] = []
    altered: list[Case] = []
    while len(honest) < n:
        if case := _case(rng.choice(chunks), None, vocabulary, rng):
            honest.append(case)
    while len(altered) < n:
        change = list(CHANGES)[len(altered) % len(CHANGES)]
        if case := _case(rng.choice(chunks), change, vocabulary, rng):
            altered.append(case)
    return honest, altered


def _chunks(text: str) -> Iterator[list[str]]:
    """Cut the text, typed plainly, into chunks of words."""
    typed = unicodedata.normalize("NFC", re.sub(r"(?<=\w)-\n(?=\w)", "-", text)).translate(_TYPED)
    chunk: list[str] = []
    for word in typed.split():
        chunk.append(word)
        if sum(map(len, chunk)) + len(chunk) > CHUNK_SIZE:
            if len(chunk) > FEWEST_WORDS:  # else it is no prose
                yield chunk
            chunk = []


def _case(
    words: list[str], change: str | None, vocabulary: list[str], rng: random.Random
) -> Case | None:
    """Make a case of this chunk; None where it does not lend itself."""
    dresses = rng.sample(DRESSES, rng.randint(1, 3))
    if "decomposed" in dresses:
        words = [w.translate(_ACCENTS) if w.isalpha() and rng.random() < 0.2 else w for w in words]  # noqa: PLR2004
    first = rng.randrange(len(words) - 25)
    said = words[first : first + rng.randint(5, 25)]
    if not (_CORE.search(said[0]) and _CORE.search(said[-1])):
        return None  # it would begin or end with a bullet or a dash
    if _bare(words).count(_bare(said)) != 1:
        return None  # it would have two places
    chunk, spans = _dress(words, dresses, rng)
    place = _trimmed(chunk, (spans[first][0], spans[first + len(said) - 1][1]))
    name = ", ".join(dresses)
    if change is None:
        return Case(name, chunk, " ".join(said), [place])
    if not CHANGES[change](said, vocabulary, rng) or _bare(said) in _bare(words):
        return None  # there is nothing to change, or the chunk says that as well
    return Case(f"{change} changed; {name}", chunk, " ".join(said), [])


def _bare(words: list[str]) -> str:
    return re.sub(r"[\W_]+", " ", f" {' '.join(words)} ").casefold()


def _change_word(said: list[str], vocabulary: list[str], rng: random.Random) -> bool:
    places = [i for i, word in enumerate(said) if re.search("[a-zA-Z]{3,}", word)]
    if places:
        at = rng.choice(places)
        said[at] = re.sub("[a-zA-Z]{3,}", rng.choice(vocabulary), said[at], count=1)
    return bool(places)


def _change_digit(said: list[str], _: list[str], rng: random.Random) -> bool:
    places = [(i, at) for i, word in enumerate(said) for at, c in enumerate(word) if c in _DIGITS]
    if places:
        i, at = rng.choice(places)
        other = rng.choice([digit for digit in _DIGITS if digit != said[i][at]])
        said[i] = said[i][:at] + other + said[i][at + 1 :]
    return bool(places)


def _change_negation(said: list[str], _: list[str], rng: random.Random) -> bool:
    """Leave one out, else put one in; inside, since a shorter passage would be honest."""
    inside = range(1, len(said) - 1)
    negations = [i for i in inside if _NEGATION.fullmatch(said[i])]
    verbs = [i for i in inside if _VERB.fullmatch(said[i])]
    if negations:
        del said[rng.choice(negations)]
    elif verbs:
        said.insert(rng.choice(verbs) + 1, "not")
    return bool(negations or verbs)


CHANGES = {"word": _change_word, "digit": _change_digit, "negation": _change_negation}


def _dress(words: list[str], dresses: list[str], rng: random.Random) -> tuple[str, list[Span]]:
    """Dress the words up and join them; return the chunk and each word's place."""
    worn = [_worn(word, dresses, rng) for word in words]
    if "bold" in dresses:
        _embolden(worn, rng)
    chunk, spans = "", []
    for word in worn:
        spans.append((len(chunk), len(chunk) + len(word)))
        chunk += word + _gap(dresses, rng)
    return chunk.rstrip(), spans


def _gap(dresses: list[str], rng: random.Random) -> str:
    if "line breaks" in dresses and rng.random() < 0.25:  # noqa: PLR2004
        return rng.choice(["\n", "\n    ", "\r\n", " \n"])
    if "no-break spaces" in dresses and rng.random() < 0.25:  # noqa: PLR2004
        return rng.choice(["\u00a0", "\u202f", "\u2009"])
    return " "


def _worn(word: str, dresses: list[str], rng: random.Random) -> str:
    if "curly quotes" in dresses:
        word = re.sub(r'^(\W*)"', r"\1“", word).replace('"', "”").replace("'", "’")
        word = "–" if word == "-" else word
    if "ligatures" in dresses:
        for letters, ligature in _LIGATURES:
            word = word.replace(letters, ligature)
    if "hyphenation" in dresses and word.isalpha() and len(word) > 7 and rng.random() < 0.5:  # noqa: PLR2004
        at = rng.randint(3, len(word) - 3)
        word = word[:at] + rng.choice(["-\n", "-\n  ", "\u00ad"]) + word[at:]
    if "zero-width" in dresses and word.isalpha() and len(word) > 3 and rng.random() < 0.3:  # noqa: PLR2004
        at = rng.randint(1, len(word) - 1)
        word = word[:at] + rng.choice("\u200b\u200c\u2060\ufeff") + word[at:]
    return unicodedata.normalize("NFD", word) if "decomposed" in dresses else word


def _embolden(worn: list[str], rng: random.Random) -> None:
    """Set a run in each dozen of words in bold; a point or bracket behind it stays outside."""
    for dozen in range(0, len(worn) - 12, 12):
        first = dozen + rng.randrange(8)
        last = first + rng.randrange(4)
        mark, behind = rng.choice([("**", "**"), ("__", "__"), ("*", "*"), ("<b>", "</b>")])
        begin, end = _CORE.search(worn[first]), _CORE.search(worn[last])
        if begin and end:
            # The end first: in a run of one word it does not move the beginning.
            worn[last] = worn[last][: end.end()] + behind + worn[last][end.end() :]
            worn[first] = worn[first][: begin.start()] + mark + worn[first][begin.start() :]


# -- counting


def _trimmed(chunk: str, span: Span) -> Span:
    """Leave white space and emphasis marks at the very ends out."""
    start, end = span
    if opened := _OPEN.match(chunk, start, end):
        start = opened.end()
    if closed := _CLOSED.search(chunk[start:end]):
        end = start + closed.start()
    return start, end


class Tally:
    """What one matcher did with some cases."""

    def __init__(self, matcher: Matcher, honest: list[Case], altered: list[Case]) -> None:
        self.matcher = matcher
        self.times: list[float] = []
        self.gave_up = self.found = 0
        self.honest, self.altered = len(honest), len(altered)
        self.missed: list[Case] = []
        self.inexact: list[tuple[Case, str]] = []
        for case in honest:
            self._honest(case)
        self.accepted = [case for case in altered if self._find(case) is not None]

    def _honest(self, case: Case) -> None:
        place = self._find(case)
        if place is None:
            self.missed.append(case)
            return
        self.found += 1
        right = [_trimmed(case.chunk, span) for span in case.spans]
        if _trimmed(case.chunk, place) not in right:
            self.inexact.append((case, case.chunk[slice(*place)]))

    def _find(self, case: Case) -> Span | None:
        fold.cache_clear()
        started = time.perf_counter()
        try:
            return self.matcher(case.chunk, case.quote)
        except TimeoutError:
            self.gave_up += 1
            return None
        finally:
            self.times.append((time.perf_counter() - started) * 1000)

    def row(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "honest": self.honest,
            "found": self.found,
            "exact": self.found - len(self.inexact),
            "altered": self.altered,
            "accepted": len(self.accepted),
            "gave_up": self.gave_up,
            "median_ms": round(statistics.median(self.times), 3),
        }

    def failures(self) -> list[dict[str, Any]]:
        """Return every case that went wrong, with what was found instead."""
        wrong = [("not found", case, None) for case in self.missed]
        wrong += [("other span", case, got) for case, got in self.inexact]  # type: ignore[misc]
        wrong += [("accepted", case, None) for case in self.accepted]
        return [
            {
                "problem": problem,
                "case": case.name,
                "quote": case.quote,
                "source": case.chunk[slice(*case.spans[0])] if case.spans else None,
                "got": got,
                "chunk": case.chunk,
            }
            for problem, case, got in wrong
        ]


def warm_ms(cases: list[Case]) -> float:
    """Return the median time of a quote whose chunk was searched before, with another one."""
    times = []
    for case in cases:
        fold.cache_clear()
        locate_quote(case.chunk, "words nobody wrote here")
        started = time.perf_counter()
        locate_quote(case.chunk, case.quote)
        times.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(times), 3)


def measure(
    matchers: dict[str, Matcher],
    honest: list[Case],
    altered: list[Case],
    *,
    slow_cases: int | None = None,
) -> dict[str, Any]:
    """Give every matcher the same cases; the slow one, where so told, the first of them."""
    rows: dict[str, Any] = {}
    failures: list[dict[str, Any]] = []
    for name, matcher in matchers.items():
        most = slow_cases if name == SLOW else None
        tally = Tally(matcher, honest[:most], altered[:most])
        rows[name] = tally.row()
        if name == OURS:
            rows[name]["warm_median_ms"] = warm_ms(honest + altered)
            failures = tally.failures()
    return {"matchers": rows, "failures": failures}


def installed(patience_s: float) -> tuple[dict[str, Matcher], list[str]]:
    """Return the matchers that can run here, and the names of those that cannot."""
    matchers, absent = {}, []
    for name, make in MATCHERS.items():
        try:
            matchers[name] = make(patience_s)
        except ImportError:
            absent.append(name)
    return matchers, absent


def run(folder: Path, n: int, seed: int, patience_s: float) -> dict[str, Any]:
    """Run everything that the data here allow."""
    matchers, absent = installed(patience_s)
    result: dict[str, Any] = {"absent": absent, "shared": None}
    path = folder / "quote_cases.jsonl"
    if path.exists():
        result["shared"] = measure(matchers, *shared_cases(path))
    name, text = real_text(folder)
    cases = generated_cases(text, n, seed)
    result["generated"] = measure(matchers, *cases, slow_cases=SLOW_CASES)
    result["generated"] |= {"text": name, "seed": seed, "chunk_size": CHUNK_SIZE}
    row = result["generated"]["matchers"][OURS]
    reached = {
        "altered_accepted": row["accepted"],
        "exact_share": round(row["exact"] / row["honest"], 4),
        "median_ms": row["median_ms"],
    }
    met = (
        reached["altered_accepted"] <= GOAL["altered_accepted"]
        and reached["exact_share"] >= GOAL["exact_share"]
        and reached["median_ms"] <= GOAL["median_ms"]
    )
    result["goal"] = {"wanted": GOAL, "reached": reached, "met": met}
    return result


def table(title: str, part: dict[str, Any]) -> None:
    """Print one set of cases."""
    print(f"\n{title}")
    head = ("found", "exact span", "altered accepted", "ms a quote")
    print(f"{'':31}{head[0]:>12}{head[1]:>13}{head[2]:>18}{head[3]:>12}")
    for name, row in part["matchers"].items():
        found, exact = (f"{row[key]}/{row['honest']}" for key in ("found", "exact"))
        accepted = f"{row['accepted']}/{row['altered']}"
        notes = f"  gave up on {row['gave_up']}" if row["gave_up"] else ""
        if "warm_median_ms" in row:
            notes = f"  ({row['warm_median_ms']:.2f} warm)"
        print(f"{name:31}{found:>12}{exact:>13}{accepted:>18}{row['median_ms']:>12.3f}{notes}")
    for failure in part["failures"]:
        print(f"  {OURS} {failure['problem']}: [{failure['case']}] {failure['quote']!r}")
        if failure["source"] is not None:
            print(f"    stands there as {failure['source']!r}, got {failure['got']!r}")


def main() -> None:
    """Print the tables, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--generated", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--patience", type=float, default=0.5, help="seconds a slow match may take"
    )
    options = parser.parse_args()
    if options.generated < 1:
        parser.error("--generated must be at least 1")
    result = run(options.data, options.generated, options.seed, options.patience)
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    if result["shared"]:
        table("shared cases (level `fuzzy` left out)", result["shared"])
    else:
        print(f"no quote_cases.jsonl in {options.data}: generated cases only")
    text = result["generated"]["text"]
    table(f"generated cases ({CHUNK_SIZE}-character chunks, {text})", result["generated"])
    for name in result["absent"]:
        print(f"not installed, so not measured: {name}")
    print(f"\ngoal of `{OURS}` on generated cases {'met' if result['goal']['met'] else 'MISSED'}:")
    for key, wanted in GOAL.items():
        print(f"  {key}: {result['goal']['reached'][key]} (wanted {wanted})")


if __name__ == "__main__":
    main()
