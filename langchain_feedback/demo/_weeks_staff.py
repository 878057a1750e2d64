"""The staff of the four weeks: reviewers who may err, and the owner of the handbook."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document

from langchain_feedback.demo._weeks_desk import Desk
from langchain_feedback.demo._weeks_people import Truth
from langchain_feedback.demo._weeks_questions import need_of
from langchain_feedback.loop.corrections import Corrections, OwnerItem
from langchain_feedback.loop.owners import Owner, Owners
from langchain_feedback.loop.review import ReviewItem, ReviewQueue

__all__ = ["OWNERS", "HandbookOwner", "Reviewers"]

_OWNER = "handbook team"

OWNERS = Owners(default=Owner(_OWNER))

_REVIEWER, _OTHERS = "rita", ("sam", "kim", "lou")


@dataclass
class Reviewers:
    """Rita reviews a batch a week; Sam sees what two must agree on, others come where they differ.

    They read the whole pool and know the handbook, and name the chunk that answers. Sometimes
    they slip, and name another one.

    Args:
        desk: Whose questions.
        chance: When they slip, and to where.
        truth: What a text must say to be true.
        errors: How often they name a wrong chunk, from 0 to 1.
    """

    desk: Desk
    chance: random.Random
    truth: Truth
    errors: float

    def week(self, most: int) -> int:
        """Review up to so many items; return how many that were."""
        queue = ReviewQueue(self.desk.store, owners=OWNERS)
        done = 0
        while done < most and (item := queue.claim(_REVIEWER)) is not None:
            decision = queue.decide(item, **self._verdict(item))
            for other in _OTHERS:
                if decision.state == "open" and (
                    again := queue.claim(other, item_id=item.item_id)
                ):
                    decision = queue.decide(again, **self._verdict(again))
            done += 1
        return done

    def _verdict(self, item: ReviewItem) -> dict[str, Any]:
        if item.kind == "burst":
            return {"verdict": "confirm", "note": "One person, again and again."}
        need = need_of(item.question)
        right = need.chunk_id
        if right not in self.desk.documents:
            return {"verdict": "reject", "none_exists": True}
        is_true, correction = self.truth.get(right, ("", ""))
        # He knows the handbook: what was corrected since needs no other correction.
        is_stale = is_true not in self.desk.documents[right].page_content
        if is_stale and item.guess == right:
            return {
                "verdict": "confirm",
                "failure_class": "stale_document",
                "correction": correction,
            }
        others = sorted({str(one["chunk_id"]) for one in item.snapshot["chunks"]} - {right})
        if others and self.chance.random() < self.errors:
            right = self.chance.choice(others)
        told: dict[str, Any] = {"verdict": "reject", "right_chunks": [right]}
        if item.guess not in {None, right}:
            return told | {"verdict": "confirm"}
        if item.failure_class == "stale_document":
            return told | {"failure_class": "disputed"}
        return told


@dataclass
class HandbookOwner:
    """Writes and corrects what the loop asks for, a week later; knows what stands there already.

    Args:
        desk: Where documents are published.
        writes: By chunk id, the document as it should be.
    """

    desk: Desk
    writes: Mapping[str, Document]

    def work(self) -> list[str]:
        """Go through what is open; return the ids of the chunks that were written."""
        corrections = Corrections(self.desk.store, OWNERS)
        published = set(self.desk.documents)
        written: dict[str, None] = {}
        for item in reversed(corrections.items()):
            if item.state not in ("open", "acknowledged"):
                continue
            about = _about(item)
            asked_for = about if item.kind == "correction" else about - published
            if asked_for & set(self.writes):
                corrections.move(item.item_id, "acknowledged", actor=_OWNER)
                written |= dict.fromkeys(sorted(asked_for & set(self.writes)))
            elif item.kind == "missing_document" and item.state == "open":
                note = f"The handbook has it: {', '.join(sorted(about))}."
                corrections.move(item.item_id, "withdrawn", actor=_OWNER, note=note)
        self.desk.publish(*(self.writes[chunk_id] for chunk_id in written))
        return list(written)


def _about(item: OwnerItem) -> set[str]:
    """Return the chunks that an item is about, as anybody would understand who reads it."""
    if item.chunk_id is not None:
        return {item.chunk_id}
    questions = [item.question, *map(str, item.snapshot.get("questions") or ())]
    return {need_of(question).chunk_id for question in questions}
