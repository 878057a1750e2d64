"""The rules that tell whose failure an answer was, tried in order on one answer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from langchain_feedback.loop._triage.failure_facts import Facts, other_figures
from langchain_feedback.loop._triage.resting import rests_on
from langchain_feedback.store.asking import Ask, AskedChunk
from langchain_feedback.store.believing import LikedChunk
from langchain_feedback.store.schema import ANSWER

__all__ = ["Case", "FailureClass"]

FailureClass = Literal[
    "missing_document", "retrieval", "generation", "stale_document", "disputed", "unclear"
]
"""Whose failure it was; see `classify_failures`."""

_NOT_WRITTEN = ("not_grounded", "empty_answer")
"""Why it abstained although it had documents that answer."""


class Case:
    """One answer, and the rules that are tried on it."""

    def __init__(self, ask: Ask, facts: Facts, elsewhere: Callable[[Ask], str | None]) -> None:
        self.ask, self.facts, self.elsewhere = ask, facts, elsewhere
        liked = facts.liked.get(ask.question_id, ())
        within = {(chunk.cell_id, chunk.content_hash) for chunk in ask.prompt}
        self.liked_within = [one for one in liked if one.key in within]
        self.liked_outside = [one for one in liked if one.key not in within]
        self.yes_within = [chunk for chunk in ask.prompt if chunk.grade == "yes"]
        ids = {chunk.chunk_id for chunk in ask.prompt}
        self.yes_outside = list(
            {
                c.chunk_id: c for c in ask.chunks if c.grade == "yes" and c.chunk_id not in ids
            }.values()
        )

    def decide(self) -> tuple[FailureClass, tuple[str, ...], str | None]:
        """Return the first class that fits, its evidence, and the suspect."""
        rules: tuple[tuple[FailureClass, Callable[[], Iterator[str]], str | None], ...] = (
            ("retrieval", self._missed, self._suspect()),
            ("retrieval", self._found_elsewhere, self._suspect()),
            ("missing_document", self._missing, None),
            ("generation", self._badly_written, None),
            ("stale_document", self._stale, self._stale_chunk()),
            ("retrieval", self._left_out, self._suspect()),
            ("disputed", self._disputed, self._suspect()),
            ("unclear", self._unclear, self._suspect()),
        )
        for name, rule, chunk_id in rules:
            if said := tuple(rule()):
                return name, said, chunk_id
        raise AssertionError  # the last rule always says something

    # -- the rules: each yields its sentences, or none where it does not fit

    def _missed(self) -> Iterator[str]:
        pinned = [one for one in self.liked_outside if one.pinned]
        if pinned:
            yield from map(self._outside, pinned)
        elif self.liked_outside and not self.liked_within:
            yield from map(self._outside, self.liked_outside)
        elif self.yes_outside and not self.liked_within and not self.yes_within:
            yield from map(self._below, self.yes_outside)
        if self.liked_within and self._nothing_fits():
            yield f"{self._named(self.liked_within[0])}, and was judged irrelevant."

    def _left_out(self) -> Iterator[str]:
        yield from map(self._outside, self.liked_outside)
        yield from map(self._below, self.yes_outside)

    def _found_elsewhere(self) -> Iterator[str]:
        if self._nothing_fits() and (found := self.elsewhere(self.ask)):
            yield self._nothing()
            yield f"Another search finds {found!r}, which holds the words of the question."

    def _missing(self) -> Iterator[str]:
        if self._nothing_fits() and not self.liked_within:
            yield self._nothing()
            yield "No chunk is known that people found right for this question."

    def _badly_written(self) -> Iterator[str]:
        ask = self.ask
        good = [self._named(one) for one in self.liked_within]
        good += [f"Chunk {one.chunk_id!r} was graded relevant" for one in self.yes_within]
        if not good or not (why := _how_badly(ask)):
            return
        yield f"{good[0]}, and was in the prompt."
        yield why

    def _stale(self) -> Iterator[str]:
        for chunk in self._resting():
            yield from self._stale_facts(chunk)

    def _disputed(self) -> Iterator[str]:
        quoted = [chunk.chunk_id for chunk in self.ask.prompt if chunk.cited]
        if self.ask.grounded and quoted:
            yield f"The answer is grounded, and its quotes of {_listed(quoted)} are proved."
            yield "People dislike what the document says."

    def _unclear(self) -> Iterator[str]:
        ask = self.ask
        if ask.status == "abstained" and ask.reason:
            yield f"It abstained: {ask.reason}."
        if ask.grounded is None:
            yield "Nobody checked whether the answer is grounded."
        if all(chunk.cited is None for chunk in ask.prompt):
            yield "Its citations are not known."
        if all(chunk.grade in (None, "unknown") for chunk in ask.chunks):
            yield "No grades are known."
        yield "Nothing else that is stored tells."

    # -- what they are made of

    def _nothing_fits(self) -> bool:
        grades = [chunk.grade for chunk in self.ask.prompt]
        all_refused = bool(grades) and all(grade == "no" for grade in grades)
        return (self.ask.found_nothing or all_refused) and not self.yes_within

    def _nothing(self) -> str:
        if not self.ask.last_search:
            return "The search found nothing."
        if self.ask.reason == "no_documents":
            return "It abstained for lack of documents."
        return "Everything that was found was judged irrelevant."

    def _resting(self) -> tuple[AskedChunk, ...]:
        """Return what the answer surely rests on: it is grounded, or quotes it."""
        ask = self.ask
        proved = ask.grounded or any(chunk.cited for chunk in ask.prompt)
        return rests_on(ask) if proved else ()

    def _stale_facts(self, chunk: AskedChunk) -> Iterator[str]:
        if chunk.source and (kind := self.facts.alarms.get(chunk.source)):
            yield f"Its source {chunk.source!r} has an open alarm ({kind})."
        if self.facts.hashes.get(chunk.chunk_id, chunk.content_hash) != chunk.content_hash:
            yield f"Chunk {chunk.chunk_id!r} has another text by now."
            return
        text = self.facts.texts.get(chunk.chunk_id, "")
        for correction in filter(None, (said.correction for said in self.ask.said)):
            if others := other_figures(correction, text, [self.ask.question]):
                named = ", ".join(others)
                yield f"Chunk {chunk.chunk_id!r} says otherwise than a correction: {named}."

    def _stale_chunk(self) -> str | None:
        stale = (one for one in self._resting() if any(self._stale_facts(one)))
        return next((one.chunk_id for one in stale), None)

    def _suspect(self) -> str | None:
        """Return the chunk that people named, else the first cited one, else the first one."""
        ask = self.ask
        there = {chunk.chunk_id for chunk in ask.last_search}
        named = [said.target for said in ask.against if said.target != ANSWER]
        cited = [chunk.chunk_id for chunk in ask.prompt if chunk.cited]
        listed = [chunk.chunk_id for chunk in (*ask.prompt, *ask.last_search)]
        return next(iter([*(one for one in named if one in there), *cited, *listed]), None)

    def _outside(self, liked: LikedChunk) -> str:
        pool = [
            one for one in self.ask.last_search if (one.cell_id, one.content_hash) == liked.key
        ]
        where = (
            f"stood at place {pool[0].final_rank + 1}, below the prompt"
            if pool
            else ("was not among what was found")
        )
        return f"{self._named(liked)}, and {where}."

    def _below(self, chunk: AskedChunk) -> str:
        where = f"stood at place {chunk.final_rank + 1}, below the prompt"
        if chunk not in self.ask.last_search:
            where = f"was found by search {chunk.attempt} only"
        return f"Chunk {chunk.chunk_id!r} was graded relevant, and {where}."

    def _named(self, liked: LikedChunk) -> str:
        if liked.pinned:
            return f"Chunk {liked.chunk_id!r} is pinned for this question"
        return f"People found chunk {liked.chunk_id!r} right here (belief {liked.belief:.2f})"


def _how_badly(ask: Ask) -> str:
    """Return what is wrong with how the answer was written; empty where nothing is known."""
    if ask.reason in _NOT_WRITTEN:
        return f"It abstained all the same: {ask.reason}."
    told = any(said.signal == "not_grounded" for said in ask.said)
    if ask.grounded is False or (told and ask.grounded is None):
        return "The answer is not grounded in it."
    known = any(chunk.cited is not None for chunk in ask.prompt)
    if ask.status != "abstained" and known and not any(chunk.cited for chunk in ask.prompt):
        return "The answer quotes none of its sources."
    return ""


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(map(repr, ids))
