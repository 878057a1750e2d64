"""Which neighbors should be one chunk, and which chunk should be two: advice with its evidence.

Nothing here changes an index. What is suggested goes out as lines of JSON, for whoever owns
the splitter that made the chunks: two of them may be cut at the wrong place, or the rule may
be.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from langchain_feedback.index._quality.characters import count_characters, units
from langchain_feedback.index._suggestions.cuts import Span, cuts, joined
from langchain_feedback.index._suggestions.records import Suggestion, SuggestionRules
from langchain_feedback.index._suggestions.uses import (
    Part,
    Use,
    Uses,
    read_credited,
    read_parts,
    read_uses,
)
from langchain_feedback.index.quality import score_chunk
from langchain_feedback.quotes.locate import locate_quote
from langchain_feedback.ranking.intervals import wilson_interval
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import clock, reading
from langchain_feedback.words import sentence_spans

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Suggestion", "SuggestionRules", "Suggestions", "export_suggestions"]

_SHOWN = 20
"""How many traces and questions a suggestion names."""

_BY_TEXT = wilson_interval(6, 30)[0]
"""How sure a merge is that rests on the text alone: a reader judged 30 of them, in an index of
2,277 chunks of manuals and help texts in some 30 languages, and 6 were right."""


class Suggestions:
    """Finds what should be merged or split, from how chunks were used.

    Two neighbors of a source are suggested to be merged if they stood in 10 prompts together,
    for 5 questions of 3 people, in 70 % of those with either, and half of the answers quote
    both; or if the second begins inside a sentence, or states nothing. A chunk of 400 words
    is suggested to be split if it was found good under 8 questions, and what the answers to
    some of them provably quote stands 150 characters or more from what the others do.

    Places are known from `ChunkCatalog.sync(complete=True)`, quotes from the sentences of the
    answers that stand in the chunk word for word: an answer in words of its own proves none.

    What rests on use comes first. That a chunk looks cut or empty is a weak reason (of 30 such
    merges 6 were right): those come last, with `rests_on="text"` and a low confidence.

    Args:
        store: Whose chunks and answers, in its namespace.
        rules: The numbers.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback import FeedbackStore
        >>> from langchain_feedback.index.catalog import ChunkCatalog
        >>> from langchain_feedback.index.gate import QualityGate
        >>> store = FeedbackStore("sqlite://")
        >>> texts = ("A refund takes, where it was paid", "by card, no more than 14 days.")
        >>> found = [Document(text, id=text[:2], metadata={"source": "a.md"}) for text in texts]
        >>> _ = ChunkCatalog(store).sync(found, complete=True), QualityGate(store).score(found)
        >>> [(one.reason, one.chunks, one.rests_on) for one in Suggestions(store).find()]
        [('cut_start', ('A ', 'by'), 'text')]
    """

    def __init__(self, store: "FeedbackStore", *, rules: SuggestionRules | None = None) -> None:
        self.store, self.rules = store, rules or SuggestionRules()

    def find(self) -> list[Suggestion]:
        """Return what should be merged or split, the surest first; nothing is written.

        What rests on the text alone comes after all that rests on use; of it, what looks worst
        comes first.

        Raises:
            StoreError: If the store cannot be read.
        """
        with reading(self.store) as connection:
            since = clock(self.store, connection) - timedelta(days=self.rules.days)
            parts = read_parts(connection, self.store.namespace)
            uses = read_uses(connection, self.store.namespace, parts, since)
            long = [part for part in parts.values() if _units(part.text) >= self.rules.long_units]
            credited = read_credited(connection, self.store.namespace, long)
        found = [*self._merges(parts.values(), uses)]
        for part in long:
            if credited.get(part.chunk_id, 0) >= self.rules.least_credited:
                found += self._splits(part, uses.of[part.chunk_id].values())
        return sorted(found, key=_rank)

    afind = twin(find)

    # -- merging

    def _merges(self, parts: Iterable[Part], uses: Uses) -> Iterator[Suggestion]:
        ordered = sorted(parts, key=lambda part: (part.scope, part.source, part.position))
        for one, two in pairwise(ordered):
            same = (one.scope, one.source) == (two.scope, two.source)
            if not same or two.position != one.position + 1:
                continue
            apart = _apart(one, two)
            text, common = joined(one.text, two.text, apart)
            if _units(text) > self.rules.most_units:
                continue
            before = one.text[: len(one.text) - common]
            if not common and apart != len(one.text):
                before += " "  # which splitters strip
            said = self._together(uses.of[one.chunk_id], uses.of[two.chunk_id])
            said = said or _fragment(before, two)
            if said is not None:
                reason, confidence, evidence = said
                yield _suggestion(
                    "merge", reason, (one, two), confidence, (text,), evidence=evidence,
                    rests_on="use" if reason == "used_together" else "text",
                )  # fmt: skip

    def _together(
        self, one: Mapping[str, Use], two: Mapping[str, Use]
    ) -> tuple[str, float, dict[str, Any]] | None:
        """Return why two chunks belong together, by their uses; None: they do not."""
        both = [one[trace] for trace in one if trace in two]
        rules = self.rules
        if (
            len(both) < rules.least_traces
            or len({use.question_id for use in both}) < rules.least_questions
            or len({use.actor for use in both}) < rules.least_actors
        ):
            return None
        overlap = len(both) / len(one.keys() | two.keys())
        cited = sum(use.cited and two[use.trace_id].cited for use in both)
        if overlap < rules.least_overlap or cited < rules.least_cited * len(both):
            return None
        evidence = {"together": len(both), "cited_both": cited, "overlap": round(overlap, 4)}
        return "used_together", wilson_interval(cited, len(both))[0], evidence | _named(both)

    # -- splitting

    def _splits(self, part: Part, uses: Iterable[Use]) -> Iterator[Suggestion]:
        cited = [use for use in uses if use.cited]
        proved = {use.trace_id: _proved(part.text, use) for use in cited}
        spans = sorted({span for found in proved.values() for span in found})
        offsets = cuts(
            part.text, spans, least_gap=self.rules.least_gap, least_questions=self.rules.least_each
        )
        if not offsets:
            return
        edges = [0, *offsets, len(part.text)]
        texts = tuple(part.text[low:high].strip() for low, high in pairwise(edges))
        asked = len({span.question for span in spans})
        used = [use for use in cited if proved[use.trace_id]]
        evidence = {"spans": [span._asdict() for span in spans]} | _named(used)
        yield _suggestion(
            "split", "separate_questions", (part,), wilson_interval(asked, asked)[0], texts,
            offsets=tuple(offsets), evidence=evidence,
        )  # fmt: skip


def export_suggestions(suggestions: Iterable[Suggestion], path: str | os.PathLike[str]) -> int:
    """Write suggestions as lines of JSON, in the place of what the file held; return how many.

    They hold questions that people asked, and texts of the index.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     export_suggestions([], f"{folder}/suggestions.jsonl")
        0
    """
    lines = [json.dumps(asdict(one), ensure_ascii=False, sort_keys=True) for one in suggestions]
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def _fragment(before: str, part: Part) -> tuple[str, float, dict[str, Any]] | None:
    """Return why a chunk cannot stand alone behind its predecessor; None: it can."""
    if not {"cut_start", "no_statement"} & set(part.reasons):
        return None
    # The kept score went by looks; here what stands before it is known.
    quality = score_chunk(part.text, before=before)
    checks = {"cut_start": quality.start, "no_statement": quality.statement}
    low = {name: value for name, value in checks.items() if name in quality.reasons}
    if not low:
        return None
    reason = min(low, key=lambda name: (low[name], name))
    return reason, _BY_TEXT, {"checks": low}


def _rank(one: Suggestion) -> tuple[bool, float, float, str, tuple[str, ...]]:
    worst = min(one.evidence.get("checks", {}).values(), default=0.0)
    return one.rests_on == "text", -one.confidence, worst, one.source, one.chunks


def _suggestion(
    kind: Literal["merge", "split"],
    reason: str,
    parts: Sequence[Part],
    confidence: float,
    texts: tuple[str, ...],
    *,
    offsets: tuple[int, ...] = (),
    evidence: Mapping[str, Any],
    rests_on: Literal["use", "text"] = "use",
) -> Suggestion:
    return Suggestion(
        kind=kind,
        reason=reason,
        source=parts[0].source,
        scope=parts[0].scope,
        chunks=tuple(part.chunk_id for part in parts),
        content_hashes=tuple(part.content_hash for part in parts),
        confidence=round(confidence, 4),
        texts=texts,
        offsets=offsets,
        evidence=evidence,
        rests_on=rests_on,
    )


def _named(uses: Sequence[Use]) -> dict[str, Any]:
    questions = {use.question_id: use.question for use in uses}
    return {
        "traces": sorted(use.trace_id for use in uses)[:_SHOWN],
        "questions": [questions[key] for key in sorted(questions)][:_SHOWN],
        "actors": len({use.actor for use in uses}),
    }


def _proved(text: str, use: Use) -> list[Span]:
    """Return the passages of a chunk that an answer repeats word for word."""
    found = []
    for start, end in sentence_spans(use.answer):
        if match := locate_quote(text, use.answer[start:end]):
            found.append(Span(match.start, match.end, use.question_id))
    return found


def _apart(one: Part, two: Part) -> int | None:
    if one.start_index is None or two.start_index is None:
        return None
    return two.start_index - one.start_index


def _units(text: str) -> float:
    return units(text, count_characters(text))
