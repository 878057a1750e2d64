"""What a long time of answers shows of each source: judged answers, texts, last sightings."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from langchain_feedback.loop._triage.complaints import Judged
from langchain_feedback.loop._triage.resting import blamed_sources, rests_on
from langchain_feedback.store.asking import Ask

__all__ = ["Change", "Seen", "changes", "gone"]

_LOST_TIMES, _LOST_FOR = 3, timedelta(days=7)


@dataclass(frozen=True)
class Change:
    """A chunk that answers rested on has another text now."""

    source: str
    chunk_id: str
    was: str
    """The hash of the text that they rested on."""
    is_now: str
    answers: int
    """Answers that rested on the old text, and were good or quoted it."""


@dataclass
class Seen:
    """What was seen of sources and chunks, from answers in order of time."""

    judged: dict[str, list[Judged]] = field(default_factory=lambda: defaultdict(list))
    """By source."""
    silent: dict[str, list[Judged]] = field(default_factory=lambda: defaultdict(list))
    """Answers of which nobody said anything, as if they were good."""
    praised: bool = False
    """Whether anybody ever says that an answer is good."""
    renewed: dict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    """When a chunk of a source was first seen with another text."""
    rested: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """Answers by chunk id and hash of the text that they rested on."""
    good: set[tuple[str, str]] = field(default_factory=set)
    """Chunk ids and hashes that somebody found an answer good from."""
    hashes: dict[str, str] = field(default_factory=dict)
    """The newest text of each chunk."""
    sources: dict[str, str] = field(default_factory=dict)
    """Of each chunk."""
    found_at: dict[str, datetime] = field(default_factory=dict)
    """When a source was last among the candidates."""
    text_at: dict[str, datetime] = field(default_factory=dict)
    """When a text, by its hash, was last among the candidates, of whatever source."""
    texts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The hashes of a source's chunks that answers rested on."""
    questions: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Which questions had answers that rested on a source."""
    asked: dict[int, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    """When each question was asked."""

    @classmethod
    def of(cls, asks: Iterable[Ask]) -> "Seen":
        """Go through answers, oldest first."""
        seen = cls()
        for ask in asks:
            seen.add(ask)
        return seen

    def add(self, ask: Ask) -> None:
        """Take in one more answer."""
        self.asked[ask.question_id].append(ask.created_at)
        self._judge(ask)
        for chunk in ask.chunks:
            before = self.hashes.get(chunk.chunk_id, chunk.content_hash)
            if before != chunk.content_hash and chunk.source:
                self.renewed[chunk.source].append(ask.created_at)
            self.hashes[chunk.chunk_id] = chunk.content_hash
            self.sources[chunk.chunk_id] = chunk.source
            self.text_at[chunk.content_hash] = ask.created_at
            self.found_at[chunk.source] = ask.created_at
        is_good = not ask.is_failure and any(said.is_for for said in ask.said)
        for chunk in rests_on(ask):
            key = chunk.chunk_id, chunk.content_hash
            if is_good:
                self.good.add(key)
            self.rested[key] += bool(chunk.cited) or is_good
            self.texts[chunk.source].add(chunk.content_hash)
            self.questions[chunk.source].add(ask.question_id)

    def _judge(self, ask: Ask) -> None:
        is_good = any(said.is_for for said in ask.said)
        self.praised |= is_good
        of = self.judged if is_good or ask.is_failure else self.silent
        for source in blamed_sources(ask):
            of[source].append(Judged(ask.created_at, ask.is_failure))

    def observed(self) -> Mapping[str, Sequence[Judged]]:
        """Return what counts as judged, by source, oldest first.

        Where nobody ever says that an answer is good, silence has to do: else all answers of
        which anybody says anything would be bad ones.
        """
        if self.praised:
            return self.judged
        joined: dict[str, list[Judged]] = defaultdict(list)
        for of in (self.judged, self.silent):
            for source, answers in of.items():
                joined[source] += answers
        return {source: sorted(some, key=lambda one: one.at) for source, some in joined.items()}


def changes(seen: Seen, current: Mapping[str, str]) -> Iterator[Change]:
    """Yield the chunks whose text is another one than that which answers rested on.

    Answers count that somebody found good, or that quote the chunk. A chunk from whose new text
    an answer was found good since is none of them.

    Args:
        seen: What was seen.
        current: The hash of each chunk's text, as last seen.
    """
    for (chunk_id, was), answers in seen.rested.items():
        is_now, source = current.get(chunk_id, was), seen.sources[chunk_id]
        if answers and source and is_now != was and (chunk_id, is_now) not in seen.good:
            yield Change(source, chunk_id, was, is_now, answers)


def gone(seen: Seen, now: datetime) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sources that searches do not find any more, and what shows it.

    That nobody asks for a source says nothing: the questions that it answered were asked again,
    3 times at least, and it was among the candidates in none of these searches nor in any
    other, for a week at least. A source whose texts are found under another name has moved.
    """
    for source, about in seen.questions.items():
        last = seen.found_at.get(source, now)
        if not source or now - last < _LOST_FOR:
            continue
        again = sum(at > last for one in about for at in seen.asked[one])
        moved = any(seen.text_at[text] > last for text in seen.texts[source])
        if again >= _LOST_TIMES and not moved:
            yield source, {"last_found": last.isoformat(), "asked_since": again}
