"""The people of the four weeks: sixty who ask and sometimes say something, and one who lies."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from langchain_feedback.demo._weeks_desk import Desk, Reply
from langchain_feedback.demo._weeks_questions import LEAD_INS, NEEDS, Need
from langchain_feedback.store.inbox.events import Incoming

__all__ = ["Asked", "Liar", "People", "is_right"]

_PEOPLE = 60
_WITH_LEAD_IN = 0.5
_RATES, _MISCLICKS = 0.3, 0.15
_CLICKS_RIGHT, _CLICKS_WRONG = 0.6, 0.05
_COPIES = 0.25
_ASKS_AGAIN = 0.35
_CORRECTS = 0.4
_EXAM_LEAD_INS = 4
"""The last lead-ins, which nobody uses but the exam."""

Truth = Mapping[str, tuple[str, str]]
"""By chunk: a word that must stand in its text to be true, and what people say where it does
not."""


@dataclass(frozen=True)
class Asked:
    """A question of a person, and whether the answer was right."""

    question: str
    need: Need
    good: bool


def is_right(reply: Reply, need: Need, truth: Truth) -> bool:
    """Whether an answer is what somebody needs, and true."""
    if reply.answer is None or reply.answer.id != need.chunk_id:
        return False
    return truth.get(need.chunk_id, ("", ""))[0] in reply.answer.page_content


@dataclass
class People:
    """Sixty people who ask about the handbook, some things more often than others.

    Half of all questions are asked in plain words, which others use as well; the other half with
    something said before that hardly anybody else says. One in three people who got a wrong answer
    asks again in other words. Three in ten rate, of which 15 % hit the wrong thumb. Sources are
    looked at the less the lower they stand (`1 / rank`); a right one is opened by 60 % of those
    who see it, a wrong one by 5 %.

    Args:
        desk: Whom they ask.
        chance: What they do.
        truth: What a text must say to be true.
    """

    desk: Desk
    chance: random.Random
    truth: Truth = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        shuffled = self.chance.sample(NEEDS, len(NEEDS))
        # The exam stays the same when documents are added.
        self._known = [need for need in NEEDS if need.chunk_id in self.desk.documents]
        self._weights = {need: 1 / (1 + place) ** 0.5 for place, need in enumerate(shuffled)}

    def exam(self) -> list[tuple[str, str]]:
        """Return questions that none of them asks, each with the chunk that answers it."""
        lead_ins = LEAD_INS[-_EXAM_LEAD_INS:]
        return [
            (f"{lead_ins[at % len(lead_ins)]} {wording}", need.chunk_id)
            for need in self._known
            for at, wording in enumerate(need.wordings)
        ]

    def day(self, asks: int) -> list[Asked]:
        """Ask, and say what there is to say, as browsers send it."""
        asked: list[Asked] = []
        events: list[Incoming] = []
        for _ in range(asks):
            visit = [*self._visit()]
            asked += [one for one, _ in visit]
            events += [event for _, said in visit for event in said]
        self.desk.store.receive(events)
        return asked

    def _visit(self) -> Iterator[tuple[Asked, list[Incoming]]]:
        """Yield what one person asks in one go."""
        person = f"person-{self.chance.randrange(_PEOPLE)}"
        session = f"visit-{next(self._numbers)}"
        [need] = self.chance.choices(NEEDS, [self._weights[one] for one in NEEDS])
        wording = self.chance.choice(need.wordings)
        question = self._in_own_words(wording)
        while True:
            reply = self.desk.ask(question, need.chunk_id, actor=person, session=session)
            good = is_right(reply, need, self.truth)
            yield Asked(question, need, good), [*self._says(reply, need, person, good=good)]
            if good or self.chance.random() >= _ASKS_AGAIN:
                return
            question = self._asked_again(question, wording, need)

    def _in_own_words(self, wording: str) -> str:
        if self.chance.random() >= _WITH_LEAD_IN:
            return wording
        return f"{self.chance.choice(LEAD_INS[:-_EXAM_LEAD_INS])} {wording}"

    def _asked_again(self, question: str, wording: str, need: Need) -> str:
        """Return the bare question where more was said before, else another way to ask."""
        if question != wording:
            return wording
        return self.chance.choice([one for one in need.wordings if one != wording])

    def _says(self, reply: Reply, need: Need, person: str, *, good: bool) -> Iterator[Incoming]:
        for rank, document in enumerate(reply.documents):
            is_it = document.id == need.chunk_id
            opens = (_CLICKS_RIGHT if is_it else _CLICKS_WRONG) / (1 + rank)
            if self.chance.random() < opens:
                yield self._event(reply, "source_click", person, target=document.id, rank=rank)
        if self.chance.random() < _RATES:
            liked = good != (self.chance.random() < _MISCLICKS)
            yield self._event(reply, "thumbs_up" if liked else "thumbs_down", person)
        if good and self.chance.random() < _COPIES:
            yield self._event(reply, "copy", person)
        stale = reply.answer is not None and reply.answer.id == need.chunk_id and not good
        if stale and self.chance.random() < _CORRECTS:
            said = self.truth[need.chunk_id][1]
            yield self._event(reply, "correction", person, correction=said)

    def _event(self, reply: Reply, signal: str, person: str, **more: Any) -> Incoming:
        name = f"event-{next(self._numbers)}"
        return Incoming(name, reply.trace_id, signal, actor=person, **more)


@dataclass
class Liar:
    """One who wants a chunk gone: asks for it again and again, and says that it is wrong."""

    desk: Desk
    chunk_id: str
    times: int = 20
    held: int = 0
    """How many of the votes were held back so far."""

    def day(self) -> None:
        """Do it."""
        question = next(need.wordings[0] for need in NEEDS if need.chunk_id == self.chunk_id)
        events = []
        for turn in range(self.times):
            name = f"lie-{turn}"
            reply = self.desk.ask(question, self.chunk_id, actor="liar", session=name)
            if any(one.id == self.chunk_id for one in reply.documents):
                lie = Incoming(name, reply.trace_id, "wrong_source", self.chunk_id, actor="liar")
                events.append(lie)
        received = self.desk.store.receive(events)
        self.held += sum(one.status == "held" for one in received)
